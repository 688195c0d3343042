//! The comparison of arms: slices of the same repetition are a pair.

use anyhow::Context as _;
use pgtoll_record::trials::{BenchEstimate, BenchGoal, BenchLoad, BenchOutcome, BenchSubject};
use pgtoll_stats::{mean, sample_sd, t_quantile};
use pgtoll_trials::bench::ratio;

use crate::slice::CaptureArm;

type Figure = fn(&BenchLoad) -> f64;

/// Ratios of captured to direct and of twin to direct, then what is added in milliseconds. None has a goal.
pub(crate) fn outcomes(
    subject: &BenchSubject,
    runs: &[(CaptureArm, BenchLoad)],
) -> anyhow::Result<Vec<BenchOutcome>> {
    let figures: [(&str, Figure); 3] = [
        ("median latency", |item| milliseconds(item.median_ns)),
        ("p99 latency", |item| milliseconds(item.p99_ns)),
        ("seconds a transaction", |item| item.seconds / count(item.transactions)),
    ];
    let of_arm =
        |wanted: CaptureArm| runs.iter().filter(move |(run, _)| *run == wanted).map(|run| &run.1);
    let outcome = |label: String, estimate| BenchOutcome {
        subject: subject.clone(),
        what: label,
        estimate,
        goal: BenchGoal::AtMost(None),
    };
    let mut outcomes = Vec::new();
    for arm in [CaptureArm::Captured, CaptureArm::Twin] {
        for (name, figure) in figures {
            let label = format!("{name}, {} / direct", arm.key());
            let direct = of_arm(CaptureArm::Direct).map(figure);
            outcomes.push(outcome(label, ratio(of_arm(arm).map(figure), direct)?));
        }
        for (name, figure) in &figures[..2] {
            let pairs = of_arm(arm).zip(of_arm(CaptureArm::Direct));
            let added: Vec<f64> = pairs.map(|(one, other)| figure(one) - figure(other)).collect();
            let label = format!("{name} added, ms, {}", arm.key());
            let estimate = of_mean(&added).context("estimate what is added")?;
            outcomes.push(outcome(label, estimate));
        }
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

fn milliseconds(nanoseconds: u64) -> f64 {
    count(nanoseconds) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a slice's counts are far below 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(median_us: u64) -> BenchLoad {
        BenchLoad {
            seconds: 10.0,
            transactions: 1000,
            median_ns: median_us * 1000,
            p99_ns: median_us * 4000,
            watch_cpu_s: None,
            watch_statements: None,
            watch_censuses: None,
        }
    }

    #[test]
    fn what_capturing_adds_is_the_difference_within_a_repetition() {
        let runs = vec![
            (CaptureArm::Direct, load(100)),
            (CaptureArm::Captured, load(150)),
            (CaptureArm::Twin, load(100)),
            (CaptureArm::Captured, load(260)),
            (CaptureArm::Twin, load(200)),
            (CaptureArm::Direct, load(200)),
        ];
        let outcomes = outcomes(&BenchSubject::default(), &runs).unwrap();
        let value = |label: &str| {
            let found = outcomes.iter().find(|outcome| outcome.what == label).unwrap();
            found.estimate.ratio
        };
        assert!((value("median latency added, ms, captured") - 0.055).abs() < 1e-9);
        assert!((value("p99 latency added, ms, captured") - 0.22).abs() < 1e-9);
        assert!(value("median latency added, ms, twin").abs() < 1e-12);
        assert!((value("median latency, twin / direct") - 1.0).abs() < 1e-12);
        assert_eq!(outcomes.len(), 10);
    }
}
