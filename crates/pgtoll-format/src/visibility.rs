//! Visibility of a page's rows, beside the bits of the visibility map.
//!
//! The map has two bits a block: all rows are visible to everybody, and all of them are frozen. The page
//! itself has a flag for the first one. Sources: `visibilitymap.c`, `bufpage.h`, and the rules of
//! `pg_check_frozen` and `pg_check_visible` as far as a page shows them by itself.

use crate::bytes::{u16_at, u32_at};
use crate::heap::{
    XMAX_COMMITTED, XMAX_EXCLUSIVE_LOCK, XMAX_INVALID, XMAX_IS_MULTI, XMAX_KEY_SHARE_LOCK,
    XMAX_LOCK_ONLY, XMIN_FROZEN, XMIN_INVALID,
};
use crate::page::{LinePointerState, PageHeader, line_pointers};

/// Whether the page says that all of its rows are visible to everybody (`PD_ALL_VISIBLE`).
pub fn is_all_visible(page: &[u8]) -> bool {
    u16_at(page, FLAGS_AT).is_some_and(|flags| flags & PD_ALL_VISIBLE != 0)
}

/// The visibility of a table page's rows without a look at `pg_xact`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowVisibility {
    /// A line pointer is dead, or a row has a transaction that freezing would have removed.
    pub some_unfrozen: bool,
    /// A line pointer is dead, or a row is known to be rolled back or deleted.
    pub some_invisible: bool,
}

impl RowVisibility {
    /// Looks at all rows; `None` where this is no page of a table.
    pub fn from_page(page: &[u8]) -> Option<Self> {
        let header = PageHeader::read(page)?;
        let is_heap = !header.is_new()
            && header.is_plausible(page.len())
            && usize::from(header.special) == page.len()
            && header.page_bytes() == page.len()
            && usize::from(header.lower) >= PageHeader::BYTES;
        if !is_heap {
            return None;
        }
        let mut all = Self::default();
        for pointer in line_pointers(page) {
            match pointer.state {
                LinePointerState::Dead => {
                    return Some(Self { some_unfrozen: true, some_invisible: true });
                }
                LinePointerState::Normal => {
                    all.add(page.get(usize::from(pointer.offset)..)?)?;
                }
                LinePointerState::Unused | LinePointerState::Redirect => {}
            }
        }
        Some(all)
    }

    /// Adds the row that begins here (`HeapTupleHeaderData`).
    fn add(&mut self, row: &[u8]) -> Option<()> {
        let xmin = u32_at(row, 0)?;
        let xmax = u32_at(row, 4)?;
        let xvac = u32_at(row, 8)?;
        let infomask = u16_at(row, INFOMASK_AT)?;
        let is_multi = infomask & XMAX_IS_MULTI != 0;
        let is_frozen = infomask & XMIN_FROZEN == XMIN_FROZEN || xmin < FIRST_NORMAL_XID;
        let has_xmax = if is_multi { xmax != 0 } else { xmax >= FIRST_NORMAL_XID };
        let was_moved = infomask & MOVED != 0 && xvac >= FIRST_NORMAL_XID;
        self.some_unfrozen |= !is_frozen || has_xmax || was_moved;
        let was_rolled_back = infomask & XMIN_FROZEN == XMIN_INVALID;
        let is_only_locked = infomask & XMAX_LOCK_ONLY != 0
            || infomask & (XMAX_KEY_SHARE_LOCK | XMAX_EXCLUSIVE_LOCK) == XMAX_EXCLUSIVE_LOCK;
        let was_deleted =
            infomask & XMAX_HINTS == XMAX_COMMITTED && has_xmax && !is_multi && !is_only_locked;
        self.some_invisible |= was_rolled_back || was_deleted;
        Some(())
    }
}

/// The offset of the flags in the header (`pd_flags`).
const FLAGS_AT: usize = 10;
const PD_ALL_VISIBLE: u16 = 0x0004;
const INFOMASK_AT: usize = 20;
/// Lower ones are of rows that `initdb` made, or that were frozen before 9.4.
const FIRST_NORMAL_XID: u32 = 3;
/// Committed, and invalid.
const XMAX_HINTS: u16 = XMAX_COMMITTED | XMAX_INVALID;
/// By `VACUUM FULL` before 9.0 (`HEAP_MOVED`).
const MOVED: u16 = 0xC000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PAGE_BYTES;

    /// A page of a table with one line pointer of this state.
    fn page(state: u32, xmin: u32, xmax: u32, infomask: u16) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for (at, value) in [(12, 28_u16), (14, 8128), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        let pointer = 0x1FC0_u32 | state << 15 | 64 << 17;
        page[24..28].copy_from_slice(&pointer.to_le_bytes());
        page[8128..8132].copy_from_slice(&xmin.to_le_bytes());
        page[8132..8136].copy_from_slice(&xmax.to_le_bytes());
        page[8136..8140].copy_from_slice(&9_u32.to_le_bytes());
        page[8148..8150].copy_from_slice(&infomask.to_le_bytes());
        page
    }

    #[test]
    fn rows_that_contradict_the_map_are_found() {
        let check = |xmin, xmax, infomask, unfrozen, invisible| {
            let expected = RowVisibility { some_unfrozen: unfrozen, some_invisible: invisible };
            let page = page(1, xmin, xmax, infomask);
            assert_eq!(
                RowVisibility::from_page(&page),
                Some(expected),
                "{xmin} {xmax} {infomask:x}"
            );
        };
        // Frozen, by its hints or its transaction.
        check(700, 0, 0x0B00, false, false);
        check(2, 0, 0x0900, false, false);
        // Committed; rolled back; without a hint, as recovery leaves it.
        check(700, 0, 0x0900, true, false);
        check(700, 0, 0x0A00, true, true);
        check(700, 0, 0x0800, true, false);
        // Deleted, by a hint or without one; the deletion rolled back; locked.
        check(700, 800, 0x0700, true, true);
        check(700, 800, 0x0300, true, false);
        check(700, 800, 0x0B00, true, false);
        check(700, 800, 0x0780, true, false);
        check(700, 2, 0x1300, true, false);
        check(700, 0, 0x1B00, false, false);
        // Moved by a transaction; the field is a command's number otherwise.
        check(700, 0, 0x4B00, true, false);
    }

    #[test]
    fn dead_line_pointers_are_neither_frozen_nor_visible() {
        let both = RowVisibility { some_unfrozen: true, some_invisible: true };
        assert_eq!(RowVisibility::from_page(&page(3, 0, 0, 0)), Some(both));
        assert_eq!(RowVisibility::from_page(&page(0, 700, 800, 0)), Some(RowVisibility::default()));
        assert_eq!(RowVisibility::from_page(&page(2, 700, 800, 0)), Some(RowVisibility::default()));
    }

    #[test]
    fn pages_of_indexes_and_sequences_have_no_rows() {
        let mut page = page(1, 700, 800, 0);
        page[16..18].copy_from_slice(&8176_u16.to_le_bytes());
        assert_eq!(RowVisibility::from_page(&page), None);
        assert_eq!(RowVisibility::from_page(&vec![0; PAGE_BYTES]), None);
    }

    proptest! {
        #[test]
        fn any_page_says_something(mut page in prop::collection::vec(any::<u8>(), PAGE_BYTES)) {
            for (at, value) in [(10, 0_u16), (14, 8000), (16, 8192), (18, 0x2004)] {
                page[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            page[13] %= 0x1F;
            let _ = (is_all_visible(&page), RowVisibility::from_page(&page));
        }
    }
}
