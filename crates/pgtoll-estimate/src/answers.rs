//! What a run answers, in sentences.

use pgtoll_record::{Comparison, Header, MetricValue, Profile, Verdict, Workload};
use pgtoll_stats::proportion_interval;

use crate::figures::signed_percent;
use crate::metrics::{divisor_words, metrics, name};

/// For each workload that was timed a sentence about CPU, and about WAL where arms differ in it.
pub(crate) fn answers(
    header: &Header,
    comparisons: &[Comparison],
    values: &[MetricValue],
    profiles: &[Profile],
) -> Vec<String> {
    let sentences = header.workloads.iter().filter_map(|workload| {
        let clauses: Vec<String> = comparisons
            .iter()
            .filter(|of| of.workload == workload.name && !of.null)
            .filter(|of| of.metric == metrics(workload)[0])
            .map(clause)
            .collect();
        let wal = wal_clause(header, workload, values);
        let cpu = (!clauses.is_empty()).then(|| {
            let what = name(metrics(workload)[0]);
            format!("in {what}, against {}, {}", header.baseline, clauses.join("; "))
        });
        let functions = profiles.iter().filter(|of| of.workload == workload.name);
        let functions = functions.filter_map(function_clause);
        let all: Vec<String> = cpu.into_iter().chain(wal).chain(functions).collect();
        (!all.is_empty()).then(|| format!("{}: {}.", workload.title, all.join(". ")))
    });
    sentences.collect()
}

/// Arms with their WAL, when the difference between some is more than a hundredth.
fn wal_clause(header: &Header, workload: &Workload, values: &[MetricValue]) -> Option<String> {
    let of_workload = values.iter().filter(|of| of.workload == workload.name);
    let wal: Vec<&MetricValue> =
        of_workload.filter(|of| of.metric.starts_with("wal_per_")).collect();
    let per = divisor_words(&wal.first()?.metric);
    let baseline = wal.iter().find(|of| of.arm == header.baseline)?;
    wal.iter().find(|of| !is_near(of.value, baseline.value))?;
    let arms: Vec<String> = wal.iter().map(|of| format!("{} {:.0}", of.arm, of.value)).collect();
    Some(format!("Bytes of WAL {per}: {}", arms.join(", ")))
}

/// Whether WAL differs by nothing to speak of: a byte is less than anybody asks for; a hundredth is
/// less than what one run's standby snapshots and catalog pages make.
pub fn is_near(value: f64, baseline: f64) -> bool {
    (value - baseline).abs() <= (baseline / 100.0).max(1.0)
}

/// The share of a function in an arm's CPU time, where it was found at all.
fn function_clause(of: &Profile) -> Option<String> {
    let (lower, upper) = proportion_interval(of.samples, of.of)?;
    #[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
    let share = of.samples as f64 / of.of as f64;
    (of.samples > 0).then(|| {
        format!(
            "{}* took {:.1} % [{:.1}, {:.1}] of the user CPU time of {} ({} samples)",
            of.function,
            share * 100.0,
            lower * 100.0,
            upper * 100.0,
            of.arm,
            of.of
        )
    })
}

/// What a comparison that covers zero and is narrow promises.
pub fn bound(of: &Comparison) -> String {
    let Comparison { metric, ratio, .. } = of;
    let worse = if metric.more_is_worse() { ratio.upper } else { 2.0 - ratio.lower };
    // Rounded up: a bound must not be promised smaller than it is.
    format!("no cost above {:.1} %", ((worse - 1.0) * 1000.0).ceil() / 10.0)
}

/// An arm's difference from the baseline in words.
pub fn clause(of: &Comparison) -> String {
    let Comparison { arm, ratio, .. } = of;
    let (lower, upper) = (signed_percent(ratio.lower, 1), signed_percent(ratio.upper, 1));
    let size = (ratio.estimate - 1.0).abs() * 100.0;
    match of.verdict {
        Verdict::Costs => format!("{arm} costs {size:.1} % [{lower}, {upper}]"),
        Verdict::Gains => format!("{arm} saves {size:.1} % [{lower}, {upper}]"),
        Verdict::NoCostAbove => format!("{arm} has {}", bound(of)),
        Verdict::NotResolved => {
            let more = of.more_seconds.map(|seconds| (seconds / 60.0).ceil());
            let more = more.filter(|minutes| *minutes < 6000.0).map_or_else(
                || "more rounds than are worth while".to_owned(),
                |minutes| format!("about {minutes:.0} min more"),
            );
            format!("{arm} is not resolved: between {lower} % and {upper} %, {more}")
        }
    }
}
