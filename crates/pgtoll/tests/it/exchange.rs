//! `pgtoll lab exchange` on servers of each version.

use pgtoll_record::{ExchangeRecord, SynchronousCommit};

use crate::support::{Scratch, pgtoll, run, servers};

#[test]
fn what_is_under_way_is_lost_unless_commits_wait_for_it() {
    let scratch = Scratch::new();
    for server in servers() {
        let name = server.version.to_string();
        let ran = run(pgtoll()
            .args(["lab", "exchange", "--quick", "--json", "--delay", "100ms", "--clients", "4"])
            .args(["--commit", "local,on", "--work-dir"])
            .arg(scratch.work())
            .arg("--postgres")
            .arg(&server.bin));
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        let record: ExchangeRecord = serde_json::from_str(&ran.stdout).unwrap();
        assert!(record.complete && record.cases.len() == 2, "{name}: {record:?}");
        for case in &record.cases {
            assert_eq!(case.impossible, Some(0), "{name}: {case:?}");
            let lost = case.lost.unwrap();
            match case.commit {
                SynchronousCommit::Local => assert!(lost > 0, "{name}: {case:?}"),
                _ => assert_eq!((lost, case.findings.len()), (0, 0), "{name}: {case:?}"),
            }
        }
        // A commit that waits takes the delay at least.
        let waiting = record.cases.iter().find(|case| case.commit == SynchronousCommit::On);
        assert!(waiting.unwrap().p50_ms.unwrap() >= 100.0, "{name}: {waiting:?}");
        let file = scratch.path("exchange.json");
        std::fs::write(&file, &ran.stdout).unwrap();
        let shown = run(pgtoll().arg("report").arg(&file));
        assert!(shown.stdout.contains("WAL 100 ms under way to the standby"), "{shown:?}");
        let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
        assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    }
    scratch.assert_empty();
}

#[test]
fn mistakes_in_options_are_named() {
    for (arguments, expected) in [
        (["--delay", "1h"], "1h"),
        (["--commit", "perhaps"], "remote_apply"),
        (["--clients", "0"], "0"),
    ] {
        let ran = run(pgtoll().args(["lab", "exchange"]).args(arguments));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}
