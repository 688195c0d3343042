//! Reads segments on several cores, and puts together what they say.
//!
//! Each segment is read by itself: a record belongs to the segment in which it begins, so whoever
//! reads that segment reads on into the next ones until its last record is whole, and whoever reads
//! those passes over the rest of a record from before. Results are taken in the order of the WAL,
//! and only as far as every record follows the one before it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use pgtoll_format::Lsn;
use pgtoll_format::wal::{Decoder, PageHeader, Parts, Record, SegmentHeader, WalError};

use crate::ScanError;
use crate::files::SegmentFile;
use crate::statistics::{WalStatistics, WalSummary};

/// Why the WAL is not read further.
#[derive(Debug)]
pub enum End {
    /// All segments were read to their ends.
    Complete,
    /// Its own end: behind the last record nothing follows.
    Own(WalError),
    /// What follows cannot be read, though the WAL goes on after it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: WalError,
        /// Where it goes on.
        goes_on: Lsn,
    },
    /// A segment is missing, and there are later ones.
    Missing {
        /// Where it should begin.
        at: Lsn,
        /// What it should be called.
        name: String,
    },
    /// A file is shorter than its segment.
    CutShort {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        at: Lsn,
    },
    /// A file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The segment.
        at: Lsn,
        /// What the system said.
        source: io::Error,
    },
}

/// Reads these segments on so many threads.
pub fn scan(segments: &[SegmentFile], threads: usize) -> Result<(WalSummary, End), ScanError> {
    let wal = Wal::open(segments)?;
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::sync_channel(threads * 4));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, wal, next) = (sender.clone(), &wal, &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // Nobody listens any more where the WAL has ended before.
                    if number >= wal.segments.len()
                        || sender.send((number, wal.read(number))).is_err()
                    {
                        break;
                    }
                }
            });
        }
        drop(sender);
        Ok(merge(&wal, receiver))
    })
}

/// Takes results in the order of the WAL; those that come early wait.
fn merge(wal: &Wal<'_>, results: mpsc::Receiver<(usize, OfSegment)>) -> (WalSummary, End) {
    let mut summary = WalSummary {
        major: wal.major,
        from: None,
        to: None,
        segments: 0,
        statistics: WalStatistics::default(),
    };
    let mut last = None;
    let mut early = BTreeMap::new();
    for (number, result) in results {
        early.insert(number, result);
        while let Some(of) = early.remove(&summary.segments) {
            let path = &wal.segments[summary.segments].path;
            if let (Some(expected), Some((at, found))) = (last, of.first)
                && found != expected
            {
                let error = WalError::OtherPrevious { at, found, expected };
                return (summary, end(path, error, Some(at)));
            }
            last = of.last.or(last);
            summary.from = summary.from.or(of.first.map(|(at, _)| at));
            summary.to = of.end.or(summary.to);
            summary.statistics.merge(&of.statistics);
            summary.segments += 1;
            if let Some(end) = of.stop {
                let end = wal.settle(end, summary.segments - 1);
                return (summary, end);
            }
        }
    }
    (summary, End::Complete)
}

/// How an error ends the WAL: by itself, unless it goes on.
fn end(path: &Path, error: WalError, goes_on: Option<Lsn>) -> End {
    match goes_on {
        Some(goes_on) => End::Damaged { path: path.to_owned(), error, goes_on },
        None => End::Own(error),
    }
}

/// Segments that belong together.
struct Wal<'a> {
    segments: &'a [SegmentFile],
    header: SegmentHeader,
    major: u32,
}

/// What a segment says.
#[derive(Default)]
struct OfSegment {
    /// Where its first record begins, and which one that says it follows.
    first: Option<(Lsn, Lsn)>,
    /// Where its last record begins.
    last: Option<Lsn>,
    /// Where its last record ends.
    end: Option<Lsn>,
    statistics: WalStatistics,
    /// Why nothing after it is read.
    stop: Option<End>,
}

/// What is read at once: whole pages, and few calls of the system.
const CHUNK: usize = 1 << 20;

impl<'a> Wal<'a> {
    fn open(segments: &'a [SegmentFile]) -> Result<Self, ScanError> {
        let first = segments.first().ok_or_else(|| ScanError::NoSegments { path: "".into() })?;
        let read = |source| ScanError::Read { path: first.path.clone(), source };
        let mut begin = Vec::new();
        let file = first.open().map_err(read)?;
        file.take(64).read_to_end(&mut begin).map_err(read)?;
        let not_wal = |source| ScanError::NotWal { path: first.path.clone(), source };
        let decoder = Decoder::new(&begin).map_err(not_wal)?;
        Ok(Self { segments, header: *decoder.segment(), major: decoder.facts().major })
    }

    /// Where a segment begins, by its name.
    fn begin(&self, number: usize) -> Lsn {
        let (high, low) = self.segments[number].name.place;
        // A name may be anything; what does not fit its segment is found out when that is read.
        let within = u64::from(low) * u64::from(self.header.segment_bytes);
        Lsn((u64::from(high) << 32).saturating_add(within))
    }

    /// Where a segment ends.
    fn end(&self, number: usize) -> Lsn {
        Lsn(self.begin(number).0.saturating_add(u64::from(self.header.segment_bytes)))
    }

    /// Reads a segment and what of its last record stands in later ones.
    fn read(&self, number: usize) -> OfSegment {
        let mut of = OfSegment::default();
        let mut reading = Reading { wal: self, number, of: &mut of, decoder: None };
        let stop = reading.run();
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
                let at = self.end(number);
                let (timeline, (high, low)) = (name.timeline, place);
                Err(End::Missing { at, name: format!("{timeline:08X}{high:08X}{low:08X}") })
            }
            None => Err(End::Complete),
        }
    }

    /// An end in segment `number` is the WAL's own only where no later segment belongs to it.
    fn settle(&self, end: End, number: usize) -> End {
        let End::Own(error) = end else { return end };
        let later = (number + 1..self.segments.len()).find(|later| self.belongs(*later));
        let goes_on = later.map(|later| self.begin(later));
        self::end(&self.segments[number].path, error, goes_on)
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

/// Reading one segment.
struct Reading<'a, 'b> {
    wal: &'a Wal<'a>,
    number: usize,
    of: &'b mut OfSegment,
    decoder: Option<Decoder>,
}

impl Reading<'_, '_> {
    fn run(&mut self) -> Result<(), End> {
        let mut number = self.number;
        self.feed(number)?;
        while !self.is_whole() {
            number = self.wal.after(number)?;
            self.feed(number)?;
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
    fn feed(&mut self, number: usize) -> Result<(), End> {
        let file = &self.wal.segments[number];
        let begin = self.wal.begin(number);
        let unreadable = |source| End::Unreadable { path: file.path.clone(), at: begin, source };
        let mut input = file.open().map_err(unreadable)?;
        let is_own = number == self.number;
        // Of a later segment a page is often enough.
        let size = if is_own { CHUNK } else { self.wal.header.page_bytes as usize };
        let mut chunk = vec![0; size];
        let mut read = 0_u64;
        loop {
            let filled = fill(input.as_mut(), &mut chunk).map_err(unreadable)?;
            if filled == 0 {
                break;
            }
            if let Err(error) = self.take(number, &chunk[..filled]) {
                return Err(self.stop(number, error, &chunk[..filled], input));
            }
            read += filled as u64;
            if !is_own && self.is_whole() {
                return Ok(());
            }
        }
        if read != u64::from(self.wal.header.segment_bytes) {
            return Err(End::CutShort {
                path: file.path.clone(),
                at: Lsn(begin.0.saturating_add(read)),
            });
        }
        Ok(())
    }

    fn take(&mut self, number: usize, chunk: &[u8]) -> Result<(), WalError> {
        if self.decoder.is_none() {
            let decoder = Decoder::new(chunk)?;
            let begin = self.wal.begin(number);
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
        let of = &mut *self.of;
        let mut parts = Parts::default();
        let fed = decoder.feed(chunk, &mut |record: &Record<'_>| {
            if record.at >= segment_end {
                return Ok(());
            }
            record.parts(&mut parts)?;
            of.statistics.add(record, &parts);
            of.first = of.first.or(Some((record.at, record.header.previous)));
            (of.last, of.end) = (Some(record.at), Some(record.end));
            Ok(())
        });
        // What is wrong with records of a later segment is for whoever reads that.
        fed.or_else(|error| match error.at() {
            Some(at) if at >= segment_end => Ok(()),
            _ => Err(error),
        })
    }

    /// Why an error ends the reading. Pages of the segment that stand where they should behind it
    /// show that the WAL goes on.
    fn stop(&self, number: usize, error: WalError, chunk: &[u8], mut input: Box<dyn Read>) -> End {
        let path = &self.wal.segments[number].path;
        let page_bytes = self.wal.header.page_bytes as usize;
        let Some(decoder) = &self.decoder else { return end(path, error, None) };
        let after = |at: Lsn| at > decoder.next_page() && at.0.is_multiple_of(page_bytes as u64);
        let stands = |bytes: &[u8]| {
            let headers = bytes.chunks(page_bytes).filter_map(PageHeader::read);
            let own = headers.filter(|header| header.magic == self.wal.header.page.magic);
            own.map(|header| header.address).find(|at| {
                after(*at)
                    && at.0 / u64::from(self.wal.header.segment_bytes)
                        == self.wal.begin(number).0 / u64::from(self.wal.header.segment_bytes)
            })
        };
        let mut goes_on = stands(chunk);
        let mut rest = vec![0; CHUNK];
        while goes_on.is_none() {
            match fill(input.as_mut(), &mut rest) {
                Ok(filled @ 1..) => goes_on = stands(&rest[..filled]),
                _ => break,
            }
        }
        end(path, error, goes_on)
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
