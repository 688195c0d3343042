//! Axes, and what is drawn between them.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::plot::{Look, Scale, fitting, n, text, width_of};

/// A rectangle with two scales.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    /// Above the frame, at its left.
    pub(crate) title: &'a str,
    /// The start of its words, left of the frame.
    pub(crate) margin: f64,
    /// Below the x axis, at its right.
    pub(crate) x_title: &'a str,
    pub(crate) x_ticks: u32,
    pub(crate) y_ticks: u32,
}

impl Frame<'_> {
    /// The axes with ticks and grid, below whatever else is drawn.
    pub(crate) fn axes(&self) -> Markup {
        let (left, right) = self.x.ends();
        let (bottom, top) = self.y.ends();
        let width = right - left;
        html! {
            @if !self.title.is_empty() {
                (text(self.margin, top - 13.0, "panel", &fitting(self.title, right - self.margin)))
            }
            @for (value, label) in self.y.ticks(self.y_ticks) {
                @let y = self.y.at(value);
                path class="grid" d={ "M" (n(left)) " " (n(y)) "h" (n(width)) } {}
                (text(left - 6.0, y + 4.0, "tick end", &label))
            }
            path class="axis" d={ "M" (n(left)) " " (n(bottom)) "h" (n(width)) } {}
            (x_ticks(&self.x, self.x_ticks, bottom))
            @if !self.x_title.is_empty() {
                (text(right, bottom + 34.0, "tick end", &fitting(self.x_title, right)))
            }
        }
    }

    /// A line through points.
    pub(crate) fn line(&self, look: Look, points: &[(f64, f64)], tooltip: &str) -> Markup {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let letter = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{} {}", n(self.x.at(*x)), n(self.y.at(*y)));
        }
        html! {
            path class={ "line " (look.class()) } stroke-dasharray=(look.dash()) d=(path) {
                title { (tooltip) }
            }
        }
    }

    /// Values that hold for a while each: from, to, value. Wider lines lie below narrower ones, so
    /// that none hides another that has the same values.
    pub(crate) fn steps(
        &self,
        look: Look,
        stroke: f64,
        steps: &[(f64, f64, f64)],
        tooltip: &str,
    ) -> Markup {
        let mut path = String::new();
        let mut last: Option<f64> = None;
        for (from, to, value) in steps {
            let letter =
                if last.is_some_and(|last| (last - from).abs() < 1e-9) { 'L' } else { 'M' };
            let from = n(self.x.at(*from));
            let y = n(self.y.at(*value));
            let _ = write!(path, "{letter}{from} {y}H{}", n(self.x.at(*to)));
            last = Some(*to);
        }
        html! {
            path class={ "line " (look.class()) } stroke-dasharray=(look.dash())
                style={ "stroke-width:" (n(stroke)) } d=(path) {
                title { (tooltip) }
            }
        }
    }

    /// Ranges that hold for a while each: from, to, low, high. One path.
    pub(crate) fn band(
        &self,
        look: Look,
        ranges: &[(f64, f64, f64, f64)],
        tooltip: &str,
    ) -> Markup {
        let mut path = String::new();
        for (from, to, low, high) in ranges {
            let left = n(self.x.at(*from));
            let right = n(self.x.at(*to));
            let bottom = n(self.y.at(*low));
            let top = n(self.y.at(*high));
            let _ = write!(path, "M{left} {bottom}V{top}H{right}V{bottom}Z");
        }
        html! { path class={ "ribbon " (look.class()) } d=(path) { title { (tooltip) } } }
    }

    /// Many faint points, as one path.
    pub(crate) fn dust(&self, look: Look, points: &[(f64, f64)]) -> Markup {
        let few = if points.len() <= FEW { " few" } else { "" };
        let mut path = String::new();
        for (x, y) in points {
            let _ = write!(path, "M{} {}h0", n(self.x.at(*x)), n(self.y.at(*y)));
        }
        html! { path class={ "dust " (look.class()) (few) } d=(path) {} }
    }

    /// A band over the whole width, between two values.
    pub(crate) fn ribbon(&self, look: Look, low: f64, high: f64, tooltip: &str) -> Markup {
        let (left, right) = self.x.ends();
        let top = self.y.at(high);
        let bottom = self.y.at(low);
        html! {
            rect class={ "ribbon " (look.class()) } x=(n(left)) y=(n(top)) width=(n(right - left))
                height=(n((bottom - top).max(1.0))) { title { (tooltip) } }
        }
    }

    /// A line over the whole width.
    pub(crate) fn level(&self, class: &str, value: f64) -> Markup {
        let (left, right) = self.x.ends();
        html! {
            path class=(class)
                d={ "M" (n(left)) " " (n(self.y.at(value))) "H" (n(right)) } {}
        }
    }

    /// A line over the whole height.
    pub(crate) fn boundary(&self, value: f64) -> Markup {
        let (bottom, top) = self.y.ends();
        let x = self.x.at(value);
        html! { path class="boundary" d={ "M" (n(x)) " " (n(top)) "V" (n(bottom)) } {} }
    }

    /// Lines over the whole height between this many columns, which are one unit of x wide each. Of very
    /// many only some are drawn.
    pub(crate) fn boundaries(&self, columns: u32) -> Markup {
        let every = columns.div_ceil(BOUNDARIES).max(1);
        html! {
            @for column in (1..columns).step_by(every as usize) {
                (self.boundary(f64::from(column)))
            }
        }
    }
}

/// More are nearer to each other than a reader can see.
const BOUNDARIES: u32 = 300;

/// This many points need not be small.
const FEW: usize = 60;

impl Frame<'_> {
    /// Numbers below columns that are one unit of x wide each, from 1.
    pub(crate) fn columns(&self, count: u32) -> Markup {
        let (bottom, _) = self.y.ends();
        let every = count.div_ceil(12).max(1);
        html! {
            @for column in (1..=count).step_by(every as usize) {
                (text(self.x.at(f64::from(column) - 0.5), bottom + 17.0, "tick middle",
                    &column.to_string()))
            }
        }
    }
}

/// Ticks with labels below an axis at this height. A label that would touch the one before it is
/// left out; one that would leave the axis is moved inwards.
pub(crate) fn x_ticks(scale: &Scale, wanted: u32, y: f64) -> Markup {
    let (left, right) = scale.ends();
    let mut free_from = f64::NEG_INFINITY;
    let mut labels = Vec::new();
    for (value, label) in scale.ticks(wanted) {
        let x = scale.at(value);
        let width = width_of(&label);
        let (class, begin) = match x {
            x if x + width / 2.0 > right + 2.0 => ("tick end", x - width),
            x if x - width / 2.0 < left - 2.0 => ("tick", x),
            x => ("tick middle", x - width / 2.0),
        };
        if begin >= free_from {
            free_from = begin + width + MARGIN;
            labels.push((x, class, label));
        }
    }
    html! {
        @for (x, class, label) in &labels {
            path class="axis" d={ "M" (n(*x)) " " (n(y)) "v4" } {}
            (text(*x, y + 17.0, class, label))
        }
    }
}

/// How far labels have to stay from each other.
const MARGIN: f64 = 6.0;
