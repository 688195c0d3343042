//! What resource managers and their record types are called, as `pg_waldump` prints them.

use std::ops::RangeInclusive;

use crate::wal::RecordHeader;

/// The name of a resource manager of PostgreSQL's own (`rmgrlist.h`); `None` of an extension's.
pub fn manager_name(manager: u8) -> Option<&'static str> {
    MANAGERS.get(usize::from(manager)).map(|(name, _)| *name)
}

/// What kind of record it is: the resource manager and its part of the info bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType {
    /// The resource manager.
    pub manager: u8,
    /// Its part of the info bits, without flags.
    pub info: u8,
}

impl RecordType {
    /// The type of the record with this header.
    pub fn of(header: &RecordHeader) -> Self {
        // The first of a transaction's bits is a flag.
        let bits = if header.manager == TRANSACTION { 0x70 } else { 0xF0 };
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
        if self.manager == GENERIC {
            return Some("Generic");
        }
        let other = DIFFERENCES.iter().find(|(manager, info, majors, _)| {
            (*manager, *info) == (self.manager, self.info) && majors.contains(&major)
        });
        if let Some((.., name)) = other {
            return *name;
        }
        let (_, types) = MANAGERS.get(usize::from(self.manager))?;
        types.iter().find(|(info, _)| *info == self.info).map(|(_, name)| *name)
    }
}

const TRANSACTION: u8 = 1;
const DATABASE: u8 = 4;
const HEAP2: u8 = 9;
const GIST: u8 = 14;
const COMMIT_TS: u8 = 18;
const GENERIC: u8 = 20;

/// Resource managers in their numbers' order, each with the types of its records in 18. Source:
/// `rm_identify` of each, as `pg_waldump` shows it.
static MANAGERS: [(&str, &[(u8, &str)]); 22] = [
    (
        "XLOG",
        &[
            (0x00, "CHECKPOINT_SHUTDOWN"),
            (0x10, "CHECKPOINT_ONLINE"),
            (0x20, "NOOP"),
            (0x30, "NEXTOID"),
            (0x40, "SWITCH"),
            (0x50, "BACKUP_END"),
            (0x60, "PARAMETER_CHANGE"),
            (0x70, "RESTORE_POINT"),
            (0x80, "FPW_CHANGE"),
            (0x90, "END_OF_RECOVERY"),
            (0xA0, "FPI_FOR_HINT"),
            (0xB0, "FPI"),
            (0xD0, "OVERWRITE_CONTRECORD"),
            (0xE0, "CHECKPOINT_REDO"),
        ],
    ),
    (
        "Transaction",
        &[
            (0x00, "COMMIT"),
            (0x10, "PREPARE"),
            (0x20, "ABORT"),
            (0x30, "COMMIT_PREPARED"),
            (0x40, "ABORT_PREPARED"),
            (0x50, "ASSIGNMENT"),
            (0x60, "INVALIDATION"),
        ],
    ),
    ("Storage", &[(0x10, "CREATE"), (0x20, "TRUNCATE")]),
    ("CLOG", &[(0x00, "ZEROPAGE"), (0x10, "TRUNCATE")]),
    ("Database", &[(0x00, "CREATE_FILE_COPY"), (0x10, "CREATE_WAL_LOG"), (0x20, "DROP")]),
    ("Tablespace", &[(0x00, "CREATE"), (0x10, "DROP")]),
    (
        "MultiXact",
        &[
            (0x00, "ZERO_OFF_PAGE"),
            (0x10, "ZERO_MEM_PAGE"),
            (0x20, "CREATE_ID"),
            (0x30, "TRUNCATE_ID"),
        ],
    ),
    ("RelMap", &[(0x00, "UPDATE")]),
    ("Standby", &[(0x00, "LOCK"), (0x10, "RUNNING_XACTS"), (0x20, "INVALIDATIONS")]),
    (
        "Heap2",
        &[
            (0x00, "REWRITE"),
            (0x10, "PRUNE_ON_ACCESS"),
            (0x20, "PRUNE_VACUUM_SCAN"),
            (0x30, "PRUNE_VACUUM_CLEANUP"),
            (0x40, "VISIBLE"),
            (0x50, "MULTI_INSERT"),
            (0x60, "LOCK_UPDATED"),
            (0x70, "NEW_CID"),
            (0xD0, "MULTI_INSERT+INIT"),
        ],
    ),
    (
        "Heap",
        &[
            (0x00, "INSERT"),
            (0x10, "DELETE"),
            (0x20, "UPDATE"),
            (0x30, "TRUNCATE"),
            (0x40, "HOT_UPDATE"),
            (0x50, "HEAP_CONFIRM"),
            (0x60, "LOCK"),
            (0x70, "INPLACE"),
            (0x80, "INSERT+INIT"),
            (0xA0, "UPDATE+INIT"),
            (0xC0, "HOT_UPDATE+INIT"),
        ],
    ),
    (
        "Btree",
        &[
            (0x00, "INSERT_LEAF"),
            (0x10, "INSERT_UPPER"),
            (0x20, "INSERT_META"),
            (0x30, "SPLIT_L"),
            (0x40, "SPLIT_R"),
            (0x50, "INSERT_POST"),
            (0x60, "DEDUP"),
            (0x70, "DELETE"),
            (0x80, "UNLINK_PAGE"),
            (0x90, "UNLINK_PAGE_META"),
            (0xA0, "NEWROOT"),
            (0xB0, "MARK_PAGE_HALFDEAD"),
            (0xC0, "VACUUM"),
            (0xD0, "REUSE_PAGE"),
            (0xE0, "META_CLEANUP"),
        ],
    ),
    (
        "Hash",
        &[
            (0x00, "INIT_META_PAGE"),
            (0x10, "INIT_BITMAP_PAGE"),
            (0x20, "INSERT"),
            (0x30, "ADD_OVFL_PAGE"),
            (0x40, "SPLIT_ALLOCATE_PAGE"),
            (0x50, "SPLIT_PAGE"),
            (0x60, "SPLIT_COMPLETE"),
            (0x70, "MOVE_PAGE_CONTENTS"),
            (0x80, "SQUEEZE_PAGE"),
            (0x90, "DELETE"),
            (0xA0, "SPLIT_CLEANUP"),
            (0xB0, "UPDATE_META_PAGE"),
            (0xC0, "VACUUM_ONE_PAGE"),
        ],
    ),
    (
        "Gin",
        &[
            (0x10, "CREATE_PTREE"),
            (0x20, "INSERT"),
            (0x30, "SPLIT"),
            (0x40, "VACUUM_PAGE"),
            (0x50, "DELETE_PAGE"),
            (0x60, "UPDATE_META_PAGE"),
            (0x70, "INSERT_LISTPAGE"),
            (0x80, "DELETE_LISTPAGE"),
            (0x90, "VACUUM_DATA_LEAF_PAGE"),
        ],
    ),
    (
        "Gist",
        &[
            (0x00, "PAGE_UPDATE"),
            (0x10, "DELETE"),
            (0x20, "PAGE_REUSE"),
            (0x30, "PAGE_SPLIT"),
            (0x60, "PAGE_DELETE"),
            (0x70, "ASSIGN_LSN"),
        ],
    ),
    ("Sequence", &[(0x00, "LOG")]),
    (
        "SPGist",
        &[
            (0x10, "ADD_LEAF"),
            (0x20, "MOVE_LEAFS"),
            (0x30, "ADD_NODE"),
            (0x40, "SPLIT_TUPLE"),
            (0x50, "PICKSPLIT"),
            (0x60, "VACUUM_LEAF"),
            (0x70, "VACUUM_ROOT"),
            (0x80, "VACUUM_REDIRECT"),
        ],
    ),
    (
        "BRIN",
        &[
            (0x00, "CREATE_INDEX"),
            (0x10, "INSERT"),
            (0x20, "UPDATE"),
            (0x30, "SAMEPAGE_UPDATE"),
            (0x40, "REVMAP_EXTEND"),
            (0x50, "DESUMMARIZE"),
            (0x90, "INSERT+INIT"),
            (0xA0, "UPDATE+INIT"),
        ],
    ),
    ("CommitTs", &[(0x00, "ZEROPAGE"), (0x10, "TRUNCATE")]),
    ("ReplicationOrigin", &[(0x00, "SET"), (0x10, "DROP")]),
    ("Generic", &[]),
    ("LogicalMessage", &[(0x00, "MESSAGE")]),
];

/// A record type's name in some major versions; `None`: it is not there.
type Difference = (u8, u8, RangeInclusive<u32>, Option<&'static str>);

/// Where other major versions differ from 18.
static DIFFERENCES: [Difference; 16] = [
    (0, 0xC0, 19..=19, Some("ASSIGN_LSN")),
    (0, 0xE0, 13..=16, None),
    (0, 0xF0, 19..=19, Some("LOGICAL_DECODING_STATUS_CHANGE")),
    (TRANSACTION, 0x60, 13..=13, None),
    (DATABASE, 0x00, 13..=14, Some("CREATE")),
    (DATABASE, 0x10, 13..=14, Some("DROP")),
    (DATABASE, 0x20, 13..=14, None),
    (HEAP2, 0x10, 14..=16, Some("PRUNE")),
    (HEAP2, 0x10, 13..=13, Some("CLEAN")),
    (HEAP2, 0x20, 14..=16, Some("VACUUM")),
    (HEAP2, 0x20, 13..=13, Some("FREEZE_PAGE")),
    (HEAP2, 0x30, 14..=16, Some("FREEZE_PAGE")),
    (HEAP2, 0x30, 13..=13, Some("CLEANUP_INFO")),
    (HEAP2, 0x40, 19..=19, None),
    (GIST, 0x70, 19..=19, None),
    (COMMIT_TS, 0x20, 13..=13, Some("SETTS")),
];
