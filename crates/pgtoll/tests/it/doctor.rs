//! `pgtoll doctor` on this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_record::{Examination, State};

use crate::mistakes::unshared;
use crate::support::{
    PATIENCE, Ran, Scratch, as_ordinary_user, ends_within, ordinary_user, pgtoll, pgtoll_for_all,
    pid_of, program, run, set_mode,
};

fn doctor(scratch: &Scratch) -> Command {
    let mut command = pgtoll();
    command.arg("doctor").arg("--work-dir").arg(scratch.work());
    command
}

#[track_caller]
fn examination(ran: &Ran) -> Examination {
    let found: Examination = serde_json::from_str(&ran.stdout).unwrap();
    let warned = found.warnings().next().is_some();
    assert_eq!(ran.status, Some(i32::from(warned)), "{ran:?}");
    found
}

#[test]
fn every_group_is_looked_at_and_fits_the_terminal() {
    let scratch = Scratch::new();
    let ran = run(doctor(&scratch).arg("--quiet"));
    assert_eq!(ran.stderr, "");
    let expected =
        ["CPU", "what else runs", "memory", "disk", "kernel", "counters", "servers", "calibration"];
    let groups: Vec<&str> = ran.stdout.lines().filter(|line| expected.contains(line)).collect();
    assert_eq!(groups, expected, "{}", ran.stdout);
    let against = ran.stdout.starts_with("Against measuring here: ");
    assert_eq!(ran.status, Some(i32::from(against)), "{}", ran.stdout);
    assert_eq!(ran.stdout.contains("\n  WARN  "), against, "{}", ran.stdout);
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    scratch.assert_empty();
}

#[test]
fn json_says_the_same_in_numbers() {
    let scratch = Scratch::new();
    let ran = run(doctor(&scratch).arg("--json"));
    let found = examination(&ran);
    let file = scratch.path("doctor.json");
    fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert_eq!(shown.status, Some(0), "{shown:?}");
    assert!(found.findings.iter().all(|finding| shown.stdout.contains(&finding.name)), "{shown:?}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&pgtoll_report::record_json(&found)), value(&ran.stdout));
    let figure = |name: &str, figure: &str| {
        let finding = found.findings.iter().find(|finding| finding.name == name).unwrap();
        finding.figures.get(figure).copied().unwrap_or_else(|| panic!("{finding:?}"))
    };
    assert!(figure("sync time", "median_us") <= figure("sync time", "p99_us"));
    assert!(figure("clock", "cost_ns") > 0.0);
    assert!((0.0..=1.0).contains(&figure("others' CPU", "share")));
    assert!(figure("memory", "total_bytes") >= figure("memory", "available_bytes"));
    for finding in &found.findings {
        let advised = matches!(finding.state, State::Note | State::Warn);
        assert_eq!(finding.advice.is_some(), advised, "{finding:?}");
    }
}

#[test]
fn an_ordinary_user_is_told_as_much() {
    let Some(user) = ordinary_user() else { return };
    let scratch = Scratch::new();
    let mut command = program(pgtoll_for_all(&scratch));
    command.args(["doctor", "--json", "--work-dir"]).arg(scratch.work());
    as_ordinary_user(&mut command, &scratch);
    let found = examination(&run(&mut command));
    let own = found.findings.iter().find(|finding| finding.name == "user").unwrap();
    assert!(own.reading.starts_with(&format!("{}; it can work in ", user.name)), "{own:?}");
}

#[test]
fn a_file_system_in_memory_is_not_what_a_server_runs_on() {
    let scratch = Scratch::new();
    let inside = |options: &str| {
        let mut command = unshared();
        command.arg(format!(
            "mount -t tmpfs -o {options} tmpfs {0} && exec {1} doctor --json --work-dir {0}",
            scratch.work().display(),
            env!("CARGO_BIN_EXE_pgtoll")
        ));
        run(&mut command)
    };
    let found = examination(&inside("size=64m,mode=1777"));
    let warned: Vec<&str> = found.warnings().map(|warning| warning.name.as_str()).collect();
    assert!(warned.contains(&"space"), "{warned:?}");
    assert!(warned.contains(&"file system"), "{warned:?}");
    let full = examination(&inside("size=1m,mode=1777"));
    let sync = full.findings.iter().find(|finding| finding.name == "sync time").unwrap();
    assert_eq!(sync.state, State::Warn);
    assert!(sync.reading.contains("No space left on device"), "{sync:?}");
    let ran = inside("ro,mode=1777");
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(lines[0].starts_with("pgtoll: ") && lines[0].contains("Read-only file system"));
    assert!(lines[1].starts_with("hint: name another directory with --work-dir"), "{ran:?}");
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let scratch = Scratch::new();
    let mut command = unshared();
    command.env("HOME", scratch.work()).env("XDG_CACHE_HOME", scratch.work()).arg(format!(
        "for place in /usr/lib/postgresql /usr/local/pgsql /opt/pgsql /var/cache/pgtoll; do \
         test ! -d $place || mount -t tmpfs tmpfs $place || exit 9; done; PATH=/usr/bin:/bin exec \
         {} doctor --json --work-dir {}",
        env!("CARGO_BIN_EXE_pgtoll"),
        scratch.work().display()
    ));
    let found = examination(&run(&mut command));
    let server = found.findings.iter().find(|finding| finding.name == "server").unwrap();
    assert_eq!((server.state, server.reading.as_str()), (State::Note, "none"));
    assert_eq!(server.advice.as_deref(), Some("pgtoll postgres install fetches one"));
}

#[test]
fn whoever_reads_may_go() {
    let scratch = Scratch::new();
    let mut child = doctor(&scratch).arg("--quiet").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(ends_within(pid_of(&child), PATIENCE));
    assert!(child.wait().unwrap().code().is_some_and(|code| code < 2));
}

#[test]
fn directories_that_cannot_be_used() {
    let scratch = Scratch::new();
    let ran = run(pgtoll().args(["doctor", "--work-dir", "/does/not/exist"]));
    assert_eq!(ran.status, Some(2));
    assert_eq!(
        ran.stderr,
        "pgtoll: find /does/not/exist: No such file or directory (os error 2)\n\
         hint: name a directory that exists with --work-dir\n"
    );
    let ran = run(pgtoll().args(["doctor", "--work-dir", "/etc/passwd"]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.starts_with("pgtoll: /etc/passwd is not a directory\nhint: "), "{ran:?}");
    let closed = scratch.path("closed");
    fs::create_dir(&closed).unwrap();
    set_mode(&closed, if ordinary_user().is_some() { 0o700 } else { 0o500 });
    let ran = run(pgtoll().arg("doctor").arg("--work-dir").arg(&closed));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains(" cannot "), "{ran:?}");
    assert!(ran.stderr.contains("\nhint: "), "{ran:?}");
    let ran = run(doctor(&scratch).args(["--postgres", "9"]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.starts_with("pgtoll: PostgreSQL 9 is not supported"), "{ran:?}");
}

#[test]
fn wrong_flags() {
    for (arguments, expected) in [
        (vec!["--null", "1s"], "\"1s\" is not between 30s and 7d"),
        (vec!["--null"], "a value is required for '--null <TIME>'"),
        (vec!["--output", "x"], "--null <TIME>"),
        (vec!["--jsno"], "a similar argument exists: '--json'"),
    ] {
        let ran = run(pgtoll().arg("doctor").args(&arguments));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}

/// Starts `command`, waits for a line on stderr, and sends SIGINT.
fn interrupted_at(command: &mut Command, line: &str) -> (Option<i32>, String, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut message = String::new();
    while !message.ends_with(&format!("{line}\n")) {
        assert_ne!(stderr.read_line(&mut message).unwrap(), 0, "{message}");
    }
    kill(Pid::from_raw(pid_of(&child)), Signal::SIGINT).unwrap();
    assert!(ends_within(pid_of(&child), PATIENCE));
    std::io::Read::read_to_string(&mut stderr, &mut message).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), message)
}

#[test]
fn a_signal_ends_the_looks() {
    // In memory the syncs are over before the signal comes.
    let scratch = Scratch::on_disk();
    for stage in ["look at what else runs, for 3 s", "sync a file, for up to 2 s"] {
        let line = format!("pgtoll: {stage}");
        let (status, stdout, stderr) = interrupted_at(&mut doctor(&scratch), &line);
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.ends_with("pgtoll: interrupted by SIGINT\n"), "{stderr}");
        scratch.assert_empty();
    }
}

#[test]
fn null_runs_feed_the_calibration_and_keep_what_was_finished() {
    let scratch = Scratch::new();
    let mut command = doctor(&scratch);
    command.env("XDG_STATE_HOME", scratch.path("state"));
    command.args(["--json", "--null", "10m", "--output"]).arg(scratch.path("null"));
    let (status, stdout, stderr) = interrupted_at(&mut command, "pgtoll: run 2 of identical arms");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.ends_with("pgtoll: interrupted by SIGINT\n"), "{stderr}");
    let found: Examination = serde_json::from_str(&stdout).unwrap();
    let null = found.null.unwrap();
    assert!(null.interrupted);
    assert_eq!(null.records, [scratch.path("null-1").display().to_string()]);
    let lines = fs::read_to_string(scratch.path("state/pgtoll/twins.jsonl")).unwrap();
    let comparisons: u32 = null.misses.iter().map(|miss| miss.comparisons).sum();
    assert_eq!(lines.lines().count(), comparisons as usize, "{lines}");
    assert!(comparisons >= 6, "{lines}");
    let ran = run(pgtoll().arg("report").arg(scratch.path("null-1")));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("null: PostgreSQL "), "{ran:?}");
    scratch.assert_empty();
}
