use pgtoll_record::{
    CheckedArchive, CheckedDatabase, CheckedServer, CheckedSlot, CheckupWatch, CommitOverride,
    LossBounds, LossWindow, RecoveryBasis, SeenRecovery, Spread, StandbyWindow, WatchSource,
};

use super::*;

const SOUND: [(&str, &str); 15] = [
    ("archive_command", "cp %p /archive/%f"),
    ("archive_mode", "on"),
    ("autovacuum", "on"),
    ("autovacuum_freeze_max_age", "200000000"),
    ("checkpoint_completion_target", "0.9"),
    ("checkpoint_timeout", "5min"),
    ("data_checksums", "on"),
    ("data_sync_retry", "off"),
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("max_slot_wal_keep_size", "-1"),
    ("max_wal_size", "1GB"),
    ("synchronous_commit", "on"),
    ("synchronous_standby_names", "db2"),
    ("track_counts", "on"),
];

fn standby(sync_state: &str) -> StandbyWindow {
    let lag = Some(Spread { median: 2.0, p95: 3.0, most: 4.0 });
    StandbyWindow {
        name: "db2".to_owned(),
        sync_state: sync_state.to_owned(),
        looks: 10,
        flush_lag_ms: lag,
        ..StandbyWindow::default()
    }
}

#[test]
fn copies_that_a_provider_keeps_are_not_called_missing() {
    let mut record = sound();
    record.server.archive = None;
    record.server.settings.insert("archive_mode".to_owned(), "off".to_owned());
    record.server.settings.insert("synchronous_standby_names".to_owned(), String::new());
    record.loss = Some(LossWindow { standbys: Vec::new(), ..record.loss.unwrap_or_default() });
    let state = |record: &CheckupRecord, safety: Safety| {
        rows(record).into_iter().find(|row| row.safety == safety).map(|row| row.state)
    };
    for safety in [Safety::Standbys, Safety::Archive] {
        assert_ne!(state(&record, safety), Some(SafetyState::Unknown), "{safety:?}");
        let provider = Some("Amazon RDS".to_owned());
        let server = CheckedServer { provider, ..record.server.clone() };
        let managed = CheckupRecord { server, ..record.clone() };
        assert_eq!(state(&managed, safety), Some(SafetyState::Unknown), "{safety:?}");
    }
    record.server.provider = Some("Amazon RDS".to_owned());
    record.server.settings.insert("synchronous_standby_names".to_owned(), "db2".to_owned());
    assert_eq!(state(&record, Safety::Standbys), Some(SafetyState::Missing));
    record.server.settings.insert("archive_mode".to_owned(), "on".to_owned());
    let failed_age_s = Some(1.0);
    let failing = CheckedArchive { failed_age_s, failures: 3, ..CheckedArchive::default() };
    record.server.archive = Some(failing);
    assert_eq!(state(&record, Safety::Archive), Some(SafetyState::Missing));
}

/// A server that lacks nothing, watched by a role that sees all.
fn sound() -> CheckupRecord {
    let confirmed = Spread { median: 3.0, p95: 9.0, most: 12.0 };
    let host = LossBounds { confirmed, sent: Spread::default(), range: (0.0, 10.2) };
    let database = CheckedDatabase { name: "shop".to_owned(), ..CheckedDatabase::default() };
    let mut record = CheckupRecord {
        server: CheckedServer {
            settings: SOUND
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            databases: vec![database],
            archive: Some(CheckedArchive {
                archived_age_s: Some(60.0),
                ..CheckedArchive::default()
            }),
            data_bytes: Some(1 << 40),
            ..CheckedServer::default()
        },
        watch: CheckupWatch {
            looks: 10,
            writes_per_second: 100.0,
            wal_bytes_per_second: 1e6,
            ..CheckupWatch::default()
        },
        loss: Some(LossWindow {
            host: Some(host),
            standbys: vec![standby("sync")],
            ..LossWindow::default()
        }),
        ..CheckupRecord::default()
    };
    let since_redo = Spread { median: 1e8, p95: 2e8, most: 3e8 };
    record.recovery = Some(forecast(&record, since_redo, None));
    record
}

/// The safeties that are not held, with their states.
fn open(record: &CheckupRecord) -> Vec<(Safety, SafetyState)> {
    let rows = rows(record).into_iter();
    rows.filter(|row| row.state != SafetyState::Held).map(|row| (row.safety, row.state)).collect()
}

/// Plants a change in a sound server and returns the safeties that are not held any more.
fn planted(change: impl FnOnce(&mut CheckupRecord)) -> Vec<(Safety, SafetyState)> {
    let mut record = sound();
    change(&mut record);
    open(&record)
}

fn set(name: &str, value: &str) -> impl FnOnce(&mut CheckupRecord) {
    let (name, value) = (name.to_owned(), value.to_owned());
    move |record| drop(record.server.settings.insert(name, value))
}

#[test]
fn a_sound_server_lacks_nothing() {
    assert_eq!(open(&sound()), []);
}

#[test]
fn each_setting_that_is_wrong_is_the_one_finding() {
    use SafetyState::{Missing, Partial};
    for (name, value, expected) in [
        ("fsync", "off", (Safety::Fsync, Missing)),
        ("data_sync_retry", "on", (Safety::Fsync, Partial)),
        ("full_page_writes", "off", (Safety::FullPageWrites, Missing)),
        ("ignore_checksum_failure", "on", (Safety::DataChecksums, Partial)),
        ("archive_command", "", (Safety::Archive, Missing)),
        ("archive_command", "/bin/true", (Safety::Archive, Missing)),
        ("autovacuum", "off", (Safety::Autovacuum, Missing)),
        ("track_counts", "off", (Safety::Autovacuum, Missing)),
    ] {
        assert_eq!(planted(set(name, value)), [expected], "{name} = {value}");
    }
}

#[test]
fn commits_that_do_not_wait_are_a_finding_of_their_own() {
    use SafetyState::{Missing, Partial};
    let expected = [(Safety::SynchronousCommit, Missing), (Safety::Standbys, Partial)];
    assert_eq!(planted(set("synchronous_commit", "off")), expected);
    assert_eq!(planted(set("synchronous_commit", "local")), [(Safety::Standbys, Partial)]);
    let by_role = |record: &mut CheckupRecord| {
        let role = Some("loader".to_owned());
        let value = "off".to_owned();
        record.server.commit_overrides.push(CommitOverride { role, value, database: None });
    };
    let expected = [(Safety::SynchronousCommit, Partial), (Safety::Standbys, Partial)];
    assert_eq!(planted(by_role), expected);
}

#[test]
fn hints_matter_where_checksums_are_off_and_there_is_a_standby() {
    use SafetyState::Missing;
    let off = |record: &mut CheckupRecord| {
        set("data_checksums", "off")(record);
        set("wal_log_hints", "off")(record);
    };
    let expected = [(Safety::DataChecksums, Missing), (Safety::HintBits, Missing)];
    assert_eq!(planted(off), expected);
    let with_hints = |record: &mut CheckupRecord| {
        set("data_checksums", "off")(record);
        set("wal_log_hints", "on")(record);
    };
    assert_eq!(planted(with_hints), [(Safety::DataChecksums, Missing)]);
}

#[test]
fn standbys_are_judged_by_what_a_failover_would_find() {
    use SafetyState::{Missing, Partial, Unknown};
    let asynchronous = |record: &mut CheckupRecord| {
        set("synchronous_standby_names", "")(record);
        record.loss.as_mut().unwrap().standbys = vec![standby("async")];
    };
    assert_eq!(planted(asynchronous), [(Safety::Standbys, Partial)]);
    let mut record = sound();
    asynchronous(&mut record);
    let row = standbys_row(&record);
    assert_eq!(row.buys, "the death of this host loses 0 to 11 commits (median 3, most 12)");
    assert_eq!(row.costs, "to wait for it: on +2.0 ms a commit");
    let gone = |record: &mut CheckupRecord| record.loss.as_mut().unwrap().standbys.clear();
    assert_eq!(planted(gone), [(Safety::Standbys, Missing)], "commits wait");
    let alone = |record: &mut CheckupRecord| {
        set("synchronous_standby_names", "")(record);
        gone(record);
    };
    assert_eq!(planted(alone), [(Safety::Standbys, Partial)], "there is an archive");
    let the_only_copy = |record: &mut CheckupRecord| {
        alone(record);
        record.server.archive = None;
    };
    let expected = [(Safety::Standbys, Missing), (Safety::Archive, Partial)];
    assert_eq!(planted(the_only_copy), expected);
    let hidden = |record: &mut CheckupRecord| {
        let name = crate::server::STANDBYS_SOURCE.to_owned();
        record.sources.push(WatchSource {
            name,
            available: false,
            gives: String::new(),
            remedy: None,
        });
    };
    assert_eq!(planted(hidden), [(Safety::Standbys, Unknown)]);
}

#[test]
fn the_price_of_waiting_is_that_of_the_servers_level() {
    let mut record = sound();
    assert_eq!(standbys_row(&record).costs, "already paid: on +2.0 ms a commit");
    set("synchronous_commit", "remote_apply")(&mut record);
    record.loss.as_mut().unwrap().standbys[0].replay_lag_ms =
        Some(Spread { median: 7.0, p95: 8.0, most: 9.0 });
    assert_eq!(standbys_row(&record).costs, "already paid: remote_apply +7.0 ms a commit");
}

#[test]
fn without_a_look_standbys_are_unknown() {
    let unseen = planted(|record| record.loss = None);
    assert_eq!(unseen, [(Safety::Standbys, SafetyState::Unknown)]);
}

fn standbys_row(record: &CheckupRecord) -> SafetyRow {
    rows(record).into_iter().find(|row| row.safety == Safety::Standbys).unwrap()
}

#[test]
fn slots_that_nobody_uses_fill_the_disk() {
    use SafetyState::{Missing, Partial};
    let slot = |active, wal_status: &str| CheckedSlot {
        name: "db3".to_owned(),
        active,
        retained_bytes: Some(5 << 30),
        wal_status: Some(wal_status.to_owned()),
    };
    let with = |slot: CheckedSlot| planted(|record| record.server.slots.push(slot));
    assert_eq!(with(slot(true, "reserved")), []);
    assert_eq!(with(slot(false, "extended")), [(Safety::Slots, Missing)]);
    let bounded = planted(|record| {
        set("max_slot_wal_keep_size", "20GB")(record);
        record.server.slots.push(slot(false, "extended"));
    });
    assert_eq!(bounded, [(Safety::Slots, Partial)]);
    let lost = planted(|record| {
        set("max_slot_wal_keep_size", "20GB")(record);
        record.server.slots.push(slot(false, "lost"));
    });
    assert_eq!(lost, [(Safety::Slots, Missing)]);
}

#[test]
fn an_archive_is_judged_by_its_last_attempt_and_its_age() {
    use SafetyState::{Missing, Partial};
    let with = |archived_age_s, failed_age_s| {
        planted(|record| {
            let archive = CheckedArchive { archived_age_s, failed_age_s, failures: 3 };
            record.server.archive = Some(archive);
        })
    };
    assert_eq!(with(Some(60.0), Some(90.0)), [], "it failed once, and was retried");
    assert_eq!(with(Some(60.0), Some(30.0)), [(Safety::Archive, Missing)]);
    assert_eq!(with(None, Some(30.0)), [(Safety::Archive, Missing)]);
    assert_eq!(with(Some(7200.0), None), [(Safety::Archive, Partial)]);
    assert_eq!(with(None, None), [(Safety::Archive, Partial)]);
}

#[test]
fn recovery_is_judged_by_the_wal_that_the_settings_allow() {
    use SafetyState::{Missing, Partial};
    let with = |max_wal_size: &str, rate: f64| {
        planted(|record| {
            set("max_wal_size", max_wal_size)(record);
            set("checkpoint_timeout", "1h")(record);
            record.watch.wal_bytes_per_second = rate;
            record.recovery = Some(forecast(record, Spread::default(), None));
        })
    };
    assert_eq!(with("1GB", 1e7), []);
    // 68 GB in an hour and 54 minutes: 140 s to an hour.
    assert_eq!(with("1TB", 1e7), [(Safety::Checkpoints, Missing)]);
    assert_eq!(with("20GB", 1e7), [(Safety::Checkpoints, Partial)]);
    let unknown = planted(|record| record.recovery = None);
    assert_eq!(unknown, [(Safety::Checkpoints, SafetyState::Unknown)]);
}

#[test]
fn old_transactions_are_judged_by_their_age() {
    use SafetyState::{Missing, Partial};
    let with = |transaction_age, multixact_age| {
        planted(|record| {
            let database = &mut record.server.databases[0];
            (database.transaction_age, database.multixact_age) = (transaction_age, multixact_age);
        })
    };
    assert_eq!(with(300_000_000, 0), []);
    assert_eq!(with(450_000_000, 0), [(Safety::Wraparound, Partial)]);
    assert_eq!(with(0, 450_000_000), [(Safety::Wraparound, Partial)]);
    assert_eq!(with(1_700_000_000, 0), [(Safety::Wraparound, Missing)]);
}

#[test]
fn counted_failures_are_a_finding() {
    let failed = planted(|record| {
        record.server.databases[0].checksum_failures = Some(2);
        record.server.databases[0].last_checksum_failure = Some("2026-11-01".to_owned());
    });
    assert_eq!(failed, [(Safety::ChecksumFailures, SafetyState::Missing)]);
}

#[test]
fn the_rate_of_the_last_recovery_narrows_the_forecast() {
    let record = sound();
    let since_redo = Spread { median: 1e8, p95: 1e8, most: 1e8 };
    let seen = SeenRecovery {
        ended: "2026-11-29T10:00:03.5".to_owned(),
        wal_bytes: 100_000_000,
        seconds: 2.0,
        redo_seconds: None,
    };
    let forecast = forecast(&record, since_redo, Some(seen));
    let range = forecast.median_s;
    assert!((range.estimate - 2.0).abs() < 0.01, "{forecast:?}");
    assert!(range.upper / range.lower <= 3.0, "{forecast:?}");
    let record = CheckupRecord { recovery: Some(forecast), ..record };
    let row = recovery::crash_recovery(&record);
    assert!(row.basis.contains("as the recovery that ended 2026-11-29 10:00:03.5: "), "{row:?}");
}

#[test]
fn a_standby_that_lags_gives_a_rate() {
    let mut record = sound();
    let loss = record.loss.as_mut().unwrap();
    loss.standbys[0].replay_bytes_per_second = Some(5e7);
    let forecast = forecast(&record, Spread { median: 1e8, p95: 1e8, most: 1e8 }, None);
    assert_eq!(forecast.basis, RecoveryBasis::Standby(5e7));
    assert!((forecast.median_s.estimate - 2.1).abs() < 0.01, "{forecast:?}");
}
