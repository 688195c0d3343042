//! How much WAL the same work would have made with other settings.
//!
//! A page gets a full-page image with its first change after a checkpoint began. Whether settings
//! need an image for a change therefore hangs on one question: did one of *their* checkpoints begin
//! between the page's change before and this one? The change before is the same whatever the
//! settings. So one state for each block answers for all settings at once, and each of these keeps
//! no more than a position and the place of its last checkpoint: its own bytes decide, while they
//! are made, when the next one is due.

mod blocks;
mod settings;
mod space;

use std::collections::BTreeMap;

use pgtoll_format::Lsn;

pub use blocks::BlockKey;
use blocks::{Blocks, Epoch, State};
use settings::Course;
pub use settings::{Compression, Outcome, Schedule, Settings};
pub use space::{Geometry, checkpoint_segments, max_wal_size_for};

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
    pub grows_by: u16,
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
    /// By course: bytes of the record that is being added.
    lengths: Vec<i64>,
    /// Bytes that are the same for all, and that no position has yet.
    pending: u64,
    /// So many bytes more, and some settings' checkpoint is due.
    slack: u64,
    /// When the next checkpoint by time is due.
    next_time: i64,
    time: i64,
    is_begun: bool,
    /// Which course follows the source's own redo points.
    source: Option<OfSource>,
    /// Of the source's checkpoints.
    lags: Vec<u64>,
    /// How the source's checkpoints spread their writes is known.
    knows_pace: bool,
    /// By course: the boundary before the last.
    earlier: Vec<Epoch>,
    /// Blocks whose last hint some courses, by their bits, did not log.
    unlogged: BTreeMap<BlockKey, u128>,
    needs: Vec<Need>,
    check: Check,
    /// All redo points are where they were.
    checks: bool,
    /// Bytes of what each checkpoint writes itself.
    own_bytes: u64,
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
    /// Of a hint: how far a checkpoint has to be until it is logged.
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
            lengths: vec![0; order.len()],
            pending: 0,
            slack: u64::MAX,
            next_time: i64::MAX,
            time: i64::MIN,
            is_begun: false,
            source,
            order,
            lags: Vec::new(),
            knows_pace: false,
            earlier: vec![1; settings.len()],
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
        for course in &mut self.courses {
            course.begin(position, time_us.unwrap_or(i64::MAX));
        }
        self.boundaries.fill(self.epoch);
        self.reckon();
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
        self.flush();
        let boundary = self.epoch.saturating_add(1);
        for place in 0..self.courses.len() {
            if self.courses[place].is_due_by_time(self.time) {
                let lag = self.lag_of(place);
                self.courses[place].checkpoint_by_time(self.time, self.own_bytes, lag);
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
        self.flush();
        self.epoch = self.epoch.saturating_add(1);
        for place in 0..self.courses.len() {
            if is_forced || self.courses[place].follows_source() {
                let lag = self.lag_of(place);
                self.courses[place].checkpoint_forced(self.time, self.own_bytes, lag, is_forced);
                self.bound(place, self.epoch);
            }
        }
        self.reckon();
    }

    /// The source's settings, if they are known: a page that was changed before a checkpoint and
    /// has not been written by it takes a hint without an image.
    pub fn expect(&mut self, today: Schedule) {
        let today = Settings {
            schedule: today,
            hints: true,
            full_page_writes: true,
            compression: Compression::AsStored,
        };
        self.knows_pace = today.schedule != Schedule::Source;
        let courses = self.courses.iter_mut().filter(|course| course.follows_source());
        courses.for_each(|course| course.expect(&today));
    }

    /// So many bytes were written between the segment's end that asked for a checkpoint of the
    /// source and the checkpoint's beginning: a checkpointer has to wake up, and to end what it does.
    /// The settings' checkpoints lag like that.
    pub fn lag(&mut self, bytes: u64) {
        if self.lags.len() < LAGS {
            self.lags.push(bytes);
        }
    }

    /// A segment is left before it is full.
    pub fn switch(&mut self) {
        if !self.is_begun {
            return;
        }
        self.flush();
        self.courses.iter_mut().for_each(Course::switch);
        self.checkpoints_by_volume();
    }

    /// The next record: its bytes without images that hang on checkpoints, with the data that stand
    /// in for them.
    #[inline]
    pub fn record(&mut self, bytes: u32, references: &[Reference]) {
        self.needs.clear();
        let mut always = Always::default();
        let mut is_hint = false;
        for of in references {
            is_hint |= of.rule == Rule::Hint;
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
                self.flush();
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
        if of.grows_by > 0 {
            grow(state, of.grows_by);
        }
        state.touched = epoch;
        if !matches!(of.rule, Rule::Hint | Rule::WithHints) {
            state.changed = epoch;
        }
        if is_new {
            self.blocks.count();
        }
        if let Some(image) = of.image {
            self.learn(of.block.fork, &image);
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
        let is_hint = self.knows_pace && of.rule == Rule::Hint;
        let written_at = is_hint.then(|| self.written_at(of.block, before));
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

    /// Whether a record has images that the source's checkpoints so far do not explain: another one
    /// has begun.
    pub fn is_unexplained(&mut self, references: &[Reference]) -> bool {
        references.iter().any(|of| {
            let may_need = matches!(of.rule, Rule::Regular | Rule::Hint | Rule::WithHints);
            let before = *self.blocks.of(of.block);
            let is_known = may_need && of.image.is_some() && before.touched > 0;
            is_known && self.predicted(of, &before) == Some(false)
        })
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
        let mut unlogged = 0;
        for class in &self.classes {
            if is_hint && !class.hints {
                continue;
            }
            let range = class.from..class.to;
            let kind = class.compression as usize;
            let base = i64::from(bytes) + i64::from(always.bytes[kind]);
            let lengths = &mut self.lengths[range.clone()];
            lengths.fill(base);
            let (boundaries, courses) = (&self.boundaries[range.clone()], &mut self.courses[range]);
            if always.images > 0 {
                for course in courses.iter_mut() {
                    course.images(always.images, always.bytes[kind]);
                }
            }
            let mut is_needed = !is_hint;
            for need in &self.needs {
                if need.only_with_hints && !class.hints {
                    continue;
                }
                let last = if class.hints { need.touched } else { need.changed };
                let more = i64::from(need.image[kind]) - i64::from(need.data_bytes);
                let places = lengths.iter_mut().zip(boundaries).zip(courses.iter_mut());
                for (((length, boundary), course), place) in places.zip(class.from..) {
                    let bit = 1_u128.checked_shl(u32::try_from(place).unwrap_or(128)).unwrap_or(0);
                    let mut needs = last < *boundary || need.unlogged & bit != 0;
                    if let Some(written_at) = need.written_at.filter(|_| needs)
                        && last >= self.earlier[place]
                        && course.progress(self.time) < written_at
                    {
                        needs = false;
                        unlogged |= bit;
                    }
                    if is_hint && !needs {
                        *length = 0;
                    } else if needs && class.full_page_writes {
                        *length += more;
                        course.images(1, need.image[kind].into());
                    }
                    is_needed |= needs;
                }
            }
            if is_needed {
                for (length, course) in lengths.iter().zip(courses) {
                    course.advance(u64::try_from(*length).unwrap_or(0).next_multiple_of(8));
                }
            }
        }
        if let (Some(block), true) = (block, unlogged != 0) {
            self.unlogged.insert(block, unlogged);
        }
        self.checkpoints_by_volume();
    }

    /// Gives all what is pending.
    fn flush(&mut self) {
        if self.pending > 0 {
            let pending = std::mem::take(&mut self.pending);
            self.courses.iter_mut().for_each(|course| course.advance(pending));
        }
    }

    /// Begins checkpoints that a segment's end asks for.
    fn checkpoints_by_volume(&mut self) {
        let mut boundary = None;
        for place in 0..self.courses.len() {
            if self.courses[place].is_due_by_volume() {
                let lag = self.lag_of(place);
                self.courses[place].checkpoint_by_volume(self.time, self.own_bytes, lag);
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
    }

    /// Lags come as they came in the source.
    #[expect(clippy::cast_possible_truncation, reason = "what is less than a length, or a lag")]
    fn lag_of(&self, place: usize) -> u64 {
        let count = self.courses[place].count();
        let lag = self.lags.get((count % self.lags.len().max(1) as u64) as usize);
        // Where checkpoints are further apart, the one before has more time to end.
        let source = self.source.map_or(1, |of| self.courses[of.course].pace_bytes());
        let ratio = u128::from(source.min(self.courses[place].pace_bytes()));
        let scaled = u128::from(lag.copied().unwrap_or(0)) * ratio
            / u128::from(self.courses[place].pace_bytes().max(1));
        scaled as u64
    }

    /// How far the writes of a checkpoint have to be that has written this page: chance says, but
    /// for what the source shows, which logged a hint and so had written it.
    fn written_at(&self, block: BlockKey, before: &State) -> f64 {
        let mixed = (block.block ^ block.fork.rotate_left(24)).wrapping_mul(0x9E37_79B1);
        let even = f64::from(mixed >> 16) / f64::from(1_u32 << 16);
        // Changed before the checkpoint before came to it, it was written then, and is clean.
        if f64::from(mixed & 0xFFFF) / f64::from(1_u32 << 16) < even * SPREAD {
            return 0.0;
        }
        let shown = self.source.filter(|of| before.touched >= self.earlier[of.course]);
        even * shown.map_or(1.0, |of| self.courses[of.course].progress(self.time))
    }

    /// How far it is to the next checkpoint of any settings.
    fn reckon(&mut self) {
        self.slack = self.courses.iter().map(Course::slack).min().unwrap_or(u64::MAX);
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
        (self.blocks.touched(), self.blocks.memory())
    }

    /// What became of each of the settings, in their order.
    pub fn finish(mut self) -> Vec<Outcome> {
        self.flush();
        let mut outcomes = vec![Outcome::default(); self.order.len()];
        for (course, index) in self.courses.iter().zip(&self.order) {
            outcomes[*index] = course.outcome();
        }
        outcomes
    }
}

/// Over how much of the way to the next a checkpoint is spread, as most are.
const SPREAD: f64 = 0.9;
/// Lags that are kept.
const LAGS: usize = 1 << 12;
/// An image's header and a page's, of a page without anything.
const EMPTY_PAGE: u16 = 5 + 24;
/// An image of a page without a hole.
const FULL_PAGE: u16 = 5 + 8192;

fn grow(state: &mut State, by: u16) {
    let uncompressed = state.image[Compression::Off as usize];
    if uncompressed == 0 {
        return;
    }
    let grown = uncompressed.saturating_add(by).min(FULL_PAGE);
    for image in state.image.iter_mut().filter(|image| **image > 0) {
        let scaled = ratio(u64::from(*image) * u64::from(grown), u64::from(uncompressed));
        *image = scaled.unwrap_or(*image).min(FULL_PAGE);
    }
}

fn ratio(sum: u64, of: u64) -> Option<u16> {
    let ratio = (sum + of / 2).checked_div(of)?;
    Some(u16::try_from(ratio).unwrap_or(u16::MAX))
}
