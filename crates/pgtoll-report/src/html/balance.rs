//! Reads that a balancer sends to standbys as a page: the answer, where statements went, what was stale.

use maud::{Markup, html};
use pgtoll_record::{BalanceRecord, BalanceRoute};

use super::{LabPage, Section, download, inert};
use crate::balance::{
    ROUTE_HEAD, RUNG_HEAD, answer, balance_findings, part_words, route_row, rung_row, subject_words,
};

/// A record of `pgtoll lab balance` as one HTML file. Whatever stands in the record is text in it, never
/// markup.
pub fn balance_html(of: &BalanceRecord) -> String {
    let routes: Vec<[String; 4]> = of.routes.iter().map(route_row).collect();
    let rungs: Vec<[String; 5]> = of.freshness.iter().map(rung_row).collect();
    let sections: Vec<Section<'_>> = vec![
        (
            "fresh",
            "Reads after writes",
            table("Stale reads of each kind of commit", RUNG_HEAD, &rungs),
        ),
        ("routes", "Where statements went", table("Kinds of statements", ROUTE_HEAD, &routes)),
        ("clients", "What clients saw", html! { @for words in part_words(of) { p { (words) } } }),
        ("how", "How it was found", how(of)),
        ("again", "Again", again(of)),
    ];
    LabPage {
        command: "pgtoll lab balance",
        title: "Where reads go and how old they are",
        question: "Where does a balancer send statements, and how old is what standbys answer?",
        subject: subject_words(of),
        sentences: vec![answer(of)],
        remarks: vec![("Finding", balance_findings(of))],
        sections,
        data: inert(of),
    }
    .html()
}

fn table<const COLUMNS: usize>(
    label: &str,
    head: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class="names close" {
                thead { tr { @for title in head {
                    th scope="col" { @if title.is_empty() { "verdict" } @else { (title) } }
                } } }
                tbody { @for row in rows { tr {
                    th scope="row" { (row[0]) }
                    @for cell in &row[1..] { td { (cell) } }
                } } }
            }
        }
    }
}

fn how(of: &BalanceRecord) -> Markup {
    html! {
        p {
            "Each kind of statement was tried in " (of.design.route_sessions) " sessions of its own; the \
            server that executed it named itself. What each session sent:"
        }
        pre { code { @for route in &of.routes { (statements(route)) "\n" } } }
        ul { @for note in &of.notes { li { (note) } } }
        p { "Settings of the servers, then of the balancer:" }
        pre { code {
            @for (name, value) in of.settings.iter().chain(&of.balancer_settings) {
                (name) " = " (value) "\n"
            }
        } }
    }
}

fn statements(of: &BalanceRoute) -> String {
    of.statements.join("; ")
}

fn again(of: &BalanceRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "balance.json", &json))
    }
}
