//! Copies: standbys, replication slots, the archive.

use pgtoll_record::{
    CheckedArchive, CheckedRecord, CheckedRecordKind, CheckedSlot, CheckupRecord, LossWindow,
    Safety, SafetyRow, SafetyState, SynchronousCommit, VerificationOutcome,
};

use super::{Words, commits, latest, outcome_words, setting, size, span};

/// Levels of `synchronous_commit` at which commits wait for a standby, if any is named.
const REMOTE: [&str; 3] = ["remote_write", "on", "remote_apply"];

pub(super) fn standbys(checkup: &CheckupRecord) -> SafetyRow {
    let hidden = checkup
        .sources
        .iter()
        .any(|source| !source.available && source.name == crate::server::STANDBYS_SOURCE);
    let standbys = checkup.loss.as_ref().map_or(&[][..], |loss| &loss.standbys);
    let level = setting(checkup, "synchronous_commit");
    let waits =
        !setting(checkup, "synchronous_standby_names").is_empty() && REMOTE.contains(&level);
    let is_synchronous =
        standbys.iter().any(|standby| ["sync", "quorum"].contains(&&*standby.sync_state));
    let names: Vec<String> = standbys
        .iter()
        .map(|standby| format!("{} ({})", standby.name, standby.sync_state))
        .collect();
    let now = if names.is_empty() { "none streams".to_owned() } else { names.join(", ") };
    let basis = "pg_stat_replication, WAL positions and transaction IDs of each look";
    let row = |state, words: Words| Words { basis, ..words }.row(Safety::Standbys, state);
    if hidden || checkup.loss.is_none() {
        let now = "no look showed standbys to this role".to_owned();
        let buys = "copies of commits on other hosts".to_owned();
        return row(SafetyState::Unknown, Words { now, buys, ..Words::default() });
    }
    let exempt =
        checkup.server.commit_overrides.iter().any(|other| !REMOTE.contains(&&*other.value));
    match (waits, is_synchronous, standbys.is_empty()) {
        (true, true, _) if exempt => row(
            SafetyState::Partial,
            Words {
                now,
                buys: "no acknowledged commit is lost, but those of roles or databases that do not wait"
                    .to_owned(),
                costs: format!("already paid: {}", level_costs(checkup.loss.as_ref(), Some(level))),
                advice: Some("check that these may lose their last commits".to_owned()),
                ..Words::default()
            },
        ),
        (true, false, _) => row(
            SafetyState::Missing,
            Words {
                now: format!(
                    "{now}; synchronous_standby_names is set, and no such standby streams"
                ),
                buys: "commits wait until one returns".to_owned(),
                advice: Some(
                    "start a synchronous standby, or change synchronous_standby_names".to_owned(),
                ),
                ..Words::default()
            },
        ),
        (true, true, _) => row(
            SafetyState::Held,
            Words {
                now,
                buys: "no acknowledged commit is lost in a failover to the synchronous standby that is ahead"
                    .to_owned(),
                costs: format!("already paid: {}", level_costs(checkup.loss.as_ref(), Some(level))),
                ..Words::default()
            },
        ),
        (false, _, false) => row(
            SafetyState::Partial,
            Words {
                now,
                buys: checkup.loss.as_ref().map(host_loss).unwrap_or_default(),
                costs: format!("to wait for it: {}", level_costs(checkup.loss.as_ref(), None)),
                advice: Some(
                    "name a standby in synchronous_standby_names if no commit may be lost"
                        .to_owned(),
                ),
                ..Words::default()
            },
        ),
        (false, _, true) => alone(checkup, row),
    }
}

/// No standby: the archive decides.
fn alone(checkup: &CheckupRecord, row: impl Fn(SafetyState, Words) -> SafetyRow) -> SafetyRow {
    let archives = checkup.server.archive.is_some();
    let age = checkup.server.archive.as_ref().and_then(|archive| archive.archived_age_s);
    let (state, buys) = match age {
        Some(age) => (
            SafetyState::Partial,
            format!(
                "the death of this host loses all since the last archived WAL: {} ago, {}",
                span(age),
                commits(checkup.watch.writes_per_second * age)
            ),
        ),
        // A crash resets the counters.
        None if archive_state(checkup).0 == SafetyState::Partial && archives => (
            SafetyState::Partial,
            "the death of this host loses all since the last archived WAL: none since counters were reset"
                .to_owned(),
        ),
        None => (
            SafetyState::Missing,
            "the death of this host loses all since the last backup".to_owned(),
        ),
    };
    let advice = Some("add a standby or an archive on another host".to_owned());
    row(state, Words { now: "none streams".to_owned(), buys, advice, ..Words::default() })
}

fn host_loss(loss: &LossWindow) -> String {
    let Some(host) = loss.host else { return String::new() };
    let (lower, upper) = host.range;
    format!(
        "the death of this host loses {:.0} to {} (median {:.0}, most {:.0})",
        lower.floor(),
        commits(upper),
        host.confirmed.median,
        host.confirmed.most
    )
}

/// The time that levels of `synchronous_commit` add to a commit: of all levels, or of the one that is paid today.
fn level_costs(loss: Option<&LossWindow>, today: Option<&str>) -> String {
    let levels = SynchronousCommit::ALL.into_iter();
    let shown = levels.filter(|level| today.is_none_or(|today| level.name() == today));
    let words: Vec<String> = shown
        .filter_map(|level| Some(format!("{} +{:.1} ms", level.name(), loss?.added_ms(level)?)))
        .collect();
    if words.is_empty() { "no WAL was sent".to_owned() } else { words.join(", ") + " a commit" }
}

pub(super) fn slots(checkup: &CheckupRecord) -> Option<SafetyRow> {
    let slots = &checkup.server.slots;
    let is_lost = |slot: &&CheckedSlot| slot.wal_status.as_deref() == Some("lost");
    let lost = slots.iter().find(is_lost);
    let dead = slots.iter().filter(|slot| !slot.active).max_by_key(|slot| slot.retained_bytes)?;
    let limit = setting(checkup, "max_slot_wal_keep_size");
    let is_bounded = limit != "-1";
    let kept = size(crate::commits::float(dead.retained_bytes.unwrap_or(0)));
    let growth = size(checkup.watch.wal_bytes_per_second * 86_400.0);
    let (state, now, advice) = match (lost, is_bounded) {
        (Some(slot), _) => (
            SafetyState::Missing,
            format!("slot {}: its WAL is lost", slot.name),
            "rebuild its standby or subscriber, and drop the slot",
        ),
        (None, false) => (
            SafetyState::Missing,
            format!("slot {} is not in use and has no bound: it keeps {kept}", dead.name),
            "start its standby, drop the slot, or set max_slot_wal_keep_size",
        ),
        (None, true) => (
            SafetyState::Partial,
            format!("slot {} is not in use: it keeps {kept} of at most {limit}", dead.name),
            "start its standby, or drop the slot",
        ),
    };
    let words = Words {
        now,
        buys: "a standby that returns finds its WAL".to_owned(),
        costs: format!("{growth} of disk a day at this rate"),
        advice: Some(advice.to_owned()),
        basis: "pg_replication_slots, WAL rate of the watch",
    };
    Some(words.row(Safety::Slots, state))
}

/// Commands that succeed and keep no WAL.
const DISCARDS: [&str; 6] = ["true", "/bin/true", "/usr/bin/true", ":", "exit 0", "cd ."];
/// Without news of the archive for this long, WAL that flows is not archived.
const STALE_S: f64 = 3600.0;

pub(super) fn archive(checkup: &CheckupRecord) -> SafetyRow {
    let (state, now, advice) = archive_state(checkup);
    let named = [("verified", CheckedRecordKind::Backup), ("drilled", CheckedRecordKind::Drill)]
        .map(|(verb, kind)| latest(checkup, kind).map(|named| (verb, named)));
    let named: Vec<(&str, &CheckedRecord)> = named.into_iter().flatten().collect();
    let is_damaged = named.iter().any(|(_, named)| named.outcome == VerificationOutcome::Findings);
    let backups =
        named.iter().map(|(verb, named)| format!("; a backup was {verb} {}", outcome_words(named)));
    let now = now + &backups.collect::<String>();
    let (state, advice) = if is_damaged {
        (SafetyState::Missing, Some("make a new backup, and drill it: pgtoll verify --drill"))
    } else {
        (state, advice)
    };
    let age = checkup.server.archive.as_ref().and_then(|archive| archive.archived_age_s);
    let lost = age.map(|age| {
        format!("; the loss of all hosts loses {}", commits(checkup.watch.writes_per_second * age))
    });
    let words = Words {
        now,
        buys: format!("a restore to any moment{}", lost.unwrap_or_default()),
        costs: format!(
            "{} of WAL a day to keep",
            size(checkup.watch.wal_bytes_per_second * 86_400.0)
        ),
        advice: advice.map(str::to_owned),
        basis: if named.is_empty() {
            "pg_stat_archiver, rates of the watch; backups are not looked at unless --record names their records"
        } else {
            "pg_stat_archiver, rates of the watch, records that were named"
        },
    };
    words.row(Safety::Archive, state)
}

fn archive_state(checkup: &CheckupRecord) -> (SafetyState, String, Option<&'static str>) {
    let command = setting(checkup, "archive_command");
    let has_library = !setting(checkup, "archive_library").is_empty();
    match &checkup.server.archive {
        None => (
            SafetyState::Partial,
            "archive_mode = off".to_owned(),
            Some("archive WAL to restore to any moment; base backups alone restore to their end"),
        ),
        Some(_) if command.is_empty() && !has_library => (
            SafetyState::Missing,
            "on, without archive_command: WAL accumulates".to_owned(),
            Some("set archive_command"),
        ),
        Some(_) if DISCARDS.contains(&command.trim()) => (
            SafetyState::Missing,
            format!("archive_command = '{command}' keeps nothing"),
            Some("set an archive_command that copies WAL to another host"),
        ),
        Some(archive) if archive.is_failing() => (
            SafetyState::Missing,
            format!("failing: {}", archive_age(archive)),
            Some("read the server's log, and repair archive_command before WAL fills the disk"),
        ),
        Some(archive) => judged_age(checkup, archive),
    }
}

fn judged_age(
    checkup: &CheckupRecord,
    archive: &CheckedArchive,
) -> (SafetyState, String, Option<&'static str>) {
    let now = archive_age(archive);
    let flows = checkup.watch.wal_bytes_per_second > 0.0;
    match archive.archived_age_s {
        Some(age) if age > STALE_S && flows => {
            (SafetyState::Partial, now, Some("set archive_timeout to bound what is not archived"))
        }
        Some(_) => (SafetyState::Held, now, None),
        None => (SafetyState::Partial, now, Some("set archive_timeout, and look again")),
    }
}

fn archive_age(archive: &CheckedArchive) -> String {
    let CheckedArchive { archived_age_s, failed_age_s, failures } = archive;
    let archived = archived_age_s.map_or_else(
        || "no segment was archived".to_owned(),
        |age| format!("the last segment was archived {} ago", span(age)),
    );
    let failed = failed_age_s.filter(|_| archive.is_failing());
    failed.map_or_else(
        || archived.clone(),
        |age| format!("{archived}, {failures} failures, the last {} ago", span(age)),
    )
}
