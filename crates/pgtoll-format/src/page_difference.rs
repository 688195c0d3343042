//! In what two pages differ.

use std::collections::BTreeSet;

use crate::bytes::u16_at;
use crate::page::{LinePointer, LinePointerState, PAGE_CHECKSUM, PageHeader, line_pointers};
use crate::page_kind::PageKind;

/// In what two pages of the same place differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageDifference {
    /// Bytes that differ.
    pub bytes: usize,
    /// Fields of the header.
    pub header: BTreeSet<HeaderField>,
    /// Line pointers, by their number from 1.
    pub line_pointers: Vec<usize>,
    /// Items that differ in more than hints, by their line pointer's number from 1.
    pub items: Vec<usize>,
    /// Rows that differ in hint bits only, by their line pointer's number from 1.
    pub hints: Vec<usize>,
    /// The part that an access method keeps to itself differs.
    pub special: bool,
    /// Bytes outside of items and header differ: they have a meaning in maps only.
    pub elsewhere: bool,
}

/// A field of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderField {
    /// `pd_lsn`.
    Lsn,
    /// `pd_checksum`.
    Checksum,
    /// `pd_flags`.
    Flags,
    /// `pd_lower`.
    Lower,
    /// `pd_upper`.
    Upper,
    /// `pd_special`.
    Special,
    /// `pd_pagesize_version`.
    SizeAndLayout,
    /// `pd_prune_xid`.
    PruneXid,
}

impl HeaderField {
    /// PostgreSQL's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lsn => "lsn",
            Self::Checksum => "checksum",
            Self::Flags => "flags",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Special => "special",
            Self::SizeAndLayout => "pagesize_version",
            Self::PruneXid => "prune_xid",
        }
    }
}

/// The range of each field.
const FIELDS: [(HeaderField, std::ops::Range<usize>); 8] = [
    (HeaderField::Lsn, 0..8),
    (HeaderField::Checksum, PAGE_CHECKSUM),
    (HeaderField::Flags, 10..12),
    (HeaderField::Lower, 12..14),
    (HeaderField::Upper, 14..16),
    (HeaderField::Special, 16..18),
    (HeaderField::SizeAndLayout, 18..20),
    (HeaderField::PruneXid, 20..24),
];

impl PageDifference {
    /// Compares pages; `None` where they are of different lengths, or shorter than a header.
    pub fn between(a: &[u8], b: &[u8]) -> Option<Self> {
        let special = PageHeader::read(a)?.special.min(PageHeader::read(b)?.special);
        if a.len() != b.len() {
            return None;
        }
        let mut found =
            Self { bytes: a.iter().zip(b).filter(|(a, b)| a != b).count(), ..Self::default() };
        for (field, range) in FIELDS {
            if a[range.clone()] != b[range] {
                found.header.insert(field);
            }
        }
        // What was reported is made the same, and what is left lies elsewhere.
        let mut rest_a = a.to_vec();
        let mut rest_b = b.to_vec();
        let mut message = |range: std::ops::Range<usize>| {
            for rest in [&mut rest_a, &mut rest_b] {
                let end = range.end.min(rest.len());
                if let Some(bytes) = rest.get_mut(range.start..end) {
                    bytes.fill(0);
                }
            }
        };
        message(0..PageHeader::BYTES);
        let special = usize::from(special).clamp(PageHeader::BYTES, a.len());
        found.special = a[special..] != b[special..];
        message(special..a.len());
        let is_heap = [a, b].map(PageKind::from_page) == [PageKind::Heap; 2];
        let (of_a, of_b): (Vec<_>, Vec<_>) =
            (line_pointers(a).collect(), line_pointers(b).collect());
        for at in 0..of_a.len().max(of_b.len()) {
            let of_a = of_a.get(at).copied();
            let of_b = of_b.get(at).copied();
            if of_a != of_b {
                found.line_pointers.push(at + 1);
            }
            let begin = PageHeader::BYTES + at * LinePointer::BYTES;
            message(begin..begin + LinePointer::BYTES);
            let item_a = item(a, of_a);
            let item_b = item(b, of_b);
            if item_a != item_b {
                let hints = is_heap && only_hints(item_a, item_b);
                let list = if hints { &mut found.hints } else { &mut found.items };
                list.push(at + 1);
            }
            for pointer in [of_a, of_b].into_iter().flatten() {
                if pointer.state == LinePointerState::Normal {
                    let begin = usize::from(pointer.offset);
                    message(begin..begin + usize::from(pointer.bytes));
                }
            }
        }
        found.elsewhere = rest_a != rest_b;
        Some(found)
    }

    /// They differ in nothing, or in what a server may change without a record of WAL: hint bits,
    /// and the checksum that follows from them.
    pub fn is_only_hints(&self) -> bool {
        self.header.iter().all(|field| *field == HeaderField::Checksum)
            && self.line_pointers.is_empty()
            && self.items.is_empty()
            && !self.special
            && !self.elsewhere
    }
}

fn item(page: &[u8], pointer: Option<LinePointer>) -> Option<&[u8]> {
    let pointer = pointer.filter(|pointer| pointer.state == LinePointerState::Normal)?;
    let begin = usize::from(pointer.offset);
    page.get(begin..begin + usize::from(pointer.bytes))
}

/// Two rows are the same but for the bits that say what became of their transactions.
fn only_hints(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    let (Some(of_a), Some(of_b)) = (u16_at(a, INFOMASK), u16_at(b, INFOMASK)) else { return false };
    let behind = INFOMASK + 2;
    a.len() == b.len()
        && a[..INFOMASK] == b[..INFOMASK]
        && a[behind..] == b[behind..]
        && (of_a ^ of_b) & !HINTS == 0
}

/// The offset of `t_infomask` in a row.
const INFOMASK: usize = 20;
/// `HEAP_XMIN_COMMITTED`, `HEAP_XMIN_INVALID`, `HEAP_XMAX_COMMITTED`, `HEAP_XMAX_INVALID`.
const HINTS: u16 = 0x0F00;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table's page with one row of 32 bytes.
    fn page() -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, value) in [(12, 28), (14, 8160), (16, 8192), (18, 8196_u16)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[24..28].copy_from_slice(&(0x1FE0_u32 | 1 << 15 | 32 << 17).to_le_bytes());
        page
    }

    fn check(at: usize, bit: u8, expected: &PageDifference, hints: bool) {
        let a = page();
        let mut b = page();
        b[at] ^= bit;
        let found = PageDifference::between(&a, &b).unwrap();
        assert_eq!(found, PageDifference { bytes: 1, ..expected.clone() }, "{at}");
        assert_eq!(found.is_only_hints(), hints, "{at}");
    }

    #[test]
    fn what_differs_is_told() {
        let none = PageDifference::default();
        assert_eq!(PageDifference::between(&page(), &page()), Some(none.clone()));
        let header = |item| PageDifference { header: [item].into(), ..none.clone() };
        check(7, 1, &header(HeaderField::Lsn), false);
        check(9, 1, &header(HeaderField::Checksum), true);
        check(8160 + 21, 1, &PageDifference { hints: vec![1], ..none.clone() }, true);
        check(8160 + 20, 1, &PageDifference { items: vec![1], ..none.clone() }, false);
        check(8160 + 31, 1, &PageDifference { items: vec![1], ..none.clone() }, false);
        check(4000, 1, &PageDifference { elsewhere: true, ..none.clone() }, false);
        // Another length is another row too.
        let pointer = PageDifference { line_pointers: vec![1], items: vec![1], ..none };
        check(27, 2, &pointer, false);
    }

    proptest! {
        #[test]
        fn any_pages_are_compared(
            a in prop::collection::vec(any::<u8>(), 0..1100),
            b in prop::collection::vec(any::<u8>(), 0..1100),
            same: bool,
        ) {
            let b = if same { a.clone() } else { b };
            if let Some(found) = PageDifference::between(&a, &b) {
                prop_assert_eq!(found.bytes == 0, a == b);
                prop_assert!(found.bytes > 0 || found.is_only_hints());
            }
        }
    }
}
