//! How much WAL the same work would have made with other settings.
//!
//! A page gets a full-page image with its first change after a checkpoint began. Whether settings
//! need an image for a change therefore hangs on one question: did one of *their* checkpoints begin
//! between the page's change before and this one? The change before is the same whatever the
//! settings. So one state for each block answers for all settings at once, and each of these keeps
//! no more than a position and the place of its last checkpoint: its own bytes decide, while they
//! are made, when the next one is due.

mod blocks;
mod gains;
mod order;
mod settings;
mod space;
mod visits;

use std::collections::BTreeMap;

use pgtoll_format::Lsn;

pub use blocks::BlockKey;
use blocks::{Blocks, Epoch, State};
use gains::{Gained, Gains};
pub use order::ForkPlace;
use order::{Dirty, WriteOrder};
use settings::Course;
pub use settings::{Compression, Outcome, Schedule, Settings};
pub use space::{Geometry, checkpoint_segments, max_wal_size_for};
use visits::{Past, Visits};

/// What a record's reference to a block is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It needs an image after a checkpoint.
    Regular,
    /// The same, and the record is only there for the image (`FPI_FOR_HINT`): nobody needs it where
    /// no checkpoint began since the page's change before, or where hints are not logged.
    Hint,
    /// The same, where hints are logged; else the page's LSN is not even set (`Heap2/VISIBLE`).
    WithHints,
    /// The page is made anew: it never needs one.
    Init,
    /// It has an image whatever the settings.
    Always,
}

/// A record's reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which block.
    pub block: BlockKey,
    /// When it needs an image.
    pub rule: Rule,
    /// Bytes of its image with its header, by [`Compression`]; `None`: the source has none.
    pub image: Option<[u16; Compression::COUNT]>,
    /// Bytes of data that are left out where there is an image.
    pub data_bytes: u16,
    /// By how much it fills its page.
    pub grows_by: i16,
}

/// How well the source's own checkpoints explain the source's own images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// References that may need an image.
    pub references: u64,
    /// Of these the ones with an image in the source.
    pub images: u64,
    /// They should have one, and have none.
    pub absent: u64,
    /// They should have none, and have one.
    pub unpredicted: u64,
}

/// The replay of one WAL under many settings. Records come in their order; nothing is counted
/// before [`WhatIf::begin`].
#[derive(Debug)]
pub struct WhatIf {
    geometry: Geometry,
    blocks: Blocks,
    /// Images of each fork, and of all, for what is not known of one.
    means: Vec<Mean>,
    mean: Mean,
    /// Grows with each boundary of any settings.
    epoch: Epoch,
    courses: Vec<Course>,
    /// Where in `courses` those begin that differ in nothing but their schedule, and that schedule's
    /// rules.
    classes: Vec<Class>,
    /// By course: which of the settings it is of.
    order: Vec<usize>,
    /// By course: when its last boundary was. A change before it needs an image.
    boundaries: Vec<Epoch>,
    /// How far the courses are beyond what they know.
    gains: Gains,
    /// Bytes that are the same for all, and that no position has yet.
    pending: u64,
    /// So many bytes more, and some settings' checkpoint is due.
    slack: u64,
    /// Bytes of records without images that hang on checkpoints: the same for all settings, and so
    /// the clock of what is delayed by time.
    work: u64,
    /// When the next checkpoint by time is due.
    next_time: i64,
    time: i64,
    is_begun: bool,
    /// Which course follows the source's own redo points.
    source: Option<OfSource>,
    pace: Pace,
    /// By course: the boundary before the last.
    earlier: Vec<Epoch>,
    order_of_writes: WriteOrder,
    /// By course: what was dirty at its last boundary.
    dirty: Vec<Dirty>,
    /// A record was there for a hint.
    has_hints: bool,
    visits: Visits,
    /// Blocks whose last hint some courses, by their bits, did not log.
    unlogged: BTreeMap<BlockKey, u128>,
    needs: Vec<Need>,
    check: Check,
    /// All redo points are where they were.
    checks: bool,
    /// Bytes of what each checkpoint writes itself.
    own_bytes: u64,
}

/// How the source's checkpoints went.
#[derive(Clone, Debug, Default)]
struct Pace {
    /// By which settings they spread their writes is known.
    is_known: bool,
    /// How much work was done between the place where the writes of one should have ended and its
    /// end; `None`: it ended before.
    delays: Vec<Option<u64>>,
    /// Of those that were asked for while the one before ran: whether the request was lost, and the
    /// next segment's end asked again.
    losses: Vec<bool>,
    /// The last one ran when the next was asked for.
    is_late: bool,
}

/// The source's own settings.
#[derive(Clone, Copy, Debug)]
struct OfSource {
    course: usize,
    hints: bool,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    from: usize,
    to: usize,
    hints: bool,
    full_page_writes: bool,
    compression: Compression,
}

/// A reference that some settings may need an image for.
#[derive(Clone, Copy, Debug)]
struct Need {
    touched: Epoch,
    changed: Epoch,
    only_with_hints: bool,
    /// Of a hint: how far a checkpoint has come at most until the page was written.
    written_at: Option<f64>,
    /// Courses that did not log the hint before.
    unlogged: u128,
    image: [u16; Compression::COUNT],
    data_bytes: u16,
}

/// A record's images that it has whatever the settings.
#[derive(Clone, Copy, Debug, Default)]
struct Always {
    images: u32,
    bytes: [u32; Compression::COUNT],
}

impl Always {
    fn add(&mut self, image: &[u16; Compression::COUNT]) {
        self.images += 1;
        self.bytes.iter_mut().zip(image).for_each(|(sum, of)| *sum += u32::from(*of));
    }
}

/// Of images: how long they are, and how much smaller those are that were compressed.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    images: u64,
    bytes: u64,
    /// Bytes compressed, and before.
    compressed: [(u64, u64); Compression::COUNT],
}

impl Mean {
    fn add(&mut self, image: &[u16; Compression::COUNT]) {
        let uncompressed = u64::from(image[Compression::Off as usize]);
        self.images += 1;
        self.bytes += uncompressed;
        for (sums, bytes) in self.compressed.iter_mut().zip(image).filter(|(_, of)| **of > 0) {
            sums.0 += u64::from(*bytes);
            sums.1 += uncompressed;
        }
    }
}

impl WhatIf {
    /// Nothing was fed yet. Each checkpoint writes so many bytes itself.
    pub fn new(geometry: Geometry, own_bytes: u64, settings: &[Settings]) -> Self {
        let mut order: Vec<usize> = (0..settings.len()).collect();
        let class = |of: &Settings| (of.hints, of.full_page_writes, of.compression as usize);
        order.sort_by_key(|index| class(&settings[*index]));
        let mut classes: Vec<Class> = Vec::new();
        for (place, index) in order.iter().enumerate() {
            let of = &settings[*index];
            match classes.last_mut() {
                Some(last) if class(&settings[order[last.from]]) == class(of) => {
                    last.to = place + 1;
                }
                _ => classes.push(Class {
                    from: place,
                    to: place + 1,
                    hints: of.hints,
                    full_page_writes: of.full_page_writes,
                    compression: of.compression,
                }),
            }
        }
        let source = order.iter().position(|of| settings[*of].schedule == Schedule::Source);
        let source = source.map(|course| OfSource { course, hints: settings[order[course]].hints });
        Self {
            geometry,
            blocks: Blocks::default(),
            means: Vec::new(),
            mean: Mean::default(),
            epoch: 1,
            courses: order.iter().map(|of| Course::new(&settings[*of], geometry)).collect(),
            classes,
            boundaries: vec![1; order.len()],
            gains: Gains::new(order.len()),
            pending: 0,
            slack: u64::MAX,
            work: 0,
            next_time: i64::MAX,
            time: i64::MIN,
            is_begun: false,
            source,
            order,
            pace: Pace::default(),
            earlier: vec![1; settings.len()],
            order_of_writes: WriteOrder::default(),
            dirty: vec![Dirty::default(); settings.len()],
            has_hints: false,
            visits: Visits::default(),
            unlogged: BTreeMap::new(),
            needs: Vec::new(),
            check: Check::default(),
            checks: true,
            own_bytes: own_bytes.next_multiple_of(8),
        }
    }

    /// Counting begins here, with a checkpoint of all settings; its time in microseconds since 1970,
    /// else the first time that is told.
    pub fn begin(&mut self, at: Lsn, time_us: Option<i64>) {
        self.is_begun = true;
        self.epoch = self.epoch.saturating_add(1);
        (self.pending, self.check) = (0, Check::default());
        self.time = time_us.unwrap_or(i64::MIN).max(self.time);
        let position = self.geometry.position(at);
        self.gains.settle(&mut self.courses);
        for course in &mut self.courses {
            course.begin(position, time_us.unwrap_or(i64::MAX));
        }
        self.boundaries.fill(self.epoch);
        self.reckon();
    }

    /// Forks are told in the order of their numbers.
    pub fn fork(&mut self, place: ForkPlace) {
        self.order_of_writes.fork(place);
    }

    /// Whether counting has begun.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// A time stands in the record that comes next, in microseconds since 1970.
    pub fn time(&mut self, time_us: i64) {
        if self.time == i64::MIN {
            self.courses.iter_mut().for_each(|course| course.first_time(time_us));
            self.reckon();
        }
        self.time = self.time.max(time_us);
        if self.time < self.next_time {
            return;
        }
        self.settle();
        let boundary = self.epoch.saturating_add(1);
        for place in 0..self.courses.len() {
            if self.courses[place].is_due_by_time(self.time) {
                self.courses[place].checkpoint_by_time(self.time, self.own_bytes);
                self.bound(place, boundary);
            }
        }
        self.epoch = boundary;
        self.reckon();
    }

    /// A checkpoint of the source began here. A forced one (a backup, a shutdown, the command)
    /// would have begun under all settings.
    pub fn source_checkpoint(&mut self, is_forced: bool) {
        if !self.is_begun {
            return;
        }
        self.settle();
        self.epoch = self.epoch.saturating_add(1);
        if std::mem::take(&mut self.pace.is_late)
            && !is_forced
            && let Some(source) = self.source
        {
            self.pace.losses.push(self.courses[source.course].source_asked().1);
        }
        for place in 0..self.courses.len() {
            if is_forced || self.courses[place].follows_source() {
                self.courses[place].checkpoint_forced(self.time, self.own_bytes, is_forced);
                self.bound(place, self.epoch);
            }
        }
        self.reckon();
    }

    /// The source's settings, if they are known: how its checkpoints spread their writes. A page that
    /// was changed before a checkpoint and has not been written by it takes a hint without an image,
    /// a checkpoint waits for the one before, and readers whose hints the source has not logged are
    /// reckoned with.
    pub fn expect(&mut self, today: Schedule) {
        let today = Settings {
            schedule: today,
            hints: true,
            full_page_writes: true,
            compression: Compression::AsStored,
        };
        self.pace.is_known = today.schedule != Schedule::Source;
        if self.pace.is_known {
            self.courses.iter_mut().for_each(|course| course.expect(&today));
        }
    }

    /// A checkpoint of the source was complete here. A checkpointer naps between its writes, and
    /// syncs them at the end: those of the settings are delayed as much.
    pub fn source_written(&mut self) {
        self.settle();
        let Some(course) = self.source.and_then(|of| self.courses.get(of.course)) else { return };
        if !course.is_forced() && self.pace.delays.len() < DELAYS {
            self.pace.is_late = course.source_asked().0;
            // The request woke it from a nap that would have been longer.
            let woken = if self.pace.is_late { WOKEN } else { 1 };
            let delay = course.written().map(|mark| self.work.saturating_sub(mark) * woken);
            self.pace.delays.push(delay);
        }
    }

    /// A segment is left before it is full.
    pub fn switch(&mut self) {
        if !self.is_begun {
            return;
        }
        self.settle();
        self.courses.iter_mut().for_each(Course::switch);
        self.checkpoints_by_volume();
    }

    /// The next record: its bytes without images that hang on checkpoints, with the data that stand
    /// in for them.
    #[inline]
    pub fn record(&mut self, bytes: u32, references: &[Reference]) {
        if self.now() >= self.visits.next() {
            self.visit();
        }
        self.needs.clear();
        let mut always = Always::default();
        let mut is_hint = false;
        for of in references {
            is_hint |= of.rule == Rule::Hint;
            self.has_hints |= is_hint;
            if let Some(image) = self.refer(of) {
                always.add(&image);
            }
        }
        if !self.is_begun || is_hint && self.needs.is_empty() {
            return;
        }
        if self.needs.is_empty() && always.images == 0 {
            self.pending += u64::from(bytes).next_multiple_of(8);
            if self.pending >= self.slack {
                self.checkpoints_by_volume();
            }
            return;
        }
        let hint = references.first().filter(|_| is_hint).map(|of| of.block);
        self.add(bytes, &always, hint);
    }

    /// Takes note of a reference; the image that it has in any case.
    #[inline]
    fn refer(&mut self, of: &Reference) -> Option<[u16; Compression::COUNT]> {
        let epoch = self.epoch;
        let state = self.blocks.of(of.block);
        let is_new = state.touched == 0;
        // What came before is not known: the source says whether it was before its redo point.
        if is_new && of.image.is_none() {
            (state.touched, state.changed) = (epoch, epoch);
        }
        let before = *state;
        if let Some(image) = of.image {
            state.image = image;
        }
        if of.rule == Rule::Init {
            state.image = [0; Compression::COUNT];
            state.image[Compression::Off as usize] = EMPTY_PAGE;
        }
        if of.grows_by != 0 {
            grow(state, of.grows_by);
        }
        state.touched = epoch;
        if !matches!(of.rule, Rule::Hint | Rule::WithHints) {
            state.changed = epoch;
        }
        if is_new {
            self.blocks.count();
            self.order_of_writes.add(of.block);
        }
        if let Some(image) = of.image {
            self.learn(of.block.fork, &image);
        }
        if self.pace.is_known && self.source.is_some_and(|of| of.hints) {
            self.follow(of, &before, is_new);
        }
        match of.rule {
            Rule::Always => of.image.map(|image| self.filled(of.block.fork, image)),
            Rule::Init => None,
            Rule::Regular | Rule::Hint | Rule::WithHints => {
                self.need(of, &before);
                None
            }
        }
    }

    /// How much work is done.
    fn now(&self) -> u64 {
        self.work + self.pending
    }

    /// Takes note of who changes pages, and who only reads them.
    #[inline]
    fn follow(&mut self, of: &Reference, before: &State, is_new: bool) {
        let now = self.now();
        let state = self.blocks.of(of.block);
        let was_visible = self.source.is_some_and(|of| before.touched < self.boundaries[of.course]);
        let past = Past { is_new, was_visible };
        self.visits.named(of.block, state, past, of.rule == Rule::Hint, now);
    }

    /// Readers that came until now. Where the source would have logged a hint there was none.
    #[cold]
    fn visit(&mut self) {
        let now = self.now();
        while let Some(fork) = self.visits.starting() {
            for block in self.blocks.of_fork(fork) {
                self.visits.expect(block, self.blocks.of(block), now);
            }
        }
        while self.visits.next() <= now {
            let Some(block) = self.visits.pop() else { return };
            let state = self.blocks.of(block);
            state.is_awaited = false;
            let is_visible =
                self.source.is_none_or(|of| state.touched < self.boundaries[of.course]);
            self.visits.expect(block, state, now);
            if !is_visible && self.is_begun {
                self.hidden_hint(block);
            }
        }
    }

    /// A hint that the source has not logged.
    fn hidden_hint(&mut self, block: BlockKey) {
        let state = self.blocks.of(block);
        let before = *state;
        state.touched = self.epoch;
        let unlogged = self.unlogged.remove(&block).unwrap_or(0);
        if before.touched >= self.epoch && unlogged == 0 {
            return;
        }
        self.needs.clear();
        self.needs.push(Need {
            touched: before.touched,
            changed: before.changed,
            only_with_hints: true,
            written_at: self.pace.is_known.then_some(1.0),
            unlogged,
            image: self.filled(block.fork, before.image),
            data_bytes: 0,
        });
        self.add(HINT_RECORD, &Always::default(), Some(block));
    }

    /// Where a boundary of some settings lies between the reference before and this one, its image
    /// may be needed.
    fn need(&mut self, of: &Reference, before: &State) {
        if self.is_begun
            && self.checks
            && let Some(predicted) = self.predicted(of, before)
        {
            self.check.references += 1;
            self.check.images += u64::from(of.image.is_some());
            self.check.absent += u64::from(predicted && of.image.is_none());
            self.check.unpredicted += u64::from(!predicted && of.image.is_some());
        }
        let unlogged =
            if self.unlogged.is_empty() { 0 } else { self.unlogged.remove(&of.block).unwrap_or(0) };
        if before.touched.min(before.changed) >= self.epoch && unlogged == 0 {
            return;
        }
        let is_hint = self.pace.is_known && of.rule == Rule::Hint;
        let written_at = is_hint.then(|| self.shown(before));
        let image = self.filled(of.block.fork, of.image.unwrap_or(before.image));
        self.needs.push(Need {
            touched: before.touched,
            changed: before.changed,
            only_with_hints: of.rule != Rule::Regular,
            written_at,
            unlogged,
            image,
            data_bytes: of.data_bytes,
        });
    }

    /// Whether the source should have an image here; `None` where there is nothing to say.
    fn predicted(&self, of: &Reference, before: &State) -> Option<bool> {
        let source = self.source?;
        let only_with_hints = of.rule != Rule::Regular;
        if only_with_hints && !source.hints {
            return None;
        }
        let last = if source.hints { before.touched } else { before.changed };
        Some(last < self.boundaries[source.course])
    }

    /// Whether the source's checkpoints so far explain an image of this block, if it comes next.
    pub fn explains(&self, block: BlockKey) -> bool {
        let Some(source) = self.source else { return true };
        let known = self.blocks.get(block).filter(|state| state.touched > 0);
        known.is_none_or(|state| {
            let last = if source.hints { state.touched } else { state.changed };
            last < self.boundaries[source.course]
        })
    }

    /// The source logs hints.
    pub fn logs_hints(&self) -> bool {
        self.source.is_some_and(|of| of.hints)
    }

    fn learn(&mut self, fork: u32, image: &[u16; Compression::COUNT]) {
        let fork = fork as usize;
        if self.means.len() <= fork {
            self.means.resize(fork + 1, Mean::default());
        }
        self.means[fork].add(image);
        self.mean.add(image);
    }

    /// An image with what is not known of it: as the images of its relation are, or as all are.
    fn filled(&self, fork: u32, mut image: [u16; Compression::COUNT]) -> [u16; Compression::COUNT] {
        let means = [self.means.get(fork as usize).copied().unwrap_or_default(), self.mean];
        let uncompressed = Compression::Off as usize;
        if image[uncompressed] == 0 {
            let mean = means.iter().find_map(|mean| ratio(mean.bytes, mean.images));
            image[uncompressed] = mean.unwrap_or(FULL_PAGE);
        }
        let bytes = image[uncompressed];
        for (kind, of) in image.iter_mut().enumerate().filter(|(_, of)| **of == 0) {
            let as_others = means.iter().find_map(|mean| {
                let (compressed, before) = mean.compressed[kind];
                ratio(u64::from(bytes) * compressed, before)
            });
            *of = as_others.unwrap_or(bytes);
        }
        image
    }

    /// Adds a record of which some settings need other bytes than others.
    fn add(&mut self, bytes: u32, always: &Always, hint: Option<BlockKey>) {
        let (block, is_hint) = (hint, hint.is_some());
        self.flush();
        if !is_hint {
            self.work += u64::from(bytes);
        }
        let mut unlogged = 0;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
        let mut longest = 0;
        for class in self.classes.iter().filter(|class| !is_hint || class.hints) {
            let kind = class.compression as usize;
            let always_bytes = always.bytes[kind];
            let mut stretch = self.gains.of(class.from, class.to);
            stretch.begin(bytes.saturating_add_unsigned(always_bytes), always.images, always_bytes);
            let boundaries = &self.boundaries[class.from..class.to];
            let mut is_needed = !is_hint;
            for need in self.needs.iter().filter(|need| !need.only_with_hints || class.hints) {
                let last = if class.hints { need.touched } else { need.changed };
                let image_bytes = u32::from(need.image[kind]);
                let more = i32::from(need.image[kind]) - i32::from(need.data_bytes);
                let gained = class.full_page_writes.then_some(Gained { image_bytes, more });
                if !is_hint && need.unlogged == 0 {
                    if let Some(gained) = gained {
                        stretch.image_after(last, boundaries, gained);
                    }
                    continue;
                }
                for (place, boundary) in boundaries.iter().enumerate() {
                    let course = class.from + place;
                    let bit = 1_u128.checked_shl(u32::try_from(course).unwrap_or(128)).unwrap_or(0);
                    let mut needs = last < *boundary || need.unlogged & bit != 0;
                    if let (Some(block), Some(shown)) = (block, need.written_at.filter(|_| needs))
                        && last >= self.earlier[course]
                        && let ahead = stretch.ahead(place)
                        && let progress = self.courses[course].progress(self.time, ahead)
                        && progress < shown
                        && progress
                            < self.order_of_writes.written_at(block, &self.dirty[course], shown)
                    {
                        needs = false;
                        unlogged |= bit;
                    }
                    match gained {
                        _ if is_hint && !needs => stretch.leave_out(place),
                        Some(gained) if needs => stretch.image(place, gained),
                        _ => {}
                    }
                    is_needed |= needs;
                }
            }
            if is_needed {
                longest = longest.max(stretch.end());
            }
        }
        if let (Some(block), true) = (block, unlogged != 0) {
            self.unlogged.insert(block, unlogged);
        }
        if self.gains.is_full_after(longest) {
            self.settle();
        }
        // None of them can be due before.
        match self.slack.checked_sub(longest.into()) {
            Some(slack) if slack > 0 => self.slack = slack,
            _ => self.checkpoints_by_volume(),
        }
    }

    /// Gives all what is pending.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.work += pending;
        self.slack = self.slack.saturating_sub(pending);
        self.gains.of_all(pending);
    }

    /// Tells the courses how far they are.
    fn settle(&mut self) {
        self.flush();
        self.gains.settle(&mut self.courses);
    }

    /// Begins checkpoints that a segment's end asks for, when the one before is complete.
    fn checkpoints_by_volume(&mut self) {
        self.settle();
        let mut boundary = None;
        for place in 0..self.courses.len() {
            let delay = self.delay_of(place).unwrap_or(0);
            let course = &mut self.courses[place];
            let loses = nth(&self.pace.losses, course.waited()).unwrap_or(false);
            if course.begins(self.work, delay, loses) {
                course.checkpoint_by_volume(self.time, self.own_bytes);
                self.bound(place, *boundary.get_or_insert(self.epoch.saturating_add(1)));
            }
        }
        if let Some(boundary) = boundary {
            self.epoch = boundary;
        }
        self.reckon();
    }

    fn bound(&mut self, place: usize, epoch: Epoch) {
        self.earlier[place] = std::mem::replace(&mut self.boundaries[place], epoch);
        if self.courses[place].follows_source() {
            self.visits.boundary(self.work + self.pending);
        }
        if self.delay_of(place).is_none() {
            self.courses[place].write_early();
        }
        if self.pace.is_known && self.has_hints {
            self.dirty[place] = self.order_of_writes.dirty(&mut self.blocks, self.earlier[place]);
        }
    }

    /// Delays come as they came in the source, whose own replay is what they are measured by.
    fn delay_of(&self, place: usize) -> Option<u64> {
        let course = &self.courses[place];
        if course.follows_source() {
            return Some(0);
        }
        nth(&self.pace.delays, course.count()).unwrap_or(Some(0))
    }

    /// How far the writes of a checkpoint are at most when they reach this page: the source logged a
    /// hint, and so had written it.
    fn shown(&self, before: &State) -> f64 {
        let shown = self.source.filter(|of| before.touched >= self.earlier[of.course]);
        shown.map_or(1.0, |of| {
            self.courses[of.course].progress(self.time, self.gains.bytes_of(of.course))
        })
    }

    /// How far it is to the next checkpoint of any settings.
    fn reckon(&mut self) {
        self.slack = self.courses.iter().map(|of| of.slack(self.work)).min().unwrap_or(u64::MAX);
        self.next_time = self.courses.iter().map(Course::next_time).min().unwrap_or(i64::MAX);
    }

    /// From here on it is not known exactly where the source's checkpoints began.
    pub fn stop_check(&mut self) {
        self.checks = false;
    }

    /// How well the source's own checkpoints explain its images.
    pub fn check(&self) -> Check {
        self.check
    }

    /// Blocks that were named, and the bytes of memory for them.
    pub fn blocks(&self) -> (u64, u64) {
        (self.blocks.touched(), self.blocks.memory() + self.visits.memory())
    }

    /// What became of each of the settings, in their order.
    pub fn finish(mut self) -> Vec<Outcome> {
        self.settle();
        let mut outcomes = vec![Outcome::default(); self.order.len()];
        for (course, index) in self.courses.iter().zip(&self.order) {
            outcomes[*index] = course.outcome();
        }
        outcomes
    }
}

/// A record for a hint (`FPI_FOR_HINT`) without its image.
const HINT_RECORD: u32 = 46;

/// What was seen comes again in the same order.
#[expect(clippy::cast_possible_truncation, reason = "what is less than a length")]
fn nth<T: Copy>(seen: &[T], number: u64) -> Option<T> {
    seen.get(number.checked_rem(seen.len() as u64)? as usize).copied()
}

/// By how much longer a checkpointer would have napped that was woken.
const WOKEN: u64 = 2;
/// Delays that are kept.
const DELAYS: usize = 1 << 12;
/// An image's header and a page's, of a page without anything.
const EMPTY_PAGE: u16 = 5 + 24;
/// An image of a page without a hole.
const FULL_PAGE: u16 = 5 + 8192;

fn grow(state: &mut State, by: i16) {
    let uncompressed = state.image[Compression::Off as usize];
    if uncompressed == 0 {
        return;
    }
    let grown = uncompressed.saturating_add_signed(by).clamp(EMPTY_PAGE, FULL_PAGE);
    for image in state.image.iter_mut().filter(|image| **image > 0) {
        let scaled = ratio(u64::from(*image) * u64::from(grown), u64::from(uncompressed));
        *image = scaled.unwrap_or(*image).min(FULL_PAGE);
    }
}

fn ratio(sum: u64, of: u64) -> Option<u16> {
    let ratio = (sum + of / 2).checked_div(of)?;
    Some(u16::try_from(ratio).unwrap_or(u16::MAX))
}
