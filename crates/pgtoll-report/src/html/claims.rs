//! Claims, and what came of them.

use maud::{Markup, html};
use pgtoll_record::{Expectation, Expected, Outcome};

use crate::expectations::{bounds, claim, explained, figure, found, link, words};

/// A row for each claim, below the name of what it is about where that has one.
pub(crate) fn table(groups: &[(String, &[Expected])]) -> Markup {
    html! {
        div class="scroll" role="region" aria-label="Table of claims" tabindex="0" {
            table class="words claims" {
                thead { tr {
                    @for title in ["claim", "outcome", "expected", "found", "source"] {
                        th scope="col" { (title) }
                    }
                } }
                @for (name, claims) in groups.iter().filter(|(_, claims)| !claims.is_empty()) {
                    tbody {
                        @if !name.is_empty() { tr { th scope="rowgroup" colspan="5" { (name) } } }
                        @for of in *claims { (row(of)) }
                    }
                }
            }
        }
    }
}

fn row(of: &Expected) -> Markup {
    let expectation = &of.expectation;
    let class = match of.outcome {
        Outcome::Holds => "gains",
        Outcome::DoesNotHold => "costs",
        Outcome::NotResolved | Outcome::NotMeasured => "",
    };
    html! {
        tr {
            th scope="row" {
                (claim(expectation))
                @if expectation.claim.is_some() { br; span class="small quiet" { (figure(expectation)) } }
            }
            td {
                strong class=(class) { (words(of.outcome)) }
                @if let Some(why) = explained(of) { br; span class="small quiet" { (why) } }
            }
            td { (bounds(expectation)) }
            td { (found(of).unwrap_or_else(|| "–".to_owned())) }
            td { (source(expectation)) }
        }
    }
}

/// A link where it is one.
fn source(of: &Expectation) -> Markup {
    html! {
        @if let Some(url) = link(of) { a href=(url) { (of.source) } } @else { (of.source) }
    }
}
