//! `pgtoll lab failover`, with repmgr and PgBouncer.

use pgtoll_record::{FailoverFault, FailoverRecord};

use crate::support::{Scratch, installed, pgtoll, run};

/// Whether the engines are there. Where the tests were set up they must be.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
fn engines() -> bool {
    let has_repmgr = installed().iter().any(|server| server.bin.join("repmgrd").is_file());
    let has_pooler = std::path::Path::new("/usr/sbin/pgbouncer").is_file();
    if has_repmgr && has_pooler {
        return true;
    }
    // `cargo xtask test` installs them.
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(!is_set_up, "repmgr or PgBouncer is not installed");
    eprintln!("not tested: repmgr or PgBouncer is not installed");
    false
}

#[test]
fn a_dead_primary_is_replaced_and_what_waited_for_the_standby_is_there() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--sync", "--json", "--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert!(record.complete && record.runs.len() == 1, "{record:?}");
    let failover = &record.runs[0];
    assert_eq!(failover.fault, FailoverFault::HostDeath);
    assert_eq!((failover.lost, failover.impossible), (Some(0), Some(0)), "{failover:?}");
    assert_eq!((failover.after_successor, failover.two_primaries), (0, false), "{failover:?}");
    let (noticed, promoted) = (failover.noticed_s.unwrap(), failover.promoted_s.unwrap());
    assert!(noticed <= promoted && promoted <= failover.routed_s.unwrap(), "{failover:?}");
    let rejoin = failover.rejoin.as_ref().unwrap();
    assert!(rejoin.seconds.is_some() && rejoin.pages.unwrap() > 0, "{rejoin:?}");
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
    let file = scratch.path("failover.json");
    std::fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert!(shown.stdout.contains("Death of the primary's host"), "{shown:?}");
    assert!(shown.stdout.contains("process faults on one kernel"), "{shown:?}");
    let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
    assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    scratch.assert_empty();
}

#[test]
fn a_server_without_repmgr_has_a_hint() {
    let Some(server) = installed().into_iter().find(|of| !of.bin.join("repmgrd").is_file()) else {
        return;
    };
    let ran = run(pgtoll().args(["lab", "failover", "--quick", "--postgres"]).arg(&server.bin));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("no repmgr found for PostgreSQL"), "{ran:?}");
    assert!(ran.stderr.contains("hint: apt install repmgr"), "{ran:?}");
}
