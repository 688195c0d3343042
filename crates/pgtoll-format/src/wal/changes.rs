//! The state that a record leaves in files: pages with its end as their LSN, and files that were
//! made, cut or removed.
//! made, cut or removed.

use crate::bytes::{u16_at, u32_at};
use crate::page::PAGE_BYTES;
use crate::wal::rmgr::{
    RM_BRIN_ID, RM_DBASE_ID, RM_GENERIC_ID, RM_HEAP2_ID, RM_SEQ_ID, RM_SPGIST_ID, XLOG_BRIN_INSERT,
    XLOG_BRIN_OPMASK, XLOG_BRIN_UPDATE, XLOG_BTREE_UNLINK_PAGE, XLOG_BTREE_UNLINK_PAGE_META,
    XLOG_FPI, XLOG_FPI_FOR_HINT, XLOG_HASH_DELETE, XLOG_HASH_MOVE_PAGE_CONTENTS,
    XLOG_HASH_SQUEEZE_PAGE, XLOG_HEAP2_PRUNE_ON_ACCESS, XLOG_HEAP2_PRUNE_VACUUM_CLEANUP,
    XLOG_HEAP2_PRUNE_VACUUM_SCAN, XLOG_HEAP2_VISIBLE, XLOG_PARAMETER_CHANGE, XLOG_SMGR_CREATE,
    XLOG_SMGR_TRUNCATE,
};
use crate::wal::{BlockReference, Image, Parts, Record, RecordType};
use crate::{BlockNumber, ForkNumber, RelFileLocator, WalLevel};

/// A change of files as a whole: earlier changes of their blocks hold no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A fork was made, empty.
    Made {
        /// The relation that it is about.
        relation: RelFileLocator,
        /// Its number or name.
        fork: ForkNumber,
    },
    /// The main fork was cut.
    Cut {
        /// The relation that it is about.
        relation: RelFileLocator,
        /// Blocks that are left.
        blocks: BlockNumber,
    },
    /// A database was made, copied to another tablespace, or removed.
    Database {
        /// Its OID.
        oid: u32,
    },
}

impl Record<'_> {
    /// Returns the change of files as a whole; `None` of most records. Sources: `storage_xlog.h`,
    /// `dbcommands_xlog.h`.
    pub fn file_change(&self, parts: &Parts) -> Option<FileChange> {
        let data = self.bytes.get(parts.main_data.clone())?;
        let relation = |at| {
            let tablespace = u32_at(data, at)?;
            let database = u32_at(data, at + 4)?;
            Some(RelFileLocator { tablespace, database, rel_number: u32_at(data, at + 8)? })
        };
        match RecordType::from_header(&self.header) {
            XLOG_SMGR_CREATE => {
                let fork = ForkNumber(u8::try_from(u32_at(data, 12)?).ok()?);
                Some(FileChange::Made { relation: relation(0)?, fork })
            }
            XLOG_SMGR_TRUNCATE => {
                Some(FileChange::Cut { relation: relation(4)?, blocks: u32_at(data, 0)? })
            }
            // All types begin with it.
            RecordType { manager: RM_DBASE_ID, .. } => {
                Some(FileChange::Database { oid: u32_at(data, 0)? })
            }
            _ => None,
        }
    }

    /// The `wal_level` from here on; `None` of all records but `XLOG/PARAMETER_CHANGE`. Source:
    /// `xl_parameter_change`.
    pub fn wal_level(&self, parts: &Parts) -> Option<WalLevel> {
        let data = self.bytes.get(parts.main_data.clone())?;
        let is_of_parameters = RecordType::from_header(&self.header) == XLOG_PARAMETER_CHANGE;
        is_of_parameters.then(|| u32_at(data, WAL_LEVEL_AT)).flatten().map(WalLevel::from_number)
    }

    /// Whether the page of this block has the record's end as its LSN from then on, at the server
    /// that wrote it and at those that replay it.
    ///
    /// Not all blocks that a record refers to are changed by it. What is not known to be, is not.
    pub fn sets_page_lsn(&self, block: &BlockReference) -> bool {
        match RecordType::from_header(&self.header) {
            // A page that was never used gets no LSN.
            XLOG_FPI => block.image.as_ref().is_some_and(|image| self.is_of_used_page(image)),
            XLOG_HEAP2_PRUNE_ON_ACCESS
            | XLOG_HEAP2_PRUNE_VACUUM_SCAN
            | XLOG_HEAP2_PRUNE_VACUUM_CLEANUP => self.facts.prune_sets_page_lsn,
            // Of VISIBLE the table's page gets an LSN only where hints are logged. By those of hash
            // indexes the bucket's first page is only locked, and others may be. For images for hints see
            // `is_hint_image`.
            XLOG_FPI_FOR_HINT
            | XLOG_HEAP2_VISIBLE
            | XLOG_HASH_MOVE_PAGE_CONTENTS
            | XLOG_HASH_SQUEEZE_PAGE
            | XLOG_HASH_DELETE => false,
            // Heap2, Heap, Btree, Hash, Gin, Gist, Sequence; SPGist, BRIN, Generic.
            RecordType { manager, .. } => matches!(
                manager,
                RM_HEAP2_ID..=RM_SEQ_ID | RM_SPGIST_ID | RM_BRIN_ID | RM_GENERIC_ID
            ),
        }
    }

    /// Whether the record is the image that is logged before a hint is set on the page. The page was
    /// in use then; its LSN proves nothing.
    ///
    /// Until 18 hints are set under a shared lock. Several sessions may each log an image of a page;
    /// the first that marks it dirty sets its LSN, and the others leave that as it is. Where the page
    /// was being written meanwhile, none of them sets it. Source: `MarkBufferDirtyHint` in `bufmgr.c`.
    pub fn is_hint_image(&self, block: &BlockReference) -> bool {
        // Without an image, replay leaves the page alone.
        RecordType::from_header(&self.header) == XLOG_FPI_FOR_HINT
            && block.image.as_ref().is_some_and(|image| image.applies)
    }

    /// Whether redo of this block needs the page of another block of the record: of BRIN's range map,
    /// which gets the number of the block whose page was read before (`brin_xlog_insert_update`).
    pub fn redo_needs_other_page(&self, block: &BlockReference) -> bool {
        let has_image = block.image.as_ref().is_some_and(|image| image.applies);
        let RecordType { manager, info } = RecordType::from_header(&self.header);
        let operation = RecordType { manager, info: info & XLOG_BRIN_OPMASK };
        let is_insertion = matches!(operation, XLOG_BRIN_INSERT | XLOG_BRIN_UPDATE);
        is_insertion && block.id == RANGE_MAP && !has_image
    }

    /// Whether the record takes this page out of its B-tree: its next user initializes it,
    /// and may fail before WAL says so.
    pub fn frees_page(&self, block: &BlockReference) -> bool {
        let unlinks = matches!(
            RecordType::from_header(&self.header),
            XLOG_BTREE_UNLINK_PAGE | XLOG_BTREE_UNLINK_PAGE_META
        );
        unlinks && block.id == 0
    }

    /// Whether an image is of a page that was used (`PageIsNew`), as far as can be told without
    /// unpacking it.
    fn is_of_used_page(&self, image: &Image) -> bool {
        let bytes = self.bytes.get(image.range.clone()).unwrap_or_default();
        match image.compression {
            None => {
                let is_before_hole = image.hole_bytes == 0 || usize::from(image.hole_offset) >= 16;
                is_before_hole && u16_at(bytes, UPPER_AT).is_some_and(|upper| upper != 0)
            }
            Some(_) => bytes.len() >= ZEROS_PACKED_MAX,
        }
    }
}

/// The block of BRIN's range map in a record that inserts or updates a range's row.
const RANGE_MAP: u8 = 1;
/// Five limits of connections and processes stand before it.
const WAL_LEVEL_AT: usize = 20;
/// `pd_upper`.
const UPPER_AT: usize = 14;
/// A page of zeros takes less than this by every kind of compression.
const ZEROS_PACKED_MAX: usize = PAGE_BYTES / 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lsn;
    use crate::wal::{Compression, RecordHeader};

    const RELATION: RelFileLocator =
        RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };

    fn record(manager: u8, info: u8, bytes: &[u8], major: u32) -> Record<'_> {
        let facts = crate::MAJORS.iter().find(|facts| facts.major == major).unwrap();
        let total_bytes = 24;
        let xid = 0;
        let previous = Lsn(0);
        let crc = 0;
        let header = RecordHeader { total_bytes, xid, previous, info, manager, crc };
        Record { at: Lsn(8), end: Lsn(32), header, bytes, facts: &facts.wal }
    }

    fn block(image: Option<Image>) -> BlockReference {
        let relation = RELATION;
        let data = 0..0;
        BlockReference {
            id: 0,
            relation,
            fork: ForkNumber::MAIN,
            block: 1,
            will_init: false,
            image,
            data,
        }
    }

    fn image(compression: Option<Compression>, hole: (u16, u16), bytes: usize) -> Image {
        let (hole_offset, hole_bytes) = hole;
        Image { hole_offset, hole_bytes, applies: true, compression, range: 0..bytes }
    }

    #[test]
    fn files_are_made_cut_and_removed() {
        let check = |manager, info, words: &[u32], expected| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut parts = Parts::default();
            parts.main_data = 0..bytes.len();
            assert_eq!(record(manager, info, &bytes, 15).file_change(&parts), expected);
        };
        let made = FileChange::Made { relation: RELATION, fork: ForkNumber::INIT };
        check(2, 0x10, &[1663, 5, 16384, 3], Some(made));
        let cut = FileChange::Cut { relation: RELATION, blocks: 7 };
        check(2, 0x20, &[7, 1663, 5, 16384, 7], Some(cut));
        check(4, 0x20, &[5, 1, 1663], Some(FileChange::Database { oid: 5 }));
        check(2, 0x20, &[7, 1663, 5], None);
        check(10, 0x20, &[7, 1663, 5, 16384, 7], None);
    }

    #[test]
    fn the_wal_level_is_read() {
        let check = |manager, info, words: &[u32], expected| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut parts = Parts::default();
            parts.main_data = 0..bytes.len();
            assert_eq!(record(manager, info, &bytes, 15).wal_level(&parts), expected);
        };
        check(0, 0x60, &[100, 8, 10, 0, 64, 0, 0], Some(WalLevel::Minimal));
        check(0, 0x60, &[100, 8, 10, 0, 64, 1, 0], Some(WalLevel::Replica));
        check(0, 0x60, &[100, 8, 10, 0, 64], None);
        check(0, 0x70, &[100, 8, 10, 0, 64, 0, 0], None);
    }

    #[test]
    fn some_blocks_are_only_named() {
        let check = |manager, info, major, expected: bool| {
            let found = record(manager, info, &[], major).sets_page_lsn(&block(None));
            assert_eq!(found, expected, "{manager} {info:x} {major}");
        };
        check(10, 0x00, 15, true);
        check(9, 0x40, 15, false);
        check(9, 0x10, 18, true);
        check(9, 0x10, 19, false);
        check(12, 0x80, 15, false);
        check(12, 0x20, 17, true);
        check(0, 0xA0, 15, false);
        check(0, 0xB0, 15, false);
        check(15, 0x00, 15, true);
        check(18, 0x00, 15, false);
        check(128, 0x00, 15, false);
    }

    #[test]
    fn a_hints_image_proves_that_the_page_is_used_and_no_lsn() {
        let check = |info, image: Option<Image>, expected| {
            let record = record(0, info, &[], 17);
            let block = block(image);
            assert_eq!((record.is_hint_image(&block), record.sets_page_lsn(&block)), expected);
        };
        let applied = image(None, (24, 8000), 192);
        check(0xA0, Some(applied.clone()), (true, false));
        check(0xA0, Some(Image { applies: false, ..applied.clone() }), (false, false));
        check(0xA0, None, (false, false));
        check(0xB0, Some(applied), (false, false));
    }

    #[test]
    fn pages_that_were_never_used_have_no_lsn() {
        let check = |bytes: &[u8], image: Image, expected: bool| {
            let found = record(0, 0xB0, bytes, 15).sets_page_lsn(&block(Some(image)));
            assert_eq!(found, expected);
        };
        let mut page = vec![0; PAGE_BYTES];
        check(&page, image(None, (0, 0), PAGE_BYTES), false);
        check(&page[..100], image(Some(Compression::Pglz), (0, 0), 100), false);
        check(&page[..600], image(Some(Compression::Lz4), (0, 0), 600), true);
        page[15] = 0x20;
        check(&page, image(None, (0, 0), PAGE_BYTES), true);
        check(&page[..192], image(None, (24, 8000), 192), true);
        check(&page[..192], image(None, (8, 8000), 192), false);
        check(&[], image(None, (24, 8000), 192), false);
    }
}
