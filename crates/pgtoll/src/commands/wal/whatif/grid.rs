//! Which settings are asked about.

use std::time::Duration;

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_model::{Compression, Schedule, Settings, max_wal_size_for};

use crate::arguments::{OnOff, WalCompression, WalWhatIfArguments};
use crate::commands::wal::whatif::today::{Today, rule};

/// Settings as they are asked for, and as the model wants them.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// `None`: where the source's checkpoints were.
    pub(super) rule: Option<(ByteSize, Option<TimeSpan>, f64)>,
    pub(super) settings: Settings,
}

/// All that one pass answers, in this order.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) today: Asked,
    pub(super) rows: Vec<Asked>,
    pub(super) curve: Vec<Asked>,
    /// The curve again, each point with LZ4.
    pub(super) compressed: Vec<Asked>,
}

impl Grid {
    pub(super) fn of(
        arguments: &WalWhatIfArguments,
        today: &Today,
        segment_bytes: u64,
        has_lz4: bool,
    ) -> Self {
        let source = Settings {
            schedule: Schedule::Source,
            hints: today.hints,
            full_page_writes: true,
            compression: Compression::AsStored,
        };
        let base =
            Asked::new(today.max_wal_size, Some(today.timeout), today.completion_target, source);
        let rows = if is_asked(arguments) {
            combinations(arguments, &base)
        } else {
            useful(&base, today, segment_bytes, has_lz4)
        };
        let curve = curve(today, source, segment_bytes);
        let lz4 = |of: &Asked| of.with(|settings| settings.compression = Compression::Lz4);
        let compressed = if is_asked(arguments) || !has_lz4 {
            Vec::new()
        } else {
            curve.iter().map(lz4).collect()
        };
        Self { today: Asked { rule: None, settings: source }, rows, curve, compressed }
    }

    pub(super) fn settings(&self) -> Vec<Settings> {
        let lists = [std::slice::from_ref(&self.today), &self.rows, &self.curve, &self.compressed];
        lists.into_iter().flatten().map(|of| of.settings).collect()
    }
}

impl Asked {
    fn new(size: ByteSize, timeout: Option<TimeSpan>, target: f64, settings: Settings) -> Self {
        let longest = TimeSpan(Duration::from_secs(u64::from(u32::MAX) * 1000));
        let schedule = rule(size, timeout.unwrap_or(longest), target);
        Self { rule: Some((size, timeout, target)), settings: Settings { schedule, ..settings } }
    }

    fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.settings);
        changed
    }

    fn sized(&self, size: ByteSize) -> Self {
        let (_, timeout, target) = self.rule.unwrap_or((size, None, 0.9));
        Self::new(size, timeout, target, self.settings)
    }
}

fn is_asked(of: &WalWhatIfArguments) -> bool {
    !(of.max_wal_size.is_empty()
        && of.checkpoint_timeout.is_empty()
        && of.checkpoint_completion_target.is_empty()
        && of.wal_compression.is_empty()
        && of.hints.is_empty()
        && of.full_page_writes.is_empty())
}

/// Every combination of what is asked; what is not asked stays as it is.
fn combinations(of: &WalWhatIfArguments, base: &Asked) -> Vec<Asked> {
    let (size, timeout, target) = base.rule.unwrap_or((ByteSize(1 << 30), None, 0.9));
    let switches = |asked: &[OnOff], today: bool| {
        if asked.is_empty() {
            vec![today]
        } else {
            asked.iter().map(|of| *of == OnOff::On).collect()
        }
    };
    let compressions = if of.wal_compression.is_empty() {
        vec![base.settings.compression]
    } else {
        of.wal_compression.iter().map(|kind| compression(*kind)).collect()
    };
    let mut all = Vec::new();
    for size in or(&of.max_wal_size, size) {
        for timeout in
            or(&of.checkpoint_timeout.iter().copied().map(Some).collect::<Vec<_>>(), timeout)
        {
            for target in or(&of.checkpoint_completion_target, target) {
                for compression in &compressions {
                    for hints in switches(&of.hints, base.settings.hints) {
                        for full_page_writes in switches(&of.full_page_writes, true) {
                            let settings = Settings {
                                hints,
                                full_page_writes,
                                compression: *compression,
                                ..base.settings
                            };
                            all.push(Asked::new(size, timeout, target, settings));
                        }
                    }
                }
            }
        }
    }
    all
}

fn or<T: Copy>(asked: &[T], today: T) -> Vec<T> {
    if asked.is_empty() { vec![today] } else { asked.to_vec() }
}

fn compression(kind: WalCompression) -> Compression {
    match kind {
        WalCompression::Off => Compression::Off,
        WalCompression::Pglz => Compression::Pglz,
        WalCompression::Lz4 => Compression::Lz4,
        WalCompression::Zstd => Compression::Zstd,
    }
}

/// Where nothing is asked: one setting changed at a time.
fn useful(base: &Asked, today: &Today, segment_bytes: u64, has_lz4: bool) -> Vec<Asked> {
    let mut rows = vec![base.clone()];
    let sizes = [2, 4, 8, 16, 32].map(|times| ByteSize(today.max_wal_size.0.saturating_mul(times)));
    let sizes = sizes.into_iter().filter(|size| size.0 >= 3 * segment_bytes);
    rows.extend(sizes.map(|size| base.sized(size)));
    // Half an hour is seldom what begins a checkpoint.
    let is_short = today.timeout.0 < Duration::from_secs(1800);
    let timeouts = if is_short { vec![3, 6] } else { Vec::new() };
    let timeouts =
        timeouts.into_iter().map(|times| TimeSpan(today.timeout.0.saturating_mul(times)));
    for timeout in timeouts {
        let size = ByteSize(today.max_wal_size.0.saturating_mul(8));
        rows.push(Asked::new(size, Some(timeout), today.completion_target, base.settings));
    }
    let mut kinds = vec![Compression::Pglz];
    if has_lz4 {
        kinds.extend([Compression::Lz4, Compression::Zstd]);
    }
    rows.extend(kinds.into_iter().map(|kind| base.with(|of| of.compression = kind)));
    if today.hints {
        rows.push(base.with(|of| of.hints = false));
    }
    rows.push(base.with(|of| of.full_page_writes = false));
    rows
}

/// Distances from a segment on, each half as long again as the one before.
fn curve(today: &Today, source: Settings, segment_bytes: u64) -> Vec<Asked> {
    let mut segments = vec![1_u64];
    while segments.len() < CURVE {
        let last = segments.last().copied().unwrap_or(1);
        segments.push((last * 3 / 2).max(last + 1));
    }
    let target = today.completion_target;
    let size = |count| ByteSize(max_wal_size_for(count, segment_bytes, target));
    segments.into_iter().map(|count| Asked::new(size(count), None, target, source)).collect()
}

/// Points of the curve: up to some 30,000 segments.
const CURVE: usize = 24;
