//! `pgtoll lab corruption` on servers of each version.

use pgtoll_record::{CorruptionRecord, RowState};

use crate::support::{Scratch, pgtoll, run, servers};

#[test]
fn checksums_keep_damage_from_the_standby_and_a_failover_keeps_the_data() {
    let scratch = Scratch::new();
    for server in servers() {
        let name = server.version.to_string();
        let ran = run(pgtoll()
            .args(["lab", "corruption", "--runs", "1", "--json", "--clients", "4", "--work-dir"])
            .arg(scratch.work())
            .arg("--postgres")
            .arg(&server.bin));
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        let record: CorruptionRecord = serde_json::from_str(&ran.stdout).unwrap();
        assert!(record.complete, "{name}: {record:?}");
        let [without, with] = &record.spread[..] else { panic!("{name}: {record:?}") };
        assert!(!without.checksums && without.update_error.is_none(), "{name}: {without:?}");
        assert_eq!(without.standby_before, RowState::Right, "{name}");
        assert_eq!(without.standby_after, RowState::Wrong, "{name}");
        let error = with.update_error.as_ref().unwrap();
        assert!(with.checksums && error.contains("invalid page in block 10"), "{name}: {with:?}");
        assert_eq!(with.primary_after, RowState::Error, "{name}");
        assert_eq!(with.standby_after, RowState::Right, "{name}");
        let [failover] = &record.failovers[..] else { panic!("{name}: {record:?}") };
        assert_eq!(
            (failover.lost, failover.impossible),
            (Some(0), Some(0)),
            "{name}: {failover:?}"
        );
        // The pooler holds them back.
        assert_eq!((failover.failed, failover.unknown), (0, 0), "{name}: {failover:?}");
        assert!(failover.acknowledged > 0 && failover.paused_s.is_some(), "{name}: {failover:?}");
        let file = scratch.path("corruption.json");
        std::fs::write(&file, &ran.stdout).unwrap();
        let shown = run(pgtoll().arg("report").arg(&file));
        assert!(shown.stdout.contains("the standby is wrong too"), "{shown:?}");
        let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
        assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    }
    scratch.assert_empty();
}
