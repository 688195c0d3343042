//! Clients over time as a picture: a line each, served, waiting or an error, and events marked.

use maud::{Markup, html};
use pgtoll_record::ClientTimeline;

use super::swatch;
use crate::plot::{Drawing, Scale, Unit, Width, Words, arrows_below, figure, n, text};
use crate::text::seconds_text;

/// The picture, its legend, and the events as a list. `id` is the picture's on its page.
pub(crate) fn timeline(id: &str, timeline: &ClientTimeline) -> Markup {
    let shown = timeline.clients.len().min(CLIENTS_DRAWN);
    let events: Vec<String> = timeline
        .events
        .iter()
        .take(EVENTS_SHOWN)
        .map(|event| format!("{}: {}", seconds_text(event.at_s), event.what))
        .collect();
    let words = Words {
        id: id.to_owned(),
        title: "Clients over time",
        description: format!(
            "A line for each of {shown} clients: served, waiting or an error. Events: {}.",
            events.join("; ")
        ),
        caption: html! {
            h3 { "Clients over time" }
            p {
                "A line a client; " (seconds_text(timeline.bin_s)) " a step, which shows the worst that was in \
                it. Arrows mark events."
            }
        },
    };
    html! {
        (figure(&words, |width| drawing(timeline, shown, width)))
        ul class="legend" {
            @for (_, name, kind, hatched) in STATES {
                li { (swatch(kind, hatched)) (name) }
            }
        }
        ol { @for event in &events { li { (event) } } }
        @if timeline.clients.len() > shown {
            p class="small" { "Of " (timeline.clients.len()) " clients the first " (shown) " are drawn." }
        }
    }
}

/// A page of more would be nothing but lines.
const CLIENTS_DRAWN: usize = 64;
/// A run has about ten.
const EVENTS_SHOWN: usize = 200;

/// The names and colours of a client's letters.
const STATES: [(char, &str, usize, bool); 3] =
    [('s', "served", 2, false), ('w', "waiting", 4, false), ('e', "an error", 5, true)];

fn drawing(timeline: &ClientTimeline, shown: usize, width: Width) -> Drawing {
    let row = if shown > 24 { 10.0 } else { 18.0 };
    let left = 34.0;
    let right = width.units() - 8.0;
    let scale = Scale::linear([0.0, timeline.seconds.max(timeline.bin_s)], Unit::Plain)
        .between(left, right);
    let top = 16.0;
    let bottom = top + row * float(shown) + 2.0;
    let marks = html! {
        @for (number, line) in timeline.clients.iter().take(shown).enumerate() {
            @let y = top + row * float(number);
            @if shown <= 24 || number % 8 == 0 {
                (text(left - 6.0, y + row * 0.7, "tick end", &number.to_string()))
            }
            @for (state, from, to) in runs(line) {
                @let x = scale.at(timeline.bin_s * float(from));
                @let end = scale.at(timeline.bin_s * float(to));
                @for (letter, name, kind, hatched) in STATES {
                    @if letter == state {
                        (bar([x, y, end - x, row - 3.0], name, kind, hatched))
                    }
                }
            }
        }
        @let at: Vec<(f64, String)> = timeline.events.iter().take(EVENTS_SHOWN)
            .map(|event| (event.at_s, event.what.clone())).collect();
        (arrows_below(&scale, top - 2.0, bottom, &at))
        (crate::plot::time_axis(&scale, width, bottom))
        (text(right, bottom + 34.0, "tick end", "seconds from the begin"))
    };
    Drawing { height: bottom + 40.0, marks }
}

fn bar([x, y, width, height]: [f64; 4], name: &str, kind: usize, hatched: bool) -> Markup {
    html! {
        @for class in [format!("part p{kind}"), "hatch".to_owned()] {
            @if class != "hatch" || hatched {
                rect class=(class) x=(n(x)) y=(n(y)) width=(n(width.max(0.5))) height=(n(height)) {
                    title { (name) }
                }
            }
        }
    }
}

/// Bins with the same letter: the letter, the first bin, the one behind the last.
fn runs(line: &str) -> Vec<(char, usize, usize)> {
    let mut runs: Vec<(char, usize, usize)> = Vec::new();
    for (at, letter) in line.chars().take(LINE_MAX).enumerate() {
        match runs.last_mut() {
            Some((last, _, to)) if *last == letter => *to = at + 1,
            _ => runs.push((letter, at, at + 1)),
        }
    }
    runs
}

/// A record of pgtoll's has fewer bins.
const LINE_MAX: usize = 1000;

#[expect(clippy::cast_precision_loss, reason = "clients and bins are few")]
fn float(number: usize) -> f64 {
    number as f64
}
