//! Relations and statements that would pay, as tables of a page.

use maud::{Markup, html};
use pgtoll_estimate::percent_of_share;
use pgtoll_record::{PayerRanking, PredictionRecord};

use crate::payers::{
    calls_words, images_words, relation_name, relations_words, shares, statements_words,
};
use crate::prediction_numbers::cores;

/// Relations and statements, where they are known.
pub(crate) fn payers(prediction: &PredictionRecord) -> Markup {
    let Some(ranking) = &prediction.payers else { return html! {} };
    html! {
        @if !ranking.relations.is_empty() { (relations(ranking)) }
        @if !ranking.statements.is_empty() {
            p { (statements_words(ranking, prediction.watch.statements.as_ref())) }
            (statements(ranking))
        }
    }
}

fn relations(ranking: &PayerRanking) -> Markup {
    html! {
        p { (relations_words(ranking)) }
        div class="scroll" role="region" tabindex="0" aria-label="Relations by share" {
            table class="names close" {
                thead { tr {
                    @for title in ["relation", "share", "range", "pages looked at"] {
                        th scope="col" { (title) }
                    }
                } }
                tbody { @for relation in &ranking.relations { tr {
                    th scope="row" { (relation_name(relation)) }
                    @for cell in shares(relation) { td { (cell) } }
                    td { (relation.pages) }
                } } }
            }
        }
    }
}

fn statements(ranking: &PayerRanking) -> Markup {
    let has_text = ranking.statements.iter().any(|statement| statement.text.is_some());
    let titles = [
        "query id",
        "database",
        "role",
        "share",
        "of the CPU",
        "cores",
        "of the images",
        "images",
        "calls",
    ];
    html! {
        div class="scroll" role="region" tabindex="0" aria-label="Statements by share" {
            table class="names close" {
                thead { tr {
                    @for title in titles { th scope="col" { (title) } }
                    @if has_text { th scope="col" { "text" } }
                } }
                tbody { @for statement in &ranking.statements { tr {
                    th scope="row" { (statement.query_id) }
                    td { (statement.database) }
                    td { (statement.role) }
                    td { (percent_of_share(statement.share)) }
                    td { (percent_of_share(statement.cpu_share)) }
                    td { (cores(statement.cpu_cores.lower)) " to " (cores(statement.cpu_cores.upper)) }
                    td { (statement.image_share.map_or_else(|| "-".to_owned(), percent_of_share)) }
                    td { (images_words(statement)) }
                    td { (calls_words(statement.calls_per_second)) }
                    @if has_text { td { code { (statement.text.as_deref().unwrap_or_default()) } } }
                } } }
            }
        }
    }
}
