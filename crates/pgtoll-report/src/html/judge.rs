//! What an application saw, as a page: the verdict, each client over time, the figures.

use maud::{Markup, html};
use pgtoll_record::{JudgeRecord, JudgedClient};

use super::{Section, bodies, contents, download, inert, page, swatch};
use crate::judge::{
    CLIENT_HEAD, NamedCount, PLACE, client_row, error_lines, example_lines, fault_lines,
    judge_headline, node_lines, read_lines, seen_rows, set_rows, span, subject_words,
};
use crate::plot::{Drawing, Scale, Unit, Width, Words, arrows_below, figure, n, text};
use crate::wal_numbers::count;

/// What an application saw as one HTML file, with all that it needs inside. Whatever stands in the
/// record is text in it, never markup.
pub fn judge_html(of: &JudgeRecord) -> String {
    let mut sections: Vec<Section<'_>> = vec![
        ("timeline", "Each client over time", timeline(of)),
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

/// What a client's letters are called, and which colours they have.
const STATES: [(char, &str, usize, bool); 3] =
    [('s', "served", 2, false), ('w', "waiting", 4, false), ('e', "an error", 5, true)];

fn timeline(of: &JudgeRecord) -> Markup {
    let shown = of.clients.len().min(CLIENTS_DRAWN);
    let events: Vec<String> =
        of.events.iter().map(|event| format!("{}: {}", span(event.at_s), event.what)).collect();
    let words = Words {
        id: "clients-over-time".to_owned(),
        title: "Clients over time",
        description: format!(
            "A line for each of {shown} clients: served, waiting or an error. Events: {}.",
            events.join("; ")
        ),
        caption: html! {
            h3 { "Clients over time" }
            p {
                "A line a client; " (span(of.bin_s)) " a step, which shows the worst that was in \
                it. Arrows mark events."
            }
        },
    };
    html! {
        (figure(&words, |width| drawing(of, shown, width)))
        ul class="legend" {
            @for (_, name, kind, hatched) in STATES {
                li { (swatch(kind, hatched)) (name) }
            }
        }
        ol { @for event in &events { li { (event) } } }
        @if of.clients.len() > shown {
            p class="small" { "Of " (of.clients.len()) " clients the first " (shown) " are drawn." }
        }
    }
}

/// A page of more would be nothing but lines.
const CLIENTS_DRAWN: usize = 64;

fn drawing(of: &JudgeRecord, shown: usize, width: Width) -> Drawing {
    let row = if shown > 24 { 10.0 } else { 18.0 };
    let (left, right) = (34.0, width.units() - 8.0);
    let scale = Scale::linear([0.0, of.seconds.max(of.bin_s)], Unit::Plain).between(left, right);
    let top = 16.0;
    let bottom = top + row * float(shown) + 2.0;
    let marks = html! {
        @for (number, client) in of.clients.iter().take(shown).enumerate() {
            @let y = top + row * float(number);
            @if shown <= 24 || number % 8 == 0 {
                (text(left - 6.0, y + row * 0.7, "tick end", &number.to_string()))
            }
            @for (state, from, to) in runs(client) {
                @let (x, end) = (scale.at(of.bin_s * float(from)), scale.at(of.bin_s * float(to)));
                @for (letter, name, kind, hatched) in STATES {
                    @if letter == state {
                        (bar([x, y, end - x, row - 3.0], name, kind, hatched))
                    }
                }
            }
        }
        @let at: Vec<(f64, String)> =
            of.events.iter().map(|event| (event.at_s, event.what.clone())).collect();
        (arrows_below(&scale, (top - 2.0, bottom), &at))
        (crate::plot::time_axis(&scale, width, bottom))
        (text(right, bottom + 34.0, "tick end", "seconds from the begin"))
    };
    Drawing { height: bottom + 40.0, marks }
}

fn bar([x, y, width, height]: [f64; 4], name: &str, kind: usize, hatched: bool) -> Markup {
    html! {
        @for class in [format!("part p{kind}"), "hatch".to_owned()] {
            @if class != "hatch" || hatched {
                rect class=(class) x=(n(x)) y=(n(y)) width=(n(width.max(0.5))) height=(n(height)) {
                    title { (name) }
                }
            }
        }
    }
}

/// Bins with the same letter: the letter, the first bin, the one behind the last.
fn runs(client: &JudgedClient) -> Vec<(char, usize, usize)> {
    let mut runs: Vec<(char, usize, usize)> = Vec::new();
    for (at, letter) in client.line.chars().take(LINE_MAX).enumerate() {
        match runs.last_mut() {
            Some((last, _, to)) if *last == letter => *to = at + 1,
            _ => runs.push((letter, at, at + 1)),
        }
    }
    runs
}

/// A record of pgtoll's has fewer bins.
const LINE_MAX: usize = 1000;

#[expect(clippy::cast_precision_loss, reason = "clients and bins are few")]
fn float(number: usize) -> f64 {
    number as f64
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
