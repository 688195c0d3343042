//! The kind of a page, as far as its bytes show it.

use std::fmt;

use crate::bytes::{u16_at, u32_at};
use crate::page::{PageHeader, line_pointers};

/// The kind of relation that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageKind {
    /// Never used.
    New,
    /// A table, or a TOAST table.
    Heap,
    /// A B-tree.
    Btree,
    /// A hash index.
    Hash,
    /// A GIN index.
    Gin,
    /// A `GiST` index.
    Gist,
    /// An SP-GiST index.
    SpGist,
    /// A BRIN index.
    Brin,
    /// A sequence.
    Sequence,
    /// A free space map or a visibility map, which look the same.
    Map,
    /// None of these, or damaged.
    Unknown,
}

impl PageKind {
    /// Tells by the part of the page that an access method keeps to itself, which PostgreSQL's own
    /// mark for tools to tell them apart.
    pub fn from_page(page: &[u8]) -> Self {
        let Some(header) = PageHeader::read(page) else { return Self::Unknown };
        if header.is_new() && page.iter().all(|&byte| byte == 0) {
            return Self::New;
        }
        if header.is_new() || !header.is_plausible(page.len()) {
            return Self::Unknown;
        }
        let special = usize::from(header.special);
        let mark = u16_at(page, page.len() - 2).unwrap_or_default();
        match (page.len() - special, mark) {
            (0, _) if usize::from(header.lower) > PageHeader::BYTES => Self::Heap,
            // The map fills what elsewhere is free.
            (0, _) if page[PageHeader::BYTES..].iter().any(|&byte| byte != 0) => Self::Map,
            // A table's page from which all rows are gone, or an empty map.
            (0, _) => Self::Heap,
            (16, HASH) => Self::Hash,
            (16, GIST) => Self::Gist,
            (16, cycle) if cycle <= BTREE_CYCLE_MAX => Self::Btree,
            (8, SPGIST) => Self::SpGist,
            (8, BRIN_META | BRIN_MAP | BRIN_REGULAR) => Self::Brin,
            (8, 0)
                if u32_at(page, special) == Some(SEQUENCE)
                    && u32_at(page, special + 4) == Some(0)
                    && line_pointers(page).count() == 1 =>
            {
                Self::Sequence
            }
            (8, flags) if flags <= GIN_FLAGS => Self::Gin,
            _ => Self::Unknown,
        }
    }
}

/// `HASHO_PAGE_ID`.
const HASH: u16 = 0xFF80;
/// `GIST_PAGE_ID`.
const GIST: u16 = 0xFF81;
/// `SPGIST_PAGE_ID`.
const SPGIST: u16 = 0xFF82;
/// `MAX_BT_CYCLE_ID`.
const BTREE_CYCLE_MAX: u16 = 0xFF7F;
/// `BRIN_PAGETYPE_META`, `_REVMAP`, `_REGULAR`.
const BRIN_META: u16 = 0xF091;
const BRIN_MAP: u16 = 0xF092;
const BRIN_REGULAR: u16 = 0xF093;
/// `SEQ_MAGIC`.
const SEQUENCE: u32 = 0x1717;
/// All of GIN's flags.
const GIN_FLAGS: u16 = 0x01FF;

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Heap => "heap",
            Self::Btree => "btree",
            Self::Hash => "hash",
            Self::Gin => "gin",
            Self::Gist => "gist",
            Self::SpGist => "spgist",
            Self::Brin => "brin",
            Self::Sequence => "sequence",
            Self::Map => "map",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page of 8 kB with this many bytes of special area, which ends in these.
    fn page(lower: u16, special: u16, end: &[u8]) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, value) in [(12, lower), (14, 8192 - special), (16, 8192 - special), (18, 8196)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let at = page.len() - end.len();
        page[at..].copy_from_slice(end);
        page
    }

    #[test]
    fn pages_are_told_apart() {
        let check = |page: Vec<u8>, expected| assert_eq!(PageKind::from_page(&page), expected);
        check(vec![0; 8192], PageKind::New);
        check(vec![0xFF; 8192], PageKind::Unknown);
        check(page(28, 0, &[]), PageKind::Heap);
        check(page(24, 0, &[1]), PageKind::Map);
        check(page(28, 16, &[0x80, 0xFF]), PageKind::Hash);
        check(page(28, 16, &[0x81, 0xFF]), PageKind::Gist);
        check(page(28, 16, &[0, 0]), PageKind::Btree);
        check(page(28, 8, &[0x82, 0xFF]), PageKind::SpGist);
        check(page(28, 8, &[0x93, 0xF0]), PageKind::Brin);
        check(page(28, 8, &[0x17, 0x17, 0, 0, 0, 0, 0, 0]), PageKind::Sequence);
        check(page(28, 8, &[0x17, 0x17, 0, 0, 0, 0, 2, 0]), PageKind::Gin);
        check(page(28, 24, &[0, 0]), PageKind::Unknown);
    }

    proptest! {
        #[test]
        fn any_page_is_of_some_kind(page in prop::collection::vec(any::<u8>(), 0..2048)) {
            let _ = PageKind::from_page(&page);
        }
    }
}
