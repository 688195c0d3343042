//! The data of a reference, where an image has taken their place: a server leaves them out, and
//! would have logged them without the image.

use pgtoll_format::PAGE_BYTES;
use pgtoll_format::wal::{BlockReference, Parts, Record, RecordType};

/// Bytes of data that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// The image tells.
    Known(u16),
    /// It does not.
    Unknown,
}

const HEAP: u8 = 10;
const HEAP2: u8 = 9;
const BTREE: u8 = 11;
/// `XLOG_HEAP_OPMASK`: the bit above says that the page is made anew.
const HEAP_OPERATION: u8 = 0x70;
const INSERT: u8 = 0x00;
const UPDATE: u8 = 0x20;
const HOT_UPDATE: u8 = 0x40;
const MULTI_INSERT: u8 = 0x50;
const BTREE_INSERTS: [u8; 2] = [0x00, 0x10];
const BTREE_INSERT_POST: u8 = 0x50;

/// `XLH_INSERT_CONTAINS_NEW_TUPLE`, `XLH_UPDATE_CONTAINS_NEW_TUPLE`: for logical decoding data are
/// logged with an image, too.
const INSERT_CONTAINS_NEW: u8 = 0x08;
const UPDATE_CONTAINS_NEW: u8 = 0x10;
/// Where the flags stand in `xl_heap_insert`, `xl_heap_update`, `xl_heap_multi_insert`.
const INSERT_FLAGS_AT: usize = 2;
const UPDATE_FLAGS_AT: usize = 7;
const MULTI_INSERT_FLAGS_AT: usize = 0;
/// The new and the old place of a row in `xl_heap_update`.
const UPDATE_OLD_AT: usize = 4;
const UPDATE_NEW_AT: usize = 12;

/// `SizeofHeapTupleHeader`, of which `SizeOfHeapHeader` is logged.
const TUPLE_HEADER: u16 = 23;
const LOGGED_HEADER: u16 = 5;
/// Of `SizeOfMultiInsertTuple`.
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

/// By how much the data fill the page that they go to.
pub(crate) fn growth(
    record: &Record<'_>,
    parts: &Parts,
    kind: RecordType,
    block: &BlockReference,
) -> u16 {
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
    block.id == 0 && (is_heap || is_btree)
}

/// What was left out, by the page as it was after the change.
pub(crate) fn left_out(
    record: &Record<'_>,
    parts: &Parts,
    kind: RecordType,
    page: &[u8; PAGE_BYTES],
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
        (BTREE, _) if kind.info == BTREE_INSERT_POST => None,
        (BTREE, _) => u16_at(main, 0).and_then(|place| index_row(page, place)),
        _ => None,
    };
    known.map_or(Data::Unknown, Data::Known)
}

fn inserted(page: &[u8], place: u16) -> Option<u16> {
    let tuple = item(page, place)?;
    Some(u16::try_from(tuple.len()).ok()?.checked_sub(TUPLE_HEADER)? + LOGGED_HEADER)
}

/// What an update logs where the old row is at hand: what is the same at both ends is left out
/// (`log_heap_update`).
fn updated(page: &[u8], old: Option<u16>, new: u16) -> Option<u16> {
    let row = item(page, new)?;
    let all = u16::try_from(row.len()).ok()?.checked_sub(TUPLE_HEADER)? + LOGGED_HEADER;
    let Some(before) = old.and_then(|old| item(page, old)) else { return Some(all) };
    let (row, before) = (values(row)?, values(before)?);
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
/// Where a row has the length of its header (`t_hoff`).
const HEADER_LENGTH_AT: usize = 22;

fn values(row: &[u8]) -> Option<&[u8]> {
    row.get(usize::from(*row.get(HEADER_LENGTH_AT)?)..)
}

fn index_row(page: &[u8], place: u16) -> Option<u16> {
    // `INDEX_SIZE_MASK` of `t_info`.
    Some(u16_at(item(page, place)?, 6)? & 0x1FFF)
}

/// What a line pointer points at.
fn item(page: &[u8], place: u16) -> Option<&[u8]> {
    let at = 24 + usize::from(place.checked_sub(1)?) * 4;
    let lower = usize::from(u16_at(page, 12)?);
    let pointer = page.get(at..at + 4).filter(|_| at + 4 <= lower)?;
    let pointer = u32::from_le_bytes(pointer.try_into().ok()?);
    let (begin, length) = ((pointer & 0x7FFF) as usize, (pointer >> 17) as usize);
    page.get(begin..begin + length).filter(|item| item.len() >= 8)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
