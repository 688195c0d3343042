//! A result as a table for a terminal, 80 columns wide.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use pgtoll_record::{Calibration, Comparison, Metric, RunResult, Verdict, Work, Workload};

use crate::summary::{key, metrics};

/// The table, the answers and what belongs to them. Plain text.
pub fn terminal_table(result: &RunResult) -> String {
    let mut text = heading(result);
    text.push('\n');
    text.push_str(&table(result));
    text.push('\n');
    for answer in &result.answers {
        text.push_str(&wrapped("", answer));
    }
    for note in &result.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text.push_str(&wrapped("", &legend(result)));
    let _ = writeln!(text, "again: {}", result.header.command.join(" "));
    text
}

fn legend(result: &RunResult) -> String {
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
    mean of rounds; interval: two-level bootstrap, not narrower than the spread between rounds \
    allows. Rows without ± are counted over equal work.";

fn heading(result: &RunResult) -> String {
    let header = &result.header;
    let mut text = format!(
        "{}: PostgreSQL {}, pgbench scale {}, seed {}",
        header.experiment, header.server.version, header.design.scale, header.seed
    );
    if let Some(noise) = result.noise {
        let _ = write!(
            text,
            "\nnoise: steal {:.1} %, other programs {:.1} % of CPU",
            noise.steal * 100.0,
            noise.others * 100.0
        );
    }
    text.push('\n');
    text
}

/// One table, so that the columns of all workloads are aligned; each workload's rows stand below
/// its title.
fn table(result: &RunResult) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(std::iter::once(String::new()).chain(columns(result).map(|(_, title)| title)));
    let mut titles = BTreeMap::new();
    let mut rows = 0;
    for workload in &result.header.workloads {
        let of_workload = rows_of(result, workload);
        if !of_workload.is_empty() {
            titles.insert(rows, heading_of(result, workload));
        }
        rows += of_workload.len();
        table.add_rows(of_workload);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = String::new();
    for (index, line) in table.lines().enumerate() {
        if let Some(title) = index.checked_sub(1).and_then(|row| titles.get(&row)) {
            let _ = writeln!(text, "{title}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn heading_of(result: &RunResult, workload: &Workload) -> String {
    let design = &result.header.design;
    let how = match &workload.work {
        Work::Operation { .. } => format!("{} times", design.repetitions * 2),
        Work::Script { .. } if !workload.timed => "not timed".to_owned(),
        Work::Script { .. } => {
            let rounds = result.rounds.get(&workload.name).copied().unwrap_or(0);
            format!("{rounds} rounds")
        }
    };
    format!("{}: {how}", workload.title)
}

/// The workload's rows; one that is zero or unknown in every arm is left out.
fn rows_of(result: &RunResult, workload: &Workload) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let arms: Vec<&str> = columns(result).map(|(arm, _)| arm).collect();
    for metric in metrics(workload) {
        let cells: Vec<String> =
            arms.iter().map(|arm| cell(result, workload, metric, arm)).collect();
        if cells.iter().any(|cell| cell != NOTHING_KNOWN) {
            rows.push(std::iter::once(title(metric).to_owned()).chain(cells).collect());
        }
    }
    for (metric, title) in COUNTED {
        let values: Vec<Option<f64>> =
            arms.iter().map(|arm| value(result, workload, arm, metric)).collect();
        if values.iter().any(|value| value.is_some_and(|value| value > 0.0)) {
            let shown = |value: Option<f64>| value.map_or(NOTHING_KNOWN.to_owned(), three_digits);
            let cells = values.into_iter().map(shown);
            rows.push(std::iter::once(title.to_owned()).chain(cells).collect());
        }
    }
    rows
}

const NOTHING_KNOWN: &str = "-";

/// Names of counted values, and how their rows are called.
const COUNTED: [(&str, &str); 10] = [
    ("wal_per_transaction", "WAL bytes/tx"),
    ("wal_per_page", "WAL bytes/page"),
    ("wal_images_per_transaction", "WAL images/tx"),
    ("wal_images_per_page", "WAL images/page"),
    ("hint_images_per_transaction", "hint images/tx"),
    ("hint_images_per_page", "hint images/page"),
    ("blocks_read_per_transaction", "blocks read/tx"),
    ("blocks_read_per_page", "blocks read/page"),
    ("blocks_written_per_transaction", "blocks written/tx"),
    ("blocks_written_per_page", "blocks written/page"),
];

/// Arms with their titles, the baseline first, null arms last.
fn columns(result: &RunResult) -> impl Iterator<Item = (&str, String)> {
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

fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::CpuPerTransaction => "server CPU us/tx",
        Metric::TransactionsPerSecond => "transactions/s",
        Metric::CpuPerOperation => "server CPU ms",
        Metric::OperationTime => "time ms",
    }
}

fn cell(result: &RunResult, workload: &Workload, metric: Metric, arm: &str) -> String {
    if arm == result.header.baseline {
        let (name, _, _) = key(metric);
        let value = value(result, workload, arm, name);
        return value.map_or(NOTHING_KNOWN.to_owned(), three_digits);
    }
    let mut all = result.comparisons.iter().filter(|of| of.workload == workload.name);
    let of = all.find(|of| of.metric == metric && of.arm == arm);
    of.map_or(NOTHING_KNOWN.to_owned(), difference)
}

fn difference(of: &Comparison) -> String {
    let half = (of.ratio.upper - of.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    match of.verdict {
        Verdict::NotResolved | Verdict::NoCostAbove => format!("~ ±{half:.digits$} %"),
        Verdict::Costs | Verdict::Gains => {
            format!("{} % ±{half:.digits$}", signed_percent(of.ratio.estimate, digits))
        }
    }
}

fn value(result: &RunResult, workload: &Workload, arm: &str, metric: &str) -> Option<f64> {
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

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The text in lines of at most 80 columns, the first behind `prefix`, each with a line feed.
fn wrapped(prefix: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = prefix.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > 80 {
            let _ = writeln!(lines, "{line}");
            line = " ".repeat(prefix.len());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
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
