//! Resource managers and their types of records: numbers as in `rmgrlist.h` and the managers' headers,
//! names as `pg_waldump` prints them.

use std::ops::RangeInclusive;

use crate::wal::RecordHeader;

/// The type of a record: the resource manager and its part of the info bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType {
    /// The resource manager (`RmgrId`): one of [`RM_XLOG_ID`] and the like, or an extension's.
    pub manager: u8,
    /// Its part of the info bits, without flags.
    pub info: u8,
}

impl RecordType {
    /// The type of the record with this header.
    pub fn from_header(header: &RecordHeader) -> Self {
        let bits = if header.manager == RM_XACT_ID { XLOG_XACT_OPMASK } else { XLR_RMGR_INFO_MASK };
        Self { manager: header.manager, info: header.info & bits }
    }

    /// Its name in a major version, with its manager's: `Heap/INSERT+INIT`.
    pub fn name(self, major: u32) -> String {
        let manager = manager_name(self.manager)
            .map_or_else(|| format!("custom{:03}", self.manager), str::to_owned);
        match self.own_name(major) {
            Some(name) => format!("{manager}/{name}"),
            None => format!("{manager}/UNKNOWN ({:x})", self.info),
        }
    }

    fn own_name(self, major: u32) -> Option<&'static str> {
        if self.manager == RM_GENERIC_ID {
            return Some("Generic");
        }
        let other = DIFFERENCES
            .iter()
            .find(|(record_type, majors, _)| *record_type == self && majors.contains(&major));
        if let Some((.., name)) = other {
            return *name;
        }
        let (_, types) = MANAGERS.get(usize::from(self.manager))?;
        types.iter().find(|(info, _)| *info == self.info).map(|(_, name)| *name)
    }
}

/// The name of a resource manager of PostgreSQL's own; `None` of an extension's.
pub fn manager_name(manager: u8) -> Option<&'static str> {
    MANAGERS.get(usize::from(manager)).map(|(name, _)| *name)
}

/// The info bits that belong to the resource manager (`xlogrecord.h`).
pub const XLR_RMGR_INFO_MASK: u8 = 0xF0;
/// Those that are the type of a transaction's record; the first of its bits is a flag (`xact.h`).
pub const XLOG_XACT_OPMASK: u8 = 0x70;
/// Those that are the operation of a record of Heap and Heap2 (`heapam_xlog.h`).
pub const XLOG_HEAP_OPMASK: u8 = 0x70;
/// Those that are the operation of a record of BRIN; the other one is a flag (`brin_xlog.h`).
pub const XLOG_BRIN_OPMASK: u8 = 0x70;
/// Replay initializes the heap page (`heapam_xlog.h`).
pub const XLOG_HEAP_INIT_PAGE: u8 = 0x80;

/// Makes constants of the table: of each manager its number, of each type a [`RecordType`]; and
/// [`MANAGERS`], their names. Types with a flag (`+`) have no constant.
macro_rules! resource_managers {
    ($($id:ident = $number:literal, $manager:literal {
        $($record_type:ident = $info:literal, $name:literal;)*
        $(+ $init_info:literal, $init_name:literal;)*
    })*) => {
        $(
            #[doc = concat!("The resource manager `", $manager, "`.")]
            pub const $id: u8 = $number;
            $(
                #[doc = concat!("`", $manager, "/", $name, "`.")]
                pub const $record_type: RecordType = RecordType { manager: $id, info: $info };
            )*
        )*

        /// Names of the managers, in their numbers' order, and of their types of records.
        static MANAGERS: &[(&str, &[(u8, &str)])] = &[$((
            $manager,
            &[$(($info, $name),)* $(($init_info, $init_name),)*],
        ),)*];

        #[cfg(test)]
        static NUMBERS: &[u8] = &[$($id),*];
    };
}

// The types are those of 18.
resource_managers! {
    RM_XLOG_ID = 0, "XLOG" {
        XLOG_CHECKPOINT_SHUTDOWN = 0x00, "CHECKPOINT_SHUTDOWN";
        XLOG_CHECKPOINT_ONLINE = 0x10, "CHECKPOINT_ONLINE";
        XLOG_NOOP = 0x20, "NOOP";
        XLOG_NEXTOID = 0x30, "NEXTOID";
        XLOG_SWITCH = 0x40, "SWITCH";
        XLOG_BACKUP_END = 0x50, "BACKUP_END";
        XLOG_PARAMETER_CHANGE = 0x60, "PARAMETER_CHANGE";
        XLOG_RESTORE_POINT = 0x70, "RESTORE_POINT";
        XLOG_FPW_CHANGE = 0x80, "FPW_CHANGE";
        XLOG_END_OF_RECOVERY = 0x90, "END_OF_RECOVERY";
        XLOG_FPI_FOR_HINT = 0xA0, "FPI_FOR_HINT";
        XLOG_FPI = 0xB0, "FPI";
        XLOG_OVERWRITE_CONTRECORD = 0xD0, "OVERWRITE_CONTRECORD";
        XLOG_CHECKPOINT_REDO = 0xE0, "CHECKPOINT_REDO";
    }
    RM_XACT_ID = 1, "Transaction" {
        XLOG_XACT_COMMIT = 0x00, "COMMIT";
        XLOG_XACT_PREPARE = 0x10, "PREPARE";
        XLOG_XACT_ABORT = 0x20, "ABORT";
        XLOG_XACT_COMMIT_PREPARED = 0x30, "COMMIT_PREPARED";
        XLOG_XACT_ABORT_PREPARED = 0x40, "ABORT_PREPARED";
        XLOG_XACT_ASSIGNMENT = 0x50, "ASSIGNMENT";
        XLOG_XACT_INVALIDATIONS = 0x60, "INVALIDATION";
    }
    RM_SMGR_ID = 2, "Storage" {
        XLOG_SMGR_CREATE = 0x10, "CREATE";
        XLOG_SMGR_TRUNCATE = 0x20, "TRUNCATE";
    }
    RM_CLOG_ID = 3, "CLOG" {
        CLOG_ZEROPAGE = 0x00, "ZEROPAGE";
        CLOG_TRUNCATE = 0x10, "TRUNCATE";
    }
    RM_DBASE_ID = 4, "Database" {
        XLOG_DBASE_CREATE_FILE_COPY = 0x00, "CREATE_FILE_COPY";
        XLOG_DBASE_CREATE_WAL_LOG = 0x10, "CREATE_WAL_LOG";
        XLOG_DBASE_DROP = 0x20, "DROP";
    }
    RM_TBLSPC_ID = 5, "Tablespace" {
        XLOG_TBLSPC_CREATE = 0x00, "CREATE";
        XLOG_TBLSPC_DROP = 0x10, "DROP";
    }
    RM_MULTIXACT_ID = 6, "MultiXact" {
        XLOG_MULTIXACT_ZERO_OFF_PAGE = 0x00, "ZERO_OFF_PAGE";
        XLOG_MULTIXACT_ZERO_MEM_PAGE = 0x10, "ZERO_MEM_PAGE";
        XLOG_MULTIXACT_CREATE_ID = 0x20, "CREATE_ID";
        XLOG_MULTIXACT_TRUNCATE_ID = 0x30, "TRUNCATE_ID";
    }
    RM_RELMAP_ID = 7, "RelMap" {
        XLOG_RELMAP_UPDATE = 0x00, "UPDATE";
    }
    RM_STANDBY_ID = 8, "Standby" {
        XLOG_STANDBY_LOCK = 0x00, "LOCK";
        XLOG_RUNNING_XACTS = 0x10, "RUNNING_XACTS";
        XLOG_INVALIDATIONS = 0x20, "INVALIDATIONS";
    }
    RM_HEAP2_ID = 9, "Heap2" {
        XLOG_HEAP2_REWRITE = 0x00, "REWRITE";
        XLOG_HEAP2_PRUNE_ON_ACCESS = 0x10, "PRUNE_ON_ACCESS";
        XLOG_HEAP2_PRUNE_VACUUM_SCAN = 0x20, "PRUNE_VACUUM_SCAN";
        XLOG_HEAP2_PRUNE_VACUUM_CLEANUP = 0x30, "PRUNE_VACUUM_CLEANUP";
        XLOG_HEAP2_VISIBLE = 0x40, "VISIBLE";
        XLOG_HEAP2_MULTI_INSERT = 0x50, "MULTI_INSERT";
        XLOG_HEAP2_LOCK_UPDATED = 0x60, "LOCK_UPDATED";
        XLOG_HEAP2_NEW_CID = 0x70, "NEW_CID";
        + 0xD0, "MULTI_INSERT+INIT";
    }
    RM_HEAP_ID = 10, "Heap" {
        XLOG_HEAP_INSERT = 0x00, "INSERT";
        XLOG_HEAP_DELETE = 0x10, "DELETE";
        XLOG_HEAP_UPDATE = 0x20, "UPDATE";
        XLOG_HEAP_TRUNCATE = 0x30, "TRUNCATE";
        XLOG_HEAP_HOT_UPDATE = 0x40, "HOT_UPDATE";
        XLOG_HEAP_CONFIRM = 0x50, "HEAP_CONFIRM";
        XLOG_HEAP_LOCK = 0x60, "LOCK";
        XLOG_HEAP_INPLACE = 0x70, "INPLACE";
        + 0x80, "INSERT+INIT";
        + 0xA0, "UPDATE+INIT";
        + 0xC0, "HOT_UPDATE+INIT";
    }
    RM_BTREE_ID = 11, "Btree" {
        XLOG_BTREE_INSERT_LEAF = 0x00, "INSERT_LEAF";
        XLOG_BTREE_INSERT_UPPER = 0x10, "INSERT_UPPER";
        XLOG_BTREE_INSERT_META = 0x20, "INSERT_META";
        XLOG_BTREE_SPLIT_L = 0x30, "SPLIT_L";
        XLOG_BTREE_SPLIT_R = 0x40, "SPLIT_R";
        XLOG_BTREE_INSERT_POST = 0x50, "INSERT_POST";
        XLOG_BTREE_DEDUP = 0x60, "DEDUP";
        XLOG_BTREE_DELETE = 0x70, "DELETE";
        XLOG_BTREE_UNLINK_PAGE = 0x80, "UNLINK_PAGE";
        XLOG_BTREE_UNLINK_PAGE_META = 0x90, "UNLINK_PAGE_META";
        XLOG_BTREE_NEWROOT = 0xA0, "NEWROOT";
        XLOG_BTREE_MARK_PAGE_HALFDEAD = 0xB0, "MARK_PAGE_HALFDEAD";
        XLOG_BTREE_VACUUM = 0xC0, "VACUUM";
        XLOG_BTREE_REUSE_PAGE = 0xD0, "REUSE_PAGE";
        XLOG_BTREE_META_CLEANUP = 0xE0, "META_CLEANUP";
    }
    RM_HASH_ID = 12, "Hash" {
        XLOG_HASH_INIT_META_PAGE = 0x00, "INIT_META_PAGE";
        XLOG_HASH_INIT_BITMAP_PAGE = 0x10, "INIT_BITMAP_PAGE";
        XLOG_HASH_INSERT = 0x20, "INSERT";
        XLOG_HASH_ADD_OVFL_PAGE = 0x30, "ADD_OVFL_PAGE";
        XLOG_HASH_SPLIT_ALLOCATE_PAGE = 0x40, "SPLIT_ALLOCATE_PAGE";
        XLOG_HASH_SPLIT_PAGE = 0x50, "SPLIT_PAGE";
        XLOG_HASH_SPLIT_COMPLETE = 0x60, "SPLIT_COMPLETE";
        XLOG_HASH_MOVE_PAGE_CONTENTS = 0x70, "MOVE_PAGE_CONTENTS";
        XLOG_HASH_SQUEEZE_PAGE = 0x80, "SQUEEZE_PAGE";
        XLOG_HASH_DELETE = 0x90, "DELETE";
        XLOG_HASH_SPLIT_CLEANUP = 0xA0, "SPLIT_CLEANUP";
        XLOG_HASH_UPDATE_META_PAGE = 0xB0, "UPDATE_META_PAGE";
        XLOG_HASH_VACUUM_ONE_PAGE = 0xC0, "VACUUM_ONE_PAGE";
    }
    RM_GIN_ID = 13, "Gin" {
        XLOG_GIN_CREATE_PTREE = 0x10, "CREATE_PTREE";
        XLOG_GIN_INSERT = 0x20, "INSERT";
        XLOG_GIN_SPLIT = 0x30, "SPLIT";
        XLOG_GIN_VACUUM_PAGE = 0x40, "VACUUM_PAGE";
        XLOG_GIN_DELETE_PAGE = 0x50, "DELETE_PAGE";
        XLOG_GIN_UPDATE_META_PAGE = 0x60, "UPDATE_META_PAGE";
        XLOG_GIN_INSERT_LISTPAGE = 0x70, "INSERT_LISTPAGE";
        XLOG_GIN_DELETE_LISTPAGE = 0x80, "DELETE_LISTPAGE";
        XLOG_GIN_VACUUM_DATA_LEAF_PAGE = 0x90, "VACUUM_DATA_LEAF_PAGE";
    }
    RM_GIST_ID = 14, "Gist" {
        XLOG_GIST_PAGE_UPDATE = 0x00, "PAGE_UPDATE";
        XLOG_GIST_DELETE = 0x10, "DELETE";
        XLOG_GIST_PAGE_REUSE = 0x20, "PAGE_REUSE";
        XLOG_GIST_PAGE_SPLIT = 0x30, "PAGE_SPLIT";
        XLOG_GIST_PAGE_DELETE = 0x60, "PAGE_DELETE";
        XLOG_GIST_ASSIGN_LSN = 0x70, "ASSIGN_LSN";
    }
    RM_SEQ_ID = 15, "Sequence" {
        XLOG_SEQ_LOG = 0x00, "LOG";
    }
    RM_SPGIST_ID = 16, "SPGist" {
        XLOG_SPGIST_ADD_LEAF = 0x10, "ADD_LEAF";
        XLOG_SPGIST_MOVE_LEAFS = 0x20, "MOVE_LEAFS";
        XLOG_SPGIST_ADD_NODE = 0x30, "ADD_NODE";
        XLOG_SPGIST_SPLIT_TUPLE = 0x40, "SPLIT_TUPLE";
        XLOG_SPGIST_PICKSPLIT = 0x50, "PICKSPLIT";
        XLOG_SPGIST_VACUUM_LEAF = 0x60, "VACUUM_LEAF";
        XLOG_SPGIST_VACUUM_ROOT = 0x70, "VACUUM_ROOT";
        XLOG_SPGIST_VACUUM_REDIRECT = 0x80, "VACUUM_REDIRECT";
    }
    RM_BRIN_ID = 17, "BRIN" {
        XLOG_BRIN_CREATE_INDEX = 0x00, "CREATE_INDEX";
        XLOG_BRIN_INSERT = 0x10, "INSERT";
        XLOG_BRIN_UPDATE = 0x20, "UPDATE";
        XLOG_BRIN_SAMEPAGE_UPDATE = 0x30, "SAMEPAGE_UPDATE";
        XLOG_BRIN_REVMAP_EXTEND = 0x40, "REVMAP_EXTEND";
        XLOG_BRIN_DESUMMARIZE = 0x50, "DESUMMARIZE";
        + 0x90, "INSERT+INIT";
        + 0xA0, "UPDATE+INIT";
    }
    RM_COMMIT_TS_ID = 18, "CommitTs" {
        COMMIT_TS_ZEROPAGE = 0x00, "ZEROPAGE";
        COMMIT_TS_TRUNCATE = 0x10, "TRUNCATE";
    }
    RM_REPLORIGIN_ID = 19, "ReplicationOrigin" {
        XLOG_REPLORIGIN_SET = 0x00, "SET";
        XLOG_REPLORIGIN_DROP = 0x10, "DROP";
    }
    RM_GENERIC_ID = 20, "Generic" {
    }
    RM_LOGICALMSG_ID = 21, "LogicalMessage" {
        XLOG_LOGICAL_MESSAGE = 0x00, "MESSAGE";
    }
}

/// Not in 18: `XLOG/ASSIGN_LSN` of 19.
pub const XLOG_ASSIGN_LSN: RecordType = RecordType { manager: RM_XLOG_ID, info: 0xC0 };
/// Not in 18: `XLOG/LOGICAL_DECODING_STATUS_CHANGE` of 19.
pub const XLOG_LOGICAL_DECODING_STATUS_CHANGE: RecordType =
    RecordType { manager: RM_XLOG_ID, info: 0xF0 };
/// Not in 18: `Heap2/FREEZE_PAGE` of 14 to 16.
pub const XLOG_HEAP2_FREEZE_PAGE: RecordType = XLOG_HEAP2_PRUNE_VACUUM_CLEANUP;
/// Not in 18: `CommitTs/SETTS` of 13.
pub const COMMIT_TS_SETTS: RecordType = RecordType { manager: RM_COMMIT_TS_ID, info: 0x20 };

/// A record type's name in some major versions; `None`: it is not there.
type Difference = (RecordType, RangeInclusive<u32>, Option<&'static str>);

/// The differences of other major versions from 18.
static DIFFERENCES: [Difference; 16] = [
    (XLOG_ASSIGN_LSN, 19..=19, Some("ASSIGN_LSN")),
    (XLOG_CHECKPOINT_REDO, 13..=16, None),
    (XLOG_LOGICAL_DECODING_STATUS_CHANGE, 19..=19, Some("LOGICAL_DECODING_STATUS_CHANGE")),
    (XLOG_XACT_INVALIDATIONS, 13..=13, None),
    (XLOG_DBASE_CREATE_FILE_COPY, 13..=14, Some("CREATE")),
    (XLOG_DBASE_CREATE_WAL_LOG, 13..=14, Some("DROP")),
    (XLOG_DBASE_DROP, 13..=14, None),
    (XLOG_HEAP2_PRUNE_ON_ACCESS, 14..=16, Some("PRUNE")),
    (XLOG_HEAP2_PRUNE_ON_ACCESS, 13..=13, Some("CLEAN")),
    (XLOG_HEAP2_PRUNE_VACUUM_SCAN, 14..=16, Some("VACUUM")),
    (XLOG_HEAP2_PRUNE_VACUUM_SCAN, 13..=13, Some("FREEZE_PAGE")),
    (XLOG_HEAP2_PRUNE_VACUUM_CLEANUP, 14..=16, Some("FREEZE_PAGE")),
    (XLOG_HEAP2_PRUNE_VACUUM_CLEANUP, 13..=13, Some("CLEANUP_INFO")),
    (XLOG_HEAP2_VISIBLE, 19..=19, None),
    (XLOG_GIST_ASSIGN_LSN, 19..=19, None),
    (COMMIT_TS_SETTS, 13..=13, Some("SETTS")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_table_is_the_number() {
        let numbers: Vec<usize> = NUMBERS.iter().copied().map(usize::from).collect();
        assert_eq!(numbers, (0..MANAGERS.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_type_stands_twice() {
        for (manager, types) in MANAGERS {
            assert!(types.is_sorted_by(|(a, _), (b, _)| a % 0x80 < b % 0x80 || a < b), "{manager}");
            let mut infos: Vec<u8> = types.iter().map(|(info, _)| *info).collect();
            infos.sort_unstable();
            assert!(infos.array_windows().all(|[a, b]| a < b), "{manager}");
            assert!(infos.iter().all(|info| info & !XLR_RMGR_INFO_MASK == 0), "{manager}");
        }
    }

    #[test]
    fn types_are_called_as_pg_waldump_calls_them() {
        let check = |record_type: RecordType, major, expected: &str| {
            assert_eq!(record_type.name(major), expected);
        };
        check(XLOG_FPI_FOR_HINT, 18, "XLOG/FPI_FOR_HINT");
        check(XLOG_ASSIGN_LSN, 18, "XLOG/UNKNOWN (c0)");
        check(XLOG_ASSIGN_LSN, 19, "XLOG/ASSIGN_LSN");
        check(XLOG_HEAP2_PRUNE_ON_ACCESS, 13, "Heap2/CLEAN");
        check(XLOG_HEAP2_PRUNE_ON_ACCESS, 16, "Heap2/PRUNE");
        check(XLOG_HEAP2_PRUNE_ON_ACCESS, 17, "Heap2/PRUNE_ON_ACCESS");
        check(RecordType { manager: RM_HEAP_ID, info: 0x80 }, 18, "Heap/INSERT+INIT");
        check(RecordType { manager: RM_GENERIC_ID, info: 0x30 }, 18, "Generic/Generic");
        check(RecordType { manager: 130, info: 0x10 }, 18, "custom130/UNKNOWN (10)");
    }

    #[test]
    fn flags_are_no_part_of_a_type() {
        let check = |manager, info, expected: RecordType| {
            let total_bytes = 24;
            let xid = 0;
            let previous = crate::Lsn(0);
            let crc = 0;
            let header = RecordHeader { total_bytes, xid, previous, info, manager, crc };
            assert_eq!(RecordType::from_header(&header), expected);
        };
        check(RM_XACT_ID, 0x80, XLOG_XACT_COMMIT);
        check(RM_XACT_ID, 0xA3, XLOG_XACT_ABORT);
        check(RM_XLOG_ID, 0xA1, XLOG_FPI_FOR_HINT);
    }
}
