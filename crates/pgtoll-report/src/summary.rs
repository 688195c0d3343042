//! From a run's record to its result.

use std::collections::BTreeMap;

use pgtoll_record::{
    ArmRound, Comparison, Counters, Header, Interval, Metric, MetricValue, NoiseShare,
    RESULT_SCHEMA, Run, RunResult, Verdict, Work, Workload,
};
use pgtoll_stats::{Estimate, Options, Sample, minimum_block_length_for, pair_up, paired_ratio};

use crate::terminal::signed_percent;

const RESAMPLES: usize = 2000;
const ROUNDS_NEEDED: usize = 2;
/// Beyond this the two ways of counting a server's CPU time disagree enough to be told.
const CPU_TOTALS_MAY_DIFFER_BY: f64 = 0.02;
/// What a shutdown costs that comes after the one count and before the other.
const SHUTDOWN_NS: f64 = 50e6;

/// Every estimate that the record allows, whether the run was completed or not.
pub fn summarise(run: &Run) -> RunResult {
    let comparisons: Vec<Comparison> =
        run.header.workloads.iter().flat_map(|of| comparisons(run, of)).collect();
    let values: Vec<MetricValue> =
        run.header.workloads.iter().flat_map(|of| values(run, of)).collect();
    let mut rounds = BTreeMap::new();
    for round in &run.rounds {
        *rounds.entry(round.workload.clone()).or_insert(0) += 1;
    }
    RunResult {
        schema: RESULT_SCHEMA.to_owned(),
        header: run.header.clone(),
        complete: run.is_complete(),
        answers: answers(&run.header, &comparisons, &values),
        rounds,
        notes: notes(run, &comparisons),
        values,
        comparisons,
        noise: noise(run),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an operation's amounts are far below 2^53")]
fn samples<'a>(run: &'a Run, workload: &Workload, metric: Metric) -> Vec<Sample<'a>> {
    let slices = run.slices.iter().filter(|of| of.workload == workload.name);
    let slices = slices.map(|of| {
        let (numerator, denominator) = metric.of_slice(of);
        Sample { arm: &of.arm, round: of.round, block: of.block, numerator, denominator }
    });
    let operations = run.operations.iter().filter(|of| of.workload == workload.name);
    // A repetition has fresh starts, as a round has; its halves are its blocks.
    let operations = operations.map(|of| {
        let numerator = match metric {
            Metric::OperationTime => of.duration_ns as f64 / 1e9,
            _ => of.server_cpu_ns as f64,
        };
        let (arm, round, block) = (&of.arm, of.repetition, of.half);
        Sample { arm, round, block, numerator, denominator: 1.0 }
    });
    slices.chain(operations).collect()
}

/// What is compared in a workload.
pub(crate) fn metrics(workload: &Workload) -> [Metric; 2] {
    match workload.work {
        Work::Script { .. } => Metric::OF_SLICES,
        Work::Operation { .. } => Metric::OF_OPERATIONS,
    }
}

/// None before two rounds were completed: an interval that does not know the spread between
/// rounds would be too narrow, and nobody can say by how much.
fn comparisons(run: &Run, workload: &Workload) -> Vec<Comparison> {
    let header = &run.header;
    let arms = || header.arms.iter().filter(|arm| arm.name != header.baseline);
    let mut comparisons = Vec::new();
    for metric in metrics(workload) {
        let samples = samples(run, workload, metric);
        for arm in arms() {
            let rounds = pair_up(&samples, &arm.name, &header.baseline);
            if rounds.len() < ROUNDS_NEEDED {
                continue;
            }
            let kappa = header.calibration.iter().find(|of| of.metric == metric);
            let kappa = kappa.map(|of| of.kappa);
            if let Ok(estimate) = paired_ratio(&rounds, &options(run, workload, kappa)) {
                let null = arm.twin_of.is_some();
                let of = comparison(&workload.name, metric, &arm.name, null, &estimate);
                let more_seconds = more_seconds(run, workload, &of);
                comparisons.push(Comparison { kappa, more_seconds, ..of });
            }
        }
    }
    comparisons
}

#[expect(clippy::cast_precision_loss, reason = "slices last seconds at most")]
fn options(run: &Run, workload: &Workload, kappa: Option<f64>) -> Options {
    let design = &run.header.design;
    let slice_seconds = (design.slice_ns + design.lead_in_ns) as f64 / 1e9;
    let pair_seconds = slice_seconds * run.header.arms.len() as f64;
    Options {
        resamples: RESAMPLES,
        widening: kappa.unwrap_or(1.0),
        seed: run.header.seed,
        minimum_block_length: match workload.work {
            Work::Script { .. } => minimum_block_length_for(pair_seconds),
            Work::Operation { .. } => 1,
        },
        ..Options::default()
    }
}

fn comparison(
    workload: &str,
    metric: Metric,
    arm: &str,
    null: bool,
    estimate: &Estimate,
) -> Comparison {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Comparison {
        workload: workload.to_owned(),
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
        more_seconds: None,
    }
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
        Metric::TransactionsPerSecond | Metric::CpuPerOperation | Metric::OperationTime => 0.02,
    }
}

/// Half-widths fall with the square root of the time.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn more_seconds(run: &Run, workload: &Workload, of: &Comparison) -> Option<f64> {
    let slices = run.slices.iter().filter(|of| of.workload == workload.name);
    let slices = slices.map(|of| (of.start_ns, of.start_ns + of.duration_ns));
    let operations = run.operations.iter().filter(|of| of.workload == workload.name);
    let operations = operations.map(|of| (of.start_ns, of.start_ns + of.duration_ns));
    let spans: Vec<(u64, u64)> = slices.chain(operations).collect();
    let begin = spans.iter().map(|(begin, _)| begin).min()?;
    let end = spans.iter().map(|(_, end)| end).max()?;
    let times = (of.half_width / target(of.metric)).powi(2) - 1.0;
    (of.verdict == Verdict::NotResolved).then_some((end - begin) as f64 / 1e9 * times)
}

/// Absolute values of each arm.
fn values(run: &Run, workload: &Workload) -> Vec<MetricValue> {
    let mut values = Vec::new();
    for arm in &run.header.arms {
        for metric in metrics(workload) {
            let samples = samples(run, workload, metric);
            let own = || samples.iter().filter(|of| of.arm == arm.name);
            let numerator: f64 = own().map(|of| of.numerator).sum();
            let denominator: f64 = own().map(|of| of.denominator).sum();
            let (name, unit, factor) = key(metric);
            let value = numerator / denominator * factor;
            values.push((arm, name, unit, value, false));
        }
        let exact = exact(run, workload, &arm.name);
        values.extend(
            exact.into_iter().map(|(name, unit, value, exact)| (arm, name, unit, value, exact)),
        );
    }
    let finite = values.into_iter().filter(|(_, _, _, value, _)| value.is_finite());
    finite
        .map(|(arm, metric, unit, value, exact)| MetricValue {
            workload: workload.name.clone(),
            arm: arm.name.clone(),
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            exact,
        })
        .collect()
}

/// A metric's name among the values, its unit there, and what a sample's ratio is multiplied by.
pub(crate) fn key(metric: Metric) -> (&'static str, &'static str, f64) {
    match metric {
        Metric::CpuPerTransaction => ("cpu_per_transaction", "us", 1e-3),
        Metric::TransactionsPerSecond => ("transactions_per_second", "1/s", 1.0),
        Metric::CpuPerOperation => ("cpu_per_operation", "ms", 1e-6),
        Metric::OperationTime => ("operation_time", "ms", 1e3),
    }
}

/// Name, unit, value, and whether every repetition gave the same.
type Exact = (&'static str, &'static str, f64, bool);

/// Its name per transaction, its name per page, its unit, where it stands.
type Counter<'a> = (&'static str, &'static str, &'static str, &'a dyn Fn(&Counters) -> u64);

/// Counters over a fixed amount of work, for each transaction or page. Standby snapshots, which a
/// timer writes and not the work, are taken out of the WAL.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn exact(run: &Run, workload: &Workload, arm: &str) -> Vec<Exact> {
    let counted = run.counted.iter().filter(|of| of.workload == workload.name && of.arm == arm);
    let counted = counted.map(|of| (&of.counters, of.transactions as f64));
    let operations = run.operations.iter();
    let operations = operations.filter(|of| of.workload == workload.name && of.arm == arm);
    let operations = operations.map(|of| (&of.counters, of.pages.unwrap_or(1) as f64));
    let all: Vec<(&Counters, f64)> = counted.chain(operations).collect();
    let per_page = matches!(workload.work, Work::Operation { .. });
    let mean = |of: &dyn Fn(&Counters) -> u64| {
        let values: Vec<f64> = all.iter().map(|(counters, by)| of(counters) as f64 / by).collect();
        let same = values.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits());
        (values.iter().sum::<f64>() / values.len() as f64, same)
    };
    let wal_bytes = |of: &Counters| {
        let snapshots = of.snapshots();
        of.wal_bytes.saturating_sub(snapshots.record_bytes + snapshots.image_bytes)
    };
    let names: [Counter<'_>; 5] = [
        ("wal_per_transaction", "wal_per_page", "bytes", &wal_bytes),
        ("wal_images_per_transaction", "wal_images_per_page", "images", &|of| {
            of.wal_images.unwrap_or(0)
        }),
        ("hint_images_per_transaction", "hint_images_per_page", "images", &Counters::hint_images),
        ("blocks_read_per_transaction", "blocks_read_per_page", "blocks", &|of| of.blocks_read),
        ("blocks_written_per_transaction", "blocks_written_per_page", "blocks", &|of| {
            of.blocks_written
        }),
    ];
    names
        .into_iter()
        .map(|(per_transaction, of_page, unit, of)| {
            let (value, same) = mean(of);
            (if per_page { of_page } else { per_transaction }, unit, value, same)
        })
        .collect()
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
    if comparisons.is_empty() {
        notes.push(format!(
            "no intervals: they need at least {ROUNDS_NEEDED} completed rounds or repetitions"
        ));
    }
    if !run.unreadable_lines.is_empty() {
        let lines: Vec<String> = run.unreadable_lines.iter().map(usize::to_string).collect();
        notes.push(format!("lines of the record that cannot be read: {}", lines.join(", ")));
    }
    for null in comparisons
        .iter()
        .filter(|of| of.null && matches!(of.verdict, Verdict::Costs | Verdict::Gains))
    {
        notes.push(format!(
            "{}: the null arm {} shows a difference in {} where there is none: widen every \
             interval of that row in your mind, or run more rounds",
            null.workload,
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
    let timed = run.header.workloads.iter();
    let timed = timed.filter(|of| of.timed && matches!(of.work, Work::Script { .. })).count();
    let planned = run.header.design.rounds as usize * timed;
    format!("incomplete: {} of {planned} rounds ({reason})", run.rounds.len())
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

/// For each workload that was timed a sentence about CPU, and about WAL where arms differ in it.
fn answers(header: &Header, comparisons: &[Comparison], values: &[MetricValue]) -> Vec<String> {
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
        let all: Vec<String> = cpu.into_iter().chain(wal).collect();
        (!all.is_empty()).then(|| format!("{}: {}.", workload.title, all.join(". ")))
    });
    sentences.collect()
}

/// Arms with their WAL, when the difference between some is more than a hundredth.
fn wal_clause(header: &Header, workload: &Workload, values: &[MetricValue]) -> Option<String> {
    let (name, per) = match workload.work {
        Work::Script { .. } => ("wal_per_transaction", "transaction"),
        Work::Operation { .. } => ("wal_per_page", "page"),
    };
    let of_workload = values.iter().filter(|of| of.workload == workload.name && of.metric == name);
    let wal: Vec<&MetricValue> = of_workload.collect();
    let baseline = wal.iter().find(|of| of.arm == header.baseline)?;
    let differs = |of: &&&MetricValue| {
        // A byte is less than anybody asks for; a hundredth is less than what one run's standby
        // snapshots and catalog pages make.
        (of.value - baseline.value).abs() > (baseline.value / 100.0).max(1.0)
    };
    wal.iter().find(differs)?;
    let arms: Vec<String> = wal.iter().map(|of| format!("{} {:.0}", of.arm, of.value)).collect();
    Some(format!("Bytes of WAL a {per}: {}", arms.join(", ")))
}

fn clause(of: &Comparison) -> String {
    let Comparison { arm, ratio, .. } = of;
    let (lower, upper) = (signed_percent(ratio.lower, 1), signed_percent(ratio.upper, 1));
    let size = (ratio.estimate - 1.0).abs() * 100.0;
    match of.verdict {
        Verdict::Costs => format!("{arm} costs {size:.1} % [{lower}, {upper}]"),
        Verdict::Gains => format!("{arm} saves {size:.1} % [{lower}, {upper}]"),
        Verdict::NoCostAbove => {
            let worse = if of.metric.more_is_worse() { ratio.upper } else { 2.0 - ratio.lower };
            // Rounded up: a bound must not be promised smaller than it is.
            format!("{arm} has no cost above {:.1} %", ((worse - 1.0) * 1000.0).ceil() / 10.0)
        }
        Verdict::NotResolved => {
            let minutes = of.more_seconds.map_or(0.0, |seconds| (seconds / 60.0).ceil());
            format!(
                "{arm} is not resolved: between {lower} % and {upper} %, about {minutes:.0} min more"
            )
        }
    }
}

fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU per transaction",
        Metric::TransactionsPerSecond => "transactions per second",
        Metric::CpuPerOperation => "server CPU",
        Metric::OperationTime => "time",
    }
}
