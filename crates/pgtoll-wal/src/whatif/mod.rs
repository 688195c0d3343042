//! Feeds the model of WAL under other settings.
//!
//! Segments are read by several threads, each into [`Touches`]; those are put together in the order
//! of the WAL, on one thread, into one [`WhatIf`]. Until 17 a checkpoint's beginning is told only at
//! its end: what lies between waits in a queue.

mod advice;
mod data;
mod estimates;
mod images;
mod record;
mod survey;
mod touches;

use std::collections::VecDeque;
use std::sync::Arc;

use pgtoll_format::wal::{Parts, Record};
use pgtoll_format::{Lsn, RelFileLocator, RelationFork, WalFacts};
use pgtoll_model::{
    BlockKey, Check, CyclePages, Geometry, Reference, Rule, Schedule, Settings, WhatIf,
    WhatIfOutcome, checkpoint_segments,
};
use rustc_hash::FxHashMap;

pub use images::Compressing;
use images::Images;
pub use record::{WhatIfSource, whatif_record};
pub use survey::CheckpointSurvey;
use touches::{Happened, Touch, Touched, Touches, UNKNOWN};

use crate::collect::Collect;

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    /// How the WAL is laid out.
    pub geometry: Geometry,
    /// How the version that wrote it does.
    pub facts: &'static WalFacts,
    /// The settings. One of them follows the source's own redo points.
    pub settings: Vec<Settings>,
    /// The schedule that the source had, where it is known: whatever checkpoint it does not explain
    /// was forced.
    pub today: Option<Schedule>,
    /// The images that are compressed.
    pub compressing: Compressing,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Answer {
    /// By settings, in their order.
    pub outcomes: Vec<WhatIfOutcome>,
    /// How well the source's own redo points explain its images.
    pub check: Check,
    /// The start of the first record.
    pub from: Option<Lsn>,
    /// The last record ends here.
    pub to: Option<Lsn>,
    /// Redo points of the source, in their order.
    pub redo_points: Vec<RedoPoint>,
    /// When the first and the last transaction ended, in microseconds since 1970.
    pub times_us: Option<(i64, i64)>,
    /// Records for hints in all that was read.
    pub hints: u64,
    /// Blocks that were named, and the bytes that were kept of them.
    pub blocks: (u64, u64),
    /// The most bytes that waited for a redo point.
    pub waiting_most: u64,
    /// Redo points that came to light too late to be made use of.
    pub late: u64,
    /// Whole checkpoint cycles of the source, in their order.
    pub cycles: Vec<SourceCycle>,
}

/// A checkpoint cycle of the source, from one redo point to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCycle {
    /// The redo point that it begins with.
    pub from: Lsn,
    /// The redo point that it ends with.
    pub to: Lsn,
    /// Distinct pages that it changed.
    pub pages: CyclePages,
    /// The outcome of each of the settings in it, in their order: only bytes and images. Of those
    /// that do not follow the source it is the part that did the same work.
    pub outcomes: Vec<CycleOutcome>,
}

/// The outcome of a cycle's work under settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleOutcome {
    /// Bytes of WAL.
    pub bytes: u64,
    /// Full-page images.
    pub images: u64,
    /// Bytes of them, with their headers.
    pub image_bytes: u64,
    /// Bytes that come on top if `VACUUM` had to freeze what it froze right after a hint's image.
    pub freeze_bytes: u64,
}

impl CycleOutcome {
    fn between(before: &WhatIfOutcome, after: &WhatIfOutcome) -> Self {
        Self {
            bytes: after.bytes.saturating_sub(before.bytes),
            images: after.images.saturating_sub(before.images),
            image_bytes: after.image_bytes.saturating_sub(before.image_bytes),
            freeze_bytes: after.freeze_bytes.saturating_sub(before.freeze_bytes),
        }
    }
}

impl Answer {
    /// From the first record's begin to the last one's end.
    pub fn bytes(&self) -> u64 {
        self.to.zip(self.from).and_then(|(to, from)| to.bytes_since(from)).unwrap_or(0)
    }
}

/// A redo point of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoPoint {
    /// The position.
    pub at: Lsn,
    /// When its checkpoint began, in microseconds since 1970, if it is known.
    pub time_us: Option<i64>,
    /// It belongs to a shutdown, or to the end of a recovery.
    pub is_shutdown: bool,
    /// It would have begun whatever `max_wal_size` and `checkpoint_timeout`.
    pub is_forced: bool,
    /// No record tells of it: an image shows that a checkpoint had begun.
    pub is_inferred: bool,
}

/// Collects what a [`Question`] is about.
#[derive(Debug)]
pub struct WhatIfCollector {
    question: Arc<Question>,
    touches: Touches,
    images: Option<Images>,
    replay: Option<Box<Replay>>,
    /// The answer of the longest stretch before the last gap.
    longest: Option<Box<Answer>>,
}

impl WhatIfCollector {
    /// A collector for one segment, or for all.
    pub fn new(question: Arc<Question>) -> Self {
        Self { question, touches: Touches::default(), images: None, replay: None, longest: None }
    }

    /// Bytes of memory that grow with the WAL: of its blocks, and of what waits for a redo point.
    pub fn memory(&self) -> u64 {
        self.replay
            .as_ref()
            .map_or(0, |replay| replay.model.blocks().1 + replay.waiting_bytes as u64)
    }

    /// The answer: where the WAL has gaps, that of the longest stretch without one.
    pub fn finish(mut self) -> Answer {
        self.end_stretch();
        let nothing = || Replay::new(self.question).finish();
        self.longest.map_or_else(nothing, |answer| *answer)
    }

    /// The answer about what was appended until now, and collecting continues. Until 17 it does not
    /// include what waits for a redo point.
    pub fn interim(&mut self) -> Answer {
        if let Some(replay) = &mut self.replay {
            return replay.interim();
        }
        let nothing = || Replay::new(self.question.clone()).finish();
        self.longest.as_deref().cloned().unwrap_or_else(nothing)
    }

    /// Ends a stretch before a gap: which of its pages were changed since the last checkpoint is
    /// not known.
    fn end_stretch(&mut self) {
        let Some(replay) = self.replay.take() else { return };
        let answer = replay.finish();
        if self.longest.as_ref().is_none_or(|longest| answer.bytes() > longest.bytes()) {
            self.longest = Some(Box::new(answer));
        }
    }
}

impl Collect for WhatIfCollector {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let compressing = &self.question.compressing;
        let images = self.images.get_or_insert_with(|| Images::new(compressing.clone()));
        self.touches.add(record, parts, images);
    }

    fn append(&mut self, later: Self) {
        let question = &self.question;
        let new = || Box::new(Replay::new(question.clone()));
        self.replay.get_or_insert_with(new).take(later.touches);
    }

    fn gap(&mut self, _: Lsn, _: Lsn) {
        self.end_stretch();
    }
}

/// Puts the parts together.
#[derive(Debug)]
struct Replay {
    question: Arc<Question>,
    model: WhatIf,
    forks: FxHashMap<RelationFork, u32>,
    means: touches::Means,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    waiting_most: usize,
    /// Redo points that records named and that have not been reached.
    ahead: VecDeque<RedoPoint>,
    redo_points: Vec<RedoPoint>,
    /// The completion of the last checkpoint.
    completed: Option<Lsn>,
    /// The cause of the last one, if the source's settings are known.
    last_cause: Option<Cause>,
    late: u64,
    cycles: Vec<SourceCycle>,
    /// The outcomes of the settings at the last redo point.
    begun: Option<(Lsn, Vec<WhatIfOutcome>)>,
    hints: u64,
    from: Option<Lsn>,
    to: Option<Lsn>,
    first_us: Option<i64>,
    last_us: Option<i64>,
    references: Vec<Reference>,
    /// Pages that the last records were hints for.
    late_hints: Vec<(RelationFork, u32)>,
}

/// A segment of which a part has been replayed.
#[derive(Debug)]
struct Waiting {
    touches: Touches,
    forks: Vec<u32>,
    record: usize,
    reference: usize,
    happened: usize,
}

/// Bytes of what each checkpoint writes itself.
fn own_bytes(facts: &WalFacts) -> u64 {
    let checkpoint = u64::from(CHECKPOINT_RECORD + facts.checkpoint_bytes).next_multiple_of(8);
    checkpoint + RUNNING_TRANSACTIONS + if facts.marks_redo { REDO_RECORD } else { 0 }
}

/// A checkpoint's record without its data, and its companions with their padding.
const CHECKPOINT_RECORD: u32 = 26;
const RUNNING_TRANSACTIONS: u64 = 56;
const REDO_RECORD: u64 = 32;

/// How many bytes may wait for a redo point.
const WAITING: usize = 1 << 29;
/// Redo points that are kept.
const REDO_POINTS: usize = 1 << 16;
/// Cycles that are kept, each with what becomes of all settings.
const CYCLES: usize = 1 << 12;

impl Replay {
    fn new(question: Arc<Question>) -> Self {
        let own_bytes = own_bytes(question.facts);
        let mut model = WhatIf::new(question.geometry, own_bytes, &question.settings);
        if let Some(today) = question.today {
            model.assume_schedule(today);
        }
        Self {
            model,
            question,
            forks: FxHashMap::default(),
            means: touches::Means::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_most: 0,
            ahead: VecDeque::new(),
            redo_points: Vec::new(),
            completed: None,
            last_cause: None,
            late: 0,
            cycles: Vec::new(),
            begun: None,
            hints: 0,
            from: None,
            to: None,
            first_us: None,
            last_us: None,
            references: Vec::new(),
            late_hints: Vec::new(),
        }
    }

    fn take(&mut self, mut touches: Touches) {
        let Some(from) = touches.from else { return };
        let late_hints = touches.late_hints();
        touches.freeze_after(&std::mem::replace(&mut self.late_hints, late_hints));
        if self.from.is_none() {
            self.from = Some(from);
            self.model.begin(from, None);
        }
        self.means.append(&touches.means);
        self.hints += touches.hints;
        self.to = touches.to.or(self.to);
        let forks = touches.forks.iter().map(|fork| self.fork(*fork)).collect();
        let known = if self.question.facts.marks_redo {
            Some(Lsn(u64::MAX))
        } else {
            self.queue_redo_points(&touches, from)
        };
        self.waiting_bytes += touches.memory();
        self.waiting_most = self.waiting_most.max(self.waiting_bytes);
        self.waiting.push_back(Waiting { touches, forks, record: 0, reference: 0, happened: 0 });
        if let Some(known) = known {
            self.replay(known);
        }
        while self.waiting_bytes > WAITING && self.waiting.len() > 1 {
            let next = self.waiting.get(1).and_then(|next| next.touches.from);
            self.replay(next.unwrap_or(Lsn(u64::MAX)));
        }
    }

    /// A fork's number in the model.
    fn fork(&mut self, fork: RelationFork) -> u32 {
        let next = u32::try_from(self.forks.len()).unwrap_or(u32::MAX);
        *self.forks.entry(fork).or_insert_with(|| {
            let RelFileLocator { tablespace, rel_number: number, .. } = fork.relation;
            self.model.fork([tablespace, number, fork.number.0.into()]);
            next
        })
    }

    /// Redo points that these records tell of; up to where all are known now.
    fn queue_redo_points(&mut self, touches: &Touches, from: Lsn) -> Option<Lsn> {
        let places = touches.records.iter().filter(|record| record.happens);
        let mut known = None;
        for (record, happened) in places.zip(&touches.happened) {
            let Happened::Checkpoint { redo, is_shutdown, time_s } = *happened else { continue };
            let at = Lsn(from.0 + u64::from(record.at));
            self.ahead.push_back(RedoPoint {
                at: if is_shutdown { at } else { redo.min(at) },
                time_us: time_s.checked_mul(1_000_000),
                is_shutdown,
                is_forced: is_shutdown,
                is_inferred: false,
            });
            known = Some(at);
        }
        known
    }

    /// Replays what waits and begins before `until`.
    fn replay(&mut self, until: Lsn) {
        while let Some(mut first) = self.waiting.pop_front() {
            let from = first.touches.from.unwrap_or(Lsn(0));
            while let Some(record) = first.touches.records.get(first.record).copied() {
                let at = Lsn(from.0 + u64::from(record.at));
                if at >= until {
                    self.waiting.push_front(first);
                    return;
                }
                self.record(at, record, &mut first);
            }
            self.waiting_bytes -= first.touches.memory().min(self.waiting_bytes);
        }
    }

    #[inline]
    fn record(&mut self, at: Lsn, record: Touched, waiting: &mut Waiting) {
        while self.ahead.front().is_some_and(|redo| redo.at <= at) {
            if let Some(redo) = self.ahead.pop_front() {
                self.redo_point(redo, at);
            }
        }
        if record.happens {
            let happened = waiting.touches.happened.get(waiting.happened).copied();
            waiting.happened += 1;
            if let Some(happened) = happened {
                self.happened(at, happened);
            }
        }
        let first = waiting.reference;
        let count = usize::from(record.references);
        (waiting.record, waiting.reference) = (waiting.record + 1, first + count);
        let Some(references) = waiting.touches.references.get(first..first + count) else { return };
        let mut bytes = record.bytes;
        self.references.clear();
        for touch in references {
            let (reference, left_out) =
                self.reference(touch, record.class, &waiting.touches, &waiting.forks);
            bytes += u32::from(left_out);
            self.references.push(reference);
        }
        if bytes > 0 || count > 0 {
            self.model.record(bytes, &self.references);
        }
    }

    /// Returns the redo point of a checkpoint under way at the end of the WAL. No record shows it, images
    /// do: such a page's change before came before the checkpoint, and the first of them after it.
    /// (Two sessions may log the same page's image twice: what came later tells nothing.)
    fn under_way(&self) -> Option<Lsn> {
        let mut changes = FxHashMap::default();
        let mut began = None;
        let mut first = Lsn(u64::MAX);
        for waiting in &self.waiting {
            let from = waiting.touches.from?;
            let mut touches = waiting.touches.references.get(waiting.reference..)?.iter();
            for record in waiting.touches.records.get(waiting.record..)? {
                let at = Lsn(from.0 + u64::from(record.at));
                for touch in touches.by_ref().take(record.references.into()) {
                    let is_hint =
                        matches!(touch.rule, Rule::Hint | Rule::WithHints | Rule::MarkedByReader);
                    if is_hint && !self.model.logs_hints() {
                        continue;
                    }
                    let fork = waiting.forks.get(touch.fork as usize).copied().unwrap_or(0);
                    let block = BlockKey { fork, block: touch.block };
                    let before = changes.insert(block, at);
                    let may_need = !matches!(touch.rule, Rule::Init | Rule::Always);
                    let is_explained = before.is_none() && self.model.explains(block);
                    if may_need && touch.image > 0 && !is_explained {
                        first = first.min(at);
                        let changed = before.unwrap_or(from);
                        if changed < first {
                            began = began.max(Some(Lsn(changed.0 + 1)));
                        }
                    }
                }
            }
        }
        began
    }

    /// As the model wants it, and how many data its record has to be given back.
    #[inline]
    fn reference(
        &self,
        touch: &Touch,
        class: u16,
        touches: &Touches,
        forks: &[u32],
    ) -> (Reference, u16) {
        let image = touch.image.checked_sub(1).and_then(|place| touches.images.get(place as usize));
        let (data_bytes, left_out) = if touch.data_bytes == UNKNOWN {
            let mean = self.means.mean(class, touch.id);
            (mean, mean)
        } else {
            (touch.data_bytes, 0)
        };
        let fork = forks.get(touch.fork as usize).copied().unwrap_or(0);
        let reference = Reference {
            block: BlockKey { fork, block: touch.block },
            rule: touch.rule,
            image: image.copied(),
            data_bytes,
            grows_by: touch.grows_by,
            freeze_bytes: touch.freeze_bytes,
            pruned_bytes: touch.pruned_bytes,
        };
        (reference, left_out)
    }

    fn happened(&mut self, at: Lsn, happened: Happened) {
        if matches!(happened, Happened::Checkpoint { is_shutdown: false, .. }) {
            self.model.source_written();
            self.completed = Some(at);
        }
        match happened {
            Happened::Time(time_us) => {
                self.last_us = self.last_us.max(Some(time_us));
                self.first_us = self.first_us.or(Some(time_us));
                self.model.time(time_us);
            }
            Happened::RedoPoint => {
                let time_us = self.last_us;
                let is_shutdown = false;
                let is_forced = false;
                let is_inferred = false;
                self.redo_point(RedoPoint { at, time_us, is_shutdown, is_forced, is_inferred }, at);
            }
            Happened::Checkpoint { redo, is_shutdown, time_s }
                if self.question.facts.marks_redo =>
            {
                let time_us = time_s.checked_mul(1_000_000);
                if is_shutdown {
                    let is_forced = true;
                    let is_inferred = false;
                    self.redo_point(
                        RedoPoint { at, time_us, is_shutdown, is_forced, is_inferred },
                        at,
                    );
                } else if let Some(redo_point) =
                    self.redo_points.iter_mut().rev().find(|redo_point| redo_point.at == redo)
                {
                    redo_point.time_us = time_us;
                }
            }
            Happened::Checkpoint { .. } => {}
            Happened::Switch => self.model.switch(),
        }
    }

    /// A checkpoint of the source began before the record here. The first is one of all settings:
    /// before it nobody knows how far the checkpoint before lies back.
    fn redo_point(&mut self, mut redo: RedoPoint, at: Lsn) {
        let time_us = redo.time_us.or(self.last_us);
        if let Some(time_us) = time_us {
            self.last_us = self.last_us.max(Some(time_us));
            self.model.time(time_us);
        }
        if self.from.is_some_and(|from| redo.at < from) {
            return;
        }
        self.late += u64::from(redo.at < at && !redo.is_inferred);
        if redo.is_inferred {
            // It began here or before: pages that were made again since then are past it.
            self.model.stop_check();
        }
        if !redo.is_inferred {
            self.end_cycle(redo.at);
        }
        let cause = self.cause(&redo);
        self.last_cause = cause;
        redo.is_forced |= cause == Some(Cause::Forced);
        self.model.source_checkpoint(redo.is_forced || self.redo_points.is_empty());
        if self.redo_points.len() < REDO_POINTS {
            self.redo_points.push(redo);
        }
    }

    /// The source's cycle ends here, and the next one begins.
    fn end_cycle(&mut self, at: Lsn) {
        let pages = self.model.take_cycle();
        let now = self.model.outcomes();
        if let Some((from, before)) = &self.begun
            && self.cycles.len() < CYCLES
        {
            let pairs = before.iter().zip(&now);
            let outcomes = pairs.map(|(before, now)| CycleOutcome::between(before, now)).collect();
            self.cycles.push(SourceCycle { from: *from, to: at, pages, outcomes });
        }
        self.begun = Some((at, now));
    }

    /// Returns the position at which the source's settings request the next checkpoint.
    fn until(&self) -> Option<Lsn> {
        let Some(Schedule::Rule { max_wal_size, completion_target, .. }) = self.question.today
        else {
            return None;
        };
        let segment_bytes = self.question.geometry.segment_bytes;
        let due = checkpoint_segments(max_wal_size, segment_bytes, completion_target);
        let before = self.redo_points.last()?.at.0 / segment_bytes;
        Some(Lsn(before.saturating_add(due).saturating_mul(segment_bytes)))
    }

    /// Returns the cause of a checkpoint, by the source's settings.
    fn cause(&self, redo: &RedoPoint) -> Option<Cause> {
        let Some(Schedule::Rule { timeout_us, .. }) = self.question.today else { return None };
        let before = self.redo_points.last()?;
        let requested = self.until()?;
        // Two sessions may ask for the same checkpoint, the second when it has begun: then another
        // begins when it has ended, which takes until the segments that it frees are renamed.
        let segment_bytes = self.question.geometry.segment_bytes;
        let was_asked_twice = self.last_cause == Some(Cause::Volume)
            && self.completed.is_some_and(|completed| {
                redo.at.bytes_since(completed).is_some_and(|bytes| bytes < segment_bytes)
            });
        if redo.at >= requested || was_asked_twice {
            return Some(Cause::Volume);
        }
        let by_time = match (redo.time_us.or(self.last_us), before.time_us) {
            (Some(now), Some(then)) => now - then >= timeout_us.saturating_sub(TIME_SLACK_US),
            _ => false,
        };
        Some(if by_time { Cause::Time } else { Cause::Forced })
    }

    /// Ends the WAL: waiting records have a redo point without a record.
    fn end(&mut self) {
        while let Some(redo) = self.ahead.pop_front() {
            self.replay(redo.at);
            self.redo_point(redo, redo.at);
        }
        let Some(at) = self.under_way() else { return };
        self.ahead.push_back(RedoPoint {
            at,
            time_us: None,
            is_shutdown: false,
            is_forced: false,
            is_inferred: true,
        });
    }

    /// Returns the start of the first record that waits for a redo point.
    fn waits_at(&self) -> Option<Lsn> {
        let first = self.waiting.front()?;
        let record = first.touches.records.get(first.record)?;
        Some(Lsn(first.touches.from?.0 + u64::from(record.at)))
    }

    fn interim(&mut self) -> Answer {
        Answer {
            check: self.model.check(),
            from: self.from,
            to: self.waits_at().or(self.to),
            redo_points: self.redo_points.clone(),
            times_us: self.first_us.zip(self.last_us),
            hints: self.hints,
            blocks: self.model.blocks(),
            waiting_most: self.waiting_most as u64,
            late: self.late,
            cycles: self.cycles.clone(),
            outcomes: self.model.outcomes(),
        }
    }

    fn finish(mut self) -> Answer {
        if !self.question.facts.marks_redo {
            self.end();
        }
        self.replay(Lsn(u64::MAX));
        self.interim()
    }
}

/// The cause of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// `max_wal_size`.
    Volume,
    /// `checkpoint_timeout`.
    Time,
    /// Neither explains it.
    Forced,
}

/// Times of checkpoints are known to the second, and a checkpointer looks a little later.
const TIME_SLACK_US: i64 = 2_000_000;
