//! Writes that were lost: pages that are older than WAL says, zero, or missing.

use std::ops::ControlFlow;

use pgtoll_format::catalog::Persistence;
use pgtoll_format::{ForkNumber, Lsn, PageHeader, RelFileLocator, RelationFork, Verdict};
use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{Blocks, Forks};
use super::changes::{Change, Changes, Horizon, Wanted};
use super::{NotCompared, WalEnds, check_names};
use crate::defect::Evidence;
use crate::defect::{BlockFinding, Defect};
use crate::found::Verified;
use crate::page::page_verdict;
use crate::settings::{VerifyProgress, VerifySettings};
use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::Names;
use pgtoll_wal::{End, SegmentFile, checkpoint_segments, scan_with, segments_around};

/// The comparison with WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalCompared {
    /// The start of the available WAL.
    pub from: Lsn,
    /// Up to where its changes are known to be on the disk.
    pub to: Lsn,
    /// Blocks that it changed.
    pub blocks: u64,
    /// WAL up to here changed more blocks than there is room for; some of them were not compared.
    pub dropped: Option<Lsn>,
}

/// Compares pages with the WAL that is in the data directory: none may be older than the last
/// record that changed it. Of a server that was not stopped in good order, only records before the
/// redo point of its last checkpoint count. Unlogged relations and the maps are left out: their
/// pages have no LSN of WAL.
///
/// `settings` and `wanted` are those of [`verify`](crate::verify()); what is wrong is added to
/// what it found. `progress` is given the WAL that was read, then the blocks.
pub fn compare_with_wal(
    verified: &mut Verified,
    data: &DataDirectory,
    names: &Names,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<WalCompared, NotCompared> {
    let forks = Forks::new(data, settings, wanted);
    compare_forks_with_wal(verified, data, &forks, names, settings, progress)
}

/// As [`compare_with_wal`], with forks that were listed before.
pub(super) fn compare_forks_with_wal(
    verified: &mut Verified,
    data: &DataDirectory,
    forks: &Forks<'_>,
    names: &Names,
    settings: &VerifySettings,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<WalCompared, NotCompared> {
    check_names(data, names)?;
    let horizon = if data.is_consistent() {
        Horizon::Shutdown(data.control.checkpoint)
    } else {
        Horizon::Redo(data.control.last_checkpoint.redo)
    };
    let logged = logged_forks(forks, names);
    let read = LoggedChanges::read(data, settings, horizon, &logged, progress)?;
    let compared = read.compared();
    // Recovery is still to come: a file may be that of a relation that was dropped.
    let judges_ends = data.is_consistent();
    verified.add_evidence(read.compare(data, forks, judges_ends, progress)?);
    Ok(compared)
}

/// The changes of some forks' blocks in WAL.
pub(super) struct LoggedChanges<'a> {
    changes: Changes<'a>,
    horizon: Horizon,
    from: Lsn,
    /// The end of the WAL that was read.
    pub(super) read_to: Lsn,
}

impl<'a> LoggedChanges<'a> {
    /// Reads the WAL of a data directory up to its end, or up to the checkpoint of the shutdown: as
    /// much of it as there is without a gap.
    pub(super) fn read(
        data: &DataDirectory,
        settings: &VerifySettings,
        horizon: Horizon,
        forks: &'a FxHashSet<RelationFork>,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<Self, NotCompared> {
        let segments = match horizon {
            Horizon::Shutdown(_) => checkpoint_segments(data)?,
            Horizon::Redo(redo) => segments_around(data, redo)?,
        };
        if segments.is_empty() {
            return Err(NotCompared::Ends(WalEnds::Missing));
        }
        let wanted = Wanted { forks, horizon, most: BLOCKS_MAX };
        let (changes, from, read_to) = changes(&segments, data, settings, wanted, progress)?;
        Ok(Self { changes, horizon, from, read_to })
    }

    /// Returns the WAL that pages are compared with.
    pub(super) fn compared(&self) -> WalCompared {
        let blocks: usize = self.changes.blocks.values().map(FxHashMap::len).sum();
        WalCompared {
            from: self.from,
            to: self.horizon.lsn().min(self.read_to),
            blocks: blocks as u64,
            dropped: self.changes.dropped,
        }
    }

    /// The faults of the blocks that WAL changed; with `judges_ends` also with files that end before
    /// one.
    pub(super) fn compare(
        &self,
        data: &DataDirectory,
        forks: &Forks<'_>,
        judges_ends: bool,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<Vec<BlockFinding>, NotCompared> {
        let rules = Rules {
            block_bytes: data.control.block_bytes as usize,
            has_checksums: data.has_checksums(),
            first_lsn: Lsn(data.control.wal_segment_bytes.into()),
            judges_ends,
        };
        let all: usize = self.changes.blocks.values().map(FxHashMap::len).sum();
        let mut done = 0;
        let all_bytes = (all * rules.block_bytes) as u64;
        let mut found = Vec::new();
        for (fork, blocks) in &self.changes.blocks {
            done += (blocks.len() * rules.block_bytes) as u64;
            for (block, evidence) in rules.compare(forks.blocks(*fork), blocks) {
                let defect = Defect::Evidence(evidence);
                found.push(BlockFinding { fork: *fork, block, defect });
            }
            if progress(VerifyProgress { bytes: done, all_bytes }).is_break() {
                return Err(NotCompared::Interrupted);
            }
        }
        Ok(found)
    }

    /// Whether WAL still says that this block was changed before the horizon.
    pub(super) fn has_change(&self, fork: RelationFork, block: u32) -> bool {
        self.changes.blocks.get(&fork).is_some_and(|blocks| blocks.contains_key(&block))
    }

    /// Whether WAL behind the horizon cut this block off, or made or removed its file.
    pub(super) fn is_cut_later(&self, fork: RelationFork, block: u32) -> bool {
        self.changes.is_cut_later(fork, block)
    }
}

/// The forks whose changes are logged. A file without a name is a leftover, whose files say
/// nothing, and so do those of an index that could not be made.
pub(super) fn logged_forks(forks: &Forks<'_>, names: &Names) -> FxHashSet<RelationFork> {
    let is_logged = |fork: &RelationFork| {
        let persistence = names.relation(fork.relation).map(|name| name.persistence);
        matches!(
            (fork.number, persistence),
            (ForkNumber::MAIN, Some(Persistence::Permanent))
                | (ForkNumber::INIT, Some(Persistence::Unlogged))
        ) && !names.is_unready(fork.relation)
    };
    forks.iter().filter(is_logged).collect()
}

/// The last changes of the WAL up to the checkpoint: of as much of it as can be read without a
/// gap.
fn changes<'a>(
    segments: &[SegmentFile],
    data: &DataDirectory,
    settings: &VerifySettings,
    wanted: Wanted<'a>,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<(Changes<'a>, Lsn, Lsn), NotCompared> {
    let segment_bytes = u64::from(data.control.wal_segment_bytes);
    let all_bytes = segments.len() as u64 * segment_bytes;
    let mut begin = 0;
    loop {
        let read = &segments[begin..];
        let watch = &mut |count: usize| {
            progress(VerifyProgress { bytes: (begin + count) as u64 * segment_bytes, all_bytes })
        };
        let (skip, why) = match scan_with(read, settings.jobs.get(), || Changes::new(wanted), watch)
        {
            Ok((_, End::Interrupted)) => return Err(NotCompared::Interrupted),
            Ok((summary, _)) if summary.collected.reaches_horizon => {
                let is_own = summary.system_identifier == data.control.system_identifier;
                return match (summary.from, summary.to) {
                    (Some(from), Some(to)) if is_own => Ok((summary.collected, from, to)),
                    _ => Err(NotCompared::Ends(WalEnds::Missing)),
                };
            }
            Ok((summary, end)) => (summary.segments, NotCompared::Ends(WalEnds::At(end))),
            Err(error) => (1, NotCompared::Wal(error)),
        };
        begin += skip.max(1);
        if begin >= segments.len() {
            return Err(why);
        }
    }
}

/// The rules of this data directory.
#[derive(Clone, Copy, Debug)]
struct Rules {
    block_bytes: usize,
    has_checksums: bool,
    /// No record ends before this: a smaller LSN on a page says that WAL never changed it.
    first_lsn: Lsn,
    /// A file that ends before a block that WAL changed is cut.
    judges_ends: bool,
}

impl Rules {
    /// The faults of the blocks of a fork that WAL changed.
    fn compare(
        &self,
        mut blocks: Blocks<'_>,
        changes: &FxHashMap<u32, Change>,
    ) -> Vec<(u32, Evidence)> {
        let mut changes: Vec<(u32, Change)> =
            changes.iter().map(|(block, change)| (*block, *change)).collect();
        changes.sort_unstable_by_key(|(block, _)| *block);
        let end = blocks.count();
        let there = changes.partition_point(|(block, _)| *block < end);
        let mut page = vec![0; self.block_bytes];
        let mut found = Vec::new();
        for (block, change) in &changes[..there] {
            let evidence = self.judge(&mut blocks, *block, *change, &mut page);
            found.extend(evidence.map(|evidence| (*block, evidence)));
        }
        if let Some((last, change)) = changes[there..].last().filter(|_| self.judges_ends) {
            found.push((end, Evidence::MissingButLogged { last: *last, wal: change.lsn() }));
        }
        found
    }

    /// A page that a server refuses, or that cannot be read, was reported when it was verified.
    fn judge(
        &self,
        blocks: &mut Blocks<'_>,
        block: u32,
        change: Change,
        page: &mut [u8],
    ) -> Option<Evidence> {
        // Almost always the header is enough.
        let head = page.get_mut(..PageHeader::BYTES)?;
        blocks.read(block, head).ok()?;
        if PageHeader::read(head)?.lsn >= change.lsn() {
            return None;
        }
        blocks.read(block, page).ok()?;
        self.judge_page(page, block, change)
    }

    fn judge_page(&self, page: &[u8], block: u32, change: Change) -> Option<Evidence> {
        let lsn = PageHeader::read(page)?.lsn;
        let wal = change.lsn();
        match page_verdict(page, block, self.has_checksums) {
            Verdict::New => (!change.is_freed()).then_some(Evidence::ZeroButLogged { wal }),
            // The images of hints leave the page an LSN of any of them, or the one before.
            Verdict::Valid if change.is_hint() => None,
            Verdict::Valid if lsn < self.first_lsn && change.is_new_page() => None,
            Verdict::Valid if lsn < wal => Some(Evidence::Stale { lsn, wal }),
            Verdict::Valid | Verdict::Invalid(_) => None,
        }
    }
}

/// Some 20 bytes each: changes of 64 GB of pages.
const BLOCKS_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use pgtoll_format::PAGE_BYTES;

    use super::*;

    const RULES: Rules = Rules {
        block_bytes: PAGE_BYTES,
        has_checksums: false,
        first_lsn: Lsn(1 << 24),
        judges_ends: true,
    };

    /// A page in use with this LSN.
    fn page(lsn: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[4..8].copy_from_slice(&lsn.to_le_bytes());
        for (at, value) in [(12, 24_u16), (14, 8000), (16, 8192), (18, 0x2004)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page
    }

    #[test]
    fn a_page_may_be_older_than_its_hints_and_is_in_use() {
        let lsn = Lsn(0x0200_0000);
        let wal = Lsn(0x0300_0000);
        let check = |page: &[u8], change, expected| {
            assert_eq!(RULES.judge_page(page, 7, change), expected, "{change:?}");
        };
        let old = page(0x0200_0000);
        let zeros = vec![0; PAGE_BYTES];
        check(&old, Change::new(wal, false), Some(Evidence::Stale { lsn, wal }));
        check(&old, Change::hint(wal), None);
        check(&zeros, Change::hint(wal), Some(Evidence::ZeroButLogged { wal }));
        check(&zeros, Change::new(wal, true), None);
        check(&page(0x0300_0000), Change::new(wal, false), None);
        // Access methods write pages that they have not logged yet, and change none of them so.
        check(&page(1), Change::new_page(wal), None);
        check(&page(1), Change::new(wal, false), Some(Evidence::Stale { lsn: Lsn(1), wal }));
    }
}
