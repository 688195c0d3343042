//! A result's table: its columns, its rows, and how a figure is written in a cell.

use pgtoll_estimate::{
    LATE_WAL, key, metrics, signed_percent, thousands, three_digits, transactions_words,
};
use pgtoll_format::ByteSize;
use pgtoll_record::{
    Comparison, Metric, OperationOf, RunResult, TransactionRange, Verdict, Work, Workload,
};

use crate::text::Block;

pub(crate) fn heading_of(result: &RunResult, workload: &Workload) -> String {
    let design = &result.header.design;
    let how = match &workload.work {
        _ if !workload.timed => "not timed".to_owned(),
        Work::Operation { .. } => format!("{} times", u64::from(design.repetitions) * 2),
        Work::Script { .. } | Work::Command { .. } => match result.rounds.get(&workload.name) {
            None if result.complete => "not timed".to_owned(),
            rounds => format!("{} rounds", rounds.copied().unwrap_or(0)),
        },
    };
    let clients = match &workload.work {
        Work::Script { clients, .. } if *clients > 1 => format!(", {clients} clients"),
        _ => String::new(),
    };
    let rate = match &workload.work {
        Work::Script { rate: Some(rate), .. }
        | Work::Operation { of: Some(OperationOf::Script { rate: Some(rate), .. }), .. } => {
            format!(" at {rate}/s")
        }
        _ => String::new(),
    };
    let limit = workload.memory_limit_bytes;
    let limit = limit.map(|bytes| format!(", {} of memory a server", ByteSize(bytes)));
    format!("{}{clients}{rate}{}: {how}", workload.title, limit.unwrap_or_default())
}

/// The workload's rows below its title, and what was counted below what it is of; empty where
/// nothing is known.
pub(crate) fn blocks_of(result: &RunResult, workload: &Workload) -> Vec<Block> {
    let timed = timed_rows(result, workload);
    let counted = counted_rows(result, workload);
    let title = heading_of(result, workload);
    let mut blocks = match counted_of(workload) {
        _ if timed.is_empty() && counted.is_empty() => Vec::new(),
        Some(of_what) if !counted.is_empty() => vec![(title, timed), (of_what, counted)],
        _ => vec![(title, [timed, counted].concat())],
    };
    blocks.extend(late_wal(result, workload));
    blocks
}

/// WAL long after a checkpoint, below the transactions that it is of.
fn late_wal(result: &RunResult, workload: &Workload) -> Option<Block> {
    let values = result.values.iter();
    let values = values.filter(|value| value.workload == workload.name && value.metric == LATE_WAL);
    let ranges: Vec<TransactionRange> = values.filter_map(|value| value.of_transactions).collect();
    let range = TransactionRange {
        from: ranges.iter().map(|range| range.from).min()?,
        to: ranges.iter().map(|range| range.to).max()?,
    };
    let rows = value_rows(result, workload, &[(LATE_WAL, "WAL bytes/tx")]);
    Some((format!(" of {}:", transactions_words(range)), rows))
}

/// Returns the subject of a workload's counters, where it is less than what is timed: after a checkpoint
/// a transaction makes more WAL than later.
fn counted_of(workload: &Workload) -> Option<String> {
    let Work::Script { counted, clients, .. } = &workload.work else { return None };
    let by = if *clients > 1 { ", by one client" } else { "" };
    (*counted > 0).then(|| {
        format!(" of the first {} transactions after a checkpoint{by}:", thousands(*counted))
    })
}

/// Returns the rows of timed metrics and their shares. A row of zeros is left out.
fn timed_rows(result: &RunResult, workload: &Workload) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let arms: Vec<&str> = columns(result).map(|(arm, _)| arm).collect();
    // What was done once says nothing of times.
    for metric in metrics(workload).into_iter().filter(|_| workload.timed) {
        let cells: Vec<String> =
            arms.iter().map(|arm| cell(result, workload, metric, arm)).collect();
        if cells.iter().any(|cell| cell != NOTHING_KNOWN) {
            rows.push(std::iter::once(title(metric).to_owned()).chain(cells).collect());
        }
    }
    rows.extend(value_rows(result, workload, &counters(|metric| is_of_rounds(workload, metric))));
    rows
}

fn counted_rows(result: &RunResult, workload: &Workload) -> Vec<Vec<String>> {
    value_rows(result, workload, &counters(|metric| !is_of_rounds(workload, metric)))
}

fn counters(is_shown: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    COUNTED.into_iter().filter(|(metric, _)| is_shown(metric)).collect()
}

/// Values that come from the rounds and not from the counted pass.
fn is_of_rounds(workload: &Workload, metric: &str) -> bool {
    let is_limited = workload.memory_limit_bytes.is_some();
    ["cpu_system_share", "io_workers_cpu_share"].contains(&metric)
        || is_limited && metric == "disk_read_per_transaction"
}

/// Rows of these metrics, by their names and titles.
fn value_rows(
    result: &RunResult,
    workload: &Workload,
    metrics: &[(&str, &str)],
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let arms: Vec<&str> = columns(result).map(|(arm, _)| arm).collect();
    for (metric, title) in metrics {
        let values: Vec<Option<f64>> =
            arms.iter().map(|arm| value(result, workload, arm, metric)).collect();
        if values.iter().any(|value| value.is_some_and(|value| value >= SHOWN)) {
            let shown = |value: Option<f64>| value.map_or(NOTHING_KNOWN.to_owned(), three_digits);
            let cells = values.into_iter().map(shown);
            rows.push(std::iter::once((*title).to_owned()).chain(cells).collect());
        }
    }
    rows
}

pub(crate) const NOTHING_KNOWN: &str = "-";
/// Less is written as zero.
pub(crate) const SHOWN: f64 = 0.005;

/// Names of counted values, and how their rows are called.
pub(crate) const COUNTED: [(&str, &str); 24] = [
    ("cpu_system_share", "CPU in kernel %"),
    ("io_workers_cpu_share", "I/O workers CPU %"),
    ("wal_per_transaction", "WAL bytes/tx"),
    ("predicted_wal_per_transaction", "predicted WAL/tx"),
    ("wal_per_page", "WAL bytes/page"),
    ("wal_per_operation", "WAL bytes"),
    ("wal_images_per_transaction", "WAL images/tx"),
    ("wal_images_per_page", "WAL images/page"),
    ("wal_images_per_operation", "WAL images"),
    ("hint_images_per_transaction", "hint images/tx"),
    ("hint_images_per_page", "hint images/page"),
    ("hint_images_per_operation", "hint images"),
    ("blocks_read_per_transaction", "blocks read/tx"),
    ("blocks_read_per_page", "blocks read/page"),
    ("blocks_read_per_operation", "blocks read"),
    ("blocks_written_per_transaction", "blocks written/tx"),
    ("blocks_written_per_page", "blocks written/page"),
    ("blocks_written_per_operation", "blocks written"),
    ("disk_read_per_transaction", "disk reads B/tx"),
    ("disk_read_per_page", "disk reads B/page"),
    ("disk_read_per_operation", "disk reads B"),
    ("file_writes_per_transaction", "file writes B/tx"),
    ("file_writes_per_page", "file writes B/page"),
    ("file_writes_per_operation", "file writes B"),
];

/// Arms with their titles, the baseline first, null arms last.
pub(crate) fn columns(result: &RunResult) -> impl Iterator<Item = (&str, String)> {
    let header = &result.header;
    let of_kind = move |wanted: u8| {
        header.arms.iter().filter(move |arm| {
            let kind = match (&arm.twin_of, arm.name == header.baseline) {
                (_, true) => 0,
                (None, false) => 1,
                (Some(_), false) => 2,
            };
            kind == wanted
        })
    };
    of_kind(0).chain(of_kind(1)).chain(of_kind(2)).map(|arm| {
        let null = if arm.twin_of.is_some() { " (null)" } else { "" };
        (arm.name.as_str(), format!("{}{null}", arm.name))
    })
}

/// A metric's name in the table.
pub fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU us/tx",
        Metric::TransactionsPerSecond => "transactions/s",
        Metric::LatencyMedian => "latency p50 us",
        Metric::LatencyP90 => "latency p90 us",
        Metric::LatencyP95 => "latency p95 us",
        Metric::LatencyP99 => "latency p99 us",
        Metric::LatencyStddev => "latency stddev us",
        Metric::CpuPerOperation => "server CPU ms",
        Metric::OperationTime => "time ms",
        Metric::ClientCpuPerOperation => "client CPU ms",
    }
}

pub(crate) fn cell(result: &RunResult, workload: &Workload, metric: Metric, arm: &str) -> String {
    if arm == result.header.baseline {
        let (name, _, _) = key(metric);
        let value = value(result, workload, arm, name);
        return value.map_or(NOTHING_KNOWN.to_owned(), three_digits);
    }
    let mut all =
        result.comparisons.iter().filter(|comparison| comparison.workload == workload.name);
    let comparison = all.find(|comparison| comparison.metric == metric && comparison.arm == arm);
    comparison.map_or(NOTHING_KNOWN.to_owned(), difference)
}

pub(crate) fn difference(comparison: &Comparison) -> String {
    let half = (comparison.ratio.upper - comparison.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    match comparison.verdict {
        Verdict::NotResolved if half > 999.0 => "~ ±>999 %".to_owned(),
        Verdict::NotResolved | Verdict::NoCostAbove => format!("~ ±{half:.digits$} %"),
        Verdict::Costs | Verdict::Gains => {
            format!("{} % ±{half:.digits$}", signed_percent(comparison.ratio.estimate, digits))
        }
    }
}

/// The estimate with its bounds; `~` where zero lies between them.
pub(crate) fn interval(comparison: &Comparison) -> String {
    let half = (comparison.ratio.upper - comparison.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    let [estimate, lower, upper] =
        [comparison.ratio.estimate, comparison.ratio.lower, comparison.ratio.upper]
            .map(|ratio| signed_percent(ratio.min(1000.0), digits));
    let covers_zero = matches!(comparison.verdict, Verdict::NotResolved | Verdict::NoCostAbove);
    if covers_zero {
        return format!("~ [{lower}, {upper}] %");
    }
    format!("{estimate} % [{lower}, {upper}]")
}

pub(crate) fn value(
    result: &RunResult,
    workload: &Workload,
    arm: &str,
    metric: &str,
) -> Option<f64> {
    let mut all = result.values.iter().filter(|value| value.workload == workload.name);
    all.find(|value| value.arm == arm && value.metric == metric).map(|value| value.value)
}
