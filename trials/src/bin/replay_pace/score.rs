//! Results of replays, beside the goals. Pure.

use std::fmt::Write as _;

use pgtoll_record::trials::{ReplayPaceCase, ReplayPaceHeader, ReplayPaceRun};
use pgtoll_stats::median;

/// What is to be shown, and what was.
pub(crate) struct PaceOutcome {
    what: String,
    /// The worst of all runs, or their median.
    found: f64,
    bound: Bound,
}

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl PaceOutcome {
    pub(crate) fn is_reached(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.found <= bound,
            Bound::AtLeast(bound) => self.found >= bound,
        }
    }
}

/// How far a replay's length may be from the one that it should have, at the recorded speed, and at others.
const LENGTH_OFF: [f64; 2] = [0.02, 0.03];
/// The 99th percentile of lateness in milliseconds.
const LATE_MS: f64 = 10.0;
/// A replay's rate over pgbench's.
const RATE: f64 = 0.95;
/// pgbench's `-M`, its default first.
pub(crate) const PROTOCOLS: [&str; 2] = ["simple", "prepared"];

/// The goals of the cases that were tried.
pub(crate) fn outcomes(runs: &[ReplayPaceRun]) -> Vec<PaceOutcome> {
    let mut outcomes = Vec::new();
    let pick = |case, speed: Option<f64>| {
        move |run: &&ReplayPaceRun| run.case == case && run.speed == speed
    };
    for (speed, off) in [(1.0, LENGTH_OFF[0]), (2.0, LENGTH_OFF[1]), (0.5, LENGTH_OFF[1])] {
        let timed = runs.iter().filter(pick(ReplayPaceCase::Timed, Some(speed)));
        let lengths = timed.filter_map(|run| Some((run.length_ratio()? - 1.0).abs()));
        let label = format!("length at {speed}x is off by");
        outcomes.extend(worst(label, lengths, off));
    }
    let timed = runs.iter().filter(pick(ReplayPaceCase::Timed, Some(1.0)));
    let late = timed.filter_map(|run| run.lateness_p99_ms);
    outcomes.extend(worst("p99 lateness at 1x, ms".to_owned(), late, LATE_MS));
    #[expect(clippy::cast_precision_loss, reason = "sessions are few")]
    let failed = runs
        .iter()
        .filter(pick(ReplayPaceCase::Sessions, Some(1.0)))
        .map(|run| (run.broken_sessions + run.errors) as f64);
    outcomes.extend(worst("broken sessions and errors of many".to_owned(), failed, 0.0));
    for protocol in PROTOCOLS {
        let full = runs.iter().filter(pick(ReplayPaceCase::Full, None));
        let full = full.filter(|run| run.protocol == protocol);
        let rates: Vec<f64> = full.filter_map(ReplayPaceRun::rate_ratio).collect();
        if let Some(found) = median(&rates) {
            let label = format!("full speed over pgbench's, {protocol}, median");
            outcomes.push(PaceOutcome { what: label, found, bound: Bound::AtLeast(RATE) });
        }
    }
    outcomes
}

/// `None` where there is no run.
fn worst(label: String, found: impl Iterator<Item = f64>, most: f64) -> Option<PaceOutcome> {
    let found = found.reduce(f64::max)?;
    Some(PaceOutcome { what: label, found, bound: Bound::AtMost(most) })
}

/// What is going to be tried.
pub(crate) fn introduction(header: &ReplayPaceHeader) -> String {
    format!("{}; {} cores of {}\n", header.server, header.host.cores, header.host.cpu)
}

/// A replay in a line.
pub(crate) fn line(run: &ReplayPaceRun) -> String {
    let mut text = match (run.speed, run.length_ratio()) {
        (Some(speed), Some(ratio)) => format!(
            "{speed}x: {:.2} s, {:+.2} % of what it should be",
            run.run_s,
            (ratio - 1.0) * 100.0
        ),
        _ => format!("full speed, {}: {:.2} s", run.protocol, run.run_s),
    };
    if let (Some(p99), Some(most)) = (run.lateness_p99_ms, run.lateness_max_ms) {
        let _ = write!(text, ", late by {p99:.2} ms (p99), {most:.2} ms at most");
    }
    if let (Some(tps), Some(ratio)) = (run.pgbench_tps, run.rate_ratio()) {
        let _ = write!(text, ", {ratio:.3} of pgbench's {tps:.0} a second");
    }
    let _ = writeln!(
        text,
        "; {} of {} sessions connected, {} broken, {} statements, {} errors, {:.2} s of CPU",
        run.connections,
        run.sessions,
        run.broken_sessions,
        run.statements,
        run.errors,
        run.client_cpu_s
    );
    text
}

/// Every goal, and whether it is reached.
pub(crate) fn table(outcomes: &[PaceOutcome]) -> String {
    let mut text = String::from("\n");
    for outcome in outcomes {
        let (word, bound) = match outcome.bound {
            Bound::AtMost(bound) => ("at most", bound),
            Bound::AtLeast(bound) => ("at least", bound),
        };
        let state = if outcome.is_reached() { "reached" } else { "MISSED" };
        let _ =
            writeln!(text, "{:<44}{:>10.4}  {word} {bound}: {state}", outcome.what, outcome.found);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: ReplayPaceCase, speed: Option<f64>, run_s: f64) -> ReplayPaceRun {
        ReplayPaceRun {
            case,
            protocol: "prepared".to_owned(),
            repetition: 1,
            speed,
            recorded_s: 20.0,
            run_s,
            lateness_p99_ms: speed.map(|_| 4.0),
            lateness_max_ms: speed.map(|_| 30.0),
            sessions: 16,
            connections: 16,
            broken_sessions: 0,
            statements: 1000,
            errors: 0,
            client_cpu_s: 0.1,
            pgbench_tps: speed.is_none().then_some(100.0),
        }
    }

    #[test]
    fn the_worst_timed_run_and_the_median_rate_count() {
        let timed = |run_s| run(ReplayPaceCase::Timed, Some(1.0), run_s);
        let reached = |runs: &[ReplayPaceRun]| {
            outcomes(runs).iter().map(PaceOutcome::is_reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(&[timed(20.1), timed(20.3)]), [true, true]);
        assert_eq!(reached(&[timed(20.1), timed(20.5)]), [false, true]);
        let late = ReplayPaceRun { lateness_p99_ms: Some(11.0), ..timed(20.0) };
        assert_eq!(reached(&[late]), [true, false]);
        let broken =
            ReplayPaceRun { broken_sessions: 1, ..run(ReplayPaceCase::Sessions, Some(1.0), 20.0) };
        assert_eq!(reached(&[broken]), [false]);
        let full = |run_s| run(ReplayPaceCase::Full, None, run_s);
        assert_eq!(reached(&[full(10.0), full(10.2), full(12.0)]), [true]);
        assert_eq!(reached(&[full(10.0), full(11.0), full(12.0)]), [false]);
    }
}
