//! Commits as a function of the WAL position.

use std::collections::VecDeque;

/// Counts the transactions with an ID between two WAL positions, from looks at both. Pure.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommitClock(VecDeque<Point>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    position: f64,
    next_id: f64,
}

/// A day at ten looks a second; older ones are forgotten.
const POINTS_MAX: usize = 864_000;

impl CommitClock {
    /// Adds a look: where WAL ended, and the ID of the next transaction.
    pub(crate) fn push(&mut self, position: u64, next_id: u64) {
        let point = Point { position: float(position), next_id: float(next_id) };
        if self.0.back() != Some(&point) {
            self.0.push_back(point);
        }
        if self.0.len() > POINTS_MAX {
            self.0.pop_front();
        }
    }

    /// Transactions that got their ID after WAL had reached `position`. Between looks, and before the first,
    /// they are spread evenly over the WAL. `None`: it lies before the first look, and WAL has not grown since.
    pub(crate) fn since(&self, position: u64) -> Option<f64> {
        let position = float(position);
        let last = self.0.back()?;
        if position >= last.position {
            return Some(0.0);
        }
        let after = self.0.partition_point(|point| point.position <= position);
        let (from, to) = match after {
            0 => (self.0.front()?, last),
            after => (&self.0[after - 1], &self.0[after]),
        };
        if to.position <= from.position {
            return None;
        }
        let per_byte = (to.next_id - from.next_id) / (to.position - from.position);
        let next_id = from.next_id + (position - from.position) * per_byte;
        Some((last.next_id - next_id).max(0.0))
    }
}

/// Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "positions and counters are far below 2^53")]
pub(crate) const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> CommitClock {
        let mut clock = CommitClock::default();
        for (position, next_id) in [(1000, 10), (2000, 20), (2000, 21), (4000, 61)] {
            clock.push(position, next_id);
        }
        clock
    }

    #[test]
    fn commits_are_counted_between_looks() {
        assert_eq!(clock().since(4000), Some(0.0));
        assert_eq!(clock().since(5000), Some(0.0), "a standby confirms what was written since");
        // Half of the 40 transactions of the last 2,000 bytes.
        assert_eq!(clock().since(3000), Some(20.0));
        assert_eq!(clock().since(1000), Some(51.0));
    }

    #[test]
    fn before_the_first_look_the_mean_rate_counts() {
        // 51 transactions in 3,000 bytes.
        assert_eq!(clock().since(400), Some(51.0 + 600.0 * 51.0 / 3000.0));
        let mut idle = CommitClock::default();
        assert_eq!(idle.since(5), None);
        idle.push(1000, 10);
        assert_eq!((idle.since(999), idle.since(1000)), (None, Some(0.0)));
    }
}
