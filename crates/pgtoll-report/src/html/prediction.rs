//! A prediction as a page: the decision, the figures, what it costs once, what they rest on.

use maud::{Markup, html};
use pgtoll_record::{PredictionAnswer, PredictionRecord};

use super::payers::payers;
use super::prediction_picture::pictures;
use super::{Section, bodies, contents, download, inert, page};
use crate::payers::heading;
use crate::prediction::{
    HEAD, action_words, basis_words, bill_lines, check_lines, remedy_words, route_words, rows,
    seen_lines, subject_words,
};

/// A prediction as one HTML file, with all that it needs inside. Whatever stands in the record is
/// text in it, never markup.
pub(crate) fn prediction_html(prediction: &PredictionRecord) -> String {
    let mut sections: Vec<Section<'_>> = vec![("figures", "Figures", figures(prediction))];
    let pictures = pictures(prediction);
    if !pictures.is_empty() {
        let all = html! { @for picture in &pictures { (picture) } };
        sections.push(("over-time", "Over time", all));
    }
    if prediction.one_time.is_some() {
        sections.push(("once", "What it costs once", once(prediction)));
    }
    if prediction.payers.is_some() {
        sections.push(("payers", heading(prediction), payers(prediction)));
    }
    if !check_lines(&prediction.checks).is_empty() {
        sections.push(("checked", "Checked against the observed server", checked(prediction)));
    }
    sections.push(("windows", "Windows", windows(prediction)));
    sections.push(("seen", "What was seen", seen(prediction)));
    sections.push(("again", "Again", again_section(prediction)));
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            @for answer in &prediction.answers { (in_short(prediction, answer)) }
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title =
        html! { "What safety would cost PostgreSQL " (prediction.server.version) ", pgtoll" };
    let heading = html! {
        p class="quiet small" { "pgtoll predict" }
        h1 { "What would other settings cost this server?" }
        p class="quiet" { (subject_words(prediction)) }
    };
    page(
        &title,
        &heading,
        &main,
        "Made by pgtoll from the observation of a server.",
        &inert(prediction),
    )
}

fn in_short(prediction: &PredictionRecord, answer: &PredictionAnswer) -> Markup {
    let remedies = remedy_words(prediction, answer);
    let bill = prediction.one_time.as_ref();
    html! {
        @if let Some(advice) = &answer.advice {
            p class="lead" { strong { (action_words(advice.action)) } " " (answer.headline) }
            @if let Some(sentence) = &advice.sentence { p { (sentence) } }
            dl class="answers" {
                @for remedy in &remedies { dt { "Narrower" } dd { (remedy) } }
                dt { "Decides" }
                dd { (advice.decides) }
                dt { "Rule" }
                dd { (advice.rule) }
                @if let Some(reason) = &answer.reason { dt { "Why" } dd { (reason) } }
                @if let Some(way) = bill.and_then(route_words) { dt { "Way" } dd { (way) } }
            }
        } @else {
            p class="lead" { (answer.headline) }
            @for remedy in &remedies { p { "Narrower: " (remedy) } }
            @if let Some(reason) = &answer.reason { p { (reason) } }
        }
    }
}

fn figures(prediction: &PredictionRecord) -> Markup {
    html! {
        @for answer in &prediction.answers {
            h3 { code { (answer.setting) " = " (answer.value) } }
            div class="scroll" role="region" tabindex="0"
                aria-label={ "Figures for " (answer.setting) " = " (answer.value) } {
                table class="names close" {
                    thead { tr {
                        th scope="col" { "figure" }
                        @for title in &HEAD[1..] { th scope="col" { (title) } }
                    } }
                    tbody { @for row in rows(answer) { tr {
                        th scope="row" { (row[0].trim()) }
                        @for cell in &row[1..] { td { (cell) } }
                    } } }
                }
            }
            @if let Some(wal) = &answer.wal { p class="small" { "WAL by: " (basis_words(wal)) "." } }
            @if let Some(cpu) = &answer.cpu {
                p class="small" { "Verified by: " (cpu.payer) "." }
            }
        }
    }
}

fn once(prediction: &PredictionRecord) -> Markup {
    let Some(bill) = &prediction.one_time else { return html! {} };
    html! {
        @for line in bill_lines(bill) { p { (line) } }
        h3 { "Ways, and how long the server is away" }
        ul { @for route in &bill.routes { li {
            @if let Some(why) = &route.recommended { strong { "Recommended, as " (why) ": " } }
            (route.name) ": " (route.away)
            @if !route.steps.is_empty() {
                ol { @for step in &route.steps { li { (step) } } }
            }
        } } }
        (listed("Afterwards", &bill.afterwards))
        (listed("What is not noticed without checksums, and with them", &bill.undetected))
    }
}

fn listed(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h3 { (title) }
            ul { @for line in lines { li { (line) } } }
        }
    }
}

fn checked(prediction: &PredictionRecord) -> Markup {
    html! { ul { @for line in check_lines(&prediction.checks) { li { (line) } } } }
}

fn windows(record: &PredictionRecord) -> Markup {
    let number = |count: Option<u64>| {
        count.map_or_else(|| "-".to_owned(), |prediction| prediction.to_string())
    };
    html! {
        div class="scroll" role="region" aria-label="Windows" tabindex="0" {
            table class="names close" {
                thead { tr {
                    @for title in ["began", "seconds", "whole cycle", "WAL bytes", "images",
                        "blocks read", "by checkpoints", "evicted", "dirty", "by hints alone"] {
                        th scope="col" { (title) }
                    }
                } }
                tbody { @for window in &record.watch.windows { tr {
                    th scope="row" { (window.began) }
                    td { (format!("{:.1}", window.seconds)) }
                    td { (if window.is_cycle { "yes" } else { "no" }) }
                    td { (window.wal_bytes) }
                    td { (number(window.wal_images)) }
                    td { (window.blocks_read) }
                    td { (window.blocks_checkpointed) }
                    td { (window.blocks_evicted) }
                    td { (number(window.census.as_ref().map(|census| census.dirty))) }
                    td { (number(window.census.as_ref().map(|census| census.hint_only))) }
                } } }
            }
        }
    }
}

fn seen(prediction: &PredictionRecord) -> Markup {
    html! {
        ul { @for line in seen_lines(prediction) { li { (line) } } }
        @if !prediction.notes.is_empty() { ul { @for note in &prediction.notes { li { (note) } } } }
    }
}

fn again_section(prediction: &PredictionRecord) -> Markup {
    let json = serde_json::to_string(prediction).unwrap_or_default();
    html! {
        p { "The command that watches again:" }
        pre { code { (prediction.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "prediction.json", &json))
    }
}
