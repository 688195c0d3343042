//! Results of a verification.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ForkNumber, RelFileLocator, RelationFork};
use pgtoll_record::FindingClass;
use serde::{Deserialize, Serialize};

use crate::defect::{BlockFinding, Defect, DefectCounts, LayoutDefect};
use crate::layout;
use crate::listing::Listing;
use crate::manifest::{ManifestCompared, WrongFile};
use crate::maps::Unmapped;
use crate::zeros::ZeroPages;

/// The pages that were read, and their findings.
#[derive(Debug, Default)]
pub struct Verified {
    /// Files of relations that were read, or are empty.
    pub files: u64,
    /// The counts of pages that were read.
    pub pages: PagesRead,
    /// The faults, in the order of relations, forks and blocks. Of very many only some:
    /// [`counts`](Self::counts) has all.
    pub findings: Vec<BlockFinding>,
    /// How much is wrong with each fork that something is wrong with.
    pub counts: BTreeMap<RelationFork, DefectCounts>,
    /// Files of temporary relations, which are not read.
    pub temporary: u64,
    /// Files of an incremental backup, which hold some blocks each: they are among `files`.
    pub incremental: u64,
    /// Pages of a base backup that are wrong, and that its own WAL replaces when it is recovered:
    /// they are no findings.
    pub healed_by_replay: u64,
    /// Files of other programs.
    pub foreign: Vec<PathBuf>,
    /// Files and directories that could not be read.
    pub unlisted: Vec<(PathBuf, io::Error)>,
    /// Blocks that looked damaged while a server wrote them.
    pub running: RunningCounts,
    /// Not all was read: the caller interrupted it.
    pub is_interrupted: bool,
    /// Files that are missing, or are not as they should be. Of very many only some.
    pub wrong_files: Vec<WrongFile>,
    /// Such files that `wrong_files` has not.
    pub more_wrong_files: u64,
    /// Why nothing can be said of the whole cluster, whatever was read of it.
    pub incomplete: Vec<String>,
    /// The comparison with the backup's manifest; `None`: not compared.
    pub manifest: Option<ManifestCompared>,
    /// Threads that were started, of how many: the system refused the others. `None`: all were.
    pub fewer_threads: Option<(usize, usize)>,
    /// Rows were not looked at, by choice.
    pub(super) skips_rows: bool,
    /// Stored files were compared with the checksums in the backup's own list.
    pub(super) compares_stored_files: bool,
    /// The evidence that pages were compared with.
    pub evidence: EvidenceCompared,
    /// Pages of zeros, and where B-trees lead.
    pub(super) zeros: ZeroPages,
    /// Pages whose maps are empty.
    pub(super) unmapped: Unmapped,
    /// The files; `None` where there may be more that were not looked at.
    pub(super) files_of_all: Option<Listing>,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesRead {
    /// Number of bytes.
    pub bytes: u64,
    /// Blocks with a verdict.
    pub blocks: u64,
    /// Those of them that were never used: every byte is zero.
    pub new: u64,
}

/// The evidence that pages were compared with, and the checks that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceCompared {
    /// Evidence that pages were compared with.
    pub covered: Vec<String>,
    /// Evidence that pages were not compared with, and why.
    pub left_out: Vec<String>,
    /// Details for a reader.
    pub notes: Vec<String>,
    /// The evidence is missing although it should exist.
    pub is_missing: bool,
}

/// Counts of suspects by outcome. The record's `VerifiedRunning` has the server beside these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningCounts {
    /// Blocks that looked damaged at first.
    pub suspects: u64,
    /// Those of them that were sound when they were read again.
    pub healed: u64,
    /// Those whose image the WAL had, so that a checkpoint had to be waited for.
    pub in_flight: u64,
    /// Those that are no longer there, and files that went or became shorter.
    pub dropped: u64,
    /// How often the server was asked to read a block.
    pub asked: u64,
}

impl Verified {
    /// Everything that is wrong, in sums.
    pub fn total(&self) -> DefectCounts {
        self.counts.values().fold(DefectCounts::default(), |sum, count| DefectCounts {
            failures: sum.failures + count.failures,
            suspicions: sum.suspicions + count.suspicions,
            unverified: sum.unverified + count.unverified,
        })
    }

    /// Whether something is wrong with pages or files.
    pub fn is_wrong(&self) -> bool {
        let total = self.total();
        total.failures + total.suspicions > 0 || !self.wrong_files.is_empty()
    }

    /// Whether every page that should be there was read.
    pub fn is_whole(&self) -> bool {
        !self.is_interrupted
            && self.unlisted.is_empty()
            && self.incomplete.is_empty()
            && !self.evidence.is_missing
            && self.total().unverified == 0
    }

    pub(super) fn threads(&mut self, started: usize, wanted: usize) {
        if started < wanted {
            self.fewer_threads = Some((started, wanted));
        }
    }

    /// Adds what evidence says of blocks of which nothing wrong was found before.
    pub(super) fn add_evidence(&mut self, findings: impl IntoIterator<Item = BlockFinding>) {
        let known = |finding: &&BlockFinding| finding.defect.class() != FindingClass::Unverified;
        let known = self.findings.iter().filter(known).map(|finding| (finding.fork, finding.block));
        let mut known: HashSet<(RelationFork, u32)> = known.collect();
        for finding in findings {
            if known.insert((finding.fork, finding.block)) {
                self.add(finding);
            }
        }
        self.findings.sort_by_key(|finding| (finding.fork, finding.block));
    }

    pub(super) fn add(&mut self, finding: BlockFinding) {
        self.counts.entry(finding.fork).or_default().count(&finding.defect);
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Compares what was found with what the catalogs say. A file that they do not name is a
    /// leftover of a crash, which no server reads and whose length means nothing; what they name has to
    /// be there.
    ///
    /// `wanted` is that of [`verify`](super::verify). Nothing is concluded where the catalogs may say something else than they should.
    pub fn compare_with(
        &mut self,
        names: &Names,
        data: &DataDirectory,
        wanted: &dyn Fn(RelFileLocator) -> bool,
    ) {
        if !data.is_consistent() || !names.unread().is_empty() {
            return;
        }
        let has_name = |fork: &RelationFork| names.relation(fork.relation).is_some();
        let findings = std::mem::take(&mut self.findings);
        let is_suspicion =
            |finding: &BlockFinding| finding.defect.class() == FindingClass::Suspicion;
        self.findings = findings
            .into_iter()
            .filter(|finding| has_name(&finding.fork) || !is_suspicion(finding))
            .collect();
        for (_, counts) in self.counts.iter_mut().filter(|(fork, _)| !has_name(fork)) {
            counts.suspicions = 0;
        }
        self.counts.retain(|_, counts| *counts != DefectCounts::default());
        self.firsts(names);
        self.missing(names, wanted);
        self.findings.sort_by_key(|finding| (finding.fork, finding.block));
    }

    /// Compares what maps say with what the catalogs say: only tables of PostgreSQL's own kind have maps
    /// that are understood, and a file that no catalog names has none that counts. Where a map has bits
    /// of blocks behind the end of its table, the catalogs say which of both is wrong.
    pub fn settle_maps(&mut self, names: Option<&Names>) {
        let counted = |finding: &BlockFinding| names?.heap_blocks(finding.fork.relation);
        let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(&mut self.findings)
            .into_iter()
            .partition(|item| !item.defect.is_of_visibility() || counted(item).is_some());
        self.findings = kept;
        for finding in dropped {
            let counts = self.counts.entry(finding.fork).or_default();
            let blocks = u64::from(finding.defect.blocks());
            counts.suspicions = counts.suspicions.saturating_sub(blocks);
        }
        self.counts.retain(|_, counts| *counts != DefectCounts::default());
        for finding in &mut self.findings {
            let blocks = counted(finding).filter(|counted| (1..=finding.block).contains(counted));
            if let (Defect::Layout(LayoutDefect::VisibleBeyondEnd { last }), Some(counted)) =
                (&finding.defect, blocks)
            {
                let last = *last;
                finding.defect = Defect::Layout(LayoutDefect::StaleBeyondEnd { last, counted });
            }
        }
    }

    /// Every access method writes the first page of an index when it makes it, and so does a
    /// sequence.
    fn firsts(&mut self, names: &Names) {
        let has_one = |fork: RelationFork| {
            let kind = names.relation(fork.relation).map(|name| name.kind);
            // Of one that could not be made, its files may be left behind as they were.
            matches!(kind, Some(RelationKind::Index | RelationKind::Sequence))
                && !names.is_unready(fork.relation)
        };
        let mut wrong: Vec<(RelationFork, Defect)> = Vec::new();
        let first_is_zero = self.zeros.runs().iter().filter(|run| run.first == 0);
        let forks = first_is_zero
            .map(|run| RelationFork { relation: run.relation, number: ForkNumber::MAIN });
        wrong.extend(forks.filter(|fork| has_one(*fork)).map(|fork| (fork, Defect::ZeroFirst)));
        if let Some(files) = &self.files_of_all {
            layout::empty_ones(files, |fork| {
                if has_one(fork) {
                    wrong.push((fork, Defect::Layout(LayoutDefect::Empty)));
                }
            });
        }
        for (fork, defect) in wrong {
            self.add(BlockFinding { fork, block: 0, defect });
        }
    }

    fn missing(&mut self, names: &Names, wanted: &dyn Fn(RelFileLocator) -> bool) {
        let Some(files) = self.files_of_all.as_ref().filter(|_| self.unlisted.is_empty()) else {
            return;
        };
        let is_there = |fork: &RelationFork| {
            let first = files.of_fork(*fork).next();
            first.is_some_and(|first| files.file(first).segment == 0)
        };
        let mut missing: Vec<RelationFork> = names
            .iter()
            .filter(|(_, name)| name.persistence != Persistence::Temporary)
            .filter(|(relation, _)| wanted(*relation))
            .map(|(relation, _)| RelationFork { relation, number: ForkNumber::MAIN })
            .filter(|fork| !is_there(fork))
            .collect();
        missing.sort_unstable();
        for fork in missing {
            self.add(BlockFinding { fork, block: 0, defect: Defect::Layout(LayoutDefect::NoFile) });
        }
    }
}

/// Findings that are kept; the rest is counted.
const FINDINGS_MAX: usize = 100_000;
