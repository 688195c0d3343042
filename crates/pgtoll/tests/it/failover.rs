//! `pgtoll lab failover`: with repmgr and PgBouncer, other engines, and none.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::Installation;
use pgtoll_record::{FailoverEngine, FailoverFault, FailoverRecord, FailoverRun, JudgedEvent};

use crate::support::{Scratch, ends_within, installed, pgtoll, pid_of, processes_in, run};

/// Whether the engines are there. Where the tests were set up they must be.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn engines() -> bool {
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
        .args(["lab", "failover", "--quick", "--sync", "--json", "--clients", "4"])
        .args(["--fail-back", "--bouncers", "2", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert!(record.complete && record.runs.len() == 1, "{record:?}");
    let failover = &record.runs[0];
    assert_eq!(failover.fault, FailoverFault::HostDeath);
    // Else every file is synced by itself before the old primary starts.
    assert_eq!(record.settings["recovery_init_sync_method"], "syncfs");
    check_failover(failover);
    check_failover(failover.back.as_ref().unwrap());
    let file = scratch.path("failover.json");
    std::fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert!(shown.stdout.contains("Death of the primary's host"), "{shown:?}");
    assert!(shown.stdout.contains("host-death, back"), "{shown:?}");
    assert!(shown.stdout.contains("process faults on one kernel"), "{shown:?}");
    let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
    assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    // Of both failovers a wide and a narrow picture.
    assert_eq!(page.stdout.matches("A line for each of 4 clients").count(), 4);
    scratch.assert_empty();
}

/// With synchronous replication, from the fault to the old primary's return.
fn check_failover(run: &FailoverRun) {
    assert_eq!((run.lost, run.impossible), (Some(0), Some(0)), "{run:?}");
    assert_eq!((run.after_successor, run.two_primaries), (0, false), "{run:?}");
    // Nobody is left to confirm commits.
    assert_eq!(run.standby_names.as_deref(), Some(""), "{run:?}");
    let noticed = run.noticed_s.unwrap();
    let promoted = run.promoted_s.unwrap();
    assert!(noticed <= promoted && promoted <= run.routed_s.unwrap(), "{run:?}");
    let rejoin = run.rejoin.as_ref().unwrap();
    assert!(rejoin.seconds.is_some() && rejoin.pages.unwrap() > 0, "{rejoin:?}");
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
    let steps: Vec<&str> = rejoin.steps.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(
        steps,
        ["stopped", "checkpoint", "pg_rewind", "start", "streaming", "registered"],
        "{rejoin:?}"
    );
    let timeline = run.timeline.as_ref().unwrap();
    assert!(timeline.clients.iter().all(|line| line.contains('s')), "{timeline:?}");
    assert!(timeline.events.iter().any(|event| event.what == "hook routed"), "{timeline:?}");
}

#[test]
fn a_standby_that_is_cut_off_promotes_itself_and_the_split_brain_is_named() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--sync", "--fault", "link-cut", "--json"])
        .args(["--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let failover = &record.runs[0];
    assert_eq!(failover.fault, FailoverFault::LinkCut);
    assert!(failover.two_primaries, "{failover:?}");
    assert!(
        failover.findings.iter().any(|finding| finding.starts_with("split brain")),
        "{failover:?}"
    );
    // Nobody confirmed what the old primary committed, so clients were told of none of it.
    assert_eq!((failover.lost, failover.impossible), (Some(0), Some(0)), "{failover:?}");
    let rejoin = failover.rejoin.as_ref().unwrap();
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
    scratch.assert_empty();
}

#[test]
fn a_witness_keeps_a_standby_that_is_cut_off_from_promoting_itself() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--witness", "--fault", "link-cut,host-death"])
        .args(["--json", "--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let [cut, death] = &record.runs[..] else { panic!("{ran:?}") };
    assert_eq!(
        (cut.fault, cut.promoted_s, cut.two_primaries),
        (FailoverFault::LinkCut, None, false)
    );
    assert_eq!((cut.lost, &cut.findings[..]), (Some(0), &[][..]), "{cut:?}");
    // With its vote a real death is still one.
    assert!(death.promoted_s.is_some() && !death.two_primaries, "{death:?}");
    scratch.assert_empty();
}

#[test]
fn a_standby_past_the_fork_is_named_and_returns_by_pg_rewind() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--third-node", "--json", "--clients", "4"])
        .arg("--work-dir")
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let third = record.runs[0].third.as_ref().unwrap();
    assert!(third.past_fork_bytes.is_some_and(|bytes| bytes > 0), "{third:?}");
    assert!(third.refused.is_some(), "{third:?}");
    let rejoin = third.rejoin.as_ref().unwrap();
    assert!(rejoin.error.is_none() && rejoin.seconds.is_some(), "{third:?}");
    let file = scratch.path("failover.json");
    std::fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert!(shown.stdout.contains("was past the fork"), "{shown:?}");
    scratch.assert_empty();
}

#[test]
fn a_dead_standby_is_given_up_by_patroni_and_waited_for_beside_repmgr() {
    if !engines() || !has_engine("patroni") {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--sync", "--fault", "standby-death", "--json"])
        .args([
            "--engine",
            "patroni,repmgr",
            "--postgres",
            &major(),
            "--clients",
            "4",
            "--work-dir",
        ])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let [patroni, repmgr] = &record.runs[..] else { panic!("{ran:?}") };
    for item in [patroni, repmgr] {
        assert_eq!((item.lost, item.impossible), (Some(0), Some(0)), "{item:?}");
        assert_eq!((item.promoted_s, item.two_primaries), (None, false), "{item:?}");
        let returned = item.rejoin.as_ref().unwrap();
        assert!(returned.seconds.is_some() && returned.error.is_none(), "{item:?}");
    }
    assert_eq!((patroni.ended_by_hand_s, &patroni.findings[..]), (None, &[][..]), "{patroni:?}");
    assert!(patroni.noticed_s.is_some(), "{patroni:?}");
    assert!(repmgr.ended_by_hand_s.is_some(), "{repmgr:?}");
    let [finding] = &repmgr.findings[..] else { panic!("{repmgr:?}") };
    assert!(finding.starts_with("repmgr leaves a dead standby in"), "{finding}");
    let file = scratch.path("failover.json");
    std::fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert!(shown.stdout.contains("The standby's return, medians over runs"), "{shown:?}");
    scratch.assert_empty();
}

#[test]
fn a_hung_receiver_of_wal_holds_the_shutdown_that_a_handover_waits_for() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--fault", "switchover,walsender-hang", "--json"])
        .args(["--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let [switchover, hang] = &record.runs[..] else { panic!("{ran:?}") };
    for item in [switchover, hang] {
        assert_eq!((item.lost, item.failed, item.two_primaries), (Some(0), 0, false), "{item:?}");
        assert_eq!(item.rejoin.as_ref().unwrap().unsound, Some(0), "{item:?}");
    }
    // The primary gives the receiver up after wal_sender_timeout, which has its default; its last reply
    // was up to ten seconds before (pg_receivewal's status interval).
    assert!(hang.outage_s.unwrap() > 45.0, "{hang:?}");
    assert!(switchover.outage_s < hang.outage_s, "{switchover:?}");
    scratch.assert_empty();
}

#[test]
fn a_repmgrd_that_ends_is_started_again() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let mut child = pgtoll()
        .args(["lab", "failover", "--settings", "fast", "--runs", "1", "--json", "--work-dir"])
        .arg(scratch.work())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = loop {
        if let Some(pid) = repmgrd_of(&scratch, "node2.conf") {
            break pid;
        }
        assert!(!ends_within(pid_of(&child), Duration::from_millis(20)), "no repmgrd was started");
    };
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    let record: FailoverRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(record.runs[0].daemon_restarts, 1, "{record:?}");
    assert!(record.runs[0].promoted_s.is_some(), "{record:?}");
    scratch.assert_empty();
}

fn repmgrd_of(scratch: &Scratch, configuration: &str) -> Option<i32> {
    processes_in(&scratch.work()).into_iter().find(|pid| {
        let words = procfs::process::Process::new(*pid).and_then(|process| process.cmdline());
        let Ok([program, rest @ ..]) = words.as_deref() else { return false };
        program.ends_with("/repmgrd") && rest.iter().any(|word| word.ends_with(configuration))
    })
}

#[test]
fn a_server_without_repmgr_has_a_hint() {
    let Some(server) =
        installed().into_iter().find(|installed| !installed.bin.join("repmgrd").is_file())
    else {
        return;
    };
    let ran = run(pgtoll().args(["lab", "failover", "--quick", "--postgres"]).arg(&server.bin));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("no repmgr found for PostgreSQL"), "{ran:?}");
    assert!(ran.stderr.contains("hint: apt install repmgr"), "{ran:?}");
}

/// The newest server of the system's packages, as engines are.
fn of_packages() -> Option<Installation> {
    let servers = installed().into_iter();
    let servers = servers.filter(|server| server.bin.starts_with("/usr/lib/postgresql"));
    servers.max_by_key(|server| server.version.major())
}

pub(crate) fn major() -> String {
    of_packages().unwrap().version.major().to_string()
}

/// Whether the programs of an engine are there. Where the tests were set up it must be.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn has_engine(engine: &str) -> bool {
    let files: &[&str] = match engine {
        "patroni" => &["/usr/bin/patroni", "/usr/bin/etcd", "/usr/sbin/haproxy"],
        _ => &["/usr/bin/pg_autoctl"],
    };
    let has_files = files.iter().all(|file| std::path::Path::new(file).is_file());
    let extension = "../lib/pgautofailover.so";
    let serves = |server: Installation| engine == "patroni" || server.bin.join(extension).is_file();
    if has_files && of_packages().is_some_and(serves) {
        return true;
    }
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(!is_set_up, "{engine} is not installed");
    eprintln!("not tested: {engine} is not installed");
    false
}

/// One death of the primary's host with these options.
fn host_death(scratch: &Scratch, options: &[&str]) -> FailoverRecord {
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--json", "--clients", "4"])
        .args(options)
        .arg("--work-dir")
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert!(record.complete && record.runs.len() == 1, "{record:?}");
    record
}

/// A host death with synchronous replication that an engine answers, up to the old primary's return.
fn check_engine(record: &FailoverRecord, engine: FailoverEngine, version: &str) {
    let run = &record.runs[0];
    assert_eq!((run.engine, run.fault), (engine, FailoverFault::HostDeath));
    assert!(
        record.engines.iter().any(|engine| engine.starts_with(version)),
        "{:?}",
        record.engines
    );
    assert!(!record.topologies[0].settings[0].values.is_empty(), "{:?}", record.topologies);
    assert_eq!((run.lost, run.impossible, run.after_successor), (Some(0), Some(0), 0), "{run:?}");
    assert!(!run.two_primaries && !run.outage_open && run.findings.is_empty(), "{run:?}");
    assert_eq!((run.restarted_in_place, run.ended_by_hand_s), (false, None), "{run:?}");
    // The engine reset it: nobody is left to confirm commits.
    assert_eq!(run.standby_names.as_deref(), Some(""), "{run:?}");
    let noticed = run.noticed_s.unwrap();
    let promoted = run.promoted_s.unwrap();
    assert!(noticed <= promoted && promoted <= run.outage_s.unwrap(), "{run:?}");
    let rejoin = run.rejoin.as_ref().unwrap();
    assert!(rejoin.seconds.is_some() && rejoin.pages.unwrap() > 0, "{rejoin:?}");
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
}

#[test]
fn patroni_replaces_a_dead_primary_and_nothing_that_waited_is_lost() {
    if !has_engine("patroni") {
        return;
    }
    let scratch = Scratch::new();
    let record = host_death(&scratch, &["--engine", "patroni", "--sync", "--postgres", &major()]);
    check_engine(&record, FailoverEngine::Patroni, "Patroni ");
    let run = &record.runs[0];
    // Patroni says that it is the primary when it has the lock, and promotes then.
    assert!(run.routed_s.unwrap() <= run.outage_s.unwrap(), "{run:?}");
    scratch.assert_empty();
}

#[test]
fn pg_auto_failover_replaces_a_dead_primary_and_nothing_that_waited_is_lost() {
    if !has_engine("pg_auto_failover") {
        return;
    }
    let scratch = Scratch::new();
    let record =
        host_death(&scratch, &["--engine", "pg_auto_failover", "--sync", "--postgres", &major()]);
    check_engine(&record, FailoverEngine::PgAutoFailover, "pg_auto_failover ");
    scratch.assert_empty();
}

#[test]
fn without_an_engine_the_outage_is_a_bound_and_losses_are_judged() {
    let scratch = Scratch::new();
    let options = ["--engine", "none", "--sync", "--fault", "host-death,switchover"];
    let record = host_death(&scratch, &options);
    let item = &record.runs[0];
    assert_eq!((item.engine, item.lost, item.impossible), (FailoverEngine::None, Some(0), Some(0)));
    let by_hand = item.ended_by_hand_s.unwrap();
    assert!(item.outage_s.unwrap() >= by_hand && item.findings.is_empty(), "{item:?}");
    assert_eq!(item.rejoin.as_ref().unwrap().unsound, Some(0), "{item:?}");
    // Nobody hands over by plan, and that is said.
    let [skipped] = &record.skipped[..] else { panic!("{record:?}") };
    assert_eq!(skipped.engine, Some(FailoverEngine::None));
    assert!(
        skipped.by_nature && skipped.reason.contains("no failover manager to switch over"),
        "{skipped:?}"
    );
    let file = scratch.path("failover.json");
    std::fs::write(&file, serde_json::to_string(&record).unwrap()).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    let text = shown.stdout.replace('\n', " ");
    assert!(text.contains("no service until pgtoll ended the fault by hand"), "{shown:?}");
    assert!(text.contains("Skipped   - switchover, none:"), "{shown:?}");
    let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
    assert!(page.stdout.contains("no failover manager"), "{page:?}");
    scratch.assert_empty();
}

/// A partition with clients on both sides, and what both saw of it.
fn partition(scratch: &Scratch, options: &[&str], status: i32) -> FailoverRun {
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--json", "--fault", "partition", "--clients", "4"])
        .args(options)
        .arg("--work-dir")
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    let mut record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert!(record.complete && record.skipped.is_empty(), "{record:?}");
    let run = record.runs.pop().unwrap();
    assert_eq!((run.fault, run.impossible), (FailoverFault::Partition, Some(0)), "{run:?}");
    let sides = &run.partition.as_ref().unwrap().sides;
    let [primary, standby] = &sides[..] else { panic!("{run:?}") };
    assert_eq!((&*primary.name, &*standby.name), ("primary's side", "standby's side"));
    assert_eq!((primary.clients, standby.clients), (2, 2), "{run:?}");
    // All clients were served again; what was acknowledged by the new primary stays. What the old one
    // acknowledged to a client of the other side as the cut came may be lost: one for each of them.
    assert!(!primary.outage_open && !standby.outage_open, "{run:?}");
    let lost = [primary.lost.unwrap(), standby.lost.unwrap()];
    assert!(lost[1] <= u64::from(standby.clients), "{run:?}");
    assert_eq!(run.lost, Some(lost[0] + lost[1]), "{run:?}");
    run
}

/// The standby was promoted, and the old primary is its standby.
fn check_return(run: &FailoverRun) {
    assert!(run.promoted_s.is_some() && !run.two_primaries, "{run:?}");
    let rejoin = run.rejoin.as_ref().unwrap();
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
}

#[test]
fn patroni_ends_a_primary_that_is_cut_off_before_it_promotes_and_loses_what_was_not_waited_for() {
    if !has_engine("patroni") {
        return;
    }
    let scratch = Scratch::new();
    let item = partition(&scratch, &["--engine", "patroni", "--postgres", &major()], 0);
    check_return(&item);
    let parted = item.partition.as_ref().unwrap();
    assert_eq!((parted.two_primaries_s, parted.ended_by_hand), (Some(0.0), false), "{item:?}");
    assert!(parted.old_primary_ended_s < item.promoted_s, "{item:?}");
    // Nobody confirmed what was acknowledged on the primary's side meanwhile.
    assert!(item.lost > Some(0) && item.after_successor == 0, "{item:?}");
    let demoted = |step: &JudgedEvent| step.what.contains("node1: demoting self");
    assert!(item.steps.iter().any(demoted), "{:?}", item.steps);
    scratch.assert_empty();
}

#[test]
fn patroni_loses_nothing_in_a_partition_if_commits_wait() {
    if !has_engine("patroni") {
        return;
    }
    let scratch = Scratch::new();
    let options = ["--engine", "patroni", "--postgres", &major(), "--sync"];
    let item = partition(&scratch, &options, 0);
    check_return(&item);
    assert_eq!((item.lost, &item.findings[..]), (Some(0), &[][..]), "{item:?}");
    scratch.assert_empty();
}

#[test]
fn patroni_does_nothing_about_a_link_that_is_cut_beside_etcd() {
    if !has_engine("patroni") {
        return;
    }
    let scratch = Scratch::new();
    // Etcd sees both servers.
    let options = ["--engine", "patroni", "--postgres", &major(), "--fault", "link-cut"];
    let record = host_death(&scratch, &options);
    let run = &record.runs[0];
    assert_eq!((run.fault, run.promoted_s), (FailoverFault::LinkCut, None), "{run:?}");
    assert_eq!(
        (run.lost, run.outage_open, &run.findings[..]),
        (Some(0), false, &[][..]),
        "{run:?}"
    );
    scratch.assert_empty();
}

#[test]
fn pg_auto_failover_has_two_primaries_in_a_partition() {
    if !has_engine("pg_auto_failover") {
        return;
    }
    let scratch = Scratch::new();
    let item = partition(&scratch, &["--engine", "pg_auto_failover", "--postgres", &major()], 1);
    check_return(&item);
    let parted = item.partition.as_ref().unwrap();
    // The keeper ends it, be it after the partition.
    assert!(parted.two_primaries_s > Some(0.0) && !parted.ended_by_hand, "{item:?}");
    assert!(parted.old_primary_ended_s.is_some(), "{item:?}");
    assert!(item.after_successor > 0 && item.lost >= Some(item.after_successor), "{item:?}");
    assert!(
        item.findings.iter().any(|finding| finding.starts_with("two primaries for")),
        "{item:?}"
    );
    scratch.assert_empty();
}

#[test]
fn repmgr_has_two_primaries_in_a_partition_until_an_administrator_comes() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let item = partition(&scratch, &["--sync"], 1);
    check_return(&item);
    let parted = item.partition.as_ref().unwrap();
    assert!(parted.two_primaries_s > Some(0.0) && parted.ended_by_hand, "{item:?}");
    // The standby confirms nothing of the partition, so clients are told of none of it, but for what each
    // had committed as the cut came, which the standby has, and whose confirmation came when it was healed.
    assert_eq!(item.lost, Some(0), "{item:?}");
    assert!(item.after_successor <= 4, "{item:?}");
    let routed = |step: &JudgedEvent| step.what == "administrator routed";
    assert!(item.steps.iter().any(routed), "{:?}", item.steps);
    scratch.assert_empty();
}

#[test]
fn a_witness_keeps_one_primary_in_a_partition() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let item = partition(&scratch, &["--witness"], 0);
    assert_eq!((item.promoted_s, item.lost, item.after_successor), (None, Some(0), 0), "{item:?}");
    assert_eq!(item.partition.as_ref().unwrap().two_primaries_s, None, "{item:?}");
    scratch.assert_empty();
}

#[test]
fn without_an_engine_the_standbys_side_waits_until_the_partition_is_healed() {
    let scratch = Scratch::new();
    let item = partition(&scratch, &["--engine", "none"], 0);
    let parted = item.partition.as_ref().unwrap();
    assert_eq!(
        (item.lost, parted.two_primaries_s, &item.rejoin),
        (Some(0), None, &None),
        "{item:?}"
    );
    let [primary, standby] = &parted.sides[..] else { panic!("{item:?}") };
    assert!(primary.acknowledged > standby.acknowledged, "{item:?}");
    assert!(standby.outage_s > parted.healed_s, "{item:?}");
    scratch.assert_empty();
}

#[test]
fn what_an_engine_does_not_have_is_refused_with_a_hint() {
    let refused = |options: &[&str]| {
        let ran = run(pgtoll().args(["lab", "failover"]).args(options));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        ran.stderr
    };
    let witness = refused(&["--quick", "--engine", "none,repmgr", "--witness"]);
    assert!(witness.contains("--witness is for repmgr, and not for --engine none"), "{witness}");
    assert!(witness.contains("hint: name --engine repmgr alone"), "{witness}");
    let alone = refused(&["--fault", "partition", "--clients", "1"]);
    assert!(alone.contains("a partition has clients on both sides"), "{alone}");
    let floor = refused(&["--engine", "patroni", "--settings", "none"]);
    assert!(floor.contains("patroni has none of these --settings"), "{floor}");
    assert!(floor.contains("hint: it has default and fast"), "{floor}");
    let library = "pgautofailover.so";
    let without = installed().into_iter().find(|installed| {
        !installed.bin.parent().is_some_and(|place| place.join("lib").join(library).is_file())
    });
    if let (Some(server), true) = (without, has_engine("pg_auto_failover")) {
        let server = server.bin.display().to_string();
        let missing = refused(&["--quick", "--engine", "pg_auto_failover", "--postgres", &server]);
        assert!(missing.contains("no pg_auto_failover found for PostgreSQL"), "{missing}");
        assert!(missing.contains("hint: apt install pg-auto-failover-cli"), "{missing}");
    }
}
