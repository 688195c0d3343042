//! Patrols: what they find, what refuses them, and what is left when they are killed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{FindingClass, PatrolBlock, PatrolRecord};
use pgtoll_system::Interrupt;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{Ran, Scratch, pgtoll, pid_of, run, server, servers};
use crate::verify::{PAGE, PAGE_BYTES, execute};

fn cluster(guard: &mut Guard, server: &Installation, name: &str) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [("autovacuum", "off"), ("fsync", "off"), ("shared_buffers", "16MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster
}

/// A patrol of this directory that goes on from this file.
fn patrol(data: &Path, state: &Path, options: &[&str]) -> Command {
    let mut command = pgtoll();
    command.arg("verify").arg(data).arg("--patrol").arg(state).args(options);
    command
}

fn record(state: &Path) -> PatrolRecord {
    serde_json::from_slice(&fs::read(state).unwrap()).unwrap()
}

#[test]
fn a_finding_of_a_running_server_is_told_until_its_page_reads_sound() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server, "patrol");
        cluster.start(&mut guard).unwrap();
        execute(
            &cluster,
            &["CREATE TABLE t AS SELECT i FROM generate_series(1, 50000) i; CHECKPOINT"],
        );
        let mut session = cluster.connect("postgres").unwrap();
        let path = session.query_one("SELECT pg_relation_filepath('t') AS path").unwrap();
        let path = path.text("path").unwrap().to_owned();
        drop(session);
        // Nothing of the table is in memory afterwards.
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.start(&mut guard).unwrap();
        let state = scratch.path(&format!("state{}", server.version.major()));
        check_found(&cluster, &state, &path);
        check_shown(&state);
        check_new_and_dropped(&cluster, &state);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        check_ran(&patrolled(&cluster, &state, "1s"), 0);
        assert!(!record(&state).source.running);
        cluster.remove(&mut guard).unwrap();
    }
}

fn patrolled(cluster: &Cluster, state: &Path, time: &str) -> Ran {
    let output = state.with_extension("prom");
    let options = ["--rate", "200MB/s", "--for", time, "-o", output.to_str().unwrap()];
    run(&mut patrol(&cluster.data(), state, &options))
}

fn check_ran(ran: &Ran, status: i32) {
    assert_eq!(ran.status, Some(status), "{ran:?}");
}

fn check_found(cluster: &Cluster, state: &Path, path: &str) {
    check_ran(&patrolled(cluster, state, "3s"), 0);
    let sound = record(state);
    assert!(sound.source.running && sound.last_round.is_some(), "{sound:?}");
    assert_eq!((sound.failures, sound.findings.len()), (0, 0));

    let file = File::options().read(true).write(true).open(cluster.data().join(path)).unwrap();
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, 3 * PAGE).unwrap();
    let mut damaged = page;
    damaged[5000] ^= 1;
    file.write_all_at(&damaged, 3 * PAGE).unwrap();
    check_ran(&patrolled(cluster, state, "2s"), 1);
    let found = record(state);
    let [finding] = found.findings.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.page.block, finding.page.class), (3, FindingClass::Failure));
    assert_eq!((finding.path.as_str(), finding.fork.as_str()), (path, "main"));
    assert_eq!(finding.name.as_ref().unwrap().relation, "t");
    let gauges = fs::read_to_string(state.with_extension("prom")).unwrap();
    let line = format!("pgtoll_verify_failures{{path=\"{}\"}} 1\n", cluster.data().display());
    assert!(gauges.contains(&line), "{gauges}");

    // It was found once, and seen since.
    check_ran(&patrolled(cluster, state, "1s"), 1);
    assert_eq!(record(state).findings[0].found, finding.found);
    assert!(record(state).findings[0].seen > finding.seen);
    file.write_all_at(&page, 3 * PAGE).unwrap();
    check_ran(&patrolled(cluster, state, "1s"), 0);
    assert_eq!(record(state).findings, []);
}

/// The state is a record that is shown again.
fn check_shown(state: &Path) {
    let gauges = run(pgtoll().args(["report", "--format", "openmetrics"]).arg(state));
    check_ran(&gauges, 0);
    assert_eq!(gauges.stdout, fs::read_to_string(state.with_extension("prom")).unwrap());
    let table = run(pgtoll().arg("report").arg(state));
    assert!(table.stdout.contains(": sound\n"), "{table:?}");
}

/// Files that come, grow and go while a patrol is at work are no findings.
fn check_new_and_dropped(cluster: &Cluster, state: &Path) {
    let options = ["--rate", "20MB/s", "--for", "4s"];
    let child = spawn(&mut patrol(&cluster.data(), state, &options));
    for number in 0..20 {
        let make = format!("CREATE TABLE d{number} AS SELECT * FROM t; CHECKPOINT");
        let gone = format!("INSERT INTO t SELECT * FROM t LIMIT 9000; DROP TABLE d{number}");
        execute(cluster, &[&make, &gone, "CHECKPOINT"]);
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A patrol that has written its first state.
fn begun(directory: &Path, command: &mut Command) -> Child {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
    let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
    inotify.add_watch(directory, flags).unwrap();
    let child = spawn(command);
    inotify.read_events().unwrap();
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(pid_of(child)), signal).unwrap();
}

#[test]
fn a_second_patrol_is_refused_and_a_signal_ends_the_first_with_its_state() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "two");
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let options = ["--rate", "2MB/s"];
    for go_on in [false, true] {
        let before = go_on.then(|| record(&state));
        let first = begun(directory.path(), &mut patrol(&cluster.data(), &state, &options));
        // Its state was replaced meanwhile, and is locked all the same.
        Interrupt::new().wait(Duration::from_millis(500)).unwrap();
        let second = run(&mut patrol(&cluster.data(), &state, &options));
        let expected = format!("pgtoll: another patrol uses {}\nhint: ", state.display());
        assert_eq!(second.status, Some(2), "{second:?}");
        assert!(second.stderr.starts_with(&expected), "{second:?}");
        signal(&first, Signal::SIGTERM);
        let output = first.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("ended by SIGTERM; the same command continues"), "{stderr}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let words = ["nothing wrong so far", "\n\nsound\n"];
        assert!(words.iter().any(|words| stdout.contains(words)), "{stdout}");
        // The piece at hand was read to its end.
        let after = record(&state);
        assert!(after.read.pages > before.map_or(0, |record| record.read.pages), "{after:?}");
    }
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    cluster.remove(&mut guard).unwrap();
}

/// Kills patrols at random moments, and shows that each loses a piece at most: from what the killed process
/// had read, as the kernel counts it, and from the pages of whole rounds, of which none is missing.
#[test]
fn a_patrol_that_is_killed_at_any_moment_loses_a_piece_at_most() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "killed");
    let state = scratch.path("state");
    let whole = run(pgtoll().arg("verify").arg(cluster.data()).arg("--json"));
    let whole: serde_json::Value = serde_json::from_str(&whole.stdout).unwrap();
    let pages = whole["read"]["blocks"].as_u64().unwrap();
    let mut random = Pcg64::seed_from_u64(23);
    // Pieces of 4 MB, four seconds each; then of all files, every few milliseconds, so that many a moment is
    // in the writing of the state.
    for (rate, longest_ms, moments) in [(1, 6000, 6), (2000, 400, 40)] {
        let rate_text = format!("{rate}MB/s");
        let piece = ((4 * rate) << 20_u64).min(64 << 20);
        let mut lost_most = 0;
        for _ in 0..moments {
            let before = state.exists().then(|| record(&state));
            let child = spawn(&mut patrol(&cluster.data(), &state, &["--rate", &rate_text]));
            let moment = Duration::from_millis(random.random_range(0..longest_ms));
            Interrupt::new().wait(moment).unwrap();
            signal(&child, Signal::SIGSTOP);
            let read = bytes_read(pid_of(&child));
            signal(&child, Signal::SIGKILL);
            child.wait_with_output().unwrap();
            if !state.exists() {
                continue;
            }
            let after = record(&state);
            let kept = after.read.bytes - before.as_ref().map_or(0, |record| record.read.bytes);
            let lost = read.saturating_sub(kept);
            assert!(lost <= piece + OTHER_BYTES, "{rate_text} {moment:?}: {lost} bytes were lost");
            lost_most = lost_most.max(lost);
            if let Some(before) = before {
                assert!(place(&before) <= place(&after), "{before:?} {after:?}");
            }
        }
        assert!(lost_most > OTHER_BYTES, "no kill was in a piece");
        // In whole rounds each page was read once.
        check_ran(
            &run(&mut patrol(&cluster.data(), &state, &["--rate", "100MB/s", "--for", "1s"])),
            0,
        );
        let record = record(&state);
        let of_whole_rounds = record.read.pages - record.round.read.pages;
        assert_eq!(of_whole_rounds, pages * (record.round.number - 1), "{record:?}");
    }
    cluster.remove(&mut guard).unwrap();
}

fn place(patrol: &PatrolRecord) -> (u64, PatrolBlock) {
    (patrol.round.number, patrol.round.next.unwrap_or_default())
}

/// What a process has read, of files and otherwise.
fn bytes_read(pid: i32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// What a patrol reads besides pages: its libraries, the control file, its state.
const OTHER_BYTES: u64 = 2 << 20;

#[test]
fn what_is_no_patrol_is_refused_in_a_line() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "refused");
    let data = cluster.data();
    let file = |name: &str, text: &str| -> PathBuf {
        fs::write(scratch.path(name), text).unwrap();
        scratch.path(name)
    };
    let check = |paths: &[&Path], state: &Path, more: &[&str], expected: &str| {
        let mut command = pgtoll();
        command.arg("verify").args(paths).arg("--patrol").arg(state).args(more);
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(2), "{expected}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{expected}: {ran:?}");
        assert!(ran.stdout.is_empty(), "{ran:?}");
    };
    let rate = ["--rate", "100MB/s", "--for", "1s"];
    let with = |more: [&'static str; 2]| [&rate[..], &more[..]].concat();
    let state = scratch.path("state");
    check(&[&data], &state, &[], "--rate <SIZE/s>");
    check(&[&data], &state, &with(["--resume", "x"]), "cannot be used with '--resume");
    check(&[&data], &state, &with(["--only", "t"]), "cannot be used with '--only");
    check(&[&data], &state, &with(["--within", "0s"]), "is not between 1s and 3650d");
    check(&[&data.join("base")], &state, &rate, "--patrol reads one data directory, and all of it");
    check(&[&data, &data.join("base")], &data.join("state"), &rate, "is in the data directory");
    check(&[&data], &data.join("base/state"), &rate, "is in the data directory");
    symlink(data.join("base"), scratch.path("link")).unwrap();
    check(&[&data], &scratch.path("link").join("state"), &rate, "is in the data directory");
    let output = data.join("out.prom");
    let output = [&rate[..], &["-o", output.to_str().unwrap()]].concat();
    check(&[&data], &state, &output, "is in the data directory");
    check(&[&data], &file("text", "text"), &rate, "is not a patrol state");
    symlink(scratch.path("text"), scratch.path("planted")).unwrap();
    check(&[&data], &scratch.path("planted"), &rate, "is a symbolic link");
    assert_eq!(fs::read_to_string(scratch.path("text")).unwrap(), "text");
    let nowhere = scratch.path("nowhere/state");
    check(&[&data], &nowhere, &rate, "No such file or directory");

    check_ran(&run(&mut patrol(&data, &state, &rate)), 0);
    let mut other = record(&state);
    other.source.system_identifier += 1;
    let other = file("other", &serde_json::to_string(&other).unwrap());
    check(&[&data], &other, &rate, "is of the cluster");
    let newer = fs::read_to_string(&state).unwrap().replace("pgtoll.patrol/1", "pgtoll.patrol/2");
    check(&[&data], &file("newer", &newer), &rate, "is not a patrol state");
    fs::write(data.join("backup_label"), "START WAL LOCATION: 0/2000028 (file 0)\n").unwrap();
    check(&[&data], &state, &rate, "is a base backup");
    let ran = run(pgtoll().arg("verify").arg(&data).args(["--within", "7d"]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--patrol <STATE>"), "{ran:?}");
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn a_rate_that_is_too_low_is_told_with_one_that_would_do() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = cluster(&mut guard, &server(), "slow");
    let state = scratch.path("state");
    let options = ["--rate", "1MB/s", "--within", "2s", "--for", "1s"];
    let ran = run(&mut patrol(&cluster.data(), &state, &options));
    check_ran(&ran, 0);
    assert!(ran.stderr.contains("too long for each page to be read within 2s"), "{ran:?}");
    let hint =
        ran.stderr.split_once("hint: --rate ").unwrap().1.split_once("MB/s would do").unwrap();
    let bytes = record(&state).source.bytes;
    assert!(hint.0.parse::<u64>().unwrap() << 20 > bytes, "{ran:?}");
    let ran = run(&mut patrol(&cluster.data(), &state, &["--rate", "1MB/s", "--for", "1s"]));
    assert!(ran.stderr.contains("each page is to be read within 7d"), "{ran:?}");
    cluster.remove(&mut guard).unwrap();
}
