//! WAL under other settings as a page: the curve, the table, how sure it is.

use maud::{Markup, PreEscaped, html};
use pgtoll_format::ByteSize;
use pgtoll_record::{WalWhatIfRecord, WhatIfClass, WhatIfRow};

use super::circumstances::{Fact, facts};
use super::{Section, bodies, contents, download, inert, page};
use crate::plot::{Drawing, Frame, Look, Scale, Unit, Width, Words, figure, legend, text};
use crate::wal_short::left_out;
use crate::wal_whatif::{
    certain, check_words, is_guessed, mark, marks_of, nothing, share, size, span, title, unsure,
};

/// May be broken where the column is narrow.
const CHECKPOINTS: &str = "check&shy;points";

/// A what-if as one HTML file, with all that it needs inside. Whatever stands in the record is text
/// in it, never markup.
pub(crate) fn wal_whatif_html(record: &WalWhatIfRecord) -> String {
    let sections: [Section<'_>; 5] = [
        ("curve", "WAL and the distance of checkpoints", curve(record)),
        ("settings", "Settings", table(record)),
        ("trust", "How sure that is", trust(record)),
        ("source", "What was read", source(record)),
        ("again", "Again", again_section(record)),
    ];
    let main = html! {
        section id="answer" aria-labelledby="answer-heading" {
            h2 id="answer-heading" { "In short" }
            (in_short(record))
            (contents(&sections))
        }
        (bodies(&sections))
    };
    let title = html! { "WAL of PostgreSQL " (record.source.major) " with other settings, pgtoll" };
    let words = "Made by pgtoll from WAL that was already written.";
    page(&title, &heading(record), &main, words, &inert(record))
}

fn heading(record: &WalWhatIfRecord) -> Markup {
    let source = &record.source;
    html! {
        p class="quiet small" { "pgtoll wal whatif" }
        h1 { "How much WAL with other settings?" }
        p class="quiet" {
            "PostgreSQL " (source.major) ", " (size(record.bytes)) " of WAL"
            @if let (Some(from), Some(to)) = (source.from, source.to) { ", from " (from) " to " (to) }
            @if let Some(seconds) = record.seconds { ", made in " (span(seconds)) }
            "."
        }
        @if !source.gaps.is_empty() {
            p class="warning" role="note" {
                strong { "Not all was read" }
                ". All figures are of the longest stretch without a gap. Left out:"
            }
            ul class="small" { @for words in left_out(&source.gaps) { li { (words) } } }
        } @else if !record.end.kind.is_whole() {
            p class="warning" role="note" {
                strong { "Not all was read" }
                ": " (record.end.words.trim_end_matches('.')) ". This page covers the WAL before it."
            }
        }
    }
}

fn in_short(record: &WalWhatIfRecord) -> Markup {
    let Some(advice) = &record.recommendation else {
        return html! {
            p class="lead" { (nothing(record)) }
            @for words in [certain(record), unsure(record)].into_iter().flatten() { p { (words) } }
        };
    };
    html! {
        p class="lead" {
            "Recommended: "
            @for (place, line) in advice.settings.iter().enumerate() {
                @if place > 0 { ", " }
                code { (line) }
            }
            ". " (share(&advice.row, record)) " of today’s WAL."
        }
        dl class="answers" {
            dt { "Why" }
            dd { (advice.reason) "." }
            dt { "Price" }
            dd { (advice.price) "." }
            @if let Some(unsure) = unsure(record) {
                dt { "But" }
                dd { (unsure) }
            }
        }
    }
}

fn curve(record: &WalWhatIfRecord) -> Markup {
    if record.curve.len() < 3 {
        return html! { p { "There is too little WAL for a curve." } };
    }
    let knee = record.knee.and_then(|place| record.curve.get(place));
    let knee_words = knee.map_or_else(
        || "No knee is in sight: longer distances may save more".to_owned(),
        |row| {
            format!("The knee is at {}: twice the distance saves less than 5 % more", bytes_of(row))
        },
    );
    let words = Words {
        id: "distance".to_owned(),
        title: "WAL by max_wal_size",
        description: format!(
            "From {} at {} to {} at {}. {knee_words}.",
            size(record.curve[0].bytes),
            bytes_of(&record.curve[0]),
            record.curve.last().map_or_else(String::new, |row| size(row.bytes)),
            record.curve.last().map_or_else(String::new, bytes_of),
        ),
        caption: html! {
            h3 { "WAL by max_wal_size, if no time begins a checkpoint" }
            p { (knee_words) ". Dashed: extrapolated, or at least this much." }
        },
    };
    html! {
        (figure(&words, |width| drawing(record, width)))
        (legend([("this WAL’s own work", Look::from_index(0)), ("today", Look::from_index(1))]))
        (numbers(&record.curve, record))
    }
}

fn bytes_of(row: &WhatIfRow) -> String {
    ByteSize(row.max_wal_size_bytes.unwrap_or(0)).rounded()
}

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
fn drawing(record: &WalWhatIfRecord, width: Width) -> Drawing {
    let point = |row: &WhatIfRow| (row.max_wal_size_bytes.unwrap_or(0) as f64, row.bytes as f64);
    let today = (record.source_settings.max_wal_size_bytes as f64, record.today.bytes as f64);
    let points: Vec<(f64, f64)> = record.curve.iter().map(point).collect();
    let all = || points.iter().chain([&today]);
    let most = all().map(|point| point.1).fold(0.0, f64::max);
    let top = 30.0;
    let bottom = if width.is_narrow() { 230.0 } else { 290.0 };
    let frame = Frame {
        x: Scale::log(all().map(|point| point.0), Unit::Bytes)
            .padded(0.03)
            .between(66.0, width.units() - 12.0),
        y: Scale::linear([0.0, most * 1.08], Unit::Bytes).between(bottom, top),
        title: "WAL",
        margin: 0.0,
        x_title: "max_wal_size",
        x_ticks: if width.is_narrow() { 5 } else { 11 },
        y_ticks: 5,
    };
    let is_sure =
        |row: &WhatIfRow| !matches!(row.class, WhatIfClass::LowerBound | WhatIfClass::Extrapolated);
    let marks = html! {
        (frame.axes())
        @for (pair, rows) in points.windows(2).zip(record.curve.windows(2)) {
            @let look = if rows.iter().all(is_sure) { Look::from_index(0) } else { Look::from_index(0).dashed() };
            (frame.line(look, pair, ""))
        }
        @for (row, (x, y)) in record.curve.iter().zip(&points) {
            (Look::from_index(0).marker(frame.x.at(*x), frame.y.at(*y),
                &format!("{}: {}, {} checkpoints", bytes_of(row), size(row.bytes), row.checkpoints())))
        }
        @if let Some((x, _)) = record.knee.and_then(|place| points.get(place)) {
            (frame.boundary(*x))
            (text(frame.x.at(*x) + 5.0, top + 12.0, "tick", "knee"))
        }
        (Look::from_index(1).marker(frame.x.at(today.0), frame.y.at(today.1), "today"))
    };
    Drawing { height: bottom + 42.0, marks }
}

fn numbers(rows: &[WhatIfRow], record: &WalWhatIfRecord) -> Markup {
    html! {
        details {
            summary { "In numbers" }
            (rows_table("The curve in numbers", rows.iter().map(|row| (bytes_of(row), row)), record))
        }
    }
}

fn table(record: &WalWhatIfRecord) -> Markup {
    let today = std::iter::once(("today (the WAL as it is)".to_owned(), &record.today));
    let requested = record.rows.iter().map(|row| (title(row, record), row));
    html! {
        (rows_table("WAL by settings", today.chain(requested), record))
        ul class="small quiet" {
            @for (mark, words) in marks_of(record) {
                li { (mark) " " (words) }
            }
        }
    }
}

fn rows_table<'a>(
    label: &str,
    rows: impl Iterator<Item = (String, &'a WhatIfRow)>,
    record: &WalWhatIfRecord,
) -> Markup {
    html! {
        div class="scroll" role="region" aria-label=(label) tabindex="0" {
            table class="names close" {
                thead { tr {
                    th scope="col" { "setting" }
                    @for title in ["WAL", "of today’s", "in truth", "images", CHECKPOINTS,
                        "to replay after a crash, at most", "a second", "to an archive"] {
                        th scope="col" { (PreEscaped(title)) }
                    }
                } }
                tbody { @for (title, row) in rows { tr {
                    th scope="row" { (title) }
                    td { (mark(row.class)) (size(row.bytes)) }
                    td { (share(row, record)) }
                    td { (truth(row)) }
                    td { (row.images) }
                    td { (row.checkpoints()) }
                    td { (size(row.replay_bytes)) }
                    td { (row.bytes_per_second.map_or_else(|| "-".to_owned(), rate)) }
                    td { (size(row.archive_bytes)) }
                } } }
            }
        }
    }
}

fn truth(row: &WhatIfRow) -> String {
    let low = size(row.low_bytes);
    match row.high_bytes {
        Some(high) => format!("{low} – {}", size(high)),
        None => format!("{low} or more"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn rate(bytes: f64) -> String {
    format!("{}/s", size(bytes.round().clamp(0.0, 1e18) as u64))
}

fn trust(record: &WalWhatIfRecord) -> Markup {
    html! {
        p { (check_words(record)) "." }
        p {
            "Settings are replayed over the same changes: a page gets an image where one of their \
             checkpoints began since its change before. What the server would have done at other \
             times, as to prune or to vacuum, is not in it."
        }
        @if record.compressed_one_in > 1 {
            p { "Of images one block’s in " (record.compressed_one_in) " was really compressed." }
        }
        @if !record.notes.is_empty() { ul { @for note in &record.notes { li { (note) } } } }
    }
}

fn source(record: &WalWhatIfRecord) -> Markup {
    let settings = &record.source_settings;
    let forced = record.redo_points.iter().filter(|redo| redo.forced).count();
    let hints = if settings.hints { "logged" } else { "not logged" };
    let looks_like = |name: &str, value: String| {
        if is_guessed(settings, name) { format!("looks like {value}") } else { value }
    };
    let known: Vec<Fact> = vec![
        ("named", record.source.names.iter().take(100).cloned().collect::<Vec<_>>().join(", ")),
        ("system identifier", record.source.system_identifier.to_string()),
        ("where it ends", record.end.words.clone()),
        ("redo points", format!("{}, {forced} of them forced", record.redo_points.len())),
        (
            "max_wal_size",
            looks_like("max_wal_size", ByteSize(settings.max_wal_size_bytes).to_string()),
        ),
        (
            "checkpoint_timeout",
            looks_like("checkpoint_timeout", span(settings.checkpoint_timeout_s)),
        ),
        ("hints", looks_like("hints", hints.to_owned())),
        ("settings are from", settings.by.clone()),
        ("blocks", format!("{}, {} of memory", record.blocks, size(record.block_memory_bytes))),
        ("read", format!("{}, by pgtoll {}", record.made, record.pgtoll)),
    ];
    facts(known)
}

fn again_section(record: &WalWhatIfRecord) -> Markup {
    let json = serde_json::to_string(record).unwrap_or_default();
    html! {
        p { "The command that works it out again, as long as the WAL is there:" }
        pre { code { (record.command.iter().take(100).cloned().collect::<Vec<_>>().join(" ")) } }
        (download("All figures of this page", "wal-whatif.json", &json))
    }
}
