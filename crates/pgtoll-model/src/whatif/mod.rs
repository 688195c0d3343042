//! WAL of the same work with other settings.
//!
//! A page gets a full-page image with its first change after a checkpoint began. Whether settings
//! need an image for a change therefore depends on one question: did one of *their* checkpoints begin
//! between the page's change before and this one? The change before is the same whatever the
//! settings. So one state for each block ([`blocks`]) answers for all settings at once, and each of
//! these keeps no more than a position and the place of its last checkpoint ([`simulation`]): its own
//! bytes decide, while they are made, when the next one is due. [`simulations`] has all settings side
//! by side, [`readers`] what hints the source did not log, [`means`] how long images are that nobody
//! has seen, [`check`] whether the source's own images are explained.

mod blocks;
mod check;
mod cycle;
mod freezes;
mod gains;
mod means;
mod order;
mod pace;
mod readers;
mod set;
mod settings;
mod simulation;
mod simulations;
mod space;
mod visits;

use pgtoll_format::Lsn;

pub use blocks::BlockKey;
use blocks::{BlockState, Blocks};
pub use check::Check;
use check::SelfCheck;
use cycle::CycleCounts;
pub use cycle::CyclePages;
pub use freezes::FREEZE_WITHIN;
use means::{ImageMeans, empty_page, grow, room};
pub use order::ForkPlace;
use readers::Readers;
pub use settings::{ImageCompression, ImageLengths, Schedule, Settings, WhatIfOutcome};
use simulations::{Always, Need, Simulations, Variable};
pub use space::{Geometry, checkpoint_segments, max_wal_size_for};

/// The rule for a record's reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It needs an image after a checkpoint.
    Regular,
    /// The same, and the record is only there for the image (`FPI_FOR_HINT`): nobody needs it where
    /// no checkpoint began since the page's change before, or where hints are not logged.
    Hint,
    /// The same, where hints are logged; else the page's LSN is not even set (`Heap2/VISIBLE`).
    WithHints,
    /// The same by a reader (since 19). It does not add images where hints are logged: in the prediction
    /// trial servers that log them have images for the hints on such pages, and none for the marks.
    MarkedByReader,
    /// The page is initialized again: it never needs one.
    Init,
    /// It has an image whatever the settings.
    Always,
}

/// A record's reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The block.
    pub block: BlockKey,
    /// When it needs an image.
    pub rule: Rule,
    /// Its image; `None`: the source has none.
    pub image: Option<ImageLengths>,
    /// Bytes of data that are left out where there is an image.
    pub data_bytes: u16,
    /// By how much it fills its page.
    pub grows_by: i16,
    /// For a hint: the bytes, part of the record's here, by which `VACUUM` froze the page's rows right
    /// after it ([`FREEZE_WITHIN`]).
    pub freeze_bytes: u16,
    /// Bytes of dead rows that it frees on the page. Where hints are logged, the page has its image before
    /// that: who prunes sets the rows' hints first.
    pub pruned_bytes: u16,
}

/// The replay of one WAL under many settings. Records come in their order; nothing is counted
/// before [`WhatIf::begin`].
#[derive(Debug)]
pub struct WhatIf {
    simulations: Simulations,
    blocks: Blocks,
    means: ImageMeans,
    readers: Readers,
    check: SelfCheck,
    cycle: CycleCounts,
    is_begun: bool,
    /// The needs of the record that is being added.
    needs: Vec<Need>,
}

impl WhatIf {
    /// Nothing was fed yet. Each checkpoint writes this many bytes itself.
    pub fn new(geometry: Geometry, own_bytes: u64, settings: &[Settings]) -> Self {
        Self {
            simulations: Simulations::new(geometry, own_bytes, settings),
            blocks: Blocks::default(),
            means: ImageMeans::default(),
            readers: Readers::default(),
            check: SelfCheck::default(),
            cycle: CycleCounts::default(),
            is_begun: false,
            needs: Vec::new(),
        }
    }

    /// Counting begins here, with a checkpoint of all settings; its time in microseconds since 1970,
    /// else the first time that is reported.
    pub fn begin(&mut self, at: Lsn, time_us: Option<i64>) {
        self.is_begun = true;
        self.check.begin();
        self.simulations.begin(at, time_us);
    }

    /// The next fork: forks come in the order of their numbers.
    pub fn fork(&mut self, place: ForkPlace) {
        self.simulations.fork(place);
    }

    /// Whether counting has begun.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// The record that comes next has a time, in microseconds since 1970.
    pub fn time(&mut self, time_us: i64) {
        self.simulations.advance_time(time_us, &self.blocks);
    }

    /// A checkpoint of the source began here. A forced one (a backup, a shutdown, the command)
    /// would have begun under all settings.
    pub fn source_checkpoint(&mut self, is_forced: bool) {
        if !self.is_begun {
            return;
        }
        self.simulations.source_checkpoint(is_forced, &self.blocks);
        if self.simulations.source_hints().is_some() {
            self.readers.source_checkpoint(self.simulations.now());
        }
    }

    /// The source's schedule, if it is known: how its checkpoints spread their writes. A page that was
    /// changed before a checkpoint and has not been written by it takes a hint without an image, a
    /// checkpoint waits for the one before, and readers whose hints the source has not logged are
    /// taken into account.
    pub fn assume_schedule(&mut self, today: Schedule) {
        self.simulations.assume_schedule(today);
    }

    /// A checkpoint of the source was complete here.
    pub fn source_written(&mut self) {
        self.simulations.source_written();
    }

    /// A segment is left before it is full.
    pub fn switch(&mut self) {
        if self.is_begun {
            self.simulations.switch(&self.blocks);
        }
    }

    /// The next record: its bytes without images that depend on checkpoints, with the data that stand
    /// in for them.
    #[inline]
    pub fn record(&mut self, bytes: u32, references: &[Reference]) {
        if self.simulations.now() >= self.readers.next_visit() {
            self.visit();
        }
        self.needs.clear();
        let mut always = Always::default();
        let mut is_hint = false;
        for reference in references {
            if reference.rule == Rule::Hint {
                is_hint = true;
                self.simulations.note_hint();
            }
            if let Some(image) = self.refer(reference) {
                always.add(&image);
            }
        }
        if !self.is_begun || is_hint && self.needs.is_empty() {
            return;
        }
        if self.needs.is_empty() && always.images == 0 {
            self.simulations.add_to_all(bytes, &self.blocks);
            return;
        }
        let record = Variable { bytes, always: &always, needs: &self.needs };
        match references.first().filter(|_| is_hint).map(|first| first.block) {
            None => self.simulations.add_change(record, &self.blocks),
            Some(block) => {
                let unlogged = self.simulations.add_hint(block, record, &self.blocks);
                self.readers.set_unlogged(block, unlogged);
            }
        }
    }

    /// Takes note of a reference; the image that it has in any case.
    #[inline]
    fn refer(&mut self, reference: &Reference) -> Option<ImageLengths> {
        let epoch = self.simulations.epoch();
        let Reference { block, rule, image, .. } = *reference;
        let state = self.blocks.state(block);
        let is_new = state.touched == 0;
        // What came before is not known: the source says whether it was before its redo point.
        if is_new && image.is_none() {
            (state.touched, state.changed) = (epoch, epoch);
        }
        let before = *state;
        let precedes = self.simulations.precedes_source_checkpoint(before.changed);
        self.cycle.refer(block, rule, is_new || precedes == Some(true));
        state.image = image.unwrap_or(state.image);
        if rule == Rule::Init {
            state.image = empty_page();
        }
        if reference.grows_by != 0 {
            grow(state, reference.grows_by);
        }
        let after = state.image;
        state.touched = epoch;
        if !matches!(rule, Rule::Hint | Rule::WithHints | Rule::MarkedByReader) {
            state.changed = epoch;
        }
        if is_new {
            self.blocks.count();
            self.simulations.add_block(block);
        }
        if let Some(image) = image {
            self.means.learn(block.fork, &image);
        }
        if self.simulations.is_pace_known() && self.logs_hints() {
            self.follow(reference, &before, is_new);
        }
        if reference.pruned_bytes > 0 {
            // Where hints are logged, the image that would be here came with the hint.
            let has_image = if self.logs_hints() {
                image.is_none() && precedes == Some(true)
            } else {
                image.is_some()
            };
            if has_image {
                self.cycle.prune(reference.pruned_bytes, room(&after));
            }
        }
        match rule {
            Rule::Always => image.map(|image| self.means.filled(block.fork, image)),
            Rule::Init => None,
            Rule::Regular | Rule::Hint | Rule::WithHints | Rule::MarkedByReader => {
                self.need(reference, &before, after);
                None
            }
        }
    }

    /// If a boundary of some settings lies between the previous reference and this one, its image
    /// may be needed.
    fn need(&mut self, reference: &Reference, before: &BlockState, after: ImageLengths) {
        let Reference { block, rule, image, data_bytes, .. } = *reference;
        if self.is_begun
            && let Some(is_predicted) = self.is_predicted(rule, before)
        {
            self.check.count(is_predicted, image.is_some());
        }
        if self.is_begun && reference.freeze_bytes > 0 {
            let image = self.means.filled(block.fork, image.unwrap_or(before.image));
            self.simulations.note_freeze(reference.freeze_bytes, before, &image);
        }
        let unlogged = self.readers.take_unlogged(block);
        let is_after_all = before.touched.min(before.changed) >= self.simulations.epoch();
        if is_after_all && unlogged.is_empty() {
            return;
        }
        let is_hint = self.simulations.is_pace_known() && rule == Rule::Hint;
        self.needs.push(Need {
            touched: before.touched,
            changed: before.changed,
            only_with_hints: rule != Rule::Regular,
            written_at: is_hint.then(|| self.simulations.source_progress(before)),
            unlogged,
            image: self.means.filled(block.fork, after),
            pruned_bytes: if self.logs_hints() { 0 } else { reference.pruned_bytes },
            data_bytes,
        });
    }

    /// Whether the source should have an image here; `None` where it never has one.
    fn is_predicted(&self, rule: Rule, before: &BlockState) -> Option<bool> {
        if rule != Rule::Regular && !self.logs_hints() {
            return None;
        }
        self.simulations.precedes_source_checkpoint(self.last_logged(before))
    }

    /// When the source set the block's LSN last.
    fn last_logged(&self, state: &BlockState) -> blocks::Epoch {
        if self.logs_hints() { state.touched } else { state.changed }
    }

    /// Whether the source's checkpoints so far explain an image of this block, if it comes next.
    pub fn explains(&self, block: BlockKey) -> bool {
        let known = self.blocks.get(block).filter(|state| state.touched > 0);
        known.is_none_or(|state| {
            let last = self.last_logged(state);
            self.simulations.precedes_source_checkpoint(last).unwrap_or(true)
        })
    }

    /// The source logs hints.
    #[inline]
    pub fn logs_hints(&self) -> bool {
        self.simulations.source_hints() == Some(true)
    }

    /// From here on it is not known exactly where the source's checkpoints began.
    pub fn stop_check(&mut self) {
        self.check.stop();
    }

    /// How well the source's own checkpoints explain its images.
    pub fn check(&self) -> Check {
        self.check.result()
    }

    /// Blocks that were named, and the bytes of memory for them.
    pub fn blocks(&self) -> (u64, u64) {
        let memory = self.blocks.memory() + self.readers.memory() + self.cycle.memory();
        (self.blocks.touched(), memory)
    }

    /// The pages of the source's checkpoint cycle that ends here; the next one begins.
    pub fn take_cycle(&mut self) -> CyclePages {
        self.cycle.take()
    }

    /// The outcome of each of the settings until now, in their order.
    pub fn outcomes(&mut self) -> Vec<WhatIfOutcome> {
        self.simulations.outcomes()
    }

    /// The outcome of each of the settings, in their order.
    pub fn finish(mut self) -> Vec<WhatIfOutcome> {
        self.outcomes()
    }
}
