//! A result as a table for a terminal, 80 columns wide.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use pgtoll_format::TimeSpan;
use pgtoll_record::{Comparison, Metric, RunResult, Verdict};

/// The table, the answer and what belongs to it. Plain text.
pub fn terminal_table(result: &RunResult) -> String {
    let mut text = heading(result);
    text.push('\n');
    for line in table(result).lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push('\n');
    text.push_str(&wrapped("", &result.answer));
    for note in &result.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text.push_str(&wrapped("", LEGEND));
    let _ = writeln!(text, "again: {}", result.header.command.join(" "));
    text
}

const LEGEND: &str = "± is half of a 95 % interval of the difference from the baseline; ~ means that \
    the interval covers zero. Typical slice: Hodges-Lehmann of paired log-ratios, \
    mean of rounds; interval: two-level bootstrap, not narrower than the spread between rounds \
    allows. Uncalibrated: the intervals were not checked against this machine's own A/A runs.";

fn heading(result: &RunResult) -> String {
    let header = &result.header;
    let design = &header.design;
    let slice = TimeSpan(std::time::Duration::from_nanos(design.slice_ns));
    let mut text = format!(
        "{}: PostgreSQL {}, {}\nscale: {}, clients: 1, rounds: {} of {}, slices a round: {} of \
         {slice}, seed: {}",
        header.experiment,
        header.server.version,
        header.workload.title,
        header.workload.scale,
        result.rounds,
        design.rounds,
        design.blocks_per_round * u32::try_from(header.arms.len()).unwrap_or(u32::MAX),
        header.seed
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

fn table(result: &RunResult) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(std::iter::once(String::new()).chain(columns(result).map(|(_, title)| title)));
    for metric in Metric::ALL {
        let cells = columns(result).map(|(arm, _)| cell(result, metric, arm));
        table.add_row(std::iter::once(title(metric).to_owned()).chain(cells));
    }
    for (metric, title) in
        [("blocks_read_per_transaction", "blocks read/tx"), ("wal_per_transaction", "WAL bytes/tx")]
    {
        let cells = columns(result).map(|(arm, _)| {
            value(result, arm, metric).map_or_else(|| "-".to_owned(), three_digits)
        });
        table.add_row(std::iter::once(title.to_owned()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

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
    }
}

fn cell(result: &RunResult, metric: Metric, arm: &str) -> String {
    if arm == result.header.baseline {
        let key = match metric {
            Metric::CpuPerTransaction => "cpu_per_transaction",
            Metric::TransactionsPerSecond => "transactions_per_second",
        };
        return value(result, arm, key).map_or_else(|| "-".to_owned(), three_digits);
    }
    let of = result.comparisons.iter().find(|of| of.metric == metric && of.arm == arm);
    of.map_or_else(|| "-".to_owned(), difference)
}

fn difference(of: &Comparison) -> String {
    let half = (of.ratio.upper - of.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    match of.verdict {
        Verdict::NotResolved => format!("~ ±{half:.digits$} %"),
        Verdict::Costs | Verdict::Gains => {
            format!("{} % ±{half:.digits$}", signed_percent(of.ratio.estimate, digits))
        }
    }
}

fn value(result: &RunResult, arm: &str, metric: &str) -> Option<f64> {
    result.values.iter().find(|of| of.arm == arm && of.metric == metric).map(|of| of.value)
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
