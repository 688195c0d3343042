//! A document as one HTML file. Whatever stands in the record is text in it, never markup.

use maud::{Markup, html};

use super::{Block, Document, Section, Table, is_group_title};
use crate::html::{bodies, contents, download, page};
use crate::printable::printable;

/// The page; `json` is the record, `name` the file that it is offered as.
pub(crate) fn document_html(document: &Document, json: &str, inert: &str, name: &str) -> String {
    let count = document.filled_sections().count();
    let ids: Vec<String> = (0..count).map(|place| format!("part-{place}")).collect();
    let mut sections: Vec<(&str, &str, Markup)> = document
        .filled_sections()
        .zip(&ids)
        .map(|(section, id)| {
            let title = if section.title.is_empty() { "Figures" } else { &section.title };
            (id.as_str(), title, body(section, title))
        })
        .collect();
    sections.push(("again", "Again", again_section(document, json, name)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for sentence in &document.answer { p class="lead" { (sentence) } }
            @for finding in &document.findings { p { strong { "Finding: " } (finding) } }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { (document.question) ", pgtoll" };
    let heading = html! {
        @if !document.command.is_empty() { p class="quiet small" { (document.command) } }
        h1 { (document.question) }
        @if !document.subject.is_empty() { p class="quiet" { (document.subject) } }
    };
    page(&title, &heading, &main, "Made by pgtoll.", inert)
}

/// Tables are regions of their own, whose names differ from the section's.
fn body(section: &Section, title: &str) -> Markup {
    html! { @for (place, block) in section.blocks.iter().enumerate() {
        (block_html(block, &format!("Table {} of: {title}", place + 1)))
    } }
}

fn block_html(block: &Block, label: &str) -> Markup {
    match block {
        Block::Paragraph(words) => html! { p { (words) } },
        Block::List(items) => html! { ul { @for item in items { li { (item) } } } },
        Block::Table(table) => table_html(table, label),
        Block::Facts(facts) => {
            let row = |(name, value): &(String, String)| vec![name.clone(), value.clone()];
            let rows = facts.iter().map(row).collect();
            table_html(&Table { rows, ends_in_prose: true, ..Table::default() }, label)
        }
        Block::Steps(steps) => html! { ol { @for step in steps { li {
            (step.what) @if let Some(command) = &step.command { ":" pre { code { (command) } } }
        } } } },
        Block::Code(code) => lines_html(code),
        Block::Folded { summary, code } => html! {
            details { summary { (summary) } (lines_html(code)) }
        },
        Block::Picture(page) | Block::Composed { page, .. } => page.clone(),
    }
}

fn lines_html(lines: &[String]) -> Markup {
    html! { pre { code { @for line in lines { (printable(line)) "\n" } } } }
}

/// A table of text that may be wider than the page. A column without a title is the verdict.
fn table_html(table: &Table, label: &str) -> Markup {
    let class = match (table.ends_in_prose, table.head.len()) {
        (true, WIDE..) => "words claims",
        (true, _) => "words",
        (false, _) => "names close",
    };
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class=(class) {
                @if !table.head.is_empty() {
                    thead { tr { @for title in &table.head {
                        th scope="col" { @if title.is_empty() { "verdict" } @else { (title) } }
                    } } }
                }
                tbody { @for row in &table.rows { tr {
                    @if is_group_title(row, table) {
                        th scope="rowgroup" colspan=(table.head.len()) { (row[0]) }
                    } @else { @for (place, cell) in row.iter().enumerate() {
                        @if place == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                    } }
                } } }
            }
        }
    }
}

/// All cells of a table of prose wrap from this number of columns on.
const WIDE: usize = 5;

/// Words of the command that are shown: one that names hundreds of files is cut.
const COMMAND_WORDS: usize = 100;

fn again_section(document: &Document, json: &str, name: &str) -> Markup {
    let command: Vec<&str> =
        document.again.iter().take(COMMAND_WORDS).map(String::as_str).collect();
    html! {
        @if !document.notes.is_empty() {
            ul { @for note in &document.notes { li { (note) } } }
        }
        @if !command.is_empty() {
            p { "The command that does it again:" }
            pre { code { (command.join(" ")) } }
        }
        (download("All figures of this page", name, json))
    }
}
