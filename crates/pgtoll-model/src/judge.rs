//! Certainty and range of an estimate.

use pgtoll_format::{ByteSize, Lsn, TimeSpan};

use crate::grid::Candidate;
use crate::source::SourceSettings;
use crate::whatif::WhatIfOutcome;

/// The WAL that predictions are made from, as far as their errors depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceWal {
    /// From the first record's begin to the last one's end.
    pub bytes: u64,
    /// From the first transaction's end to the last one's, if there is any time between.
    pub seconds: Option<f64>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// How many redo points it has.
    pub redo_points: usize,
    /// The shortest and the longest way from one redo point to the next that was not forced, in bytes.
    pub cycles: Option<(u64, u64)>,
    /// Hints are logged.
    pub hints: bool,
    /// `max_wal_size`.
    pub max_wal_size: ByteSize,
    /// `checkpoint_timeout`.
    pub timeout: TimeSpan,
}

/// How sure an estimate is. (The record's `WhatIfClass` is what of it is written down.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EstimateClass {
    /// Checkpoints as far apart as in the source.
    Exact,
    /// Further apart: a few per cent.
    Longer,
    /// Nearer, and all that would have been logged is known.
    Shorter,
    /// Nearer, and hints are logged: those that the source did not log are estimated from those that
    /// it did.
    ShorterWithHints,
    /// It is at least this: hints are asked for and the source logs none; or hints are not to be
    /// logged, and the source does not show whether `VACUUM` had to freeze what it froze right after a
    /// hint's image.
    LowerBound,
    /// The source has fewer than two redo points, or less WAL than twice the distance.
    Extrapolated,
}

/// The outcome of WAL under settings, and its certainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedOutcome {
    /// The settings.
    pub candidate: Candidate,
    /// The outcome of the replay.
    pub outcome: WhatIfOutcome,
    /// How sure it is.
    pub class: EstimateClass,
    /// The bytes of WAL that it may be at least.
    pub low_bytes: u64,
    /// The bytes of WAL that it may be at most; `None`: there is no bound.
    pub high_bytes: Option<u64>,
}

impl SourceWal {
    /// WAL of this many bytes; its redo points, and which of them were forced; when its first and last
    /// transactions ended, in microseconds since 1970.
    pub fn new(
        bytes: u64,
        times_us: Option<(i64, i64)>,
        redo_points: &[(Lsn, bool)],
        settings: &SourceSettings,
        segment_bytes: u64,
    ) -> Self {
        let lengths = redo_points
            .windows(2)
            .map(|pair| (pair[1].0.bytes_since(pair[0].0).unwrap_or(0), pair[1].1));
        // What was forced soon after another says nothing about the rule.
        let lengths: Vec<u64> =
            lengths.filter(|(_, is_forced)| !is_forced).map(|(length, _)| length).collect();
        let microseconds = times_us.map(|(first, last)| (last - first).max(0));
        #[expect(clippy::cast_precision_loss, reason = "microseconds of years are below 2^53")]
        let seconds = microseconds.filter(|us| *us > 0).map(|us| us as f64 / 1e6);
        Self {
            bytes,
            seconds,
            segment_bytes,
            redo_points: redo_points.len(),
            cycles: lengths.iter().min().copied().zip(lengths.iter().max().copied()),
            hints: settings.hints,
            max_wal_size: settings.max_wal_size,
            timeout: settings.timeout,
        }
    }

    /// It shows how checkpoints follow each other: with less nothing can be recommended.
    pub fn is_enough(&self) -> bool {
        self.redo_points >= 2 && self.cycles.is_some()
    }

    /// An outcome with its range.
    pub fn estimate(&self, candidate: &Candidate, outcome: &WhatIfOutcome) -> JudgedOutcome {
        let mut class = self.class(candidate, outcome);
        let (less, more) = match candidate.rule {
            Some(_) => range(class, candidate.compression.compresses()),
            // The source's own redo points make the source's own bytes.
            None => (0.001, Some(0.001)),
        };
        let most = outcome.bytes.saturating_add(outcome.freeze_bytes);
        let is_open = !candidate.hints && float(outcome.freeze_bytes) > float(outcome.bytes) * less;
        if is_open && class != EstimateClass::Extrapolated {
            class = EstimateClass::LowerBound;
        }
        JudgedOutcome {
            candidate: *candidate,
            outcome: *outcome,
            class,
            low_bytes: scaled(outcome.bytes, 1.0 - less),
            high_bytes: more.map(|more| scaled(most, 1.0 + more)),
        }
    }

    /// How far apart its checkpoints are beside the source's, and whether that is in the source.
    fn class(&self, candidate: &Candidate, outcome: &WhatIfOutcome) -> EstimateClass {
        if candidate.rule.is_none() {
            return EstimateClass::Exact;
        }
        let Some((shortest, longest)) = self.cycles else { return EstimateClass::Extrapolated };
        if candidate.hints && !self.hints {
            return EstimateClass::LowerBound;
        }
        let cycle = outcome.longest_cycle;
        let has_checkpoints = outcome.by_volume + outcome.by_time > 0;
        if !has_checkpoints || self.bytes < cycle.saturating_mul(2) {
            return EstimateClass::Extrapolated;
        }
        // Steps are whole segments.
        if cycle + self.segment_bytes < shortest {
            return if candidate.hints {
                EstimateClass::ShorterWithHints
            } else {
                EstimateClass::Shorter
            };
        }
        if cycle <= longest + self.segment_bytes {
            EstimateClass::Exact
        } else {
            EstimateClass::Longer
        }
    }

    /// Bytes a second, if there is any time between its transactions.
    pub fn bytes_per_second(&self, bytes: u64) -> Option<f64> {
        self.seconds.map(|seconds| float(bytes) / seconds)
    }
}

/// How much less, and how much more, it may be in truth: shares of it. They were set by the trial's
/// runs of 15, and those of 18 show how well they hold (`docs/src/whatif.md`).
fn range(class: EstimateClass, compresses: bool) -> (f64, Option<f64>) {
    let (less, more) = match class {
        EstimateClass::Exact => (0.04, Some(0.04)),
        EstimateClass::Longer | EstimateClass::Shorter => (0.05, Some(0.05)),
        EstimateClass::ShorterWithHints => (0.04, Some(0.12)),
        EstimateClass::LowerBound => (0.04, None),
        EstimateClass::Extrapolated => (0.55, None),
    };
    // An image that is compressed is sampled, and its size is that of another moment.
    if compresses { (less + 0.04, more.map(|more| more + 0.04)) } else { (less, more) }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
pub(crate) fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u64")]
fn scaled(bytes: u64, by: f64) -> u64 {
    (float(bytes) * by).max(0.0) as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use pgtoll_format::wal::Compression;

    use super::*;
    use crate::source::CheckpointRule;
    use crate::whatif::ImageCompression;

    pub(crate) const MB: u64 = 1 << 20;

    /// 1000 MB in 1000 s, with checkpoints 50 to 60 MB apart.
    pub(crate) const SOURCE: SourceWal = SourceWal {
        bytes: 1000 * MB,
        seconds: Some(1000.0),
        segment_bytes: MB,
        redo_points: 18,
        cycles: Some((50 * MB, 60 * MB)),
        hints: true,
        max_wal_size: ByteSize(100 * MB),
        timeout: TimeSpan(Duration::from_secs(300)),
    };

    pub(crate) fn candidate(size_mb: u64) -> Candidate {
        let rule = CheckpointRule {
            max_wal_size: ByteSize(size_mb * MB),
            timeout: None,
            completion_target: 0.9,
        };
        Candidate {
            rule: Some(rule),
            hints: true,
            full_page_writes: true,
            compression: ImageCompression::AsStored,
        }
    }

    pub(crate) fn outcome(bytes_mb: u64, cycle_mb: u64) -> WhatIfOutcome {
        WhatIfOutcome {
            bytes: bytes_mb * MB,
            longest_cycle: cycle_mb * MB,
            by_volume: 1,
            ..WhatIfOutcome::default()
        }
    }

    /// A curve of sizes and bytes in MB; cycles are half of the sizes.
    pub(crate) fn curve(points: &[(u64, u64)]) -> Vec<JudgedOutcome> {
        let point = |(size, bytes): &(u64, u64)| {
            SOURCE.estimate(&candidate(*size), &outcome(*bytes, size / 2))
        };
        points.iter().map(point).collect()
    }

    #[test]
    fn classes_are_by_how_far_apart_checkpoints_are() {
        let check = |source: &SourceWal, candidate: Candidate, cycle_mb, class| {
            assert_eq!(source.class(&candidate, &outcome(900, cycle_mb)), class, "{cycle_mb}");
        };
        let plain = candidate(100);
        check(&SOURCE, Candidate { rule: None, ..plain }, 900, EstimateClass::Exact);
        check(&SOURCE, plain, 48, EstimateClass::ShorterWithHints);
        check(&SOURCE, Candidate { hints: false, ..plain }, 48, EstimateClass::Shorter);
        // A segment nearer or further is the same.
        check(&SOURCE, plain, 49, EstimateClass::Exact);
        check(&SOURCE, plain, 61, EstimateClass::Exact);
        check(&SOURCE, plain, 62, EstimateClass::Longer);
        check(&SOURCE, plain, 500, EstimateClass::Longer);
        check(&SOURCE, plain, 501, EstimateClass::Extrapolated);
        let without_hints = SourceWal { hints: false, ..SOURCE };
        check(&without_hints, plain, 55, EstimateClass::LowerBound);
        check(&without_hints, Candidate { hints: false, ..plain }, 55, EstimateClass::Exact);
        let without_cycles = SourceWal { cycles: None, ..SOURCE };
        check(&without_cycles, plain, 55, EstimateClass::Extrapolated);
        let none = WhatIfOutcome { by_volume: 0, ..outcome(900, 55) };
        assert_eq!(SOURCE.class(&plain, &none), EstimateClass::Extrapolated);
    }

    #[test]
    fn ranges_are_wider_where_images_are_compressed() {
        let plain = SOURCE.estimate(&candidate(100), &outcome(100, 55));
        assert_eq!((plain.low_bytes, plain.high_bytes), (96 * MB, Some(104 * MB)));
        let compression = ImageCompression::Set(Some(Compression::Lz4));
        let lz4 = Candidate { compression, ..candidate(100) };
        let lz4 = SOURCE.estimate(&lz4, &outcome(100, 55));
        assert_eq!((lz4.low_bytes, lz4.high_bytes), (92 * MB, Some(108 * MB)));
        let off = Candidate { compression: ImageCompression::OFF, ..candidate(100) };
        assert_eq!(SOURCE.estimate(&off, &outcome(100, 55)).low_bytes, 96 * MB);
        let far = SOURCE.estimate(&candidate(9000), &outcome(100, 900));
        assert_eq!((far.low_bytes, far.high_bytes), (45 * MB - 1, None));
        let today = Candidate { rule: None, ..candidate(1) };
        let today = SOURCE.estimate(&today, &outcome(1000, 60));
        assert_eq!((today.low_bytes, today.high_bytes), (999 * MB, Some(1001 * MB - 1)));
    }

    #[test]
    fn what_vacuum_may_have_had_to_freeze_is_in_the_range() {
        let without_hints = Candidate { hints: false, ..candidate(100) };
        let with = |candidate: &Candidate, freeze_mb: u64, cycle_mb| {
            let outcome = WhatIfOutcome { freeze_bytes: freeze_mb * MB, ..outcome(100, cycle_mb) };
            let estimate = SOURCE.estimate(candidate, &outcome);
            (estimate.class, estimate.low_bytes, estimate.high_bytes)
        };
        let little = (EstimateClass::Exact, 96 * MB, Some(scaled(103 * MB, 1.04)));
        assert_eq!(with(&without_hints, 3, 55), little);
        let much = (EstimateClass::LowerBound, 96 * MB, Some(scaled(300 * MB, 1.04)));
        assert_eq!(with(&without_hints, 200, 55), much);
        assert_eq!(
            with(&without_hints, 200, 900),
            (EstimateClass::Extrapolated, 45 * MB - 1, None)
        );
        // Of freezes without their hint's image there is no more than a few bytes.
        assert_eq!(with(&candidate(100), 5, 55).0, EstimateClass::Exact);
    }

    #[test]
    fn cycles_are_those_that_were_not_forced() {
        let settings = SourceSettings {
            max_wal_size: ByteSize(1 << 30),
            timeout: SOURCE.timeout,
            completion_target: 0.9,
            hints: false,
        };
        let redo = |mb: u64, is_forced| (Lsn(mb * MB), is_forced);
        let points = [redo(0, false), redo(50, false), redo(51, true), redo(111, false)];
        let source = SourceWal::new(120 * MB, Some((5_000_000, 8_000_000)), &points, &settings, MB);
        assert_eq!(source.cycles, Some((50 * MB, 60 * MB)));
        assert_eq!(source.bytes_per_second(30), Some(10.0));
        let idle = SourceWal::new(MB, Some((5, 5)), &points[..1], &settings, MB);
        assert_eq!((idle.cycles, idle.seconds), (None, None));
        assert!(source.is_enough() && !idle.is_enough());
    }
}
