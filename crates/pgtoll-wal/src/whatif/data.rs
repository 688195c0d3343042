//! The data of a reference, where an image has taken their place: a server leaves them out, and
//! would have logged them without the image.

use std::ops::Range;

use pgtoll_format::wal::rmgr::{
    RM_BTREE_ID as BTREE, RM_HEAP_ID as HEAP, RM_HEAP2_ID as HEAP2, XLOG_BTREE_INSERT_LEAF,
    XLOG_BTREE_INSERT_POST, XLOG_BTREE_INSERT_UPPER, XLOG_BTREE_SPLIT_L, XLOG_BTREE_SPLIT_R,
    XLOG_HEAP_HOT_UPDATE, XLOG_HEAP_INSERT, XLOG_HEAP_OPMASK, XLOG_HEAP_UPDATE,
    XLOG_HEAP2_MULTI_INSERT, XLOG_HEAP2_PRUNE_ON_ACCESS,
};
use pgtoll_format::wal::{BlockReference, Parts, Record, RecordType};

/// Bytes of data that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The image tells.
    Known(u16),
    /// It does not.
    Unknown,
}

/// The bit above says that the page is initialized again.
const HEAP_OPERATION: u8 = XLOG_HEAP_OPMASK;
const INSERT: u8 = XLOG_HEAP_INSERT.info;
const UPDATE: u8 = XLOG_HEAP_UPDATE.info;
const HOT_UPDATE: u8 = XLOG_HEAP_HOT_UPDATE.info;
const MULTI_INSERT: u8 = XLOG_HEAP2_MULTI_INSERT.info;
const BTREE_INSERTS: [u8; 2] = [XLOG_BTREE_INSERT_LEAF.info, XLOG_BTREE_INSERT_UPPER.info];
const BTREE_INSERT_POST: u8 = XLOG_BTREE_INSERT_POST.info;
/// The record types of a new row on the left page and on the right one.
const BTREE_SPLITS: [u8; 2] = [XLOG_BTREE_SPLIT_L.info, XLOG_BTREE_SPLIT_R.info];
/// `INDEX_SIZE_MASK`.
const INDEX_SIZE: u16 = 0x1FFF;
/// Since 14; until 16 with numbers in `xl_heap_prune`, then with flags.
const PRUNE: u8 = XLOG_HEAP2_PRUNE_ON_ACCESS.info;

/// `XLH_INSERT_CONTAINS_NEW_TUPLE`, `XLH_UPDATE_CONTAINS_NEW_TUPLE`: for logical decoding data are
/// logged with an image, too.
const INSERT_CONTAINS_NEW: u8 = 0x08;
const UPDATE_CONTAINS_NEW: u8 = 0x10;
/// The offset of the flags in `xl_heap_insert`, `xl_heap_update`, `xl_heap_multi_insert`.
const INSERT_FLAGS_AT: usize = 2;
const UPDATE_FLAGS_AT: usize = 7;
const MULTI_INSERT_FLAGS_AT: usize = 0;
/// The new and the old place of a row in `xl_heap_update`.
const UPDATE_OLD_AT: usize = 4;
const UPDATE_NEW_AT: usize = 12;

/// `SizeofHeapTupleHeader`, of which `SizeOfHeapHeader` is logged.
const TUPLE_HEADER: u16 = 23;
const LOGGED_HEADER: u16 = 5;
/// The size `SizeOfMultiInsertTuple`.
const LOGGED_MULTI_HEADER: u16 = 7;
const LINE_POINTER: u16 = 4;

/// The data are logged whether or not there is an image.
pub(crate) fn is_kept(record: &Record<'_>, parts: &Parts, kind: RecordType) -> bool {
    let main = record.bytes.get(parts.main_data.clone()).unwrap_or_default();
    let has = |at: usize, flag: u8| main.get(at).is_some_and(|flags| flags & flag != 0);
    match (kind.manager, kind.info & HEAP_OPERATION) {
        (HEAP, INSERT) => has(INSERT_FLAGS_AT, INSERT_CONTAINS_NEW),
        (HEAP, UPDATE | HOT_UPDATE) => has(UPDATE_FLAGS_AT, UPDATE_CONTAINS_NEW),
        (HEAP2, MULTI_INSERT) => has(MULTI_INSERT_FLAGS_AT, INSERT_CONTAINS_NEW),
        _ => false,
    }
}

/// By how much the record fills the page, or empties it.
pub(crate) fn growth(
    record: &Record<'_>,
    parts: &Parts,
    kind: RecordType,
    block: &BlockReference,
) -> i16 {
    if kind.manager == BTREE && BTREE_SPLITS.contains(&kind.info) {
        return split(record, parts, kind, block).unwrap_or(0);
    }
    i16::try_from(filled(record, parts, kind, block)).unwrap_or(i16::MAX)
}

/// Applies a split: rows on the right page have left the left one; a row goes to one of them, and the left one
/// gets a new high key.
fn split(
    record: &Record<'_>,
    parts: &Parts,
    kind: RecordType,
    block: &BlockReference,
) -> Option<i16> {
    let data = |id: u8| {
        let block = parts.blocks.iter().find(|block| block.id == id)?;
        record.bytes.get(block.data.clone())
    };
    let left = data(0)?;
    let right = data(1)?;
    // `t_info` of an index row.
    let row = |data| Some(u16_at(data, 6)? & INDEX_SIZE).filter(|size| *size >= 8);
    let size = row(left).or_else(|| row(right))?;
    let length = u16::try_from(right.len()).ok()?;
    let moved = i16::try_from(length + length / size * LINE_POINTER).ok()?;
    let one = i16::try_from(size + LINE_POINTER).ok()?;
    match block.id {
        0 if kind.info == BTREE_SPLITS[0] => Some(one - moved),
        0 => Some(-moved),
        1 => Some(moved),
        _ => None,
    }
}

/// By how much the data fill the page that they go to.
fn filled(record: &Record<'_>, parts: &Parts, kind: RecordType, block: &BlockReference) -> u16 {
    let length = u16::try_from(block.data.len()).unwrap_or(u16::MAX);
    let main = record.bytes.get(parts.main_data.clone()).unwrap_or_default();
    let tuple = |length: u16| {
        (length.saturating_sub(LOGGED_HEADER) + TUPLE_HEADER).next_multiple_of(8) + LINE_POINTER
    };
    match (kind.manager, kind.info, kind.info & HEAP_OPERATION) {
        (HEAP, _, INSERT | UPDATE) if block.id == 0 && length < 9000 => tuple(length),
        (HEAP2, _, MULTI_INSERT) if block.id == 0 => {
            let rows = u16_at(main, 2).unwrap_or(0).min(512);
            length.saturating_add(rows * (TUPLE_HEADER + LINE_POINTER - LOGGED_MULTI_HEADER))
        }
        (BTREE, info, _) if block.id == 0 && BTREE_INSERTS.contains(&info) => {
            length.saturating_add(LINE_POINTER)
        }
        _ if block.will_init => length,
        _ => 0,
    }
}

/// Whether the image can tell: only then it is worth to be unpacked.
pub(crate) fn can_tell(kind: RecordType, block: &BlockReference) -> bool {
    let is_heap =
        kind.manager == HEAP && matches!(kind.info & HEAP_OPERATION, INSERT | UPDATE | HOT_UPDATE);
    let is_btree = kind.manager == BTREE
        && (BTREE_INSERTS.contains(&kind.info) || kind.info == BTREE_INSERT_POST);
    let is_prune = kind.manager == HEAP2 && kind.info == PRUNE;
    block.id == 0 && (is_heap || is_btree || is_prune)
}

/// Returns the bytes that were left out, by the page after the change.
pub(crate) fn left_out(
    record: &Record<'_>,
    parts: &Parts,
    kind: RecordType,
    page: &ImagePage<'_>,
) -> Data {
    let main = record.bytes.get(parts.main_data.clone()).unwrap_or_default();
    let known = match (kind.manager, kind.info & HEAP_OPERATION) {
        (HEAP, INSERT) => u16_at(main, 0).and_then(|place| inserted(page, place)),
        (HEAP, UPDATE | HOT_UPDATE) => {
            let new = u16_at(main, UPDATE_NEW_AT);
            // Where the old row is on another page, nothing of it is made use of.
            let old = u16_at(main, UPDATE_OLD_AT).filter(|_| parts.blocks.len() == 1);
            new.and_then(|new| updated(page, old, new))
        }
        (HEAP2, _) if kind.info == PRUNE => pruned(main, record.facts.prune_flags_at, page),
        (BTREE, _) if kind.info == BTREE_INSERT_POST => None,
        (BTREE, _) => u16_at(main, 0).and_then(|place| index_row(page, place)),
        _ => None,
    };
    known.map_or(Data::Unknown, Data::Known)
}

fn inserted(page: &ImagePage<'_>, place: u16) -> Option<u16> {
    let tuple = item(page, place)?;
    Some(u16::try_from(tuple.len()).ok()?.checked_sub(TUPLE_HEADER)? + LOGGED_HEADER)
}

/// Returns the new row of an update from the old one: what is the same at both ends is left out
/// (`log_heap_update`).
fn updated(page: &ImagePage<'_>, old: Option<u16>, new: u16) -> Option<u16> {
    let row = item(page, new)?;
    let all = u16::try_from(row.len()).ok()?.checked_sub(TUPLE_HEADER)? + LOGGED_HEADER;
    let Some(before) = old.and_then(|old| item(page, old)) else { return Some(all) };
    let row = values(row)?;
    let before = values(before)?;
    let same = |count: usize| if count < SHORTEST_SAME { 0 } else { count };
    let prefix = same(row.iter().zip(before).take_while(|(one, other)| one == other).count());
    let most = row.len().min(before.len()) - prefix;
    let ends = row.iter().rev().zip(before.iter().rev()).take(most);
    let suffix = same(ends.take_while(|(one, other)| one == other).count());
    let lengths = 2 * (usize::from(prefix > 0) + usize::from(suffix > 0));
    u16::try_from(usize::from(all) + lengths - prefix - suffix).ok()
}

/// Less that is the same is not worth its two bytes.
const SHORTEST_SAME: usize = 3;
/// The offset of the header's length in a row (`t_hoff`).
const HEADER_LENGTH_AT: usize = 22;

fn values(row: &[u8]) -> Option<&[u8]> {
    row.get(usize::from(*row.get(HEADER_LENGTH_AT)?)..)
}

/// Applies a prune: line pointers that are redirected, dead, or free from now on. Those that the
/// page has free are taken for these: they are soon used again.
fn pruned(main: &[u8], flags_at: Option<usize>, page: &ImagePage<'_>) -> Option<u16> {
    let free = u16::try_from(free_line_pointers(page)?).ok()?;
    let Some(at) = flags_at else {
        let redirected = u16_at(main, 4)?;
        let dead = u16_at(main, 6)?;
        return Some(4 * redirected.min(MOST_ROWS) + 2 * dead.min(MOST_ROWS) + 2 * free);
    };
    let flags = *main.get(at)?;
    let has = |flag: u8| u16::from(flags & flag != 0);
    // How many were redirected or died is not told: seldom more than one.
    Some(has(REDIRECTED) * 6 + has(DEAD) * 4 + has(FREED) * (2 + 2 * free.max(1)))
}

/// `MaxHeapTuplesPerPage`.
const MOST_ROWS: u16 = 291;
/// `XLHP_HAS_REDIRECTIONS`, `XLHP_HAS_DEAD_ITEMS`, `XLHP_HAS_NOW_UNUSED_ITEMS`.
const REDIRECTED: u8 = 1 << 5;
const DEAD: u8 = 1 << 6;
const FREED: u8 = 1 << 7;

fn free_line_pointers(page: &ImagePage<'_>) -> Option<usize> {
    let lower = page.lower()?;
    let pointers = page.get(24..lower)?.chunks_exact(4);
    Some(pointers.filter(|pointer| pointer.iter().all(|byte| *byte == 0)).count())
}

/// The rows on a heap page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRows {
    pub(crate) rows: u16,
    /// The space that they take.
    pub(crate) bytes: u16,
    /// Line pointers without a row.
    pub(crate) redirected: u16,
    pub(crate) dead: u16,
    pub(crate) unused: u16,
}

impl PageRows {
    /// How many rows a prune freed the space of, by its record and the page after it. Line pointers may have
    /// been unused before: they count only where the record does nothing else.
    pub(crate) fn pruned(&self, record: &Record<'_>, parts: &Parts) -> u16 {
        let main = record.bytes.get(parts.main_data.clone()).unwrap_or_default();
        let (redirected, dead) = match record.facts.prune_flags_at {
            None => (u16_at(main, 4).unwrap_or(0), u16_at(main, 6).unwrap_or(0)),
            Some(at) => {
                let flags = main.get(at).copied().unwrap_or(0);
                let all = |flag: u8, rows: u16| if flags & flag == 0 { 0 } else { rows };
                (all(REDIRECTED, self.redirected), all(DEAD, self.dead))
            }
        };
        match redirected.min(self.redirected) + dead.min(self.dead) {
            0 => self.unused,
            rows => rows,
        }
    }
}

/// `None` where that is no page.
pub(crate) fn page_rows(page: &ImagePage<'_>) -> Option<PageRows> {
    let pointers = page.get(24..page.lower()?)?.chunks_exact(4);
    let mut found = PageRows::default();
    for pointer in pointers {
        let pointer = u32::from_le_bytes(pointer.try_into().ok()?);
        // `lp_flags`
        match pointer >> 15 & 3 {
            0 => found.unused += 1,
            1 => {
                found.rows += 1;
                let length = u16::try_from(pointer >> 17).ok()?.next_multiple_of(8);
                found.bytes = found.bytes.checked_add(length)?;
            }
            2 => found.redirected += 1,
            _ => found.dead += 1,
        }
    }
    Some(found)
}

fn index_row(page: &ImagePage<'_>, place: u16) -> Option<u16> {
    Some(u16_at(item(page, place)?, 6)? & INDEX_SIZE)
}

/// Returns the item that a line pointer points at.
fn item<'p>(page: &ImagePage<'p>, place: u16) -> Option<&'p [u8]> {
    let at = 24 + usize::from(place.checked_sub(1)?) * 4;
    let lower = page.lower()?;
    let pointer = page.get(at..at + 4).filter(|_| at + 4 <= lower)?;
    let pointer = u32::from_le_bytes(pointer.try_into().ok()?);
    let begin = (pointer & 0x7FFF) as usize;
    let length = (pointer >> 17) as usize;
    page.get(begin..begin + length).filter(|item| item.len() >= 8)
}

/// A page as its image has it: without its hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImagePage<'a> {
    /// The bytes around the hole.
    pub(crate) bytes: &'a [u8],
    pub(crate) hole_offset: usize,
    pub(crate) hole_bytes: usize,
}

impl<'a> ImagePage<'a> {
    /// A part of the page on one side of the hole.
    fn get(&self, part: Range<usize>) -> Option<&'a [u8]> {
        if part.end <= self.hole_offset || self.hole_bytes == 0 {
            return self.bytes.get(part);
        }
        let begin = part.start.checked_sub(self.hole_bytes)?;
        (begin >= self.hole_offset).then(|| self.bytes.get(begin..part.end - self.hole_bytes))?
    }

    /// `pd_lower`: where the line pointers end.
    fn lower(&self) -> Option<usize> {
        u16_at(self.bytes, 12).map(usize::from)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use pgtoll_format::PAGE_BYTES;
    use proptest::prelude::*;

    use super::*;

    /// A page of these items, the first at place 1; `None` is a free line pointer.
    fn page(items: &[Option<&[u8]>]) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let mut upper = PAGE_BYTES;
        for (place, item) in items.iter().enumerate() {
            let Some(item) = item else { continue };
            upper -= item.len().next_multiple_of(8);
            page[upper..upper + item.len()].copy_from_slice(item);
            // `lp_off`, `LP_NORMAL`, `lp_len`.
            let pointer = u32::try_from(upper | 1 << 15 | item.len() << 17).unwrap();
            page[24 + place * 4..][..4].copy_from_slice(&pointer.to_le_bytes());
        }
        let lower = u16::try_from(24 + items.len() * 4).unwrap();
        page[12..14].copy_from_slice(&lower.to_le_bytes());
        page
    }

    fn whole(bytes: &[u8]) -> ImagePage<'_> {
        ImagePage { bytes, hole_offset: 0, hole_bytes: 0 }
    }

    /// A row with a header of 24 bytes.
    fn row(values: &[u8]) -> Vec<u8> {
        let mut row = vec![0; 24];
        row[HEADER_LENGTH_AT] = 24;
        row.extend_from_slice(values);
        row
    }

    #[test]
    fn an_inserted_row_is_logged_with_a_shorter_header() {
        let page = page(&[Some(&row(b"one")), Some(&row(b"a longer one"))]);
        assert_eq!(inserted(&whole(&page), 2), Some(12 + 24 - 23 + 5));
        assert_eq!((inserted(&whole(&page), 3), inserted(&whole(&page), 0)), (None, None));
    }

    #[test]
    fn an_update_logs_what_is_not_the_same_at_both_ends() {
        let before = row(b"aaaaaaaaXbbbbbbbb");
        let after = row(b"aaaaaaaaYZbbbbbbbb");
        let page = page(&[Some(&before), Some(&after)]);
        let all = 18 + 24 - 23 + 5;
        // Two bytes tell how long each end is.
        assert_eq!(updated(&whole(&page), Some(1), 2), Some(all - 8 - 8 + 4));
        assert_eq!(updated(&whole(&page), None, 2), Some(all), "the old row is on another page");
    }

    #[test]
    fn a_prune_logs_line_pointers() {
        let some: &[u8] = &row(b"x");
        let page = page(&[None, Some(some), None, Some(some)]);
        // `xl_heap_prune` until 16: a transaction, redirected, dead.
        let numbers = [9, 0, 0, 0, 3, 0, 1, 0];
        assert_eq!(pruned(&numbers, None, &whole(&page)), Some(3 * 4 + 2 + 2 * 2));
        // Since 17: a reason and flags.
        let redirected = 2 + 4;
        let freed = 2 + 2 * 2;
        assert_eq!(
            pruned(&[0, REDIRECTED | FREED], Some(1), &whole(&page)),
            Some(redirected + freed)
        );
        assert_eq!(pruned(&[0, 1 << 3, 7, 7, 7, 7], Some(1), &whole(&page)), Some(0));
        // Since 19: flags alone.
        assert_eq!(pruned(&[FREED, 1], Some(0), &whole(&page)), Some(freed));
    }

    #[test]
    fn an_index_row_tells_its_size() {
        let page = page(&[Some(&[0, 0, 0, 0, 1, 0, 16, 0x40, 1, 2, 3, 4, 5, 6, 7, 8])]);
        assert_eq!(index_row(&whole(&page), 1), Some(16), "the other bits of t_info are flags");
    }

    proptest! {
        #[test]
        fn any_page_tells_something_or_nothing(
            main in prop::collection::vec(any::<u8>(), 0..20),
            at in prop::option::of(0..2_usize),
            places in prop::array::uniform2(any::<u16>()),
            head in prop::collection::vec(any::<u8>(), 400),
        ) {
            let mut page = [0xA5; PAGE_BYTES];
            page[..400].copy_from_slice(&head);
            let _ = (inserted(&whole(&page), places[0]), index_row(&whole(&page), places[0]));
            let _ = (updated(&whole(&page), Some(places[1]), places[0]), pruned(&main, at, &whole(&page)));
        }
    }
}
