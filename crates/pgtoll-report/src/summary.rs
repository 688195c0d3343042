//! From a run's record to its result.

use std::collections::BTreeMap;

use pgtoll_record::{
    ArmRound, Comparison, Counters, ExpectedFigure, Header, Interval, Metric, MetricValue,
    NoiseShare, Operation, OperationOf, Outliers, Profile, RESULT_SCHEMA, Receipt, Run, RunResult,
    Slice, Verdict, Work, Workload,
};
use pgtoll_stats::{
    Estimate, Options, Round, Sample, minimum_block_length_for, outlier_shares, pair_up,
    paired_ratio, proportion_interval,
};

use crate::expectations::expected;
use crate::terminal::signed_percent;

const RESAMPLES: usize = 2000;
const ROUNDS_NEEDED: usize = 2;
/// Beyond this the two ways of counting a server's CPU time disagree enough to be told.
const CPU_TOTALS_MAY_DIFFER_BY: f64 = 0.02;
/// What a shutdown costs that comes after the one count and before the other.
const SHUTDOWN_NS: f64 = 200e6;

/// Every estimate that the record allows, whether the run was completed or not.
pub fn summarise(run: &Run) -> RunResult {
    let comparisons: Vec<Comparison> =
        run.header.workloads.iter().flat_map(|of| comparisons(run, of)).collect();
    let against_others: Vec<Comparison> =
        run.header.workloads.iter().flat_map(|of| against_others(run, of)).collect();
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
        answers: answers(&run.header, &comparisons, &values, &run.profiles),
        rounds,
        expected: expected(&run.header, &comparisons, &against_others, &values),
        notes: notes(run, &comparisons),
        values,
        comparisons,
        against_others,
        noise: noise(run),
    }
}

pub(crate) fn samples<'a>(run: &'a Run, workload: &Workload, metric: Metric) -> Vec<Sample<'a>> {
    match (&workload.work, metric) {
        (Work::Operation { .. }, _) => {
            let operations = run.operations.iter().filter(|of| of.workload == workload.name);
            // A repetition has fresh starts, as a round has; its halves are its blocks.
            let samples = operations.filter_map(|of| {
                let (numerator, denominator) = of_operation(of, metric)?;
                let (arm, round, block) = (&of.arm, of.repetition, of.half);
                Some(Sample { arm, round, block, numerator, denominator })
            });
            samples.collect()
        }
        (_, Metric::LatencyMedian | Metric::LatencyP99) => {
            samples_of_latency(run, workload, metric)
        }
        (Work::Command { .. }, _) => samples_of_command(run, workload, metric),
        (Work::Script { .. }, _) => {
            let slices = run.slices.iter().filter(|of| of.workload == workload.name);
            let slices = slices.map(|of| {
                let (numerator, denominator) = metric.of_slice(of);
                Sample { arm: &of.arm, round: of.round, block: of.block, numerator, denominator }
            });
            slices.collect()
        }
    }
}

/// Numerator and denominator of the metric; `None` where the operation does not have it.
#[expect(clippy::cast_precision_loss, reason = "an operation's amounts are far below 2^53")]
fn of_operation(of: &Operation, metric: Metric) -> Option<(f64, f64)> {
    let (cpu_ns, seconds) = (of.server_cpu_ns as f64, of.duration_ns as f64 / 1e9);
    let transactions = || of.transactions.map(|count| count as f64);
    let latencies = of.latencies.as_ref();
    Some(match metric {
        Metric::CpuPerOperation => (cpu_ns, 1.0),
        Metric::OperationTime => (seconds, 1.0),
        Metric::ClientCpuPerOperation => (of.client_cpu_ns? as f64, 1.0),
        Metric::CpuPerTransaction => (cpu_ns, transactions()?),
        Metric::TransactionsPerSecond => (transactions()?, seconds),
        Metric::LatencyMedian => (latencies?.p50_ns as f64, 1.0),
        Metric::LatencyP99 => (latencies?.p99_ns as f64, 1.0),
        Metric::LatencyStddev => (latencies?.stddev_ns?, 1.0),
    })
}

/// What an arm did in each round or repetition: numerator and denominator of the metric, summed.
pub(crate) fn by_round(
    run: &Run,
    workload: &Workload,
    metric: Metric,
    arm: &str,
) -> BTreeMap<u32, (f64, f64)> {
    let mut rounds = BTreeMap::new();
    for of in samples(run, workload, metric).iter().filter(|of| of.arm == arm) {
        let sum: &mut (f64, f64) = rounds.entry(of.round).or_default();
        *sum = (sum.0 + of.numerator, sum.1 + of.denominator);
    }
    rounds
}

/// A quantile needs all slices of a round: there is one a round.
#[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^53 ns")]
fn samples_of_latency<'a>(run: &'a Run, workload: &Workload, metric: Metric) -> Vec<Sample<'a>> {
    let rounds = run.rounds.iter().filter(|of| of.workload == workload.name);
    let latencies = rounds.flat_map(|round| round.latencies.iter().map(|of| (round.round, of)));
    let samples = latencies.map(|(round, of)| {
        let quantile = if metric == Metric::LatencyMedian { of.p50_ns } else { of.p99_ns };
        Sample { arm: &of.arm, round, block: 0, numerator: quantile as f64, denominator: 1.0 }
    });
    samples.collect()
}

/// What a program did is known for a round, not for its slices.
fn samples_of_command<'a>(run: &'a Run, workload: &Workload, metric: Metric) -> Vec<Sample<'a>> {
    let rounds = run.rounds.iter().filter(|of| of.workload == workload.name);
    let arms = rounds.flat_map(|round| round.arms.iter().map(|arm| (round.round, arm)));
    let samples = arms.map(|(round, arm)| {
        let slices = run
            .slices
            .iter()
            .filter(|of| of.workload == workload.name && of.round == round && of.arm == arm.arm);
        let zero = Slice { transactions: arm.transactions, ..Slice::default() };
        let all = slices.fold(zero, |sum, of| Slice {
            duration_ns: sum.duration_ns.saturating_add(of.duration_ns),
            server_cpu_ns: sum.server_cpu_ns.saturating_add(of.server_cpu_ns),
            ..sum
        });
        let (numerator, denominator) = metric.of_slice(&all);
        Sample { arm: &arm.arm, round, block: 0, numerator, denominator }
    });
    samples.collect()
}

/// What is compared in a workload; the first is what its answer is about.
pub(crate) fn metrics(workload: &Workload) -> Vec<Metric> {
    match &workload.work {
        Work::Operation { of: None, .. } => Metric::OF_OPERATIONS.to_vec(),
        Work::Operation { of: Some(of), .. } => metrics_of_operation(of),
        Work::Command { .. } => Metric::OF_SLICES.to_vec(),
        // Transactions come when they come, whatever the server: their number says nothing of it.
        Work::Script { rate: Some(_), .. } => {
            [&[Metric::CpuPerTransaction], &Metric::OF_ROUNDS[..]].concat()
        }
        Work::Script { .. } => [Metric::OF_SLICES, Metric::OF_ROUNDS].concat(),
    }
}

fn metrics_of_operation(of: &OperationOf) -> Vec<Metric> {
    let latencies = [&Metric::OF_ROUNDS[..], &[Metric::LatencyStddev]].concat();
    match of {
        OperationOf::Program => {
            [&Metric::OF_OPERATIONS[..], &[Metric::ClientCpuPerOperation]].concat()
        }
        // How long it takes is what one asks of a recovery.
        OperationOf::Recovery => vec![Metric::OperationTime, Metric::CpuPerOperation],
        OperationOf::Script { rate: Some(_), .. } => {
            [&[Metric::CpuPerTransaction], &latencies[..]].concat()
        }
        OperationOf::Script { .. } => [&Metric::OF_SLICES[..], &latencies].concat(),
    }
}

/// A slice that is not much longer than the slowest transactions cuts them off.
const SLICE_OVER_P99: u64 = 100;

/// Whether slices are too short for this metric.
pub(crate) fn is_cut_off(run: &Run, workload: &Workload, metric: Metric) -> bool {
    let Some(slicing) = &workload.slicing else { return false };
    let of_workload = run.rounds.iter().filter(|of| of.workload == workload.name);
    let longest = of_workload.flat_map(|round| &round.latencies).map(|of| of.p99_ns).max();
    metric == Metric::LatencyP99
        && longest.is_some_and(|p99| p99.saturating_mul(SLICE_OVER_P99) > slicing.slice_ns)
}

/// Every arm against the baseline.
fn comparisons(run: &Run, workload: &Workload) -> Vec<Comparison> {
    let header = &run.header;
    let mut comparisons = Vec::new();
    for metric in compared_metrics(run, workload) {
        let samples = samples(run, workload, metric);
        let arms = header.arms.iter().filter(|arm| arm.name != header.baseline);
        comparisons.extend(arms.filter_map(|arm| {
            let of = compared(run, workload, metric, &samples, &arm.name, &header.baseline)?;
            Some(Comparison { null: arm.twin_of.is_some(), ..of })
        }));
    }
    comparisons
}

/// Arms against the arms that they name, in all metrics; and what expectations need besides.
fn against_others(run: &Run, workload: &Workload) -> Vec<Comparison> {
    let header = &run.header;
    let mut comparisons = Vec::new();
    for metric in compared_metrics(run, workload) {
        let arms = header.arms.iter();
        let mut pairs: Vec<(&str, &str)> =
            arms.filter_map(|arm| Some((arm.name.as_str(), arm.against.as_deref()?))).collect();
        let expected = header.expect.iter().filter(|of| {
            of.workload == workload.name
                && ExpectedFigure::named(&of.metric) == Some(ExpectedFigure::Compared(metric))
        });
        for of in expected {
            let pair = of.against.as_deref().map(|against| (of.arm.as_str(), against));
            pairs.extend(pair.filter(|pair| !pairs.contains(pair)));
        }
        let samples = samples(run, workload, metric);
        comparisons.extend(pairs.into_iter().filter_map(|(arm, against)| {
            let of = compared(run, workload, metric, &samples, arm, against)?;
            Some(Comparison { against: Some(against.to_owned()), ..of })
        }));
    }
    comparisons
}

fn compared_metrics(run: &Run, workload: &Workload) -> impl Iterator<Item = Metric> {
    metrics(workload).into_iter().filter(|metric| !is_cut_off(run, workload, *metric))
}

/// An arm against another one, paired within blocks. `None` before two rounds were completed: an
/// interval that does not know the spread between rounds would be too narrow, and nobody can say
/// by how much.
fn compared(
    run: &Run,
    workload: &Workload,
    metric: Metric,
    samples: &[Sample<'_>],
    arm: &str,
    against: &str,
) -> Option<Comparison> {
    let rounds = pair_up(samples, arm, against);
    if rounds.len() < ROUNDS_NEEDED {
        return None;
    }
    let kappa = run.header.calibration.iter().find(|of| of.metric == metric).map(|of| of.kappa);
    let options = options(run, workload, metric, kappa);
    let estimate = paired_ratio(&rounds, &options).ok()?;
    let of = comparison(&workload.name, metric, arm, &estimate);
    let needed = estimate.rounds_needed(&options, target(metric));
    let unresolved = of.verdict == Verdict::NotResolved;
    let more_seconds = needed.filter(|_| unresolved).and_then(|needed| {
        let more = needed.saturating_sub(of.rounds);
        Some(seconds_per_round(run, workload)? * f64::from(more))
    });
    Some(Comparison { kappa, more_seconds, receipt: receipt(&rounds), ..of })
}

fn options(run: &Run, workload: &Workload, metric: Metric, kappa: Option<f64>) -> Options {
    let slicing = workload.slicing.as_ref().filter(|_| Metric::OF_SLICES.contains(&metric));
    let pair_seconds = slicing.map(|of| of.block(run.header.arms.len()).as_secs_f64());
    Options {
        resamples: RESAMPLES,
        widening: kappa.unwrap_or(1.0),
        seed: run.header.seed,
        minimum_block_length: pair_seconds.map_or(1, minimum_block_length_for),
        ..Options::default()
    }
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
        kappa: None,
        more_seconds: None,
        receipt: None,
    }
}

/// `None` where there are too few pairs to say anything.
fn receipt(rounds: &[Round]) -> Option<Receipt> {
    let pgtoll_stats::Receipt { drift, halves } = pgtoll_stats::receipt(rounds)?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Some(Receipt {
        drift: drift.correlation,
        drift_p: drift.p_value,
        halves: halves.map(|of| Interval { estimate: of.ratio, lower: of.lower, upper: of.upper }),
        outliers: outlier_shares(rounds).map(|of| Outliers {
            arm: count(of.treatment),
            baseline: count(of.baseline),
            slices: count(of.slices),
            p: of.p_value,
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
    let slices = run.slices.iter().filter(|of| of.workload == workload.name);
    let slices = slices.map(|of| (of.round, of.start_ns, of.duration_ns));
    let operations = run.operations.iter().filter(|of| of.workload == workload.name);
    let operations = operations.map(|of| (of.repetition, of.start_ns, of.duration_ns));
    let spans = slices.chain(operations);
    let spans: Vec<(u32, u64, u64)> = spans
        .map(|(round, begin, duration)| (round, begin, begin.saturating_add(duration)))
        .collect();
    let begin = spans.iter().map(|(_, begin, _)| begin).min()?;
    let end = spans.iter().map(|(_, _, end)| end).max()?;
    let rounds = spans.iter().map(|(round, _, _)| *round).max()?;
    Some((end - begin) as f64 / 1e9 / f64::from(rounds))
}

/// Absolute values of each arm.
fn values(run: &Run, workload: &Workload) -> Vec<MetricValue> {
    let mut values = Vec::new();
    for arm in &run.header.arms {
        for metric in metrics(workload) {
            if is_cut_off(run, workload, metric) {
                continue;
            }
            let samples = samples(run, workload, metric);
            let own = || samples.iter().filter(|of| of.arm == arm.name);
            let numerator: f64 = own().map(|of| of.numerator).sum();
            let denominator: f64 = own().map(|of| of.denominator).sum();
            let (name, unit, factor) = key(metric);
            let value = numerator / denominator * factor;
            values.push((arm, name.to_owned(), unit, value, false));
        }
        let others = [system_share, disk_of_rounds, profiled_share, predicted];
        let others = others.map(|of| of(run, workload, &arm.name));
        let others = others.into_iter().flatten().chain(exact(run, workload, &arm.name));
        values.extend(others.map(|(name, unit, value, exact)| (arm, name, unit, value, exact)));
    }
    let finite = values.into_iter().filter(|(_, _, _, value, _)| value.is_finite());
    finite
        .map(|(arm, metric, unit, value, exact)| MetricValue {
            workload: workload.name.clone(),
            arm: arm.name.clone(),
            metric,
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
        Metric::LatencyMedian => ("latency_p50", "us", 1e-3),
        Metric::LatencyP99 => ("latency_p99", "us", 1e-3),
        Metric::LatencyStddev => ("latency_stddev", "us", 1e-3),
        Metric::CpuPerOperation => ("cpu_per_operation", "ms", 1e-6),
        Metric::OperationTime => ("operation_time", "ms", 1e3),
        Metric::ClientCpuPerOperation => ("client_cpu_per_operation", "ms", 1e-6),
    }
}

/// The kernel looks now and then whose time it is: that makes a share of sums of seconds only.
const SAMPLED_NEEDS_NS: u64 = 10_000_000_000;

/// The share of the server's CPU time that was spent in the kernel, restarts and warm-ups
/// included.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn system_share(run: &Run, workload: &Workload, arm: &str) -> Option<Exact> {
    let rounds = run.rounds.iter().filter(|of| of.workload == workload.name);
    let own: Vec<&ArmRound> = rounds.flat_map(|of| &of.arms).filter(|of| of.arm == arm).collect();
    let all = sum(own.iter().map(|of| of.cpu_reaped_ns));
    let system = sum(own.iter().map(|of| of.cpu_reaped_system_ns));
    let exact = run.header.host.cpu_split == "exact";
    let enough = all > 0 && (exact || all >= SAMPLED_NEEDS_NS);
    enough.then(|| ("cpu_system_share".to_owned(), "%", system as f64 / all as f64 * 100.0, false))
}

/// Of a record's numbers, which may be anything: as much as a number can hold.
fn sum(of: impl Iterator<Item = u64>) -> u64 {
    of.fold(0, u64::saturating_add)
}

/// The share of the profiled function in the server's CPU time in user mode.
#[expect(clippy::cast_precision_loss, reason = "samples are far below 2^53")]
fn profiled_share(run: &Run, workload: &Workload, arm: &str) -> Option<Exact> {
    let mut profiles = run.profiles.iter();
    let of = profiles.find(|of| of.workload == workload.name && of.arm == arm)?;
    let share = of.samples as f64 / of.of as f64 * 100.0;
    Some(("profiled_share_of_user_cpu".to_owned(), "%", share, false))
}

/// WAL as it was predicted from that of another arm, for each transaction.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn predicted(run: &Run, workload: &Workload, arm: &str) -> Option<Exact> {
    let mut predicted = run.predicted.iter();
    let of = predicted.find(|of| of.workload == workload.name && of.arm == arm)?;
    let mut counted = run.counted.iter();
    let of_same = counted.find(|of| of.workload == workload.name && of.arm == arm)?;
    let value = of.wal_bytes as f64 / of_same.transactions as f64;
    Some(("predicted_wal_per_transaction".to_owned(), "bytes", value, false))
}

/// Under a limit of memory the counted pass, which has none, says nothing of disks.
#[expect(clippy::cast_precision_loss, reason = "a run's bytes are far below 2^53")]
fn disk_of_rounds(run: &Run, workload: &Workload, arm: &str) -> Option<Exact> {
    workload.memory_limit_bytes?;
    let rounds = run.rounds.iter().filter(|of| of.workload == workload.name);
    let own = || rounds.clone().flat_map(|of| &of.arms).filter(|of| of.arm == arm);
    let reads: Vec<u64> = own().map(|of| of.io.map(|io| io.read)).collect::<Option<_>>()?;
    let read = sum(reads.into_iter());
    let transactions = sum(own().map(|of| of.transactions));
    let read = read as f64 / transactions as f64;
    Some(("disk_read_per_transaction".to_owned(), "bytes", read, false))
}

/// Name, unit, value, and whether every repetition gave the same.
type Exact = (String, &'static str, f64, bool);

/// Its name without what it is divided by, its unit, where it stands.
type Counter<'a> = (&'static str, &'static str, &'a dyn Fn(&Counters) -> Option<u64>);

/// What a counter with this name is divided by.
pub(crate) fn divisor_words(metric: &str) -> &'static str {
    match metric.rsplit('_').next() {
        Some("transaction") => "a transaction",
        Some("page") => "a page",
        _ => "an operation",
    }
}

/// What counters of this work are divided by, as the names of values end.
fn divisor(run: &Run, workload: &Workload) -> &'static str {
    let mut operations = run.operations.iter().filter(|of| of.workload == workload.name);
    if workload.work.is_of_transactions() {
        "transaction"
    } else if operations.any(|of| of.pages.is_some()) {
        "page"
    } else {
        "operation"
    }
}

/// Counters over a fixed amount of work, for each transaction, page or operation. Standby snapshots, which a
/// timer writes and not the work, are taken out of the WAL.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn exact(run: &Run, workload: &Workload, arm: &str) -> Vec<Exact> {
    let counted = run.counted.iter().filter(|of| of.workload == workload.name && of.arm == arm);
    let counted = counted.map(|of| (&of.counters, of.transactions as f64));
    let operations = run.operations.iter();
    let operations = operations.filter(|of| of.workload == workload.name && of.arm == arm);
    let per_transaction = workload.work.is_of_transactions();
    let operations = operations.map(|of| {
        let by = if per_transaction { of.transactions } else { of.pages };
        (&of.counters, by.unwrap_or(1) as f64)
    });
    let all: Vec<(&Counters, f64)> = counted.chain(operations).collect();
    let divisor = divisor(run, workload);
    let is_operation = matches!(workload.work, Work::Operation { .. });
    let is_recovery =
        matches!(workload.work, Work::Operation { of: Some(OperationOf::Recovery), .. });
    let repeats = repeats(&workload.work);
    // `None` where one of them does not know.
    let mean = |of: &dyn Fn(&Counters) -> Option<u64>| {
        let values = all.iter().map(|(counters, by)| Some(of(counters)? as f64 / by));
        let values: Vec<f64> = values.collect::<Option<_>>()?;
        let same = values.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits());
        Some((values.iter().sum::<f64>() / values.len() as f64, same))
    };
    let wal_bytes = |of: &Counters| {
        let snapshots = of.snapshots();
        Some(
            of.wal_bytes
                .saturating_sub(snapshots.record_bytes.saturating_add(snapshots.image_bytes)),
        )
    };
    let counted: [Counter<'_>; 5] = [
        ("wal", "bytes", &wal_bytes),
        ("wal_images", "images", &|of| of.wal_images),
        ("hint_images", "images", &|of| Some(of.hint_images())),
        ("blocks_read", "blocks", &|of| Some(of.blocks_read)),
        ("blocks_written", "blocks", &|of| Some(of.blocks_written)),
    ];
    // What goes through the system's caches is never exact, however often it comes out the same.
    let of_files: [Counter<'_>; 2] = [
        // Under a limit of memory the rounds say what was read.
        ("disk_read", "bytes", &|of| {
            Some(of.io?.read).filter(|_| workload.memory_limit_bytes.is_none() || is_operation)
        }),
        ("file_writes", "bytes", &|of| Some(of.io?.written)),
    ];
    // A server that was killed has lost what it had counted: known is the WAL that it replayed.
    let counted = counted.into_iter().take(if is_recovery { 1 } else { usize::MAX });
    let counters = counted.map(|of| (of, repeats));
    let counters = counters.chain(of_files.into_iter().map(|of| (of, false)));
    let known = counters.filter_map(|((name, unit, of), exact)| {
        let (value, same) = mean(of)?;
        Some((format!("{name}_per_{divisor}"), unit, value, same && exact))
    });
    known.collect()
}

/// It is the same work each time: not what several clients do in an order of their own or in a time,
/// nor what a kill leaves of the WAL.
fn repeats(work: &Work) -> bool {
    let Work::Operation { of: Some(of), .. } = work else { return true };
    match of {
        OperationOf::Program => true,
        OperationOf::Recovery => false,
        OperationOf::Script { clients, time_ns, .. } => *clients == 1 && time_ns.is_none(),
    }
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

/// Whence predictions are, and how right they were.
#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn predictions_note(run: &Run) -> Option<String> {
    let from = &run.predicted.first()?.from;
    let errors = run.predicted.iter().filter_map(|of| {
        let mut counted = run.counted.iter();
        let same = counted.find(|it| it.workload == of.workload && it.arm == of.arm)?;
        Some((of.wal_bytes as f64 / same.counters.wal_bytes as f64 - 1.0).abs())
    });
    let worst = errors.filter(|of| of.is_finite()).max_by(f64::total_cmp)?;
    Some(format!(
        "predicted WAL is what `pgtoll wal whatif` says of an arm's settings from the WAL of {from}; \
         it is within {:.1} % of what the arm really wrote, which stands above it",
        worst * 100.0
    ))
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
    // Of the same slices other metrics show the same.
    let first = |of: &&Comparison| of.metric == Metric::CpuPerTransaction;
    notes.extend(comparisons.iter().filter(first).filter_map(changed_note));
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
    notes.extend(predictions_note(run));
    notes.extend(cpu_totals_note(run));
    let too_short = run.header.workloads.iter();
    notes.extend(too_short.filter(|of| is_cut_off(run, of, Metric::LatencyP99)).map(|of| {
        format!(
            "{}: no 99th percentile of latency: it needs slices that are {SLICE_OVER_P99} times \
             as long (--slice)",
            of.name
        )
    }));
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

/// So improbable that among all comparisons of a run hardly one is noted by chance.
const HARDLY: f64 = 0.001;

/// What a comparison's receipt shows to be other than chance.
fn changed_note(of: &Comparison) -> Option<String> {
    let receipt = of.receipt?;
    let row = || format!("{}: {} of {}", of.workload, name(of.metric), of.arm);
    let outliers = receipt.outliers.filter(|outliers| outliers.p < HARDLY);
    outliers.map(|Outliers { arm, baseline, slices, .. }| {
        format!(
            "{}: {arm} of {slices} slices are far off, against {baseline} of the baseline; they \
             count, and the typical slice does not show them",
            row()
        )
    })
}

fn incomplete(run: &Run) -> String {
    let reason = run.end.as_ref().and_then(|end| end.reason.as_deref());
    let reason = match (reason, &run.end) {
        (Some(reason), _) => reason,
        (None, Some(_)) => "a part of the record cannot be read",
        (None, None) => "the record breaks off",
    };
    let timed = run.header.workloads.iter();
    let timed = timed.filter(|of| of.timed && of.slicing.is_some()).count();
    let planned = (run.header.design.rounds as usize).saturating_mul(timed);
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
fn answers(
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
pub(crate) fn is_near(value: f64, baseline: f64) -> bool {
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
pub(crate) fn bound(of: &Comparison) -> String {
    let Comparison { metric, ratio, .. } = of;
    let worse = if metric.more_is_worse() { ratio.upper } else { 2.0 - ratio.lower };
    // Rounded up: a bound must not be promised smaller than it is.
    format!("no cost above {:.1} %", ((worse - 1.0) * 1000.0).ceil() / 10.0)
}

pub(crate) fn clause(of: &Comparison) -> String {
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

pub(crate) fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU per transaction",
        Metric::TransactionsPerSecond => "transactions per second",
        Metric::LatencyMedian => "median latency",
        Metric::LatencyP99 => "99th percentile of latency",
        Metric::LatencyStddev => "standard deviation of latency",
        Metric::CpuPerOperation => "server CPU",
        Metric::OperationTime => "time",
        Metric::ClientCpuPerOperation => "client CPU",
    }
}
