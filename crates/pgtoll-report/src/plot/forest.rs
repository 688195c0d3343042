//! The forest plot: a row for each estimate, with its interval.

use maud::{Markup, html};

use crate::plot::frame::x_ticks;
use crate::plot::{Drawing, Look, Scale, Unit, Width, fitting, n, text};

/// Rows of one figure, which are judged by the same null band.
#[derive(Debug)]
pub(crate) struct ForestGroup {
    pub(crate) title: String,
    /// Left of zero is the bad side.
    pub(crate) less_is_worse: bool,
    pub(crate) rows: Vec<ForestRow>,
}

/// An estimate with its interval, in per cent.
#[derive(Debug)]
pub(crate) struct ForestRow {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) estimate: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    /// It shows what chance does, as a band behind the others.
    pub(crate) null: bool,
    /// The interval does not cover zero.
    pub(crate) stands_out: bool,
    /// In words.
    pub(crate) value: String,
}

/// All groups over one axis.
pub(crate) fn forest(groups: &[ForestGroup], width: Width) -> Drawing {
    forest_up_to(groups, width, MOST)
}

/// All groups over one axis that ends at `most` per cent, or before: where things of all kinds
/// stand together, the largest must not make the others too small to be seen.
pub(crate) fn forest_up_to(groups: &[ForestGroup], width: Width, most: f64) -> Drawing {
    let layout = Layout::from_width(width);
    let bounds = groups.iter().flat_map(|group| &group.rows).flat_map(|row| [row.lower, row.upper]);
    let within = bounds.filter(|bound| bound.is_finite()).map(|bound| bound.clamp(LEAST, most));
    let scale = Scale::linear(within.chain([0.0]), Unit::SignedPercent)
        .padded(0.04)
        .between(layout.left, layout.right);
    let mut height = 0.0;
    let mut drawn = Vec::new();
    for group in groups {
        drawn.push(group_marks(group, &scale, &layout, height));
        height += layout.head + layout.rows(group) + GAP;
    }
    let marks = html! {
        @for group in &drawn { (group) }
        (axis(&scale, width, height))
    };
    Drawing { height: height + 24.0, marks }
}

/// The smallest ratio, in per cent.
const LEAST: f64 = -100.0;
const MOST: f64 = 1000.0;
const GAP: f64 = 12.0;

struct Layout {
    left: f64,
    right: f64,
    head: f64,
    row: f64,
    /// From a row's top to its bar, and to the line of its words.
    bar: f64,
    words: f64,
    narrow: bool,
}

impl Layout {
    fn rows(&self, group: &ForestGroup) -> f64 {
        self.row * f64::from(u32::try_from(group.rows.len()).unwrap_or(0))
    }

    fn from_width(width: Width) -> Self {
        let units = width.units();
        match width {
            Width::Wide => Self {
                left: 190.0,
                right: units - 190.0,
                head: 28.0,
                row: 24.0,
                bar: 12.0,
                words: 16.5,
                narrow: false,
            },
            Width::Narrow => Self {
                left: 4.0,
                right: units - 4.0,
                head: 40.0,
                row: 44.0,
                bar: 31.0,
                words: 15.0,
                narrow: true,
            },
        }
    }
}

fn group_marks(group: &ForestGroup, scale: &Scale, layout: &Layout, top: f64) -> Markup {
    let Layout { left, right, head, row, narrow, .. } = *layout;
    let first = top + head;
    let height = layout.rows(group);
    // Where words stand above the bars, nothing lies behind the words.
    let stripes: Vec<(f64, f64)> = if narrow {
        (0..group.rows.len())
            .zip(0..)
            .map(|(_, index)| (first + row * f64::from(index) + layout.bar - 10.0, 20.0))
            .collect()
    } else {
        vec![(first, height)]
    };
    let zero = scale.at(0.0);
    let (from, to) = if group.less_is_worse { (left, zero) } else { (zero, right) };
    let band = null_band(group).map(|([lower, upper], tooltip)| {
        let from = scale.at(lower);
        let to = scale.at(upper);
        (from, to - from, tooltip)
    });
    let side = if group.less_is_worse { "← less is worse" } else { "more is worse →" };
    html! {
        (text(0.0, top + 17.0, "group", &fitting(&group.title, BOLD * (right - if narrow { 0.0 } else { 120.0 }))))
        (text(right, top + if narrow { 33.0 } else { 19.0 }, "side end", side))
        @for (y, high) in stripes {
            rect class="worse" x=(n(from)) y=(n(y)) width=(n(to - from)) height=(n(high)) {}
            @if let Some((x, wide, tooltip)) = &band {
                rect class="null-band" x=(n(*x)) y=(n(y)) width=(n(*wide)) height=(n(high)) {
                    title { (tooltip) }
                }
            }
            path class="zero" d={ "M" (n(zero)) " " (n(y)) "v" (n(high)) } {}
        }
        @for (index, item) in (0_u32..).zip(&group.rows) {
            (row_marks(item, scale, layout, first + row * f64::from(index)))
        }
    }
}

/// Returns the band of arms' copies, in per cent, and its name: as far to both sides, on the log
/// scale, as the farthest bound of theirs, since chance may go either way.
fn null_band(group: &ForestGroup) -> Option<([f64; 2], String)> {
    let reach = |row: &ForestRow| {
        let log = |bound: f64| (bound / 100.0).ln_1p().abs();
        log(row.lower).max(log(row.upper))
    };
    let nulls = group.rows.iter().filter(|row| row.null);
    let widest = nulls.max_by(|a, b| reach(a).total_cmp(&reach(b)))?;
    let bounds = [-reach(widest), reach(widest)].map(|log| log.exp_m1() * 100.0);
    Some((bounds, format!("null band: {}, {}", widest.name, widest.value)))
}

fn row_marks(row: &ForestRow, scale: &Scale, layout: &Layout, top: f64) -> Markup {
    let y = top + layout.bar;
    let words = top + layout.words;
    let from = scale.at(row.lower);
    let to = scale.at(row.upper);
    let tooltip = format!("{}: {}", row.name, row.value);
    let value_class = if row.stands_out { "value end strong" } else { "value end" };
    let (name_x, value_x) =
        if layout.narrow { (4.0, layout.right - 2.0) } else { (12.0, layout.right + 188.0) };
    html! {
        path class={ "interval " (row.look.class()) } d={ "M" (n(from)) " " (n(y)) "H" (n(to)) } {
            title { (tooltip) }
        }
        @for (bound, x, out) in [(row.lower, from, -1.0), (row.upper, to, 1.0)] {
            @if scale.has(bound) {
                path class={ "cap " (row.look.class()) } d={ "M" (n(x)) " " (n(y - 4.0)) "v8" } {}
            } @else {
                // It continues beyond the picture.
                path class={ "cap " (row.look.class()) }
                    d={ "M" (n(x - 5.0 * out)) " " (n(y - 4.0)) "l" (n(5.0 * out)) " 4l"
                        (n(-5.0 * out)) " 4" } {}
            }
        }
        (row.look.marker(scale.at(row.estimate), y, &tooltip))
        (text(name_x, words, if row.null { "name quiet" } else { "name" },
            &fitting(&row.name, 145.0)))
        (text(value_x, words, value_class, &row.value))
    }
}

fn axis(scale: &Scale, width: Width, bottom: f64) -> Markup {
    let (left, right) = scale.ends();
    let wanted = if width.is_narrow() { 4 } else { 7 };
    html! {
        path class="axis" d={ "M" (n(left)) " " (n(bottom)) "H" (n(right)) } {}
        (x_ticks(scale, wanted, bottom))
    }
}

/// The part of the room that bold letters may be given by what ordinary ones take.
const BOLD: f64 = 0.9;
