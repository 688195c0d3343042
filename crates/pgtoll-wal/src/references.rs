//! The last records that name blocks: what a page must have been changed by last.

use std::collections::BTreeMap;

use pgtoll_format::wal::rmgr::{
    XLOG_CHECKPOINT_SHUTDOWN, XLOG_FPI_FOR_HINT, XLOG_HEAP2_VISIBLE, XLOG_PARAMETER_CHANGE,
};
use pgtoll_format::wal::{Event, FileChange, Parts, Record, RecordType};
use pgtoll_format::{BlockNumber, ForkNumber, Lsn, RelationFork, WalLevel};

use crate::Collect;

/// A record that names a block: with an image of it, with data, or to make it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamingRecord {
    /// Its start.
    pub at: Lsn,
    /// Its end: the LSN of the page from then on, if the record changed it.
    pub end: Lsn,
    /// Its kind.
    pub record_type: RecordType,
}

/// The history of a block in a stretch of WAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockHistory {
    /// The last record that names it.
    pub last: Option<NamingRecord>,
    /// The last one that is no `Heap2/VISIBLE`, which leaves the LSN of a table's page as it is where
    /// hints are not logged.
    pub last_but_visible: Option<NamingRecord>,
    /// The last one that is no image for hints (`XLOG/FPI_FOR_HINT`), which need not leave its end as
    /// the page's LSN.
    pub last_but_hints: Option<NamingRecord>,
    /// The end of the images for hints behind that one, the first ones of very many.
    pub hints: Vec<Lsn>,
    /// The end of the last record that remade the file, cut it before this block, or made, copied
    /// or removed its database.
    pub file_change: Option<Lsn>,
}

impl BlockHistory {
    fn name(&mut self, naming: NamingRecord) {
        self.last = Some(naming);
        if naming.record_type != XLOG_HEAP2_VISIBLE {
            self.last_but_visible = Some(naming);
        }
        if naming.record_type != XLOG_FPI_FOR_HINT {
            self.last_but_hints = Some(naming);
            self.hints.clear();
        } else if self.hints.len() < HINTS_MAX {
            self.hints.push(naming.end);
        }
    }

    fn extend(&mut self, later: Self) {
        self.last = later.last.or(self.last);
        self.last_but_visible = later.last_but_visible.or(self.last_but_visible);
        if later.last_but_hints.is_some() {
            self.last_but_hints = later.last_but_hints;
            self.hints.clear();
        }
        self.hints.extend(later.hints);
        self.hints.truncate(HINTS_MAX);
        self.file_change = later.file_change.or(self.file_change);
    }
}

/// Up to where WAL is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalLimit {
    /// The checkpoint of a shutdown, whose record begins here.
    Shutdown(Lsn),
    /// The insert position of a running server (`pg_current_wal_insert_lsn()`).
    Insert(Lsn),
}

impl WalLimit {
    /// No record that begins here or later counts.
    pub fn lsn(self) -> Lsn {
        match self {
            Self::Shutdown(at) | Self::Insert(at) => at,
        }
    }

    /// Whether nothing is between this record and the limit. Page headers are: a record may end where
    /// a page begins, and the next one begins behind that page's header.
    fn is_reached(self, record: &Record<'_>) -> bool {
        match self {
            Self::Shutdown(at) => {
                record.at == at
                    && RecordType::from_header(&record.header) == XLOG_CHECKPOINT_SHUTDOWN
            }
            Self::Insert(at) => {
                let header =
                    if record.end.is_aligned(WAL_PAGE_BYTES) { PAGE_HEADER_MAX } else { 0 };
                record.at < at && record.end <= at && at.0 - record.end.0 <= header
            }
        }
    }
}

/// Every page of WAL begins at a multiple of this, the smallest `XLOG_BLCKSZ`.
const WAL_PAGE_BYTES: u64 = 1024;
/// The longest header of a page. A record that names a block is longer.
const PAGE_HEADER_MAX: u64 = 40;

/// Collects of some blocks the last records that name them, from the last gap on.
#[derive(Clone, Debug)]
pub struct BlockReferences {
    blocks: BTreeMap<RelationFork, BTreeMap<BlockNumber, BlockHistory>>,
    limit: WalLimit,
    is_reached: bool,
    first: Option<Lsn>,
    minimal: Option<Lsn>,
    /// The start of each checkpoint's record, its redo point, and when it was made.
    checkpoints: BTreeMap<Lsn, (Lsn, i64)>,
}

impl BlockReferences {
    /// Collects the changes of these blocks in the WAL up to this place.
    pub fn new(
        blocks: impl IntoIterator<Item = (RelationFork, BlockNumber)>,
        limit: WalLimit,
    ) -> Self {
        let mut wanted = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (fork, block) in blocks {
            wanted.entry(fork).or_default().insert(block, BlockHistory::default());
        }
        let first = None;
        let minimal = None;
        let checkpoints = BTreeMap::new();
        Self { blocks: wanted, limit, is_reached: false, first, minimal, checkpoints }
    }

    /// Returns the history of a block; `None`: it was not requested.
    pub fn history(&self, fork: RelationFork, block: BlockNumber) -> Option<BlockHistory> {
        self.blocks.get(&fork)?.get(&block).cloned()
    }

    /// Returns the start of the first record behind the last gap.
    pub fn first(&self) -> Option<Lsn> {
        self.first
    }

    /// Whether the WAL leads to the limit.
    pub fn reaches_limit(&self) -> bool {
        self.is_reached
    }

    /// The redo point of the checkpoint whose record begins here, and when it was made, in seconds
    /// since 1970; `None`: no such record begins here.
    pub fn checkpoint_at(&self, at: Lsn) -> Option<(Lsn, i64)> {
        self.checkpoints.get(&at).copied()
    }

    /// The end of the last record that sets `wal_level` to `minimal`.
    pub fn minimal(&self) -> Option<Lsn> {
        self.minimal
    }

    fn change_files(&mut self, change: FileChange, end: Lsn) {
        for (fork, blocks) in &mut self.blocks {
            let from = match change {
                FileChange::Made { relation, fork: number }
                    if (RelationFork { relation, number }) == *fork =>
                {
                    0
                }
                FileChange::Cut { relation, blocks }
                    if (RelationFork { relation, number: ForkNumber::MAIN }) == *fork =>
                {
                    blocks
                }
                FileChange::Database { oid } if oid == fork.relation.database => 0,
                _ => continue,
            };
            for (_, history) in blocks.range_mut(from..) {
                history.file_change = Some(end);
            }
        }
    }
}

impl Collect for BlockReferences {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        self.first.get_or_insert(record.at);
        let record_type = RecordType::from_header(&record.header);
        if let Some(Event::Checkpoint { redo, time_s, .. }) = record.event(parts) {
            self.checkpoints.insert(record.at, (redo, time_s));
        }
        self.is_reached |= self.limit.is_reached(record);
        if record.at >= self.limit.lsn() {
            return;
        }
        if let Some(change) = record.file_change(parts) {
            self.change_files(change, record.end);
        }
        if record_type == XLOG_PARAMETER_CHANGE
            && record.wal_level(parts) == Some(WalLevel::Minimal)
        {
            self.minimal = Some(record.end);
        }
        for block in &parts.blocks {
            let fork = RelationFork { relation: block.relation, number: block.fork };
            let found = self.blocks.get_mut(&fork).and_then(|item| item.get_mut(&block.block));
            let Some(history) = found else { continue };
            history.name(NamingRecord { at: record.at, end: record.end, record_type });
        }
    }

    fn append(&mut self, later: Self) {
        for (fork, blocks) in later.blocks {
            let own = self.blocks.entry(fork).or_default();
            for (block, history) in blocks {
                own.entry(block).or_default().extend(history);
            }
        }
        self.first = self.first.or(later.first);
        self.is_reached |= later.is_reached;
        self.minimal = later.minimal.or(self.minimal);
        self.checkpoints.extend(later.checkpoints);
    }

    /// A gap: unread WAL may have changed earlier blocks.
    fn gap(&mut self, _: Lsn, _: Lsn) {
        for history in self.blocks.values_mut().flat_map(BTreeMap::values_mut) {
            *history = BlockHistory::default();
        }
        (self.first, self.minimal, self.is_reached) = (None, None, false);
        self.checkpoints.clear();
    }
}

/// A page gets one in each checkpoint cycle, or as many as sessions read it at once.
const HINTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use pgtoll_format::wal::rmgr::{XLOG_HEAP_INSERT, XLOG_SMGR_TRUNCATE};
    use pgtoll_format::wal::{BlockReference, RecordHeader};
    use pgtoll_format::{MAJORS, RelFileLocator};

    use super::*;

    const RELATION: RelFileLocator =
        RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
    const FORK: RelationFork = RelationFork { relation: RELATION, number: ForkNumber::MAIN };
    const CHECKPOINT: Lsn = Lsn(800);

    fn collector() -> BlockReferences {
        BlockReferences::new([(FORK, 3), (FORK, 4)], WalLimit::Shutdown(CHECKPOINT))
    }

    /// A record of 8 bytes that names this block of the relation.
    fn add(to: &mut BlockReferences, at: u64, record_type: RecordType, block: u32, data: &[u32]) {
        let bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
        let manager = record_type.manager;
        let info = record_type.info;
        let total_bytes = 24;
        let xid = 0;
        let previous = Lsn(0);
        let crc = 0;
        let header = RecordHeader { total_bytes, xid, previous, info, manager, crc };
        let facts = &MAJORS[0].wal;
        let record = Record { at: Lsn(at), end: Lsn(at + 8), header, bytes: &bytes, facts };
        let mut parts = Parts::default();
        parts.main_data = 0..bytes.len();
        if data.is_empty() {
            parts.blocks.push(BlockReference {
                id: 0,
                relation: RELATION,
                fork: ForkNumber::MAIN,
                block,
                will_init: false,
                image: None,
                data: 0..0,
            });
        }
        to.add(&record, &parts);
    }

    fn ends(references: &BlockReferences, block: u32) -> (Option<u64>, Option<u64>, Option<u64>) {
        let history = references.history(FORK, block).unwrap();
        let end = |naming: Option<NamingRecord>| naming.map(|reference| reference.end.0);
        (end(history.last), end(history.last_but_visible), history.file_change.map(|at| at.0))
    }

    #[test]
    fn the_last_record_that_names_a_block_is_kept() {
        let mut all = collector();
        add(&mut all, 80, XLOG_HEAP_INSERT, 3, &[]);
        add(&mut all, 88, XLOG_HEAP_INSERT, 5, &[]);
        add(&mut all, 96, XLOG_HEAP2_VISIBLE, 3, &[]);
        assert_eq!(ends(&all, 3), (Some(104), Some(88), None));
        assert_eq!(ends(&all, 4), (None, None, None));
        assert_eq!(all.history(FORK, 5), None);
        let mut later = collector();
        add(&mut later, 104, XLOG_HEAP_INSERT, 4, &[]);
        add(&mut later, 800, XLOG_CHECKPOINT_SHUTDOWN, 9, &[]);
        add(&mut later, 808, XLOG_HEAP_INSERT, 3, &[]);
        all.append(later);
        assert_eq!(ends(&all, 3), (Some(104), Some(88), None));
        assert_eq!(ends(&all, 4), (Some(112), Some(112), None));
        assert_eq!((all.first(), all.reaches_limit()), (Some(Lsn(80)), true));
    }

    #[test]
    fn the_wal_of_a_running_server_ends_where_its_next_record_would_begin() {
        let reaches = |at: u64, limit: u64| {
            let mut all = BlockReferences::new([(FORK, 3)], WalLimit::Insert(Lsn(limit)));
            add(&mut all, at, XLOG_HEAP_INSERT, 3, &[]);
            all.reaches_limit()
        };
        assert!(reaches(80, 88));
        assert!(!reaches(80, 96) && !reaches(80, 84) && !reaches(88, 88));
        // Behind a page's header.
        assert!(reaches(8184, 8192 + 24) && reaches(8184, 8192 + 40) && reaches(8184, 8192));
        assert!(!reaches(8184, 8192 + 48));
    }

    #[test]
    fn images_for_hints_are_kept_up_to_the_next_change() {
        let mut all = collector();
        add(&mut all, 80, XLOG_FPI_FOR_HINT, 3, &[]);
        add(&mut all, 88, XLOG_HEAP_INSERT, 3, &[]);
        add(&mut all, 96, XLOG_FPI_FOR_HINT, 3, &[]);
        let pick = |all: &BlockReferences| {
            let history = all.history(FORK, 3).unwrap();
            let but_hints = history.last_but_hints.map(|last_but_hint| last_but_hint.end.0);
            (but_hints, history.hints.iter().map(|hint| hint.0).collect::<Vec<_>>())
        };
        assert_eq!(pick(&all), (Some(96), vec![104]));
        let mut later = collector();
        add(&mut later, 104, XLOG_FPI_FOR_HINT, 3, &[]);
        all.append(later);
        assert_eq!(pick(&all), (Some(96), vec![104, 112]));
        assert_eq!(ends(&all, 3), (Some(112), Some(112), None));
        let mut later = collector();
        add(&mut later, 112, XLOG_HEAP2_VISIBLE, 3, &[]);
        add(&mut later, 120, XLOG_FPI_FOR_HINT, 3, &[]);
        all.append(later);
        assert_eq!(pick(&all), (Some(120), vec![128]));
    }

    #[test]
    fn a_file_that_is_cut_is_told_of_the_blocks_behind() {
        let mut all = collector();
        add(&mut all, 80, XLOG_SMGR_TRUNCATE, 0, &[4, 1663, 5, 16384, 7]);
        assert_eq!(ends(&all, 3), (None, None, None));
        assert_eq!(ends(&all, 4), (None, None, Some(88)));
    }

    #[test]
    fn nothing_is_known_from_before_a_gap() {
        let mut all = collector();
        add(&mut all, 80, XLOG_HEAP_INSERT, 3, &[]);
        add(&mut all, 88, XLOG_PARAMETER_CHANGE, 9, &[100, 8, 10, 0, 64, 0, 0]);
        assert_eq!(all.minimal(), Some(Lsn(96)));
        all.gap(Lsn(96), Lsn(200));
        let mut later = collector();
        add(&mut later, 200, XLOG_HEAP_INSERT, 4, &[]);
        all.append(later);
        assert_eq!((ends(&all, 3), all.first()), ((None, None, None), Some(Lsn(200))));
        assert_eq!(all.minimal(), None);
    }
}
