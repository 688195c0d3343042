//! A window that has not ended.

use pgtoll_observe::CpuSample;
use pgtoll_record::{CarriedMarks, DirtyCensus};

use crate::looks::{CounterLook, Glimpse};
use crate::running::RunningCheckpoint;

/// A window that has not ended.
pub(super) struct OpenWindow {
    pub(super) begin: Glimpse,
    /// When the checkpoint began that its cycle begins with.
    pub(super) begun_s: f64,
    pub(super) look: CounterLook,
    pub(super) cpu: Option<CpuSample>,
    /// It began with the end of a checkpoint.
    pub(super) is_cycle: bool,
    /// Each with the server's clock.
    pub(super) censuses: Vec<(f64, DirtyCensus)>,
    /// When the last one was taken, or failed; at first the window's begin.
    pub(super) last_census_s: f64,
    /// From when on censuses could be taken.
    pub(super) seen_from_s: f64,
    /// Blocks evicted before the censuses' count of them begins.
    pub(super) evicted_before: u64,
    /// Blocks that were dirty when its checkpoint began, if that was seen.
    pub(super) dirty_before: Option<u64>,
    /// The part that VACUUM marked meanwhile.
    pub(super) marks: Option<CarriedMarks>,
}

impl OpenWindow {
    /// Goes on with the censuses of a checkpoint that has completed.
    pub(super) fn take_over(&mut self, running: RunningCheckpoint) {
        self.seen_from_s = running.begun_s;
        self.dirty_before = Some(running.dirty);
        self.last_census_s = running.last_census_s;
        self.evicted_before = running.evicted.unwrap_or(0);
        for (at, census) in running.censuses {
            self.add_census(at, census);
        }
    }

    /// Blocks that its checkpoint wrote while it ran; of one whose begin was not seen as many as the
    /// next one wrote, `checkpointed`. A checkpoint that is quick leaves none.
    pub(super) fn carried(&self, checkpointed: u64) -> u64 {
        let is_quick = self.begin.now_s - self.begun_s < QUICK_CHECKPOINT_S;
        self.dirty_before.unwrap_or(if is_quick { 0 } else { checkpointed })
    }

    pub(super) fn add_census(&mut self, at: f64, census: DirtyCensus) {
        let age_s = (at - self.begun_s).max(0.0);
        self.censuses.push((at, DirtyCensus { age_s, ..census }));
    }

    /// The last census before the next checkpoint began, else the first one after; while it has not
    /// begun, the last. Before it, those that came earlier.
    pub(super) fn cycle_censuses(
        &self,
        next_s: Option<f64>,
    ) -> (Vec<DirtyCensus>, Option<DirtyCensus>) {
        let is_before = |at: f64| next_s.is_none_or(|next| at <= next + 0.25);
        let count = self.censuses.iter().take_while(|(at, _)| is_before(*at)).count().max(1);
        let own = self.censuses.iter().take(count).map(|(_, census)| census.clone());
        let mut censuses: Vec<DirtyCensus> = own
            .map(|census| DirtyCensus { cycle_s: next_s.map(|next| next - self.begun_s), ..census })
            .collect();
        // Of buffers that the next checkpoint had begun to write: there are fewer than before.
        if let [.., before, last] = &censuses[..]
            && last.cycle_s.is_some_and(|cycle| cycle - last.age_s < CHECKPOINT_MAY_RUN_S)
            && last.dirty < before.dirty / 10 * 9
        {
            censuses.pop();
        }
        let last = censuses.pop();
        // All but the last are for their shares.
        for census in &mut censuses {
            census.relations.clear();
        }
        (censuses, last)
    }
}

/// A checkpoint that takes no longer is not spread over time.
const QUICK_CHECKPOINT_S: f64 = 3.0;
/// When checkpoints begin is known to the second.
const CHECKPOINT_MAY_RUN_S: f64 = 1.0;
