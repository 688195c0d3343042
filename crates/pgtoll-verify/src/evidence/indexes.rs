//! B-trees as witnesses: of their own pages, to which they lead, and of their tables' rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pgtoll_format::btree::{BtreePage, Node};
use pgtoll_format::{ForkNumber, PageHeader, RelFileLocator, RelationFork, Verdict};

use super::blocks::{Blocks, Forks};
use super::{NotCompared, check_is_consistent};
use crate::defect::Evidence;
use crate::defect::{BlockFinding, Defect};
use crate::found::Verified;
use crate::page::page_verdict;
use crate::settings::{PROGRESS, VerifyProgress, VerifySettings};
use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::Names;

/// What was compared with indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexesCompared {
    /// B-trees that were read.
    pub indexes: u64,
    /// Tables that they belong to.
    pub tables: u64,
}

/// Reads all B-trees and says which pages of theirs, and of their tables, are zero or missing
/// although they lead there. A page that was never used is zero too; nothing leads to it.
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
    check_is_consistent(data, names)?;
    let forks = Forks::of(data, settings, wanted);
    let tables = tables(&forks, names);
    let work = Work {
        forks: &forks,
        tables: &tables,
        block_bytes: data.control.block_bytes as usize,
        has_checksums: data.has_checksums(),
        next: AtomicUsize::new(0),
        is_stopped: AtomicBool::new(false),
    };
    let all_bytes = tables.iter().map(|table| table.bytes).sum();
    let mut bytes = 0;
    let worker = || {
        let mut buffer = vec![0; BUFFER_BYTES.max(work.block_bytes)];
        let work = &work;
        move |emit: Emit<'_>| work.next(&mut buffer, emit)
    };
    pgtoll_threads::run_workers(settings.jobs.get(), PROGRESS, worker, |portion| {
        if let Some(Portion { bytes: read, findings }) = portion {
            bytes += read;
            for finding in findings {
                verified.add(finding);
            }
        }
        if progress(VerifyProgress { bytes, all_bytes }).is_break() {
            work.is_stopped.store(true, Ordering::Relaxed);
        }
    });
    verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
    if work.is_stopped() {
        return Err(NotCompared::Interrupted);
    }
    let indexes = tables.iter().map(|table| table.indexes.len() as u64).sum();
    Ok(IndexesCompared { indexes, tables: tables.len() as u64 })
}

/// A table and its B-trees.
struct Table {
    files: RelFileLocator,
    indexes: Vec<RelFileLocator>,
    bytes: u64,
}

fn main_fork(relation: RelFileLocator) -> RelationFork {
    RelationFork { relation, number: ForkNumber::MAIN }
}

/// Those whose files are there: missing ones were reported when pages were verified.
fn tables(forks: &Forks<'_>, names: &Names) -> Vec<Table> {
    let is_there = |relation| !forks.blocks(main_fork(relation)).is_none();
    let mut by_table: BTreeMap<RelFileLocator, Vec<RelFileLocator>> = BTreeMap::new();
    for (index, table) in names.btrees() {
        if is_there(index) && is_there(table) {
            by_table.entry(table).or_default().push(index);
        }
    }
    let tables = by_table.into_iter().map(|(table, mut indexes)| {
        indexes.sort_unstable();
        let all = indexes.iter().chain([&table]);
        let bytes = all.map(|of| forks.blocks(main_fork(*of)).bytes()).sum();
        Table { files: table, indexes, bytes }
    });
    let mut tables: Vec<Table> = tables.collect();
    // The largest first, so that no thread is left alone with it at the end.
    tables.sort_by_key(|table| std::cmp::Reverse(table.bytes));
    tables
}

/// What the threads share.
struct Work<'a> {
    forks: &'a Forks<'a>,
    tables: &'a [Table],
    block_bytes: usize,
    has_checksums: bool,
    next: AtomicUsize,
    is_stopped: AtomicBool,
}

/// What a thread found in a relation.
struct Portion {
    bytes: u64,
    findings: Vec<BlockFinding>,
}

/// Takes a thread's findings; false: they are not taken any more.
type Emit<'a> = &'a mut dyn FnMut(Portion) -> bool;

impl Work<'_> {
    /// Reads the next table; false: there is none.
    fn next(&self, buffer: &mut [u8], emit: Emit<'_>) -> bool {
        let next = self.tables.get(self.next.fetch_add(1, Ordering::Relaxed));
        next.map(|table| self.table(table, buffer, emit)).is_some()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn table(&self, of: &Table, buffer: &mut [u8], emit: Emit<'_>) {
        let blocks = self.forks.blocks(main_fork(of.files));
        let mut rows = Rows { end: blocks.count(), zeros: Vec::new(), found: BTreeMap::new() };
        blocks.each(buffer, &mut |block, page| {
            if is_zero(page) {
                rows.zeros.push(block);
            }
            !self.is_stopped()
        });
        let mut bytes = blocks.bytes();
        for index in &of.indexes {
            let blocks = self.forks.blocks(main_fork(*index));
            let findings = self.index(*index, &blocks, &mut rows, buffer);
            bytes += blocks.bytes();
            if self.is_stopped() || !emit(Portion { bytes, findings }) {
                return;
            }
            bytes = 0;
        }
        let fork = main_fork(of.files);
        let finding =
            |(block, evidence)| BlockFinding { fork, block, defect: Defect::Evidence(evidence) };
        let findings = rows.found.into_iter().map(finding).collect();
        emit(Portion { bytes, findings });
    }

    /// Reads an index: what is wrong with it, and what it says of its table.
    fn index(
        &self,
        index: RelFileLocator,
        blocks: &Blocks<'_>,
        rows: &mut Rows,
        buffer: &mut [u8],
    ) -> Vec<BlockFinding> {
        let mut links = Links::new(blocks.count());
        blocks.each(buffer, &mut |block, page| {
            match page_verdict(page, block, self.has_checksums) {
                Verdict::New => links.zeros.push(block),
                Verdict::Valid => match BtreePage::read(page) {
                    Some(BtreePage::Meta(meta)) => links.add(block, [meta.root, meta.fast_root]),
                    Some(BtreePage::Node(node)) => {
                        links.add(block, node.left.into_iter().chain(node.right));
                        links.add(block, node.children());
                        rows.add(index, &node);
                    }
                    None => {}
                },
                Verdict::Invalid(_) => {}
            }
            !self.is_stopped()
        });
        let fork = main_fork(index);
        let finding =
            |(block, evidence)| BlockFinding { fork, block, defect: Defect::Evidence(evidence) };
        links.found().into_iter().map(finding).collect()
    }
}

/// Whether every byte is zero. Most pages show by their header that they are used.
fn is_zero(page: &[u8]) -> bool {
    PageHeader::read(page).is_some_and(|header| header.is_new())
        && page_verdict(page, 0, false) == Verdict::New
}

/// Which blocks of an index pages of it lead to.
struct Links {
    /// By block the one that leads there; itself, as no page does: none.
    from: Vec<u32>,
    zeros: Vec<u32>,
    /// The last block behind the end that a page leads to, and which one.
    beyond: Option<(u32, u32)>,
}

impl Links {
    fn new(blocks: u32) -> Self {
        Self { from: (0..blocks).collect(), zeros: Vec::new(), beyond: None }
    }

    fn add(&mut self, from: u32, to: impl IntoIterator<Item = u32>) {
        for block in to {
            match self.from.get_mut(block as usize) {
                Some(known) => *known = from,
                None => self.beyond = self.beyond.max(Some((block, from))),
            }
        }
    }

    fn found(&self) -> Vec<(u32, Evidence)> {
        let linked = |block: &u32| {
            let from = self.from.get(*block as usize).copied();
            from.filter(|from| from != block).map(|from| (*block, Evidence::ZeroButLinked { from }))
        };
        let mut found: Vec<(u32, Evidence)> = self.zeros.iter().filter_map(linked).collect();
        if let Some((last, from)) = self.beyond {
            let end = u32::try_from(self.from.len()).unwrap_or(u32::MAX);
            found.push((end, Evidence::MissingButLinked { last, from }));
        }
        found
    }
}

/// What indexes say of a table.
struct Rows {
    /// How many blocks it has.
    end: u32,
    /// Those that are zero, in their order.
    zeros: Vec<u32>,
    found: BTreeMap<u32, Evidence>,
}

impl Rows {
    fn add(&mut self, index: RelFileLocator, node: &Node<'_>) {
        for row in node.rows() {
            if row.block >= self.end {
                self.missing(index, row.block);
            } else if !self.zeros.is_empty() && self.zeros.binary_search(&row.block).is_ok() {
                self.found.entry(row.block).or_insert(Evidence::ZeroButIndexed { index });
            }
        }
    }

    fn missing(&mut self, index: RelFileLocator, block: u32) {
        let new = Evidence::MissingButIndexed { index, last: block };
        let known = self.found.entry(self.end).or_insert(new);
        if matches!(known, Evidence::MissingButIndexed { last, .. } if *last < block) {
            *known = new;
        }
    }
}

/// What is read by one call.
const BUFFER_BYTES: usize = 256 << 10;
