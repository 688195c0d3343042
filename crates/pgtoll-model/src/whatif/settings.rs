//! Settings, and how WAL goes under them.

use crate::whatif::space::{Geometry, checkpoint_segments};

/// How images are compressed (`wal_compression`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// As they are in the source.
    AsStored,
    /// Not at all.
    Off,
    /// PostgreSQL's own.
    Pglz,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// When checkpoints begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Where they began in the source.
    Source,
    /// As the server's settings say, and where the source's were forced.
    Rule {
        /// `max_wal_size` in bytes.
        max_wal_size: u64,
        /// `checkpoint_timeout` in microseconds.
        timeout_us: i64,
        /// `checkpoint_completion_target`.
        completion_target: f64,
    },
}

/// What WAL would be made under.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When checkpoints begin.
    pub schedule: Schedule,
    /// Hints are logged: data checksums or `wal_log_hints`.
    pub hints: bool,
    /// `full_page_writes`.
    pub full_page_writes: bool,
    /// `wal_compression`.
    pub compression: Compression,
}

/// What became of WAL under settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of WAL, page headers and padding among them.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them, with their headers.
    pub image_bytes: u64,
    /// Checkpoints for `max_wal_size`.
    pub by_volume: u64,
    /// Checkpoints for `checkpoint_timeout`.
    pub by_time: u64,
    /// Checkpoints of the source that would have been all the same; of the source's own schedule
    /// all.
    pub forced: u64,
    /// Segments that were begun or finished.
    pub segments: u64,
    /// The longest way from one redo point to the next, the unfinished one at the end as well.
    pub longest_cycle: u64,
    /// The most that a recovery had to read: from the last redo point whose checkpoint was
    /// complete.
    pub replay_most: u64,
}

/// The course of WAL under one of the settings.
#[derive(Clone, Debug)]
pub(super) struct Course {
    geometry: Geometry,
    usable: u64,
    follows_source: bool,
    from: u64,
    position: u64,
    redo: u64,
    /// Nothing was written since the checkpoint while the position is here.
    idle: u64,
    /// A checkpoint is due when a segment ends here.
    trigger: u64,
    segments: u64,
    /// The way to the next checkpoint, by which its writes are spread.
    pace_bytes: u64,
    pace_us: i64,
    /// A forced checkpoint does not spread them.
    is_forced: bool,
    timeout_us: i64,
    target: f64,
    checkpoint_us: i64,
    before: u64,
    outcome: Outcome,
}

/// An idle server looks again after so long.
const IDLE_RETRY_US: i64 = 15_000_000;

impl Course {
    pub(super) fn new(settings: &Settings, geometry: Geometry) -> Self {
        let (segments, timeout_us, target) = match settings.schedule {
            Schedule::Source => (u64::MAX, i64::MAX, DEFAULT_TARGET),
            Schedule::Rule { max_wal_size, timeout_us, completion_target } => {
                let segments =
                    checkpoint_segments(max_wal_size, geometry.segment_bytes, completion_target);
                (segments, timeout_us.max(1), completion_target)
            }
        };
        Self {
            geometry,
            usable: geometry.usable(),
            follows_source: settings.schedule == Schedule::Source,
            from: 0,
            position: 0,
            redo: 0,
            idle: 0,
            trigger: u64::MAX,
            segments,
            pace_bytes: segments.saturating_mul(geometry.usable()),
            pace_us: timeout_us,
            is_forced: false,
            timeout_us,
            target,
            checkpoint_us: i64::MAX,
            before: 0,
            outcome: Outcome::default(),
        }
    }

    pub(super) fn begin(&mut self, position: u64, time_us: i64) {
        (self.from, self.position) = (position, position);
        (self.redo, self.idle) = (position, position);
        (self.outcome, self.before, self.checkpoint_us) = (Outcome::default(), 0, time_us);
        self.arm(0);
    }

    /// Nothing was known of the time until now.
    pub(super) fn first_time(&mut self, now_us: i64) {
        self.checkpoint_us = self.checkpoint_us.min(now_us);
    }

    /// The source's own checkpoints are spread as these settings say.
    pub(super) fn expect(&mut self, today: &Settings) {
        let other = Self::new(today, self.geometry);
        (self.pace_bytes, self.pace_us, self.target) =
            (other.pace_bytes, other.pace_us, other.target);
    }

    /// How far the writes of the last checkpoint have come, from 0 to 1 (`IsCheckpointOnSchedule`).
    #[expect(clippy::cast_precision_loss, reason = "shares of a way")]
    pub(super) fn progress(&self, now_us: i64) -> f64 {
        if self.is_forced {
            return 1.0;
        }
        let bytes = (self.position - self.redo) as f64 / self.pace_bytes.max(1) as f64;
        let passed = now_us.saturating_sub(self.checkpoint_us).max(0);
        let time = passed as f64 / self.pace_us.max(1) as f64;
        (bytes.max(time) / self.target.max(0.01)).min(1.0)
    }

    pub(super) fn pace_bytes(&self) -> u64 {
        self.pace_bytes
    }

    /// How many checkpoints there were.
    pub(super) fn count(&self) -> u64 {
        self.outcome.by_volume + self.outcome.by_time + self.outcome.forced
    }

    /// The next checkpoint begins so many bytes after a segment's end asks for it.
    fn arm(&mut self, lag: u64) {
        let segment = self.redo / self.usable;
        let asked = segment.saturating_add(self.segments).saturating_mul(self.usable);
        self.trigger = asked.saturating_add(lag);
    }

    #[inline]
    pub(super) fn advance(&mut self, bytes: u64) {
        self.position += bytes;
    }

    #[inline]
    pub(super) fn images(&mut self, images: u32, bytes: u32) {
        self.outcome.images += u64::from(images);
        self.outcome.image_bytes += u64::from(bytes);
    }

    pub(super) fn switch(&mut self) {
        self.position = self.position.next_multiple_of(self.usable);
    }

    pub(super) fn slack(&self) -> u64 {
        self.trigger.saturating_sub(self.position)
    }

    pub(super) fn next_time(&self) -> i64 {
        self.checkpoint_us.saturating_add(self.timeout_us)
    }

    pub(super) fn follows_source(&self) -> bool {
        self.follows_source
    }

    #[inline]
    pub(super) fn is_due_by_volume(&self) -> bool {
        self.position >= self.trigger
    }

    pub(super) fn is_due_by_time(&self, now_us: i64) -> bool {
        now_us >= self.next_time()
    }

    pub(super) fn checkpoint_by_volume(&mut self, now_us: i64, own_bytes: u64, lag: u64) {
        self.outcome.by_volume += 1;
        self.checkpoint(now_us, own_bytes, lag);
    }

    pub(super) fn checkpoint_forced(
        &mut self,
        now_us: i64,
        own_bytes: u64,
        lag: u64,
        is_forced: bool,
    ) {
        self.outcome.forced += 1;
        self.checkpoint(now_us, own_bytes, lag);
        self.is_forced = is_forced;
    }

    /// It began when it was due, if there was anything since the one before. An idle server does
    /// without, and looks again from time to time.
    pub(super) fn checkpoint_by_time(&mut self, now_us: i64, own_bytes: u64, lag: u64) {
        let mut began_us = self.next_time();
        if self.position > self.idle {
            self.outcome.by_time += 1;
            self.checkpoint(began_us, own_bytes, lag);
            if !self.is_due_by_time(now_us) {
                return;
            }
            began_us = self.next_time();
        }
        // Nothing was written until now.
        let looked = now_us.saturating_sub(began_us) / IDLE_RETRY_US + 1;
        let next_us = began_us.saturating_add(looked.saturating_mul(IDLE_RETRY_US));
        self.checkpoint_us = next_us.saturating_sub(self.timeout_us);
    }

    fn checkpoint(&mut self, began_us: i64, own_bytes: u64, lag: u64) {
        self.is_forced = false;
        self.measure();
        self.before = self.position - self.redo;
        self.redo = self.position;
        self.position += own_bytes;
        self.idle = self.position;
        self.checkpoint_us = if began_us == i64::MIN { i64::MAX } else { began_us };
        self.arm(lag);
    }

    /// A recovery reads from the redo point before while a checkpoint is under way.
    #[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
    fn measure(&mut self) {
        let cycle = self.position - self.redo;
        let under_way = (cycle as f64 * self.target.clamp(0.0, 1.0)) as u64;
        let most = cycle.max(if self.before > 0 { self.before + under_way } else { 0 });
        self.outcome.longest_cycle = self.outcome.longest_cycle.max(cycle);
        self.outcome.replay_most = self.outcome.replay_most.max(most);
    }

    pub(super) fn outcome(&self) -> Outcome {
        let mut last = self.clone();
        last.measure();
        let end = |position| self.geometry.end(position).0;
        let segment = |position: u64| position / self.usable;
        Outcome {
            bytes: end(self.position) - end(self.from),
            segments: segment(self.position.max(1) - 1).saturating_sub(segment(self.from)) + 1,
            ..last.outcome
        }
    }
}

/// Of the source's own schedule: nobody said another.
const DEFAULT_TARGET: f64 = 0.9;
