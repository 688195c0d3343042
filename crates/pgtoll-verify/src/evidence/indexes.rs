//! B-trees as witnesses: of their own pages, to which they lead, and of their tables' rows.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pgtoll_format::btree::{BtreePage, Node};
use pgtoll_format::{ForkNumber, PageHeader, RelFileLocator, RelationFork, Verdict};

use super::blocks::Forks;
use super::{NotCompared, check_names};
use crate::defect::Evidence;
use crate::defect::{BlockFinding, Defect};
use crate::found::Verified;
use crate::maps::MapRule;
use crate::page::page_verdict;
use crate::settings::{PROGRESS, VerifyProgress, VerifySettings};
use crate::zeros::{Reach, ZeroPages};
use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::Names;

/// The comparison with indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexesCompared {
    /// Tables whose files were compared with where B-trees lead.
    pub tables: u64,
    /// B-trees that were read again, since they lead to pages of zeros, or behind them.
    pub read_again: u64,
}

/// Says which pages of B-trees, and of their tables, are zero or missing although B-trees lead there.
/// A page that was never used is zero too; nothing leads to it. Only the B-trees that lead as far as
/// pages of zeros are read again.
///
/// `settings` and `wanted` are those of [`verify`](crate::verify()); what is wrong is added to
/// what it found. An index and its table are compared if both are wanted.
pub fn compare_with_indexes(
    verified: &mut Verified,
    data: &DataDirectory,
    names: &Names,
    settings: &VerifySettings,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<IndexesCompared, NotCompared> {
    let forks = Forks::new(data, settings, wanted);
    compare_forks_with_indexes(verified, data, &forks, names, settings, progress)
}

/// As [`compare_with_indexes`], with forks that were listed before.
pub(super) fn compare_forks_with_indexes(
    verified: &mut Verified,
    data: &DataDirectory,
    forks: &Forks<'_>,
    names: &Names,
    settings: &VerifySettings,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<IndexesCompared, NotCompared> {
    check_names(data, names)?;
    if !data.is_consistent() {
        return Err(NotCompared::NotStopped);
    }
    let trees = Trees::new(forks, names, &verified.zeros, MapRule::Stopped);
    let missing = trees.missing_ends();
    let found = trees.compare(data, settings.jobs.get(), progress)?;
    let compared = trees.compared();
    verified.add_evidence(missing.into_iter().chain(found));
    Ok(compared)
}

/// A table with the B-trees that lead to its rows.
struct Table {
    files: RelFileLocator,
    blocks: u32,
    zeros: Vec<Range<u32>>,
    trees: Vec<Tree>,
}

/// A B-tree, and how far it leads.
struct Tree {
    files: RelFileLocator,
    blocks: u32,
    bytes: u64,
    zeros: Vec<Range<u32>>,
    reach: Reach,
}

impl Tree {
    /// Whether it may lead to a page of zeros of its own or of its table.
    fn may_lead_to_zeros(&self, of_table: &[Range<u32>]) -> bool {
        let reaches = |zeros: &[Range<u32>], end: Option<u32>| {
            zeros.first().zip(end).is_some_and(|(first, end)| first.start <= end)
        };
        reaches(of_table, self.reach.row)
            || reaches(&self.zeros, self.reach.page.map(|(block, _)| block))
    }
}

/// All B-trees that lead somewhere, by their tables.
pub(super) struct Trees<'a> {
    forks: &'a Forks<'a>,
    tables: Vec<Table>,
    /// The rule for trusting pages of B-trees.
    rule: MapRule,
}

impl<'a> Trees<'a> {
    /// Those whose files are there: missing ones were reported when pages were verified.
    pub(super) fn new(
        forks: &'a Forks<'a>,
        names: &Names,
        zeros: &ZeroPages,
        rule: MapRule,
    ) -> Self {
        let runs = zeros.by_relation();
        let reaches = zeros.reaches();
        let zeros_of = |relation: &RelFileLocator| {
            let runs = runs.get(relation).map(Vec::as_slice).unwrap_or_default();
            runs.iter().map(crate::zeros::ZeroRun::blocks).collect::<Vec<_>>()
        };
        let mut by_table: BTreeMap<RelFileLocator, Vec<Tree>> = BTreeMap::new();
        for (index, table) in names.btrees() {
            let blocks = forks.blocks(main_fork(index));
            let of_table = forks.blocks(main_fork(table));
            let Some(reach) = reaches.get(&index).filter(|_| !blocks.is_none()) else { continue };
            if of_table.is_none() {
                continue;
            }
            by_table.entry(table).or_default().push(Tree {
                files: index,
                blocks: blocks.count(),
                bytes: blocks.bytes(),
                zeros: zeros_of(&index),
                reach: *reach,
            });
        }
        let tables = by_table.into_iter().map(|(files, mut trees)| {
            trees.sort_unstable_by_key(|tree| tree.files);
            let blocks = forks.blocks(main_fork(files)).count();
            Table { files, blocks, zeros: zeros_of(&files), trees }
        });
        Self { forks, tables: tables.collect(), rule }
    }

    fn compared(&self) -> IndexesCompared {
        let read_again = self.tables.iter().map(|table| table.suspects().count() as u64).sum();
        IndexesCompared { tables: self.tables.len() as u64, read_again }
    }

    /// Files that end before a block that a B-tree leads to.
    fn missing_ends(&self) -> Vec<BlockFinding> {
        let mut found = Vec::new();
        for table in &self.tables {
            let beyond = table.trees.iter().filter_map(|tree| {
                let last = tree.reach.row.filter(|row| *row >= table.blocks)?;
                Some((last, tree.files))
            });
            if let Some((last, index)) = beyond.max() {
                let evidence = Evidence::MissingButIndexed { index, last };
                found.push(finding(table.files, table.blocks, evidence));
            }
            for tree in &table.trees {
                if let Some((last, from)) = tree.reach.page.filter(|page| page.0 >= tree.blocks) {
                    let evidence = Evidence::MissingButLinked { last, from };
                    found.push(finding(tree.files, tree.blocks, evidence));
                }
            }
        }
        found
    }

    /// Pages of zeros that a B-tree leads to.
    pub(super) fn compare(
        &self,
        data: &DataDirectory,
        jobs: usize,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<Vec<BlockFinding>, NotCompared> {
        let mut tables: Vec<&Table> =
            self.tables.iter().filter(|table| table.suspects().next().is_some()).collect();
        // The largest first, so that no thread is left alone with it at the end.
        tables.sort_by_key(|table| std::cmp::Reverse(table.bytes()));
        let all_bytes = tables.iter().map(|table| table.bytes()).sum();
        let work = Work {
            forks: self.forks,
            tables,
            rule: self.rule,
            block_bytes: data.control.block_bytes as usize,
            has_checksums: data.has_checksums(),
            next: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        };
        let mut bytes = 0;
        let mut found = Vec::new();
        let worker = || {
            let mut buffer = vec![0; BUFFER_BYTES.max(work.block_bytes)];
            let work = &work;
            move |emit: Emit<'_>| work.next(&mut buffer, emit)
        };
        pgtoll_system::threads::run_workers(jobs, PROGRESS, worker, |portion| {
            if let Some(Portion { bytes: read, findings }) = portion {
                bytes += read;
                found.extend(findings);
            }
            if progress(VerifyProgress { bytes, all_bytes }).is_break() {
                work.is_stopped.store(true, Ordering::Relaxed);
            }
        });
        if work.is_stopped() { Err(NotCompared::Interrupted) } else { Ok(found) }
    }
}

impl Table {
    /// B-trees that may lead to pages of zeros.
    fn suspects(&self) -> impl Iterator<Item = &Tree> {
        self.trees.iter().filter(|tree| tree.may_lead_to_zeros(&self.zeros))
    }

    fn bytes(&self) -> u64 {
        self.suspects().map(|tree| tree.bytes).sum()
    }
}

fn main_fork(relation: RelFileLocator) -> RelationFork {
    RelationFork { relation, number: ForkNumber::MAIN }
}

fn finding(relation: RelFileLocator, block: u32, evidence: Evidence) -> BlockFinding {
    BlockFinding { fork: main_fork(relation), block, defect: Defect::Evidence(evidence) }
}

/// The state that the threads share.
struct Work<'a> {
    forks: &'a Forks<'a>,
    tables: Vec<&'a Table>,
    rule: MapRule,
    block_bytes: usize,
    has_checksums: bool,
    next: AtomicUsize,
    is_stopped: AtomicBool,
}

/// The findings of a thread in a B-tree.
struct Portion {
    bytes: u64,
    findings: Vec<BlockFinding>,
}

/// Takes a thread's findings; false: they are not taken any more.
type Emit<'a> = &'a mut dyn FnMut(Portion) -> bool;

impl Work<'_> {
    /// Reads the B-trees of the next table; false: there is none.
    fn next(&self, buffer: &mut [u8], emit: Emit<'_>) -> bool {
        let next = self.tables.get(self.next.fetch_add(1, Ordering::Relaxed));
        next.map(|table| self.table(table, buffer, emit)).is_some()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn table(&self, table: &Table, buffer: &mut [u8], emit: Emit<'_>) {
        let mut rows = Rows { zeros: &table.zeros, found: BTreeMap::new() };
        for tree in table.suspects() {
            let findings = self.tree(tree, &mut rows, buffer);
            if self.is_stopped() || !emit(Portion { bytes: tree.bytes, findings }) {
                return;
            }
        }
        let findings = rows
            .found
            .into_iter()
            .map(|(block, index)| finding(table.files, block, Evidence::ZeroButIndexed { index }));
        emit(Portion { bytes: 0, findings: findings.collect() });
    }

    /// Reads a B-tree: which of its own pages of zeros it leads to, and which of its table.
    fn tree(&self, tree: &Tree, rows: &mut Rows<'_>, buffer: &mut [u8]) -> Vec<BlockFinding> {
        let mut links: BTreeMap<u32, u32> = BTreeMap::new();
        let mut lead = |from: u32, to: u32| {
            if is_in(&tree.zeros, to) {
                links.entry(to).or_insert(from);
            }
        };
        self.forks.blocks(main_fork(tree.files)).each(buffer, &mut |block, page| {
            let lsn = PageHeader::read(page).map(|header| header.lsn);
            let is_believed = lsn.is_some_and(|lsn| self.rule.is_settled(lsn))
                && page_verdict(page, block, self.has_checksums) == Verdict::Valid;
            match BtreePage::read(page).filter(|_| is_believed) {
                Some(BtreePage::Meta(meta)) => {
                    lead(block, meta.root);
                    lead(block, meta.fast_root);
                }
                Some(BtreePage::Node(node)) => {
                    let neighbours = node.left.into_iter().chain(node.right);
                    neighbours.chain(node.children()).for_each(|to| lead(block, to));
                    rows.add(tree.files, &node);
                }
                None => {}
            }
            !self.is_stopped()
        });
        let linked = |(block, from)| finding(tree.files, block, Evidence::ZeroButLinked { from });
        links.into_iter().map(linked).collect()
    }
}

/// Whether a block is in one of these runs, which are in their order.
fn is_in(runs: &[Range<u32>], block: u32) -> bool {
    let behind = runs.partition_point(|run| run.start <= block);
    behind.checked_sub(1).is_some_and(|at| runs[at].contains(&block))
}

/// The rows of a table by its B-trees.
struct Rows<'a> {
    zeros: &'a [Range<u32>],
    /// Pages of zeros that rows are on, and the index that says so.
    found: BTreeMap<u32, RelFileLocator>,
}

impl Rows<'_> {
    fn add(&mut self, index: RelFileLocator, node: &Node<'_>) {
        if self.zeros.is_empty() {
            return;
        }
        for row in node.rows().filter(|row| is_in(self.zeros, row.block)) {
            self.found.entry(row.block).or_insert(index);
        }
    }
}

/// The bytes that one call reads.
const BUFFER_BYTES: usize = 256 << 10;
