//! Claims, and what came of them.

use maud::{Markup, html};
use pgtoll_record::{Expectation, Expected, Outcome};

use crate::expectations::{bounds, claim, describe, explained, figure, found, link};

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
                        @for claim in *claims { (row(claim)) }
                    }
                }
            }
        }
    }
}

fn row(expected: &Expected) -> Markup {
    let expectation = &expected.expectation;
    let class = match expected.outcome {
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
                strong class=(class) { (describe(expected.outcome)) }
                @if let Some(why) = explained(expected) { br; span class="small quiet" { (why) } }
            }
            td { (bounds(expectation)) }
            td { (found(expected).unwrap_or_else(|| "–".to_owned())) }
            td { (source(expectation)) }
        }
    }
}

/// A link where it is one.
fn source(expectation: &Expectation) -> Markup {
    html! {
        @if let Some(url) = link(expectation) { a href=(url) { (expectation.source) } } @else { (expectation.source) }
    }
}
