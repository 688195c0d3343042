//! The record of a what-if, from the model's estimates.

use pgtoll_format::{ByteSize, Lsn};
use pgtoll_model::{Grid, GuessedSettings, JudgedOutcome, SourceSettings, SourceWal, knee};
use pgtoll_record::{
    Provenance, WAL_WHATIF_SCHEMA, WalSource, WalWhatIfRecord, WhatIfCheck, WhatIfRedoPoint,
    WhatIfSourceSettings,
};

use crate::end::End;
use crate::record::{source, time, wal_end};
use crate::scan::WalSummary;
use crate::whatif::advice::recommendation;
use crate::whatif::estimates::{Estimates, ratio, row};
use crate::whatif::{Answer, Compressing, RedoPoint};

/// The WAL that was asked about, beside what was read of it.
#[derive(Clone, Debug)]
pub struct WhatIfSource {
    /// Paths, or a server without its secrets.
    pub names: Vec<String>,
    /// The settings that it was made with.
    pub settings: SourceSettings,
    /// The settings that are guesses.
    pub guessed: GuessedSettings,
    /// Their source.
    pub settings_by: String,
    /// Notes about them.
    pub notes: Vec<String>,
}

/// The record of what became of the WAL under the settings of the grid.
pub fn whatif_record(
    provenance: Provenance,
    requested: WhatIfSource,
    grid: &Grid,
    compressing: &Compressing,
    summary: &WalSummary<Answer>,
    end: &End,
) -> WalWhatIfRecord {
    let answer = &summary.collected;
    let wal = source_wal(summary, &requested.settings);
    let estimates = Estimates::new(&wal, grid, answer);
    let is_streamed = summary.streamed.is_some();
    let (recommendation, evidence) = recommendation(&wal, &estimates, is_streamed);
    let row = |estimate: &JudgedOutcome| row(estimate, &wal);
    let times = answer.times_us;
    WalWhatIfRecord {
        schema: WAL_WHATIF_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        source: WalSource {
            // Of a gap between others nothing is known here.
            from: answer.from.or(summary.from),
            to: answer.to.or(summary.to),
            ..source(requested.names, summary, times.map(|time| time.0), times.map(|time| time.1))
        },
        end: wal_end(end, &summary.gaps),
        bytes: wal.bytes,
        seconds: wal.seconds,
        redo_points: answer.redo_points.iter().map(redo_point).collect(),
        source_settings: WhatIfSourceSettings {
            by: requested.settings_by,
            max_wal_size_bytes: requested.settings.max_wal_size.0,
            checkpoint_timeout_s: requested.settings.timeout.0.as_secs_f64(),
            checkpoint_completion_target: requested.settings.completion_target,
            hints: requested.settings.hints,
            guessed: guessed(requested.guessed),
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
        evidence: Some(evidence),
        compressed_one_in: compressing.one_in(),
        blocks: answer.blocks.0,
        block_memory_bytes: answer.blocks.1,
        notes: notes(summary, requested.settings.hints, &estimates, requested.notes),
    }
}

fn source_wal(summary: &WalSummary<Answer>, settings: &SourceSettings) -> SourceWal {
    let answer = &summary.collected;
    let redo_points: Vec<(Lsn, bool)> =
        answer.redo_points.iter().map(|redo| (redo.at, redo.is_forced)).collect();
    let segment_bytes = u64::from(summary.segment_bytes);
    SourceWal::new(answer.bytes(), answer.times_us, &redo_points, settings, segment_bytes)
}

/// Names of the settings that are guesses.
fn guessed(settings: GuessedSettings) -> Vec<String> {
    let all = [
        (settings.max_wal_size, "max_wal_size"),
        (settings.timeout, "checkpoint_timeout"),
        (settings.hints, "hints"),
    ];
    all.into_iter().filter(|(guessed, _)| *guessed).map(|(_, name)| name.to_owned()).collect()
}

fn notes(
    summary: &WalSummary<Answer>,
    hints: bool,
    estimates: &Estimates,
    of_settings: Vec<String>,
) -> Vec<String> {
    let answer = &summary.collected;
    let mut notes = of_settings;
    if let (Some(from), Some(to), false) = (answer.from, answer.to, summary.gaps.is_empty()) {
        notes.push(format!(
            "All figures are of the longest stretch without a gap, from {from} to {to}."
        ));
    }
    if answer.redo_points.len() < 2 {
        notes.push(
            "The WAL has fewer than two redo points: all but today's figures are extrapolated."
                .to_owned(),
        );
    }
    if hints {
        notes.push(
            "Hints are logged once a page and checkpoint. More frequent checkpoints log hint-bit images that this WAL does not contain: their number is estimated from those that it logs."
                .to_owned(),
        );
    }
    notes.extend(freeze_note(&estimates.rows));
    if answer.late > 0 {
        notes.push(format!(
            "{} redo points came to light too late to be replayed where they were: too much WAL \
             lies between a checkpoint's begin and its end.",
            answer.late
        ));
    }
    notes
}

/// Returns a note on figures without hints where `VACUUM` froze rows after hints.
fn freeze_note(rows: &[JudgedOutcome]) -> Option<String> {
    let without_hints = rows.iter().filter(|row| !row.candidate.hints);
    let most = without_hints.map(|row| row.outcome.freeze_bytes).max().filter(|most| *most > 0)?;
    Some(format!(
        "VACUUM froze rows right after it had logged their pages for a hint. The figures without \
         hints assume that it did so because of that image, and would not have frozen them. Had it \
         to freeze them (VACUUM FREEZE, or rows older than vacuum_freeze_min_age), which WAL does \
         not show, they are up to {} higher.",
        ByteSize(most).rounded()
    ))
}

fn redo_point(redo: &RedoPoint) -> WhatIfRedoPoint {
    WhatIfRedoPoint {
        at: redo.at,
        time: redo.time_us.and_then(time),
        forced: redo.is_forced,
        inferred: redo.is_inferred,
    }
}
