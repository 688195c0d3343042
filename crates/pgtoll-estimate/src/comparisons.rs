//! Arms against other arms: ratios with their intervals, and what can be said of them.

use pgtoll_record::{
    Comparison, ExpectedFigure, Header, Interval, Metric, Outliers, Run, Steadiness, Verdict,
    Workload,
};
use pgtoll_stats::{Estimate, Round, Trend, outlier_shares, trend};

use crate::intervals::{ArmPair, ComparedArms, Intervals, RESAMPLES, compared_row};
use crate::metrics::{is_cut_off, metrics};
use crate::samples::samples;

/// Every arm against the baseline, twins against what they copy; and apart from them arms against
/// the arms that they name, in all metrics, and what expectations need besides.
pub(crate) fn comparisons(run: &Run, workload: &Workload) -> (Vec<Comparison>, Vec<Comparison>) {
    let header = &run.header;
    let intervals = Intervals::from(header);
    let mut own = Vec::new();
    let mut against_others = Vec::new();
    let metrics = metrics(workload).into_iter();
    for metric in metrics.filter(|metric| !is_cut_off(run, workload, *metric)) {
        let samples = samples(run.into(), workload, metric);
        let others = other_pairs(header, workload, metric);
        let pairs = [intervals.pairs.as_slice(), &others].concat();
        let row = compared_row(&samples, &pairs, &intervals.options(workload, metric));
        let null_factor = row.null_factor;
        let widening = intervals.widening(metric);
        let compared = pairs.iter().zip(row.compared).map(|(pair, compared)| {
            let found = comparison(run, workload, metric, pair, &compared?);
            Some(Comparison { widening, null_factor, ..found })
        });
        let mut compared = compared.collect::<Vec<Option<Comparison>>>().into_iter();
        own.extend(compared.by_ref().take(intervals.pairs.len()).flatten().map(|compared| {
            let against = compared.against.filter(|against| *against != header.baseline);
            Comparison { against, ..compared }
        }));
        against_others.extend(compared.flatten());
    }
    (own, against_others)
}

/// Pairs that arms and expectations name.
fn other_pairs<'a>(header: &'a Header, workload: &Workload, metric: Metric) -> Vec<ArmPair<'a>> {
    let arms = header.arms.iter();
    let named = arms.filter_map(|arm| Some((arm.name.as_str(), arm.against.as_deref()?)));
    let expected = header.expect.iter().filter(|claim| {
        claim.workload == workload.name
            && ExpectedFigure::named(&claim.metric) == Some(ExpectedFigure::Compared(metric))
    });
    let expected =
        expected.filter_map(|claim| Some((claim.arm.as_str(), claim.against.as_deref()?)));
    let mut pairs: Vec<ArmPair<'a>> = Vec::new();
    for (arm, against) in named.chain(expected) {
        let pair = ArmPair { arm, against, null: false };
        pairs.extend(Some(pair).filter(|pair| !pairs.contains(pair)));
    }
    pairs
}

/// A pair as the result has it, without the factors that its interval was widened by.
fn comparison(
    run: &Run,
    workload: &Workload,
    metric: Metric,
    pair: &ArmPair<'_>,
    compared: &ComparedArms,
) -> Comparison {
    let ComparedArms { rounds, options, estimate } = compared;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let target = target(metric, run.header.design.precision);
    let verdict = verdict(metric, estimate, target);
    let needed = estimate.rounds_needed(options, target);
    let more_seconds = needed.filter(|_| verdict == Verdict::NotResolved).and_then(|needed| {
        let more = needed.saturating_sub(count(estimate.rounds));
        Some(seconds_per_round(run, workload)? * f64::from(more))
    });
    Comparison {
        workload: workload.name.clone(),
        metric,
        arm: pair.arm.to_owned(),
        against: Some(pair.against.to_owned()),
        null: pair.null,
        ratio: Interval { estimate: estimate.ratio, lower: estimate.lower, upper: estimate.upper },
        total_ratio: Interval {
            estimate: estimate.total_ratio,
            lower: estimate.total_lower,
            upper: estimate.total_upper,
        },
        half_width: estimate.half_width,
        verdict,
        rounds: count(estimate.rounds),
        pairs: count(estimate.pairs),
        dropped_pairs: count(estimate.dropped_pairs),
        resamples: count(RESAMPLES),
        widening: None,
        null_factor: None,
        more_seconds,
        steadiness: steadiness(rounds),
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

fn verdict(metric: Metric, estimate: &Estimate, target: f64) -> Verdict {
    let more = estimate.lower > 1.0;
    let less = estimate.upper < 1.0;
    match (more, less) {
        (false, false) if estimate.half_width <= target => Verdict::NoCostAbove,
        (false, false) => Verdict::NotResolved,
        _ if more == metric.more_is_worse() => Verdict::Costs,
        _ => Verdict::Gains,
    }
}

/// The half-width, on the log scale, at which an interval that covers 1 is an answer: what people
/// call no cost; or what the run's user called precise.
pub(crate) fn target(metric: Metric, precision: Option<f64>) -> f64 {
    if let Some(precision) = precision {
        return precision.ln_1p();
    }
    match metric {
        Metric::CpuPerTransaction => 0.01,
        Metric::TransactionsPerSecond
        | Metric::LatencyMedian
        | Metric::LatencyP90
        | Metric::LatencyP95
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
