//! When checkpoints begin and end under one of the settings, and how much WAL it makes.

use crate::whatif::settings::{Schedule, Settings, WhatIfOutcome};
use crate::whatif::space::{Geometry, checkpoint_segments};

/// A segment's end asked for the next checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Not yet.
    None,
    /// When the one before was complete.
    Served,
    /// While it still ran.
    Waits,
}

/// WAL and checkpoints under one of the settings.
#[derive(Clone, Debug)]
pub(super) struct CheckpointSimulation {
    geometry: Geometry,
    usable: u64,
    follows_source: bool,
    from: u64,
    position: u64,
    redo: u64,
    /// Nothing was written since the checkpoint while the position is here.
    idle: u64,
    /// A checkpoint is asked for when a segment ends here.
    due: u64,
    /// Here the writes of the one before end.
    mark: u64,
    /// They have ended when so much work is done; `None`: the mark is not reached.
    written: Option<u64>,
    /// Checkpoints wait for the one before.
    waits: bool,
    /// For the next one.
    request: Request,
    /// How often that was so.
    waited: u64,
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
    outcome: WhatIfOutcome,
}

/// An idle server looks again after so long.
const IDLE_RETRY_US: i64 = 15_000_000;

impl CheckpointSimulation {
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
            due: u64::MAX,
            mark: u64::MAX,
            written: Some(0),
            waits: false,
            request: Request::None,
            waited: 0,
            segments,
            pace_bytes: segments.saturating_mul(geometry.usable()),
            pace_us: timeout_us,
            is_forced: false,
            timeout_us,
            target,
            checkpoint_us: i64::MAX,
            before: 0,
            outcome: WhatIfOutcome::default(),
        }
    }

    pub(super) fn begin(&mut self, position: u64, time_us: i64) {
        (self.from, self.position) = (position, position);
        (self.redo, self.idle) = (position, position);
        (self.outcome, self.before, self.checkpoint_us) = (WhatIfOutcome::default(), 0, time_us);
        self.arm();
        self.written = Some(0);
    }

    /// Nothing was known of the time until now.
    pub(super) fn first_time(&mut self, now_us: i64) {
        self.checkpoint_us = self.checkpoint_us.min(now_us);
    }

    /// The source's own checkpoints are spread as these settings say, and all wait for the one
    /// before.
    pub(super) fn assume_schedule(&mut self, today: &Settings) {
        self.waits = true;
        if self.follows_source {
            let other = Self::new(today, self.geometry);
            (self.pace_bytes, self.pace_us, self.target) =
                (other.pace_bytes, other.pace_us, other.target);
        }
    }

    /// How far the writes of the last checkpoint have come, from 0 to 1 (`IsCheckpointOnSchedule`), so
    /// many bytes ahead.
    #[expect(clippy::cast_precision_loss, reason = "shares of a way")]
    pub(super) fn progress(&self, now_us: i64, ahead: u64) -> f64 {
        if self.is_forced {
            return 1.0;
        }
        let bytes = (self.position + ahead - self.redo) as f64 / self.pace_bytes.max(1) as f64;
        let passed = now_us.saturating_sub(self.checkpoint_us).max(0);
        let time = passed as f64 / self.pace_us.max(1) as f64;
        (bytes.max(time) / self.target.max(0.01)).min(1.0)
    }

    /// How many checkpoints there were.
    pub(super) fn count(&self) -> u64 {
        self.outcome.by_volume + self.outcome.by_time + self.outcome.forced
    }

    /// When the next checkpoint is asked for, and where the writes of this one end.
    #[expect(clippy::cast_precision_loss, reason = "bytes of WAL are far below 2^53")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
    fn arm(&mut self) {
        let segment = self.redo / self.usable;
        self.due = segment.saturating_add(self.segments).saturating_mul(self.usable);
        let way = (self.pace_bytes as f64 * self.target.clamp(0.0, 1.0)) as u64;
        self.mark = self.redo.saturating_add(way);
        self.written = if self.waits { None } else { Some(0) };
        self.request = Request::None;
    }

    /// Whether the next checkpoint begins now. Its request wakes a checkpointer that naps; one that
    /// comes while the checkpoint before ends may be lost (`loses`), and the next segment's end asks
    /// again.
    pub(super) fn begins(&mut self, work: u64, delay: u64, loses: bool) -> bool {
        if self.written.is_none() && self.position >= self.mark {
            self.written = Some(work.saturating_add(delay));
        }
        let is_written = self.written.is_some_and(|written| work >= written);
        if self.request == Request::None && self.position >= self.due {
            self.request = if is_written { Request::Served } else { Request::Waits };
            self.written = self.written.map(|written| written.min(work));
        }
        if self.written.is_none_or(|written| work < written) {
            return false;
        }
        if self.request == Request::Waits {
            self.waited += 1;
            if loses {
                self.request = Request::None;
                self.due += self.usable;
            }
        }
        self.request != Request::None
    }

    /// How often a checkpoint waited for the one before.
    pub(super) fn waited(&self) -> u64 {
        self.waited
    }

    /// Returns the position at which the source's next checkpoint was requested, and whether it is past that by a segment.
    pub(super) fn source_asked(&self) -> (bool, bool) {
        let segments = self.pace_bytes / self.usable;
        let requested =
            (self.redo / self.usable).saturating_add(segments).saturating_mul(self.usable);
        (self.position >= requested, self.position >= requested.saturating_add(self.usable))
    }

    /// Its writes are few, and end before the mark.
    pub(super) fn write_early(&mut self) {
        self.written = Some(0);
    }

    pub(super) fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// How much work was done when the mark was passed, with the delay.
    pub(super) fn written(&self) -> Option<u64> {
        self.written
    }

    #[inline]
    pub(super) fn advance(&mut self, bytes: u64) {
        self.position += bytes;
    }

    #[inline]
    pub(super) fn images(&mut self, images: u64, bytes: u64) {
        self.outcome.images += images;
        self.outcome.image_bytes += bytes;
    }

    /// Bytes more if `VACUUM` had to freeze.
    pub(super) fn freeze(&mut self, bytes: u64) {
        self.outcome.freeze_bytes += bytes;
    }

    pub(super) fn switch(&mut self) {
        self.position = self.position.next_multiple_of(self.usable);
    }

    /// This many bytes more, and something is to be decided.
    pub(super) fn slack(&self, work: u64) -> u64 {
        let to_due = match self.request {
            Request::None => self.due.saturating_sub(self.position),
            Request::Served | Request::Waits => u64::MAX,
        };
        match self.written {
            None => to_due.min(self.mark.saturating_sub(self.position)),
            Some(written) if work < written => to_due.min(written - work),
            Some(_) => to_due,
        }
    }

    pub(super) fn next_time(&self) -> i64 {
        self.checkpoint_us.saturating_add(self.timeout_us)
    }

    pub(super) fn follows_source(&self) -> bool {
        self.follows_source
    }

    pub(super) fn is_due_by_time(&self, now_us: i64) -> bool {
        now_us >= self.next_time()
    }

    pub(super) fn checkpoint_by_volume(&mut self, now_us: i64, own_bytes: u64) {
        self.outcome.by_volume += 1;
        self.checkpoint(now_us, own_bytes);
    }

    pub(super) fn checkpoint_forced(&mut self, now_us: i64, own_bytes: u64, is_forced: bool) {
        self.outcome.forced += 1;
        self.checkpoint(now_us, own_bytes);
        self.is_forced = is_forced;
        if is_forced {
            self.written = Some(0);
        }
    }

    /// It began when it was due, if there was anything since the one before. An idle server does
    /// without, and looks again from time to time.
    pub(super) fn checkpoint_by_time(&mut self, now_us: i64, own_bytes: u64) {
        let mut began_us = self.next_time();
        if self.position > self.idle {
            self.outcome.by_time += 1;
            self.checkpoint(began_us, own_bytes);
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

    fn checkpoint(&mut self, began_us: i64, own_bytes: u64) {
        self.is_forced = false;
        self.measure();
        self.before = self.position - self.redo;
        self.redo = self.position;
        self.position += own_bytes;
        self.idle = self.position;
        self.checkpoint_us = if began_us == i64::MIN { i64::MAX } else { began_us };
        self.arm();
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

    pub(super) fn outcome(&self) -> WhatIfOutcome {
        let mut last = self.clone();
        last.measure();
        let end = |position| self.geometry.end(position).0;
        let segment = |position: u64| position / self.usable;
        WhatIfOutcome {
            bytes: end(self.position) - end(self.from),
            segments: segment(self.position.max(1) - 1).saturating_sub(segment(self.from)) + 1,
            ..last.outcome
        }
    }
}

/// The default `checkpoint_completion_target`.
const DEFAULT_TARGET: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::settings::ImageCompression;

    /// Two segments of 1 MB, of which checkpoints write for nine tenths.
    fn simulation() -> CheckpointSimulation {
        let geometry = Geometry { segment_bytes: 1 << 20, page_bytes: 8192 };
        let settings = Settings {
            schedule: Schedule::Rule {
                max_wal_size: 4 << 20,
                timeout_us: i64::MAX,
                completion_target: 0.9,
            },
            hints: true,
            full_page_writes: true,
            compression: ImageCompression::AsStored,
        };
        let mut simulation = CheckpointSimulation::new(&settings, geometry);
        simulation.assume_schedule(&settings);
        simulation.begin(0, 0);
        simulation.checkpoint(0, 0);
        simulation
    }

    #[test]
    fn a_checkpoint_waits_for_the_one_before() {
        let mut simulation = simulation();
        let due = 2 * simulation.usable;
        simulation.advance(due - 1);
        assert!(!simulation.begins(1000, 500, false), "it writes until the work is 1500");
        assert_eq!(simulation.slack(1000), 1, "the segment's end asks for the next");
        simulation.advance(1);
        assert!(simulation.begins(1001, 500, false), "the request wakes it");
        assert_eq!(simulation.waited(), 1);
    }

    #[test]
    fn a_request_that_is_lost_comes_again_with_the_next_segment() {
        let mut simulation = simulation();
        simulation.advance(2 * simulation.usable);
        assert!(!simulation.begins(1000, 500, true));
        assert_eq!(simulation.slack(1000), simulation.usable);
        simulation.advance(simulation.usable);
        assert!(simulation.begins(2000, 500, true), "nothing runs that could lose it");
        assert_eq!(simulation.waited(), 1);
    }

    #[test]
    fn where_writes_end_early_nothing_waits() {
        let mut simulation = simulation();
        simulation.write_early();
        simulation.advance(2 * simulation.usable);
        assert!(simulation.begins(1000, 500, true));
        assert_eq!(simulation.waited(), 0);
    }
}
