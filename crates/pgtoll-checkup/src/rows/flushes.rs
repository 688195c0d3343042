//! Flushes: `fsync`, `full_page_writes`, `synchronous_commit`.

use pgtoll_estimate::percent_of_share;
use pgtoll_record::{CheckupRecord, CommitOverride, Safety, SafetyRow, SafetyState};

use super::{Words, commits, is_off, setting};
use crate::commits::float;

pub(super) fn fsync(checkup: &CheckupRecord) -> SafetyRow {
    let retries = setting(checkup, "data_sync_retry") == "on";
    let (state, now, advice) = match (is_off(checkup, "fsync"), retries) {
        (true, _) => {
            let advice = "set fsync = on and reload; then run sync once on the host";
            (SafetyState::Missing, "off".to_owned(), Some(advice.to_owned()))
        }
        (false, true) => {
            let advice =
                "set data_sync_retry = off unless the kernel keeps pages that it failed to write";
            (
                SafetyState::Partial,
                "on, with data_sync_retry = on".to_owned(),
                Some(advice.to_owned()),
            )
        }
        (false, false) => (SafetyState::Held, "on".to_owned(), None),
    };
    let words = Words {
        now,
        buys: "a cluster that survives a crash of the operating system".to_owned(),
        costs: wal_waits(checkup),
        advice,
        basis: "pg_settings, waits of active sessions",
    };
    words.row(Safety::Fsync, state)
}

/// Waits for WAL, as far as they were seen.
fn wal_waits(checkup: &CheckupRecord) -> String {
    match checkup.watch.waits {
        Some(waits) if waits.active > 0.0 => {
            format!("{} of active sessions' time waits for WAL", percent_of_share(waits.wal_share))
        }
        Some(_) => "no session was active".to_owned(),
        None => "unknown: the role may not see other sessions".to_owned(),
    }
}

pub(super) fn full_page_writes(checkup: &CheckupRecord) -> SafetyRow {
    let is_off = is_off(checkup, "full_page_writes");
    let writes = checkup.prediction.as_ref().map(|prediction| prediction.today.writes_per_second);
    let blocks = writes.map_or_else(
        || "blocks under write when the power fails".to_owned(),
        |rate| format!("blocks under write when the power fails, of {rate:.0} written a second"),
    );
    let words = Words {
        now: if is_off { "off" } else { "on" }.to_owned(),
        buys: format!("repair of torn pages: {blocks}"),
        costs: image_share(checkup),
        advice: is_off.then(|| {
            "set full_page_writes = on, unless the file system writes 8 kB atomically".to_owned()
        }),
        basis: "pg_settings, pg_stat_wal, pg_stat_io or pg_stat_bgwriter",
    };
    let state = if is_off { SafetyState::Missing } else { SafetyState::Held };
    words.row(Safety::FullPageWrites, state)
}

/// Images in WAL, at most: views count them, not their bytes.
fn image_share(checkup: &CheckupRecord) -> String {
    let images = checkup.prediction.as_ref().and_then(|prediction| {
        let rates = prediction.today;
        let images = rates.images_per_second?;
        let bytes = images * float(prediction.server.block_bytes);
        (rates.wal_bytes_per_second > 0.0).then(|| (images, bytes / rates.wal_bytes_per_second))
    });
    match images {
        Some((images, share)) => format!(
            "already paid: {images:.0} images a second, at most {} of WAL",
            percent_of_share(share.min(1.0))
        ),
        None => "unknown: no whole checkpoint cycle was seen".to_owned(),
    }
}

pub(super) fn synchronous_commit(checkup: &CheckupRecord) -> SafetyRow {
    let level = setting(checkup, "synchronous_commit");
    let weaker: Vec<String> = checkup
        .server
        .commit_overrides
        .iter()
        .filter(|other| other.value == "off" && level != "off")
        .map(scope)
        .collect();
    let (state, advice) = match (level, weaker.is_empty()) {
        ("off", _) => (SafetyState::Missing, Some("set synchronous_commit = on".to_owned())),
        (_, false) => {
            (SafetyState::Partial, Some("check that these may lose their last commits".to_owned()))
        }
        _ => (SafetyState::Held, None),
    };
    let off =
        if weaker.is_empty() { String::new() } else { format!("; off for {}", weaker.join(", ")) };
    let lost = checkup.loss.as_ref().map(|loss| {
        let most = commits(loss.crash.most);
        let median = loss.crash.median;
        format!(
            "a crash of the host now loses up to {most} that were not flushed (median {median:.0})"
        )
    });
    let words = Words {
        now: format!("{level}{off}"),
        buys: match (level, lost) {
            ("off", Some(lost)) => lost,
            ("off", None) => {
                "a crash of the host loses up to three times wal_writer_delay".to_owned()
            }
            _ => "acknowledged commits survive a crash of the host".to_owned(),
        },
        costs: wal_waits(checkup),
        advice,
        basis: "pg_settings, pg_db_role_setting; sessions can set other levels",
    };
    words.row(Safety::SynchronousCommit, state)
}

fn scope(other: &CommitOverride) -> String {
    match (&other.role, &other.database) {
        (Some(role), Some(database)) => format!("role {role} in database {database}"),
        (Some(role), None) => format!("role {role}"),
        (None, Some(database)) => format!("database {database}"),
        (None, None) => "all roles".to_owned(),
    }
}
