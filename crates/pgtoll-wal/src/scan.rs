//! Reads segments on several cores, and puts together what they say.
//!
//! Each segment is read by itself: a record belongs to the segment in which it begins, so the one who
//! reads that segment reads on into the next ones until its last record is whole, and the one who reads
//! those passes over the rest of a record from before. Results are taken in the order of the WAL,
//! as long as every record follows the one before it. Where something is missing or damaged, reading
//! ends, or a gap is noted and reading continues with the next segment that has a record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pgtoll_format::wal::{SegmentHeader, WalError};
use pgtoll_format::{Lsn, WalFacts};

use crate::WalReadError;
use crate::collect::Collect;
use crate::end::{End, Gap};
use crate::locate::{FirstEvent, locate};
use crate::pieces::{Cycle, FinishedTimeline, Piece, WalTimeline};
use crate::queue::{Closing, Queue};
use crate::range::{WalBound, WalRange};
use crate::segment_file::SegmentFile;
use crate::segment_reader::{ReadBuffers, SegmentResult, Wal, end_by_error};
use crate::statistics::WalStatistics;

/// A stretch of WAL and what was collected from it.
#[derive(Clone, Debug)]
pub struct WalSummary<C> {
    /// The major version that wrote it.
    pub major: u32,
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// The timelines, in their order.
    pub timelines: BTreeSet<u32>,
    /// The start of its first record; `None` without a record.
    pub from: Option<Lsn>,
    /// The end of its last record.
    pub to: Option<Lsn>,
    /// Segments in which it stands.
    pub segments: usize,
    /// For how long it was streamed from a server.
    pub streamed: Option<Duration>,
    /// The unread gaps within it, in the order of the WAL.
    pub gaps: Vec<Gap>,
    /// The result of the collector.
    pub collected: C,
}

impl<C> WalSummary<C> {
    /// The same stretch, with something else made of what was collected.
    pub fn map<D>(self, make: impl FnOnce(C) -> D) -> WalSummary<D> {
        WalSummary {
            major: self.major,
            system_identifier: self.system_identifier,
            segment_bytes: self.segment_bytes,
            timelines: self.timelines,
            from: self.from,
            to: self.to,
            segments: self.segments,
            streamed: self.streamed,
            gaps: self.gaps,
            collected: make(self.collected),
        }
    }

    /// A copy of the stretch, with something made of what has been collected until now.
    pub fn interim<D>(&mut self, make: impl FnOnce(&mut C) -> D) -> WalSummary<D> {
        WalSummary {
            major: self.major,
            system_identifier: self.system_identifier,
            segment_bytes: self.segment_bytes,
            timelines: self.timelines.clone(),
            from: self.from,
            to: self.to,
            segments: self.segments,
            streamed: self.streamed,
            gaps: self.gaps.clone(),
            collected: make(&mut self.collected),
        }
    }
}

/// The content of WAL.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Sums over all.
    pub statistics: WalStatistics,
    /// From one checkpoint's redo point to the next. The first begins where the WAL begins, the
    /// last is open.
    pub cycles: Vec<Cycle>,
    /// The most by which totals of single cycles may be wrong, in bytes, since a redo point lies in a piece that
    /// could not be read again; 0: they are exact.
    pub cycle_error_bytes: u64,
    /// How long each of the gaps was, in microseconds, as far as commits tell.
    pub gaps_us: Vec<Option<i64>>,
    /// Not many pieces of equal lengths, in the order of the WAL.
    pub pieces: Vec<Piece>,
}

/// Counts the records that begin in the range, on several threads and past all gaps. `watch` gets the number of
/// segments read, in the WAL's order; if it breaks, the result is of the segments until then.
pub fn scan(
    segments: &[SegmentFile],
    range: &Range<Lsn>,
    threads: usize,
    watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(WalSummary<Contents>, End), WalReadError> {
    let new = <(WalStatistics, WalTimeline)>::default;
    let (summary, end) = scan_range_with(segments, range, threads, new, watch)?;
    let wal = Wal::open(segments, range.clone(), true)?;
    let segment_bytes = u64::from(wal.header.segment_bytes);
    let mut again_bytes = (summary.segments as u64).saturating_mul(segment_bytes * READ_AGAIN);
    let summary = summary.map(|(statistics, timeline)| {
        let cycles = timeline.finish(|from, to| {
            // It is read from its segment's begin.
            let cost = to.bytes_since(from).unwrap_or(0) + from.segment_offset(segment_bytes);
            again_bytes = again_bytes.checked_sub(cost)?;
            wal.sums(from, to)
        });
        Contents::new(statistics, cycles)
    });
    Ok((summary, end))
}

impl Contents {
    pub(crate) fn new(statistics: WalStatistics, timeline: FinishedTimeline) -> Self {
        let FinishedTimeline { cycles, pieces, cycle_error_bytes, gaps_us } = timeline;
        Self { statistics, cycles, cycle_error_bytes, gaps_us, pieces }
    }
}

/// Returns the segments that hold a part of the WAL.
pub fn locate_range(
    segments: &[SegmentFile],
    range: &WalRange,
) -> Result<Range<Lsn>, WalReadError> {
    let wal = Wal::open(segments, Lsn::INVALID..Lsn::MAX, true)?;
    let mut memory = ReadBuffers::new();
    let mut find = |time_us| {
        locate(segments.len(), time_us, |number, since_us| {
            wal.read(number, FirstEvent::since(since_us), &mut memory).collected.found
        })
    };
    let start = match range.from {
        None => Lsn::INVALID,
        Some(WalBound::Lsn(lsn)) => lsn,
        Some(from @ WalBound::Time(time_us)) => {
            find(time_us).ok_or(WalReadError::NothingSince { from })?
        }
    };
    let end = match range.to {
        None => Lsn::MAX,
        Some(WalBound::Lsn(lsn)) => lsn,
        // What is later than all of the WAL ends nothing.
        Some(WalBound::Time(time_us)) => find(time_us).unwrap_or(Lsn::MAX),
    };
    if let (Some(from), Some(to)) = (range.from, range.to)
        && start >= end
    {
        return Err(WalReadError::EmptyRange { from, to });
    }
    let begin = wal.begin(0);
    let last = wal.end(segments.len() - 1);
    if start >= last || end <= begin {
        return Err(WalReadError::OutOfRange { begin, end: last });
    }
    Ok(start..end)
}

/// How the first segment that can be read says that the WAL is laid out, and which version wrote it.
pub fn first_header(
    segments: &[SegmentFile],
) -> Result<(SegmentHeader, &'static WalFacts), WalReadError> {
    let wal = Wal::open(segments, Lsn::INVALID..Lsn::MAX, true)?;
    Ok((wal.header, wal.facts))
}

/// Reads these segments on this many threads into collectors that `new` makes, one for each segment, up
/// to the first that is missing or damaged.
///
/// Memory does not grow with the WAL's length but for what the collector keeps: threads do not run
/// further ahead of the one that is last than a few segments.
pub fn scan_with<C: Collect>(
    segments: &[SegmentFile],
    threads: usize,
    new: impl Fn() -> C + Sync,
    watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), WalReadError> {
    read(&Wal::open(segments, Lsn::INVALID..Lsn::MAX, false)?, threads, new, watch)
}

/// As [`scan_with`], but only records that begin in the range, and past all gaps: those are in the
/// summary, and collectors are notified of each ([`Collect::gap`]).
pub fn scan_range_with<C: Collect>(
    segments: &[SegmentFile],
    range: &Range<Lsn>,
    threads: usize,
    new: impl Fn() -> C + Sync,
    watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), WalReadError> {
    read(&Wal::open(segments, range.clone(), true)?, threads, new, watch)
}

fn read<C: Collect>(
    wal: &Wal<'_>,
    threads: usize,
    new: impl Fn() -> C + Sync,
    watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<(WalSummary<C>, End), WalReadError> {
    let count = threads.clamp(1, wal.numbers.len().max(1));
    let queue = Queue::new(wal.numbers.clone(), count * SEGMENTS_AHEAD);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let started = pgtoll_system::threads::start(scope, count, || {
            let sender = sender.clone();
            let queue = &queue;
            let new = &new;
            move || {
                let _closing = Closing(queue);
                let mut memory = ReadBuffers::new();
                while let Some(number) = queue.next() {
                    // Nobody listens any more where the WAL has ended before.
                    if sender.send((number, wal.read(number, new(), &mut memory))).is_err() {
                        break;
                    }
                }
            }
        });
        drop(sender);
        let _closing = Closing(&queue);
        let merge = Merge::new(wal, &queue, empty_summary(wal, new()));
        let merged = if started > 0 {
            merge.run(receiver, watch)
        } else {
            let mut memory = ReadBuffers::new();
            let one = |number| (number, wal.read(number, new(), &mut memory));
            let here = std::iter::repeat_with(|| queue.next()).map_while(|next| next).map(one);
            merge.run(here, watch)
        };
        Ok(merged)
    })
}

/// Puts results together in the order of the WAL.
struct Merge<'a, C> {
    wal: &'a Wal<'a>,
    queue: &'a Queue,
    summary: WalSummary<C>,
    /// The start of the last record, which the next one must name.
    last: Option<Lsn>,
    /// The start of what is not read, and why, until there is a record behind it.
    missing: Option<(Lsn, End)>,
}

impl<'a, C: Collect> Merge<'a, C> {
    fn new(wal: &'a Wal<'a>, queue: &'a Queue, summary: WalSummary<C>) -> Self {
        Self { wal, queue, summary, last: None, missing: wal.missing_at_begin() }
    }

    /// Takes results as they come; those that come early wait.
    fn run(
        mut self,
        results: impl IntoIterator<Item = (usize, SegmentResult<C>)>,
        watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> (WalSummary<C>, End) {
        let mut early = BTreeMap::new();
        let mut next = self.wal.numbers.start;
        for (number, result) in results {
            early.insert(number, result);
            while let Some(early) = early.remove(&next) {
                let ended = self.take(next, early);
                next += 1;
                if let Some(end) = ended {
                    return (self.summary, end);
                }
                self.queue.taken();
                if watch(self.summary.segments).is_break() {
                    return (self.summary, End::Interrupted);
                }
            }
        }
        let is_range = next < self.wal.segments.len();
        let end = if is_range { End::RangeEnd(self.wal.range.end) } else { End::Complete };
        let end = self.unless_missing(end);
        (self.summary, end)
    }

    /// Takes a segment's result; why nothing after it is read.
    fn take(&mut self, number: usize, segment: SegmentResult<C>) -> Option<End> {
        if let (Some(expected), Some((at, found))) = (self.last, segment.first)
            && found != expected
        {
            let error = WalError::OtherPrevious { at, found, expected };
            let end = end_by_error(&self.wal.segments[number].path, error, Some(at));
            if !self.wal.passes_gaps {
                return Some(end);
            }
            self.miss(number, end);
        }
        if let Some(begin) = segment.begin {
            self.resume(begin);
        }
        self.last = segment.last.or(self.last);
        self.summary.from = self.summary.from.or(segment.begin);
        self.summary.to = segment.end.or(self.summary.to);
        if segment.begin.is_some() || self.missing.is_none() {
            self.summary.timelines.extend(segment.timelines);
            self.summary.segments += 1;
        }
        self.summary.collected.append(segment.collected);
        if segment.is_past {
            return Some(self.unless_missing(End::RangeEnd(self.wal.range.end)));
        }
        let end = self.wal.settle(segment.stop?, number);
        if end.at().is_some_and(|at| self.wal.is_behind(at)) {
            return Some(self.unless_missing(End::RangeEnd(self.wal.range.end)));
        }
        if !self.wal.passes_gaps || end.is_whole() {
            return Some(self.unless_missing(end));
        }
        self.miss(number, end);
        None
    }

    /// This end, unless something is missing before it behind which no record came.
    fn unless_missing(&mut self, end: End) -> End {
        self.missing.take().map_or(end, |(_, why)| why)
    }

    /// From here on nothing is read until a later segment has a record.
    fn miss(&mut self, number: usize, why: End) {
        self.last = None;
        let begin = self.wal.begin(number).max(self.wal.range.start);
        let from = self.summary.to.unwrap_or(begin);
        self.missing.get_or_insert((from, why));
    }

    /// A record begins here: what was missing before it is a gap.
    fn resume(&mut self, to: Lsn) {
        if let Some((from, why)) = self.missing.take() {
            self.summary.collected.gap(from, to);
            self.summary.gaps.push(Gap { from, to, why: Arc::new(why) });
        }
    }
}

/// Returns the summary of no WAL.
fn empty_summary<C>(wal: &Wal<'_>, collected: C) -> WalSummary<C> {
    WalSummary {
        major: wal.facts.major,
        system_identifier: wal.header.system_identifier,
        segment_bytes: wal.header.segment_bytes,
        timelines: BTreeSet::new(),
        from: None,
        to: None,
        segments: 0,
        streamed: None,
        gaps: Vec::new(),
        collected,
    }
}

/// How often a segment may be read again to find what lies before a redo point. Servers complete a
/// few checkpoints in a segment; only what was made up is full of them.
const READ_AGAIN: u64 = 64;
/// How many segments per thread are read before the first of them is merged.
const SEGMENTS_AHEAD: usize = 4;
