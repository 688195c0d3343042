//! Configuration of the server of a drill: nothing of it comes from the backup.

use pgtoll_format::{ControlFile, MajorFacts, conf};
use pgtoll_wal::WalBound;

use crate::target::DrillTarget;

/// The source of WAL and the target of recovery. `None`: no recovery.
pub(crate) type RecoveryTarget = Option<DrillTarget>;

/// The whole `postgresql.conf`. Of the cluster's own nothing is taken over but what recovery demands
/// of the control file: as many connections, transactions and locks as the primary had.
pub(crate) fn settings(
    control: &ControlFile,
    facts: &MajorFacts,
    recovery: RecoveryTarget,
) -> String {
    let at_least = |least: u32, of_primary: u32| of_primary.max(least).to_string();
    let counts = [
        ("max_connections", at_least(10, control.max_connections)),
        ("max_worker_processes", at_least(8, control.max_worker_processes)),
        ("max_wal_senders", at_least(0, control.max_wal_senders)),
        ("max_prepared_transactions", at_least(0, control.max_prepared_transactions)),
        ("max_locks_per_transaction", at_least(64, control.max_locks_per_transaction)),
    ];
    let mut text = String::new();
    let mut add = |name: &str, value: &str| {
        text.push_str(&conf::line(name, value));
        text.push('\n');
    };
    for (name, value) in OWN.iter().filter(|(name, _)| facts.has_setting(name)) {
        add(name, value);
    }
    for (name, value) in &counts {
        add(name, value);
    }
    if let Some(target) = recovery {
        for (name, value) in RECOVERY {
            add(name, value);
        }
        for (name, value) in target_settings(target) {
            add(name, &value);
        }
    }
    text
}

fn target_settings(target: DrillTarget) -> Vec<(&'static str, String)> {
    let to_latest = ("recovery_target_timeline", "latest".to_owned());
    match target {
        // The WAL that the server is given ends there. With the target "immediate" it would need one
        // record more, which a standby's backup has not.
        DrillTarget::Consistency => vec![("recovery_target_timeline", "current".to_owned())],
        DrillTarget::Latest => vec![to_latest],
        DrillTarget::Bound(bound @ WalBound::Lsn(_)) => {
            vec![("recovery_target_lsn", bound.to_string()), to_latest]
        }
        DrillTarget::Bound(bound @ WalBound::Time(_)) => {
            // The names of time zones are not read yet when the server reads this.
            let time = bound.to_string().replace('T', " ").replace('Z', "+00");
            vec![("recovery_target_time", time), to_latest]
        }
    }
}

/// Reached from nowhere but its own directory; nothing works in the background; the log is in English
/// and goes to the file of the guard.
const OWN: [(&str, &str); 23] = [
    ("listen_addresses", ""),
    ("unix_socket_directories", ".."),
    ("port", "5432"),
    ("ssl", "off"),
    ("shared_buffers", "128MB"),
    ("huge_pages", "off"),
    // In its own directory, outside of which it does not write.
    ("dynamic_shared_memory_type", "mmap"),
    ("shared_preload_libraries", ""),
    ("archive_mode", "off"),
    ("wal_level", "replica"),
    // A copy that a crash of the machine leaves behind is of no use anyway.
    ("fsync", "off"),
    ("full_page_writes", "off"),
    // Nobody asks it anything before it has recovered, and then no count of the primary binds it.
    ("hot_standby", "off"),
    ("autovacuum", "off"),
    ("max_logical_replication_workers", "0"),
    ("event_triggers", "off"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_line_prefix", ""),
    ("log_statement", "none"),
    ("lc_messages", "C"),
    ("log_timezone", "UTC"),
    ("timezone", "UTC"),
];

/// WAL comes from the directory beside the data directory, where the server is started.
const RECOVERY: [(&str, &str); 3] = [
    ("restore_command", "cp --reflink=auto \"../wal/%f\" \"%p\""),
    ("recovery_target_action", "promote"),
    ("recovery_end_command", ""),
];

#[cfg(test)]
mod tests {
    use pgtoll_format::facts_of_major;

    use super::*;

    #[test]
    fn every_target_has_its_settings() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = target_settings(text.parse().unwrap());
            let found: Vec<(&str, &str)> =
                found.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        };
        let latest = ("recovery_target_timeline", "latest");
        check("consistency", &[("recovery_target_timeline", "current")]);
        check("latest", &[latest]);
        check("0/3000028", &[("recovery_target_lsn", "0/3000028"), latest]);
        check(
            "2026-11-22T10:00:00Z",
            &[("recovery_target_time", "2026-11-22 10:00:00+00"), latest],
        );
    }

    #[test]
    fn event_triggers_are_off_where_they_can_be() {
        let has = |major| facts_of_major(major).unwrap().has_setting("event_triggers");
        assert!(has(18) && has(17) && !has(16) && !has(13));
    }
}
