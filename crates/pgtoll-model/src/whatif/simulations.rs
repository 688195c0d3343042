//! All settings side by side: whose checkpoints begin when, and which of them a record costs how
//! many bytes.

use pgtoll_format::Lsn;

use crate::whatif::blocks::{BlockKey, BlockState, Blocks, Epoch};
use crate::whatif::gains::{Gained, Gains, Stretch};
use crate::whatif::means::grown;
use crate::whatif::order::{Dirty, ForkPlace, WriteOrder};
use crate::whatif::pace::SourcePace;
use crate::whatif::set::SettingSet;
use crate::whatif::settings::{ImageCompression, ImageLengths, Schedule, Settings, WhatIfOutcome};
use crate::whatif::simulation::CheckpointSimulation;
use crate::whatif::space::Geometry;

/// The simulations, in an order of their own: those that differ in nothing but their schedule lie
/// next to each other.
#[derive(Debug)]
pub(super) struct Simulations {
    geometry: Geometry,
    members: Vec<CheckpointSimulation>,
    classes: Vec<Class>,
    /// By simulation: which of the settings it is of.
    order: Vec<usize>,
    /// Grows with each boundary of any settings.
    epoch: Epoch,
    /// By simulation: when its last boundary was. A change before it needs an image.
    boundaries: Vec<Epoch>,
    /// By simulation: the boundary before the last.
    earlier: Vec<Epoch>,
    /// How far the simulations are beyond what they know.
    gains: Gains,
    /// Bytes that are the same for all, and that no position has yet.
    pending: u64,
    /// This many bytes more, and some settings' checkpoint is due.
    slack: u64,
    /// Bytes of records without images that depend on checkpoints: the same for all settings, and so
    /// the clock of what is delayed by time.
    work: u64,
    /// When the next checkpoint by time is due.
    next_time: i64,
    time: i64,
    source: Option<Source>,
    /// How the source's checkpoints went.
    pace: SourcePace,
    /// By which settings they spread their writes is known.
    is_pace_known: bool,
    write_order: WriteOrder,
    /// By simulation: what was dirty at its last boundary.
    dirty: Vec<Dirty>,
    /// A record was there for a hint.
    has_hints: bool,
    /// Bytes of what each checkpoint writes itself.
    own_bytes: u64,
}

/// The simulation that follows the source's own redo points.
#[derive(Clone, Copy, Debug)]
struct Source {
    place: usize,
    hints: bool,
}

/// Simulations that differ in nothing but their schedule.
#[derive(Clone, Copy, Debug)]
struct Class {
    from: usize,
    to: usize,
    hints: bool,
    full_page_writes: bool,
    compression: ImageCompression,
}

/// A record of which some settings need other bytes than others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable<'a> {
    /// Bytes without images that depend on checkpoints.
    pub(super) bytes: u32,
    /// Its images whatever the settings.
    pub(super) always: &'a Always,
    /// Its references that some settings may need an image for.
    pub(super) needs: &'a [Need],
}

/// A reference that some settings may need an image for.
#[derive(Clone, Debug)]
pub(super) struct Need {
    /// The epoch in which the block's LSN was set last.
    pub(super) touched: Epoch,
    pub(super) changed: Epoch,
    pub(super) only_with_hints: bool,
    /// For a hint: the largest progress of a checkpoint until the page was written.
    pub(super) written_at: Option<f64>,
    /// Simulations that did not log the hint before.
    pub(super) unlogged: SettingSet,
    pub(super) image: ImageLengths,
    /// Bytes of dead rows that are on the page still where hints are logged, whose image comes before.
    pub(super) pruned_bytes: u16,
    /// Bytes that are left out where there is an image.
    pub(super) data_bytes: u16,
}

impl Need {
    fn last(&self, hints: bool) -> Epoch {
        if hints { self.touched } else { self.changed }
    }

    fn gained(&self, class: &Class) -> Gained {
        let kind = class.compression.index();
        let image = if class.hints && self.pruned_bytes > 0 {
            grown(self.image, i16::try_from(self.pruned_bytes).unwrap_or(i16::MAX))[kind]
        } else {
            self.image[kind]
        };
        let more = i32::from(image) - i32::from(self.data_bytes);
        Gained { image_bytes: image.into(), more }
    }
}

/// A record's images that it has whatever the settings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Always {
    pub(super) images: u32,
    bytes: [u32; ImageCompression::COUNT],
}

impl Always {
    pub(super) fn add(&mut self, image: &ImageLengths) {
        self.images += 1;
        self.bytes.iter_mut().zip(image).for_each(|(sum, length)| *sum += u32::from(*length));
    }
}

impl Simulations {
    pub(super) fn new(geometry: Geometry, own_bytes: u64, settings: &[Settings]) -> Self {
        let class = |settings: &Settings| {
            (settings.hints, settings.full_page_writes, settings.compression.index())
        };
        let mut order: Vec<usize> = (0..settings.len()).collect();
        order.sort_by_key(|index| class(&settings[*index]));
        let in_order = || order.iter().map(|index| &settings[*index]);
        // Of several the first that was given.
        let first = settings.iter().position(|setting| setting.schedule == Schedule::Source);
        let source = first.and_then(|first| {
            let place = order.iter().position(|index| *index == first)?;
            Some(Source { place, hints: settings[first].hints })
        });
        Self {
            geometry,
            members: in_order()
                .map(|in_order| CheckpointSimulation::new(in_order, geometry))
                .collect(),
            classes: classes(in_order()),
            epoch: 1,
            boundaries: vec![1; settings.len()],
            earlier: vec![1; settings.len()],
            gains: Gains::new(settings.len()),
            pending: 0,
            slack: u64::MAX,
            work: 0,
            next_time: i64::MAX,
            time: i64::MIN,
            source,
            pace: SourcePace::default(),
            is_pace_known: false,
            write_order: WriteOrder::default(),
            dirty: vec![Dirty::default(); settings.len()],
            has_hints: false,
            own_bytes: own_bytes.next_multiple_of(8),
            order,
        }
    }

    /// Counting begins here, with a checkpoint of all settings.
    pub(super) fn begin(&mut self, at: Lsn, time_us: Option<i64>) {
        self.epoch = self.epoch.saturating_add(1);
        self.pending = 0;
        self.time = time_us.unwrap_or(i64::MIN).max(self.time);
        let position = self.geometry.position(at);
        self.gains.settle(&mut self.members);
        for simulation in &mut self.members {
            simulation.begin(position, time_us.unwrap_or(i64::MAX));
        }
        self.boundaries.fill(self.epoch);
        self.recompute_deadlines();
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How much work is done.
    pub(super) fn now(&self) -> u64 {
        self.work + self.pending
    }

    pub(super) fn fork(&mut self, place: ForkPlace) {
        self.write_order.fork(place);
    }

    /// A block was named for the first time.
    #[inline]
    pub(super) fn add_block(&mut self, block: BlockKey) {
        self.write_order.add(block);
    }

    /// Hints are logged by some settings.
    #[inline]
    pub(super) fn note_hint(&mut self) {
        self.has_hints = true;
    }

    /// The source's schedule, if it is known: see [`WhatIf::assume_schedule`](super::WhatIf).
    pub(super) fn assume_schedule(&mut self, schedule: Schedule) {
        let today = Settings {
            schedule,
            hints: true,
            full_page_writes: true,
            compression: ImageCompression::AsStored,
        };
        self.is_pace_known = schedule != Schedule::Source;
        if self.is_pace_known {
            self.members.iter_mut().for_each(|member| member.assume_schedule(&today));
        }
    }

    /// By which settings the source's checkpoints spread their writes is known.
    #[inline]
    pub(super) fn is_pace_known(&self) -> bool {
        self.is_pace_known
    }

    /// The time is this at least.
    pub(super) fn advance_time(&mut self, time_us: i64, blocks: &Blocks) {
        if self.time == i64::MIN {
            self.members.iter_mut().for_each(|member| member.first_time(time_us));
            self.recompute_deadlines();
        }
        self.time = self.time.max(time_us);
        if self.time < self.next_time {
            return;
        }
        self.settle();
        let boundary = self.epoch.saturating_add(1);
        for place in 0..self.members.len() {
            if self.members[place].is_due_by_time(self.time) {
                self.members[place].checkpoint_by_time(self.time, self.own_bytes);
                self.begin_checkpoint(place, boundary, blocks);
            }
        }
        self.epoch = boundary;
        self.recompute_deadlines();
    }

    /// A checkpoint of the source began here. A forced one begins under all settings.
    pub(super) fn source_checkpoint(&mut self, is_forced: bool, blocks: &Blocks) {
        self.settle();
        self.epoch = self.epoch.saturating_add(1);
        if let Some(source) = self.source {
            let simulation = &self.members[source.place];
            self.pace.began(is_forced, || simulation.source_asked().1);
        }
        for place in 0..self.members.len() {
            if is_forced || self.members[place].follows_source() {
                self.members[place].checkpoint_forced(self.time, self.own_bytes, is_forced);
                self.begin_checkpoint(place, self.epoch, blocks);
            }
        }
        self.recompute_deadlines();
    }

    /// A checkpoint of the source was complete here. A checkpointer naps between its writes, and
    /// syncs them at the end: those of the settings are delayed as much.
    pub(super) fn source_written(&mut self) {
        self.settle();
        let Some(source) = self.source else { return };
        let simulation = &self.members[source.place];
        if !simulation.is_forced() {
            let since_mark = simulation.written().map(|mark| self.work.saturating_sub(mark));
            self.pace.ended(since_mark, simulation.source_asked().0);
        }
    }

    /// A segment is left before it is full.
    pub(super) fn switch(&mut self, blocks: &Blocks) {
        self.settle();
        self.members.iter_mut().for_each(CheckpointSimulation::switch);
        self.checkpoints_by_volume(blocks);
    }

    /// The source logs hints; `None`: no settings follow the source.
    #[inline]
    pub(super) fn source_hints(&self) -> Option<bool> {
        self.source.map(|source| source.hints)
    }

    /// A change in this epoch was before the source's last checkpoint, and so the next one has an
    /// image; `None`: no settings follow the source.
    #[inline]
    pub(super) fn precedes_source_checkpoint(&self, last: Epoch) -> Option<bool> {
        self.source.map(|source| last < self.boundaries[source.place])
    }

    /// How far the writes of a checkpoint are at most when they reach this page: the source logged a
    /// hint, and so had written it.
    pub(super) fn source_progress(&self, before: &BlockState) -> f64 {
        let source = self.source.filter(|source| before.touched >= self.earlier[source.place]);
        source.map_or(1.0, |Source { place, .. }| {
            self.members[place].progress(self.time, self.gains.bytes_ahead(place))
        })
    }

    /// Adds a record that is the same for all.
    #[inline]
    pub(super) fn add_to_all(&mut self, bytes: u32, blocks: &Blocks) {
        self.pending += u64::from(bytes).next_multiple_of(8);
        if self.pending >= self.slack {
            self.checkpoints_by_volume(blocks);
        }
    }

    /// Adds a record that all settings have, with more images under some than under others.
    pub(super) fn add_change(&mut self, record: Variable<'_>, blocks: &Blocks) {
        self.flush();
        self.work += u64::from(record.bytes);
        let mut longest = 0;
        for class in &self.classes {
            let mut stretch = self.gains.stretch(class.from, class.to);
            begin(&mut stretch, &record, class);
            let boundaries = &self.boundaries[class.from..class.to];
            let is_needed = |need: &&Need| class.hints || !need.only_with_hints;
            let needs = if class.full_page_writes { record.needs } else { &[] };
            for need in needs.iter().filter(is_needed) {
                let gained = need.gained(class);
                let last = need.last(class.hints);
                if need.unlogged.is_empty() {
                    stretch.image_after(last, boundaries, gained);
                    continue;
                }
                for (place, boundary) in boundaries.iter().enumerate() {
                    if last < *boundary || need.unlogged.contains(class.from + place) {
                        stretch.image(place, gained);
                    }
                }
            }
            longest = longest.max(stretch.end());
        }
        self.settle_after(longest, blocks);
    }

    /// Adds a record that is there for a hint: nobody has it who needs no image. Those that do not log
    /// it because their checkpoint has not written the page yet.
    pub(super) fn add_hint(
        &mut self,
        block: BlockKey,
        record: Variable<'_>,
        blocks: &Blocks,
    ) -> SettingSet {
        self.flush();
        let mut unlogged = SettingSet::default();
        let mut longest = 0;
        let is_unwritten = |place: usize, ahead: u64, last: Epoch, most: f64| {
            if last < self.earlier[place] {
                return false;
            }
            let progress = self.members[place].progress(self.time, ahead);
            progress < most
                && progress < self.write_order.written_at(block, &self.dirty[place], most)
        };
        for class in self.classes.iter().filter(|class| class.hints) {
            let mut stretch = self.gains.stretch(class.from, class.to);
            begin(&mut stretch, &record, class);
            let mut is_needed = false;
            for need in record.needs {
                let gained = need.gained(class);
                for (within, place) in (class.from..class.to).enumerate() {
                    let mut needs =
                        need.touched < self.boundaries[place] || need.unlogged.contains(place);
                    if needs
                        && let Some(most) = need.written_at
                        && is_unwritten(place, stretch.ahead(within), need.touched, most)
                    {
                        needs = false;
                        unlogged.insert(place);
                    }
                    if !needs {
                        stretch.leave_out(within);
                    } else if class.full_page_writes {
                        stretch.image(within, gained);
                    }
                    is_needed |= needs;
                }
            }
            if is_needed {
                longest = longest.max(stretch.end());
            }
        }
        self.settle_after(longest, blocks);
        unlogged
    }

    /// `VACUUM` froze rows of the page right after this hint: what that costs those without the hint,
    /// had it had to.
    pub(super) fn note_freeze(&mut self, bytes: u16, before: &BlockState, image: &ImageLengths) {
        let bytes = u64::from(bytes).next_multiple_of(8);
        for class in &self.classes {
            let image = u64::from(image[class.compression.index()]);
            for place in class.from..class.to {
                let boundary = self.boundaries[place];
                if !class.hints {
                    let needs_image = class.full_page_writes && before.changed < boundary;
                    self.members[place].freeze(bytes + if needs_image { image } else { 0 });
                } else if before.touched >= boundary {
                    self.members[place].freeze(bytes);
                }
            }
        }
    }

    /// A record was added that is at most so long.
    fn settle_after(&mut self, longest: u32, blocks: &Blocks) {
        if self.gains.is_full_after(longest) {
            self.settle();
        }
        // None of them can be due before.
        match self.slack.checked_sub(longest.into()) {
            Some(slack) if slack > 0 => self.slack = slack,
            _ => self.checkpoints_by_volume(blocks),
        }
    }

    /// Gives all what is pending.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.work += pending;
        self.slack = self.slack.saturating_sub(pending);
        self.gains.add_to_all(pending);
    }

    /// Brings the simulations up to date.
    fn settle(&mut self) {
        self.flush();
        self.gains.settle(&mut self.members);
    }

    /// Begins checkpoints that a segment's end asks for, when the one before is complete.
    fn checkpoints_by_volume(&mut self, blocks: &Blocks) {
        self.settle();
        let mut boundary = None;
        for place in 0..self.members.len() {
            let delay = self.delay(place).unwrap_or(0);
            let simulation = &mut self.members[place];
            let loses = self.pace.loses(simulation.waited());
            if simulation.begins(self.work, delay, loses) {
                simulation.checkpoint_by_volume(self.time, self.own_bytes);
                let epoch = *boundary.get_or_insert(self.epoch.saturating_add(1));
                self.begin_checkpoint(place, epoch, blocks);
            }
        }
        if let Some(boundary) = boundary {
            self.epoch = boundary;
        }
        self.recompute_deadlines();
    }

    /// A checkpoint of these settings begins with this epoch.
    fn begin_checkpoint(&mut self, place: usize, epoch: Epoch, blocks: &Blocks) {
        self.earlier[place] = std::mem::replace(&mut self.boundaries[place], epoch);
        if self.delay(place).is_none() {
            self.members[place].write_early();
        }
        if self.is_pace_known && self.has_hints {
            self.dirty[place] = self.write_order.dirty(blocks, self.earlier[place]);
        }
    }

    /// Delays come as they came in the source, whose own replay is what they are measured by; `None`:
    /// the writes end before the mark.
    fn delay(&self, place: usize) -> Option<u64> {
        let simulation = &self.members[place];
        if simulation.follows_source() {
            return Some(0);
        }
        self.pace.delay(simulation.count())
    }

    /// How far it is to the next checkpoint of any settings.
    fn recompute_deadlines(&mut self) {
        let slacks = self.members.iter().map(|member| member.slack(self.work));
        self.slack = slacks.min().unwrap_or(u64::MAX);
        let times = self.members.iter().map(CheckpointSimulation::next_time);
        self.next_time = times.min().unwrap_or(i64::MAX);
    }

    /// The outcome of each of the settings until now, in the order in which they were given.
    pub(super) fn outcomes(&mut self) -> Vec<WhatIfOutcome> {
        self.settle();
        let mut outcomes = vec![WhatIfOutcome::default(); self.order.len()];
        for (simulation, index) in self.members.iter().zip(&self.order) {
            outcomes[*index] = simulation.outcome();
        }
        outcomes
    }
}

/// Returns the ranges of simulations that differ in their schedule only.
fn classes<'a>(in_order: impl Iterator<Item = &'a Settings>) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (place, settings) in in_order.enumerate() {
        let Settings { hints, full_page_writes, compression, .. } = *settings;
        let is_same = |class: &&mut Class| {
            (class.hints, class.full_page_writes, class.compression)
                == (hints, full_page_writes, compression)
        };
        if let Some(last) = classes.last_mut().filter(is_same) {
            last.to = place + 1;
        } else {
            let from = place;
            let to = place + 1;
            classes.push(Class { from, to, hints, full_page_writes, compression });
        }
    }
    classes
}

/// Begins the record in a class.
fn begin(stretch: &mut Stretch<'_>, record: &Variable<'_>, class: &Class) {
    let bytes = i32::try_from(record.bytes).unwrap_or(i32::MAX / 2);
    let image_bytes = record.always.bytes[class.compression.index()];
    let images = record.always.images;
    stretch.begin(bytes.saturating_add_unsigned(image_bytes), images, image_bytes);
}
