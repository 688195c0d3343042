//! Arms against other arms: ratios with their intervals, and what can be said of them.

use pgtoll_record::{
    Comparison, ExpectedFigure, Interval, Metric, Outliers, Run, Steadiness, Verdict, Workload,
};
use pgtoll_stats::{Estimate, Round, Sample, Trend, outlier_shares, trend};

use crate::intervals::{ComparedArms, Intervals, RESAMPLES, compare};
use crate::metrics::{is_cut_off, metrics};
use crate::samples::samples;

/// Every arm against the baseline.
pub(crate) fn comparisons(run: &Run, workload: &Workload) -> Vec<Comparison> {
    let header = &run.header;
    let mut comparisons = Vec::new();
    for metric in compared_metrics(run, workload) {
        let samples = samples(run.into(), workload, metric);
        let arms = header.arms.iter().filter(|arm| arm.name != header.baseline);
        comparisons.extend(arms.filter_map(|arm| {
            let found = compared(run, workload, metric, &samples, &arm.name, &header.baseline)?;
            Some(Comparison { null: arm.twin_of.is_some(), ..found })
        }));
    }
    comparisons
}

/// Arms against the arms that they name, in all metrics; and what expectations need besides.
pub(crate) fn against_others(run: &Run, workload: &Workload) -> Vec<Comparison> {
    let header = &run.header;
    let mut comparisons = Vec::new();
    for metric in compared_metrics(run, workload) {
        let arms = header.arms.iter();
        let mut pairs: Vec<(&str, &str)> =
            arms.filter_map(|arm| Some((arm.name.as_str(), arm.against.as_deref()?))).collect();
        let expected = header.expect.iter().filter(|claim| {
            claim.workload == workload.name
                && ExpectedFigure::named(&claim.metric) == Some(ExpectedFigure::Compared(metric))
        });
        for claim in expected {
            let pair = claim.against.as_deref().map(|against| (claim.arm.as_str(), against));
            pairs.extend(pair.filter(|pair| !pairs.contains(pair)));
        }
        let samples = samples(run.into(), workload, metric);
        comparisons.extend(pairs.into_iter().filter_map(|(arm, against)| {
            let found = compared(run, workload, metric, &samples, arm, against)?;
            Some(Comparison { against: Some(against.to_owned()), ..found })
        }));
    }
    comparisons
}

fn compared_metrics(run: &Run, workload: &Workload) -> impl Iterator<Item = Metric> {
    metrics(workload).into_iter().filter(|metric| !is_cut_off(run, workload, *metric))
}

/// An arm against another one, as the result has it.
fn compared(
    run: &Run,
    workload: &Workload,
    metric: Metric,
    samples: &[Sample<'_>],
    arm: &str,
    against: &str,
) -> Option<Comparison> {
    let intervals = Intervals::from(&run.header);
    let options = intervals.options(workload, metric);
    let ComparedArms { rounds, options, estimate } = compare(samples, arm, against, options)?;
    let found = comparison(&workload.name, metric, arm, &estimate);
    let needed = estimate.rounds_needed(&options, target(metric));
    let unresolved = found.verdict == Verdict::NotResolved;
    let more_seconds = needed.filter(|_| unresolved).and_then(|needed| {
        let more = needed.saturating_sub(found.rounds);
        Some(seconds_per_round(run, workload)? * f64::from(more))
    });
    let widening = intervals.widening(metric);
    Some(Comparison { widening, more_seconds, steadiness: steadiness(&rounds), ..found })
}

fn comparison(workload: &str, metric: Metric, arm: &str, estimate: &Estimate) -> Comparison {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Comparison {
        workload: workload.to_owned(),
        metric,
        arm: arm.to_owned(),
        against: None,
        null: false,
        ratio: Interval { estimate: estimate.ratio, lower: estimate.lower, upper: estimate.upper },
        total_ratio: Interval {
            estimate: estimate.total_ratio,
            lower: estimate.total_lower,
            upper: estimate.total_upper,
        },
        half_width: estimate.half_width,
        verdict: verdict(metric, estimate),
        rounds: count(estimate.rounds),
        pairs: count(estimate.pairs),
        dropped_pairs: count(estimate.dropped_pairs),
        resamples: count(RESAMPLES),
        widening: None,
        more_seconds: None,
        steadiness: None,
    }
}

/// `None` where there are too few pairs to say anything.
fn steadiness(rounds: &[Round]) -> Option<Steadiness> {
    let Trend { drift, halves } = trend(rounds)?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Some(Steadiness {
        drift: drift.correlation,
        drift_p: drift.p_value,
        halves: halves.map(|halves| Interval {
            estimate: halves.ratio,
            lower: halves.lower,
            upper: halves.upper,
        }),
        outliers: outlier_shares(rounds).map(|shares| Outliers {
            arm: count(shares.treatment),
            baseline: count(shares.baseline),
            slices: count(shares.slices),
            p: shares.p_value,
        }),
    })
}

fn verdict(metric: Metric, estimate: &Estimate) -> Verdict {
    let more = estimate.lower > 1.0;
    let less = estimate.upper < 1.0;
    match (more, less) {
        (false, false) if estimate.half_width <= target(metric) => Verdict::NoCostAbove,
        (false, false) => Verdict::NotResolved,
        _ if more == metric.more_is_worse() => Verdict::Costs,
        _ => Verdict::Gains,
    }
}

/// The half-width, on the log scale, at which an interval that covers 1 is an answer: what people
/// call no cost.
fn target(metric: Metric) -> f64 {
    match metric {
        Metric::CpuPerTransaction => 0.01,
        Metric::TransactionsPerSecond
        | Metric::LatencyMedian
        | Metric::CpuPerOperation
        | Metric::OperationTime
        | Metric::ClientCpuPerOperation => 0.02,
        Metric::LatencyP99 | Metric::LatencyStddev => 0.05,
    }
}

/// A round's or a repetition's, restarts and copies included.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn seconds_per_round(run: &Run, workload: &Workload) -> Option<f64> {
    let slices = run.slices.iter().filter(|slice| slice.workload == workload.name);
    let slices = slices.map(|slice| (slice.round, slice.start_ns, slice.duration_ns));
    let operations = run.operations.iter().filter(|done| done.workload == workload.name);
    let operations = operations.map(|done| (done.repetition, done.start_ns, done.duration_ns));
    let spans: Vec<(u32, u64, u64)> = slices
        .chain(operations)
        .map(|(round, begin, duration)| (round, begin, begin.saturating_add(duration)))
        .collect();
    let begin = spans.iter().map(|(_, begin, _)| begin).min()?;
    let end = spans.iter().map(|(_, _, end)| end).max()?;
    let rounds = spans.iter().map(|(round, _, _)| *round).max()?;
    Some((end - begin) as f64 / 1e9 / f64::from(rounds))
}
