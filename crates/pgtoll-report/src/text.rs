//! Tables and paragraphs of plain text, for terminals of 80 columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use crate::printable::printable;
use crate::style::{Style, Tone};

pub(crate) const WIDTH: usize = 80;
/// Spaces beside a column's cells.
pub(crate) const BETWEEN: usize = 2;

/// A title as wide as it is, and rows below it.
pub(crate) type Block = (String, Vec<Vec<String>>);

/// How a lab's record ended, a sentence after others; empty where `all` of it is done.
pub(crate) fn end_words(ended: Option<&str>, is_complete: bool, all: &str) -> String {
    match ended {
        Some(ended) => format!(" Ended early: {ended}."),
        None if !is_complete => format!(" It was killed before {all} done."),
        None => String::new(),
    }
}

/// All rows in the same columns, as wide as they have to be: the first to the left, the others to
/// the right.
pub(crate) fn aligned(head: Vec<Vec<String>>, blocks: Vec<Block>) -> String {
    painted(head, blocks, &|_, cell| cell.to_owned())
}

/// The same; `paint` gives a cell its colour, from the row's first cell and its own text.
pub(crate) fn painted(
    head: Vec<Vec<String>>,
    blocks: Vec<Block>,
    paint: &dyn Fn(&str, &str) -> String,
) -> String {
    let mut titles: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut rows = head;
    for (title, of_title) in blocks {
        titles.entry(rows.len()).or_default().push(printable(&title).into_owned());
        rows.extend(of_title);
    }
    for cell in rows.iter_mut().flatten() {
        *cell = printable(cell).into_owned();
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for title in titles.get(&number).into_iter().flatten() {
            let _ = writeln!(text, "{title}");
        }
        let _ = writeln!(text, "{}", line(row, &widths, paint).trim_end());
    }
    text
}

fn line(row: &[String], widths: &[usize], paint: &dyn Fn(&str, &str) -> String) -> String {
    let mut line = String::new();
    let first = row.first().map_or("", String::as_str);
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        let room = " ".repeat(width.saturating_sub(cell.width()));
        let (before, after) = if column == 0 { ("", room.as_str()) } else { (room.as_str(), "") };
        let cell = paint(first, cell);
        let _ = write!(line, " {before}{cell}{after} ");
    }
    line
}

/// The text in lines of at most 80 columns, the first behind `prefix`, each with a line feed. `text`
/// may be anybody's; `prefix` is printable.
pub(crate) fn wrapped(prefix: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = prefix.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace().map(printable) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
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

/// Seconds in three digits: `1.92 s`, `250 ms`.
pub(crate) fn seconds_text(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s.abs() < 0.001 => format!("{:.2} ms", s * 1e3),
        s if s.abs() < 0.00995 => format!("{:.1} ms", s * 1e3),
        s if s.abs() < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s.abs() < 9.995 => format!("{s:.2} s"),
        s if s.abs() < 99.95 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

/// The text in bold lines of at most 80 columns, behind `prefix`.
pub(crate) fn headline(prefix: &str, text: &str, style: Style) -> String {
    let lines = wrapped(prefix, text);
    let bold = lines.lines().map(|line| style.paint(Some(Tone::Headline), line) + "\n");
    bold.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["CPU", "1.5", "~ ±2 %"]), row(["a name", "10", "東京"])];
        let text = aligned(vec![row(["", "off", "on"])], vec![("a title".to_owned(), rows)]);
        assert_eq!(
            text,
            "         off      on\na title\n CPU     1.5  ~ ±2 %\n a name   10    東京\n"
        );
    }

    #[test]
    fn lines_are_wrapped_behind_their_prefix() {
        let text = wrapped("note: ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= 80));
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")));
    }
}
