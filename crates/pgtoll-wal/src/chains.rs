//! The records from which redo makes blocks again: from the last image of a block, or the last record
//! that makes it again, on to the last one that names it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgtoll_format::wal::{BlockReference, KeptRecord, Parts, Record};
use pgtoll_format::{BlockNumber, Lsn, RelationFork};

use crate::Collect;

/// A record that names blocks which are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRecord {
    /// Its place, and all of it.
    pub record: KeptRecord,
    /// The transaction; 0: none.
    pub xid: u32,
    /// All blocks that it names.
    pub blocks: Vec<(RelationFork, BlockNumber)>,
}

/// Collects the records that initializes some blocks, from the last gap on.
#[derive(Clone, Debug)]
pub struct BlockChains {
    blocks: BTreeMap<RelationFork, BTreeMap<BlockNumber, Chain>>,
    limit: Lsn,
    /// No more is kept: these blocks have too much WAL.
    is_full: bool,
    held_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Chain {
    /// It begins with an image, or with a record that initializes the block.
    is_whole: bool,
    /// A record since then cannot be redone alone.
    is_broken: bool,
    records: Vec<Arc<NamedRecord>>,
    bytes: u64,
}

impl Chain {
    fn clear(&mut self) -> u64 {
        self.records.clear();
        (self.is_whole, self.is_broken) = (false, false);
        std::mem::take(&mut self.bytes)
    }
}

impl BlockChains {
    /// Makes the collector of these blocks, before `limit`.
    pub fn new(blocks: impl IntoIterator<Item = (RelationFork, BlockNumber)>, limit: Lsn) -> Self {
        let mut wanted = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (fork, block) in blocks {
            wanted.entry(fork).or_default().insert(block, Chain::default());
        }
        Self { blocks: wanted, limit, is_full: false, held_bytes: 0 }
    }

    /// The records that initializes a block, the first of them with all of its page; `None`: the WAL has
    /// none such, or too many, or redo of one needs the page of another block.
    pub fn chain(&self, fork: RelationFork, block: BlockNumber) -> Option<&[Arc<NamedRecord>]> {
        let chain = self.blocks.get(&fork)?.get(&block)?;
        let is_complete = chain.is_whole && !chain.is_broken && !self.is_full;
        is_complete.then_some(&chain.records)
    }

    /// There was too much WAL about these blocks to keep it.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    fn fill(&mut self, bytes: u64) {
        self.held_bytes += bytes;
        if self.held_bytes > HELD_BYTES_MAX {
            self.is_full = true;
            self.blocks.values_mut().flat_map(BTreeMap::values_mut).for_each(|item| {
                item.clear();
            });
        }
    }
}

/// Redo of this record does not need what the block was before.
fn is_base(reference: &BlockReference) -> bool {
    reference.will_init || reference.image.as_ref().is_some_and(|image| image.applies)
}

impl Collect for BlockChains {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if record.at >= self.limit || self.is_full {
            return;
        }
        let mut kept: Option<Arc<NamedRecord>> = None;
        let mut added = 0;
        let mut dropped = 0;
        for block in &parts.blocks {
            let fork = RelationFork { relation: block.relation, number: block.fork };
            let found = self.blocks.get_mut(&fork).and_then(|blocks| blocks.get_mut(&block.block));
            let Some(chain) = found else { continue };
            if is_base(block) {
                dropped += chain.clear();
                chain.is_whole = true;
            }
            chain.is_broken |= record.redo_needs_other_page(block);
            let kept = kept.get_or_insert_with(|| Arc::new(named(record, parts)));
            let bytes = record.bytes.len() as u64;
            chain.records.push(Arc::clone(kept));
            chain.bytes += bytes;
            added += bytes;
        }
        self.held_bytes = self.held_bytes.saturating_sub(dropped);
        self.fill(added);
    }

    fn append(&mut self, later: Self) {
        self.is_full |= later.is_full;
        let mut added = 0;
        let mut dropped = 0;
        for (fork, blocks) in later.blocks {
            let own = self.blocks.entry(fork).or_default();
            for (block, chain) in blocks {
                let own = own.entry(block).or_default();
                added += chain.bytes;
                if chain.is_whole {
                    dropped += own.clear();
                    *own = chain;
                } else {
                    own.bytes += chain.bytes;
                    own.is_broken |= chain.is_broken;
                    own.records.extend(chain.records);
                }
            }
        }
        self.held_bytes = self.held_bytes.saturating_sub(dropped);
        self.fill(added);
    }

    /// A gap: unread WAL may have changed earlier blocks.
    fn gap(&mut self, _: Lsn, _: Lsn) {
        for chain in self.blocks.values_mut().flat_map(BTreeMap::values_mut) {
            chain.clear();
        }
        (self.is_full, self.held_bytes) = (false, 0);
    }
}

fn named(record: &Record<'_>, parts: &Parts) -> NamedRecord {
    let block = |reference: &BlockReference| {
        (RelationFork { relation: reference.relation, number: reference.fork }, reference.block)
    };
    NamedRecord {
        record: KeptRecord { at: record.at, end: record.end, bytes: record.bytes.to_vec() },
        xid: record.header.xid,
        blocks: parts.blocks.iter().map(block).collect(),
    }
}

/// All records that are kept; in front of an image there may be as much again for a moment.
const HELD_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use pgtoll_format::wal::{Image, RecordHeader};
    use pgtoll_format::{ForkNumber, MAJORS, RelFileLocator};

    use super::*;

    const RELATION: RelFileLocator =
        RelFileLocator { tablespace: 1663, database: 5, rel_number: 16384 };
    const FORK: RelationFork = RelationFork { relation: RELATION, number: ForkNumber::MAIN };

    fn collector() -> BlockChains {
        BlockChains::new([(FORK, 3), (FORK, 4)], Lsn(800))
    }

    /// A record that names these blocks, each with an image that applies, one that does not, or none.
    fn add(to: &mut BlockChains, at: u64, blocks: &[(u32, Option<bool>)]) {
        let total_bytes = 24;
        let xid = 7;
        let previous = Lsn(0);
        let crc = 0;
        let header = RecordHeader { total_bytes, xid, previous, info: 0, manager: 10, crc };
        let facts = &MAJORS[0].wal;
        let bytes = &[0; 24];
        let record = Record { at: Lsn(at), end: Lsn(at + 24), header, bytes, facts };
        let mut parts = Parts::default();
        for (block, image) in blocks {
            parts.blocks.push(BlockReference {
                id: 0,
                relation: RELATION,
                fork: ForkNumber::MAIN,
                block: *block,
                will_init: false,
                image: image.map(|applies| Image {
                    hole_offset: 0,
                    hole_bytes: 0,
                    applies,
                    compression: None,
                    range: 0..0,
                }),
                data: 0..0,
            });
        }
        to.add(&record, &parts);
    }

    /// A row of BRIN on block 9, whose number the range map in block 3 gets; with an image of that or
    /// without.
    fn add_range(to: &mut BlockChains, at: u64, has_image: bool) {
        let total_bytes = 24;
        let xid = 7;
        let previous = Lsn(0);
        let crc = 0;
        // INSERT+INIT.
        let header = RecordHeader { total_bytes, xid, previous, info: 0x90, manager: 17, crc };
        let facts = &MAJORS[0].wal;
        let bytes = &[0; 24];
        let record = Record { at: Lsn(at), end: Lsn(at + 24), header, bytes, facts };
        let hole_offset = 0;
        let hole_bytes = 0;
        let compression = None;
        let range = 0..0;
        let image = Image { hole_offset, hole_bytes, applies: true, compression, range };
        let block = |id, block, will_init, image| BlockReference {
            id,
            relation: RELATION,
            fork: ForkNumber::MAIN,
            block,
            will_init,
            image,
            data: 0..0,
        };
        let mut parts = Parts::default();
        parts.blocks =
            vec![block(0, 9, true, None), block(1, 3, false, has_image.then_some(image))];
        to.add(&record, &parts);
    }

    #[test]
    fn a_range_map_is_not_redone_without_the_page_that_its_record_names() {
        let mut all = collector();
        add(&mut all, 80, &[(3, Some(true))]);
        add_range(&mut all, 104, false);
        assert_eq!(places(&all, 3), None);
        let mut later = collector();
        add(&mut later, 128, &[(3, None)]);
        all.append(later);
        assert_eq!(places(&all, 3), None);
        // An image has all of it.
        let mut last = collector();
        add_range(&mut last, 152, true);
        add(&mut last, 176, &[(3, None)]);
        all.append(last);
        assert_eq!(places(&all, 3), Some(vec![152, 176]));
        let mut broken = collector();
        add_range(&mut broken, 200, false);
        all.append(broken);
        assert_eq!(places(&all, 3), None);
    }

    fn places(chains: &BlockChains, block: u32) -> Option<Vec<u64>> {
        Some(chains.chain(FORK, block)?.iter().map(|item| item.record.at.0).collect())
    }

    #[test]
    fn a_chain_begins_with_the_last_image() {
        let mut all = collector();
        add(&mut all, 80, &[(3, None), (5, None)]);
        assert_eq!(places(&all, 3), None);
        add(&mut all, 104, &[(3, Some(true)), (4, None)]);
        add(&mut all, 128, &[(3, Some(false))]);
        add(&mut all, 152, &[(9, Some(true))]);
        assert_eq!(places(&all, 3), Some(vec![104, 128]));
        assert_eq!(places(&all, 4), None);
        let mut later = collector();
        add(&mut later, 200, &[(3, None), (4, Some(true))]);
        add(&mut later, 800, &[(3, Some(true))]);
        all.append(later);
        assert_eq!(places(&all, 3), Some(vec![104, 128, 200]));
        assert_eq!(places(&all, 4), Some(vec![200]));
        let mut last = collector();
        add(&mut last, 300, &[(3, Some(true))]);
        all.append(last);
        assert_eq!(places(&all, 3), Some(vec![300]));
        all.gap(Lsn(324), Lsn(400));
        assert_eq!((places(&all, 3), places(&all, 4)), (None, None));
    }
}
