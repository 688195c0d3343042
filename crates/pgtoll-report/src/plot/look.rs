//! The look of a series: it keeps a colour, a marker and a dash wherever it is drawn, and none of
//! them is needed to tell it from the others.
//! them is needed to tell it from the others.

use maud::{Markup, html};

use crate::plot::n;

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    shape: usize,
    /// `None`: it is not of interest for its own sake.
    colour: Option<usize>,
}

impl Look {
    /// Makes the look of the series at this place; the first is the baseline.
    pub(crate) fn from_index(index: usize) -> Self {
        Self { shape: index, colour: Some(index % COLOURS) }
    }

    /// Makes the look of a series that shows chance.
    pub(crate) fn grey(index: usize) -> Self {
        Self { shape: index, colour: None }
    }

    /// The same series where less is known of it.
    pub(crate) fn dashed(self) -> Self {
        Self { shape: 1, ..self }
    }

    /// The class that sets its colour.
    pub(crate) fn class(self) -> String {
        self.colour.map_or_else(|| "grey".to_owned(), |colour| format!("c{colour}"))
    }

    /// As `stroke-dasharray`.
    pub(crate) fn dash(self) -> &'static str {
        DASHES[self.shape % DASHES.len()]
    }

    /// A marker with a tooltip.
    pub(crate) fn marker(self, x: f64, y: f64, tooltip: &str) -> Markup {
        html! {
            path class={ "marker " (self.class()) } d=(self.outline(x, y)) {
                @if !tooltip.is_empty() { title { (tooltip) } }
            }
        }
    }

    fn outline(self, x: f64, y: f64) -> String {
        let x0 = n(x - 4.5);
        let x1 = n(x + 4.5);
        let y0 = n(y - 4.5);
        let y1 = n(y + 4.5);
        let x = n(x);
        let y = n(y);
        match self.shape % 5 {
            0 => format!("M{x0} {y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"),
            1 => format!("M{x0} {y1}L{x} {y0}L{x1} {y1}z"),
            2 => format!("M{x0} {y0}H{x1}V{y1}H{x0}z"),
            3 => format!("M{x0} {y}L{x} {y0}L{x1} {y}L{x} {y1}z"),
            _ => format!("M{x0} {y0}L{x} {y1}L{x1} {y0}z"),
        }
    }
}

const COLOURS: usize = 6;
const DASHES: [&str; 5] = ["none", "7 3", "2 3", "9 3 2 3", "4 2"];

/// Names with their looks, for the whole figure.
pub(crate) fn legend<'a>(series: impl IntoIterator<Item = (&'a str, Look)>) -> Markup {
    html! {
        ul class="legend" {
            @for (name, look) in series {
                li {
                    svg class="key" viewBox="0 0 34 14" aria-hidden="true" {
                        path class={ "line " (look.class()) } stroke-dasharray=(look.dash())
                            d="M1 7H33" {}
                        (look.marker(17.0, 7.0, ""))
                    }
                    (name)
                }
            }
        }
    }
}
