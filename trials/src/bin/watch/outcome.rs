//! The comparison of arms: slices of the same repetition are a pair.

use anyhow::Context as _;
use pgtoll_record::trials::{BenchEstimate, BenchGoal, BenchLoad, BenchOutcome, BenchSubject};
use pgtoll_stats::{mean, sample_sd, t_quantile};
use pgtoll_trials::bench::ratio;

use crate::slice::Arm;

/// Of the 99th percentile: more would be seen on a dashboard.
const LATENCY_GOAL: f64 = 1.05;
/// Of a core.
const CPU_GOAL: f64 = 0.01;
const GENTLE_CPU_GOAL: f64 = 0.002;

type Figure = fn(&BenchLoad) -> f64;

pub(crate) fn outcomes(
    subject: &BenchSubject,
    runs: &[(Arm, BenchLoad)],
) -> anyhow::Result<Vec<BenchOutcome>> {
    let figures: [(&str, Figure, Option<f64>); 3] = [
        ("p99 latency", |item| nanoseconds(item.p99_ns), Some(LATENCY_GOAL)),
        ("median latency", |item| nanoseconds(item.median_ns), None),
        ("seconds a transaction", |item| item.seconds / nanoseconds(item.transactions), None),
    ];
    let mut outcomes = Vec::new();
    for arm in [Arm::Watched, Arm::Gentle, Arm::Checkup] {
        let of_arm =
            |wanted: Arm| runs.iter().filter(move |(run, _)| *run == wanted).map(|run| &run.1);
        if of_arm(arm).next().is_none() {
            continue;
        }
        for (name, figure, goal) in figures {
            outcomes.push(BenchOutcome {
                subject: subject.clone(),
                what: format!("{name}, {} / alone", arm.key()),
                estimate: ratio(of_arm(arm).map(figure), of_arm(Arm::Alone).map(figure))?,
                goal: BenchGoal::AtMost(goal),
            });
        }
        let cores: Vec<f64> =
            of_arm(arm).filter_map(|arm| Some(arm.watch_cpu_s? / arm.seconds)).collect();
        let goal = if arm == Arm::Gentle { GENTLE_CPU_GOAL } else { CPU_GOAL };
        outcomes.push(BenchOutcome {
            subject: subject.clone(),
            what: format!("CPU of the sessions, of a core, {}", arm.key()),
            estimate: of_mean(&cores).context("estimate the CPU of the sessions")?,
            goal: BenchGoal::AtMost(Some(goal)),
        });
    }
    Ok(outcomes)
}

/// The mean with its interval by Student's t.
#[expect(clippy::cast_precision_loss, reason = "slices are few")]
fn of_mean(values: &[f64]) -> Option<BenchEstimate> {
    let middle = mean(values)?;
    let count = values.len() as f64;
    let half = t_quantile(0.95, count - 1.0) * sample_sd(values)? / count.sqrt();
    Some(BenchEstimate { ratio: middle, lower: middle - half, upper: middle + half })
}

#[expect(clippy::cast_precision_loss, reason = "a slice's counts are far below 2^53")]
fn nanoseconds(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(p99_ms: u64, watch_cpu_s: Option<f64>) -> BenchLoad {
        BenchLoad {
            seconds: 100.0,
            transactions: 1000,
            median_ns: 1_000_000,
            p99_ns: p99_ms * 1_000_000,
            watch_cpu_s,
            watch_statements: None,
            watch_censuses: None,
        }
    }

    #[test]
    fn slices_of_a_repetition_are_pairs() {
        let runs = vec![
            (Arm::Alone, load(10, None)),
            (Arm::Watched, load(11, Some(0.4))),
            (Arm::Watched, load(22, Some(0.6))),
            (Arm::Alone, load(20, None)),
        ];
        let outcomes = outcomes(&BenchSubject::default(), &runs).unwrap();
        let found: Vec<(&str, bool)> =
            outcomes.iter().map(|outcome| (outcome.what.as_str(), outcome.is_reached())).collect();
        let expected = [
            ("p99 latency, watched / alone", false),
            ("median latency, watched / alone", true),
            ("seconds a transaction, watched / alone", true),
            ("CPU of the sessions, of a core, watched", true),
        ];
        assert_eq!(found, expected);
        assert!((outcomes[0].estimate.ratio - 1.1).abs() < 1e-9);
        let cpu = outcomes[3].estimate;
        assert!((cpu.ratio - 0.005).abs() < 1e-12 && cpu.lower < 0.004 && cpu.upper > 0.006);
    }
}
