//! The plot kit: every picture that pgtoll makes, as SVG in the page. No script, no colour of its
//! own: a picture's elements have classes, and the page's style says what they look like by day,
//! by night and on paper.
//!
//! A figure is drawn twice, for wide and for narrow windows, because a picture that is scaled
//! down has text too small to be read. The page's style shows one of them.

mod bars;
mod forest;
mod frame;
mod look;
mod scale;
mod stacked;
mod time;

use maud::{Markup, html};

pub(crate) use bars::{Bar, Part, bars};
pub(crate) use forest::{ForestGroup, ForestRow, forest, forest_up_to};
pub(crate) use frame::Frame;
pub(crate) use look::{Look, legend};
pub(crate) use scale::{Scale, Unit, latency};
pub(crate) use stacked::{Layer, arrows, arrows_below, stacked};

/// The width of a figure's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// For windows from a tablet's on, and for paper.
    Wide,
    /// For phones.
    Narrow,
}

impl Width {
    /// In user units, each about a pixel.
    pub(crate) fn units(self) -> f64 {
        match self {
            Self::Wide => 976.0,
            Self::Narrow => 330.0,
        }
    }

    pub(crate) fn is_narrow(self) -> bool {
        self == Self::Narrow
    }
}

/// A drawing and its height.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) height: f64,
    pub(crate) marks: Markup,
}

/// The words of a figure.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    /// Its name in the page, of letters, digits and `-`.
    pub(crate) id: String,
    /// The title for screen readers.
    pub(crate) title: &'a str,
    /// The description for screen readers.
    pub(crate) description: String,
    /// The caption.
    pub(crate) caption: Markup,
}

/// A figure with its caption and both drawings.
pub(crate) fn figure(words: &Words<'_>, draw: impl Fn(Width) -> Drawing) -> Markup {
    html! {
        figure role="group" aria-labelledby={ (words.id) "-caption" } {
            figcaption id={ (words.id) "-caption" } { (words.caption) }
            @for (width, class) in [(Width::Wide, "wide"), (Width::Narrow, "narrow")] {
                (svg(words, width, class, &draw(width)))
            }
        }
    }
}

fn svg(words: &Words<'_>, width: Width, class: &str, drawing: &Drawing) -> Markup {
    let title = format!("{}-{class}-title", words.id);
    let description = format!("{}-{class}-text", words.id);
    html! {
        svg class=(class) role="img" aria-labelledby={ (title) " " (description) }
            viewBox={ "0 0 " (n(width.units())) " " (n(drawing.height)) } {
            title id=(title) { (words.title) }
            desc id=(description) { (words.description) }
            (drawing.marks)
        }
    }
}

/// A coordinate: a tenth of a pixel is more than anybody sees. What is no number is drawn at 0.
pub(crate) fn n(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// An axis of numbers below a picture, with its ticks.
pub(crate) fn time_axis(scale: &Scale, width: Width, y: f64) -> Markup {
    let (left, right) = scale.ends();
    html! {
        path class="axis" d={ "M" (n(left)) " " (n(y)) "H" (n(right)) } {}
        (frame::x_ticks(scale, if width.is_narrow() { 4 } else { 8 }, y))
    }
}

/// Text at a place; the class says how it looks and is aligned.
pub(crate) fn text(x: f64, y: f64, class: &str, words: &str) -> Markup {
    html! { text x=(n(x)) y=(n(y)) class=(class) { (words) } }
}

/// As many characters as fit into `units`, with an ellipsis where some are left out. Letters are counted
/// a little wider than most are, and digits wider still, since nothing may leave the picture.
pub(crate) fn fitting(words: &str, units: f64) -> String {
    let width = |c: char| if c.is_ascii_digit() { DIGIT } else { LETTER };
    if words.chars().map(width).sum::<f64>() <= units {
        return words.to_owned();
    }
    let mut left = units - LETTER;
    let fits = |c: &char| {
        left -= width(*c);
        left >= 0.0
    };
    words.chars().take_while(fits).chain(['…']).collect()
}

const LETTER: f64 = 7.6;
const DIGIT: f64 = 8.3;

/// At most how wide a tick's label is, in units.
#[expect(clippy::cast_precision_loss, reason = "labels are short")]
pub(crate) fn width_of(label: &str) -> f64 {
    label.chars().count() as f64 * TICK_LETTER
}

const TICK_LETTER: f64 = 7.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_always_numbers() {
        let written = [1.0, 1.26, -0.04, f64::NAN, f64::INFINITY].map(n);
        assert_eq!(written, ["1", "1.3", "0", "0", "0"]);
    }

    #[test]
    fn what_does_not_fit_ends_in_an_ellipsis() {
        assert_eq!(fitting("checksums", 100.0), "checksums");
        assert_eq!(fitting("checksums", 40.0), "chec…");
    }
}
