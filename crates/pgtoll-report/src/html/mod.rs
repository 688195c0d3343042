//! A run as a page of its own: one file that asks nothing of a network and runs no script.

mod answer;
mod circumstances;
mod claims;
mod comparison;
mod flow;
mod latency;
mod overview;
mod payers;
mod prediction;
mod prediction_picture;
mod several;
mod steadiness;
mod timeline;
mod wal;
mod wal_statistics;
mod wal_whatif;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use pgtoll_record::{Run, RunResult, Workload};
use serde::Serialize;

pub(crate) use answer::day;
pub use overview::overview_html;
pub(crate) use prediction::prediction_html;
pub(crate) use several::html_side_by_side;
pub(crate) use timeline::timeline;
pub(crate) use wal_statistics::wal_statistics_html;
pub(crate) use wal_whatif::wal_whatif_html;

use crate::cells::columns;
use crate::plot::Look;
use crate::printable::{printable_json, printable_lines};

/// The report as one HTML file, with all that it needs inside. Whatever stands in the record is
/// text in it, never markup.
pub fn html_report(run: &Run, result: &RunResult) -> String {
    let header = &result.header;
    let sections: [Section<'_>; 10] = [
        ("comparisons", "What differs, and how sure that is", comparison::forests(result)),
        ("table", "The table", comparison::table(result)),
        ("time", "The difference over time", steadiness::section(run, result)),
        ("latency", "Latency", latency::section(run, result)),
        ("flow", "Reads and writes over time", flow::section(run, result)),
        ("wal", "WAL by kind of record", wal::section(run, result)),
        ("design", "Design, noise, settings", circumstances::section(run, result)),
        ("notes", "Notes", circumstances::notes(result)),
        ("reading", "How to read this", circumstances::reading(result)),
        ("again", "Again", again_section(result)),
    ];
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "The answer" }
            (answer::answer(result))
            (answer::expectations(result))
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! {
        @if let Some(name) = &header.name { (name) ": " }
        (header.question) " – PostgreSQL " (header.versions()) ", pgtoll"
    };
    let words = "Made by pgtoll from the record of a run.";
    page(&title, &answer::heading(run, result), &main, words, &inert(result))
}

/// A part of a page: its name in the page, its title, and what is in it.
pub(crate) type Section<'a> = (&'a str, &'a str, Markup);

pub(crate) fn contents(sections: &[Section<'_>]) -> Markup {
    html! {
        nav aria-label="Sections" {
            ul { @for (id, title, _) in sections { li { a href={ "#" (id) } { (title) } } } }
        }
    }
}

pub(crate) fn bodies(sections: &[Section<'_>]) -> Markup {
    html! {
        @for (id, title, body) in sections {
            section id=(id) aria-labelledby={ (id) "-heading" } {
                h2 id={ (id) "-heading" } { (title) }
                (body)
            }
        }
    }
}

/// A whole page. `data` is JSON without any of HTML's own characters.
pub(crate) fn page(
    title: &Markup,
    heading: &Markup,
    main: &Markup,
    words: &str,
    data: &str,
) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content="pgtoll";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                header { (heading) }
                main { (main) }
                footer class="small quiet" {
                    (words) " The page holds all it shows: no request leaves it, and no script runs \
                              in it."
                }
                script type="application/json" id="result" { (PreEscaped(data)) }
            }
        }
    };
    // Markup escapes nothing but its own characters.
    printable_lines(&page.into_string()).into_owned()
}

/// Nothing is loaded, whatever stands in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const STYLE: &str = include_str!("style.css");

/// An arm in every picture and legend.
struct Series<'a> {
    arm: &'a str,
    title: String,
    look: Look,
    null: bool,
}

/// Arms in the order of the table, each with its look.
fn series(result: &RunResult) -> Vec<Series<'_>> {
    let of_arm = |(index, (arm, title))| {
        let mut arms = result.header.arms.iter();
        let null = arms.any(|item| item.name == arm && item.twin_of.is_some());
        let look = if null { Look::grey(index) } else { Look::from_index(index) };
        Series { arm, title, look, null }
    };
    columns(result).enumerate().map(of_arm).collect()
}

/// The figures of the workloads that have one, below what is to be said of all; or that there is
/// `none`.
fn figures(
    run: &Run,
    words: &Markup,
    none: &str,
    of_workload: impl Fn(&Workload, usize) -> Option<Markup>,
) -> Markup {
    let workloads = run.header.workloads.iter().enumerate();
    let figures: Vec<Markup> =
        workloads.filter_map(|(index, workload)| of_workload(workload, index)).collect();
    html! {
        @if figures.is_empty() { p { (none) } } @else {
            (words)
            @for figure in &figures { (figure) }
        }
    }
}

/// A kind's colour in a legend.
fn swatch(kind: usize, hatched: bool) -> Markup {
    html! {
        svg class="key swatch" viewBox="0 0 18 14" aria-hidden="true" {
            rect class={ "part p" (kind) } width="18" height="14" {}
            @if hatched { rect class="hatch" width="18" height="14" {} }
        }
    }
}

/// Hatching, for all pictures.
fn patterns() -> Markup {
    html! {
        svg class="patterns" aria-hidden="true" {
            defs {
                pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(45)" {
                    path class="hatch-line" d="M1 0v6" {}
                }
            }
        }
    }
}

fn again_section(result: &RunResult) -> Markup {
    let json = serde_json::to_string_pretty(result).unwrap_or_default();
    html! {
        p { "The command that makes a run like this one again, with the same random choices:" }
        pre { code { (result.header.command.join(" ")) } }
        (download("All figures of this page, with their intervals", "result.json", &json))
    }
}

/// The page's figures as a file to keep.
pub(crate) fn download(label: &str, name: &str, json: &str) -> Markup {
    html! {
        p class="screen" {
            (label) ": "
            a download=(name)
                href={ "data:application/json;base64," (BASE64.encode(json)) } { (name) }
            ". A program finds the same in the page itself, in the element "
            code { "script#result" } "."
        }
    }
}

/// The result as JSON in which no text ends the element that it stands in, or begins a comment.
pub(crate) fn inert(result: &impl Serialize) -> String {
    let json = serde_json::to_string(result).unwrap_or_else(|_| "null".to_owned());
    printable_json(&json).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
pub(crate) mod tests;
