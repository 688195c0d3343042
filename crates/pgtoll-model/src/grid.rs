//! The settings that one pass over the WAL answers: those asked for, or those worth trying, and the
//! curve of WAL against the distance of checkpoints.
//! curve of WAL against the distance of checkpoints.

use std::time::Duration;

use pgtoll_format::wal::Compression;
use pgtoll_format::{ByteSize, TimeSpan};

use crate::source::{CheckpointRule, SourceSettings};
use crate::whatif::{ImageCompression, Schedule, Settings, max_wal_size_for};

/// Values of settings. All their combinations are answered; an empty list: as the source has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AskedValues {
    /// `max_wal_size`.
    pub max_wal_size: Vec<ByteSize>,
    /// `checkpoint_timeout`.
    pub timeout: Vec<TimeSpan>,
    /// `checkpoint_completion_target`.
    pub completion_target: Vec<f64>,
    /// `wal_compression`; `None`: off.
    pub compression: Vec<Option<Compression>>,
    /// Hints are logged.
    pub hints: Vec<bool>,
    /// `full_page_writes`.
    pub full_page_writes: Vec<bool>,
}

/// Values whose combinations are few enough.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AskedSettings(AskedValues);

/// This many combinations are answered in one pass. Each costs some time for every record, and memory.
pub const MOST_COMBINATIONS: usize = 1000;

/// More combinations than [`MOST_COMBINATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{combinations} combinations of settings are asked for, and at most {MOST_COMBINATIONS} answered"
)]
pub struct TooManyCombinations {
    /// This many; at most `usize::MAX`.
    pub combinations: usize,
}

impl AskedSettings {
    /// Makes the questions, unless there are too many.
    pub fn new(values: AskedValues) -> Result<Self, TooManyCombinations> {
        let combinations = values.combinations();
        if combinations > MOST_COMBINATIONS {
            return Err(TooManyCombinations { combinations });
        }
        Ok(Self(values))
    }

    /// Nothing is asked.
    fn is_empty(&self) -> bool {
        self.0.lengths().iter().all(|length| *length == 0)
    }
}

impl AskedValues {
    fn lengths(&self) -> [usize; 6] {
        [
            self.max_wal_size.len(),
            self.timeout.len(),
            self.completion_target.len(),
            self.compression.len(),
            self.hints.len(),
            self.full_page_writes.len(),
        ]
    }

    fn combinations(&self) -> usize {
        self.lengths().iter().fold(1, |product, length| product.saturating_mul(*length.max(&1)))
    }
}

/// Settings of which the outcome is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// When checkpoints begin; `None`: where the source's did.
    pub rule: Option<CheckpointRule>,
    /// Hints are logged.
    pub hints: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// How images are compressed.
    pub compression: ImageCompression,
}

impl Candidate {
    /// As [`WhatIf`](crate::WhatIf) takes it.
    pub fn settings(&self) -> Settings {
        Settings {
            schedule: self.rule.map_or(Schedule::Source, |rule| rule.schedule()),
            hints: self.hints,
            full_page_writes: self.full_page_writes,
            compression: self.compression,
        }
    }

    /// `max_wal_size`, if there is a rule.
    pub fn max_wal_size(&self) -> Option<ByteSize> {
        self.rule.map(|rule| rule.max_wal_size)
    }
}

/// All that one pass answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The source's own redo points.
    pub today: Candidate,
    /// The requested rows; without a request the source's settings, changed one at a time.
    pub rows: Vec<Candidate>,
    /// Distances of checkpoints, the shortest first, if nothing but that distance begins them.
    pub curve: Vec<Candidate>,
    /// The curve again with LZ4, for the recommendation; empty where settings are asked.
    pub compressed: Vec<Candidate>,
}

impl Grid {
    /// Makes the questions about WAL that was made with these settings.
    pub fn new(
        requested: &AskedSettings,
        source: &SourceSettings,
        segment_bytes: u64,
        has_lz4: bool,
    ) -> Self {
        let today = Candidate {
            rule: None,
            hints: source.hints,
            full_page_writes: true,
            compression: ImageCompression::AsStored,
        };
        let base = Candidate { rule: Some(source.rule()), ..today };
        let rows = if requested.is_empty() {
            one_at_a_time(base, source, segment_bytes, has_lz4)
        } else {
            combinations(base, source, &requested.0)
        };
        let curve = curve(today, source.completion_target, segment_bytes);
        let compressed = if requested.is_empty() && has_lz4 {
            let compression = ImageCompression::Set(Some(Compression::Lz4));
            curve.iter().map(|point| Candidate { compression, ..*point }).collect()
        } else {
            Vec::new()
        };
        Self { today, rows, curve, compressed }
    }

    /// Returns the settings of all, in this order: today, rows, curve, compressed.
    pub fn settings(&self) -> Vec<Settings> {
        let lists = [std::slice::from_ref(&self.today), &self.rows, &self.curve, &self.compressed];
        lists.into_iter().flatten().map(Candidate::settings).collect()
    }
}

/// Every combination of what is asked, the last value first changed; what is not asked stays as the
/// source has it.
fn combinations(
    base: Candidate,
    source: &SourceSettings,
    requested: &AskedValues,
) -> Vec<Candidate> {
    let rule = source.rule();
    let of_rule = |change: &dyn Fn(&mut CheckpointRule), candidate: &mut Candidate| {
        let mut changed = candidate.rule.unwrap_or(rule);
        change(&mut changed);
        candidate.rule = Some(changed);
    };
    let all = vec![base];
    let all = each(&all, &requested.max_wal_size, |candidate, size| {
        of_rule(&|rule| rule.max_wal_size = size, candidate);
    });
    let all = each(&all, &requested.timeout, |candidate, timeout| {
        of_rule(&|rule| rule.timeout = Some(timeout), candidate);
    });
    let all = each(&all, &requested.completion_target, |candidate, target| {
        of_rule(&|rule| rule.completion_target = target, candidate);
    });
    let all = each(&all, &requested.compression, |candidate, compression| {
        candidate.compression = ImageCompression::Set(compression);
    });
    let all = each(&all, &requested.hints, |candidate, hints| candidate.hints = hints);
    each(&all, &requested.full_page_writes, |candidate, on| candidate.full_page_writes = on)
}

/// Each candidate with each of the values.
fn each<T: Copy>(
    candidates: &[Candidate],
    values: &[T],
    set: impl Fn(&mut Candidate, T),
) -> Vec<Candidate> {
    if values.is_empty() {
        return candidates.to_vec();
    }
    let pairs = candidates.iter().flat_map(|from| values.iter().map(move |value| (*from, *value)));
    pairs
        .map(|(mut candidate, value)| {
            set(&mut candidate, value);
            candidate
        })
        .collect()
}

/// The source's settings changed one at a time.
fn one_at_a_time(
    base: Candidate,
    source: &SourceSettings,
    segment_bytes: u64,
    has_lz4: bool,
) -> Vec<Candidate> {
    let ruled = |rule| Candidate { rule: Some(rule), ..base };
    let enlarged = |times| ByteSize(source.max_wal_size.0.saturating_mul(times));
    let mut rows = vec![base];
    // Less than three segments is no distance.
    let sizes = [2, 4, 8, 16, 32].map(enlarged).into_iter();
    let sizes = sizes.filter(|size| size.0 >= 3 * segment_bytes);
    rows.extend(sizes.map(|max_wal_size| ruled(CheckpointRule { max_wal_size, ..source.rule() })));
    // Half an hour is seldom what begins a checkpoint.
    if source.timeout.0 < Duration::from_secs(1800) {
        rows.extend([3, 6].map(|times| {
            let timeout = Some(TimeSpan(source.timeout.0.saturating_mul(times)));
            ruled(CheckpointRule { max_wal_size: enlarged(8), timeout, ..source.rule() })
        }));
    }
    let kinds = if has_lz4 { &Compression::ALL[..] } else { &[Compression::Pglz] };
    rows.extend(kinds.iter().map(|kind| {
        let compression = ImageCompression::Set(Some(*kind));
        Candidate { compression, ..base }
    }));
    if source.hints {
        rows.push(Candidate { hints: false, ..base });
    }
    rows.push(Candidate { full_page_writes: false, ..base });
    rows
}

/// Distances from a segment on, each half as long again as the one before.
fn curve(today: Candidate, completion_target: f64, segment_bytes: u64) -> Vec<Candidate> {
    let longer = |segments: &u64| Some((segments * 3 / 2).max(segments + 1));
    let distances = std::iter::successors(Some(1), longer).take(CURVE);
    let point = |segments| {
        let size = max_wal_size_for(segments, segment_bytes, completion_target);
        let rule =
            CheckpointRule { max_wal_size: ByteSize(size), timeout: None, completion_target };
        Candidate { rule: Some(rule), ..today }
    };
    distances.map(point).collect()
}

/// Points of the curve: up to some 30,000 segments.
const CURVE: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    fn source(hints: bool, timeout_s: u64) -> SourceSettings {
        SourceSettings {
            max_wal_size: ByteSize(1 << 30),
            timeout: TimeSpan(Duration::from_secs(timeout_s)),
            completion_target: 0.9,
            hints,
        }
    }

    fn grid(values: AskedValues, source: &SourceSettings, has_lz4: bool) -> Grid {
        Grid::new(&AskedSettings::new(values).unwrap(), source, SEGMENT, has_lz4)
    }

    #[test]
    fn all_combinations_are_answered_in_the_order_of_the_options() {
        let values = AskedValues {
            max_wal_size: vec![ByteSize(1 << 31), ByteSize(1 << 32)],
            compression: vec![None, Some(Compression::Lz4)],
            hints: vec![true, false],
            ..AskedValues::default()
        };
        let grid = grid(values, &source(true, 300), true);
        let shown = grid
            .rows
            .iter()
            .map(|row| (row.max_wal_size().unwrap().0 >> 30, row.compression.name(), row.hints));
        let expected = [
            (2, "off", true),
            (2, "off", false),
            (2, "lz4", true),
            (2, "lz4", false),
            (4, "off", true),
            (4, "off", false),
            (4, "lz4", true),
            (4, "lz4", false),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        assert!(grid.rows.iter().all(|row| row.full_page_writes));
        assert!(
            grid.rows
                .iter()
                .all(|row| row.rule.unwrap().timeout == Some(source(true, 300).timeout))
        );
        assert_eq!((grid.curve.len(), grid.compressed.len()), (CURVE, 0));
        assert_eq!(grid.settings().len(), 1 + 8 + CURVE);
        assert_eq!(grid.settings()[0].schedule, Schedule::Source);
    }

    #[test]
    fn where_nothing_is_asked_one_setting_is_changed_at_a_time() {
        let count = |source: &SourceSettings, has_lz4| {
            let grid = grid(AskedValues::default(), source, has_lz4);
            (grid.rows.len(), grid.compressed.len())
        };
        // The source's, five sizes, two times, three compressions, hints, full_page_writes.
        assert_eq!(count(&source(true, 300), true), (13, CURVE));
        assert_eq!(count(&source(false, 300), false), (10, 0), "no hints, pglz alone");
        assert_eq!(count(&source(true, 1800), true), (11, CURVE), "no times");
        let small =
            SourceSettings { max_wal_size: ByteSize(2 * SEGMENT / 4), ..source(true, 1800) };
        assert_eq!(count(&small, true), (9, CURVE), "no sizes below three segments");
    }

    #[test]
    fn the_curve_is_of_distances_alone() {
        let grid = grid(AskedValues::default(), &source(true, 300), true);
        let sizes: Vec<u64> =
            grid.curve.iter().map(|curve| curve.max_wal_size().unwrap().0).collect();
        assert_eq!(sizes[0], 2 * SEGMENT, "the least that servers take");
        assert!(sizes.is_sorted() && sizes[CURVE - 1] > 300 << 30, "{sizes:?}");
        assert!(grid.curve.iter().all(|curve| curve.rule.unwrap().timeout.is_none()));
        let lz4 = ImageCompression::Set(Some(Compression::Lz4));
        assert!(grid.compressed.iter().all(|compressed| compressed.compression == lz4));
    }

    #[test]
    fn more_combinations_than_the_limit_are_refused() {
        let values = |sizes: usize, targets: usize| AskedValues {
            max_wal_size: vec![ByteSize(1 << 30); sizes],
            completion_target: vec![0.5; targets],
            ..AskedValues::default()
        };
        let requested = AskedSettings::new(values(100, 10)).unwrap();
        assert_eq!(Grid::new(&requested, &source(true, 300), SEGMENT, true).rows.len(), 1000);
        let error = AskedSettings::new(values(7, 143)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "1001 combinations of settings are asked for, and at most 1000 answered"
        );
    }
}
