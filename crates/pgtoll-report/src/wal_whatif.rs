//! WAL under other settings as text, 80 columns wide.

use std::fmt::Write as _;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{
    WalWhatIfRecord, WhatIfClass, WhatIfEvidence, WhatIfRow, WhatIfSourceSettings,
};

use crate::printable::printable;
use crate::text::wrapped;
use crate::wal_short::left_out;

/// The self-check, what was asked beside today's, the curve and what to do. Plain text.
pub(crate) fn wal_whatif_text(record: &WalWhatIfRecord) -> String {
    let mut text = heading(record);
    text.push_str(&rows(record));
    text.push_str(&curve(record));
    text.push_str(&advice(record));
    for note in &record.notes {
        let _ = write!(text, "\n{}", wrapped("", note));
    }
    text
}

fn heading(record: &WalWhatIfRecord) -> String {
    let source = &record.source;
    let (Some(from), Some(to)) = (source.from, source.to) else {
        return format!("WAL of PostgreSQL {}: no record\n", source.major);
    };
    let mut text = wrapped(
        "",
        &format!(
            "WAL of PostgreSQL {} from {from} to {to}: {}{}",
            source.major,
            size(record.bytes),
            record.seconds.map_or_else(String::new, |seconds| format!(" in {}", span(seconds)))
        ),
    );
    let forced = record.redo_points.iter().filter(|redo| redo.forced).count();
    let redo_points = counted(record.redo_points.len(), "redo point", "redo points");
    let words = format!("{redo_points}, {forced} of them forced; {}", settings_words(record));
    text.push_str(&wrapped("", &words));
    text.push_str(&wrapped("", &check_words(record)));
    for words in left_out(&record.source.gaps) {
        text.push_str(&wrapped("left out: ", &words));
    }
    text
}

/// One of them, or how many.
fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The settings of the source: what is known of them, what looks like it, and where that is from.
fn settings_words(record: &WalWhatIfRecord) -> String {
    let source_setting = &record.source_settings;
    let mut known = Vec::new();
    let mut guessed = Vec::new();
    let size = ByteSize(source_setting.max_wal_size_bytes);
    let hints = if source_setting.hints { "hints logged" } else { "hints not logged" };
    for (name, words) in [
        ("max_wal_size", format!("max_wal_size = {size}")),
        (
            "checkpoint_timeout",
            format!("checkpoint_timeout = {}", span(source_setting.checkpoint_timeout_s)),
        ),
        ("hints", hints.to_owned()),
    ] {
        if is_guessed(source_setting, name) { guessed.push(words) } else { known.push(words) }
    }
    let mut words = Vec::new();
    if !known.is_empty() {
        words.push(format!("made with {}", known.join(", ")));
    }
    if !guessed.is_empty() {
        words.push(format!("looks like {}", guessed.join(", ")));
    }
    format!("{} (by {})", words.join("; "), source_setting.by)
}

/// A setting of the source is a guess by its WAL.
pub(crate) fn is_guessed(settings: &WhatIfSourceSettings, name: &str) -> bool {
    settings.guessed.iter().any(|guessed| guessed == name)
}

/// The self-check in a sentence.
pub(crate) fn check_words(record: &WalWhatIfRecord) -> String {
    let check = &record.check;
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

fn rows(record: &WalWhatIfRecord) -> String {
    let line = |cells: [&str; 7]| {
        let [title, wal, today, rate, images, checkpoints, replay] = cells;
        format!("{title:<27}{wal:>9}{today:>9}{rate:>8}{images:>9}{checkpoints:>8}{replay:>9}\n")
    };
    let mut text = format!(
        "\n{}{}",
        line(["setting", "WAL", "today", "each", "images", "check-", "replay"]),
        line(["", "", "= 100 %", "second", "", "points", "at most"])
    );
    text.push_str(&row("today (the WAL as it is)", &record.today, record));
    for requested in &record.rows {
        text.push_str(&row(&title(requested, record), requested, record));
    }
    let archive = format!(
        "Replicas are sent the WAL; an archive gets whole segments, today {}.",
        size(record.today.archive_bytes)
    );
    text.push_str(&wrapped("  ", &archive));
    for (mark, words) in marks_of(record) {
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
        "nearer, and hint-bit images that readers would log are estimated",
    ),
    (
        WhatIfClass::LowerBound,
        ">",
        "a lower bound: hints that this WAL does not log, or freezes of unknown cause (notes)",
    ),
    (
        WhatIfClass::Extrapolated,
        "?",
        "extrapolated: fewer than two redo points, or less WAL than twice the distance",
    ),
];

pub(crate) fn mark(class: WhatIfClass) -> &'static str {
    MARKS.iter().find(|mark| mark.0 == class).map_or("", |mark| mark.1)
}

/// Returns the meaning of the rows' marks, with the range of the true value.
pub(crate) fn marks_of(record: &WalWhatIfRecord) -> Vec<(&'static str, String)> {
    let marks = MARKS.iter().filter_map(|(class, mark, words)| {
        let rows = || record.rows.iter().filter(|row| row.class == *class);
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
    let percent = |count: u64| (count as f64 / row.bytes.max(1) as f64 - 1.0) * 100.0;
    row.high_bytes.map_or_else(String::new, |high| {
        format!(": {:+.0} to {:+.0} %", percent(row.low_bytes), percent(high))
    })
}

fn row(title: &str, row: &WhatIfRow, record: &WalWhatIfRecord) -> String {
    let bytes = format!("{}{}", mark(row.class), size(row.bytes));
    let rate = row.bytes_per_second.map_or_else(|| "-".to_owned(), rounded_rate);
    let figures = format!(
        "{bytes:>9}{:>9}{rate:>8}{:>9}{:>8}{:>9}",
        share(row, record),
        row.images,
        row.checkpoints(),
        size(row.replay_bytes)
    );
    let title = printable(title);
    if title.chars().count() > 26 {
        return format!("{}{:<27}{figures}\n", wrapped("", &title), "");
    }
    format!("{title:<27}{figures}\n")
}

/// Bytes of a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole bytes")]
fn rounded_rate(bytes: f64) -> String {
    size(bytes.max(0.0) as u64)
}

/// Returns the share of today's WAL.
pub(crate) fn share(row: &WhatIfRow, record: &WalWhatIfRecord) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a percentage with a digit")]
    let share = row.bytes as f64 / record.today.bytes.max(1) as f64 * 100.0;
    format!("{share:.1} %")
}

/// In what it differs from today's.
pub(crate) fn title(row: &WhatIfRow, record: &WalWhatIfRecord) -> String {
    let today = &record.source_settings;
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
fn curve(record: &WalWhatIfRecord) -> String {
    let most = record.curve.iter().map(|row| row.bytes).max().unwrap_or(0);
    if record.curve.len() < 3 || most == 0 {
        return String::new();
    }
    let mut text = format!("\n{:>12}{:>14}{:>10}\n", "max_wal_size", "checkpoints", "WAL");
    for (place, row) in record.curve.iter().enumerate() {
        let bar = u128::from(row.bytes) * BAR / u128::from(most);
        let bar = usize::try_from(bar).unwrap_or(0);
        let knee = if record.knee == Some(place) { " < knee" } else { "" };
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

fn advice(record: &WalWhatIfRecord) -> String {
    let unsure = unsure(record);
    let Some(advice) = &record.recommendation else {
        let words = [Some(nothing(record)), certain(record), unsure];
        return words
            .into_iter()
            .flatten()
            .map(|words| wrapped("", &words))
            .fold("\n".to_owned(), |text, paragraph| text + &paragraph);
    };
    let mut text = "\nrecommended:\n".to_owned();
    for line in &advice.settings {
        let _ = writeln!(text, "  {}", printable(line));
    }
    text.push_str(&wrapped("  why:   ", &advice.reason));
    text.push_str(&wrapped("  price: ", &advice.price));
    if let Some(unsure) = unsure {
        text.push_str(&wrapped("  but:   ", &unsure));
    }
    text
}

/// Why nothing is recommended.
pub(crate) fn nothing(record: &WalWhatIfRecord) -> String {
    let Some(evidence) = &record.evidence else {
        // Of an older record nothing more is known.
        return "Nothing is recommended.".to_owned();
    };
    if !evidence.enough {
        let seen = counted(record.redo_points.len(), "redo point", "redo points");
        let why = if record.redo_points.len() < 2 {
            format!("{seen} seen, and it takes two")
        } else {
            format!("{seen} seen, but all that follow the first were forced")
        };
        return format!("Not enough WAL to recommend anything: {why}. {}", more_wal(evidence));
    }
    let names_lz4 = || {
        let rows = evidence.certain.iter().chain(&evidence.extrapolated);
        let mut rows = rows.filter_map(|place| record.rows.get(*place));
        rows.any(|row| row.wal_compression == "lz4")
    };
    let lz4 = if evidence.lz4 && !names_lz4() { ", nor LZ4 a tenth" } else { "" };
    format!(
        "Nothing to recommend: no other distance of checkpoints is known to save a twentieth of \
         this WAL{lz4}."
    )
}

/// Rows that save something and are not recommended, though they are certain.
pub(crate) fn certain(record: &WalWhatIfRecord) -> Option<String> {
    let rows = listed(record, &record.evidence.as_ref()?.certain)?;
    Some(format!("Settings in the table that save a twentieth all the same: {rows}."))
}

/// Rows that would save something if they were certain, and how they become so.
pub(crate) fn unsure(record: &WalWhatIfRecord) -> Option<String> {
    let evidence = record.evidence.as_ref()?;
    let rows = listed(record, &evidence.extrapolated)?;
    let mut words = format!(
        "Estimates marked ? are not relied on: {rows}. This WAL has less than two checkpoint \
         cycles under such settings."
    );
    let Some(need) = evidence.needs else { return Some(words) };
    if let Some(row) = record.rows.get(need.row) {
        let _ = write!(
            words,
            " About {} of WAL like this would make {} certain.",
            size(need.bytes),
            title(row, record)
        );
    }
    // It was said before.
    if evidence.enough {
        let _ = write!(words, " {}", more_wal(evidence));
    }
    Some(words)
}

/// Advice to read more WAL, by the evidence that this one lacks.
fn more_wal(evidence: &WhatIfEvidence) -> String {
    match evidence.stream_s {
        Some(seconds) => {
            let time = TimeSpan(std::time::Duration::from_secs(seconds));
            format!("Stream longer: --for {time}.")
        }
        None => {
            "Name more of the archive, or stream from the server: --dsn DSN --for 30min.".to_owned()
        }
    }
}

/// The first few of these rows, with their shares; `None` without any.
fn listed(record: &WalWhatIfRecord, places: &[usize]) -> Option<String> {
    let rows: Vec<&WhatIfRow> = places.iter().filter_map(|place| record.rows.get(*place)).collect();
    let mut words: Vec<String> = rows
        .iter()
        .take(LISTED)
        .enumerate()
        .map(|(place, row)| {
            let than = if place == 0 { " of today's WAL" } else { "" };
            format!("{} ({}{than})", title(row, record), share(row, record))
        })
        .collect();
    match rows.len().saturating_sub(LISTED) {
        0 => {}
        more => words.push(format!("{more} more")),
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Rows that are named in a sentence.
const LISTED: usize = 3;

pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}

pub(crate) fn span(seconds: f64) -> String {
    let span = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let exact = TimeSpan(span);
    if seconds.fract() == 0.0 { exact.to_string() } else { exact.rounded() }
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{WhatIfNeed, WhatIfRedoPoint};

    use super::*;

    fn record() -> WalWhatIfRecord {
        let text = include_str!("../tests/fixtures/wal-whatif.json");
        let mut record: WalWhatIfRecord = serde_json::from_str(text).unwrap();
        record.rows[0].wal_compression = "lz4".to_owned();
        record
    }

    fn redo_point(forced: bool) -> WhatIfRedoPoint {
        WhatIfRedoPoint { at: pgtoll_format::Lsn(1), time: None, forced, inferred: false }
    }

    /// A record that recommends nothing.
    fn without(redo_points: &[bool], evidence: WhatIfEvidence) -> WalWhatIfRecord {
        let redo_points = redo_points.iter().map(|forced| redo_point(*forced)).collect();
        let evidence = Some(evidence);
        WalWhatIfRecord { redo_points, evidence, recommendation: None, ..record() }
    }

    const NO_EVIDENCE: WhatIfEvidence = WhatIfEvidence {
        enough: true,
        lz4: true,
        certain: Vec::new(),
        extrapolated: Vec::new(),
        needs: None,
        stream_s: None,
    };

    #[test]
    fn too_little_wal_is_no_reason_to_recommend_anything() {
        let check = |redo_points: &[bool], stream_s, expected| {
            let evidence = WhatIfEvidence { enough: false, stream_s, ..NO_EVIDENCE };
            let without = without(redo_points, evidence);
            assert_eq!(nothing(&without), expected);
            assert!(!wal_whatif_text(&without).contains("recommended:"));
            assert!(crate::html::wal_whatif_html(&without).contains(expected));
        };
        check(
            &[],
            None,
            "Not enough WAL to recommend anything: 0 redo points seen, and it takes two. Name more \
             of the archive, or stream from the server: --dsn DSN --for 30min.",
        );
        check(
            &[false],
            Some(1800),
            "Not enough WAL to recommend anything: 1 redo point seen, and it takes two. Stream \
             longer: --for 30min.",
        );
        check(
            &[false, true, true],
            Some(5400),
            "Not enough WAL to recommend anything: 3 redo points seen, but all that follow the \
             first were forced. Stream longer: --for 90min.",
        );
    }

    #[test]
    fn nothing_contradicts_a_row_of_the_table() {
        let row = 0;
        let entry = without(&[false, false], NO_EVIDENCE);
        let plain = "Nothing to recommend: no other distance of checkpoints is known to save a \
                     twentieth of this WAL";
        assert_eq!(nothing(&entry), format!("{plain}, nor LZ4 a tenth."));
        assert_eq!((certain(&entry), unsure(&entry)), (None, None));
        let needs = Some(WhatIfNeed { row, bytes: 3 << 30 });
        let evidence = WhatIfEvidence { extrapolated: vec![row], needs, ..NO_EVIDENCE };
        let item = without(&[false, false], evidence);
        assert_eq!(nothing(&item), format!("{plain}."));
        let share = share(&item.rows[row], &item);
        assert_eq!(
            unsure(&item).unwrap(),
            format!(
                "Estimates marked ? are not relied on: wal_compression = lz4 ({share} of today's \
                 WAL). This WAL has less than two checkpoint cycles under such settings. About \
                 3.00 GB of WAL like this would make wal_compression = lz4 certain. Name more of \
                 the archive, or stream from the server: --dsn DSN --for 30min."
            )
        );
        let evidence = WhatIfEvidence { certain: vec![row], ..NO_EVIDENCE };
        let words = certain(&without(&[false, false], evidence)).unwrap();
        assert!(words.ends_with(&format!("wal_compression = lz4 ({share} of today's WAL).")));
        let every = (0..record().rows.len()).collect();
        let evidence = WhatIfEvidence { certain: every, ..NO_EVIDENCE };
        let words = certain(&without(&[false, false], evidence)).unwrap();
        assert!(words.contains(&format!(", {} more.", record().rows.len() - 3)), "{words}");
        let old = WalWhatIfRecord { evidence: None, recommendation: None, ..record() };
        assert_eq!(nothing(&old), "Nothing is recommended.");
    }

    #[test]
    fn guesses_are_marked() {
        let check = |guessed: &[&str], expected: &str| {
            let mut record = record();
            let settings = &mut record.source_settings;
            settings.guessed = guessed.iter().map(|name| (*name).to_owned()).collect();
            (settings.max_wal_size_bytes, settings.checkpoint_timeout_s) = (32 << 20, 360.0);
            (settings.hints, settings.by) = (true, "so".to_owned());
            assert_eq!(settings_words(&record), expected);
            let text = wal_whatif_text(&record);
            assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        };
        let size = "max_wal_size = 32MB";
        let timeout = "checkpoint_timeout = 6min";
        check(&[], &format!("made with {size}, {timeout}, hints logged (by so)"));
        check(
            &["max_wal_size", "checkpoint_timeout"],
            &format!("made with hints logged; looks like {size}, {timeout} (by so)"),
        );
        check(
            &["max_wal_size", "checkpoint_timeout", "hints"],
            &format!("looks like {size}, {timeout}, hints logged (by so)"),
        );
    }
}
