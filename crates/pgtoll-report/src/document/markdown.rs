//! A document in GitHub's Markdown.

use std::fmt::Write as _;

use super::{Block, Document, DocumentStep, Section, Table, is_group_title};
use crate::markdown::{code_in, escaped};
use crate::printable::printable;

/// The whole document; pictures are left out.
pub(crate) fn document_markdown(document: &Document) -> String {
    let mut text = format!("## {}\n\n", escaped(document.question));
    for sentence in &document.answer {
        let _ = writeln!(text, "**{}**\n", escaped(sentence));
    }
    push_list(&mut text, document.findings.iter().map(|finding| format!("Finding: {finding}")));
    if !document.subject.is_empty() {
        let _ = writeln!(text, "{}\n", escaped(&document.subject));
    }
    document.filled_sections().for_each(|section| push_section(&mut text, section));
    push_list(&mut text, document.notes.iter().map(|note| format!("Note: {note}")));
    if !document.again.is_empty() {
        text.push_str("To make this again:\n\n");
        push_code(&mut text, &[document.again.join(" ")]);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn push_section(text: &mut String, section: &Section) {
    if !section.title.is_empty() {
        let _ = writeln!(text, "### {}\n", escaped(&section.title));
    }
    for block in &section.blocks {
        match block {
            Block::Paragraph(words) => {
                let _ = writeln!(text, "{}\n", escaped(words));
            }
            Block::List(items) => push_list(text, items.iter().cloned()),
            Block::Table(table) => push_table(text, table),
            Block::Facts(facts) => {
                push_list(text, facts.iter().map(|(name, value)| format!("{name}: {value}")));
            }
            Block::Steps(steps) => push_steps(text, steps),
            Block::Code(code) | Block::Composed { text: code, .. } => push_code(text, code),
            Block::Folded { summary, code } => {
                let _ = writeln!(text, "<details><summary>{}</summary>\n", escaped(summary));
                push_code(text, code);
                text.push_str("</details>\n\n");
            }
            Block::Picture(_) => {}
        }
    }
}

fn push_list(text: &mut String, items: impl Iterator<Item = String>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    for item in items {
        let _ = writeln!(text, "- {}", escaped(&item));
    }
    text.push('\n');
}

/// A list of numbers; each command in a block within its item.
fn push_steps(text: &mut String, steps: &[DocumentStep]) {
    for (number, step) in (1..).zip(steps) {
        let _ = writeln!(text, "{number}. {}", escaped(&step.what));
        if let Some(command) = &step.command {
            let language = if step.is_sql { "sql" } else { "sh" };
            text.push('\n');
            for line in code_in(language, command).lines() {
                let _ = writeln!(text, "   {line}");
            }
        }
    }
    text.push('\n');
}

fn push_table(text: &mut String, table: &Table) {
    let columns = table.rows.iter().map(Vec::len).chain([table.head.len()]).max().unwrap_or(0);
    let line = |cells: &[String]| {
        let cells = (0..columns).map(|column| cells.get(column).map_or("", String::as_str));
        let cells: Vec<String> = cells.map(|cell| escaped(cell).trim().to_owned()).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    text.push_str(&line(&table.head));
    let _ = writeln!(text, "|{}", " --- |".repeat(columns));
    for row in &table.rows {
        if is_group_title(row, table) {
            let title =
                format!("| **{}** {}|\n", escaped(&row[0]).trim(), "| ".repeat(columns - 1));
            text.push_str(&title);
        } else {
            text.push_str(&line(row));
        }
    }
    text.push('\n');
}

/// A fence is longer than any in the code.
fn push_code(text: &mut String, lines: &[String]) {
    let lines: Vec<_> = lines.iter().map(|line| printable(line)).collect();
    let code = lines.join("\n");
    let mut fence = "```".to_owned();
    while code.contains(&fence) {
        fence.push('`');
    }
    let _ = writeln!(text, "{fence}text\n{}\n{fence}\n", code.trim_end());
}
