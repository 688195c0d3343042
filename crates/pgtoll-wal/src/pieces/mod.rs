//! WAL in pieces, and what each consists of: what is shown over time, and summed up from one
//! checkpoint to the next.

use std::collections::VecDeque;

use pgtoll_format::Lsn;
use pgtoll_format::wal::rmgr::{
    RM_BRIN_ID, RM_BTREE_ID, RM_CLOG_ID, RM_COMMIT_TS_ID, RM_GIN_ID, RM_GIST_ID, RM_HASH_ID,
    RM_HEAP_ID, RM_HEAP2_ID, RM_LOGICALMSG_ID, RM_MULTIXACT_ID, RM_SPGIST_ID, RM_XACT_ID,
    RM_XLOG_ID,
};
use pgtoll_format::wal::{Event, Parts, Record, RecordType};
use pgtoll_record::{CycleBegin, ImageCause, WalAmount, WalImages, WalKind};

use crate::collect::Collect;
use crate::statistics::{cause_of, images_of};

fn kind_of_image(cause: ImageCause) -> WalKind {
    match cause {
        ImageCause::FirstTouch => WalKind::FirstTouch,
        ImageCause::Hint => WalKind::Hint,
        ImageCause::Forced | ImageCause::Check => WalKind::OtherImages,
    }
}

const fn kind_of_manager(manager: u8) -> WalKind {
    match manager {
        RM_HEAP2_ID | RM_HEAP_ID => WalKind::Heap,
        RM_BTREE_ID | RM_HASH_ID | RM_GIN_ID | RM_GIST_ID | RM_SPGIST_ID | RM_BRIN_ID => {
            WalKind::Index
        }
        RM_XACT_ID | RM_CLOG_ID | RM_MULTIXACT_ID | RM_COMMIT_TS_ID => WalKind::Transaction,
        _ => WalKind::Other,
    }
}

/// The kind of each manager's records: to look it up costs less than to decide.
const KINDS: [WalKind; 256] = {
    let mut kinds = [WalKind::Other; 256];
    let mut manager = 0_u8;
    while manager <= RM_LOGICALMSG_ID {
        kinds[manager as usize] = kind_of_manager(manager);
        manager += 1;
    }
    kinds
};

/// Sums that can be taken from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The amount of all records.
    pub amount: WalAmount,
    /// Images by cause, in the order of [`ImageCause::ALL`].
    pub causes: [WalImages; 4],
    /// Bytes by kind, in the order of [`WalKind::ALL`].
    pub kinds: [u64; 7],
}

impl Sums {
    /// Adds a record that was taken apart.
    #[inline]
    pub(crate) fn add_record(&mut self, record: &Record<'_>, parts: &Parts) {
        let image_bytes = parts.image_bytes();
        if image_bytes > 0 {
            self.add_images(RecordType::from_header(&record.header), parts);
        }
        let record_bytes = u64::from(record.header.total_bytes).saturating_sub(image_bytes);
        self.kinds[KINDS[usize::from(record.header.manager)] as usize] += record_bytes;
        self.amount.add(&WalAmount { records: 1, record_bytes, image_bytes });
    }

    fn add_images(&mut self, kind: RecordType, parts: &Parts) {
        for block in &parts.blocks {
            let Some(image) = &block.image else { continue };
            let cause = cause_of(kind, block.id, image.applies);
            let images = images_of(image);
            self.causes[cause as usize].add(&images);
            self.kinds[kind_of_image(cause) as usize] += images.bytes;
        }
    }

    /// Adds other sums.
    pub(crate) fn add(&mut self, other: &Self) {
        self.amount.add(&other.amount);
        self.causes.iter_mut().zip(&other.causes).for_each(|(own, other)| own.add(other));
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(own, other)| *own += other);
    }

    /// Takes away sums of a part of what these are of.
    fn subtract(&mut self, part: &Self) {
        self.amount.subtract(&part.amount);
        self.causes.iter_mut().zip(&part.causes).for_each(|(own, part)| own.subtract(part));
        let kinds = self.kinds.iter_mut().zip(&part.kinds);
        kinds.for_each(|(own, part)| *own = own.saturating_sub(*part));
    }
}

/// A stretch of WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its start.
    pub from: Lsn,
    /// The sums of the records that begin in it.
    pub sums: Sums,
    /// When the first of its transactions ended, in microseconds since 1970.
    pub since_us: Option<i64>,
    /// When the last of them ended.
    pub until_us: Option<i64>,
}

/// Pieces of one segment, or of what a server sent, as they come.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    grain: u64,
    of: Vec<Piece>,
    /// A record from here on begins another piece.
    next: Lsn,
    /// The events of checkpoints, with their positions.
    checkpoints: Vec<(Lsn, Event)>,
}

impl Pieces {
    /// Each about this many bytes long, a power of two.
    pub(crate) fn new(grain: u64) -> Self {
        Self { grain, of: Vec::new(), next: Lsn::INVALID, checkpoints: Vec::new() }
    }

    #[inline]
    pub(crate) fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        // Only these have checkpoints and times; of others the amounts are enough.
        if matches!(record.header.manager, RM_XLOG_ID | RM_XACT_ID) {
            return self.add_telling(record, parts);
        }
        if record.at >= self.next {
            self.begin(record.at);
        }
        if let Some(piece) = self.of.last_mut() {
            piece.sums.add_record(record, parts);
        }
    }

    fn add_telling(&mut self, record: &Record<'_>, parts: &Parts) {
        let event = record.event(parts);
        // Where a cycle begins a piece begins, as far as that is known here.
        let begins = matches!(event, Some(Event::RedoPoint))
            || matches!(event, Some(Event::Checkpoint { is_shutdown: true, .. }));
        if begins || record.at >= self.next {
            self.begin(record.at);
        }
        if let Some(piece) = self.of.last_mut() {
            piece.sums.add_record(record, parts);
            if let Some(Event::TransactionEnd { time_us }) = event {
                piece.since_us = earlier(piece.since_us, Some(time_us));
                piece.until_us = piece.until_us.max(Some(time_us));
            }
        }
        if let Some(event @ (Event::RedoPoint | Event::Checkpoint { .. })) = event {
            self.checkpoints.push((record.at, event));
        }
    }

    fn begin(&mut self, from: Lsn) {
        self.of.push(Piece { from, sums: Sums::default(), since_us: None, until_us: None });
        self.next = from.align_down(self.grain).saturating_add(self.grain);
    }
}

/// From one checkpoint's redo point to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its redo point; of the first cycle where the WAL begins.
    pub from: Lsn,
    /// The event that began it.
    pub begin: CycleBegin,
    /// When its checkpoint began, in seconds since 1970; `None` where no record tells.
    pub began_s: Option<i64>,
    /// The amount of its records.
    pub sums: Sums,
}

/// How WAL went: pieces, and cycles from checkpoint to checkpoint.
#[derive(Clone, Debug)]
pub struct WalTimeline {
    /// The pieces of the segment that is read.
    pieces: Pieces,
    /// The history of all that was appended.
    history: History,
}

/// The result of a [`WalTimeline`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedTimeline {
    /// The last one is still open. Behind a gap one begins that has no redo point.
    pub cycles: Vec<Cycle>,
    /// Not many.
    pub pieces: Vec<Piece>,
    /// The most by which totals of single cycles may be wrong, in bytes; 0: they are exact.
    pub cycle_error_bytes: u64,
    /// How long each gap was, in microseconds, as far as commits tell.
    pub gaps_us: Vec<Option<i64>>,
}

/// Bytes of a piece: small WAL too has some.
const GRAIN: u64 = 1 << 17;

impl Default for WalTimeline {
    fn default() -> Self {
        Self { pieces: Pieces::new(GRAIN), history: History::new(GRAIN) }
    }
}

impl Collect for WalTimeline {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        self.pieces.add(record, parts);
    }

    fn append(&mut self, later: Self) {
        self.history.take(&later.pieces);
    }

    fn gap(&mut self, from: Lsn, _: Lsn) {
        self.history.gap(from);
    }
}

impl WalTimeline {
    /// Cycles and pieces. `part` gives the sums of the records that begin from one place to another,
    /// or nothing where these cannot be read again.
    pub fn finish(self, part: impl FnMut(Lsn, Lsn) -> Option<Sums>) -> FinishedTimeline {
        self.history.finish(part)
    }
}

impl Collect for Sums {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        self.add_record(record, parts);
    }

    fn append(&mut self, later: Self) {
        self.add(&later);
    }
}

/// Puts pieces together, in the order of the WAL: to coarser ones, and to cycles.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// All of the WAL, in few pieces of equal lengths.
    series: Vec<Piece>,
    grain: u64,
    cycles: VecDeque<Cycle>,
    /// Pieces since the last redo point that is known.
    pending: VecDeque<Pending>,
    /// Cycles that begin within a piece, all of which is counted for the cycle before.
    unsettled: VecDeque<(Lsn, Within)>,
    /// When the last transaction ended.
    until_us: Option<i64>,
    /// By gap: when the last transaction before it and the first one behind it ended.
    gaps_us: Vec<[Option<i64>; 2]>,
    /// The start of a gap behind which nothing has come.
    gap: Option<Lsn>,
}

/// A piece, or what is left of one behind a redo point within it: nothing is counted for that yet.
#[derive(Clone, Debug)]
struct Pending {
    from: Lsn,
    sums: Sums,
    /// The piece of which this is what is left.
    within: Option<Box<Within>>,
}

/// A piece that is read again to tell what stands before a redo point in it.
#[derive(Clone, Copy, Debug)]
struct Within {
    from: Lsn,
    sums: Sums,
}

/// More pieces are too many to be looked at.
const SERIES: usize = 1024;
/// More pieces since the last checkpoint are put together, two by two.
const PENDING: usize = 1 << 12;
/// More cycles are not kept apart: the oldest become one.
const CYCLES: usize = 1 << 16;

impl History {
    pub(crate) fn new(grain: u64) -> Self {
        Self {
            series: Vec::new(),
            grain,
            cycles: VecDeque::new(),
            pending: VecDeque::new(),
            unsettled: VecDeque::new(),
            until_us: None,
            gaps_us: Vec::new(),
            gap: None,
        }
    }

    /// Notes a gap: a cycle ends here, and what comes next begins one
    /// whose redo point is unknown.
    fn gap(&mut self, from: Lsn) {
        self.open();
        self.close(self.pending.len());
        self.gaps_us.push([self.until_us, None]);
        self.gap = Some(from);
    }

    /// The first piece behind a gap. Over time and place the gap is a piece of its own.
    fn open_behind_gap(&mut self, first: &Piece) {
        let Some(from) = self.gap.take() else { return };
        let sums = Sums::default();
        let until_us = first.since_us;
        self.add_to_series(&Piece { from, sums, since_us: None, until_us });
        let from = first.from;
        let begin = CycleBegin::Unknown;
        self.cycles.push_back(Cycle { from, begin, began_s: None, sums: Sums::default() });
        self.join_oldest();
    }

    /// Takes the next pieces.
    pub(crate) fn take(&mut self, next: &Pieces) {
        if let Some(first) = next.of.first() {
            self.open_behind_gap(first);
        }
        for piece in &next.of {
            self.add_to_series(piece);
            self.until_us = self.until_us.max(piece.until_us);
            if let (Some([_, behind @ None]), Some(since)) =
                (self.gaps_us.last_mut(), piece.since_us)
            {
                *behind = Some(since);
            }
            self.pending.push_back(Pending { from: piece.from, sums: piece.sums, within: None });
        }
        if self.pending.len() > PENDING {
            self.pending = self.pending.make_contiguous().chunks(2).map(joined).collect();
        }
        for (at, event) in &next.checkpoints {
            match *event {
                Event::RedoPoint => self.begin_cycle(*at, CycleBegin::Online, None),
                Event::Checkpoint { redo, is_shutdown, time_s } => {
                    let begin = if is_shutdown { CycleBegin::Shutdown } else { CycleBegin::Online };
                    self.begin_cycle(redo.min(*at), begin, Some(time_s));
                }
                Event::TransactionEnd { .. } => {}
            }
        }
    }

    /// `part` gives the sums of the records from one place to another.
    pub(crate) fn finish(
        mut self,
        mut part: impl FnMut(Lsn, Lsn) -> Option<Sums>,
    ) -> FinishedTimeline {
        self.open();
        self.close(self.pending.len());
        let mut cycle_error_bytes = 0;
        for (redo, piece) in std::mem::take(&mut self.unsettled) {
            match part(piece.from, redo) {
                Some(before) => self.settle(redo, &piece, &before),
                None => cycle_error_bytes = piece.sums.amount.bytes().max(cycle_error_bytes),
            }
        }
        let lasted = |[from, to]: &[Option<i64>; 2]| Some((*to)?.saturating_sub((*from)?).max(0));
        FinishedTimeline {
            cycles: self.cycles.into(),
            pieces: self.series,
            cycle_error_bytes,
            gaps_us: self.gaps_us.iter().map(lasted).collect(),
        }
    }

    /// Counts the records of the piece behind the redo point for the cycle that begins there.
    fn settle(&mut self, redo: Lsn, piece: &Within, before: &Sums) {
        let mut after = piece.sums;
        after.subtract(before);
        let later = self.cycles.partition_point(|cycle| cycle.from < redo);
        if self.cycles.get(later).is_none_or(|cycle| cycle.from != redo) || later == 0 {
            return;
        }
        self.cycles[later - 1].sums.subtract(&after);
        self.cycles[later].sums.add(&after);
    }

    /// The first cycle begins with the WAL.
    fn open(&mut self) {
        if let (true, Some(first)) = (self.cycles.is_empty(), self.pending.front()) {
            let from = first.from;
            let begin = CycleBegin::Unknown;
            self.cycles.push_back(Cycle { from, begin, began_s: None, sums: Sums::default() });
        }
    }

    /// Counts the first of the pending pieces for the last cycle.
    fn close(&mut self, pieces: usize) {
        let Some(last) = self.cycles.back_mut() else { return };
        self.pending.drain(..pieces).for_each(|pending| last.sums.add(&pending.sums));
    }

    fn begin_cycle(&mut self, redo: Lsn, begin: CycleBegin, began_s: Option<i64>) {
        self.open();
        let Some(last) = self.cycles.back_mut() else { return };
        if redo == last.from {
            // Its beginning was seen before; this tells when that was.
            (last.begin, last.began_s) = (begin, began_s.or(last.began_s));
            return;
        }
        // It began before what was read, or a cycle began since: it was of no effect.
        if redo < last.from {
            return;
        }
        let before = self.pending.partition_point(|pending| pending.from < redo);
        let hit = before.checked_sub(1).map(|hit| self.pending[hit].whole());
        let is_within = self.pending.get(before).is_none_or(|next| next.from != redo);
        self.close(before);
        if let Some(within) = hit.filter(|_| is_within) {
            let sums = Sums::default();
            let item = Some(Box::new(within));
            self.pending.push_front(Pending { from: redo, sums, within: item });
            self.unsettled.push_back((redo, within));
        }
        self.cycles.push_back(Cycle { from: redo, begin, began_s, sums: Sums::default() });
        self.join_oldest();
    }

    /// Joins the two oldest cycles if there are too many.
    fn join_oldest(&mut self) {
        if self.cycles.len() <= CYCLES {
            return;
        }
        if let (Some(oldest), Some(first)) = (self.cycles.pop_front(), self.cycles.front_mut()) {
            while self.unsettled.front().is_some_and(|(redo, _)| *redo <= first.from) {
                self.unsettled.pop_front();
            }
            first.sums.add(&oldest.sums);
            (first.from, first.begin, first.began_s) = (oldest.from, CycleBegin::Unknown, None);
        }
    }

    fn add_to_series(&mut self, piece: &Piece) {
        push_or_join(&mut self.series, piece, self.grain);
        while self.series.len() > SERIES {
            self.grain = self.grain.saturating_mul(2);
            let mut coarser = Vec::new();
            self.series.iter().for_each(|piece| push_or_join(&mut coarser, piece, self.grain));
            self.series = coarser;
        }
    }
}

fn push_or_join(pieces: &mut Vec<Piece>, next: &Piece, grain: u64) {
    match pieces.last_mut() {
        Some(last) if last.from.align_down(grain) == next.from.align_down(grain) => {
            last.sums.add(&next.sums);
            last.since_us = earlier(last.since_us, next.since_us);
            last.until_us = last.until_us.max(next.until_us);
        }
        _ => pieces.push(*next),
    }
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).min()
}

impl Pending {
    fn whole(&self) -> Within {
        let own = Within { from: self.from, sums: self.sums };
        self.within.as_deref().copied().unwrap_or(own)
    }
}

/// One piece out of two neighbours.
fn joined(pair: &[Pending]) -> Pending {
    let mut first = pair[0].clone();
    for next in &pair[1..] {
        first.sums.add(&next.sums);
        if let Some(within) = &mut first.within {
            within.sums.add(&next.sums);
        }
    }
    first
}

#[cfg(test)]
mod tests;
