//! Stacked areas in steps, over a frame.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::plot::{Frame, Scale, n};

/// A layer of a stack: a value for each bin. All bins are equally wide, and fill the frame.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The colour: the same for the same kind elsewhere.
    pub(crate) kind: usize,
    /// Hatched besides.
    pub(crate) hatched: bool,
    /// Negative values, and what is no number, are drawn as zero.
    pub(crate) values: Vec<f64>,
    pub(crate) tooltip: String,
}

/// Layers one above the other, the first at the bottom.
pub(crate) fn stacked(frame: &Frame<'_>, layers: &[Layer]) -> Markup {
    let bins = layers.iter().map(|layer| layer.values.len()).max().unwrap_or(0);
    let mut below = vec![0.0; bins];
    let mut drawn: Vec<(&Layer, String)> = Vec::new();
    for layer in layers {
        let above: Vec<f64> = below
            .iter()
            .zip(layer.values.iter().chain(std::iter::repeat(&0.0)))
            .map(|(below, value)| below + if *value > 0.0 { *value } else { 0.0 })
            .collect();
        // A layer without anything would be a line of its edges.
        if above != below {
            drawn.push((layer, area(frame, &below, &above)));
        }
        below = above;
    }
    html! {
        @for (layer, path) in &drawn {
            path class={ "part p" (layer.kind) } d=(path) { title { (layer.tooltip) } }
            @if layer.hatched {
                path class="hatch" d=(path) { title { (layer.tooltip) } }
            }
        }
    }
}

/// The outline of what lies between two rows of values: from left to right along the upper, and
/// back along the lower.
fn area(frame: &Frame<'_>, below: &[f64], above: &[f64]) -> String {
    let (left, right) = frame.x.ends();
    let edges = edges(below.len(), left, right);
    let mut path = format!("M{} {}", n(left), n(frame.y.at(first(below))));
    let upper = above.iter().zip(edges.windows(2).map(|edge| edge[1]));
    push(&mut path, frame, upper);
    let lower = below.iter().rev().zip(edges.windows(2).rev().map(|edge| edge[0]));
    push(&mut path, frame, lower);
    path.push('Z');
    path
}

/// Up or down to each value, and along to the end of its bin. Neighbours at one height are one.
fn push<'a>(
    path: &mut String,
    frame: &Frame<'_>,
    steps: impl DoubleEndedIterator<Item = (&'a f64, f64)>,
) {
    let mut along: Option<(String, f64)> = None;
    for (value, to) in steps {
        let height = n(frame.y.at(*value));
        match &mut along {
            Some((same, end)) if *same == height => *end = to,
            _ => {
                if let Some((_, end)) = along.replace((height.clone(), to)) {
                    let _ = write!(path, "H{}", n(end));
                }
                let _ = write!(path, "V{height}");
            }
        }
    }
    if let Some((_, end)) = along {
        let _ = write!(path, "H{}", n(end));
    }
}

#[expect(clippy::cast_precision_loss, reason = "bins are few")]
fn edges(bins: usize, left: f64, right: f64) -> Vec<f64> {
    let wide = (right - left) / bins.max(1) as f64;
    (0..=bins).map(|index| left + wide * index as f64).collect()
}

fn first(values: &[f64]) -> f64 {
    values.first().copied().unwrap_or(0.0)
}

/// Small arrows on top of the frame that point at places on its x axis; where they are many, lines
/// instead. Few of them also have a line down to the axis.
pub(crate) fn arrows(frame: &Frame<'_>, at: &[(f64, String)]) -> Markup {
    let (bottom, top) = frame.y.ends();
    arrows_below(&frame.x, top, bottom, at)
}

/// The same over an axis alone, between two heights.
pub(crate) fn arrows_below(scale: &Scale, top: f64, bottom: f64, at: &[(f64, String)]) -> Markup {
    let (left, right) = scale.ends();
    let mut places: Vec<(f64, &str)> = Vec::new();
    for (value, tooltip) in at.iter().filter(|(value, _)| scale.has(*value)) {
        let x = scale.at(*value);
        // One stands for those that would be drawn upon it.
        if places.last().is_none_or(|(last, _)| (x - last).abs() >= LEAST) {
            places.push((x, tooltip));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "not more than pixels")]
    let apart = (right - left) / places.len().max(1) as f64;
    html! {
        @for (x, tooltip) in &places {
            @if apart < FOR_ARROWS {
                path class="arrow-line" d={ "M" (n(*x)) " " (n(top - 8.0)) "V" (n(top - 2.0)) } {
                    title { (tooltip) }
                }
            } @else {
                path class="arrow" d={ "M" (n(x - 3.5)) " " (n(top - 8.0)) "H" (n(x + 3.5)) "L" (n(*x))
                    " " (n(top - 2.0)) "Z" } { title { (tooltip) } }
            }
            @if apart >= FOR_LINES {
                path class="arrow-line dotted"
                    d={ "M" (n(*x)) " " (n(top - 2.0)) "V" (n(bottom)) } {}
            }
        }
    }
}

/// At least so far apart is what stands on top of a frame.
const LEAST: f64 = 2.0;
/// So far apart they must be in the mean to be arrows, and to have lines.
const FOR_ARROWS: f64 = 9.0;
const FOR_LINES: f64 = 12.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plot::Unit;

    fn frame() -> Frame<'static> {
        Frame {
            x: Scale::linear([0.0, 4.0], Unit::Plain).between(10.0, 50.0),
            y: Scale::linear([0.0, 10.0], Unit::Plain).between(100.0, 0.0),
            title: "",
            margin: 0.0,
            x_title: "",
            x_ticks: 0,
            y_ticks: 0,
        }
    }

    fn layer(kind: usize, values: &[f64]) -> Layer {
        Layer { kind, hatched: false, values: values.to_vec(), tooltip: String::new() }
    }

    #[test]
    fn a_layer_stands_on_those_below_it() {
        let layers = [layer(0, &[1.0, 1.0, 3.0, 0.0]), layer(1, &[0.0; 4]), layer(2, &[2.0; 4])];
        let drawn = stacked(&frame(), &layers).into_string();
        assert!(drawn.contains("p0\" d=\"M10 100V90H30V70H40V100H50V100H10Z\""), "{drawn}");
        assert!(!drawn.contains("p1"), "{drawn}");
        assert!(
            drawn.contains("p2\" d=\"M10 90V70H30V50H40V80H50V100H40V70H30V90H10Z\""),
            "{drawn}"
        );
    }

    #[test]
    fn arrows_at_one_place_are_one() {
        let at: Vec<(f64, String)> =
            [1.0, 1.001, 2.0, 9.0].map(|value| (value, value.to_string())).to_vec();
        let drawn = arrows(&frame(), &at).into_string();
        assert_eq!(drawn.matches("class=\"arrow\"").count(), 2);
    }

    proptest! {
        #[test]
        fn any_values_stay_within_the_frame(
            values in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..40), 0..7),
        ) {
            let layers: Vec<Layer> =
                values.iter().enumerate().map(|(kind, values)| layer(kind, values)).collect();
            let drawn = stacked(&frame(), &layers).into_string();
            for path in drawn.split(" d=\"").skip(1) {
                let path = path.split('"').next().unwrap_or_default();
                let mut letter = 'M';
                for part in path.split_inclusive(|character: char| character.is_ascii_alphabetic()) {
                    for number in part.trim_end_matches(|character: char| character.is_ascii_alphabetic())
                        .split_whitespace()
                    {
                        let number: f64 = number.parse().unwrap();
                        let most = if letter == 'H' { 50.0 } else { 100.0 };
                        prop_assert!((0.0..=most).contains(&number), "{path}");
                    }
                    letter = part.chars().last().unwrap_or(letter);
                }
            }
        }
    }
}
