//! Offsets and sizes in a page of a relation's file.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Lsn;
use crate::bytes::{u16_at, u32_at};

/// Bytes of a page (`block_size`), in every server that was built with the default, as all
/// packages are.
pub const PAGE_BYTES: usize = 8192;

/// The range of the checksum in a page's header (`pd_checksum`, after `pd_lsn`), in bytes from the
/// page's begin.
pub const PAGE_CHECKSUM: Range<usize> = 8..10;

/// A page's header (`PageHeaderData`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The end of the WAL record that changed the page last.
    pub lsn: Lsn,
    /// The checksum; without checksums whatever was there.
    pub checksum: u16,
    /// Flags, as PostgreSQL defines the bits.
    pub flags: u16,
    /// The start of the line pointers end and free space.
    pub lower: u16,
    /// The end of free space; 0 in a page that was never used.
    pub upper: u16,
    /// The start of the special space, which belongs to an index's access method.
    pub special: u16,
    /// Bytes of the page and the version of its layout, in one number.
    pub size_and_layout: u16,
    /// The oldest transaction whose leavings may be there to clean up; 0: none.
    pub prune_xid: u32,
}

impl PageHeader {
    /// Bytes of the header; the line pointers are behind it.
    pub const BYTES: usize = 24;

    /// Reads the header of `page`; `None` where it is shorter than one.
    pub fn read(page: &[u8]) -> Option<Self> {
        Some(Self {
            // The halves are two numbers, the higher one first.
            lsn: Lsn(u64::from(u32_at(page, 0)?) << 32 | u64::from(u32_at(page, 4)?)),
            checksum: u16_at(page, PAGE_CHECKSUM.start)?,
            flags: u16_at(page, 10)?,
            lower: u16_at(page, 12)?,
            upper: u16_at(page, 14)?,
            special: u16_at(page, 16)?,
            size_and_layout: u16_at(page, 18)?,
            prune_xid: u32_at(page, 20)?,
        })
    }

    /// The page was never used (`PageIsNew`). That it is zero altogether is another question.
    pub fn is_new(&self) -> bool {
        self.upper == 0
    }

    /// Bytes of the page, as it says itself.
    pub fn page_bytes(&self) -> usize {
        usize::from(self.size_and_layout & 0xFF00)
    }

    /// The version of the page's layout: 4 since 8.3.
    pub fn layout(&self) -> u8 {
        self.size_and_layout.to_le_bytes()[0]
    }

    /// Whether a server would take the header of a used page of `block_bytes` for one, as
    /// `PageIsVerified` asks: no stricter, since extensions have headers of their own kind.
    pub fn is_plausible(&self, block_bytes: usize) -> bool {
        self.flags & !KNOWN_FLAGS == 0
            && self.lower <= self.upper
            && self.upper <= self.special
            && usize::from(self.special) <= block_bytes
            && self.special.is_multiple_of(ALIGNMENT)
    }
}

/// `PD_VALID_FLAG_BITS`.
const KNOWN_FLAGS: u16 = 0x0007;
/// `MAXIMUM_ALIGNOF` of all machines that pgtoll runs on.
const ALIGNMENT: u16 = 8;

/// A server's verdict on a page that it reads from a file (`PageIsVerified`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes it.
    Valid,
    /// It takes it: every byte is zero, as in a page that was never used.
    New,
    /// It refuses it: “invalid page in block …”.
    Invalid(Fault),
}

/// Why a server refuses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The checksum that the page has is not that of its bytes.
    Checksum {
        /// The checksum on the page; 0 is never right.
        stored: u16,
        /// The computed checksum.
        computed: u16,
        /// The header could be one; if not, the page is no page at all.
        header_is_plausible: bool,
    },
    /// The header is impossible, whatever the checksum says.
    Header,
    /// The header says that the page was never used (`pd_upper` is 0), and yet not all of its
    /// bytes are zero.
    NotZero,
}

/// Returns a server's exact verdict on `page`: no stricter, and no more lenient. `computed` is the
/// checksum of its bytes at its block; `None` where the cluster has no checksums.
///
/// Whoever reads many pages computes the checksums of several at once, so that they are given here.
pub fn verdict(page: &[u8], computed: Option<u16>) -> Verdict {
    let Some(header) = PageHeader::read(page) else { return Verdict::Invalid(Fault::Header) };
    if header.is_new() {
        let is_zero = page.iter().fold(0, |all, byte| all | byte) == 0;
        return if is_zero { Verdict::New } else { Verdict::Invalid(Fault::NotZero) };
    }
    let header_is_plausible = header.is_plausible(page.len());
    let stored = header.checksum;
    match computed.filter(|computed| *computed != stored) {
        Some(computed) => {
            Verdict::Invalid(Fault::Checksum { stored, computed, header_is_plausible })
        }
        None if header_is_plausible => Verdict::Valid,
        None => Verdict::Invalid(Fault::Header),
    }
}

/// The place of an item on a page (`ItemIdData`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePointer {
    /// The start of the item; of a redirection the number of the line pointer that is meant.
    pub offset: u16,
    /// Bytes of the item.
    pub bytes: u16,
    /// The state of the item.
    pub state: LinePointerState,
}

/// The state of the item that a line pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinePointerState {
    /// A line pointer without a row.
    Unused,
    /// An item.
    Normal,
    /// Another line pointer.
    Redirect,
    /// Something that is gone.
    Dead,
}

impl LinePointer {
    /// Bytes of a line pointer.
    pub const BYTES: usize = 4;

    fn from_bits(bits: u32) -> Self {
        let low_15 = |bits: u32| u16::try_from(bits & 0x7FFF).unwrap_or_default();
        let state = match bits >> 15 & 3 {
            0 => LinePointerState::Unused,
            1 => LinePointerState::Normal,
            2 => LinePointerState::Redirect,
            _ => LinePointerState::Dead,
        };
        Self { offset: low_15(bits), bytes: low_15(bits >> 17), state }
    }
}

/// The line pointers of a page, the first of which has the number 1. None in a page that was never
/// used, and none beyond the page whatever its header says.
pub fn line_pointers(page: &[u8]) -> impl Iterator<Item = LinePointer> {
    let header = PageHeader::read(page).filter(|header| !header.is_new());
    let end = header.map_or(0, |header| usize::from(header.lower).min(page.len()));
    let pointers = page.get(PageHeader::BYTES..end).unwrap_or_default();
    pointers
        .chunks_exact(LinePointer::BYTES)
        .filter_map(|bits| u32_at(bits, 0))
        .map(LinePointer::from_bits)
}

/// A page is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Its header is none.
    #[error("the page's header is impossible")]
    Header,
    /// A line pointer points where no item can be.
    #[error("line pointer {number} points out of its page's items")]
    LinePointer {
        /// Its number, from 1.
        number: usize,
    },
    /// A row's header is none.
    #[error("the row of line pointer {number} has an impossible header")]
    Row {
        /// Its line pointer, from 1.
        number: usize,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_pointer_is_taken_apart() {
        let pointer = LinePointer::from_bits(0x1FE0 | 1 << 15 | 28 << 17);
        let expected = LinePointer { offset: 8160, bytes: 28, state: LinePointerState::Normal };
        assert_eq!(pointer, expected);
    }

    /// A page with this header's places, and nothing on it.
    fn empty_page(flags: u16, lower: u16, upper: u16, special: u16) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for (at, value) in [(8, 77), (10, flags), (12, lower), (14, upper), (16, special)] {
            page[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
        }
        page
    }

    #[test]
    fn the_servers_rules_are_ours() {
        let check = |page: &[u8], computed, expected| {
            assert_eq!(verdict(page, computed), expected);
        };
        let header = Verdict::Invalid(Fault::Header);
        let checksum = |stored, computed, header_is_plausible| {
            Verdict::Invalid(Fault::Checksum { stored, computed, header_is_plausible })
        };
        let sound = empty_page(0, 24, 8192, 8192);
        check(&sound, Some(77), Verdict::Valid);
        check(&sound, None, Verdict::Valid);
        check(&sound, Some(78), checksum(77, 78, true));
        check(&vec![0; PAGE_BYTES], Some(1), Verdict::New);
        // The header's places do not have to lie within the page's own idea of its size.
        check(&empty_page(7, 0, 8, 8), Some(77), Verdict::Valid);
        for page in [
            empty_page(8, 24, 8192, 8192),
            empty_page(0, 8185, 8184, 8192),
            empty_page(0, 24, 8192, 8184),
            empty_page(0, 24, 8180, 8180),
            empty_page(0, 24, 8192, 8200),
        ] {
            check(&page, Some(77), header);
            check(&page, None, header);
            check(&page, Some(78), checksum(77, 78, false));
        }
        let mut half = vec![0; PAGE_BYTES];
        half[8191] = 1;
        check(&half, Some(1), Verdict::Invalid(Fault::NotZero));
        check(&half, None, Verdict::Invalid(Fault::NotZero));
        check(&sound[..20], None, header);
    }

    proptest! {
        #[test]
        fn any_page_has_a_verdict(
            page in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES + 1),
            computed: Option<u16>,
        ) {
            let found = verdict(&page, computed);
            prop_assert_eq!(found == Verdict::New, page.len() >= PageHeader::BYTES
                && page.iter().all(|byte| *byte == 0));
        }

        #[test]
        fn any_page_has_a_header_and_line_pointers_or_not(
            page in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES + 1),
            lower: u16,
        ) {
            let mut page = page;
            prop_assert_eq!(PageHeader::read(&page).is_some(), page.len() >= PageHeader::BYTES);
            if page.len() >= PageHeader::BYTES {
                page[12..14].copy_from_slice(&lower.to_le_bytes());
            }
            prop_assert!(line_pointers(&page).count() * LinePointer::BYTES <= page.len());
        }
    }
}
