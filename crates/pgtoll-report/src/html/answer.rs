//! What stands on top: what was asked, and what came out.

use maud::{Markup, html};
use pgtoll_estimate::{bound, clause, metrics};
use pgtoll_record::{EndStatus, Run, RunResult, Verdict};

use crate::cells::interval;
use crate::html::claims;

/// The question, and what the answer holds for.
pub(crate) fn heading(run: &Run, result: &RunResult) -> Markup {
    let header = &result.header;
    html! {
        p class="quiet small" {
            "pgtoll measure " (header.experiment)
            @if let Some(name) = &header.name { ": " strong { (name) } }
        }
        h1 { (header.question) }
        p class="quiet" {
            "PostgreSQL " (header.server.version) ", " (day(&header.started)) ", "
            (header.host.cpu) " with " (header.host.cores) " CPUs, pgbench scale "
            (header.design.scale) ". "
            @if result.complete { "The run is complete." }
        }
        @if !result.complete {
            p class="warning" role="note" {
                strong { "This run is incomplete" } " (" (why(run)) "). \
                What was measured until then is shown. Its intervals are as wide as that little \
                allows; what is missing is in the notes."
            }
        }
    }
}

fn why(run: &Run) -> &str {
    match &run.end {
        None => "the record breaks off",
        Some(end) => end.reason.as_deref().unwrap_or(match end.status {
            EndStatus::Complete => "a part of the record cannot be read",
            EndStatus::Interrupted => "interrupted",
            EndStatus::Failed => "failed",
        }),
    }
}

/// To the minute.
pub(crate) fn day(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..16)) {
        (Some(day), Some(time)) if rfc3339.ends_with('Z') => format!("{day} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

/// Each arm in a sentence: what it costs under which work, and where that is not known.
pub(crate) fn in_short(result: &RunResult) -> Markup {
    let header = &result.header;
    let arms = header.arms.iter().filter(|arm| arm.name != header.baseline);
    let arms = arms.filter(|arm| arm.twin_of.is_none());
    let sentences = arms.map(|arm| (&arm.name, findings(result, &arm.name)));
    html! {
        @for (arm, found) in sentences.filter(|(_, found)| !found.is_empty()) {
            p class="lead" {
                strong { (arm) } ", server CPU against " (header.baseline) ": "
                @for (index, (figure, class, titles)) in found.iter().enumerate() {
                    @if index > 0 { "; " }
                    @if class.is_empty() { (figure) } @else { strong class=(class) { (figure) } }
                    " in “" (titles.join("”, “")) "”"
                }
                "."
            }
        }
    }
}

/// What is said of an arm, with its class, and the workloads that it is said of.
fn findings<'a>(result: &'a RunResult, arm: &str) -> Vec<(String, &'static str, Vec<&'a str>)> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    for workload in &result.header.workloads {
        let first = metrics(workload)[0];
        let mut all = result.comparisons.iter().filter(|of| of.workload == workload.name);
        let Some(of) = all.find(|of| of.arm == arm && of.metric == first) else { continue };
        let title = workload.title.as_str();
        let class = match of.verdict {
            Verdict::Costs => "costs",
            Verdict::Gains => "gains",
            Verdict::NoCostAbove => "",
            Verdict::NotResolved => {
                open.push(title);
                continue;
            }
        };
        let figure = if class.is_empty() { bound(of) } else { interval(of) };
        found.push((figure, class, vec![title]));
    }
    if !open.is_empty() {
        found.push(("not resolved".to_owned(), "", open));
    }
    found
}

/// An answer for each workload; what is sure stands out.
pub(crate) fn answers(result: &RunResult) -> Markup {
    if result.answers.is_empty() {
        return html! { p { "Nothing can be said yet: " (NEEDS) } };
    }
    html! {
        dl class="answers" {
            @for answer in &result.answers {
                @let (title, text) = parted(result, answer);
                dt { (title) }
                dd { ul { @for sentence in text.split(SENTENCE) {
                    li { (marked(result, sentence.trim_end_matches('.'))) "." }
                } } }
            }
        }
    }
}

const NEEDS: &str = "a comparison needs at least two completed rounds or repetitions.";
const SENTENCE: &str = ". ";

/// What was claimed or expected, and whether it came out.
pub(crate) fn expectations(result: &RunResult) -> Markup {
    html! {
        @if !result.expected.is_empty() {
            h3 { "What was claimed" }
            (claims::table(&[(String::new(), &result.expected)]))
        }
    }
}

/// The workload's title, and what is said of it.
fn parted<'a>(result: &'a RunResult, answer: &'a str) -> (&'a str, &'a str) {
    let titles = result.header.workloads.iter().map(|of| of.title.as_str());
    let parted =
        titles.filter_map(|title| Some((title, answer.strip_prefix(title)?.strip_prefix(": ")?)));
    // One title may begin another.
    parted.max_by_key(|(title, _)| title.len()).unwrap_or(("", answer))
}

/// The sentence with its costs and gains marked.
fn marked(result: &RunResult, sentence: &str) -> Markup {
    let found = result.comparisons.iter().filter_map(|of| {
        let class = match of.verdict {
            Verdict::Costs => "costs",
            Verdict::Gains => "gains",
            Verdict::NoCostAbove | Verdict::NotResolved => return None,
        };
        let clause = clause(of);
        Some((sentence.find(&clause)?, clause.len(), class))
    });
    let Some((at, length, class)) = found.min() else {
        return html! { (sentence) };
    };
    let (before, rest) = sentence.split_at(at);
    let (clause, after) = rest.split_at(length);
    html! { (before) strong class=(class) { (clause) } (marked(result, after)) }
}
