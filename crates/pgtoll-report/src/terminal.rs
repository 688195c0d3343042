//! A result as an answer and a table for a terminal, 80 columns wide.

use std::fmt::Write as _;

use pgtoll_estimate::signed_percent;
use pgtoll_record::{Calibration, Metric, Outliers, RunResult, Steadiness, Verdict};

use crate::answer::{advice, arms, place};
use crate::cells::{blocks_of, columns, interval, title};
use crate::circumstances::{noise, servers, subject};
use crate::expectations::claims_text;
use crate::ladder::{Ladder, TITLE, ladders};
use crate::printable::printable;
use crate::style::{Style, Tone};
use crate::text::{BETWEEN, Block, WIDTH, aligned, headline, painted, wrapped};

/// The answer, then the table and what belongs to it.
pub fn terminal_table(result: &RunResult, style: Style) -> String {
    let header = &result.header;
    let mut text = wrapped("", &format!("{}. {}", subject(result), header.question));
    text.push_str(&answer(result, style));
    text.push('\n');
    let conditions = [Some(servers(result)), noise(result), steadiness(result)];
    for line in conditions.into_iter().flatten() {
        text.push_str(&wrapped("", &line));
    }
    text.push('\n');
    text.push_str(&table(result, style));
    text.push_str(&rungs(result));
    text.push('\n');
    if !result.expected.is_empty() {
        text.push_str(&claims_text(result.expected.iter().map(|expected| (None, expected))));
        text.push('\n');
    }
    for note in &result.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text.push_str(&wrapped("", &legend(result)));
    let _ = writeln!(text, "again: {}", printable(&header.command.join(" ")));
    text
}

pub(crate) fn legend(result: &RunResult) -> String {
    let calibration: Vec<String> = result
        .header
        .calibration
        .iter()
        .map(|calibration| {
            let Calibration { metric, widening, comparisons } = calibration;
            format!("{} {widening:.2} ({comparisons} comparisons)", title(*metric))
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

/// The sentence, a line for each arm and workload, what decides and what would make it surer.
fn answer(result: &RunResult, style: Style) -> String {
    let Some(answer) = &result.answer else { return String::new() };
    let mut text = "\n".to_owned();
    let sentence = [Some(answer.headline.clone()), advice(answer)];
    let sentence = sentence.into_iter().flatten().collect::<Vec<_>>().join(" ");
    text.push_str(&headline("", &sentence, style));
    let widest = answer.lines.iter().map(|line| line.figure.chars().count()).max().unwrap_or(0);
    let widest = widest.min(FIGURE);
    for (title, lines) in arms(result, answer) {
        let _ = writeln!(text, "\n{}", printable(&title));
        for line in lines {
            let figure = printable(&line.figure);
            let prefix = format!(" {figure:widest$}  ");
            let output = wrapped(&prefix, &place(answer, line));
            let tone = line.verdict.map(|verdict| match verdict {
                Verdict::Costs => Tone::Cost,
                Verdict::Gains => Tone::Gain,
                Verdict::NoCostAbove | Verdict::NotResolved => Tone::NoDifference,
            });
            text.push_str(&output.replacen(&*figure, &style.paint(tone, &figure), 1));
        }
    }
    let reasons = [
        ("decides: ", answer.decides.as_ref()),
        ("rule: ", answer.advice.as_ref().map(|advice| &advice.rule)),
        ("surer: ", answer.surer.as_ref()),
    ];
    text.push('\n');
    for (name, reason) in reasons {
        text.extend(reason.map(|reason| wrapped(name, reason)));
    }
    text
}

/// The width of figures in the answer, at most.
const FIGURE: usize = 42;

/// How steady the slices' comparisons were: the worst of each kind.
pub(crate) fn steadiness(result: &RunResult) -> Option<String> {
    let sliced = result.header.workloads.iter().filter(|workload| workload.slicing.is_some());
    let names: Vec<&str> = sliced.map(|sliced| sliced.name.as_str()).collect();
    let of_slices = result.comparisons.iter().filter(|comparison| {
        Metric::OF_SLICES.contains(&comparison.metric)
            && names.contains(&comparison.workload.as_str())
    });
    let all: Vec<Steadiness> = of_slices.filter_map(|item| item.steadiness).collect();
    let strongest =
        all.iter().map(|steadiness| steadiness.drift).max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
    let halves = all.iter().filter_map(|steadiness| steadiness.halves);
    let apart = halves.max_by(|a, b| a.estimate.ln().abs().total_cmp(&b.estimate.ln().abs()));
    let outliers = all.iter().filter_map(|steadiness| steadiness.outliers);
    let share = |outliers: Outliers| {
        f64::from(outliers.arm.max(outliers.baseline)) / f64::from(outliers.slices.max(1))
    };
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
fn table(result: &RunResult, style: Style) -> String {
    let head = std::iter::once(String::new()).chain(columns(result).map(|(_, title)| title));
    let head: Vec<String> = head.collect();
    let workloads = result.header.workloads.iter();
    let blocks: Vec<Block> = workloads.flat_map(|workload| blocks_of(result, workload)).collect();
    let tables = fitting(&head, &blocks).into_iter().map(|columns| {
        let only = |row: &Vec<String>| columns.iter().map(|column| row[*column].clone()).collect();
        let of_columns =
            blocks.iter().map(|(title, rows)| (title.clone(), rows.iter().map(only).collect()));
        let paint = |first: &str, cell: &str| style.paint(tone(first, cell), cell);
        painted(vec![only(&head)], of_columns.collect(), &paint)
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Returns the tone of a cell in the row of this title: a cost or a gain beyond chance.
pub(crate) fn tone(title: &str, cell: &str) -> Option<Tone> {
    let more_is_worse = !title.starts_with(crate::cells::title(Metric::TransactionsPerSecond));
    match cell.chars().next() {
        Some('~') => Some(Tone::NoDifference),
        Some(sign @ ('+' | '-')) if cell.contains('%') => {
            Some(if (sign == '+') == more_is_worse { Tone::Cost } else { Tone::Gain })
        }
        _ => None,
    }
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

/// The columns of each table: the names', the baseline's, and as many more as fit.
fn fitting(head: &[String], blocks: &[Block]) -> Vec<Vec<usize>> {
    let rows = || blocks.iter().flat_map(|(_, rows)| rows);
    let width = |column: usize| {
        let cells = rows().map(|row| &row[column]).chain([&head[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + BETWEEN
    };
    let always: Vec<usize> = (0..head.len().min(2)).collect();
    let begin: usize = always.iter().map(|column| width(*column)).sum();
    let mut tables = vec![always.clone()];
    let mut used = begin;
    for column in always.len()..head.len() {
        let is_first = tables.last().is_none_or(|table| table.len() == always.len());
        if used + width(column) > WIDTH && !is_first {
            tables.push(always.clone());
            used = begin;
        }
        used += width(column);
        tables.last_mut().into_iter().for_each(|table| table.push(column));
    }
    tables
}
