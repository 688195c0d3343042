//! Hints of readers: those that the source logged, and those that it did not log and that other
//! settings would.

use std::collections::BTreeMap;

use crate::whatif::blocks::{BlockKey, BlockState};
use crate::whatif::set::SettingSet;
use crate::whatif::simulations::{Always, Need, Variable};
use crate::whatif::visits::{Past, Visits};
use crate::whatif::{Reference, Rule, WhatIf};

/// The known facts about readers.
#[derive(Debug, Default)]
pub(super) struct Readers {
    visits: Visits,
    /// Blocks whose last hint some simulations did not log.
    unlogged: BTreeMap<BlockKey, SettingSet>,
}

/// A record for a hint (`FPI_FOR_HINT`) without its image.
const HINT_RECORD: u32 = 46;

impl Readers {
    /// A checkpoint of the source began.
    pub(super) fn source_checkpoint(&mut self, now: u64) {
        self.visits.boundary(now);
    }

    /// When something is to be done, by the work that is done.
    #[inline]
    pub(super) fn next_visit(&self) -> u64 {
        self.visits.next()
    }

    /// Simulations that did not log the block's last hint.
    #[inline]
    pub(super) fn take_unlogged(&mut self, block: BlockKey) -> SettingSet {
        if self.unlogged.is_empty() {
            return SettingSet::default();
        }
        self.unlogged.remove(&block).unwrap_or_default()
    }

    pub(super) fn set_unlogged(&mut self, block: BlockKey, simulations: SettingSet) {
        if !simulations.is_empty() {
            self.unlogged.insert(block, simulations);
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        self.visits.memory()
    }
}

impl WhatIf {
    /// Takes note of who changes pages, and who only reads them.
    #[inline]
    pub(super) fn follow(&mut self, reference: &Reference, before: &BlockState, is_new: bool) {
        let now = self.simulations.now();
        let block = reference.block;
        let was_visible = self.simulations.precedes_source_checkpoint(before.touched);
        let past = Past { is_new, was_visible: was_visible.unwrap_or(false) };
        let is_hint = reference.rule == Rule::Hint;
        self.readers.visits.named(block, self.blocks.state(block), past, is_hint, now);
    }

    /// Readers that came until now. Where the source would have logged a hint there was none.
    #[cold]
    pub(super) fn visit(&mut self) {
        let now = self.simulations.now();
        let visits = &mut self.readers.visits;
        while let Some(fork) = visits.starting() {
            for block in self.blocks.in_fork(fork) {
                visits.schedule(block, self.blocks.state(block), now);
            }
        }
        while self.readers.visits.next() <= now {
            let Some(block) = self.readers.visits.pop() else { return };
            let state = self.blocks.state(block);
            state.is_awaited = false;
            let touched = state.touched;
            self.readers.visits.schedule(block, state, now);
            let is_visible = self.simulations.precedes_source_checkpoint(touched).unwrap_or(true);
            if !is_visible && self.is_begun {
                self.hidden_hint(block);
            }
        }
    }

    /// A hint that the source has not logged.
    fn hidden_hint(&mut self, block: BlockKey) {
        let epoch = self.simulations.epoch();
        let state = self.blocks.state(block);
        let before = std::mem::replace(state, BlockState { touched: epoch, ..*state });
        let unlogged = self.readers.take_unlogged(block);
        if before.touched >= epoch && unlogged.is_empty() {
            return;
        }
        let need = Need {
            touched: before.touched,
            changed: before.changed,
            only_with_hints: true,
            written_at: self.simulations.is_pace_known().then_some(1.0),
            unlogged,
            image: self.means.filled(block.fork, before.image),
            pruned_bytes: 0,
            data_bytes: 0,
        };
        let record = Variable { bytes: HINT_RECORD, always: &Always::default(), needs: &[need] };
        let unlogged = self.simulations.add_hint(block, record, &self.blocks);
        self.readers.set_unlogged(block, unlogged);
    }
}
