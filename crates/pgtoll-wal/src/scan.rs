//! Reads segments on several cores, and puts together what they say.
//!
//! Each segment is read by itself: a record belongs to the segment in which it begins, so whoever
//! reads that segment reads on into the next ones until its last record is whole, and whoever reads
//! those passes over the rest of a record from before. Results are taken in the order of the WAL,
//! as long as every record follows the one before it. Where something is missing or damaged, reading
//! ends, or a gap is noted and reading goes on with the next segment that has a record.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use pgtoll_format::wal::{Decoder, PageHeader, Parts, Record, SegmentHeader, WalError};
use pgtoll_format::{Lsn, WalFacts};

use crate::WalReadError;
use crate::collect::Collect;
use crate::end::{End, Gap};
use crate::locate::{FirstEvent, locate};
use crate::pieces::{Cycle, FinishedTimeline, Piece, Sums, WalTimeline};
use crate::range::{WalBound, WalRange};
use crate::segment_file::SegmentFile;
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
    /// Where its first record begins; `None` without a record.
    pub from: Option<Lsn>,
    /// Where its last record ends.
    pub to: Option<Lsn>,
    /// Segments in which it stands.
    pub segments: usize,
    /// For how long it was streamed from a server.
    pub streamed: Option<Duration>,
    /// What lies within it and was not read, in the order of the WAL.
    pub gaps: Vec<Gap>,
    /// What was collected.
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
}

/// What WAL consists of.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Sums over all.
    pub statistics: WalStatistics,
    /// From one checkpoint's redo point to the next. The first begins where the WAL begins, the
    /// last is open.
    pub cycles: Vec<Cycle>,
    /// By so many bytes sums of single cycles may be wrong, since a redo point lies in a piece that
    /// could not be read again; 0: they are exact.
    pub cycle_error_bytes: u64,
    /// How long each of the gaps was, in microseconds, as far as commits tell.
    pub gaps_us: Vec<Option<i64>>,
    /// Not many pieces of equal lengths, in the order of the WAL.
    pub pieces: Vec<Piece>,
}

/// What these segments consist of, as far as records begin in the range, read on so many threads past
/// all gaps. `watch` is told how many have been read, in the WAL's order; where it breaks, what was
/// read until then is all there is.
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
    pub(crate) fn new(statistics: WalStatistics, of: FinishedTimeline) -> Self {
        let FinishedTimeline { cycles, pieces, cycle_error_bytes, gaps_us } = of;
        Self { statistics, cycles, cycle_error_bytes, gaps_us, pieces }
    }
}

/// Where a part of the WAL lies in these segments.
pub fn locate_range(
    segments: &[SegmentFile],
    range: &WalRange,
) -> Result<Range<Lsn>, WalReadError> {
    let wal = Wal::open(segments, Lsn::INVALID..Lsn::MAX, true)?;
    let mut memory = Memory::new();
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
    let (begin, last) = (wal.begin(0), wal.end(segments.len() - 1));
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

/// Reads these segments on so many threads into collectors that `new` makes, one for each segment, up
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
/// summary, and collectors are told of each ([`Collect::gap`]).
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
        let started = pgtoll_threads::start(scope, count, || {
            let (sender, queue, new) = (sender.clone(), &queue, &new);
            move || {
                let _closing = Closing(queue);
                let mut memory = Memory::new();
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
        let merge = Merge::new(wal, &queue, wal.summary(new()));
        let merged = if started > 0 {
            merge.run(receiver, watch)
        } else {
            let mut memory = Memory::new();
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
    /// Where the last record begins that the next one has to follow.
    last: Option<Lsn>,
    /// Where what is not read begins, and why, until there is a record behind it.
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
            while let Some(of) = early.remove(&next) {
                let ended = self.take(next, of);
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
    fn take(&mut self, number: usize, of: SegmentResult<C>) -> Option<End> {
        if let (Some(expected), Some((at, found))) = (self.last, of.first)
            && found != expected
        {
            let error = WalError::OtherPrevious { at, found, expected };
            let end = end(&self.wal.segments[number].path, error, Some(at));
            if !self.wal.passes_gaps {
                return Some(end);
            }
            self.miss(number, end);
        }
        if let Some(begin) = of.begin {
            self.resume(begin);
        }
        self.last = of.last.or(self.last);
        self.summary.from = self.summary.from.or(of.begin);
        self.summary.to = of.end.or(self.summary.to);
        if of.begin.is_some() || self.missing.is_none() {
            self.summary.timelines.extend(of.timelines);
            self.summary.segments += 1;
        }
        self.summary.collected.append(of.collected);
        if of.is_past {
            return Some(self.unless_missing(End::RangeEnd(self.wal.range.end)));
        }
        let end = self.wal.settle(of.stop?, number);
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

/// How an error ends the WAL: by itself, unless it goes on.
fn end(path: &Path, error: WalError, goes_on: Option<Lsn>) -> End {
    match goes_on {
        Some(goes_on) => End::Damaged { path: path.to_owned(), error, goes_on },
        None => End::Own(error),
    }
}

/// Which segment is read next. Numbers are given out only so far ahead of the one that is merged
/// next, so that results do not pile up behind one that takes long.
struct Queue {
    /// Behind the last one.
    end: usize,
    ahead: usize,
    state: Mutex<QueueState>,
    moved: Condvar,
}

struct QueueState {
    next: usize,
    taken: usize,
    is_closed: bool,
}

impl Queue {
    fn new(numbers: Range<usize>, ahead: usize) -> Self {
        let Range { start, end } = numbers;
        let state = Mutex::new(QueueState { next: start, taken: start, is_closed: false });
        Self { end, ahead, state, moved: Condvar::new() }
    }

    /// The next segment, once it is near enough; `None` where none is left.
    fn next(&self) -> Option<usize> {
        let too_far = |state: &mut QueueState| {
            !state.is_closed && state.next < self.end && state.next >= state.taken + self.ahead
        };
        let waited = self.moved.wait_while(self.state(), too_far);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        (!state.is_closed && number < self.end).then_some(number)
    }

    /// A segment's result was merged.
    fn taken(&self) {
        self.state().taken += 1;
        self.moved.notify_all();
    }

    /// Numbers hold whatever panicked between them.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the giving out of numbers, also when a collector panics: else the other threads would wait
/// for ever. A thread that ends by itself has found that none is left.
struct Closing<'a>(&'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.moved.notify_all();
    }
}

/// Segments that belong together.
struct Wal<'a> {
    segments: &'a [SegmentFile],
    header: SegmentHeader,
    facts: &'static WalFacts,
    /// Records that begin elsewhere are not collected.
    range: Range<Lsn>,
    /// The segments in which they may begin.
    numbers: Range<usize>,
    /// What is missing or damaged does not end the reading.
    passes_gaps: bool,
}

/// What a segment says.
struct SegmentResult<C> {
    /// Where its first record begins, and which one that says it follows.
    first: Option<(Lsn, Lsn)>,
    /// Where its last record begins.
    last: Option<Lsn>,
    /// Where its first record in the range begins.
    begin: Option<Lsn>,
    /// Where its last record in the range ends.
    end: Option<Lsn>,
    /// It has a record behind the range.
    is_past: bool,
    collected: C,
    /// Of its first and its last page.
    timelines: [u32; 2],
    /// Why nothing after it is read.
    stop: Option<End>,
}

/// What a thread keeps from segment to segment, so that memory is taken once.
struct Memory {
    chunk: Vec<u8>,
    parts: Parts,
}

impl Memory {
    fn new() -> Self {
        Self { chunk: vec![0; CHUNK], parts: Parts::default() }
    }
}

/// How often a segment may be read again to find what lies before a redo point. Servers complete a
/// few checkpoints in a segment; only what was made up is full of them.
const READ_AGAIN: u64 = 64;
/// What is read at once: whole pages of any size, few calls of the system, and little enough to be
/// in a processor's own cache still when it is decoded.
const CHUNK: usize = 1 << 18;
/// How many segments per thread are read before the first of them is merged.
const SEGMENTS_AHEAD: usize = 4;

impl<'a> Wal<'a> {
    /// By the first segment, or, if gaps are passed, by the first that can be read.
    fn open(
        segments: &'a [SegmentFile],
        range: Range<Lsn>,
        passes_gaps: bool,
    ) -> Result<Self, WalReadError> {
        let first = segments.first().ok_or_else(|| WalReadError::NoSegments { path: "".into() })?;
        let (header, facts) = layout(first).or_else(|error| {
            let others = segments[1..].iter().filter(|_| passes_gaps);
            others.map(layout).find_map(Result::ok).ok_or(error)
        })?;
        let mut wal = Self { segments, header, facts, numbers: 0..0, range, passes_gaps };
        wal.numbers = wal.numbers_in_range();
        Ok(wal)
    }

    /// The segments that have a part in the range.
    fn numbers_in_range(&self) -> Range<usize> {
        let all: Vec<usize> = (0..self.segments.len()).collect();
        let first = all.partition_point(|number| self.end(*number) <= self.range.start);
        let end = all.partition_point(|number| !self.is_behind(self.begin(*number)));
        first..end.max(first)
    }

    /// Behind the range, if that has an end.
    fn is_behind(&self, at: Lsn) -> bool {
        at >= self.range.end && self.range.end != Lsn::MAX
    }

    /// Whether segments are missing where the range begins.
    fn missing_at_begin(&self) -> Option<(Lsn, End)> {
        let before = self.numbers.start.checked_sub(1)?;
        let is_missing =
            !self.numbers.is_empty() && self.begin(self.numbers.start) > self.range.start;
        let end = self.after(before).err().filter(|_| is_missing)?;
        Some((self.range.start, end))
    }

    /// Where a segment begins, by its name.
    fn begin(&self, number: usize) -> Lsn {
        // What does not fit its name is found out when it is read.
        self.segments[number].name.begin(self.header.segment_bytes.into())
    }

    /// Where a segment ends.
    fn end(&self, number: usize) -> Lsn {
        self.begin(number).saturating_add(u64::from(self.header.segment_bytes))
    }

    /// Of nothing yet.
    fn summary<C>(&self, collected: C) -> WalSummary<C> {
        WalSummary {
            major: self.facts.major,
            system_identifier: self.header.system_identifier,
            segment_bytes: self.header.segment_bytes,
            timelines: BTreeSet::new(),
            from: None,
            to: None,
            segments: 0,
            streamed: None,
            gaps: Vec::new(),
            collected,
        }
    }

    /// The sums of the records that begin from one place to another, both where records begin;
    /// `None` where that cannot be read again.
    fn sums(&self, from: Lsn, to: Lsn) -> Option<Sums> {
        let (mut sums, mut parts) = (Sums::default(), Parts::default());
        let within = |number: &usize| self.begin(*number) < to && self.end(*number) > from;
        let mut decoder: Option<Decoder> = None;
        let mut buffer = vec![0; CHUNK];
        for number in (0..self.segments.len()).filter(within) {
            let mut input = self.segments[number].open().ok()?;
            loop {
                let filled = fill(input.as_mut(), &mut buffer).ok().filter(|filled| *filled > 0)?;
                let chunk = &buffer[..filled];
                let decoder = match &mut decoder {
                    Some(decoder) => decoder,
                    none => none.insert(Decoder::new(chunk).ok()?),
                };
                let mut is_past = false;
                let fed = decoder.feed(chunk, &mut |record: &Record<'_>| {
                    is_past |= record.at >= to;
                    if (from..to).contains(&record.at) {
                        record.parts(&mut parts)?;
                        sums.add_record(record, &parts);
                    }
                    Ok(())
                });
                if is_past {
                    return Some(sums);
                }
                fed.ok()?;
                if decoder.next_page() >= self.end(number) {
                    break;
                }
            }
        }
        None
    }

    /// Reads a segment and what of its last record stands in later ones.
    fn read<C: Collect>(
        &self,
        number: usize,
        collected: C,
        memory: &mut Memory,
    ) -> SegmentResult<C> {
        let timelines = [self.segments[number].name.timeline; 2];
        let (first, last, begin, end) = (None, None, None, None);
        let is_past = false;
        let mut of =
            SegmentResult { first, last, begin, end, is_past, collected, timelines, stop: None };
        let Memory { chunk, parts } = memory;
        let mut reading = Reading { wal: self, number, of: &mut of, parts, decoder: None };
        let stop = reading.run(chunk);
        of.stop = stop.err();
        of
    }

    /// The file of the segment after this one.
    fn after(&self, number: usize) -> Result<usize, End> {
        let segments_per_part = (1_u64 << 32) / u64::from(self.header.segment_bytes);
        let name = self.segments[number].name;
        let place = name.next_place(u32::try_from(segments_per_part).unwrap_or(u32::MAX));
        match self.segments.get(number + 1) {
            Some(next) if next.name.place == place => Ok(number + 1),
            Some(_) => {
                let (at, to) = (self.end(number), self.begin(number + 1));
                let count = to.bytes_since(at).unwrap_or(0) / u64::from(self.header.segment_bytes);
                let (timeline, (high, low)) = (name.timeline, place);
                let name = format!("{timeline:08X}{high:08X}{low:08X}");
                Err(End::Missing { at, name, count: count.max(1) })
            }
            None => Err(End::Complete),
        }
    }

    /// An end in segment `number` is the WAL's own only where no later segment belongs to it.
    fn settle(&self, end: End, number: usize) -> End {
        let end = match end {
            End::Own(error) => {
                let later = (number + 1..self.segments.len()).find(|later| self.belongs(*later));
                let goes_on = later.map(|later| self.begin(later));
                self::end(&self.segments[number].path, error, goes_on)
            }
            other => other,
        };
        match end {
            End::Damaged { error, .. } if !self.stays(number, error) => End::Own(error),
            end => end,
        }
    }

    /// Whether the same is wrong when it is read again. A running server writes on in the order of
    /// the WAL: where something stands behind an error now, its place has been written too.
    fn stays(&self, number: usize, error: WalError) -> bool {
        match self.read(number, Sums::default(), &mut Memory::new()).stop {
            Some(End::Own(again) | End::Damaged { error: again, .. }) => again.at() == error.at(),
            Some(_) => true,
            None => false,
        }
    }

    /// Whether a segment was written for the place that its name says, not recycled.
    fn belongs(&self, number: usize) -> bool {
        let mut begin = Vec::new();
        let read =
            self.segments[number].open().and_then(|file| file.take(64).read_to_end(&mut begin));
        let header = SegmentHeader::read(&begin);
        read.is_ok() && header.is_ok_and(|header| header.page.address == self.begin(number))
    }
}

/// How a segment says that the WAL is laid out, and which version wrote it.
fn layout(of: &SegmentFile) -> Result<(SegmentHeader, &'static WalFacts), WalReadError> {
    let read = |source| WalReadError::Read { path: of.path.clone(), source };
    let mut begin = Vec::new();
    let file = of.open().map_err(read)?;
    file.take(64).read_to_end(&mut begin).map_err(read)?;
    if begin.is_empty() {
        return Err(WalReadError::Empty { path: of.path.clone() });
    }
    let not_wal = |source| WalReadError::NotWal { path: of.path.clone(), source };
    let decoder = Decoder::new(&begin).map_err(not_wal)?;
    Ok((*decoder.segment(), decoder.facts()))
}

/// Reading one segment.
struct Reading<'a, 'b, C> {
    wal: &'a Wal<'a>,
    number: usize,
    of: &'b mut SegmentResult<C>,
    parts: &'b mut Parts,
    decoder: Option<Decoder>,
}

impl<C: Collect> Reading<'_, '_, C> {
    fn run(&mut self, chunk: &mut [u8]) -> Result<(), End> {
        let mut number = self.number;
        self.feed(number, chunk)?;
        if self.of.is_past {
            return Ok(());
        }
        while !self.is_whole() {
            number = self.wal.after(number)?;
            // Of a later segment a page is often enough.
            self.feed(number, &mut chunk[..self.wal.header.page_bytes as usize])?;
        }
        match self.wal.after(self.number) {
            Err(End::Complete) | Ok(_) => Ok(()),
            Err(end) => Err(end),
        }
    }

    /// The last record that begins in the segment has its rest.
    fn is_whole(&self) -> bool {
        let unfinished = self.decoder.as_ref().and_then(Decoder::unfinished);
        unfinished.is_none_or(|at| at >= self.wal.end(self.number))
    }

    /// Feeds a segment: all of it, or of a later one what the last record needs.
    fn feed(&mut self, number: usize, chunk: &mut [u8]) -> Result<(), End> {
        let file = &self.wal.segments[number];
        let begin = self.wal.begin(number);
        let unreadable = |source, read: u64| {
            let at = begin.saturating_add(read);
            End::Unreadable { path: file.path.clone(), at, source }
        };
        let input = file.open().map_err(|source| unreadable(source, 0))?;
        // What a file has behind its segment is not looked at, be it compressed without end.
        let mut input = input.take(u64::from(self.wal.header.segment_bytes));
        let mut read = 0_u64;
        loop {
            let filled = fill(&mut input, chunk).map_err(|source| unreadable(source, read))?;
            if filled == 0 {
                break;
            }
            read += filled as u64;
            if let Err(error) = self.take(number, &chunk[..filled]) {
                return Err(self.stop(number, error, &mut input, chunk, filled));
            }
            if self.of.is_past || number != self.number && self.is_whole() {
                return Ok(());
            }
        }
        if read != u64::from(self.wal.header.segment_bytes) {
            return Err(End::CutShort { path: file.path.clone(), at: begin.saturating_add(read) });
        }
        Ok(())
    }

    fn take(&mut self, number: usize, chunk: &[u8]) -> Result<(), WalError> {
        if self.decoder.is_none() {
            let begin = self.wal.begin(number);
            // The segments before it say where it stands.
            let decoder = Decoder::new(chunk).map_err(|error| match error {
                WalError::Zeros => WalError::NoRecord { at: begin, length: 0 },
                WalError::NoSegment => WalError::OtherPage { at: begin, found: Lsn(0) },
                other => other,
            })?;
            if decoder.next_page() != begin {
                return Err(WalError::OtherPage { at: begin, found: decoder.next_page() });
            }
            let (own, wal) = (decoder.segment(), &self.wal.header);
            if (own.system_identifier, own.segment_bytes, own.page_bytes)
                != (wal.system_identifier, wal.segment_bytes, wal.page_bytes)
            {
                return Err(WalError::OtherCluster { at: begin });
            }
            self.decoder = Some(decoder);
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let segment_end = self.wal.end(self.number);
        let range = &self.wal.range;
        let (of, parts) = (&mut *self.of, &mut *self.parts);
        if decoder.next_page() == self.wal.begin(self.number) {
            of.timelines[0] = decoder.timeline();
        }
        let fed = decoder.feed(chunk, &mut |record: &Record<'_>| {
            if record.at >= segment_end {
                return Ok(());
            }
            if record.at >= range.end {
                of.is_past = true;
                return Ok(());
            }
            if of.first.is_none() {
                of.first = Some((record.at, record.header.previous));
            }
            of.last = Some(record.at);
            if record.at >= range.start {
                record.parts(parts)?;
                of.collected.add(record, parts);
                of.begin = of.begin.or(Some(record.at));
                of.end = Some(record.end);
            }
            Ok(())
        });
        if decoder.next_page() <= segment_end {
            of.timelines[1] = decoder.timeline();
        }
        if self.of.is_past {
            return Ok(());
        }
        // What is wrong behind the last record is for whoever reads that segment.
        fed.or_else(|error| match error.at() {
            Some(at) if at >= segment_end && self.is_whole() => Ok(()),
            _ => Err(error),
        })
    }

    /// Why an error ends the reading. Pages of the segment that stand where they should behind it
    /// show that the WAL goes on.
    fn stop(
        &self,
        number: usize,
        error: WalError,
        input: &mut dyn Read,
        chunk: &mut [u8],
        mut filled: usize,
    ) -> End {
        let mut goes_on = None;
        while filled > 0 && goes_on.is_none() && self.decoder.is_some() {
            goes_on = self.goes_on(number, &chunk[..filled]);
            filled = fill(input, chunk).unwrap_or(0);
        }
        end(&self.wal.segments[number].path, error, goes_on)
    }

    /// Of these pages the first one that stands where it should and has not been decoded.
    fn goes_on(&self, number: usize, pages: &[u8]) -> Option<Lsn> {
        let decoder = self.decoder.as_ref()?;
        let page_bytes = self.wal.header.page_bytes;
        let segment = self.wal.begin(number)..self.wal.end(number);
        let headers = pages.chunks(page_bytes as usize).filter_map(PageHeader::read);
        let own = headers.filter(|header| header.magic == self.wal.header.page.magic);
        own.map(|header| header.address).find(|at| {
            *at > decoder.next_page()
                && at.is_aligned(u64::from(page_bytes))
                && segment.contains(at)
        })
    }
}

/// Fills the buffer as far as there is input.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
