//! What a person reads of a record, before it has a form: each kind of record makes one document, and each form
//! renders all documents.

mod html;
mod markdown;
mod terminal;

use maud::Markup;

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
    /// What was looked at: servers, settings, amounts.
    pub(crate) subject: String,
    /// The answer, a sentence each.
    pub(crate) answer: Vec<String>,
    /// What is not as it should be, a sentence each.
    pub(crate) findings: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// What limits the answer.
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
    /// Text that keeps its lines.
    Code(Vec<String>),
    /// Lines that a page shows when they are asked for; terminals leave them out.
    Folded {
        summary: String,
        code: Vec<String>,
    },
    /// SVG, for pages alone.
    Picture(Markup),
    /// What is composed by hand: lines of text, and of a page.
    Composed {
        text: Vec<String>,
        page: Markup,
    },
}

/// Rows of cells below titles. The first cell names the row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { head: head.iter().map(|title| (*title).to_owned()).collect(), rows }
    }
}

impl Section {
    pub(crate) fn detail(title: &str, blocks: Vec<Block>) -> Self {
        Self { title: title.to_owned(), level: Level::Detail, blocks }
    }

    pub(crate) fn evidence(title: &str, blocks: Vec<Block>) -> Self {
        Self { title: title.to_owned(), level: Level::Evidence, blocks }
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
