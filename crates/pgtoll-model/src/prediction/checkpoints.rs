//! More WAL brings checkpoints sooner, and sooner checkpoints bring more images.

use super::Bounded;

/// WAL of a server, and what begins its checkpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointLoad {
    /// WAL without images, in bytes a second.
    pub other_bytes_per_second: f64,
    /// Images, in bytes a second.
    pub image_bytes_per_second: f64,
    /// `checkpoint_timeout` in seconds.
    pub timeout_s: f64,
    /// WAL after which a checkpoint begins, in bytes (`CheckPointSegments`).
    pub trigger_bytes: f64,
}

/// Images of a cycle grow with this power of its length: 1 where each second touches other pages,
/// 0 where all cycles touch the same ones. The truth lies between.
const GROWTH: Bounded = Bounded { estimate: 0.5, lower: 1.0, upper: 0.0 };

/// Cycles are followed down to this part of their length.
const SHORTEST: f64 = 0.25;

impl CheckpointLoad {
    /// All of it, in bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.other_bytes_per_second + self.image_bytes_per_second
    }

    /// Seconds from one checkpoint to the next, if none is asked for.
    pub fn cycle_s(&self) -> f64 {
        self.cycle_at(self.bytes_per_second())
    }

    /// Whether volume begins checkpoints before time does.
    pub fn is_wal_driven(&self) -> bool {
        self.cycle_s() < self.timeout_s
    }

    /// WAL more than today, in bytes a second, when images of `extra` bytes a second are added.
    pub fn with_more_images(&self, extra: Bounded) -> Bounded {
        let grown =
            |extra: f64, growth: f64| self.grown(self, extra, growth) - self.bytes_per_second();
        Bounded::new(
            grown(extra.estimate, GROWTH.estimate),
            grown(extra.lower, GROWTH.lower),
            grown(extra.upper, GROWTH.upper),
        )
    }

    /// WAL more than today, in bytes a second, with another timeout and another trigger. What no WAL
    /// was read for is wide: cycles that touch the same pages, to cycles that touch other ones.
    pub fn with_other_distance(&self, timeout_s: f64, trigger_bytes: f64) -> Bounded {
        let other = Self { timeout_s, trigger_bytes, ..*self };
        let change = |growth: f64| self.grown(&other, 0.0, growth) - self.bytes_per_second();
        let a = change(GROWTH.lower);
        let b = change(GROWTH.upper);
        Bounded::new(change(GROWTH.estimate), a.min(b), a.max(b))
    }

    /// Bytes a second with more images, and checkpoints as `other` begins them.
    fn grown(&self, other: &Self, extra: f64, growth: f64) -> f64 {
        let today = self.cycle_s();
        let images = self.image_bytes_per_second + extra;
        let at =
            |cycle: f64| self.other_bytes_per_second + images * (cycle / today).powf(growth - 1.0);
        let shortest = other.cycle_at(self.bytes_per_second()).min(today) * SHORTEST;
        let mut cycle = other.cycle_at(at(today));
        for _ in 0..STEPS {
            // Halfway, so that it does not swing.
            cycle = f64::midpoint(cycle, other.cycle_at(at(cycle))).max(shortest);
        }
        at(cycle)
    }

    fn cycle_at(&self, bytes_per_second: f64) -> f64 {
        self.timeout_s.min(self.trigger_bytes / bytes_per_second.max(1.0)).max(0.001)
    }
}

/// Enough to come within a part in a million.
const STEPS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    fn load(trigger_mb: f64) -> CheckpointLoad {
        CheckpointLoad {
            other_bytes_per_second: 2.0 * MB,
            image_bytes_per_second: 2.0 * MB,
            timeout_s: 300.0,
            trigger_bytes: trigger_mb * MB,
        }
    }

    #[test]
    fn where_time_begins_checkpoints_images_add_up() {
        let load = load(10_000.0);
        assert!(!load.is_wal_driven());
        let more = load.with_more_images(Bounded::exact(MB));
        assert!((more.estimate - MB).abs() < 1.0 && (more.upper - MB).abs() < 1.0, "{more:?}");
    }

    #[test]
    fn where_volume_does_more_images_bring_more_checkpoints() {
        let load = load(400.0);
        assert!(load.is_wal_driven());
        assert!((load.cycle_s() - 100.0).abs() < 1e-6);
        let more = load.with_more_images(Bounded::exact(0.4 * MB));
        // Other pages each second: no interaction.
        assert!((more.lower - 0.4 * MB).abs() < 1.0, "{more:?}");
        // The same pages in each cycle: 240 MB of images, so that 160 MB are left for 80 s.
        assert!((more.upper - (5.0 - 4.0) * MB).abs() < 0.01 * MB, "{more:?}");
        assert!(more.lower < more.estimate && more.estimate < more.upper, "{more:?}");
    }

    #[test]
    fn more_images_than_a_cycle_holds_end() {
        let more = load(100.0).with_more_images(Bounded::exact(100.0 * MB));
        assert!(more.upper.is_finite() && more.upper >= 100.0 * MB, "{more:?}");
    }

    #[test]
    fn a_longer_distance_saves_between_nothing_and_all_that_the_images_allow() {
        let change = load(400.0).with_other_distance(300.0, 800.0 * MB);
        assert!(change.upper.abs() < 1.0, "{change:?}");
        // The same pages: 200 MB of images in a cycle of 300 s.
        assert!((change.lower + (2.0 - 200.0 / 300.0) * MB).abs() < 0.01 * MB, "{change:?}");
    }
}
