//! Who would pay, as tables of a page.

use maud::{Markup, html};
use pgtoll_estimate::percent_of_share;
use pgtoll_record::{PayerRanking, PredictionRecord};

use crate::payers::{
    calls_words, images_words, relation_name, relations_words, shares, statements_words,
};
use crate::prediction_numbers::cores;

/// Relations and statements, where they are known.
pub(crate) fn payers(of: &PredictionRecord) -> Markup {
    let Some(ranking) = &of.payers else { return html! {} };
    html! {
        @if !ranking.relations.is_empty() { (relations(ranking)) }
        @if !ranking.statements.is_empty() {
            p { (statements_words(ranking, of.watch.statements.as_ref())) }
            (statements(ranking))
        }
    }
}

fn relations(of: &PayerRanking) -> Markup {
    html! {
        p { (relations_words(of)) }
        div class="scroll" role="region" tabindex="0" aria-label="Relations by share" {
            table class="names close" {
                thead { tr {
                    @for title in ["relation", "share", "range", "pages looked at"] {
                        th scope="col" { (title) }
                    }
                } }
                tbody { @for relation in &of.relations { tr {
                    th scope="row" { (relation_name(relation)) }
                    @for cell in shares(relation) { td { (cell) } }
                    td { (relation.pages) }
                } } }
            }
        }
    }
}

fn statements(of: &PayerRanking) -> Markup {
    let has_text = of.statements.iter().any(|of| of.text.is_some());
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
                tbody { @for of in &of.statements { tr {
                    th scope="row" { (of.query_id) }
                    td { (of.database) }
                    td { (of.role) }
                    td { (percent_of_share(of.share)) }
                    td { (percent_of_share(of.cpu_share)) }
                    td { (cores(of.cpu_cores.lower)) " to " (cores(of.cpu_cores.upper)) }
                    td { (of.image_share.map_or_else(|| "-".to_owned(), percent_of_share)) }
                    td { (images_words(of)) }
                    td { (calls_words(of.calls_per_second)) }
                    @if has_text { td { code { (of.text.as_deref().unwrap_or_default()) } } }
                } } }
            }
        }
    }
}
