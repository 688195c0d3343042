//! Blocks that replay rebuilds, whatever their bytes are.

use std::ops::ControlFlow;
use std::sync::Arc;

use pgtoll_format::wal::rmgr::XLOG_BACKUP_END;
use pgtoll_format::wal::{Parts, Record, RecordType};
use pgtoll_format::{Lsn, RelationFork};
use rustc_hash::{FxHashMap, FxHashSet};

use pgtoll_wal::{Collect, SegmentFile, WalReadError, scan_with};

/// A block of a fork.
pub(super) type Block = (RelationFork, u32);

/// The images of some blocks in WAL.
#[derive(Clone, Debug)]
pub(super) struct Images {
    blocks: Arc<FxHashSet<Block>>,
    /// Replay begins here.
    from: Lsn,
    /// The start of the first record from there on that names the block, and whether it replaces
    /// the block whole.
    first: FxHashMap<Block, (Lsn, bool)>,
    /// The ends of the records that end the backup.
    backup_end: Option<Lsn>,
}

/// The images that were read from WAL.
#[derive(Debug)]
pub(super) struct ImagesRead {
    /// The cluster's identifier.
    pub(super) system_identifier: u64,
    /// The blocks that replay makes again before it reads them, and where.
    pub(super) remade: FxHashMap<Block, Lsn>,
    /// The start and end of the WAL that was read; `None`: no record was found.
    pub(super) range: Option<(Lsn, Lsn)>,
    /// The end of the backup that began there.
    pub(super) backup_end: Option<Lsn>,
}

impl Collect for Images {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if record.at < self.from {
            return;
        }
        for item in &parts.blocks {
            let block = (RelationFork { relation: item.relation, number: item.fork }, item.block);
            if self.blocks.contains(&block) {
                let is_image = item.image.as_ref().is_some_and(|image| image.applies);
                self.first.entry(block).or_insert((record.at, is_image || item.will_init));
            }
        }
        if RecordType::from_header(&record.header) == XLOG_BACKUP_END {
            let data = record.bytes.get(parts.main_data.clone()).and_then(<[u8]>::first_chunk);
            if data.map(|bytes| Lsn(u64::from_le_bytes(*bytes))) == Some(self.from) {
                self.backup_end = Some(record.end);
            }
        }
    }

    fn append(&mut self, later: Self) {
        for (block, first) in later.first {
            self.first.entry(block).or_insert(first);
        }
        self.backup_end = self.backup_end.or(later.backup_end);
    }
}

/// Returns the blocks that a replay from `from` rebuilds before it reads them: by a
/// full-page image, or because the record that comes first makes the page itself.
pub(super) fn images_of(
    segments: &[SegmentFile],
    blocks: FxHashSet<Block>,
    from: Lsn,
    threads: usize,
) -> Result<ImagesRead, WalReadError> {
    let blocks = Arc::new(blocks);
    let new = || {
        let first = FxHashMap::default();
        Images { blocks: blocks.clone(), from, first, backup_end: None }
    };
    let (summary, _) = scan_with(segments, threads, new, &mut |_| ControlFlow::Continue(()))?;
    let Images { first, backup_end, .. } = summary.collected;
    let remade = first.into_iter().filter(|(_, (_, is_remade))| *is_remade);
    let remade = remade.map(|(block, (at, _))| (block, at)).collect();
    let range = summary.from.zip(summary.to);
    let system_identifier = summary.system_identifier;
    Ok(ImagesRead { system_identifier, remade, range, backup_end })
}
