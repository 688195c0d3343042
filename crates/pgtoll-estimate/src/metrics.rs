//! The metrics of a workload, and their names.

use std::collections::BTreeMap;

use pgtoll_record::{Metric, OperationOf, Run, Work, Workload};

use crate::samples::quantile_ns;

/// Returns the metrics of a workload; the first is the one of its answer.
pub fn metrics(workload: &Workload) -> Vec<Metric> {
    match &workload.work {
        Work::Operation { of: None, .. } => Metric::OF_OPERATIONS.to_vec(),
        Work::Operation { of: Some(operation), .. } => metrics_of_operation(operation),
        Work::Command { .. } => Metric::OF_SLICES.to_vec(),
        // Transactions come when they come, whatever the server: their number says nothing of it.
        Work::Script { rate: Some(_), .. } => {
            [&[Metric::CpuPerTransaction], &Metric::OF_ROUNDS[..]].concat()
        }
        Work::Script { .. } => [&Metric::OF_SLICES[..], &Metric::OF_ROUNDS].concat(),
    }
}

fn metrics_of_operation(operation: &OperationOf) -> Vec<Metric> {
    let latencies = [&Metric::OF_ROUNDS[..], &[Metric::LatencyStddev]].concat();
    match operation {
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

/// How many times as long as a quantile of latency a slice must be: one that is not much longer than
/// the slowest transactions cuts them off. Of the slowest in a hundred it has to hold a hundred.
pub(crate) fn slice_over_quantile(metric: Metric) -> Option<u64> {
    match metric {
        Metric::LatencyP90 => Some(10),
        Metric::LatencyP95 => Some(20),
        Metric::LatencyP99 => Some(100),
        _ => None,
    }
}

/// Whether slices are too short for this metric.
pub fn is_cut_off(run: &Run, workload: &Workload, metric: Metric) -> bool {
    let Some(slicing) = &workload.slicing else { return false };
    let Some(times) = slice_over_quantile(metric) else { return false };
    if has_equal_slices(run, workload) {
        return fewest_in_round(run, workload).is_some_and(|fewest| fewest < times * BEYOND);
    }
    let rounds = run.rounds.iter().filter(|round| round.workload == workload.name);
    let latencies = rounds.flat_map(|round| &round.latencies);
    let longest = latencies.filter_map(|latencies| quantile_ns(latencies, metric)).max();
    longest.is_some_and(|quantile| quantile.saturating_mul(times) > slicing.slice_ns)
}

/// Transactions beyond a quantile in a round, for it to say anything.
pub(crate) const BEYOND: u64 = 10;

/// The transactions of an arm in the round in which it did the fewest.
fn fewest_in_round(run: &Run, workload: &Workload) -> Option<u64> {
    let mut rounds: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    for slice in run.slices.iter().filter(|slice| slice.workload == workload.name) {
        let transactions = rounds.entry((slice.round, &slice.arm)).or_default();
        *transactions = transactions.saturating_add(slice.transactions);
    }
    rounds.into_values().min()
}

/// Whether slices end after equally many transactions, however long these take: none is cut off.
pub(crate) fn has_equal_slices(run: &Run, workload: &Workload) -> bool {
    let mut slices = run.slices.iter().filter(|slice| slice.workload == workload.name);
    let first = slices.next().map(|slice| slice.transactions);
    slices.all(|slice| Some(slice.transactions) == first)
}

/// The workload's server CPU: for a transaction, or for an operation where it has none.
pub(crate) fn cpu_metric(workload: &Workload) -> Metric {
    let metrics = metrics(workload).into_iter();
    let mut cpu = metrics
        .filter(|metric| matches!(metric, Metric::CpuPerTransaction | Metric::CpuPerOperation));
    cpu.next().unwrap_or(Metric::CpuPerTransaction)
}

/// A metric's name among the values, its unit there, and what a sample's ratio is multiplied by.
pub fn key(metric: Metric) -> (&'static str, &'static str, f64) {
    match metric {
        Metric::CpuPerTransaction => ("cpu_per_transaction", "us", 1e-3),
        Metric::TransactionsPerSecond => ("transactions_per_second", "1/s", 1.0),
        Metric::LatencyMedian => ("latency_p50", "us", 1e-3),
        Metric::LatencyP90 => ("latency_p90", "us", 1e-3),
        Metric::LatencyP95 => ("latency_p95", "us", 1e-3),
        Metric::LatencyP99 => ("latency_p99", "us", 1e-3),
        Metric::LatencyStddev => ("latency_stddev", "us", 1e-3),
        Metric::CpuPerOperation => ("cpu_per_operation", "ms", 1e-6),
        Metric::OperationTime => ("operation_time", "ms", 1e3),
        Metric::ClientCpuPerOperation => ("client_cpu_per_operation", "ms", 1e-6),
    }
}

/// A metric in a sentence.
pub fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU per transaction",
        Metric::TransactionsPerSecond => "transactions per second",
        Metric::LatencyMedian => "median latency",
        Metric::LatencyP90 => "90th percentile of latency",
        Metric::LatencyP95 => "95th percentile of latency",
        Metric::LatencyP99 => "99th percentile of latency",
        Metric::LatencyStddev => "standard deviation of latency",
        Metric::CpuPerOperation => "server CPU",
        Metric::OperationTime => "time",
        Metric::ClientCpuPerOperation => "client CPU",
    }
}

/// More of it than the baseline has, on the side of a cost.
pub(crate) fn more(metric: Metric) -> &'static str {
    match metric {
        Metric::TransactionsPerSecond => "fewer",
        _ => "more",
    }
}

/// Returns the divisor of a counter with this name, in words.
pub fn divisor_words(metric: &str) -> &'static str {
    match metric.rsplit('_').next() {
        Some("transaction") => "a transaction",
        Some("page") => "a page",
        _ => "an operation",
    }
}
