//! From lines of a record to samples: the only place where that is done, for the rule that ends a
//! run and for the intervals that are printed.

use std::collections::BTreeMap;

use pgtoll_record::{
    ArmLatencies, Latencies, Metric, Operation, RoundEnd, Run, Slice, Work, Workload,
};
use pgtoll_stats::Sample;

/// The lines from which samples are made: of a run's record, or of a run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordLines<'a> {
    /// Slices of scripts and programs.
    pub slices: &'a [Slice],
    /// Rounds that ended.
    pub rounds: &'a [RoundEnd],
    /// Measured steps.
    pub operations: &'a [Operation],
}

impl<'a> From<&'a Run> for RecordLines<'a> {
    fn from(run: &'a Run) -> Self {
        Self { slices: &run.slices, rounds: &run.rounds, operations: &run.operations }
    }
}

/// Returns the samples of every arm under a workload, as numerator and denominator of the metric.
pub fn samples<'a>(lines: RecordLines<'a>, workload: &Workload, metric: Metric) -> Vec<Sample<'a>> {
    match (&workload.work, metric) {
        (Work::Operation { .. }, _) => {
            // Those in one piece are a check of those in turns, and not mixed with them.
            let in_turns = operations_of(lines, workload).any(|done| done.turns.is_some());
            samples_of_operations(lines, workload, metric, in_turns)
        }
        _ if Metric::OF_ROUNDS.contains(&metric) => samples_of_latency(lines, workload, metric),
        (Work::Command { .. }, _) => samples_of_command(lines, workload, metric),
        (Work::Script { .. }, _) => samples_of_slices(lines, workload, metric),
    }
}

fn samples_of_slices<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
    metric: Metric,
) -> Vec<Sample<'a>> {
    let slices = lines.slices.iter().filter(|slice| slice.workload == workload.name);
    slices
        .map(|slice| {
            let (numerator, denominator) = slice_amounts(slice, metric);
            let arm = &slice.arm;
            let round = slice.round;
            let block = slice.block;
            Sample { arm, round, block, numerator, denominator }
        })
        .collect()
}

/// Numerator and denominator of the metric: ns and transactions, or transactions and s.
#[expect(clippy::cast_precision_loss, reason = "a slice's amounts are far below 2^53")]
fn slice_amounts(slice: &Slice, metric: Metric) -> (f64, f64) {
    let transactions = slice.transactions as f64;
    match metric {
        Metric::TransactionsPerSecond => (transactions, slice.duration_ns as f64 / 1e9),
        _ => (slice.server_cpu_ns as f64, transactions),
    }
}

/// Returns the samples of operations in one piece, if arms take turns otherwise.
pub(crate) fn samples_in_one_piece<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
    metric: Metric,
) -> Vec<Sample<'a>> {
    match &workload.work {
        Work::Operation { turn_ns: Some(_), .. } => {
            samples_of_operations(lines, workload, metric, false)
        }
        _ => Vec::new(),
    }
}

fn operations_of<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
) -> impl Iterator<Item = &'a Operation> {
    lines.operations.iter().filter(|done| done.workload == workload.name)
}

/// A repetition has fresh starts, as a round has; its halves are its blocks.
fn samples_of_operations<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
    metric: Metric,
    in_turns: bool,
) -> Vec<Sample<'a>> {
    operations_of(lines, workload)
        .filter(|done| done.turns.is_some() == in_turns)
        .filter_map(|done| {
            let (numerator, denominator) = operation_amounts(done, metric)?;
            let arm = &done.arm;
            let round = done.repetition;
            let block = done.half;
            Some(Sample { arm, round, block, numerator, denominator })
        })
        .collect()
}

/// Numerator and denominator of the metric; `None` where the operation does not have it.
#[expect(clippy::cast_precision_loss, reason = "an operation's amounts are far below 2^53")]
fn operation_amounts(operation: &Operation, metric: Metric) -> Option<(f64, f64)> {
    let cpu_ns = operation.server_cpu_ns as f64;
    let seconds = operation.duration_ns as f64 / 1e9;
    let transactions = || operation.transactions.map(|count| count as f64);
    let latencies = operation.latencies.as_ref();
    Some(match metric {
        Metric::CpuPerOperation => (cpu_ns, 1.0),
        Metric::OperationTime => (seconds, 1.0),
        Metric::ClientCpuPerOperation => (operation.client_cpu_ns? as f64, 1.0),
        Metric::CpuPerTransaction => (cpu_ns, transactions()?),
        Metric::TransactionsPerSecond => (transactions()?, seconds),
        Metric::LatencyMedian | Metric::LatencyP90 | Metric::LatencyP95 | Metric::LatencyP99 => {
            (quantile_ns(latencies?, metric)? as f64, 1.0)
        }
        Metric::LatencyStddev => (latencies?.stddev_ns?, 1.0),
    })
}

/// A quantile needs all slices of a round: there is one a round.
#[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^53 ns")]
fn samples_of_latency<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
    metric: Metric,
) -> Vec<Sample<'a>> {
    let rounds = lines.rounds.iter().filter(|round| round.workload == workload.name);
    let latencies =
        rounds.flat_map(|round| round.latencies.iter().map(|latencies| (round.round, latencies)));
    latencies
        .filter_map(|(round, latencies)| {
            let arm = &latencies.arm;
            let numerator = quantile_ns(latencies, metric)? as f64;
            Some(Sample { arm, round, block: 0, numerator, denominator: 1.0 })
        })
        .collect()
}

/// The latency that a metric is about; `None` where it takes a histogram that cannot be read.
pub(crate) fn quantile_ns(arm_latencies: &ArmLatencies, metric: Metric) -> Option<u64> {
    match metric {
        Metric::LatencyMedian => Some(arm_latencies.p50_ns),
        Metric::LatencyP90 => Some(arm_latencies.p90_ns),
        Metric::LatencyP95 => {
            let latencies = Latencies::from_base64(&arm_latencies.histogram).ok()?;
            u64::try_from(latencies.quantile(0.95)?.as_nanos()).ok()
        }
        _ => Some(arm_latencies.p99_ns),
    }
}

/// Returns the samples of a program, which are known for a round, not for slices.
fn samples_of_command<'a>(
    lines: RecordLines<'a>,
    workload: &Workload,
    metric: Metric,
) -> Vec<Sample<'a>> {
    let rounds = lines.rounds.iter().filter(|round| round.workload == workload.name);
    let arms = rounds.flat_map(|round| round.arms.iter().map(|arm| (round.round, arm)));
    arms.map(|(round, arm)| {
        let slices = lines.slices.iter().filter(|slice| {
            slice.workload == workload.name && slice.round == round && slice.arm == arm.arm
        });
        let zero = Slice { transactions: arm.transactions, ..Slice::default() };
        let sum = slices.fold(zero, |sum, slice| Slice {
            duration_ns: sum.duration_ns.saturating_add(slice.duration_ns),
            server_cpu_ns: sum.server_cpu_ns.saturating_add(slice.server_cpu_ns),
            ..sum
        });
        let (numerator, denominator) = slice_amounts(&sum, metric);
        Sample { arm: &arm.arm, round, block: 0, numerator, denominator }
    })
    .collect()
}

/// Returns the sums of an arm in each round or repetition: numerator and denominator of the metric.
pub fn by_round(
    run: &Run,
    workload: &Workload,
    metric: Metric,
    arm: &str,
) -> BTreeMap<u32, (f64, f64)> {
    let mut rounds = BTreeMap::new();
    let samples = samples(run.into(), workload, metric);
    for sample in samples.iter().filter(|sample| sample.arm == arm) {
        let sum: &mut (f64, f64) = rounds.entry(sample.round).or_default();
        *sum = (sum.0 + sample.numerator, sum.1 + sample.denominator);
    }
    rounds
}
