//! A result as a table for a terminal, 80 columns wide.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use pgtoll_format::ByteSize;
use pgtoll_record::{
    Calibration, Comparison, Metric, OperationOf, Outliers, Receipt, RunResult, Verdict, Work,
    Workload,
};

use crate::expectations::sentence;
use crate::ladder::{Ladder, TITLE, ladders};
use crate::printable::printable;
use crate::summary::{key, metrics};

/// The table, the answers and what belongs to them. Plain text.
pub fn terminal_table(result: &RunResult) -> String {
    let mut text = heading(result);
    if let Some(receipt) = receipt(result) {
        text.push_str(&wrapped("", &receipt));
    }
    text.push('\n');
    text.push_str(&table(result));
    text.push_str(&rungs(result));
    text.push('\n');
    for answer in &result.answers {
        text.push_str(&wrapped("", answer));
    }
    for expected in &result.expected {
        text.push_str(&wrapped("", &sentence(expected)));
    }
    for note in &result.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text.push_str(&wrapped("", &legend(result)));
    let _ = writeln!(text, "again: {}", printable(&result.header.command.join(" ")));
    text
}

pub(crate) fn legend(result: &RunResult) -> String {
    let calibration: Vec<String> = result
        .header
        .calibration
        .iter()
        .map(|of| {
            let Calibration { metric, kappa, comparisons } = of;
            format!("{} {kappa:.2} ({comparisons} comparisons)", title(*metric))
        })
        .collect();
    if calibration.is_empty() {
        return format!("{LEGEND} {UNCALIBRATED}");
    }
    let factors = calibration.join(", ");
    format!("{LEGEND} Widened by what earlier runs here showed of twins: {factors}.")
}

const UNCALIBRATED: &str = "Uncalibrated: every complete run on this machine adds its twin to what \
    later runs widen their intervals by; there are not yet enough.";

const LEGEND: &str = "± is half of a 95 % interval of the difference from the baseline; ~ means that \
    the interval covers zero. Typical slice: Hodges-Lehmann of paired log-ratios, \
    mean of rounds; interval: from the spread between rounds, not narrower than the slices \
    inside them allow. Rows without ± are counted over equal work; CPU in \
    the kernel, disk reads and file writes are not exact.";

pub(crate) fn heading(result: &RunResult) -> String {
    let header = &result.header;
    let mut text = format!(
        "{}: PostgreSQL {}, pgbench scale {}, seed {}",
        printable(&header.experiment),
        header.server.version,
        header.design.scale,
        header.seed
    );
    if let Some(noise) = result.noise {
        let _ = write!(
            text,
            "\nnoise: steal {:.1} %, other programs {:.1} % of CPU",
            noise.steal * 100.0,
            noise.others * 100.0
        );
        if let Some(pressure) = noise.cpu_pressure {
            let _ = write!(text, ", {:.0} % of time under CPU pressure", pressure * 100.0);
        }
    }
    text.push('\n');
    text
}

/// How steady the slices' comparisons were: the worst of each kind.
pub(crate) fn receipt(result: &RunResult) -> Option<String> {
    let sliced = result.header.workloads.iter().filter(|of| of.slicing.is_some());
    let names: Vec<&str> = sliced.map(|of| of.name.as_str()).collect();
    let of_slices = result.comparisons.iter().filter(|of| {
        Metric::OF_SLICES.contains(&of.metric) && names.contains(&of.workload.as_str())
    });
    let receipts: Vec<Receipt> = of_slices.filter_map(|of| of.receipt).collect();
    let strongest =
        receipts.iter().map(|of| of.drift).max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
    let halves = receipts.iter().filter_map(|of| of.halves);
    let apart = halves.max_by(|a, b| a.estimate.ln().abs().total_cmp(&b.estimate.ln().abs()));
    let outliers = receipts.iter().filter_map(|of| of.outliers);
    let share = |of: Outliers| f64::from(of.arm.max(of.baseline)) / f64::from(of.slices.max(1));
    let most = outliers.map(share).max_by(f64::total_cmp);
    let mut text = format!("steadiness, at worst: drift {strongest:+.2} (rank correlation)");
    if let Some(apart) = apart {
        let _ = write!(
            text,
            ", second halves {} % [{}, {}] off the first",
            signed_percent(apart.estimate, 1),
            signed_percent(apart.lower, 1),
            signed_percent(apart.upper, 1)
        );
    }
    if let Some(most) = most {
        let _ =
            write!(text, ", {:.1} % of an arm's slices far off (all are counted)", most * 100.0);
    }
    Some(text)
}

/// One table, so that the columns of all workloads are aligned; each workload's rows stand below
/// its title. Arms that do not fit stand in a table of their own, beside the baseline again.
fn table(result: &RunResult) -> String {
    let head = std::iter::once(String::new()).chain(columns(result).map(|(_, title)| title));
    let head: Vec<String> = head.collect();
    let workloads = result.header.workloads.iter();
    let blocks = workloads.map(|of| (heading_of(result, of), rows_of(result, of)));
    let blocks: Vec<Block> = blocks.filter(|(_, rows)| !rows.is_empty()).collect();
    let tables = fitting(&head, &blocks).into_iter().map(|columns| {
        let only = |row: &Vec<String>| columns.iter().map(|column| row[*column].clone()).collect();
        let of_columns =
            blocks.iter().map(|(title, rows)| (title.clone(), rows.iter().map(only).collect()));
        aligned(vec![only(&head)], of_columns.collect())
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Each rung against the one below, with intervals; empty where no arm names another one.
fn rungs(result: &RunResult) -> String {
    let ladders = ladders(result, interval);
    if ladders.is_empty() {
        return String::new();
    }
    let blocks = ladders.into_iter().map(|Ladder { title, head, rows }| {
        let head = [vec![String::new()], head].concat();
        (title, [vec![head], rows].concat())
    });
    format!("\n{TITLE}\n{}", aligned(Vec::new(), blocks.collect()))
}

const WIDTH: usize = 80;

/// The columns of each table: the names', the baseline's, and as many more as fit.
fn fitting(head: &[String], blocks: &[Block]) -> Vec<Vec<usize>> {
    let rows = || blocks.iter().flat_map(|(_, rows)| rows);
    let width = |column: usize| {
        let cells = rows().map(|row| &row[column]).chain([&head[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + BETWEEN
    };
    let always: Vec<usize> = (0..head.len().min(2)).collect();
    let begin: usize = always.iter().map(|column| width(*column)).sum();
    let (mut tables, mut used) = (vec![always.clone()], begin);
    for column in always.len()..head.len() {
        let is_first = tables.last().is_none_or(|of| of.len() == always.len());
        if used + width(column) > WIDTH && !is_first {
            tables.push(always.clone());
            used = begin;
        }
        used += width(column);
        tables.last_mut().into_iter().for_each(|of| of.push(column));
    }
    tables
}

/// Spaces beside a column's cells.
const BETWEEN: usize = 2;

/// A title as wide as it is, and rows below it.
pub(crate) type Block = (String, Vec<Vec<String>>);

/// All rows in the same columns.
pub(crate) fn aligned(head: Vec<Vec<String>>, blocks: Vec<Block>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let mut titles: BTreeMap<usize, String> = BTreeMap::new();
    let cells = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
        let row = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
        rows.into_iter().map(row).collect()
    };
    let mut count = head.len();
    table.add_rows(cells(head));
    for (title, rows) in blocks {
        titles.insert(count, printable(&title).into_owned());
        count += rows.len();
        table.add_rows(cells(rows));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = String::new();
    for (row, line) in table.lines().enumerate() {
        if let Some(title) = titles.get(&row) {
            let _ = writeln!(text, "{title}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

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
    let rate = match &workload.work {
        Work::Script { rate: Some(rate), .. }
        | Work::Operation { of: Some(OperationOf::Script { rate: Some(rate), .. }), .. } => {
            format!(" at {rate}/s")
        }
        _ => String::new(),
    };
    let limit = workload.memory_limit_bytes;
    let limit = limit.map(|bytes| format!(", {} of memory a server", ByteSize(bytes)));
    format!("{}{rate}{}: {how}", workload.title, limit.unwrap_or_default())
}

/// The workload's rows; one that is unknown or would show zero in every arm is left out.
pub(crate) fn rows_of(result: &RunResult, workload: &Workload) -> Vec<Vec<String>> {
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
    for (metric, title) in COUNTED {
        let values: Vec<Option<f64>> =
            arms.iter().map(|arm| value(result, workload, arm, metric)).collect();
        if values.iter().any(|value| value.is_some_and(|value| value >= SHOWN)) {
            let shown = |value: Option<f64>| value.map_or(NOTHING_KNOWN.to_owned(), three_digits);
            let cells = values.into_iter().map(shown);
            rows.push(std::iter::once(title.to_owned()).chain(cells).collect());
        }
    }
    rows
}

pub(crate) const NOTHING_KNOWN: &str = "-";
/// Less is written as zero.
pub(crate) const SHOWN: f64 = 0.005;

/// Names of counted values, and how their rows are called.
pub(crate) const COUNTED: [(&str, &str); 23] = [
    ("cpu_system_share", "CPU in kernel %"),
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
    let mut all = result.comparisons.iter().filter(|of| of.workload == workload.name);
    let of = all.find(|of| of.metric == metric && of.arm == arm);
    of.map_or(NOTHING_KNOWN.to_owned(), difference)
}

pub(crate) fn difference(of: &Comparison) -> String {
    let half = (of.ratio.upper - of.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    match of.verdict {
        Verdict::NotResolved if half > 999.0 => "~ ±>999 %".to_owned(),
        Verdict::NotResolved | Verdict::NoCostAbove => format!("~ ±{half:.digits$} %"),
        Verdict::Costs | Verdict::Gains => {
            format!("{} % ±{half:.digits$}", signed_percent(of.ratio.estimate, digits))
        }
    }
}

/// The estimate with its bounds; `~` where zero lies between them.
pub(crate) fn interval(of: &Comparison) -> String {
    let half = (of.ratio.upper - of.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    let [estimate, lower, upper] = [of.ratio.estimate, of.ratio.lower, of.ratio.upper]
        .map(|ratio| signed_percent(ratio.min(1000.0), digits));
    let covers_zero = matches!(of.verdict, Verdict::NotResolved | Verdict::NoCostAbove);
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
    let mut all = result.values.iter().filter(|of| of.workload == workload.name);
    all.find(|of| of.arm == arm && of.metric == metric).map(|of| of.value)
}

/// A ratio as a signed percentage: 1.098 is `+9.8`.
pub(crate) fn signed_percent(ratio: f64, digits: usize) -> String {
    let text = format!("{:+.digits$}", (ratio - 1.0) * 100.0);
    // Not `-0.0`.
    if text.trim_start_matches(['+', '-']).chars().all(|c| c == '0' || c == '.') {
        return format!("{:.digits$}", 0.0);
    }
    text
}

pub(crate) fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The text in lines of at most 80 columns, the first behind `prefix`, each with a line feed. `text`
/// may be anybody's; `prefix` is printable.
pub(crate) fn wrapped(prefix: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = prefix.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace().map(printable) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > 80 {
            let _ = writeln!(lines, "{line}");
            line = " ".repeat(prefix.chars().count());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    let _ = writeln!(lines, "{line}");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(signed_percent(0.99999, 1), "0.0");
        assert_eq!(signed_percent(1.098, 1), "+9.8");
        assert_eq!(signed_percent(0.911, 1), "-8.9");
    }

    #[test]
    fn lines_are_wrapped_behind_their_prefix() {
        let text = wrapped("note: ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= 80));
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")));
    }
}
