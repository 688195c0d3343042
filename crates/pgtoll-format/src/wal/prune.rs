//! Changes that records of pruning and freezing make to their heap page. Source: `heapam_xlog.h`.

use crate::bytes::u16_at;
use crate::wal::rmgr::{
    XLOG_HEAP2_FREEZE_PAGE, XLOG_HEAP2_PRUNE_ON_ACCESS, XLOG_HEAP2_PRUNE_VACUUM_CLEANUP,
    XLOG_HEAP2_PRUNE_VACUUM_SCAN,
};
use crate::wal::{Parts, Record, RecordType};

/// `XLHP_HAS_FREEZE_PLANS`.
const HAS_FREEZE_PLANS: u8 = 1 << 4;
const HAS_REDIRECTIONS: u8 = 1 << 5;
const HAS_DEAD_ITEMS: u8 = 1 << 6;
const HAS_NOW_UNUSED_ITEMS: u8 = 1 << 7;
/// The same, `XLHP_HAS_REDIRECTIONS`, `XLHP_HAS_DEAD_ITEMS` and `XLHP_HAS_NOW_UNUSED_ITEMS`.
const CHANGES_ROWS: u8 = 0xF0;

impl Record<'_> {
    /// Bytes by which `VACUUM` freezes rows of the record's first block, where it changes no row of
    /// that block otherwise: the whole record, or since 19 its freeze plans where it also sets bits of
    /// the visibility map. `None` of other records, and of versions whose `VACUUM` freezes only rows
    /// that it must (`WalFacts::freezes_after_hint`).
    pub fn freeze_bytes(&self, parts: &Parts) -> Option<u32> {
        if !self.facts.freezes_after_hint {
            return None;
        }
        let freezes = match (RecordType::from_header(&self.header), self.facts.prune_flags_at) {
            (XLOG_HEAP2_FREEZE_PAGE, None) => true,
            (XLOG_HEAP2_PRUNE_VACUUM_SCAN, Some(at)) => {
                self.prune_flags(parts, at)? & CHANGES_ROWS == HAS_FREEZE_PLANS
            }
            _ => false,
        };
        match parts.blocks.as_slice() {
            [_] if freezes => Some(self.header.total_bytes),
            [page, _] if freezes => u32::try_from(page.data.len()).ok(),
            _ => None,
        }
    }

    /// Whether `VACUUM` sets bits of the visibility map, freezes the page's rows and changes no row
    /// otherwise, in a record that has the page's image (19). The map's bits need that image only where
    /// hints are logged, and `VACUUM` freezes rows that it need not freeze yet because the image is
    /// paid for.
    pub fn freezes_beside_visibility(&self, parts: &Parts) -> bool {
        let [page, _] = parts.blocks.as_slice() else { return false };
        let has_image = page.image.as_ref().is_some_and(|image| image.applies);
        has_image && !self.facts.prune_sets_page_lsn && self.freeze_bytes(parts).is_some()
    }

    /// Whether a prune record changes no row, and only sets bits of the visibility map (19): then its
    /// heap page needs an image only where hints are logged, as with `Heap2/VISIBLE` until 18.
    pub fn sets_visibility_alone(&self, parts: &Parts) -> bool {
        if self.facts.prune_sets_page_lsn {
            return false;
        }
        let is_prune = matches!(
            RecordType::from_header(&self.header),
            XLOG_HEAP2_PRUNE_ON_ACCESS
                | XLOG_HEAP2_PRUNE_VACUUM_SCAN
                | XLOG_HEAP2_PRUNE_VACUUM_CLEANUP
        );
        let flags = self.facts.prune_flags_at.and_then(|at| self.prune_flags(parts, at));
        is_prune && flags.is_some_and(|flags| flags & CHANGES_ROWS == 0)
    }

    /// Whether the record frees the space of dead rows on its first block. `VACUUM` that only frees line
    /// pointers whose rows are gone does not.
    pub fn prunes(&self, parts: &Parts) -> bool {
        match (RecordType::from_header(&self.header), self.facts.prune_flags_at) {
            (XLOG_HEAP2_PRUNE_ON_ACCESS, None) => true,
            (XLOG_HEAP2_PRUNE_ON_ACCESS | XLOG_HEAP2_PRUNE_VACUUM_SCAN, Some(at)) => {
                let flags = self.prune_flags(parts, at).unwrap_or(0);
                flags & CHANGES_ROWS & !HAS_FREEZE_PLANS != 0
            }
            _ => false,
        }
    }

    /// How many rows a record that [prunes](Self::prunes) frees the space of: those that are redirected,
    /// dead or unused from now on. `None` where it does not say, as with an image of the page.
    pub fn pruned_rows(&self, parts: &Parts) -> Option<u16> {
        let data =
            self.bytes.get(parts.blocks.first()?.data.clone()).filter(|data| !data.is_empty())?;
        let Some(at) = self.facts.prune_flags_at else {
            let main = self.bytes.get(parts.main_data.clone())?;
            let redirected = usize::from(u16_at(main, 4)?);
            let dead = usize::from(u16_at(main, 6)?);
            let unused = data.len().checked_sub(4 * redirected + 2 * dead)? / 2;
            return u16::try_from(redirected + dead + unused).ok();
        };
        let flags = self.prune_flags(parts, at)?;
        let mut place = match flags & HAS_FREEZE_PLANS {
            0 => 0,
            _ => FREEZE_PLANS_AT + usize::from(u16_at(data, 0)?) * FREEZE_PLAN_BYTES,
        };
        let mut rows = 0_u16;
        for (flag, bytes) in [(HAS_REDIRECTIONS, 4), (HAS_DEAD_ITEMS, 2), (HAS_NOW_UNUSED_ITEMS, 2)]
        {
            if flags & flag != 0 {
                let count = u16_at(data, place)?;
                place += 2 + usize::from(count) * bytes;
                rows = rows.checked_add(count)?;
            }
        }
        (place <= data.len()).then_some(rows)
    }

    fn prune_flags(&self, parts: &Parts, at: usize) -> Option<u8> {
        self.bytes.get(parts.main_data.clone())?.get(at).copied()
    }
}

/// The offset of the plans in `xlhp_freeze_plans`, and the length of a plan.
const FREEZE_PLANS_AT: usize = 4;
const FREEZE_PLAN_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wal::{BlockReference, Image, RecordHeader};
    use crate::{ForkNumber, Lsn, RelFileLocator};

    /// A record of Heap2 of 238 bytes with this main data, and blocks of which the first has 174 bytes
    /// of data.
    fn record(major: u32, info: u8, main: &[u8], blocks: u8) -> (Option<u32>, bool) {
        let facts = crate::MAJORS.iter().find(|facts| facts.major == major).unwrap();
        let header =
            RecordHeader { total_bytes: 238, xid: 0, previous: Lsn(0), info, manager: 9, crc: 0 };
        let record = Record { at: Lsn(8), end: Lsn(248), header, bytes: main, facts: &facts.wal };
        let relation = RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
        let block = |id| BlockReference {
            id,
            relation,
            fork: ForkNumber::MAIN,
            block: 1,
            will_init: false,
            image: None,
            data: 0..if id == 0 { 174 } else { 0 },
        };
        let mut parts = Parts::default();
        parts.blocks = (0..blocks).map(block).collect();
        parts.main_data = 0..main.len();
        (record.freeze_bytes(&parts), record.sets_visibility_alone(&parts))
    }

    #[test]
    fn main_data_as_servers_wrote_them() {
        // `VACUUM` of rows whose hints it had just set: no row is pruned.
        assert_eq!(record(17, 0x20, &[0x78, 0x18, 0xE3, 2, 0, 0], 1), (Some(238), false));
        assert_eq!(record(18, 0x20, &[0x78, 0x1C, 0xF1, 2, 0, 0], 1), (Some(238), false));
        assert_eq!(record(19, 0x20, &[0x18, 0x03, 0x97, 2, 0, 0], 2), (Some(174), false));
    }

    #[test]
    fn records_that_prune_too_do_not_freeze_alone() {
        for flags in [0x30, 0x50, 0x90, 0x20, 0x08] {
            assert_eq!(record(18, 0x20, &[0, flags, 0, 0, 0, 0], 1), (None, false), "{flags:x}");
        }
        assert_eq!(record(18, 0x10, &[0, 0x18, 0, 0, 0, 0], 1), (None, false), "a reader's");
        assert_eq!(record(18, 0x20, &[0], 1), (None, false), "cut off");
        assert_eq!(record(19, 0x20, &[0x08, 0x03], 2), (None, true), "bits of the map alone");
        assert_eq!(record(19, 0x20, &[0x88, 0x03], 2), (None, false));
    }

    #[test]
    fn an_image_pays_for_freezes_where_the_visibility_map_needs_it() {
        let check = |major: u32, main: &[u8], applies: Option<bool>, expected: bool| {
            let facts = crate::MAJORS.iter().find(|facts| facts.major == major).unwrap();
            let header = RecordHeader {
                total_bytes: 8238,
                xid: 0,
                previous: Lsn(0),
                info: 0x20,
                manager: 9,
                crc: 0,
            };
            let record =
                Record { at: Lsn(8), end: Lsn(8248), header, bytes: main, facts: &facts.wal };
            let image = applies.map(|applies| Image {
                hole_offset: 0,
                hole_bytes: 0,
                applies,
                compression: None,
                range: 0..0,
            });
            let relation = RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
            let block = |id: u8, fork, image| BlockReference {
                id,
                relation,
                fork,
                block: 1,
                will_init: false,
                image,
                data: 0..0,
            };
            let mut parts = Parts::default();
            parts.blocks = vec![block(0, ForkNumber::MAIN, image), block(1, ForkNumber::VM, None)];
            parts.main_data = 0..main.len();
            assert_eq!(record.freezes_beside_visibility(&parts), expected, "{major} {main:x?}");
        };
        check(19, &[0x18, 0x03, 0, 0], Some(true), true);
        check(19, &[0x18, 0x03, 0, 0], Some(false), false);
        check(19, &[0x18, 0x03, 0, 0], None, false);
        // It prunes as well, or freezes nothing.
        check(19, &[0x98, 0x03, 0, 0], Some(true), false);
        check(19, &[0x08, 0x03, 0, 0], Some(true), false);
        check(18, &[0, 0x18, 0, 0], Some(true), false);
    }

    #[test]
    fn freeze_page_is_a_record_until_16() {
        assert_eq!(record(16, 0x30, &[0; 8], 1), (Some(238), false));
        assert_eq!(record(16, 0x20, &[0; 8], 1), (None, false), "VACUUM");
        assert_eq!(record(15, 0x30, &[0; 8], 1), (None, false), "it had to");
    }

    proptest! {
        #[test]
        fn any_record_frees_rows_or_says_nothing(
            major in 13_u32..=19,
            info in any::<u8>(),
            main in prop::collection::vec(any::<u8>(), 0..12),
            data in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let facts = crate::MAJORS.iter().find(|facts| facts.major == major).unwrap();
            let header =
                RecordHeader { total_bytes: 99, xid: 0, previous: Lsn(0), info, manager: 9, crc: 0 };
            let bytes = [&main[..], &data].concat();
            let record =
                Record { at: Lsn(8), end: Lsn(107), header, bytes: &bytes, facts: &facts.wal };
            let mut parts = Parts::default();
            parts.main_data = 0..main.len();
            parts.blocks = vec![BlockReference {
                id: 0,
                relation: RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 },
                fork: ForkNumber::MAIN,
                block: 1,
                will_init: false,
                image: None,
                data: main.len()..bytes.len(),
            }];
            let rows = record.pruned_rows(&parts).unwrap_or(0);
            prop_assert!(usize::from(rows) * 2 <= data.len(), "each row has at least its number");
        }
    }
}
