//! What foreign tables showed, as a page: the answer, the join's scans, each step with its checks and its
//! statements.

use maud::{Markup, html};
use pgtoll_record::{BridgeRecord, BridgeStatement, BridgeStep};

use super::{LabPage, Section, download, inert, table};
use crate::bridge::{SCAN_HEAD, answer, bridge_findings, scan_row, subject_words};

/// A record of `pgtoll lab bridge` as one HTML file. Whatever stands in the record is text in it, never
/// markup.
pub fn bridge_html(of: &BridgeRecord) -> String {
    let sections: Vec<Section<'_>> = vec![
        ("scans", "One query over three sources", scans(of)),
        ("steps", "Step by step", html! { @for of_step in &of.steps { (step(of_step)) } }),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    LabPage {
        command: "pgtoll lab bridge",
        title: "Foreign tables, their joins and their commits",
        question: "What does one query over PostgreSQL, a CSV file and Redis promise?",
        subject: subject_words(of),
        sentences: vec![answer(of)],
        remarks: vec![("Finding", bridge_findings(of))],
        sections,
        data: inert(of),
    }
    .html()
}

fn scans(of: &BridgeRecord) -> Markup {
    let rows: Vec<Vec<String>> = of.scans.iter().map(scan_row).collect();
    html! {
        @if rows.is_empty() { p { "The join was not run." } } @else {
            (table("Foreign scans of the join", &SCAN_HEAD, &rows))
            ul { @for scan in &of.scans {
                li { (scan.table) ": " (scan.kind) ": " code { (scan.source) } }
            } }
        }
    }
}

fn step(of: &BridgeStep) -> Markup {
    html! {
        h3 { (of.name) ": " (of.title) }
        ul { @for check in &of.checks { li {
            strong { @if check.holds { "holds" } @else { "FAILS" } }
            " " (check.subject) ": " (check.found)
            @if !check.holds { " (expected: " (check.expected) ")" }
        } } }
        p { @if of.complete { (of.lesson) } @else { "Not done to its end." } }
        details {
            summary { "What was run, and what it gave" }
            pre { code { @for statement in &of.statements { (statement_text(statement)) } } }
        }
    }
}

/// The session, the statement, its result and its rows.
fn statement_text(of: &BridgeStatement) -> String {
    let head = [format!("{}: {}", of.session, of.sql), format!("  {}", of.result)];
    let rows = of.rows.iter().map(|row| format!("    {row}"));
    head.into_iter().chain(rows).collect::<Vec<_>>().join("\n") + "\n"
}

fn how(of: &BridgeRecord) -> Markup {
    html! {
        ul { @for note in &of.notes { li { (note) } } }
        p { "Settings of the servers:" }
        pre { code { @for (name, value) in &of.settings { (name) " = " (value) "\n" } } }
    }
}

fn again(of: &BridgeRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All that was run, with its results", "bridge.json", &json))
    }
}
