//! WAL under other settings as text, 80 columns wide.

use std::fmt::Write as _;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{WalWhatIfRecord, WhatIfClass, WhatIfRow};

use crate::printable::printable;
use crate::text::wrapped;

/// The self-check, what was asked beside today's, the curve and what to do. Plain text.
pub fn wal_whatif_text(of: &WalWhatIfRecord) -> String {
    let mut text = heading(of);
    text.push_str(&rows(of));
    text.push_str(&curve(of));
    text.push_str(&advice(of));
    for note in &of.notes {
        let _ = write!(text, "\n{}", wrapped("", note));
    }
    text
}

fn heading(of: &WalWhatIfRecord) -> String {
    let source = &of.source;
    let (Some(from), Some(to)) = (source.from, source.to) else {
        return format!("WAL of PostgreSQL {}: no record\n", source.major);
    };
    let mut text = wrapped(
        "",
        &format!(
            "WAL of PostgreSQL {} from {from} to {to}: {}{}",
            source.major,
            size(of.bytes),
            of.seconds.map_or_else(String::new, |seconds| format!(" in {}", span(seconds)))
        ),
    );
    let settings = &of.source_settings;
    let forced = of.redo_points.iter().filter(|redo| redo.forced).count();
    text.push_str(&wrapped(
        "",
        &format!(
            "{} redo points, {forced} of them forced; made with max_wal_size = {}, \
             checkpoint_timeout = {}, hints {} (by {})",
            of.redo_points.len(),
            ByteSize(settings.max_wal_size_bytes),
            span(settings.checkpoint_timeout_s),
            if settings.hints { "logged" } else { "not logged" },
            settings.by
        ),
    ));
    text.push_str(&wrapped("", &check_words(of)));
    text
}

/// The self-check in a sentence.
pub(crate) fn check_words(of: &WalWhatIfRecord) -> String {
    let check = &of.check;
    format!(
        "self-check: the source's own redo points explain {} of {} images; predicted but absent: \
         {}; present but not predicted: {}; bytes {:+.3} %",
        check.images.saturating_sub(check.unpredicted),
        check.images,
        check.absent,
        check.unpredicted,
        check.bytes_error * 100.0
    )
}

fn rows(of: &WalWhatIfRecord) -> String {
    let line = |cells: [&str; 7]| {
        let [title, wal, today, rate, images, checkpoints, replay] = cells;
        format!("{title:<27}{wal:>9}{today:>9}{rate:>8}{images:>9}{checkpoints:>8}{replay:>9}\n")
    };
    let mut text = format!(
        "\n{}{}",
        line(["setting", "WAL", "today", "each", "images", "check-", "replay"]),
        line(["", "", "= 100 %", "second", "", "points", "at most"])
    );
    text.push_str(&row("today (the WAL as it is)", &of.today, of));
    for asked in &of.rows {
        text.push_str(&row(&title(asked, of), asked, of));
    }
    let archive = format!(
        "Replicas are sent the WAL; an archive gets whole segments, today {}.",
        size(of.today.archive_bytes)
    );
    text.push_str(&wrapped("  ", &archive));
    for (mark, words) in marks_of(of) {
        text.push_str(&wrapped(&format!("  {mark:1} "), &words));
    }
    text
}

const MARKS: [(WhatIfClass, &str, &str); 6] = [
    (WhatIfClass::Exact, "", "without a mark: checkpoints as far apart as in this WAL"),
    (WhatIfClass::Longer, "+", "checkpoints further apart than in this WAL"),
    (WhatIfClass::Shorter, "-", "checkpoints nearer than in this WAL"),
    (
        WhatIfClass::ShorterWithHints,
        "~",
        "nearer, and readers' hints that would come to be logged are estimated",
    ),
    (
        WhatIfClass::LowerBound,
        ">",
        "at least this: hints would come to be logged, of which this WAL has none",
    ),
    (
        WhatIfClass::Extrapolated,
        "?",
        "extrapolated: fewer than two redo points, or less WAL than twice the distance",
    ),
];

pub(crate) fn mark(class: WhatIfClass) -> &'static str {
    MARKS.iter().find(|of| of.0 == class).map_or("", |of| of.1)
}

/// What the marks of the rows mean, with the range that the truth lies in.
pub(crate) fn marks_of(of: &WalWhatIfRecord) -> Vec<(&'static str, String)> {
    let marks = MARKS.iter().filter_map(|(class, mark, words)| {
        let rows = || of.rows.iter().filter(|row| row.class == *class);
        let first = rows().next()?;
        let stored = rows().find(|row| !is_compressed(row));
        let mut words = format!("{words}{}", range(stored.unwrap_or(first)));
        // Compression makes the range wider.
        if let (Some(_), Some(compressed)) = (stored, rows().find(|row| is_compressed(row))) {
            words.push_str(&range(compressed).replacen(": ", "; compressed ", 1));
        }
        Some((*mark, words))
    });
    marks.collect()
}

fn is_compressed(row: &WhatIfRow) -> bool {
    !matches!(row.wal_compression.as_str(), "as stored" | "off")
}

/// In percent of what is expected.
fn range(row: &WhatIfRow) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a percentage without digits")]
    let percent = |of: u64| (of as f64 / row.bytes.max(1) as f64 - 1.0) * 100.0;
    row.high_bytes.map_or_else(String::new, |high| {
        format!(": {:+.0} to {:+.0} %", percent(row.low_bytes), percent(high))
    })
}

fn row(title: &str, row: &WhatIfRow, of: &WalWhatIfRecord) -> String {
    let bytes = format!("{}{}", mark(row.class), size(row.bytes));
    let rate = row.bytes_per_second.map_or_else(|| "-".to_owned(), rounded_rate);
    let figures = format!(
        "{bytes:>9}{:>9}{rate:>8}{:>9}{:>8}{:>9}",
        share(row, of),
        row.images,
        row.checkpoints(),
        size(row.replay_bytes)
    );
    let title = printable(title);
    if title.chars().count() > 26 {
        return format!("{title}\n{:<27}{figures}\n", "");
    }
    format!("{title:<27}{figures}\n")
}

/// Bytes of a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole bytes")]
fn rounded_rate(bytes: f64) -> String {
    size(bytes.max(0.0) as u64)
}

/// Of today's.
pub(crate) fn share(row: &WhatIfRow, of: &WalWhatIfRecord) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a percentage with a digit")]
    let share = row.bytes as f64 / of.today.bytes.max(1) as f64 * 100.0;
    format!("{share:.1} %")
}

/// In what it differs from today's.
pub(crate) fn title(row: &WhatIfRow, of: &WalWhatIfRecord) -> String {
    let today = &of.source_settings;
    let mut parts = Vec::new();
    let size = row.max_wal_size_bytes.map(ByteSize);
    if let Some(size) = size.filter(|size| size.0 != today.max_wal_size_bytes) {
        parts.push(format!("max_wal_size = {size}"));
    }
    let is_same = |one: f64, other: f64| (one - other).abs() < 1e-6;
    if let Some(timeout) = row.checkpoint_timeout_s
        && !is_same(timeout, today.checkpoint_timeout_s)
    {
        parts.push(format!("checkpoint_timeout = {}", span(timeout)));
    }
    if let Some(target) = row.checkpoint_completion_target
        && !is_same(target, today.checkpoint_completion_target)
    {
        parts.push(format!("completion_target = {target}"));
    }
    if row.wal_compression != "as stored" {
        parts.push(format!("wal_compression = {}", row.wal_compression));
    }
    if row.hints != today.hints {
        parts.push(format!("hints {}", if row.hints { "logged" } else { "not logged" }));
    }
    if !row.full_page_writes {
        parts.push("full_page_writes = off".to_owned());
    }
    if parts.is_empty() { "today's settings, as a rule".to_owned() } else { parts.join(", ") }
}

/// A line for each distance, with a bar.
fn curve(of: &WalWhatIfRecord) -> String {
    let most = of.curve.iter().map(|row| row.bytes).max().unwrap_or(0);
    if of.curve.len() < 3 || most == 0 {
        return String::new();
    }
    let mut text = format!("\n{:>12}{:>14}{:>10}\n", "max_wal_size", "checkpoints", "WAL");
    for (place, row) in of.curve.iter().enumerate() {
        let bar = u128::from(row.bytes) * BAR / u128::from(most);
        let bar = usize::try_from(bar).unwrap_or(0);
        let knee = if of.knee == Some(place) { " < knee" } else { "" };
        let bytes = format!("{}{}", mark(row.class), size(row.bytes));
        let _ = writeln!(
            text,
            "{:>12}{:>14}{bytes:>10} {}{knee}",
            size(row.max_wal_size_bytes.unwrap_or(0)),
            row.checkpoints(),
            "#".repeat(bar)
        );
    }
    text
}

const BAR: u128 = 34;

fn advice(of: &WalWhatIfRecord) -> String {
    let Some(advice) = &of.recommendation else {
        return format!("\n{}", wrapped("", NOTHING));
    };
    let mut text = "\nrecommended:\n".to_owned();
    for line in &advice.settings {
        let _ = writeln!(text, "  {}", printable(line));
    }
    text.push_str(&wrapped("  why:   ", &advice.reason));
    text.push_str(&wrapped("  price: ", &advice.price));
    text
}

/// Where there is no recommendation.
pub(crate) const NOTHING: &str = "Nothing to recommend: neither another distance of checkpoints nor LZ4 is known to save a \
     twentieth of this WAL.";

pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

pub(crate) fn span(seconds: f64) -> String {
    let span = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let exact = TimeSpan(span);
    if seconds.fract() == 0.0 { exact.to_string() } else { exact.rounded() }
}
