//! Reads one segment, and what of its last record stands in later ones.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use pgtoll_format::wal::{Decoder, PageHeader, Parts, Record, SegmentHeader, WalError};
use pgtoll_format::{Lsn, WalFacts};
use pgtoll_system::AlignedBuffer;

use crate::WalReadError;
use crate::collect::Collect;
use crate::end::End;
use crate::pieces::Sums;
use crate::segment_file::SegmentFile;

/// Segments that belong together.
pub(crate) struct Wal<'a> {
    pub(crate) segments: &'a [SegmentFile],
    pub(crate) header: SegmentHeader,
    pub(crate) facts: &'static WalFacts,
    /// Records that begin elsewhere are not collected.
    pub(crate) range: Range<Lsn>,
    /// The segments in which they may begin.
    pub(crate) numbers: Range<usize>,
    /// Missing and damaged segments do not end the reading.
    pub(crate) passes_gaps: bool,
}

/// The result of a segment.
pub(crate) struct SegmentResult<C> {
    /// The start of its first record, and which one that says it follows.
    pub(crate) first: Option<(Lsn, Lsn)>,
    /// The start of its last record.
    pub(crate) last: Option<Lsn>,
    /// The start of its first record in the range.
    pub(crate) begin: Option<Lsn>,
    /// The end of its last record in the range.
    pub(crate) end: Option<Lsn>,
    /// It has a record behind the range.
    pub(crate) is_past: bool,
    pub(crate) collected: C,
    /// The timelines of its first and last page.
    pub(crate) timelines: [u32; 2],
    /// Why nothing after it is read.
    pub(crate) stop: Option<End>,
}

/// Buffers that a thread keeps from segment to segment.
pub(crate) struct ReadBuffers {
    chunk: AlignedBuffer,
    parts: Parts,
}

impl ReadBuffers {
    pub(crate) fn new() -> Self {
        Self { chunk: AlignedBuffer::new(CHUNK), parts: Parts::default() }
    }
}

/// The bytes that are read at once: whole pages of any size, few calls of the system, and little enough to be
/// in a processor's own cache still when it is decoded.
const CHUNK: usize = 1 << 18;

impl<'a> Wal<'a> {
    /// By the first segment, or, if gaps are passed, by the first that can be read.
    pub(crate) fn open(
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
    pub(crate) fn is_behind(&self, at: Lsn) -> bool {
        at >= self.range.end && self.range.end != Lsn::MAX
    }

    /// Whether segments are missing where the range begins.
    pub(crate) fn missing_at_begin(&self) -> Option<(Lsn, End)> {
        let before = self.numbers.start.checked_sub(1)?;
        let is_missing =
            !self.numbers.is_empty() && self.begin(self.numbers.start) > self.range.start;
        let end = self.after(before).err().filter(|_| is_missing)?;
        Some((self.range.start, end))
    }

    /// The start of a segment, by its name.
    pub(crate) fn begin(&self, number: usize) -> Lsn {
        // What does not fit its name is found out when it is read.
        self.segments[number].name.begin(self.header.segment_bytes.into())
    }

    /// The end of a segment.
    pub(crate) fn end(&self, number: usize) -> Lsn {
        self.begin(number).saturating_add(u64::from(self.header.segment_bytes))
    }

    /// The sums of the records that begin from one place to another, both where records begin;
    /// `None` where that cannot be read again.
    pub(crate) fn sums(&self, from: Lsn, to: Lsn) -> Option<Sums> {
        let mut sums = Sums::default();
        let mut parts = Parts::default();
        let within = |number: &usize| self.begin(*number) < to && self.end(*number) > from;
        let mut decoder: Option<Decoder> = None;
        let mut buffer = AlignedBuffer::new(CHUNK);
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
    pub(crate) fn read<C: Collect>(
        &self,
        number: usize,
        collected: C,
        memory: &mut ReadBuffers,
    ) -> SegmentResult<C> {
        let timelines = [self.segments[number].name.timeline; 2];
        let first = None;
        let last = None;
        let begin = None;
        let end = None;
        let is_past = false;
        let mut segment =
            SegmentResult { first, last, begin, end, is_past, collected, timelines, stop: None };
        let ReadBuffers { chunk, parts } = memory;
        let mut reading = Reading { wal: self, number, of: &mut segment, parts, decoder: None };
        let stop = reading.run(chunk);
        segment.stop = stop.err();
        segment
    }

    /// The file of the segment after this one.
    fn after(&self, number: usize) -> Result<usize, End> {
        let segments_per_part = (1_u64 << 32) / u64::from(self.header.segment_bytes);
        let name = self.segments[number].name;
        let place = name.next_place(u32::try_from(segments_per_part).unwrap_or(u32::MAX));
        match self.segments.get(number + 1) {
            Some(next) if next.name.place == place => Ok(number + 1),
            Some(_) => {
                let at = self.end(number);
                let to = self.begin(number + 1);
                let count = to.bytes_since(at).unwrap_or(0) / u64::from(self.header.segment_bytes);
                let timeline = name.timeline;
                let (high, low) = place;
                let name = format!("{timeline:08X}{high:08X}{low:08X}");
                Err(End::Missing { at, name, count: count.max(1) })
            }
            None => Err(End::Complete),
        }
    }

    /// An end in segment `number` is the WAL's own only where no later segment belongs to it.
    pub(crate) fn settle(&self, end: End, number: usize) -> End {
        let end = match end {
            End::Own(error) => {
                let later = (number + 1..self.segments.len()).find(|later| self.belongs(*later));
                let goes_on = later.map(|later| self.begin(later));
                end_by_error(&self.segments[number].path, error, goes_on)
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
        match self.read(number, Sums::default(), &mut ReadBuffers::new()).stop {
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
fn layout(segment_file: &SegmentFile) -> Result<(SegmentHeader, &'static WalFacts), WalReadError> {
    let read = |source| WalReadError::Read { path: segment_file.path.clone(), source };
    let mut begin = Vec::new();
    let file = segment_file.open().map_err(read)?;
    file.take(64).read_to_end(&mut begin).map_err(read)?;
    if begin.is_empty() {
        return Err(WalReadError::Empty { path: segment_file.path.clone() });
    }
    let not_wal = |source| WalReadError::NotWal { path: segment_file.path.clone(), source };
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
            let own = decoder.segment();
            let wal = &self.wal.header;
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
        let part = &mut *self.of;
        let parts = &mut *self.parts;
        if decoder.next_page() == self.wal.begin(self.number) {
            part.timelines[0] = decoder.timeline();
        }
        let fed = decoder.feed(chunk, &mut |record: &Record<'_>| {
            if record.at >= segment_end {
                return Ok(());
            }
            if record.at >= range.end {
                part.is_past = true;
                return Ok(());
            }
            if part.first.is_none() {
                part.first = Some((record.at, record.header.previous));
            }
            part.last = Some(record.at);
            if record.at >= range.start {
                record.parts(parts)?;
                part.collected.add(record, parts);
                part.begin = part.begin.or(Some(record.at));
                part.end = Some(record.end);
            }
            Ok(())
        });
        if decoder.next_page() <= segment_end {
            part.timelines[1] = decoder.timeline();
        }
        if self.of.is_past {
            return Ok(());
        }
        // What is wrong behind the last record is for the one who reads that segment.
        fed.or_else(|error| match error.at() {
            Some(at) if at >= segment_end && self.is_whole() => Ok(()),
            _ => Err(error),
        })
    }

    /// Why an error ends the reading. Pages of the segment that stand where they should behind it
    /// show that the WAL continues.
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
        end_by_error(&self.wal.segments[number].path, error, goes_on)
    }

    /// Returns the first of these pages that is at its place and was not decoded.
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

/// How an error ends the WAL: by itself, unless it continues.
pub(crate) fn end_by_error(path: &Path, error: WalError, goes_on: Option<Lsn>) -> End {
    match goes_on {
        Some(goes_on) => End::Damaged { path: path.to_owned(), error, goes_on },
        None => End::Own(error),
    }
}
