//! Pictures of WAL over time, and of images after checkpoints.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use pgtoll_record::{CycleBegin, WalCycle, WalKind, WalStatisticsRecord};

use super::pieces::{OfKinds, WalSeries, distance, of_piece, origin, place, total};
use super::{colour, is_image, title_of_kind};
use crate::html::swatch;
use crate::plot::{
    Drawing, Frame, Layer, Scale, Unit, Width, Words, arrows, figure, n, stacked, text,
};
use crate::wal_numbers::{formatted, moment, rate, size_of, span};

/// Returns the title of the first picture.
pub(super) fn title(statistics: &WalStatisticsRecord) -> &'static str {
    if WalSeries::over_time(statistics).is_some() {
        "The rate over time"
    } else {
        "What it consists of"
    }
}

/// Bytes a second, where times are known; else what the WAL consists of from its beginning to its
/// end.
pub(super) fn over_time(statistics: &WalStatisticsRecord) -> Markup {
    if let Some(course) = WalSeries::over_time(statistics) {
        return rates(statistics, &course);
    }
    let course = WalSeries::over_position(statistics);
    course.map_or_else(|| html! { p { (NOTHING) } }, |course| composition(statistics, &course))
}

const NOTHING: &str = "There is too little WAL for a picture.";

/// Bins of a picture: each is a few pixels wide.
fn bins(width: Width) -> usize {
    match width {
        Width::Wide => 240,
        Width::Narrow => 110,
    }
}

fn rates(statistics: &WalStatisticsRecord, course: &WalSeries) -> Markup {
    let (from, to) = course.ends();
    let highest = highest(course);
    let words = Words {
        id: "rate".to_owned(),
        title: "Bytes of WAL a second, by kind",
        description: format!(
            "From {} to {}. {highest}. {}",
            time(from, SECONDS),
            time(to, SECONDS),
            means(statistics)
        ),
        caption: html! {
            h3 { "Bytes a second, by kind" }
            p { (highest) ". Hatched: full-page images. Arrows: redo points of checkpoints." }
        },
    };
    html! {
        (figure(&words, |width| {
            let rates = per_second(course, bins(width));
            let (peak, most) = peak_and_most(&rates);
            let days = days(from, to);
            let title = format!("the same, only up to {}", rate(most));
            let frame = |high: f64, title, x_title| Frame {
                x: Scale::linear([from, to], Unit::Time),
                y: Scale::linear([0.0, high], Unit::BytesPerSecond),
                title,
                margin: 0.0,
                x_title,
                x_ticks: if width.is_narrow() { 4 } else { 8 },
                y_ticks: 5,
            };
            let frames = if peak > most * APART {
                vec![frame(peak * 1.05, "", ""), frame(most, &title, &days)]
            } else {
                vec![frame(peak * 1.05, "", &days)]
            };
            let layers = layers(statistics, &rates, &WalKind::ALL, true);
            drawing(frames, &layers, &begins_in_time(statistics), None, width)
        }))
        (legend(statistics, &WalKind::ALL, true))
        p class="small quiet" {
            "Times are those of commits. Between two of them bytes are spread evenly."
            @if course.before > 0.0 {
                " What came before the first commit, " (size_of(course.before)) ", is not in the \
                 picture."
            }
        }
    }
}

/// A rate this many times what most are presses the others down: they are shown for themselves too.
const APART: f64 = 4.0;

/// The highest rate, and one that nearly all do not exceed, with some room above it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bins are few"
)]
fn peak_and_most(rates: &[OfKinds]) -> (f64, f64) {
    let mut sorted: Vec<f64> = rates.iter().map(total).filter(|item| *item > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let peak = sorted.last().copied().unwrap_or(0.0);
    let most = sorted.get((sorted.len() as f64 * 0.95) as usize).copied().unwrap_or(peak);
    (peak, most * 1.2)
}

/// In words: how high, and when.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bins are few, and a bin is shorter than the age of the calendar"
)]
fn highest(course: &WalSeries) -> String {
    let count = bins(Width::Wide);
    let rates = per_second(course, count);
    let all = rates.iter().map(total).enumerate();
    let (bin, highest) =
        all.fold((0, 0.0), |highest, item| if item.1 > highest.1 { item } else { highest });
    let (from, to) = course.ends();
    let wide = (to - from) / count as f64;
    let at = time(from + wide * (bin as f64 + 0.5), SECONDS);
    let wide = span(Duration::from_micros(wide as u64));
    format!("Highest, over {wide}: {} at {at}", rate(highest))
}

/// Each bin's bytes by its seconds.
#[expect(clippy::cast_precision_loss, reason = "bins are few")]
fn per_second(course: &WalSeries, count: usize) -> Vec<OfKinds> {
    let (from, to) = course.ends();
    let seconds = (to - from) / 1e6 / count as f64;
    course.binned(count).into_iter().map(|binned| binned.map(|bytes| bytes / seconds)).collect()
}

/// Each bin's kinds in per cent of it.
fn shares(course: &WalSeries, count: usize) -> Vec<OfKinds> {
    let of_bin = |kinds: OfKinds| {
        let all = total(&kinds);
        kinds.map(|bytes| if all > 0.0 { bytes / all * 100.0 } else { 0.0 })
    };
    course.binned(count).into_iter().map(of_bin).collect()
}

fn composition(statistics: &WalStatisticsRecord, course: &WalSeries) -> Markup {
    let words = Words {
        id: "composition".to_owned(),
        title: "What the WAL consists of, from its beginning to its end",
        description: means(statistics),
        caption: html! {
            h3 { "Share of each kind, from the beginning to the end" }
            p { "No two commits with a time are in this WAL, so nothing is known of rates. \
                 Hatched: full-page images. Arrows: redo points of checkpoints." }
        },
    };
    html! {
        (figure(&words, |width| {
            let shares = shares(course, bins(width));
            let layers = layers(statistics, &shares, &WalKind::ALL, true);
            drawing(vec![by_position(course, width)], &layers, &begins(statistics), Some(statistics), width)
        }))
        (legend(statistics, &WalKind::ALL, true))
    }
}

/// The images' share, over the position in WAL: high after each checkpoint's redo point, and lower
/// the longer ago that is.
pub(super) fn over_position(statistics: &WalStatisticsRecord) -> Markup {
    let Some(course) = WalSeries::over_position(statistics) else {
        return html! { p { (NOTHING) } };
    };
    let words = Words {
        id: "sawtooth".to_owned(),
        title: "The share of full-page images, over the position in the WAL",
        description: means(statistics),
        caption: html! {
            h3 { "Images’ share of all bytes, over the position in the WAL" }
            p { "Arrows: redo points of checkpoints." }
        },
    };
    html! {
        p {
            "After a checkpoint’s redo point, the first change of each page brings an image of \
             the whole page into the WAL. The more pages have theirs, the rarer images become, \
             while the work stays the same, until the next checkpoint."
        }
        (figure(&words, |width| {
            let shares = shares(&course, bins(width));
            let layers = layers(statistics, &shares, &AFTER_CHECKPOINTS, false);
            drawing(vec![by_position(&course, width)], &layers, &begins(statistics), Some(statistics), width)
        }))
        (legend(statistics, &AFTER_CHECKPOINTS, false))
    }
}

const AFTER_CHECKPOINTS: [WalKind; 2] = [WalKind::FirstTouch, WalKind::Hint];

fn of_kind(kinds: &OfKinds, kind: WalKind) -> f64 {
    WalKind::ALL.iter().zip(kinds).filter(|(its, _)| **its == kind).map(|(_, value)| value).sum()
}

/// `hatched`: images are, so that they can be told from other records.
fn layers(
    statistics: &WalStatisticsRecord,
    bins: &[OfKinds],
    kinds: &[WalKind],
    hatched: bool,
) -> Vec<Layer> {
    let layers = kinds.iter().map(|kind| Layer {
        kind: colour(*kind),
        hatched: hatched && is_image(*kind),
        values: bins.iter().map(|bin| of_kind(bin, *kind)).collect(),
        tooltip: format!("{}: {}", title_of_kind(*kind), share(statistics, *kind)),
    });
    layers.collect()
}

/// A kind's share of all that is in the pieces.
fn share(statistics: &WalStatisticsRecord, kind: WalKind) -> String {
    let (own, all) =
        statistics.pieces.iter().map(of_piece).fold((0.0, 0.0), |(own, all), piece| {
            (own + of_kind(&piece, kind), all + total(&piece))
        });
    match own / all * 100.0 {
        percent if percent > 0.0 && percent < 0.05 => "<0.1 %".to_owned(),
        percent if percent > 0.0 => format!("{percent:.1} %"),
        _ => NONE.to_owned(),
    }
}

const NONE: &str = "0 %";

fn means(statistics: &WalStatisticsRecord) -> String {
    let all = shown(statistics, &WalKind::ALL);
    let all = all.map(|(kind, share)| format!("{}: {share}", title_of_kind(kind)));
    format!("Shares of the whole: {}.", all.collect::<Vec<_>>().join("; "))
}

/// Kinds with their shares of the whole; what is not there is left out.
fn shown<'a>(
    statistics: &'a WalStatisticsRecord,
    kinds: &'a [WalKind],
) -> impl Iterator<Item = (WalKind, String)> + 'a {
    kinds.iter().map(|kind| (*kind, share(statistics, *kind))).filter(|(_, share)| share != NONE)
}

fn legend(statistics: &WalStatisticsRecord, kinds: &[WalKind], hatched: bool) -> Markup {
    html! {
        ul class="legend" {
            @for (kind, share) in shown(statistics, kinds) {
                li { (swatch(colour(kind), hatched && is_image(kind))) (title_of_kind(kind)) " " (share) }
            }
        }
    }
}

fn by_position(course: &WalSeries, width: Width) -> Frame<'static> {
    let (from, to) = course.ends();
    Frame {
        x: Scale::linear([from, to], Unit::Bytes),
        y: Scale::linear([0.0, 100.0], Unit::Percent),
        title: "",
        margin: 0.0,
        x_title: "",
        x_ticks: if width.is_narrow() { 4 } else { 8 },
        y_ticks: 5,
    }
}

/// The same layers in each frame, one below the other. `positions`: with the LSNs at both ends of
/// the x axis.
fn drawing(
    frames: Vec<Frame<'_>>,
    layers: &[Layer],
    redo_points: &[(f64, String)],
    positions: Option<&WalStatisticsRecord>,
    width: Width,
) -> Drawing {
    let left = 66.0;
    let right = width.units() - 6.0;
    let high = if width.is_narrow() { 180.0 } else { 240.0 };
    let mut top = 12.0;
    let mut bottom = 0.0;
    let mut drawn = Vec::new();
    for frame in frames {
        bottom = top + high;
        let x = frame.x.between(left, right);
        let y = frame.y.between(bottom, top);
        let frame = Frame { x, y, ..frame };
        drawn.push(html! {
            (frame.axes())
            (stacked(&frame, layers))
            path class="axis" d={ "M" (n(left)) " " (n(bottom)) "H" (n(right)) } {}
            (arrows(&frame, redo_points))
        });
        top = bottom + BETWEEN;
    }
    let lsns = positions.map(|position| (origin(position), position.source.to));
    let marks = html! {
        @for frame in &drawn { (frame) }
        @if let Some((from, to)) = lsns {
            @if let Some(from) = from { (text(left, bottom + 34.0, "tick", &from.to_string())) }
            @if let Some(to) = to { (text(right, bottom + 34.0, "tick end", &to.to_string())) }
        }
    };
    Drawing { height: bottom + 40.0, marks }
}

/// From a frame's axis to the next frame: its ticks, and the title of the next.
const BETWEEN: f64 = 58.0;

/// Redo points that are in the WAL, on its own axis.
fn begins(statistics: &WalStatisticsRecord) -> Vec<(f64, String)> {
    let Some(origin) = origin(statistics) else { return Vec::new() };
    known(statistics).map(|cycle| (distance(origin, cycle.from), tooltip(cycle))).collect()
}

/// Redo points whose time is known.
fn begins_in_time(statistics: &WalStatisticsRecord) -> Vec<(f64, String)> {
    let at = |cycle: &WalCycle| {
        let time: Timestamp = cycle.began.as_deref()?.parse().ok()?;
        Some((place(time.as_microsecond())?, tooltip(cycle)))
    };
    known(statistics).filter_map(at).collect()
}

fn known(statistics: &WalStatisticsRecord) -> impl Iterator<Item = &WalCycle> {
    statistics.cycles.iter().filter(|cycle| cycle.began_by != CycleBegin::Unknown)
}

fn tooltip(cycle: &WalCycle) -> String {
    let kind = match cycle.began_by {
        CycleBegin::Shutdown => "redo point of a shutdown’s checkpoint",
        CycleBegin::Online | CycleBegin::Unknown => "redo point of a checkpoint",
    };
    let began = cycle.began.as_ref().map(|began| format!(", {}", moment(began)));
    format!("{kind}: {}{}", cycle.from, began.unwrap_or_default())
}

const SECONDS: &str = "%Y-%m-%d %H:%M:%S UTC";
const DAY: &str = "%Y-%m-%d";

fn time(microseconds: f64, form: &str) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "it was a time before")]
    let time = Timestamp::from_microsecond(microseconds as i64);
    time.map(|time| formatted(time, form)).unwrap_or_default()
}

/// Returns the days of the axis.
fn days(from: f64, to: f64) -> String {
    let first = time(from, DAY);
    let last = time(to, DAY);
    if first == last { format!("UTC, {first}") } else { format!("UTC, {first} to {last}") }
}
