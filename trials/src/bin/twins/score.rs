//! Results of runs, beside the known truth. Pure.

use std::collections::BTreeMap;

use anyhow::bail;
use pgtoll_record::trials::{TwinsComparison, TwinsRun, TwinsSummary};
use pgtoll_record::{Comparison, Interval, Metric, RunResult};

use crate::runs::MULTIPLE;

/// The arm with the handicap.
const HANDICAP: &str = "handicap";
/// What the titles of workloads with a handicap end in.
const HANDICAPPED: &str = "handicapped";
/// Of intervals that claim 95 %.
const MISSES: std::ops::RangeInclusive<f64> = 0.03..=0.07;
const FOUND: f64 = 0.9;

/// The handicap in each workload, as a share of the baseline's server CPU, from a run with the
/// [multiple](MULTIPLE) of it.
pub(crate) fn planted(result: &RunResult) -> anyhow::Result<BTreeMap<String, f64>> {
    let map: BTreeMap<String, f64> = handicaps(result)
        .map(|found| {
            let added = found.total_ratio.estimate - 1.0;
            (found.workload.clone(), added / f64::from(MULTIPLE))
        })
        .collect();
    if map.is_empty() {
        bail!("the run with the multiple has no workload with a handicap");
    }
    Ok(map)
}

/// One run's comparisons of what is known.
pub(crate) fn run(seed: u64, result: &RunResult, planted: &BTreeMap<String, f64>) -> TwinsRun {
    let all = result.comparisons.iter().chain(&result.against_others);
    let twins = all
        .filter(|comparison| comparison.null)
        .map(|item| comparison(item, item.ratio, 1.0))
        .collect();
    let handicaps = handicaps(result)
        .filter_map(|handicap| {
            Some(comparison(handicap, handicap.total_ratio, 1.0 + planted.get(&handicap.workload)?))
        })
        .collect();
    let server = result.header.server.version.to_string();
    TwinsRun { seed, server, noise: result.noise, twins, handicaps }
}

/// Server CPU of the arm with the handicap against the one without, where there is one.
fn handicaps(result: &RunResult) -> impl Iterator<Item = &Comparison> {
    let titles =
        result.header.workloads.iter().filter(|workload| workload.title.ends_with(HANDICAPPED));
    let names: Vec<&str> = titles.map(|title| title.name.as_str()).collect();
    let is_cpu = |metric| matches!(metric, Metric::CpuPerTransaction | Metric::CpuPerOperation);
    result.comparisons.iter().filter(move |comparison| {
        comparison.arm == HANDICAP
            && is_cpu(comparison.metric)
            && names.contains(&comparison.workload.as_str())
    })
}

fn comparison(comparison: &Comparison, ratio: Interval, truth: f64) -> TwinsComparison {
    let ratio = narrowed(ratio, comparison.null_factor.unwrap_or(1.0));
    TwinsComparison {
        workload: comparison.workload.clone(),
        arm: comparison.arm.clone(),
        metric: comparison.metric,
        ratio,
        missed: truth < ratio.lower || truth > ratio.upper,
    }
}

/// The interval as it was before a twin of the same run widened it by this factor, on the log
/// scale: a miss of a twin would hide itself.
fn narrowed(ratio: Interval, factor: f64) -> Interval {
    let bound = |bound: f64| ratio.estimate * (bound / ratio.estimate).powf(factor.recip());
    Interval { estimate: ratio.estimate, lower: bound(ratio.lower), upper: bound(ratio.upper) }
}

/// Sums over all runs.
pub(crate) fn summary(runs: &[TwinsRun]) -> TwinsSummary {
    let twins = || runs.iter().flat_map(|run| &run.twins);
    let handicaps = || runs.iter().flat_map(|run| &run.handicaps);
    TwinsSummary {
        runs: runs.len() as u64,
        twins: twins().count() as u64,
        twins_missed: twins().filter(|twin| twin.missed).count() as u64,
        handicaps: handicaps().count() as u64,
        handicaps_found: handicaps().filter(|handicap| handicap.ratio.lower > 1.0).count() as u64,
        handicaps_missed: handicaps().filter(|handicap| handicap.missed).count() as u64,
    }
}

/// Whether both goals are reached.
pub(crate) fn is_good(summary: &TwinsSummary) -> bool {
    MISSES.contains(&share(summary.twins_missed, summary.twins))
        && share(summary.handicaps_found, summary.handicaps) >= FOUND
}

/// Not a number where there is nothing.
#[expect(clippy::cast_precision_loss, reason = "comparisons are few")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(missed: bool, lower: f64) -> TwinsComparison {
        TwinsComparison {
            workload: "insert".to_owned(),
            arm: HANDICAP.to_owned(),
            metric: Metric::CpuPerOperation,
            ratio: Interval { estimate: 1.03, lower, upper: 1.05 },
            missed,
        }
    }

    /// One run in which of 100 twins this many miss, and of 10 handicaps this many are found.
    fn runs(missed: usize, found: usize) -> Vec<TwinsRun> {
        let twins = (0..100).map(|index| compared(index < missed, 0.9)).collect();
        let lower = |index| if index < found { 1.01 } else { 0.99 };
        let handicaps = (0..10).map(|index| compared(index == 0, lower(index))).collect();
        vec![TwinsRun { seed: 1, server: "18.6".to_owned(), noise: None, twins, handicaps }]
    }

    #[test]
    fn intervals_that_never_miss_are_too_wide() {
        let good = |missed, found| is_good(&summary(&runs(missed, found)));
        assert!(good(5, 9) && good(3, 10) && good(7, 10));
        assert!(!good(2, 10) && !good(8, 10) && !good(5, 8));
        assert!(!is_good(&summary(&[])), "nothing was compared");
    }

    #[test]
    fn sums() {
        let expected = TwinsSummary {
            runs: 1,
            twins: 100,
            twins_missed: 4,
            handicaps: 10,
            handicaps_found: 9,
            handicaps_missed: 1,
        };
        assert_eq!(summary(&runs(4, 9)), expected);
    }

    #[test]
    fn a_miss_that_widened_its_own_interval_is_a_miss() {
        let widened = Interval { estimate: 1.1, lower: 1.0, upper: 1.21 };
        let was = narrowed(widened, 2.0);
        assert!((was.lower - 1.1 / 1.1_f64.sqrt()).abs() < 1e-12, "{was:?}");
        assert!((was.upper - 1.1 * 1.1_f64.sqrt()).abs() < 1e-12, "{was:?}");
        let same = narrowed(widened, 1.0);
        assert!((same.lower - 1.0).abs() < 1e-12 && (same.upper - 1.21).abs() < 1e-12);
    }
}
