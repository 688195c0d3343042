//! However `lab failover` and `lab corruption` end, nothing stays behind, and what was done can be read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_record::{CorruptionRecord, FailoverRecord};

use crate::failover::{engines, has_engine, major};
use crate::support::{PATIENCE, Scratch, children, ends_within, pgtoll, pid_of, processes_in, run};

/// Several runs, more than are waited for.
fn lab(scratch: &Scratch, name: &str) -> std::process::Command {
    let mut command = pgtoll();
    command.args(["lab", name, "--runs", "3", "--clients", "2"]);
    if name == "failover" {
        command.args(["--settings", "none"]);
    }
    command.arg("--work-dir").arg(scratch.work()).arg("--record").arg(record_of(scratch));
    command
}

fn record_of(scratch: &Scratch) -> PathBuf {
    scratch.path("record.json")
}

/// Starts a lab, and waits until it has reported something that begins so.
fn started(scratch: &Scratch, name: &str, reported: &str) -> Child {
    let mut command = lab(scratch, name);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let found = lines.map_while(Result::ok).any(|line| line.starts_with(reported));
    assert!(found, "{reported:?} was not reported");
    child
}

/// Ends a lab at a moment of its next run, and looks at what is left.
fn end(signal: Signal, mut child: Child, after: Duration, scratch: &Scratch) {
    let pid = pid_of(&child);
    assert!(!ends_within(pid, after), "it ended by itself");
    // Stopped, it starts no child between the look and the signal.
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let guards = children(pid);
    let memory = shared_memory(&scratch.work());
    kill(Pid::from_raw(pid), signal).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    assert!(ends_within(pid, PATIENCE), "pgtoll does not end after {signal} {after:?}");
    child.wait().unwrap();
    for guard in guards {
        assert!(ends_within(guard, PATIENCE), "its guard lives after {signal} {after:?}");
    }
    let running = processes_in(&scratch.work());
    assert!(running.is_empty(), "left running by {signal} {after:?}: {running:?}");
    let left: Vec<_> = fs::read_dir(scratch.work()).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind by {signal} {after:?}: {left:?}");
    let left: Vec<&PathBuf> = memory.iter().filter(|file| file.exists()).collect();
    assert!(left.is_empty(), "shared memory left by {signal} {after:?}: {left:?}");
}

/// Files of shared memory that processes in a directory have mapped.
fn shared_memory(directory: &Path) -> BTreeSet<PathBuf> {
    let maps = processes_in(directory).into_iter().filter_map(|pid| {
        // It may have ended meanwhile.
        procfs::process::Process::new(pid).and_then(|process| process.maps()).ok()
    });
    let paths = maps.flatten().filter_map(|map| match map.pathname {
        procfs::process::MMapPath::Path(path) => Some(path),
        _ => None,
    });
    // A file that is removed already has words behind its name.
    paths.filter(|path| path.starts_with("/dev/shm") && path.exists()).collect()
}

#[test]
fn servers_that_an_engine_started_end_with_a_lab_that_is_killed() {
    for engine in ["patroni", "pg_auto_failover"].into_iter().filter(|item| has_engine(item)) {
        let scratch = Scratch::new();
        let child = pgtoll()
            .args(["lab", "failover", "--quick", "--postgres", &major(), "--engine", engine])
            .arg("--work-dir")
            .arg(scratch.work())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !has_standby(&scratch.work()) {
            assert!(
                !ends_within(pid_of(&child), Duration::from_millis(20)),
                "no standby with {engine}"
            );
        }
        end(Signal::SIGKILL, child, Duration::from_secs(1), &scratch);
    }
}

/// Whether the second server of a run listens.
fn has_standby(work: &Path) -> bool {
    let runs = fs::read_dir(work).into_iter().flatten().flatten();
    runs.map(|run| run.path().join("node2/.s.PGSQL.5432")).any(|socket| socket.exists())
}

/// Moments of a run: servers start, clients write and the primary dies, the old primary returns.
const MOMENTS: [Duration; 3] =
    [Duration::from_millis(700), Duration::from_secs(3), Duration::from_secs(6)];

#[test]
fn a_failover_lab_that_ends_early_leaves_its_record_and_nothing_else() {
    if !engines() {
        return;
    }
    for (signal, after) in
        [Signal::SIGINT, Signal::SIGKILL, Signal::SIGKILL].into_iter().zip(MOMENTS)
    {
        let scratch = Scratch::new();
        let child = started(&scratch, "failover", "pgtoll: host-death, none, run 1");
        end(signal, child, after, &scratch);
        let shown = run(pgtoll().arg("report").arg(record_of(&scratch)));
        assert_eq!(shown.status, Some(0), "{shown:?}");
        assert!(shown.stdout.contains("no service for"), "{shown:?}");
        let ended = if signal == Signal::SIGKILL { "It was killed" } else { "Ended early" };
        assert!(shown.stdout.contains(ended), "{shown:?}");
    }
}

#[test]
fn a_failover_lab_that_was_killed_goes_on_where_its_record_ends() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let child = started(&scratch, "failover", "pgtoll: host-death, none, run 1");
    end(Signal::SIGKILL, child, MOMENTS[0], &scratch);
    let read = || {
        let text = fs::read_to_string(record_of(&scratch)).unwrap();
        serde_json::from_str::<FailoverRecord>(&text).unwrap()
    };
    let before = read();
    assert!(!before.complete && before.runs.len() == 1, "{before:?}");
    // Other runs do not belong to it.
    let other = run(lab(&scratch, "failover").args(["--rate", "50"]));
    assert_eq!(other.status, Some(2), "{other:?}");
    assert!(other.stderr.contains("has another design"), "{other:?}");
    assert_eq!(read(), before);
    let rest = run(&mut lab(&scratch, "failover"));
    assert_eq!(rest.status, Some(0), "{rest:?}");
    let after = read();
    assert!(after.complete, "{after:?}");
    // Times may differ in their last digit: they were read and written again.
    let counted =
        |failover: &FailoverRecord| (failover.runs[0].acknowledged, failover.runs[0].steps.len());
    assert_eq!(counted(&after), counted(&before));
    let numbers: Vec<u32> = after.runs.iter().map(|run| run.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let again = run(&mut lab(&scratch, "failover"));
    assert_eq!(again.status, Some(2), "{again:?}");
    assert!(again.stderr.contains("has all of its runs"), "{again:?}");
}

#[test]
fn a_corruption_lab_that_ends_early_leaves_its_record_and_nothing_else() {
    if !engines() {
        return;
    }
    for (signal, after) in
        [Signal::SIGINT, Signal::SIGKILL, Signal::SIGKILL].into_iter().zip(MOMENTS)
    {
        let scratch = Scratch::new();
        let child = started(&scratch, "corruption", "pgtoll: damage without checksums");
        end(signal, child, after, &scratch);
        let text = fs::read_to_string(record_of(&scratch)).unwrap();
        let record: CorruptionRecord = serde_json::from_str(&text).unwrap();
        assert!(!record.complete && !record.spread.is_empty(), "{record:?}");
        let shown = run(pgtoll().arg("report").arg(record_of(&scratch)));
        assert_eq!(shown.status, Some(0), "{shown:?}");
        assert!(shown.stdout.contains("the standby is wrong too"), "{shown:?}");
    }
}

#[test]
fn two_labs_run_side_by_side() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let start = |arguments: &[&str]| {
        let mut command = pgtoll();
        command.arg("lab").args(arguments).args(["--clients", "2", "--work-dir"]);
        command.arg(scratch.work()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let failover = ["failover", "--quick", "--sync"];
    let labs = [start(&failover), start(&failover), start(&["corruption", "--runs", "1"])];
    for mut lab in labs {
        assert!(ends_within(pid_of(&lab), PATIENCE), "a lab does not end beside others");
        assert_eq!(lab.wait().unwrap().code(), Some(0));
    }
    scratch.assert_empty();
}

#[test]
fn a_corruption_lab_that_was_killed_goes_on_where_its_record_ends() {
    if !engines() {
        return;
    }
    let scratch = Scratch::new();
    let child = started(&scratch, "corruption", "pgtoll: failover 1");
    end(Signal::SIGKILL, child, MOMENTS[0], &scratch);
    let read = || {
        let text = fs::read_to_string(record_of(&scratch)).unwrap();
        serde_json::from_str::<CorruptionRecord>(&text).unwrap()
    };
    let before = read();
    assert_eq!((before.complete, before.spread.len(), before.failovers.len()), (false, 2, 1));
    let other = run(lab(&scratch, "corruption").args(["--rate", "50"]));
    assert_eq!(other.status, Some(2), "{other:?}");
    assert!(other.stderr.contains("has another design"), "{other:?}");
    let rest = run(&mut lab(&scratch, "corruption"));
    assert_eq!(rest.status, Some(0), "{rest:?}");
    let after = read();
    assert!(after.complete && after.spread.len() == 2, "{after:?}");
    assert_eq!(after.failovers[0].acknowledged, before.failovers[0].acknowledged);
    let runs: Vec<u32> = after.failovers.iter().map(|failover| failover.run).collect();
    assert_eq!(runs, [1, 2, 3]);
    let again = run(&mut lab(&scratch, "corruption"));
    assert_eq!(again.status, Some(2), "{again:?}");
    assert!(again.stderr.contains("has all of its runs"), "{again:?}");
}
