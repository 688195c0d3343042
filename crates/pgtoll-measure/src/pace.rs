//! Rounds within a budget of time, on a machine that may be slower than the plan took it for.

use std::time::{Duration, Instant};

use pgtoll_record::Slicing;

use crate::Plan;

/// With fewer, a round says nothing.
pub(crate) const FEWEST_BLOCKS: u32 = 10;

/// How many blocks the rounds of a workload may have. What stands first in the file has all the time
/// that is left, what comes later only what it leaves.
#[derive(Debug)]
pub(crate) struct Pace {
    /// `None` when the user said how long rounds are.
    end: Option<Instant>,
    /// The rounds of this workload that are left.
    rounds_left: u32,
    /// A round's time beyond that of its blocks as planned: restarts, warm-up, slices that took
    /// longer. The last round's.
    beyond: Option<Duration>,
    arms: usize,
}

impl Pace {
    /// For one workload of a run that began then.
    pub(crate) fn new(plan: &Plan, began: Instant) -> Self {
        Self {
            end: plan.budget.and_then(|budget| began.checked_add(budget)),
            rounds_left: plan.design.rounds,
            beyond: None,
            arms: plan.experiment.arms.len(),
        }
    }

    /// Blocks of the next round: as planned, unless it and those after it would take too long.
    pub(crate) fn blocks(&self, slicing: &Slicing, planned_beyond: Duration) -> u32 {
        let Some(end) = self.end else { return slicing.blocks_per_round };
        let left = end.saturating_duration_since(Instant::now()) / self.rounds_left.max(1);
        let for_blocks = left.saturating_sub(self.beyond.unwrap_or(planned_beyond));
        let block = slicing.block(self.arms).as_nanos().max(1);
        let blocks = u32::try_from(for_blocks.as_nanos() / block).unwrap_or(u32::MAX);
        blocks.max(FEWEST_BLOCKS).min(slicing.blocks_per_round)
    }

    /// A round of this many blocks took so long.
    pub(crate) fn learn(&mut self, slicing: &Slicing, blocks: u32, took: Duration) {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        self.beyond = Some(took.saturating_sub(slicing.block(self.arms) * blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choices, Experiment};

    fn pace(budget: u64, elapsed: u64) -> (Pace, Slicing) {
        let experiment = Experiment::built_in("checksums").unwrap().unwrap();
        let budget = Some(Duration::from_secs(budget));
        let plan = Plan::new(experiment, &Choices { budget, ..Choices::default() });
        let began = Instant::now().checked_sub(Duration::from_secs(elapsed)).unwrap();
        (Pace::new(&plan, began), plan.slicing["read-only-misses"].clone())
    }

    #[test]
    fn rounds_are_as_planned_while_there_is_time_and_shorter_when_not() {
        let beyond = Duration::from_secs(4);
        let (early, slicing) = pace(300, 60);
        assert_eq!(early.blocks(&slicing, beyond), slicing.blocks_per_round);
        let (late, slicing) = pace(300, 200);
        let blocks = late.blocks(&slicing, beyond);
        // 100 s for 6 rounds, 4 s of each for other things, 220 ms a block.
        assert_eq!(blocks, slicing.blocks_per_round.min(57));
        let (late, slicing) = pace(300, 250);
        let blocks = late.blocks(&slicing, beyond);
        assert!((18..=19).contains(&blocks), "{blocks}");
        let (over, slicing) = pace(300, 400);
        assert_eq!(over.blocks(&slicing, beyond), FEWEST_BLOCKS);
    }

    #[test]
    fn a_round_teaches_what_comes_on_top() {
        let (mut pace, slicing) = pace(300, 250);
        let before = pace.blocks(&slicing, Duration::ZERO);
        pace.learn(&slicing, 10, Duration::from_secs(8));
        assert_eq!(pace.beyond, Some(Duration::from_millis(5800)));
        assert!(pace.blocks(&slicing, Duration::ZERO) < before);
    }
}
