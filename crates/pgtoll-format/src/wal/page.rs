//! Headers of WAL pages.

use crate::Lsn;
use crate::version::WalFacts;
use crate::wal::WalError;
use crate::wal::bytes::{u16_at, u32_at, u64_at};

/// A page's header; a segment's first page has the long one.
pub(crate) const SHORT_HEADER: usize = 24;
/// A segment's first page has this header.
pub(crate) const LONG_HEADER: usize = 40;

/// The page begins with the rest of a record.
pub(crate) const FIRST_IS_CONTINUATION: u16 = 0x0001;
/// The page has the long header.
pub(crate) const HAS_LONG_HEADER: u16 = 0x0002;

/// The header of a WAL page (`XLogPageHeaderData`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The version's mark.
    pub magic: u16,
    /// Flags, as PostgreSQL defines the bits.
    pub flags: u16,
    /// The timeline of the page's first record.
    pub timeline: u32,
    /// The address of the page.
    pub address: Lsn,
    /// Bytes that are left of the record that the page begins with, those on later pages included.
    pub remaining: u32,
}

impl PageHeader {
    /// Reads the header of `page`; `None` where it is shorter than one.
    pub fn read(page: &[u8]) -> Option<Self> {
        Some(Self {
            magic: u16_at(page, 0)?,
            flags: u16_at(page, 2)?,
            timeline: u32_at(page, 4)?,
            address: Lsn(u64_at(page, 8)?),
            remaining: u32_at(page, 16)?,
        })
    }

    /// The start of the page's first record, or the rest of one,.
    pub fn bytes(&self) -> usize {
        if self.flags & HAS_LONG_HEADER != 0 { LONG_HEADER } else { SHORT_HEADER }
    }

    /// The page begins with the rest of a record.
    pub fn continues(&self) -> bool {
        self.flags & FIRST_IS_CONTINUATION != 0
    }

    /// The record that the page before began was never finished: the server that wrote it stopped,
    /// and the next one wrote over its rest.
    pub(crate) fn abandons(&self, facts: &WalFacts) -> bool {
        self.flags & facts.overwrites_continuation != 0
    }

    /// Whether `address` is where a page with this header may stand.
    pub(crate) fn check(&self, address: Lsn, facts: &WalFacts) -> Result<(), WalError> {
        if self.magic != facts.magic {
            return Err(WalError::OtherMagic { at: address, found: self.magic });
        }
        if self.flags & !facts.page_flags != 0 {
            return Err(WalError::PageFlags { at: address, found: self.flags });
        }
        if self.address != address {
            return Err(WalError::OtherPage { at: address, found: self.address });
        }
        Ok(())
    }
}

/// The header of a segment's first page (`XLogLongPageHeaderData`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The header of the first page.
    pub page: PageHeader,
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// Bytes of a segment: a power of two from 1 MB to 1 GB.
    pub segment_bytes: u32,
    /// Bytes of a WAL page.
    pub page_bytes: u32,
}

impl SegmentHeader {
    /// Reads the first bytes of a segment.
    pub fn read(begin: &[u8]) -> Result<Self, WalError> {
        let page = PageHeader::read(begin).filter(|_| begin.len() >= LONG_HEADER);
        let page = page.ok_or(WalError::NoSegment)?;
        if begin.iter().take(LONG_HEADER).all(|byte| *byte == 0) {
            return Err(WalError::Zeros);
        }
        let header = Self {
            page,
            system_identifier: u64_at(begin, 24).ok_or(WalError::NoSegment)?,
            segment_bytes: u32_at(begin, 32).ok_or(WalError::NoSegment)?,
            page_bytes: u32_at(begin, 36).ok_or(WalError::NoSegment)?,
        };
        let plausible = page.flags & HAS_LONG_HEADER != 0
            && header.segment_bytes.is_power_of_two()
            && (1 << 20..=1 << 30).contains(&header.segment_bytes)
            && header.page_bytes.is_power_of_two()
            && (1 << 10..=1 << 16).contains(&header.page_bytes)
            && page.address.is_aligned(u64::from(header.segment_bytes))
            // No server gets there, and no sum of what follows overflows.
            && page.address < Lsn(1 << 63);
        if plausible { Ok(header) } else { Err(WalError::NoSegment) }
    }
}
