//! Stacked bars, one a series.

use maud::html;

use crate::plot::frame::x_ticks;
use crate::plot::{Drawing, Look, Scale, Unit, Width, fitting, n, text};

/// A bar with its parts.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) parts: Vec<Part>,
    /// The sum, in words.
    pub(crate) total: String,
}

/// A part of a bar.
#[derive(Debug)]
pub(crate) struct Part {
    /// The colour: the same for the same kind in other bars.
    pub(crate) kind: usize,
    /// Hatched besides.
    pub(crate) hatched: bool,
    pub(crate) value: f64,
    pub(crate) tooltip: String,
}

/// Bars over one axis that begins at zero.
pub(crate) fn bars(bars: &[Bar], unit: Unit, width: Width) -> Drawing {
    let narrow = width.is_narrow();
    let (left, right) = if narrow { (0.0, width.units()) } else { (150.0, width.units() - 110.0) };
    let (row, bar_top, words) = if narrow { (44.0, 20.0, 14.0) } else { (30.0, 4.0, 19.0) };
    let totals = bars.iter().map(|bar| bar.parts.iter().map(|part| part.value).sum());
    let scale = Scale::linear(totals.chain([0.0]), unit).between(left, right);
    let bottom = row * f64::from(u32::try_from(bars.len()).unwrap_or(0));
    let marks = html! {
        @for (index, bar) in bars.iter().enumerate() {
            @let top = row * f64::from(u32::try_from(index).unwrap_or(0));
            @if narrow {
                (text(14.0, top + words, "name", &fitting(&bar.name, 190.0)))
                (bar.look.marker(5.0, top + words - 5.0, ""))
                (text(right, top + words, "value end", &bar.total))
            } @else {
                (text(16.0, top + words, "name", &fitting(&bar.name, 130.0)))
                (bar.look.marker(5.0, top + words - 5.0, ""))
                (text(width.units(), top + words, "value end", &bar.total))
            }
            @for (begin, part) in stacked(&bar.parts) {
                @let from = scale.at(begin);
                @let to = scale.at(begin + part.value);
                @for class in [format!("part p{}", part.kind), "hatch".to_owned()] {
                    @if class != "hatch" || part.hatched {
                        rect class=(class) x=(n(from)) y=(n(top + bar_top))
                            width=(n((to - from).max(0.0))) height="20" {
                            title { (part.tooltip) }
                        }
                    }
                }
            }
        }
        path class="axis" d={ "M" (n(left)) " " (n(bottom + 2.0)) "H" (n(right)) } {}
        (x_ticks(&scale, if narrow { 3 } else { 6 }, bottom + 2.0))
    };
    Drawing { height: bottom + 26.0, marks }
}

/// Each part with the sum of those before it.
fn stacked(parts: &[Part]) -> impl Iterator<Item = (f64, &Part)> {
    parts.iter().scan(0.0, |sum, part| {
        let begin = *sum;
        *sum += part.value;
        Some((begin, part))
    })
}
