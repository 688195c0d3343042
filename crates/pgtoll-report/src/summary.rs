//! From a run's record to its result.

use std::collections::BTreeMap;

use pgtoll_record::{
    ArmRound, Comparison, Interval, Metric, MetricValue, NoiseShare, RESULT_SCHEMA, Run, RunResult,
    Slice, Verdict,
};
use pgtoll_stats::{Estimate, Options, Pair, Round, minimum_block_length_for, paired_ratio};

use crate::terminal::signed_percent;

const RESAMPLES: usize = 2000;
const ROUNDS_NEEDED: usize = 2;
/// Beyond this the two ways of counting a server's CPU time disagree enough to be told.
const CPU_TOTALS_MAY_DIFFER_BY: f64 = 0.02;
/// What a shutdown costs that comes after the one count and before the other.
const SHUTDOWN_NS: f64 = 50e6;

/// Every estimate that the record allows, whether the run was completed or not.
pub fn summarise(run: &Run) -> RunResult {
    let comparisons = comparisons(run);
    let mut result = RunResult {
        schema: RESULT_SCHEMA.to_owned(),
        header: run.header.clone(),
        complete: run.is_complete(),
        rounds: u32::try_from(run.rounds.len()).unwrap_or(u32::MAX),
        answer: String::new(),
        values: values(run),
        notes: notes(run, &comparisons),
        comparisons,
        noise: noise(run),
    };
    result.answer = answer(&result);
    result
}

/// None before two rounds were completed: an interval that does not know the spread between
/// rounds would be too narrow, and nobody can say by how much.
fn comparisons(run: &Run) -> Vec<Comparison> {
    let header = &run.header;
    if run.rounds.len() < ROUNDS_NEEDED {
        return Vec::new();
    }
    let arms = || header.arms.iter().filter(|arm| arm.name != header.baseline);
    Metric::ALL
        .into_iter()
        .flat_map(|metric| arms().map(move |arm| (metric, arm)))
        .filter_map(|(metric, arm)| {
            let estimate = paired_ratio(&pairs(run, metric, &arm.name), &options(run)).ok()?;
            Some(comparison(metric, &arm.name, arm.twin_of.is_some(), &estimate))
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "slices last seconds at most")]
fn options(run: &Run) -> Options {
    let design = &run.header.design;
    let slice_seconds = (design.slice_ns + design.lead_in_ns) as f64 / 1e9;
    Options {
        resamples: RESAMPLES,
        seed: run.header.seed,
        minimum_block_length: minimum_block_length_for(
            slice_seconds * run.header.arms.len() as f64,
        ),
        ..Options::default()
    }
}

/// The arm's slices beside the baseline's of the same block, round by round.
fn pairs(run: &Run, metric: Metric, arm: &str) -> Vec<Round> {
    let mut blocks: BTreeMap<(u32, u32), [Option<&Slice>; 2]> = BTreeMap::new();
    for slice in &run.slices {
        let place = match slice.arm.as_str() {
            name if name == arm => 0,
            name if name == run.header.baseline => 1,
            _ => continue,
        };
        blocks.entry((slice.round, slice.block)).or_default()[place] = Some(slice);
    }
    let mut rounds: BTreeMap<u32, Round> = BTreeMap::new();
    for ((round, _), block) in blocks {
        let [Some(treatment), Some(baseline)] = block else { continue };
        let (numerator_treatment, denominator_treatment) = metric.amounts(treatment);
        let (numerator_baseline, denominator_baseline) = metric.amounts(baseline);
        rounds.entry(round).or_default().pairs.push(Pair {
            numerator_treatment,
            denominator_treatment,
            numerator_baseline,
            denominator_baseline,
        });
    }
    rounds.into_values().collect()
}

fn comparison(metric: Metric, arm: &str, null: bool, estimate: &Estimate) -> Comparison {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Comparison {
        metric,
        arm: arm.to_owned(),
        null,
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
        kappa: None,
    }
}

fn verdict(metric: Metric, estimate: &Estimate) -> Verdict {
    let more = estimate.lower > 1.0;
    let less = estimate.upper < 1.0;
    match (more, less) {
        (false, false) => Verdict::NotResolved,
        _ if more == metric.more_is_worse() => Verdict::Costs,
        _ => Verdict::Gains,
    }
}

#[expect(clippy::cast_precision_loss, reason = "totals of a run are far below 2^53")]
fn values(run: &Run) -> Vec<MetricValue> {
    let mut values = Vec::new();
    for arm in &run.header.arms {
        let mut push = |metric: &str, value: f64, unit: &str| {
            if value.is_finite() {
                let (metric, unit) = (metric.to_owned(), unit.to_owned());
                values.push(MetricValue { arm: arm.name.clone(), metric, value, unit });
            }
        };
        let slices = || run.slices.iter().filter(|slice| slice.arm == arm.name);
        let transactions = slices().map(|slice| slice.transactions).sum::<u64>() as f64;
        let cpu_ns = slices().map(|slice| slice.server_cpu_ns).sum::<u64>() as f64;
        let seconds = slices().map(|slice| slice.duration_ns).sum::<u64>() as f64 / 1e9;
        push("cpu_per_transaction", cpu_ns / transactions / 1e3, "us");
        push("transactions_per_second", transactions / seconds, "1/s");
        let rounds = || {
            let arms = run.rounds.iter().flat_map(|round| &round.arms);
            arms.filter(|of| of.arm == arm.name)
        };
        let transactions = rounds().map(|round| round.transactions).sum::<u64>() as f64;
        let read = rounds().map(|round| round.blocks_read).sum::<u64>() as f64;
        let wal = rounds().filter_map(|round| round.wal_to.bytes_since(round.wal_from));
        push("blocks_read_per_transaction", read / transactions, "blocks");
        push("wal_per_transaction", wal.sum::<u64>() as f64 / transactions, "bytes");
    }
    values
}

#[expect(clippy::cast_precision_loss, reason = "rounds are few")]
fn noise(run: &Run) -> Option<NoiseShare> {
    let count = run.rounds.len() as f64;
    let mean = |of: fn(&NoiseShare) -> f64| {
        run.rounds.iter().map(|round| of(&round.noise)).sum::<f64>() / count
    };
    let pressure = run.rounds.iter().all(|round| round.noise.cpu_pressure.is_some());
    (!run.rounds.is_empty()).then(|| NoiseShare {
        steal: mean(|noise| noise.steal),
        others: mean(|noise| noise.others),
        cpu_pressure: pressure.then(|| mean(|noise| noise.cpu_pressure.unwrap_or_default())),
    })
}

fn notes(run: &Run, comparisons: &[Comparison]) -> Vec<String> {
    let mut notes = run.notes.clone();
    if !run.is_complete() {
        notes.push(incomplete(run));
    }
    if !run.unreadable_lines.is_empty() {
        let lines: Vec<String> = run.unreadable_lines.iter().map(usize::to_string).collect();
        notes.push(format!("lines of the record that cannot be read: {}", lines.join(", ")));
    }
    for null in comparisons.iter().filter(|of| of.null && of.verdict != Verdict::NotResolved) {
        notes.push(format!(
            "the null arm {} shows a difference in {} where there is none: widen every interval \
             of that row in your mind, or run more rounds",
            null.arm,
            name(null.metric)
        ));
    }
    notes.extend(cpu_totals_note(run));
    let changed = run.slices.iter().filter(|slice| slice.processes_changed).count();
    if changed > 0 {
        notes.push(format!(
            "in {changed} of {} slices a server process came or went: their CPU time is exact to \
             10 ms only",
            run.slices.len()
        ));
    }
    notes
}

fn incomplete(run: &Run) -> String {
    let reason = run.end.as_ref().and_then(|end| end.reason.as_deref());
    let reason = match (reason, &run.end) {
        (Some(reason), _) => reason,
        (None, Some(_)) => "a part of the record cannot be read",
        (None, None) => "the record breaks off",
    };
    format!("incomplete: {} of {} rounds ({reason})", run.rounds.len(), run.header.design.rounds)
}

/// The kernel tells a server's CPU time twice: while it runs, process by process, and at its end
/// in one sum. They differ by what the shutdown costs, and should by no more.
#[expect(clippy::cast_precision_loss, reason = "a round's nanoseconds are far below 2^53")]
fn cpu_totals_note(run: &Run) -> Option<String> {
    let arms = || run.rounds.iter().flat_map(|round| &round.arms);
    let apart = |arm: &ArmRound| (arm.cpu_reaped_ns as f64 - arm.cpu_observed_ns as f64).abs();
    let is_far = |arm: &&ArmRound| {
        let relative = apart(arm) / (arm.cpu_reaped_ns as f64).max(1.0);
        relative > CPU_TOTALS_MAY_DIFFER_BY && apart(arm) > SHUTDOWN_NS
    };
    let worst = arms().filter(is_far).max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    Some(format!(
        "a server's CPU time by its processes' clocks and by its end (wait4) are more than 2 % \
         apart in {} of {} server runs, most in arm {}: {:.2} s and {:.2} s",
        arms().filter(is_far).count(),
        arms().count(),
        worst.arm,
        worst.cpu_observed_ns as f64 / 1e9,
        worst.cpu_reaped_ns as f64 / 1e9,
    ))
}

/// The answer in a sentence: CPU for each arm that is compared, or that there is none yet.
fn answer(result: &RunResult) -> String {
    let header = &result.header;
    let clauses: Vec<String> = result
        .comparisons
        .iter()
        .filter(|of| of.metric == Metric::CpuPerTransaction && !of.null)
        .map(clause)
        .collect();
    if clauses.is_empty() {
        let rounds = result.rounds;
        return format!(
            "No answer: {rounds} of the at least {ROUNDS_NEEDED} rounds that an interval needs \
             were completed."
        );
    }
    format!(
        "PostgreSQL {} on this machine, {}: in server CPU per transaction, against {}, {}. \
         Intervals are 95 %.",
        header.server.version,
        header.workload.title,
        header.baseline,
        clauses.join("; ")
    )
}

fn clause(of: &Comparison) -> String {
    let Comparison { arm, ratio, .. } = of;
    let (lower, upper) = (signed_percent(ratio.lower, 1), signed_percent(ratio.upper, 1));
    let size = (ratio.estimate - 1.0).abs() * 100.0;
    match of.verdict {
        Verdict::Costs => format!("{arm} costs {size:.1} % [{lower}, {upper}]"),
        Verdict::Gains => format!("{arm} saves {size:.1} % [{lower}, {upper}]"),
        Verdict::NotResolved => {
            format!("{arm} shows no difference: between {lower} % and {upper} %")
        }
    }
}

fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU per transaction",
        Metric::TransactionsPerSecond => "transactions per second",
    }
}
