//! A document as text of 80 columns.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::{Block, Document, Level, Section, Table};
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
    for section in &document.sections {
        if full || section.level == Level::Detail {
            push_section(&mut text, section);
        }
    }
    if !document.notes.is_empty() {
        push_gap(&mut text);
    }
    for note in &document.notes {
        text.push_str(&wrapped("note: ", note));
    }
    text
}

fn push_gap(text: &mut String) {
    if !text.is_empty() {
        text.push('\n');
    }
}

fn push_section(text: &mut String, section: &Section) {
    let is_shown = |block: &&Block| !matches!(block, Block::Picture(_) | Block::Folded { .. });
    let mut blocks = section.blocks.iter().filter(is_shown).peekable();
    if blocks.peek().is_none() {
        return;
    }
    push_gap(text);
    if !section.title.is_empty() {
        let _ = writeln!(text, "{}", printable(&section.title));
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
        Block::Table(Table { head, rows }) => {
            text.push_str(&aligned([vec![head.clone()], rows.clone()].concat(), Vec::new()));
        }
        Block::Facts(facts) => {
            let width = facts.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
            for (name, value) in facts {
                let name = printable(name);
                let room = " ".repeat(width.saturating_sub(name.width()));
                text.push_str(&wrapped(&format!("  {name}{room}  "), value));
            }
        }
        Block::Code(lines) | Block::Composed { text: lines, .. } => {
            for line in lines {
                let _ = writeln!(text, "{}", printable(line));
            }
        }
        Block::Folded { .. } | Block::Picture(_) => {}
    }
}
