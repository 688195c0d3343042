//! Blocks that WAL changed, with the LSN of the last change.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pgtoll_format::wal::rmgr::{XLOG_CHECKPOINT_SHUTDOWN, XLOG_FPI};
use pgtoll_format::wal::{BlockReference, FileChange, Parts, Record, RecordType};
use pgtoll_format::{ForkNumber, Lsn, RelationFork};
use rustc_hash::{FxHashMap, FxHashSet};

use pgtoll_wal::Collect;

/// The last change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change(u64);

impl Change {
    /// Records end at multiples of 8 bytes.
    const IS_FREED: u64 = 1;
    const IS_HINT: u64 = 2;
    const IS_NEW_PAGE: u64 = 4;

    pub(super) fn new(lsn: Lsn, is_freed: bool) -> Self {
        Self(lsn.0 & !7 | u64::from(is_freed))
    }

    /// A change by a record that is only the image of a new page.
    pub(super) fn new_page(lsn: Lsn) -> Self {
        Self(lsn.0 & !7 | Self::IS_NEW_PAGE)
    }

    /// Makes the change of an image of a page for its hints, without an earlier change.
    pub(super) fn hint(lsn: Lsn) -> Self {
        Self(lsn.0 & !7 | Self::IS_HINT)
    }

    /// Joins a block's change with a later one: hints do not change the page.
    fn then(self, later: Self) -> Self {
        if later.is_hint() && !self.is_hint() { self } else { later }
    }

    /// The end of its record.
    pub(super) fn lsn(self) -> Lsn {
        Lsn(self.0).align_down(8)
    }

    /// Only hints were changed: the page was in use, and its LSN may be an older one.
    pub(super) fn is_hint(self) -> bool {
        self.0 & Self::IS_HINT != 0
    }

    /// The page was logged whole when it was made: access methods may have written it before, without
    /// an LSN (sorted builds of `GiST` indexes).
    pub(super) fn is_new_page(self) -> bool {
        self.0 & Self::IS_NEW_PAGE != 0
    }

    /// It took the page out of its index: nothing depends on its content.
    pub(super) fn is_freed(self) -> bool {
        self.0 & Self::IS_FREED != 0
    }
}

/// Up to where changes are known to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Horizon {
    /// All of them: the server was stopped in good order, with the checkpoint whose record begins
    /// here.
    Shutdown(Lsn),
    /// Those of records before this place: the redo point of the last completed checkpoint.
    Redo(Lsn),
}

impl Horizon {
    /// Changes of records that begin before this place are on the disk.
    pub(super) fn lsn(self) -> Lsn {
        match self {
            Self::Shutdown(lsn) | Self::Redo(lsn) => lsn,
        }
    }

    /// Whether a record shows that WAL was read up to the horizon.
    fn is_reached_by(self, record: &Record<'_>) -> bool {
        match self {
            Self::Shutdown(checkpoint) => {
                let is_shutdown =
                    RecordType::from_header(&record.header) == XLOG_CHECKPOINT_SHUTDOWN;
                record.at == checkpoint && is_shutdown
            }
            Self::Redo(redo) => record.at >= redo,
        }
    }
}

/// The blocks to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Changes of these forks are kept.
    pub(super) forks: &'a FxHashSet<RelationFork>,
    /// Changes that are on the disk are kept.
    pub(super) horizon: Horizon,
    /// This many blocks at most: the newest changes.
    pub(super) most: usize,
}

/// The last changes of blocks in a stretch of WAL.
pub(super) struct Changes<'a> {
    wanted: Wanted<'a>,
    /// By fork and block.
    pub(super) blocks: FxHashMap<RelationFork, FxHashMap<u32, Change>>,
    count: usize,
    /// Files for which earlier WAL holds no more.
    cut: Cuts,
    /// Those of them behind the horizon.
    cut_later: Cuts,
    /// WAL was read up to the horizon.
    pub(super) reaches_horizon: bool,
    /// Changes up to here were too many to be kept.
    pub(super) dropped: Option<Lsn>,
}

/// Forks that were cut, made or removed.
#[derive(Debug, Default)]
struct Cuts {
    /// From which block on.
    forks: BTreeMap<RelationFork, u32>,
    /// All of these databases.
    databases: BTreeSet<u32>,
}

impl Cuts {
    fn add_fork(&mut self, fork: RelationFork, from: u32) {
        let known = self.forks.entry(fork).or_insert(from);
        *known = from.min(*known);
    }

    fn has(&self, fork: RelationFork, block: u32) -> bool {
        self.databases.contains(&fork.relation.database)
            || self.forks.get(&fork).is_some_and(|from| *from <= block)
    }
}

impl<'a> Changes<'a> {
    pub(super) fn new(wanted: Wanted<'a>) -> Self {
        Self {
            wanted,
            blocks: FxHashMap::default(),
            count: 0,
            cut: Cuts::default(),
            cut_later: Cuts::default(),
            reaches_horizon: false,
            dropped: None,
        }
    }

    /// Whether WAL behind the horizon cut this block off, or made or removed its file.
    pub(super) fn is_cut_later(&self, fork: RelationFork, block: u32) -> bool {
        self.cut_later.has(fork, block)
    }

    fn apply(&mut self, change: FileChange, is_later: bool) {
        let (fork, from) = match change {
            FileChange::Made { relation, fork } => (RelationFork { relation, number: fork }, 0),
            FileChange::Cut { relation, blocks } => {
                (RelationFork { relation, number: ForkNumber::MAIN }, blocks)
            }
            FileChange::Database { oid } => {
                self.forget_database(oid);
                if is_later {
                    self.cut_later.databases.insert(oid);
                }
                return;
            }
        };
        self.forget(fork, from);
        if is_later {
            self.cut_later.add_fork(fork, from);
        }
    }

    fn block(&mut self, record: &Record<'_>, block: &BlockReference) {
        let fork = RelationFork { relation: block.relation, number: block.fork };
        if !self.wanted.forks.contains(&fork) {
            return;
        }
        let change = if !record.sets_page_lsn(block) && !record.is_hint_image(block) {
            return;
        } else if RecordType::from_header(&record.header) == XLOG_FPI {
            Change::new_page(record.end)
        } else if record.sets_page_lsn(block) {
            Change::new(record.end, record.frees_page(block))
        } else {
            Change::hint(record.end)
        };
        let blocks = self.blocks.entry(fork).or_default();
        self.count += usize::from(put(blocks, block.block, change));
        self.bound();
    }

    fn forget(&mut self, fork: RelationFork, from: u32) {
        if let Some(blocks) = self.blocks.get_mut(&fork) {
            let before = blocks.len();
            blocks.retain(|block, _| *block < from);
            self.count -= before - blocks.len();
        }
        self.cut.add_fork(fork, from);
    }

    fn forget_database(&mut self, oid: u32) {
        self.blocks.retain(|fork, _| fork.relation.database != oid);
        self.count = self.blocks.values().map(FxHashMap::len).sum();
        self.cut.databases.insert(oid);
    }

    /// Drops the blocks that were changed longest ago, if there are too many. Whatever
    /// is given up, what is left is true.
    fn bound(&mut self) {
        while self.count > self.wanted.most {
            let all = || self.blocks.values().flat_map(FxHashMap::values).map(|item| item.lsn());
            let (Some(first), Some(last)) = (all().min(), all().max()) else { return };
            let middle = first + (last - first) / 2;
            for blocks in self.blocks.values_mut() {
                blocks.retain(|_, change| change.lsn() > middle);
            }
            self.count = self.blocks.values().map(FxHashMap::len).sum();
            self.dropped = self.dropped.max(Some(middle));
        }
    }
}

/// Adds a block's change; true: it is the first one.
fn put(blocks: &mut FxHashMap<u32, Change>, block: u32, change: Change) -> bool {
    match blocks.entry(block) {
        Entry::Occupied(mut before) => {
            let both = before.get().then(change);
            before.insert(both);
            false
        }
        Entry::Vacant(none) => {
            none.insert(change);
            true
        }
    }
}

impl Collect for Changes<'_> {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        let horizon = self.wanted.horizon;
        self.reaches_horizon |= horizon.is_reached_by(record);
        let is_later = record.at >= horizon.lsn();
        match record.file_change(parts) {
            Some(change) => self.apply(change, is_later),
            None if is_later => {}
            None => parts.blocks.iter().for_each(|block| self.block(record, block)),
        }
    }

    fn append(&mut self, later: Self) {
        later.cut.forks.into_iter().for_each(|(fork, from)| self.forget(fork, from));
        later.cut.databases.into_iter().for_each(|oid| self.forget_database(oid));
        let Cuts { forks, databases } = later.cut_later;
        for (fork, from) in forks {
            self.cut_later.add_fork(fork, from);
        }
        self.cut_later.databases.extend(databases);
        for (fork, blocks) in later.blocks {
            let own = self.blocks.entry(fork).or_default();
            own.reserve(blocks.len());
            for (block, change) in blocks {
                self.count += usize::from(put(own, block, change));
            }
        }
        self.reaches_horizon |= later.reaches_horizon;
        self.dropped = self.dropped.max(later.dropped);
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_format::wal::rmgr::{
        XLOG_DBASE_CREATE_FILE_COPY, XLOG_FPI_FOR_HINT, XLOG_HEAP_INSERT, XLOG_SMGR_CREATE,
        XLOG_SMGR_TRUNCATE,
    };
    use pgtoll_format::wal::{Image, RecordHeader};
    use pgtoll_format::{MAJORS, RelFileLocator};
    use proptest::prelude::*;

    use super::*;

    /// What a record says.
    #[derive(Clone, Copy, Debug)]
    enum Says {
        Change { number: u32, block: u32 },
        Hint { number: u32, block: u32 },
        Cut { number: u32, blocks: u32 },
        Made { number: u32 },
        Database { oid: u32 },
    }

    fn fork(number: u32) -> RelationFork {
        let relation =
            RelFileLocator { tablespace: 1663, database: number % 2, rel_number: number };
        RelationFork { relation, number: ForkNumber::MAIN }
    }

    /// The record number `place` of the WAL, each of which has 8 bytes.
    fn add(to: &mut Changes<'_>, place: usize, says: Says) {
        let words = |number: u32| [1663, number % 2, number];
        let (RecordType { manager, info }, words) = match says {
            Says::Change { .. } => (XLOG_HEAP_INSERT, Vec::new()),
            Says::Hint { .. } => (XLOG_FPI_FOR_HINT, Vec::new()),
            Says::Cut { number, blocks } => {
                (XLOG_SMGR_TRUNCATE, [&[blocks][..], &words(number)].concat())
            }
            Says::Made { number } => (XLOG_SMGR_CREATE, [&words(number)[..], &[0]].concat()),
            Says::Database { oid } => (XLOG_DBASE_CREATE_FILE_COPY, vec![oid]),
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut parts = Parts::default();
        parts.main_data = 0..bytes.len();
        if let Says::Change { number, block } | Says::Hint { number, block } = says {
            let relation = fork(number).relation;
            let data = 0..0;
            let will_init = false;
            let hole_offset = 0;
            let hole_bytes = 0;
            let compression = None;
            let range = 0..0;
            let applied = Image { hole_offset, hole_bytes, applies: true, compression, range };
            let image = matches!(says, Says::Hint { .. }).then_some(applied);
            parts.blocks = vec![BlockReference {
                id: 0,
                relation,
                fork: ForkNumber::MAIN,
                block,
                will_init,
                image,
                data,
            }];
        }
        let total_bytes = 24;
        let xid = 0;
        let previous = Lsn(0);
        let crc = 0;
        let header = RecordHeader { total_bytes, xid, previous, info, manager, crc };
        let at = Lsn(place as u64 * 8);
        let facts = &MAJORS[0].wal;
        to.add(&Record { at, end: at + 8, header, bytes: &bytes, facts }, &parts);
    }

    fn says() -> impl Strategy<Value = Says> {
        let number = 1_u32..5;
        prop_oneof![
            8 => (number.clone(), 0_u32..6).prop_map(|(number, block)| Says::Change { number, block }),
            4 => (number.clone(), 0_u32..6).prop_map(|(number, block)| Says::Hint { number, block }),
            1 => (number.clone(), 0_u32..6).prop_map(|(number, blocks)| Says::Cut { number, blocks }),
            1 => number.prop_map(|number| Says::Made { number }),
            1 => (0_u32..2).prop_map(|oid| Says::Database { oid }),
        ]
    }

    /// What a plain map of all blocks has at the end: of each the last change before the horizon or,
    /// without one, the last hint.
    fn expected(all: &[Says], horizon: usize) -> BTreeMap<(RelationFork, u32), (Lsn, bool)> {
        let mut map = BTreeMap::new();
        for (place, says) in all.iter().enumerate() {
            let end = Lsn(place as u64 * 8 + 8);
            match *says {
                Says::Change { .. } | Says::Hint { .. } if place >= horizon => {}
                Says::Change { number, block } => {
                    map.insert((fork(number), block), (end, false));
                }
                Says::Hint { number, block } => {
                    let of_block = map.entry((fork(number), block)).or_insert((end, true));
                    if of_block.1 {
                        *of_block = (end, true);
                    }
                }
                Says::Cut { number, blocks } => {
                    map.retain(|(map, block), _| *map != fork(number) || *block < blocks);
                }
                Says::Made { number } => map.retain(|(map, _), _| *map != fork(number)),
                Says::Database { oid } => map.retain(|(map, _), _| map.relation.database != oid),
            }
        }
        map
    }

    fn found(changes: &Changes<'_>) -> BTreeMap<(RelationFork, u32), (Lsn, bool)> {
        let of_fork = |(fork, blocks): (&RelationFork, &FxHashMap<u32, Change>)| {
            let of_block =
                |(block, item): (&u32, &Change)| ((*fork, *block), (item.lsn(), item.is_hint()));
            blocks.iter().map(of_block).collect::<Vec<_>>()
        };
        changes.blocks.iter().flat_map(of_fork).collect()
    }

    proptest! {
        #[test]
        fn segments_make_no_difference(
            all in prop::collection::vec(says(), 0..80), segment in 1_usize..30, most in 1_usize..30,
            horizon in 0_usize..100,
        ) {
            let forks = (1..5).map(fork).collect();
            let redo = Horizon::Redo(Lsn(horizon as u64 * 8));
            let read = |most| {
                let wanted = Wanted { forks: &forks, horizon: redo, most };
                let mut changes = Changes::new(wanted);
                for (number, piece) in all.chunks(segment).enumerate() {
                    let mut of_segment = Changes::new(wanted);
                    for (place, says) in piece.iter().enumerate() {
                        add(&mut of_segment, number * segment + place, *says);
                    }
                    changes.append(of_segment);
                }
                for number in 1..5 {
                    let is_cut = |(place, says): (usize, &Says)| place >= horizon && match *says {
                        Says::Cut { number: cut, blocks } => cut == number && blocks <= 3,
                        Says::Made { number: made } => made == number,
                        Says::Database { oid } => oid == number % 2,
                        Says::Change { .. } | Says::Hint { .. } => false,
                    };
                    let expected = all.iter().enumerate().any(is_cut);
                    assert_eq!(changes.is_cut_later(fork(number), 3), expected);
                }
                assert_eq!(changes.reaches_horizon, all.len() > horizon);
                (found(&changes), changes.count, changes.dropped)
            };
            let expected = expected(&all, horizon);
            let (blocks, count, dropped) = read(usize::MAX);
            prop_assert_eq!((&blocks, count, dropped), (&expected, expected.len(), None));
            // With little room the newest are there, and none that is wrong.
            let (blocks, count, dropped) = read(most);
            prop_assert!(count <= most && count == blocks.len());
            for (block, last) in &expected {
                let is_new = dropped.is_none_or(|dropped| last.0 > dropped);
                prop_assert!(!is_new || blocks.get(block) == Some(last));
            }
            for (block, (lsn, is_hint)) in &blocks {
                // After a change that was given up, a hint is all that is known.
                prop_assert!(expected.get(block).is_some_and(|last| *is_hint || *lsn <= last.0));
            }
        }
    }
}
