//! The settings of the server that made WAL: as its configuration has them, else as its checkpoints
//! show them.

use std::time::Duration;

use pgtoll_format::{ByteSize, Lsn, TimeSpan, conf};

use crate::whatif::{Schedule, checkpoint_segments, max_wal_size_for};

/// When checkpoints begin, by the server's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointRule {
    /// `max_wal_size`.
    pub max_wal_size: ByteSize,
    /// `checkpoint_timeout`; `None`: no time begins a checkpoint.
    pub timeout: Option<TimeSpan>,
    /// `checkpoint_completion_target`.
    pub completion_target: f64,
}

impl CheckpointRule {
    /// As [`WhatIf`](crate::WhatIf) takes it.
    pub fn schedule(&self) -> Schedule {
        let timeout_us = self.timeout.map_or(NO_TIMEOUT_US, |timeout| timeout.0.as_micros());
        Schedule::Rule {
            max_wal_size: self.max_wal_size.0,
            timeout_us: i64::try_from(timeout_us).unwrap_or(i64::MAX),
            completion_target: self.completion_target,
        }
    }
}

/// Longer than any WAL: 136,000 years.
const NO_TIMEOUT_US: u128 = u32::MAX as u128 * 1000 * 1_000_000;

/// All settings of the source on which predictions depend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceSettings {
    /// `max_wal_size`.
    pub max_wal_size: ByteSize,
    /// `checkpoint_timeout`.
    pub timeout: TimeSpan,
    /// `checkpoint_completion_target`.
    pub completion_target: f64,
    /// Hints were logged: data checksums or `wal_log_hints`.
    pub hints: bool,
}

impl SourceSettings {
    /// When its checkpoints began.
    pub fn rule(&self) -> CheckpointRule {
        CheckpointRule {
            max_wal_size: self.max_wal_size,
            timeout: Some(self.timeout),
            completion_target: self.completion_target,
        }
    }
}

/// Unknown settings of the source, guessed from its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuessedSettings {
    /// `max_wal_size`.
    pub max_wal_size: bool,
    /// `checkpoint_timeout`.
    pub timeout: bool,
    /// Whether hints are logged. That they are is no guess where the WAL has records for them.
    pub hints: bool,
}

/// Those of them that a configuration has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KnownSettings {
    max_wal_size: Option<ByteSize>,
    timeout: Option<TimeSpan>,
    completion_target: Option<f64>,
    hints: Option<bool>,
}

/// The server's own (`guc_tables.c`).
const MAX_WAL_SIZE: ByteSize = ByteSize(1 << 30);
const CHECKPOINT_TIMEOUT: TimeSpan = TimeSpan(Duration::from_secs(300));

impl KnownSettings {
    /// The settings that [`Self::set`] takes.
    pub const NAMES: [&str; 3] =
        ["max_wal_size", "checkpoint_timeout", "checkpoint_completion_target"];

    /// Takes a setting as `postgresql.conf` has it; `false` if it is none of [`Self::NAMES`] or no
    /// value of it.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        match name {
            "max_wal_size" => {
                conf::size(name, value).map(|size| self.max_wal_size = Some(size)).is_ok()
            }
            "checkpoint_timeout" => {
                conf::time(name, value).map(|time| self.timeout = Some(time)).is_ok()
            }
            "checkpoint_completion_target" => {
                conf::ratio(value).map(|target| self.completion_target = Some(target)).is_some()
            }
            _ => false,
        }
    }

    /// Whether hints are logged.
    pub fn set_hints(&mut self, hints: bool) {
        self.hints = Some(hints);
    }

    /// With what is missing here, as others have it.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            max_wal_size: self.max_wal_size.or(other.max_wal_size),
            timeout: self.timeout.or(other.timeout),
            completion_target: self.completion_target.or(other.completion_target),
            hints: self.hints.or(other.hints),
        }
    }

    /// With the server's defaults, but for those that its version says.
    #[must_use]
    pub fn or_default(self) -> Self {
        let max_wal_size = Some(MAX_WAL_SIZE);
        let timeout = Some(CHECKPOINT_TIMEOUT);
        self.or(Self { max_wal_size, timeout, ..Self::default() })
    }

    /// The rule of a server that is set so; its version says what `checkpoint_completion_target` is
    /// unless it is set.
    pub fn rule(self, default_target: f64) -> CheckpointRule {
        CheckpointRule {
            max_wal_size: self.max_wal_size.unwrap_or(MAX_WAL_SIZE),
            timeout: Some(self.timeout.unwrap_or(CHECKPOINT_TIMEOUT)),
            completion_target: self.completion_target.unwrap_or(default_target),
        }
    }

    /// Checkpoints in the WAL have nothing to add.
    pub fn are_complete(&self) -> bool {
        self.has_rule() && self.hints.is_some()
    }

    /// `max_wal_size` and `checkpoint_timeout` are known.
    pub fn has_rule(&self) -> bool {
        self.max_wal_size.is_some() && self.timeout.is_some()
    }

    /// Returns the settings that [`Self::complete`] has to guess; `hints`: the WAL has records for them.
    pub fn guessed(&self, hints: bool) -> GuessedSettings {
        GuessedSettings {
            max_wal_size: self.max_wal_size.is_none(),
            timeout: self.timeout.is_none(),
            hints: self.hints.is_none() && !hints,
        }
    }

    /// With what is missing here, as the WAL shows it: where and when (in seconds since 1970) its
    /// checkpoints began, and whether it has records for hints.
    pub fn complete(
        &self,
        checkpoints: &[(Lsn, i64)],
        hints: bool,
        segment_bytes: u64,
        default_target: f64,
    ) -> SourceSettings {
        let completion_target = self.completion_target.unwrap_or(default_target);
        let (max_wal_size, timeout) = infer_rule(checkpoints, segment_bytes, completion_target);
        SourceSettings {
            max_wal_size: self.max_wal_size.unwrap_or(max_wal_size),
            timeout: self.timeout.unwrap_or(timeout),
            completion_target,
            hints: self.hints.unwrap_or(hints),
        }
    }
}

/// Segments and seconds from one checkpoint to the next.
type Cycle = (u64, i64);

/// `max_wal_size` and `checkpoint_timeout` that explain how checkpoints follow each other: what
/// occurs again and again is a rule.
fn infer_rule(
    checkpoints: &[(Lsn, i64)],
    segment_bytes: u64,
    completion_target: f64,
) -> (ByteSize, TimeSpan) {
    let cycles = checkpoints.windows(2).map(|pair| {
        let segment = |at: usize| pair[at].0.0 / segment_bytes;
        (segment(1).saturating_sub(segment(0)), pair[1].1.saturating_sub(pair[0].1))
    });
    let cycles: Vec<Cycle> = cycles.filter(|(_, seconds)| *seconds >= 0).collect();
    let timeout = repeated_time(&cycles);
    let size = |segments| ByteSize(max_wal_size_for(segments, segment_bytes, completion_target));
    let furthest = cycles.iter().map(|cycle| cycle.0).max().unwrap_or(0);
    let by_default = checkpoint_segments(MAX_WAL_SIZE.0, segment_bytes, completion_target);
    let distance = repeated_distance(&cycles).filter(|_| timeout.is_none());
    let max_wal_size = match distance {
        Some(distance) => size(distance),
        None if furthest > by_default => size(furthest),
        None if cycles.is_empty() || timeout.is_some() => MAX_WAL_SIZE,
        None => size(furthest.max(1)),
    };
    (max_wal_size, timeout.unwrap_or_else(|| no_shorter_than(&cycles)))
}

/// The longest time between checkpoints, if it comes again.
fn repeated_time(cycles: &[Cycle]) -> Option<TimeSpan> {
    let longest = cycles.iter().map(|cycle| cycle.1).max()?;
    let again = cycles.iter().filter(|cycle| longest - cycle.1 <= 2).count() > 1;
    // Checkpoints begin up to a second late.
    let seconds = u64::try_from(longest).ok()? / 5 * 5;
    (longest >= 30 && again).then(|| TimeSpan(Duration::from_secs(seconds)))
}

/// `checkpoint_timeout` where no time began a checkpoint: the default, or whole minutes above the
/// longest time.
fn no_shorter_than(cycles: &[Cycle]) -> TimeSpan {
    let longest = cycles.iter().map(|cycle| cycle.1).max().unwrap_or(0);
    let minutes = u64::try_from(longest).unwrap_or(0).div_ceil(60);
    CHECKPOINT_TIMEOUT.max(TimeSpan(Duration::from_secs(minutes * 60)))
}

/// The shortest distance of checkpoints that comes again, in segments. Checkpoints lag behind, and so
/// the others are longer.
fn repeated_distance(cycles: &[Cycle]) -> Option<u64> {
    let mut distances: Vec<u64> =
        cycles.iter().map(|cycle| cycle.0).filter(|segments| *segments > 0).collect();
    distances.sort_unstable();
    let is_often = |distance: &u64| {
        let count = distances.iter().filter(|other| *other == distance).count();
        count > 1 && count * 4 >= distances.len()
    };
    distances.iter().copied().find(is_often)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn minutes(minutes: u64) -> TimeSpan {
        TimeSpan(Duration::from_secs(minutes * 60))
    }

    /// Checkpoints this many segments of 16 MB and seconds after one another.
    fn inferred(cycles: &[Cycle]) -> (ByteSize, TimeSpan) {
        let mut at = (Lsn(0), 1_000_000);
        let mut checkpoints = vec![at];
        for (segments, seconds) in cycles {
            at = (Lsn(at.0.0 + segments * 16 * MB), at.1 + seconds);
            checkpoints.push(at);
        }
        infer_rule(&checkpoints, 16 * MB, 0.9)
    }

    #[test]
    fn rules_are_what_comes_again() {
        let check = |cycles: &[Cycle], size_mb: u64, timeout_s: u64, why: &str| {
            let timeout = TimeSpan(Duration::from_secs(timeout_s));
            assert_eq!(inferred(cycles), (ByteSize(size_mb * MB), timeout), "{why}");
        };
        check(&[], 1024, 300, "the defaults");
        check(&[(33, 20), (33, 25), (34, 22)], 1008, 300, "33 segments are those of the default");
        check(&[(4, 300), (5, 300), (3, 301)], 1024, 300, "every five minutes");
        check(&[(4, 61), (5, 60), (3, 59)], 1024, 60, "every minute, up to a second late");
        check(&[(40, 60), (50, 60), (60, 60)], 1824, 60, "more than the default allows");
        check(&[(7, 10), (8, 400)], 256, 420, "none comes again: as far as the furthest");
        check(&[(2, 8), (2, 9), (3, 8), (5, 11)], 64, 300, "late ones are further apart");
    }

    #[test]
    fn what_is_known_is_not_inferred() {
        let mut known = KnownSettings::default();
        assert!(known.set("checkpoint_timeout", "600"));
        assert!(!known.set("max_wal_size", "much") && !known.set("work_mem", "4MB"));
        assert!(!known.set("checkpoint_completion_target", "1.5"));
        assert!(!known.has_rule());
        let checkpoints = [(Lsn(0), 0), (Lsn(16 * MB), 1), (Lsn(32 * MB), 2)];
        let settings = known.complete(&checkpoints, true, 16 * MB, 0.5);
        assert_eq!(settings.max_wal_size, ByteSize(32 * MB));
        assert_eq!((settings.timeout, settings.hints), (minutes(10), true));
        let guessed = |hints, of_hints| {
            let settings = GuessedSettings { max_wal_size: true, timeout: false, hints: of_hints };
            assert_eq!(known.guessed(hints), settings);
        };
        guessed(true, false);
        guessed(false, true);
        assert!((settings.completion_target - 0.5).abs() < 1e-9);
        let mut other = KnownSettings::default();
        assert!(other.set("max_wal_size", "2048") && other.set("checkpoint_timeout", "1min"));
        other.set_hints(false);
        let all = known.or(other);
        assert!(all.are_complete());
        let settings = all.complete(&checkpoints, true, 16 * MB, 0.9);
        assert_eq!((settings.max_wal_size, settings.timeout), (ByteSize(2 << 30), minutes(10)));
        assert!(!settings.hints);
        assert_eq!(all.guessed(false), GuessedSettings::default());
    }

    #[test]
    fn what_is_not_set_is_the_servers_default() {
        let default = KnownSettings::default();
        assert!(default.or_default().has_rule() && !default.or_default().are_complete());
        let rule = default.rule(0.5);
        assert_eq!((rule.max_wal_size, rule.timeout), (ByteSize(1 << 30), Some(minutes(5))));
        let Schedule::Rule { timeout_us, completion_target, .. } = rule.schedule() else {
            panic!()
        };
        assert_eq!((timeout_us, completion_target.to_bits()), (300_000_000, 0.5_f64.to_bits()));
        let never = CheckpointRule { timeout: None, ..rule };
        let Schedule::Rule { timeout_us, .. } = never.schedule() else { panic!() };
        assert_eq!(timeout_us, 4_294_967_295_000_000_000);
    }
}
