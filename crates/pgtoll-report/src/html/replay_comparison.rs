//! Which statements are slower or faster on an arm, as a page.

use maud::{Markup, html};
use pgtoll_record::{ReplayComparison, ShapeComparison, ShapeDifference, ShapeVerdict};

use super::{Section, bodies, contents, download, inert, page, table};
use crate::replay_comparison::{
    ARM_HEAD, TOTAL_HEAD, arm_rows, change_words, headline, milliseconds, replay_comparison_answer,
    replay_comparison_findings, total_rows,
};

/// Statements of a verdict on the page; all are in the record.
const LISTED: usize = 100;

/// A record of `pgtoll replay compare` as one HTML file. Whatever stands in the record is text in it,
/// never markup.
pub fn replay_comparison_html(of: &ReplayComparison) -> String {
    let statements = |verdict| statements(of, verdict);
    let whole = html! {
        (table("Whole replays", &TOTAL_HEAD, &total_rows(of)))
        (table("Arms", &ARM_HEAD, &arm_rows(of)))
    };
    let sections: Vec<Section<'_>> = vec![
        ("slower", "Slower statements", statements(ShapeVerdict::Slower)),
        ("faster", "Faster statements", statements(ShapeVerdict::Faster)),
        ("unchanged", "Unchanged statements", statements(ShapeVerdict::Unchanged)),
        ("open", "Statements not resolved", statements(ShapeVerdict::NotResolved)),
        ("whole", "Whole replays, and the arms", whole),
        ("again", "Again", again(of)),
    ];
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for sentence in replay_comparison_answer(of) { p class="lead" { (sentence) } }
            @for finding in replay_comparison_findings(of) { p { strong { "Finding: " } (finding) } }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "Which statements became slower, pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll replay compare" }
        h1 { "Which statements became slower?" }
        p class="quiet" { (headline(of)) }
    };
    page(&title, &heading, &main, "Made by pgtoll from replays of the same work.", &inert(of))
}

const HEAD: [&str; 8] = [
    "statement",
    "arm",
    "change",
    "beside the others",
    "of the time",
    "executions",
    "baseline, ms",
    "same twice",
];

fn statements(of: &ReplayComparison, verdict: ShapeVerdict) -> Markup {
    let found = of.by_verdict(verdict);
    if found.is_empty() {
        return html! { p { "None." } };
    }
    let shown = &found[..found.len().min(LISTED)];
    let rows: Vec<Vec<String>> = shown.iter().map(|(shape, of)| row(shape, of)).collect();
    html! {
        (table("Statements", &HEAD, &rows))
        @if found.len() > LISTED { p { (found.len() - LISTED) " more are in the record." } }
        @for (shape, difference) in shown {
            @if let Some(plans) = &difference.plans {
                @if plans.baseline != plans.arm {
                    h3 { "Plans of " code { (shape.statement) } }
                    p { "Before, on the baseline:" }
                    pre { code { (plans.baseline.join("\n")) } }
                    p { "On " (difference.arm) ":" }
                    pre { code { (plans.arm.join("\n")) } }
                }
            }
        }
    }
}

fn row(shape: &ShapeComparison, of: &ShapeDifference) -> Vec<String> {
    vec![
        shape.statement.clone(),
        of.arm.clone(),
        of.range.map_or("not compared".to_owned(), |range| change_words(&range)),
        of.beside_others.map_or("–".to_owned(), |range| change_words(&range)),
        format!("{:.1} %", shape.share * 100.0),
        shape.executions.to_string(),
        milliseconds(shape.baseline_ms),
        shape.floor.map_or("–".to_owned(), |floor| format!("±{:.1} %", floor * 100.0)),
    ]
}

fn again(of: &ReplayComparison) -> Markup {
    let json = serde_json::to_string(of).unwrap_or_default();
    html! {
        ul { @for note in &of.notes { li { (note) } } }
        p { "The command that does it again:" }
        pre { code { (of.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "replay-comparison.json", &json))
    }
}
