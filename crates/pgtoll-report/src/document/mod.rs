//! The text of a record before it has a form: each kind of record makes one document, and each form
//! renders all documents.
//! renders all documents.

mod html;
mod markdown;
mod terminal;

use maud::Markup;
use pgtoll_record::{Advice, CommandKind};

pub(crate) use html::document_html;
pub(crate) use markdown::document_markdown;
pub(crate) use terminal::document_text;

/// The answer of a record, and what it rests on.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The command that made the record, such as `pgtoll lab bridge`.
    pub(crate) command: &'static str,
    /// The question that it answers.
    pub(crate) question: &'static str,
    /// The subject: servers, settings, amounts.
    pub(crate) subject: String,
    /// The answer, a sentence each.
    pub(crate) answer: Vec<String>,
    /// The findings, a sentence each.
    pub(crate) findings: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// Limits of the answer.
    pub(crate) notes: Vec<String>,
    /// The command that makes the record again; empty: unknown.
    pub(crate) again: Vec<String>,
}

/// How soon a reader wants a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// In the terminal and everywhere else.
    Detail,
    /// In pages, and in the terminal with `--full`.
    Evidence,
}

/// A part of a document.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) level: Level,
    pub(crate) blocks: Vec<Block>,
}

/// A paragraph, table, list or picture.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Paragraph(String),
    List(Vec<String>),
    Table(Table),
    /// Names, each with a value in words.
    Facts(Vec<(String, String)>),
    /// The advice, in order.
    Steps(Vec<DocumentStep>),
    /// Text that keeps its lines.
    Code(Vec<String>),
    /// Lines that a page shows when they are asked for; terminals leave them out.
    Folded {
        summary: String,
        code: Vec<String>,
    },
    /// SVG, for pages alone.
    Picture(Markup),
    /// A block composed by hand: lines of text, and markup for a page.
    Composed {
        text: Vec<String>,
        page: Markup,
    },
}

/// A thing to do.
#[derive(Clone, Debug)]
pub(crate) struct DocumentStep {
    pub(crate) what: String,
    /// The command that does it, which is to be copied: it is not wrapped.
    pub(crate) command: Option<String>,
    /// The command is SQL; else it is a shell's.
    pub(crate) is_sql: bool,
}

impl DocumentStep {
    /// Steps of a record's advice.
    pub(crate) fn from_advice(advice: &[Advice]) -> Vec<Self> {
        let step = |Advice { what: label, command, kind, database }: &Advice| {
            let is_sql = *kind == Some(CommandKind::Sql);
            let database = database.as_ref().filter(|_| is_sql);
            let place = database.map(|name| format!(" (in database {name})")).unwrap_or_default();
            Self { what: format!("{label}{place}"), command: command.clone(), is_sql }
        };
        advice.iter().map(step).collect()
    }
}

/// Rows of cells below titles. The first cell names the row. A row of one cell is a title of the rows below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The last column is prose: it is wrapped, not aligned.
    pub(crate) ends_in_prose: bool,
}

impl Table {
    pub(crate) fn new(head: &[&str], rows: Vec<Vec<String>>) -> Self {
        let head = head.iter().map(|title| (*title).to_owned()).collect();
        Self { head, rows, ends_in_prose: false }
    }

    /// A table whose last column is prose.
    pub(crate) fn with_prose(head: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { ends_in_prose: true, ..Self::new(head, rows) }
    }
}

/// Whether a row is a title of the rows below it.
fn is_group_title(row: &[String], table: &Table) -> bool {
    row.len() == 1 && table.head.len() > 1
}

impl Section {
    pub(crate) fn detail(title: &str, blocks: Vec<Block>) -> Self {
        Self { title: title.to_owned(), level: Level::Detail, blocks }
    }

    pub(crate) fn evidence(title: &str, blocks: Vec<Block>) -> Self {
        Self { title: title.to_owned(), level: Level::Evidence, blocks }
    }

    /// A section of a list of at most `most` entries; `None` where there is none.
    pub(crate) fn list(title: &str, entries: &[String], most: usize) -> Option<Self> {
        let mut shown: Vec<String> = entries.iter().take(most).cloned().collect();
        let hidden = entries.len() - shown.len();
        shown.extend((hidden > 0).then(|| format!("... {hidden} more")));
        (!shown.is_empty()).then(|| Self::detail(title, vec![Block::List(shown)]))
    }

    /// A section of one table; `None` where it has no rows.
    pub(crate) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Option<Self> {
        let table = Table::new(head, rows);
        (!table.rows.is_empty()).then(|| Self::detail(title, vec![Block::Table(table)]))
    }
}

impl Document {
    /// A document whose only part is text that was composed for terminals.
    pub(crate) fn preformatted(question: &'static str, text: &str) -> Self {
        let section =
            Section::detail("", vec![Block::Code(text.lines().map(str::to_owned).collect())]);
        Self { question, sections: vec![section], ..Self::default() }
    }

    /// Sections with something in them.
    fn filled_sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| !section.blocks.is_empty())
    }

    pub(crate) fn push(&mut self, section: impl Into<Option<Section>>) {
        self.sections.extend(section.into());
    }
}

/// Settings as `name = value`, a line each.
pub(crate) fn settings<'a>(values: impl IntoIterator<Item = (&'a String, &'a String)>) -> Block {
    Block::Code(values.into_iter().map(|(name, value)| format!("{name} = {value}")).collect())
}

#[cfg(test)]
mod tests;
