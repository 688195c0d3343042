//! A document as text of 80 columns.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::{Block, Document, DocumentStep, Level, Section, Table, is_group_title};
use crate::printable::printable;
use crate::text::{aligned, wrapped};

/// The answer first, then findings, what was looked at, and the sections. `full` adds the evidence.
pub(crate) fn document_text(document: &Document, full: bool) -> String {
    let mut text = String::new();
    for sentence in &document.answer {
        text.push_str(&wrapped("", sentence));
    }
    for finding in &document.findings {
        text.push_str(&wrapped("finding: ", finding));
    }
    if !document.subject.is_empty() {
        push_gap(&mut text);
        text.push_str(&wrapped("", &document.subject));
    }
    let (shown, hidden): (Vec<&Section>, Vec<&Section>) =
        document.sections.iter().partition(|section| full || section.level == Level::Detail);
    for section in shown {
        push_section(&mut text, section);
    }
    if !document.notes.is_empty() {
        push_gap(&mut text);
    }
    for note in &document.notes {
        text.push_str(&wrapped("note: ", note));
    }
    push_hidden(&mut text, &hidden);
    text
}

/// The titles of sections that are left out.
fn push_hidden(text: &mut String, hidden: &[&Section]) {
    let has_text = |section: &&&Section| section.blocks.iter().any(is_text);
    let titles: Vec<&str> =
        hidden.iter().filter(has_text).map(|section| section.title.as_str()).collect();
    let (named, others) = titles.split_at(titles.len().min(TITLES));
    if named.is_empty() {
        return;
    }
    let others = if others.is_empty() { String::new() } else { format!("; {} more", others.len()) };
    push_gap(text);
    text.push_str(&wrapped("", &format!("More with --full: {}{others}", named.join("; "))));
}

/// Titles that are named.
const TITLES: usize = 4;

/// Whether a terminal shows it.
fn is_text(block: &Block) -> bool {
    !matches!(block, Block::Picture(_) | Block::Folded { .. })
}

fn push_gap(text: &mut String) {
    if !text.is_empty() {
        text.push('\n');
    }
}

fn push_section(text: &mut String, section: &Section) {
    let mut blocks = section.blocks.iter().filter(|block| is_text(block)).peekable();
    if blocks.peek().is_none() {
        return;
    }
    push_gap(text);
    if !section.title.is_empty() {
        text.push_str(&wrapped("", &section.title));
    }
    blocks.for_each(|block| push_block(text, block));
}

fn push_block(text: &mut String, block: &Block) {
    match block {
        Block::Paragraph(words) => text.push_str(&wrapped("", words)),
        Block::List(items) => {
            for item in items {
                text.push_str(&wrapped("  - ", item));
            }
        }
        Block::Table(table) => text.push_str(&table_text(table)),
        Block::Facts(facts) => {
            let width = facts.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
            for (name, value) in facts {
                let name = printable(name);
                let room = " ".repeat(width.saturating_sub(name.width()));
                text.push_str(&wrapped(&format!("  {name}{room}  "), value));
            }
        }
        Block::Steps(steps) => text.push_str(&steps_text(steps)),
        Block::Code(lines) | Block::Composed { text: lines, .. } => {
            for line in lines {
                let _ = writeln!(text, "{}", printable(line));
            }
        }
        Block::Folded { .. } | Block::Picture(_) => {}
    }
}

fn steps_text(steps: &[DocumentStep]) -> String {
    let mut text = String::new();
    for (number, step) in (1..).zip(steps) {
        let label = if number == 1 { "to do:" } else { "" };
        let number = if steps.len() > 1 { format!("{number}. ") } else { String::new() };
        let end = if step.command.is_some() { ":" } else { "" };
        text.push_str(&wrapped(&format!("  {label:<6} {number}"), &format!("{}{end}", step.what)));
        for line in step.command.iter().flat_map(|command| command.lines()) {
            let _ = writeln!(text, "{:12}{}", "", printable(line));
        }
    }
    text
}

/// The columns before the last as in any table, and the last wrapped beside them.
fn prose_table_text(table: &Table) -> String {
    let split = |row: &[String]| match row {
        [cells @ .., prose] if row.len() == table.head.len() => (cells.to_vec(), prose.clone()),
        cells => (cells.to_vec(), String::new()),
    };
    let (cells, prose): (Vec<Vec<String>>, Vec<String>) =
        std::iter::once(&table.head).chain(&table.rows).map(|row| split(row)).unzip();
    let columns = aligned(cells, Vec::new());
    let width = columns.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap_or(0);
    let line = |(cells, prose): (&str, &String)| {
        let room = " ".repeat(width.saturating_sub(cells.width()));
        let line = wrapped(&format!("{cells}{room}  "), prose);
        line.trim_end().to_owned() + "\n"
    };
    columns.lines().zip(&prose).map(line).collect()
}

fn table_text(table: &Table) -> String {
    if table.ends_in_prose {
        return prose_table_text(table);
    }
    let mut head = vec![table.head.clone()];
    let mut groups: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for row in &table.rows {
        match groups.last_mut() {
            _ if is_group_title(row, table) => groups.push((row[0].clone(), Vec::new())),
            Some((_, rows)) => rows.push(row.clone()),
            None => head.push(row.clone()),
        }
    }
    aligned(head, groups)
}
