//! What an application saw, as a page: the verdict, each client over time, the figures.

use maud::{Markup, html};
use pgtoll_record::{ClientTimeline, JudgeRecord};

use super::timeline::timeline;
use super::{Section, bodies, contents, download, inert, page};
use crate::judge::{
    CLIENT_HEAD, NamedCount, PLACE, client_row, error_lines, example_lines, fault_lines,
    judge_headline, node_lines, read_lines, seen_rows, set_rows, subject_words,
};
use crate::wal_numbers::count;

/// What an application saw as one HTML file, with all that it needs inside. Whatever stands in the
/// record is text in it, never markup.
pub(crate) fn judge_html(of: &JudgeRecord) -> String {
    let mut sections: Vec<Section<'_>> = vec![
        ("timeline", "Each client over time", timeline("clients-over-time", &client_timeline(of))),
        ("seen", "What clients saw", counts(&seen_rows(of), "What clients saw")),
    ];
    if of.verdict.is_some() {
        let sets = counts(&set_rows(of), "What became of the transactions");
        sections.push(("sets", "What became of the transactions", sets));
    }
    sections.push(("clients", "Clients", clients(of)));
    for (id, title, lines) in [
        ("servers", "Servers that answered", node_lines(of)),
        ("readers", "Readers", read_lines(of)),
        ("errors", "Errors", error_lines(of)),
        ("examples", "Some of them", example_lines(of)),
    ] {
        if !lines.is_empty() {
            sections.push((id, title, html! { ul { @for line in &lines { li { (line) } } } }));
        }
    }
    sections.push(("again", "Again", again(of)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "What an application saw" }
            p class="lead" { strong { (judge_headline(of)) } }
            @if !of.findings.is_empty() {
                ul class="warning" { @for finding in &of.findings { li { (finding) } } }
            }
            @for line in fault_lines(of) { p { (line) } }
            @for note in of.notes.iter().map(String::as_str).chain([PLACE]) {
                p class="small quiet" { (note) }
            }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "What an application saw of PostgreSQL " (of.server.version) ", pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll lab judge" }
        h1 { "What did an application see?" }
        p class="quiet" { (subject_words(of)) " Begun " (of.began) "." }
    };
    page(&title, &heading, &main, "Made by pgtoll from clients’ journals.", &inert(of))
}

/// Its clients over time, as labs have it.
fn client_timeline(of: &JudgeRecord) -> ClientTimeline {
    ClientTimeline {
        seconds: of.seconds,
        bin_s: of.bin_s,
        clients: of.clients.iter().map(|client| client.line.clone()).collect(),
        events: of.events.clone(),
    }
}

fn counts(rows: &[NamedCount], label: &str) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label=(label) {
            table class="words" {
                thead { tr {
                    th scope="col" { "transactions" }
                    th scope="col" { "number" }
                    th scope="col" { "meaning" }
                } }
                tbody { @for (name, number, words) in rows { tr {
                    th scope="row" class=[name.starts_with(' ').then_some("indented")] { (name.trim()) }
                    td { (count(*number)) }
                    td { (words) }
                } } }
            }
        }
    }
}

fn clients(of: &JudgeRecord) -> Markup {
    html! {
        div class="scroll" role="region" tabindex="0" aria-label="Clients" {
            table class="close" {
                thead { tr { @for title in CLIENT_HEAD { th scope="col" { (title) } } } }
                tbody { @for (number, client) in of.clients.iter().enumerate() {
                    @let row = client_row(number, client);
                    tr {
                        th scope="row" { (row[0]) }
                        @for cell in &row[1..] { td { (cell) } }
                    }
                } }
            }
        }
    }
}

fn again(of: &JudgeRecord) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        p { "The command that judges again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "judge.json", &json))
    }
}
