//! The head of the page: the question and the answer.

use maud::{Markup, html};
use pgtoll_estimate::metric_name;
use pgtoll_record::{AnswerLine, EndStatus, Run, RunAnswer, RunResult, Verdict};

use crate::answer::{advice, arms};
use crate::circumstances::servers;
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
            "PostgreSQL " (header.versions()) ", " (day(&header.started)) ", "
            (header.host.cpu) " with " (header.host.cores) " CPUs. "
            @if result.complete { "The run is complete." }
        }
        p class="quiet small" { (servers(result)) }
        @if !result.complete {
            p class="warning" role="note" {
                strong { "This run is incomplete" } " (" (why(run)) "). The page shows the measurements until then, with wide intervals; the notes list what is missing."
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

/// The sentence, a line for each arm and workload, what decides and what would make it surer.
pub(crate) fn answer(result: &RunResult) -> Markup {
    let Some(answer) = &result.answer else {
        return html! { p { "Nothing can be said yet: " (NEEDS) } };
    };
    html! {
        p class="lead" {
            strong { (answer.headline) }
            @if let Some(advice) = advice(answer) { " " (advice) }
        }
        @for (title, lines) in arms(result, answer) {
            h3 { (title.trim_end_matches(':')) }
            dl class="answers" {
                @for lines in lines.chunk_by(|one, other| one.workload == other.workload) {
                    dt { (lines[0].title) }
                    dd { ul { @for line in lines { li { (figure(line)) } } } }
                }
            }
        }
        dl class="facts" {
            @for (name, words) in reasons(answer) { dt { (name) } dd { (words) } }
        }
    }
}

fn figure(line: &AnswerLine) -> Markup {
    let class = match line.verdict {
        Some(Verdict::Costs) => "costs",
        Some(Verdict::Gains) => "gains",
        _ => "",
    };
    html! {
        @if class.is_empty() { (line.figure) } @else { strong class=(class) { (line.figure) } }
        @if let Some(metric) = line.metric { " " (metric_name(metric)) }
        @if let Some(cause) = &line.cause { ": " (cause) }
    }
}

fn reasons(answer: &RunAnswer) -> Vec<(&'static str, &str)> {
    let reasons = [
        ("what decides", answer.decides.as_deref()),
        ("the rule", answer.advice.as_ref().map(|advice| advice.rule.as_str())),
        ("what would make it surer", answer.surer.as_deref()),
    ];
    reasons.into_iter().filter_map(|(name, words)| Some((name, words?))).collect()
}

const NEEDS: &str = "a comparison needs at least two completed rounds or repetitions.";

/// Returns the claims and expectations with their outcomes.
pub(crate) fn expectations(result: &RunResult) -> Markup {
    html! {
        @if !result.expected.is_empty() {
            h3 { "What was claimed" }
            (claims::table(&[(String::new(), &result.expected)]))
        }
    }
}
