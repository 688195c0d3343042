//! The record of a what-if, from the model's estimates.

use std::fmt::Write as _;

use pgtoll_format::{ByteSize, Lsn};
use pgtoll_model::{
    Candidate, EstimateClass, Grid, JudgedOutcome, SettingAdvice, SourceSettings, SourceWal,
    advise, knee, shown,
};
use pgtoll_record::{
    Provenance, WAL_WHATIF_SCHEMA, WalWhatIfRecord, WhatIfCheck, WhatIfClass, WhatIfRecommendation,
    WhatIfRedoPoint, WhatIfRow, WhatIfSourceSettings,
};

use crate::end::End;
use crate::record::{source, time, wal_end};
use crate::scan::WalSummary;
use crate::whatif::{Answer, Compressing, RedoPoint};

/// The WAL that was asked about, beside what was read of it.
#[derive(Clone, Debug)]
pub struct WhatIfSource {
    /// Paths, or a server without its secrets.
    pub names: Vec<String>,
    /// The settings that it was made with.
    pub settings: SourceSettings,
    /// Where they are from.
    pub settings_by: String,
    /// What a reader has to know of them.
    pub notes: Vec<String>,
}

/// The record of what became of the WAL under the settings of the grid.
pub fn whatif_record(
    provenance: Provenance,
    asked: WhatIfSource,
    grid: &Grid,
    compressing: &Compressing,
    summary: &WalSummary<Answer>,
    end: &End,
) -> WalWhatIfRecord {
    let answer = &summary.collected;
    let wal = source_wal(summary, &asked.settings);
    let estimates = Estimates::new(&wal, grid, answer);
    let recommendation = recommendation(&wal, &estimates);
    let row = |estimate: &JudgedOutcome| row(estimate, &wal);
    let times = answer.times_us;
    WalWhatIfRecord {
        schema: WAL_WHATIF_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        source: source(asked.names, summary, times.map(|of| of.0), times.map(|of| of.1)),
        end: wal_end(end),
        bytes: wal.bytes,
        seconds: wal.seconds,
        redo_points: answer.redo_points.iter().map(redo_point).collect(),
        source_settings: WhatIfSourceSettings {
            by: asked.settings_by,
            max_wal_size_bytes: asked.settings.max_wal_size.0,
            checkpoint_timeout_s: asked.settings.timeout.0.as_secs_f64(),
            checkpoint_completion_target: asked.settings.completion_target,
            hints: asked.settings.hints,
        },
        check: WhatIfCheck {
            references: answer.check.references,
            images: answer.check.images,
            absent: answer.check.absent,
            unpredicted: answer.check.unpredicted,
            bytes_error: ratio(estimates.today.outcome.bytes, wal.bytes) - 1.0,
        },
        today: row(&estimates.today),
        rows: estimates.rows.iter().map(row).collect(),
        curve: estimates.curve.iter().map(row).collect(),
        knee: knee(&estimates.curve),
        recommendation,
        compressed_one_in: compressing.one_in(),
        blocks: answer.blocks.0,
        block_memory_bytes: answer.blocks.1,
        notes: notes(answer, asked.settings.hints, asked.notes),
    }
}

/// A grid's outcomes with their ranges.
struct Estimates {
    today: JudgedOutcome,
    rows: Vec<JudgedOutcome>,
    curve: Vec<JudgedOutcome>,
    compressed: Vec<JudgedOutcome>,
}

impl Estimates {
    fn new(wal: &SourceWal, grid: &Grid, answer: &Answer) -> Self {
        let mut outcomes = answer.outcomes.iter();
        let mut estimates = |candidates: &[Candidate]| -> Vec<JudgedOutcome> {
            let pairs = candidates.iter().zip(outcomes.by_ref());
            pairs.map(|(candidate, outcome)| wal.estimate(candidate, outcome)).collect()
        };
        let today = estimates(std::slice::from_ref(&grid.today)).swap_remove(0);
        let (rows, mut curve) = (estimates(&grid.rows), estimates(&grid.curve));
        let compressed = estimates(&grid.compressed);
        shown(&mut curve);
        Self { today, rows, curve, compressed }
    }
}

fn source_wal(summary: &WalSummary<Answer>, settings: &SourceSettings) -> SourceWal {
    let answer = &summary.collected;
    let redo_points: Vec<(Lsn, bool)> =
        answer.redo_points.iter().map(|redo| (redo.at, redo.is_forced)).collect();
    let bytes = answer.to.zip(answer.from).and_then(|(to, from)| to.bytes_since(from)).unwrap_or(0);
    let segment_bytes = u64::from(summary.segment_bytes);
    SourceWal::new(bytes, answer.times_us, &redo_points, settings, segment_bytes)
}

fn row(estimate: &JudgedOutcome, wal: &SourceWal) -> WhatIfRow {
    let JudgedOutcome { candidate, outcome, class, low_bytes, high_bytes } = *estimate;
    let rule = candidate.rule;
    let timeout = rule.and_then(|rule| rule.timeout);
    WhatIfRow {
        max_wal_size_bytes: rule.map(|rule| rule.max_wal_size.0),
        checkpoint_timeout_s: timeout.map(|timeout| timeout.0.as_secs_f64()),
        checkpoint_completion_target: rule.map(|rule| rule.completion_target),
        wal_compression: candidate.compression.name().to_owned(),
        hints: candidate.hints,
        full_page_writes: candidate.full_page_writes,
        bytes: outcome.bytes,
        low_bytes,
        high_bytes,
        class: class_of(class),
        bytes_per_second: wal.bytes_per_second(outcome.bytes),
        images: outcome.images,
        image_bytes: outcome.image_bytes,
        checkpoints_by_volume: outcome.by_volume,
        checkpoints_by_time: outcome.by_time,
        checkpoints_forced: outcome.forced,
        archive_bytes: outcome.segments * wal.segment_bytes,
        longest_cycle_bytes: outcome.longest_cycle,
        replay_bytes: outcome.replay_most,
    }
}

fn class_of(class: EstimateClass) -> WhatIfClass {
    match class {
        EstimateClass::Exact => WhatIfClass::Exact,
        EstimateClass::Longer => WhatIfClass::Longer,
        EstimateClass::Shorter => WhatIfClass::Shorter,
        EstimateClass::ShorterWithHints => WhatIfClass::ShorterWithHints,
        EstimateClass::LowerBound => WhatIfClass::LowerBound,
        EstimateClass::Extrapolated => WhatIfClass::Extrapolated,
    }
}

/// The model's advice in words.
fn recommendation(wal: &SourceWal, estimates: &Estimates) -> Option<WhatIfRecommendation> {
    let Estimates { today, curve, compressed, .. } = estimates;
    let advice = advise(wal, today, curve, compressed)?;
    let plain = curve.get(advice.place)?;
    let lz4 = compressed.get(advice.place).filter(|_| advice.with_lz4);
    let chosen = lz4.unwrap_or(plain);
    Some(WhatIfRecommendation {
        settings: settings(&advice),
        row: row(chosen, wal),
        reason: reason(&advice, today, plain, lz4),
        price: price(&advice, today, chosen),
    })
}

/// Lines for `postgresql.conf`.
fn settings(advice: &SettingAdvice) -> Vec<String> {
    let size =
        advice.sets_max_wal_size.then(|| format!("max_wal_size = '{}'", advice.max_wal_size));
    let timeout =
        advice.checkpoint_timeout_min.map(|minutes| format!("checkpoint_timeout = '{minutes}min'"));
    let compression = advice.with_lz4.then(|| "wal_compression = 'lz4'".to_owned());
    [size, timeout, compression].into_iter().flatten().collect()
}

fn reason(
    advice: &SettingAdvice,
    today: &JudgedOutcome,
    plain: &JudgedOutcome,
    lz4: Option<&JudgedOutcome>,
) -> String {
    let less =
        |than: &JudgedOutcome| 100.0 * (1.0 - ratio(than.outcome.bytes, today.outcome.bytes));
    let mut reason = if advice.sets_max_wal_size {
        format!(
            "checkpoints {} apart make {:.0} % less WAL; {}",
            ByteSize(plain.outcome.longest_cycle).rounded(),
            less(plain),
            if advice.is_knee {
                "twice the distance would save less than 5 % more"
            } else {
                "longer distances would save more, and this WAL is too short to say how much"
            }
        )
    } else {
        "no distance of checkpoints saves a twentieth".to_owned()
    };
    if let Some(lz4) = lz4 {
        let _ = write!(reason, "; with LZ4 it is {:.0} % less in all", less(lz4));
    }
    reason
}

fn price(advice: &SettingAdvice, today: &JudgedOutcome, chosen: &JudgedOutcome) -> String {
    format!(
        "after a crash up to {} of WAL to replay (today {}), about {} for pg_wal{}",
        ByteSize(chosen.outcome.replay_most).rounded(),
        ByteSize(today.outcome.replay_most).rounded(),
        advice.max_wal_size,
        if advice.with_lz4 { ", and the CPU that compresses images" } else { "" },
    )
}

fn notes(answer: &Answer, hints: bool, of_settings: Vec<String>) -> Vec<String> {
    let mut notes = of_settings;
    if answer.redo_points.len() < 2 {
        notes.push(
            "The WAL has fewer than two redo points: all but today's figures are extrapolated."
                .to_owned(),
        );
    }
    if hints {
        notes.push(
            "Hints are logged once a page and checkpoint. Where checkpoints follow each other \
             faster than in this WAL, hints come to be logged of which it has no trace: how often \
             readers set them is estimated from those that it logs."
                .to_owned(),
        );
    }
    if answer.late > 0 {
        notes.push(format!(
            "{} redo points came to light too late to be replayed where they were: too much WAL \
             lies between a checkpoint's begin and its end.",
            answer.late
        ));
    }
    notes
}

fn redo_point(redo: &RedoPoint) -> WhatIfRedoPoint {
    WhatIfRedoPoint {
        at: redo.at,
        time: redo.time_us.and_then(time),
        forced: redo.is_forced,
        inferred: redo.is_inferred,
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
    let ratio = part as f64 / whole as f64;
    if whole == 0 { 1.0 } else { ratio }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pgtoll_format::TimeSpan;
    use pgtoll_format::wal::Compression;
    use pgtoll_model::{CheckpointRule, ImageCompression, WhatIfOutcome};

    use super::*;

    const MB: u64 = 1 << 20;

    fn wal(seconds: f64) -> SourceWal {
        SourceWal {
            bytes: 1000 * MB,
            seconds: Some(seconds),
            segment_bytes: MB,
            cycles: Some((50 * MB, 60 * MB)),
            hints: true,
            timeout: TimeSpan(Duration::from_secs(300)),
        }
    }

    fn estimate(
        wal: &SourceWal,
        size_mb: u64,
        bytes_mb: u64,
        kind: ImageCompression,
    ) -> JudgedOutcome {
        let rule = CheckpointRule {
            max_wal_size: ByteSize(size_mb * MB),
            timeout: None,
            completion_target: 0.9,
        };
        let rule = Some(rule).filter(|_| size_mb > 0);
        let candidate = Candidate { rule, hints: true, full_page_writes: true, compression: kind };
        let outcome = WhatIfOutcome {
            bytes: bytes_mb * MB,
            longest_cycle: size_mb.max(100) / 2 * MB,
            replay_most: size_mb.max(100) * MB,
            by_volume: 1,
            ..WhatIfOutcome::default()
        };
        wal.estimate(&candidate, &outcome)
    }

    /// What is recommended where the curve falls so, with LZ4 that saves a share of it.
    fn recommended(seconds: f64, curve: &[(u64, u64)], lz4: u64) -> Option<WhatIfRecommendation> {
        let wal = wal(seconds);
        let point = |kind, percent| {
            let wal = &wal;
            move |(size, bytes): &(u64, u64)| estimate(wal, *size, bytes * percent / 100, kind)
        };
        let stored = ImageCompression::AsStored;
        let compressed = ImageCompression::Set(Some(Compression::Lz4));
        let estimates = Estimates {
            today: estimate(&wal, 0, 1000, stored),
            rows: Vec::new(),
            curve: curve.iter().map(point(stored, 100)).collect(),
            compressed: curve.iter().map(point(compressed, 100 - lz4)).collect(),
        };
        recommendation(&wal, &estimates)
    }

    const FALLING: [(u64, u64); 4] = [(100, 900), (200, 600), (400, 590), (800, 585)];

    #[test]
    fn the_knee_is_recommended_in_words() {
        let plain = recommended(1000.0, &[FALLING.as_slice(), &[(1600, 584)]].concat(), 5).unwrap();
        assert_eq!(plain.settings, ["max_wal_size = '200MB'"]);
        assert_eq!(
            plain.reason,
            "checkpoints 100 MB apart make 40 % less WAL; twice the distance would save less than \
             5 % more"
        );
        assert_eq!(
            plain.price,
            "after a crash up to 200 MB of WAL to replay (today 100 MB), about 200MB for pg_wal"
        );
        assert_eq!((plain.row.bytes, plain.row.wal_compression.as_str()), (600 * MB, "as stored"));
    }

    #[test]
    fn a_timeout_and_lz4_are_recommended_where_they_help() {
        let slow = recommended(10_000.0, &[(100, 900), (200, 600), (400, 400)], 50).unwrap();
        // 200 MB at 0.02 MB/s take 10,000 s, and a fifth more is 200 minutes.
        let expected =
            ["max_wal_size = '400MB'", "checkpoint_timeout = '200min'", "wal_compression = 'lz4'"];
        assert_eq!(slow.settings, expected);
        let words = "this WAL is too short to say how much; with LZ4 it is 80 % less in all";
        assert!(slow.reason.ends_with(words), "{}", slow.reason);
        assert!(slow.price.ends_with(", and the CPU that compresses images"), "{}", slow.price);
        let flat = recommended(1000.0, &[(100, 990), (200, 985)], 50).unwrap();
        assert_eq!(flat.settings, ["wal_compression = 'lz4'"]);
        let words = "no distance of checkpoints saves a twentieth; with LZ4 it is 51 % less in all";
        assert_eq!(flat.reason, words);
        assert_eq!(recommended(1000.0, &[(100, 990), (200, 985)], 5), None);
    }
}
