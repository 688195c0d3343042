//! From pages to records.

use crate::version::{MAJORS, WalFacts};
use crate::wal::crc::record_sum;
use crate::wal::page::{LONG_HEADER, PageHeader, SegmentHeader};
use crate::wal::record::{Record, RecordHeader};
use crate::wal::rmgr::XLOG_SWITCH;
use crate::wal::{RecordType, WalError, bytes};
use crate::{Crc32c, Lsn};

/// Makes records of pages that are fed in their order.
///
/// It begins with a segment. What continues a record from before is passed over: the first record
/// is the first one that begins in that segment.
#[derive(Debug)]
pub struct Decoder {
    facts: &'static WalFacts,
    segment: SegmentHeader,
    /// The address of the next page.
    next_page: Lsn,
    timeline: u32,
    /// The start of the last record; `None` before the first.
    previous: Option<Lsn>,
    /// A record whose rest is on later pages.
    unfinished: Option<Unfinished>,
    /// Kept to take memory once.
    buffer: Vec<u8>,
    crc: Crc32c,
    /// Nothing but zeros before this place (after a switch).
    skip_to: Lsn,
}

#[derive(Clone, Copy, Debug)]
struct Unfinished {
    at: Lsn,
    total_bytes: usize,
}

/// A record that is its header and nothing else.
const SHORTEST: u32 = 24;
/// The largest record that a server writes (`XLogRecordMaxSize`), 1020 MB; a longer one is damage.
/// Before 16 a server did not check it.
const LONGEST: u32 = 1020 << 20;

impl Decoder {
    /// A decoder for the segment that begins with these bytes, at least 40.
    pub fn new(begin: &[u8]) -> Result<Self, WalError> {
        let segment = SegmentHeader::read(begin)?;
        let at = segment.page.address;
        let found = segment.page.magic;
        let of_version = MAJORS.iter().map(|facts| &facts.wal).find(|wal| wal.magic == found);
        let facts = of_version.ok_or(WalError::UnknownMagic { at, found })?;
        Ok(Self {
            facts,
            segment,
            next_page: at,
            timeline: segment.page.timeline,
            previous: None,
            unfinished: None,
            buffer: Vec::new(),
            crc: Crc32c::default(),
            skip_to: Lsn::INVALID,
        })
    }

    /// Returns the header of the first segment, which holds for all.
    pub fn segment(&self) -> &SegmentHeader {
        &self.segment
    }

    /// The version that wrote the WAL.
    pub fn facts(&self) -> &'static WalFacts {
        self.facts
    }

    /// Returns the address that the next page must have.
    pub fn next_page(&self) -> Lsn {
        self.next_page
    }

    /// The timeline of the last page.
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// A record whose rest has not been fed.
    pub fn unfinished(&self) -> Option<Lsn> {
        self.unfinished.map(|unfinished| unfinished.at)
    }

    /// Takes whole pages, and gives each record that ends in them to `visit`. After an error
    /// nothing more can be fed.
    pub fn feed(
        &mut self,
        pages: &[u8],
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), WalError>,
    ) -> Result<(), WalError> {
        for page in pages.chunks_exact(self.segment.page_bytes as usize) {
            self.page(page, visit)?;
            self.next_page += u64::from(self.segment.page_bytes);
        }
        Ok(())
    }

    fn page(
        &mut self,
        page: &[u8],
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), WalError>,
    ) -> Result<(), WalError> {
        if self.next_page < self.skip_to {
            return Ok(());
        }
        let header = self.header(page)?;
        let mut at = header.bytes();
        if header.continues() {
            at = self.rest(page, &header, visit)?;
        } else if let Some(unfinished) = self.unfinished {
            if !header.abandons(self.facts) {
                return Err(self.no_continuation(unfinished));
            }
            self.unfinished = None;
        }
        while at < page.len() && self.unfinished.is_none() && self.next_page >= self.skip_to {
            at = self.record(page, at, visit)?;
        }
        Ok(())
    }

    fn header(&mut self, page: &[u8]) -> Result<PageHeader, WalError> {
        let at = self.next_page;
        let header = PageHeader::read(page).ok_or(WalError::NoSegment)?;
        header.check(at, self.facts)?;
        // A segment that was written on an older timeline is one that was recycled.
        if header.timeline < self.timeline {
            return Err(WalError::OtherPage { at, found: header.address });
        }
        if at.is_aligned(u64::from(self.segment.segment_bytes)) {
            let segment = SegmentHeader::read(page)?;
            let same = segment.system_identifier == self.segment.system_identifier
                && segment.segment_bytes == self.segment.segment_bytes
                && segment.page_bytes == self.segment.page_bytes;
            if !same {
                return Err(WalError::OtherCluster { at });
            }
        }
        self.timeline = header.timeline;
        Ok(header)
    }

    /// The rest of a record at a page's begin. Where the page's next record begins.
    fn rest(
        &mut self,
        page: &[u8],
        header: &PageHeader,
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), WalError>,
    ) -> Result<usize, WalError> {
        let from = header.bytes();
        let remaining = header.remaining as usize;
        let here = remaining.min(page.len().saturating_sub(from));
        if let Some(unfinished) = self.unfinished {
            if self.buffer.len() + remaining != unfinished.total_bytes {
                return Err(self.no_continuation(unfinished));
            }
            self.buffer.extend_from_slice(page.get(from..from + here).unwrap_or_default());
            if here == remaining {
                self.unfinished = None;
                let end = self.next_page + aligned(from + here) as u64;
                let record = std::mem::take(&mut self.buffer);
                let visited = self.visit(&record, unfinished.at, end, visit);
                self.buffer = record;
                visited?;
            }
        }
        Ok(aligned(from + here))
    }

    /// The record that begins here. Where the next one begins.
    fn record(
        &mut self,
        page: &[u8],
        from: usize,
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), WalError>,
    ) -> Result<usize, WalError> {
        let at = self.next_page + from as u64;
        let length = bytes::u32_at(page, from).unwrap_or(0);
        if !(SHORTEST..=LONGEST).contains(&length) {
            return Err(WalError::NoRecord { at, length });
        }
        let total_bytes = length as usize;
        if let Some(record) = page.get(from..from + total_bytes) {
            let end = from + aligned(total_bytes);
            self.visit(record, at, self.next_page + end as u64, visit)?;
            return Ok(end);
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(page.get(from..).unwrap_or_default());
        self.check_begin(at)?;
        self.unfinished = Some(Unfinished { at, total_bytes });
        Ok(page.len())
    }

    /// Checks the available part of a header before waiting for its record: a length alone may be
    /// anything.
    fn check_begin(&self, at: Lsn) -> Result<(), WalError> {
        match self.buffer.first_chunk() {
            Some(header) => self.check_previous(at, &RecordHeader::from_bytes(header)),
            None => Ok(()),
        }
    }

    fn check_previous(&self, at: Lsn, header: &RecordHeader) -> Result<(), WalError> {
        let found = header.previous;
        match self.previous {
            Some(expected) if found != expected => {
                Err(WalError::OtherPrevious { at, found, expected })
            }
            None if found >= at => Err(WalError::OtherPrevious { at, found, expected: at }),
            _ => Ok(()),
        }
    }

    #[expect(clippy::inline_always, reason = "a call for each record costs as much as its sums")]
    #[inline(always)]
    fn visit(
        &mut self,
        bytes: &[u8],
        at: Lsn,
        end: Lsn,
        visit: &mut impl FnMut(&Record<'_>) -> Result<(), WalError>,
    ) -> Result<(), WalError> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (head, body) = bytes.split_first_chunk().ok_or(WalError::NoRecord { at, length })?;
        let header = RecordHeader::from_bytes(head);
        self.check_previous(at, &header)?;
        if record_sum(&mut self.crc, head, body) != header.crc {
            return Err(WalError::Crc { at });
        }
        // The rest of the segment is empty.
        let is_switch = RecordType::from_header(&header) == XLOG_SWITCH;
        let end = if is_switch { self.next_segment(end) } else { end };
        visit(&Record { at, end, header, bytes, facts: self.facts })?;
        self.previous = Some(at);
        if is_switch {
            self.skip_to = end;
        }
        Ok(())
    }

    /// The end of the segment that `lsn` is in or ends at.
    fn next_segment(&self, lsn: Lsn) -> Lsn {
        lsn.align_up(u64::from(self.segment.segment_bytes))
    }

    fn no_continuation(&self, unfinished: Unfinished) -> WalError {
        WalError::NoContinuation { at: unfinished.at, page: self.next_page }
    }
}

/// Records begin at multiples of 8 bytes.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(8)
}

const _: () = assert!(LONG_HEADER.is_multiple_of(8), "records begin at multiples of 8 bytes");
