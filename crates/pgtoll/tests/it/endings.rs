//! However pgtoll ends, nothing stays behind and what was measured can be read.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_record::{EndStatus, Overview};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::{
    PATIENCE, Scratch, children, ends_within, is_long, pgtoll, pid_of, processes_in, run,
    small_measure,
};

/// How a run is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Signal(Signal),
    Panic,
}

const ENDINGS: [Ending; 4] = [
    Ending::Signal(Signal::SIGINT),
    Ending::Signal(Signal::SIGTERM),
    Ending::Signal(Signal::SIGKILL),
    Ending::Panic,
];

/// Longer than the small run takes, so that some moments lie behind its end.
const RUN: Duration = Duration::from_secs(9);

/// Where the random moments begin: with the same seed they are the same.
const SEED: u64 = 50;

fn moments() -> usize {
    if is_long() { 200 } else { 12 }
}

#[test]
fn random_moments() {
    let mut random = Pcg64::seed_from_u64(SEED);
    for iteration in 0..moments() {
        let ending = ENDINGS[iteration % ENDINGS.len()];
        let moment = Moment::any(ending, &mut random);
        end_at(
            ending,
            moment,
            &format!("iteration {iteration} of seed {SEED}: {ending:?} {moment}"),
        );
    }
}

/// When a run is ended.
#[derive(Clone, Copy, Debug)]
enum Moment {
    After(Duration),
    Block { round: u32, block: u32 },
}

impl Moment {
    fn any(ending: Ending, random: &mut Pcg64) -> Self {
        match ending {
            // Two rounds of two blocks.
            Ending::Panic => {
                Self::Block { round: random.random_range(1..=2), block: random.random_range(1..=2) }
            }
            Ending::Signal(_) => Self::After(RUN.mul_f64(random.random_range(0.0..1.0))),
        }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::After(delay) => write!(f, "after {delay:?}"),
            Self::Block { round, block } => write!(f, "at round {round}, block {block}"),
        }
    }
}

/// Ends a run, and looks at what is left; `context` is in every failure.
fn end_at(ending: Ending, moment: Moment, context: &str) {
    let scratch = Scratch::new();
    let mut command = small_measure(&scratch);
    if let Moment::Block { round, block } = moment {
        command.env("PGTOLL_TEST_PANIC_AT", format!("{round}:{block}"));
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    if let Moment::After(delay) = moment {
        ends_within(pid_of(&child), delay);
    }
    let status = match ending {
        Ending::Panic => status_of(&mut child, context),
        Ending::Signal(signal) => end_by(signal, &mut child, context),
    };
    let context = format!("{context}: {status}");
    assert!(fs::read_dir(scratch.work()).unwrap().next().is_none(), "left behind by {context}");
    let running = processes_in(&scratch.work());
    assert!(running.is_empty(), "left running by {context}: {running:?}");
    if scratch.path("result/run.jsonl").exists() {
        let shown = run(pgtoll().arg("report").arg(scratch.path("result")));
        assert_eq!(shown.status, Some(0), "{context}: {shown:?}");
    }
}

/// Sends the signal and waits until pgtoll and its guard are gone.
fn end_by(signal: Signal, child: &mut Child, context: &str) -> String {
    let pid = pid_of(child);
    // Stopped, it starts no child between the look and the signal.
    let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
    let guards = children(pid);
    let _ = kill(Pid::from_raw(pid), signal);
    let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    let status = status_of(child, context);
    for guard in guards {
        assert!(ends_within(guard, PATIENCE), "guard {guard} lives after {context}: {status}");
    }
    status
}

fn status_of(child: &mut Child, context: &str) -> String {
    assert!(ends_within(pid_of(child), PATIENCE), "pgtoll does not end: {context}");
    child.wait().unwrap().to_string()
}

/// A run that has come to its first round, and the rest of its stderr.
fn in_first_round(scratch: &Scratch) -> (Child, BufReader<impl Read>) {
    let mut command = small_measure(scratch);
    command.args(["--rounds", "100", "--round-time", "1s", "--repetitions", "0", "--budget", "1d"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for_line(&mut stderr, "pgtoll: misses: round 1 of 100");
    (child, stderr)
}

fn wait_for_line(from: &mut impl BufRead, wanted: &str) {
    let found = from.lines().map_while(Result::ok).any(|line| line.starts_with(wanted));
    assert!(found, "{wanted:?} was not said");
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    let scratch = Scratch::new();
    let (mut child, mut stderr) = in_first_round(&scratch);
    wait_for_line(&mut stderr, "pgtoll: misses: round 3 of 100");
    kill(Pid::from_raw(pid_of(&child)), Signal::SIGINT).unwrap();
    let mut output = String::new();
    stderr.read_to_string(&mut output).unwrap();
    let mut table = String::new();
    child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(output.ends_with("pgtoll: interrupted by SIGINT\n"), "{output}");
    assert!(table.contains("read-only: 2 rounds"), "{table}");
    assert!(table.contains("incomplete: 2 of 200 rounds (interrupted by"), "{table}");
    scratch.assert_empty();
}

#[test]
fn ctrl_c_ends_all_experiments() {
    let scratch = Scratch::new();
    let again = scratch.path("again.toml");
    let small = include_str!("small.toml").replace("name = \"small\"", "name = \"again\"");
    fs::write(&again, small).unwrap();
    let mut command = small_measure(&scratch);
    command.arg(again).args(["--rounds", "100", "--round-time", "1s", "--repetitions", "0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for_line(&mut stderr, "pgtoll: misses: round 3 of 100");
    kill(Pid::from_raw(pid_of(&child)), Signal::SIGINT).unwrap();
    let mut output = String::new();
    stderr.read_to_string(&mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{output}");
    assert!(output.contains("pgtoll: 2 of 2 not completed: small, again\n"), "{output}");
    assert!(output.ends_with("\npgtoll: interrupted by SIGINT\n"), "{output}");
    let text = fs::read_to_string(scratch.path("result/overview.json")).unwrap();
    let overview: Overview = serde_json::from_str(&text).unwrap();
    let [first, second] = overview.experiments.as_slice() else { panic!("{text}") };
    assert_eq!([first.status, second.status], [EndStatus::Interrupted; 2]);
    assert!(!first.comparisons.is_empty(), "two rounds were completed");
    assert_eq!(second.reason.as_deref(), Some("not begun"));
    assert!(!scratch.path("result/again").exists());
    scratch.assert_empty();
}

#[test]
fn a_server_that_dies_in_the_middle_is_one_clear_line() {
    let scratch = Scratch::new();
    let (mut child, mut stderr) = in_first_round(&scratch);
    let guard = children(pid_of(&child))[0];
    let postmaster = children(guard)[0];
    kill(Pid::from_raw(postmaster), Signal::SIGKILL).unwrap();
    let mut output = String::new();
    stderr.read_to_string(&mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{output}");
    let last: Vec<&str> = output.lines().rev().take(2).collect();
    assert!(last[0].starts_with("hint: "), "{output}");
    assert!(last[1].starts_with("pgtoll: "), "{output}");
    scratch.assert_empty();
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = Scratch::new();
    let mut child = small_measure(&scratch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().unwrap();
    drop(child.stdout.take());
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    scratch.assert_empty();
}

#[test]
fn when_the_guard_is_killed_the_leftovers_are_told() {
    let scratch = Scratch::new();
    let (mut child, mut stderr) = in_first_round(&scratch);
    let guard = children(pid_of(&child))[0];
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    let mut output = String::new();
    stderr.read_to_string(&mut output).unwrap();
    // The servers live on, so the round is finished before their guard is missed.
    assert_eq!(child.wait().unwrap().code(), Some(2), "{output}");
    let hint = output.lines().find_map(|line| line.strip_prefix("hint: kill -QUIT ")).unwrap();
    let removal = format!("kill -QUIT {hint}");
    let removed = run(crate::support::program("sh").arg("-c").arg(&removal));
    assert_eq!(removed.status, Some(0), "{removal}: {removed:?}");
    let pids = hint.split(" && ").next().unwrap().split(' ').map(|pid| pid.parse().unwrap());
    for pid in pids {
        assert!(ends_within(pid, PATIENCE));
    }
}
