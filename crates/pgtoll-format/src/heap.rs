//! Rows in a page of a table, and which of a row's versions is the live one.

use crate::bytes::{u16_at, u32_at};
use crate::page::{LinePointerState, PageError, PageHeader, line_pointers};

/// A version of a row: the header's fields (`HeapTupleHeaderData`) and the columns' bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapTuple<'a> {
    /// The transaction that made this version.
    pub xmin: u32,
    /// The transaction that ended or locked it, or the multixact of those that did; 0: none.
    pub xmax: u32,
    /// The next version's block, or this one's own.
    pub next_block: u32,
    /// The next version's line pointer, or this one's own.
    pub next_number: u16,
    /// Flags; the lower bits are the number of columns.
    pub infomask2: u16,
    /// Flags, as PostgreSQL defines the bits.
    pub infomask: u16,
    /// One bit a column, 0 where it is null; `None`: no column is.
    nulls: Option<&'a [u8]>,
    /// The columns.
    pub data: &'a [u8],
}

impl<'a> HeapTuple<'a> {
    /// Reads an item of a table's page; `None` where its header is impossible.
    pub fn read(item: &'a [u8]) -> Option<Self> {
        let infomask2 = u16_at(item, 18)?;
        let infomask = u16_at(item, 20)?;
        let data_at = usize::from(*item.get(22)?);
        let columns = usize::from(infomask2 & COLUMNS);
        let nulls = if infomask & HAS_NULL == 0 {
            None
        } else {
            Some(item.get(HEADER..HEADER + columns.div_ceil(8))?)
        };
        if data_at < HEADER + nulls.map_or(0, <[u8]>::len) {
            return None;
        }
        Some(Self {
            xmin: u32_at(item, 0)?,
            xmax: u32_at(item, 4)?,
            // The halves are two numbers, the higher one first.
            next_block: u32::from(u16_at(item, 12)?) << 16 | u32::from(u16_at(item, 14)?),
            next_number: u16_at(item, 16)?,
            infomask2,
            infomask,
            nulls,
            data: item.get(data_at..)?,
        })
    }

    /// How many columns the row has. Columns that its table got later are not among them.
    pub fn columns(&self) -> usize {
        usize::from(self.infomask2 & COLUMNS)
    }

    /// Whether one of the first `columns` columns is null or missing, so that what follows it does
    /// not stand where it does otherwise.
    pub fn has_null_among(&self, columns: usize) -> bool {
        let is_null = |column: usize| {
            self.nulls.is_some_and(|bits| {
                bits.get(column / 8).is_none_or(|byte| byte >> (column % 8) & 1 == 0)
            })
        };
        self.columns() < columns || (0..columns).any(is_null)
    }

    /// Whether this is the version that a query would see now, if no transaction were running:
    /// what did not commit counts as rolled back, as it will be after a crash.
    ///
    /// The header's hints are asked first, then `transactions`. What they do not know did not
    /// commit.
    pub fn is_live(&self, transactions: &mut impl Transactions) -> bool {
        self.was_made(transactions) && !self.was_ended(transactions)
    }

    fn was_made(&self, transactions: &mut impl Transactions) -> bool {
        match self.infomask & XMIN_FROZEN {
            XMIN_INVALID => false,
            0 => committed(self.xmin, transactions),
            _ => true,
        }
    }

    fn was_ended(&self, transactions: &mut impl Transactions) -> bool {
        if self.infomask & XMAX_INVALID != 0 || self.xmax == 0 || self.is_only_locked() {
            return false;
        }
        if self.infomask & XMAX_IS_MULTI != 0 {
            let updater = transactions.updater(self.xmax);
            return updater.is_some_and(|xid| committed(xid, transactions));
        }
        self.infomask & XMAX_COMMITTED != 0 || committed(self.xmax, transactions)
    }

    /// `HEAP_XMAX_IS_LOCKED_ONLY`: who stands in `xmax` has not changed the row.
    fn is_only_locked(&self) -> bool {
        let locks = XMAX_EXCLUSIVE_LOCK | XMAX_KEY_SHARE_LOCK;
        self.infomask & XMAX_LOCK_ONLY != 0
            || self.infomask & (XMAX_IS_MULTI | locks) == XMAX_EXCLUSIVE_LOCK
    }
}

/// The outcome of transactions, which the caller looks up: in `pg_xact` and `pg_multixact`.
pub trait Transactions {
    /// The outcome of this one; `None`: nothing is known.
    fn status(&mut self, xid: u32) -> Option<TransactionStatus>;

    /// Returns the transaction of this multixact that changed the row rather than locked it; `None`: none
    /// did, or nothing is known.
    fn updater(&mut self, multixact: u32) -> Option<u32>;
}

/// The outcome of a transaction, in the two bits that `pg_xact` has for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// It is running, is prepared, or was running at the crash.
    InProgress,
    /// It committed.
    Committed,
    /// It was rolled back.
    Aborted,
    /// A part of one that was about to commit.
    SubCommitted,
}

impl TransactionStatus {
    /// How many transactions have their bits in this many bytes of `pg_xact`.
    pub const PER_BYTE: u32 = 4;

    /// The status of transaction `xid` in its page of `pg_xact`; `None` where the page is too short.
    pub fn in_page(page: &[u8], xid: u32) -> Option<Self> {
        let transactions = u32::try_from(page.len()).ok()?.checked_mul(Self::PER_BYTE)?;
        let in_page = xid.checked_rem(transactions)?;
        let byte = *page.get(usize::try_from(in_page / Self::PER_BYTE).ok()?)?;
        Some(match byte >> (in_page % Self::PER_BYTE * 2) & 3 {
            0 => Self::InProgress,
            1 => Self::Committed,
            2 => Self::Aborted,
            _ => Self::SubCommitted,
        })
    }
}

fn committed(xid: u32, transactions: &mut impl Transactions) -> bool {
    match xid {
        0 => false,
        BOOTSTRAP_XID | FROZEN_XID => true,
        _ => transactions.status(xid) == Some(TransactionStatus::Committed),
    }
}

/// The versions of rows in a table's page of `block_bytes`. None in a page that is all zero, which
/// is one that the table got and did not use yet.
///
/// One impossible header, and nothing of the page is believed.
pub fn heap_tuples(page: &[u8]) -> Result<Vec<HeapTuple<'_>>, PageError> {
    let header = PageHeader::read(page).ok_or(PageError::Header)?;
    if header.is_new() {
        let is_zero = page.iter().all(|byte| *byte == 0);
        return if is_zero { Ok(Vec::new()) } else { Err(PageError::Header) };
    }
    let is_heap = header.is_plausible(page.len())
        && header.page_bytes() == page.len()
        && header.layout() == LAYOUT
        && usize::from(header.lower) >= PageHeader::BYTES;
    if !is_heap {
        return Err(PageError::Header);
    }
    let mut tuples = Vec::new();
    for (number, pointer) in (1..).zip(line_pointers(page)) {
        if pointer.state != LinePointerState::Normal {
            continue;
        }
        let begin = pointer.offset;
        let end = pointer.offset.saturating_add(pointer.bytes);
        if begin < header.upper || end > header.special {
            return Err(PageError::LinePointer { number });
        }
        let item = page.get(usize::from(begin)..usize::from(end));
        tuples.push(item.and_then(HeapTuple::read).ok_or(PageError::Row { number })?);
    }
    Ok(tuples)
}

/// `PG_PAGE_LAYOUT_VERSION`.
const LAYOUT: u8 = 4;
/// `SizeofHeapTupleHeader`: behind it stand the null bits.
const HEADER: usize = 23;

/// Rows that `initdb` made (`BootstrapTransactionId`).
const BOOTSTRAP_XID: u32 = 1;
/// Rows that were frozen before 9.4 (`FrozenTransactionId`).
const FROZEN_XID: u32 = 2;

const COLUMNS: u16 = 0x07FF;
const HAS_NULL: u16 = 0x0001;
pub(crate) const XMAX_KEY_SHARE_LOCK: u16 = 0x0010;
pub(crate) const XMAX_EXCLUSIVE_LOCK: u16 = 0x0040;
pub(crate) const XMAX_LOCK_ONLY: u16 = 0x0080;
pub(crate) const XMIN_INVALID: u16 = 0x0200;
/// Both hints: of a transaction so old that nobody need ask.
pub(crate) const XMIN_FROZEN: u16 = 0x0300;
pub(crate) const XMAX_COMMITTED: u16 = 0x0400;
pub(crate) const XMAX_INVALID: u16 = 0x0800;
pub(crate) const XMAX_IS_MULTI: u16 = 0x1000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::PAGE_BYTES;

    /// Transactions below 100 committed, those below 200 were rolled back, the others are unknown.
    /// Multixacts were of the transaction with their number, those above 1000 of none.
    struct Told;

    impl Transactions for Told {
        fn status(&mut self, xid: u32) -> Option<TransactionStatus> {
            match xid {
                ..100 => Some(TransactionStatus::Committed),
                100..200 => Some(TransactionStatus::Aborted),
                _ => None,
            }
        }

        fn updater(&mut self, multixact: u32) -> Option<u32> {
            (multixact < 1000).then_some(multixact)
        }
    }

    #[track_caller]
    fn check(xmin: u32, xmax: u32, infomask: u16, expected: bool) {
        let mut item = [0; HEADER + 1];
        item[..4].copy_from_slice(&xmin.to_le_bytes());
        item[4..8].copy_from_slice(&xmax.to_le_bytes());
        item[20..22].copy_from_slice(&infomask.to_le_bytes());
        item[22] = 24;
        let tuple = HeapTuple::read(&item).unwrap();
        assert_eq!(tuple.is_live(&mut Told), expected, "{tuple:?}");
    }

    #[test]
    fn the_live_version_is_found() {
        const XMIN_COMMITTED: u16 = 0x0100;
        // Without hints.
        check(50, 0, 0, true);
        check(150, 0, 0, false);
        check(250, 0, 0, false);
        check(50, 60, 0, false);
        check(50, 160, 0, true);
        check(50, 260, 0, true);
        check(1, 0, 0, true);
        check(2, 0, 0, true);
        check(0, 0, 0, false);
        // Hints are believed, also against what is told.
        check(150, 0, XMIN_COMMITTED, true);
        check(150, 0, XMIN_FROZEN, true);
        check(50, 0, XMIN_INVALID, false);
        check(50, 60, XMAX_INVALID, true);
        check(50, 160, XMAX_COMMITTED, false);
        // Who only locks does not end the row.
        check(50, 60, XMAX_LOCK_ONLY | XMAX_KEY_SHARE_LOCK, true);
        check(50, 60, XMAX_LOCK_ONLY | XMAX_IS_MULTI, true);
        check(50, 60, XMAX_EXCLUSIVE_LOCK, true);
        // Of several, one may have ended it.
        check(50, 60, XMAX_IS_MULTI, false);
        check(50, 160, XMAX_IS_MULTI, true);
        check(50, 2000, XMAX_IS_MULTI, true);
        check(50, 60, XMAX_IS_MULTI | XMAX_EXCLUSIVE_LOCK, false);
    }

    #[test]
    fn a_transactions_two_bits_are_found() {
        let mut page = vec![0; PAGE_BYTES];
        page[2] = 0b11_10_01_00;
        let status = |xid| TransactionStatus::in_page(&page, xid).unwrap();
        for begin in [8, 8 + 32768, 8 + 3 * 32768] {
            assert_eq!(status(begin), TransactionStatus::InProgress);
            assert_eq!(status(begin + 1), TransactionStatus::Committed);
            assert_eq!(status(begin + 2), TransactionStatus::Aborted);
            assert_eq!(status(begin + 3), TransactionStatus::SubCommitted);
        }
        assert_eq!(TransactionStatus::in_page(&[], 1), None);
    }

    /// A page with items of these bytes.
    fn page(items: &[Vec<u8>]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        let mut upper = PAGE_BYTES;
        let mut lower = PageHeader::BYTES;
        for item in items {
            upper = (upper - item.len()) / 8 * 8;
            page[upper..upper + item.len()].copy_from_slice(item);
            let pointer = u32::try_from(upper | 1 << 15 | item.len() << 17).unwrap();
            page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
            lower += 4;
        }
        for (at, value) in [(12, lower), (14, upper), (16, PAGE_BYTES), (18, PAGE_BYTES | 4)] {
            page[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_le_bytes());
        }
        page
    }

    fn item() -> impl Strategy<Value = Vec<u8>> {
        (prop::collection::vec(any::<u8>(), 32..200), any::<bool>()).prop_map(
            |(mut item, nulls)| {
                item[18] = 8;
                item[19] = 0;
                item[20] = u8::from(nulls);
                item[22] = 24;
                item
            },
        )
    }

    proptest! {
        #[test]
        fn rows_are_read_back(items in prop::collection::vec(item(), 0..30)) {
            let page = page(&items);
            let tuples = heap_tuples(&page).unwrap();
            prop_assert_eq!(tuples.len(), items.len());
            for (tuple, item) in tuples.iter().zip(&items) {
                prop_assert_eq!(tuple.data, &item[24..]);
                let has_null = item[20] == 1 && item[HEADER] != 0xFF;
                prop_assert_eq!(tuple.has_null_among(8), has_null);
                prop_assert!(tuple.has_null_among(9));
            }
        }

        #[test]
        fn a_changed_page_has_rows_or_not(
            items in prop::collection::vec(item(), 1..30),
            changes in prop::collection::vec((0..200_usize, any::<u8>()), 1..10),
            tail in any::<prop::sample::Index>(),
        ) {
            let mut page = page(&items);
            for (at, byte) in changes {
                page[at] = byte;
            }
            for tuple in heap_tuples(&page).unwrap_or_default() {
                tuple.is_live(&mut Told);
                tuple.has_null_among(40);
            }
            let _ = heap_tuples(&page[..tail.index(page.len())]);
        }

        #[test]
        fn any_bytes_are_a_page_or_an_error(
            mut page in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES + 1),
            item in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = heap_tuples(&page);
            if page.len() >= PageHeader::BYTES {
                page[18..20].copy_from_slice(&[4, 0x20]);
                let _ = heap_tuples(&page);
            }
            if let Some(tuple) = HeapTuple::read(&item) {
                tuple.is_live(&mut Told);
                tuple.has_null_among(2000);
            }
        }
    }
}
