//! Faults of disks in `lab failover`: what they do to clients, and that nothing stays mounted, however
//! pgtoll ends. Volumes are made by root alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use pgtoll_record::{FailoverDetector, FailoverFault, FailoverRecord};
use procfs::process::Process;

use crate::failover::engines;
use crate::support::{
    PATIENCE, Scratch, as_ordinary_user, children, ends_within, pgtoll, pgtoll_for_all, pid_of,
    program, run,
};

/// Whether volumes can be made.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
fn is_possible() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root mounts file systems");
    }
    is_root && engines()
}

#[test]
fn a_full_wal_volume_ends_the_primary_and_the_standby_takes_over() {
    if !is_possible() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--quick", "--sync", "--fault", "wal-full", "--json"])
        .args(["--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let run = &record.runs[0];
    assert_eq!((run.fault, run.lost, run.impossible), (FailoverFault::WalFull, Some(0), Some(0)));
    assert!(run.promoted_s.is_some() && !run.two_primaries, "{run:?}");
    let rejoin = run.rejoin.as_ref().unwrap();
    assert_eq!((rejoin.unsound, &rejoin.error), (Some(0), &None), "{rejoin:?}");
    assert!(rejoin.steps.iter().any(|step| step.what == "volume enlarged"), "{rejoin:?}");
    scratch.assert_empty();
}

#[test]
fn a_frozen_disk_is_noticed_by_nobody_and_thawed_however_pgtoll_ends() {
    if !is_possible() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(pgtoll()
        .args(["lab", "failover", "--fault", "io-freeze", "--settings", "fast,none", "--json"])
        .args(["--runs", "1", "--clients", "4", "--work-dir"])
        .arg(scratch.work()));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: FailoverRecord = serde_json::from_str(&ran.stdout).unwrap();
    let run_with = |detector| record.runs.iter().find(|run| run.detector == detector).unwrap();
    // repmgrd's checks need no disk; clients waited until it went on, and lost nothing.
    let watched = run_with(FailoverDetector::Fast);
    assert_eq!((watched.promoted_s, watched.lost), (None, Some(0)), "{watched:?}");
    assert!(
        watched.findings.iter().any(|finding| finding.contains("did not promote")),
        "{watched:?}"
    );
    // Promoted beside it, the old primary goes on after the thaw.
    let decided = run_with(FailoverDetector::None);
    assert!(decided.promoted_s.is_some() && decided.two_primaries, "{decided:?}");
    assert_eq!(decided.impossible, Some(0), "{decided:?}");
    scratch.assert_empty();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let child = with_frozen_disk(&scratch);
        end(signal, child, &scratch);
    }
}

/// A lab whose primary waits for its disk.
fn with_frozen_disk(scratch: &Scratch) -> Child {
    let child = pgtoll()
        .args(["lab", "failover", "--fault", "io-freeze", "--settings", "fast", "--runs", "1"])
        .arg("--work-dir")
        .arg(scratch.work())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = pid_of(&child);
    // One that writes waits for its disk for some milliseconds, not for that long.
    let mut waiting = 0;
    while waiting < LOOKS {
        let is_waiting = descendants(pid).into_iter().any(|pid| state(pid) == Some('D'));
        waiting = if is_waiting { waiting + 1 } else { 0 };
        assert!(!ends_within(pid, Duration::from_millis(50)), "the disk was not frozen");
    }
    child
}

const LOOKS: u32 = 6;

fn state(pid: i32) -> Option<char> {
    Process::new(pid).and_then(|process| process.stat()).ok().map(|stat| stat.state)
}

fn descendants(pid: i32) -> Vec<i32> {
    let own = children(pid);
    own.iter().copied().chain(own.iter().flat_map(|pid| descendants(*pid))).collect()
}

/// Ends the lab, and looks at what is left.
fn end(signal: Signal, mut child: Child, scratch: &Scratch) {
    let pid = pid_of(&child);
    let (stores, devices) = mounted_by(pid);
    assert!(!stores.is_empty() && !devices.is_empty(), "{stores:?} {devices:?}");
    let all = descendants(pid);
    kill(Pid::from_raw(pid), signal).unwrap();
    assert!(ends_within(pid, PATIENCE), "pgtoll does not end after {signal}");
    child.wait().unwrap();
    for process in all {
        assert!(ends_within(process, PATIENCE), "process {process} lives after {signal}");
    }
    scratch.assert_empty();
    let left: Vec<_> = stores.iter().chain(&devices).filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "left by {signal}: {left:?}");
}

/// What pgtoll mounted: directories in `/run`, and `/sys`'s descriptions of what is on loop devices.
fn mounted_by(pid: i32) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
    let mounts = Process::new(pid).unwrap().mountinfo().unwrap();
    let of_pgtoll: Vec<_> =
        mounts.iter().filter(|mount| is_in_store(&mount.mount_point)).cloned().collect();
    let stores = of_pgtoll.iter().map(|item| item.mount_point.clone()).collect();
    let minors = of_pgtoll.iter().filter_map(|item| item.majmin.strip_prefix("7:"));
    let devices = minors.map(|minor| format!("/sys/block/loop{minor}/loop").into()).collect();
    (stores, devices)
}

fn is_in_store(path: &Path) -> bool {
    path.to_string_lossy().starts_with("/run/pgtoll-volumes-")
}

#[test]
fn a_user_who_may_not_mount_is_told_what_was_skipped() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = program(pgtoll_for_all(&scratch));
    command.args(["lab", "failover", "--quick", "--fault", "wal-full,io-freeze", "--work-dir"]);
    as_ordinary_user(command.arg(scratch.work()), &scratch);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    for fault in ["wal-full", "io-freeze"] {
        let words = format!("  - {fault}: mount file systems: only root can do this");
        assert!(ran.stdout.contains(&words), "{ran:?}");
    }
    scratch.assert_empty();
}
