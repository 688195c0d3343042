//! What verification found.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::wal::RelationFiles;
use pgtoll_format::{Fault, IncrementalError, Lsn};
use serde::{Deserialize, Serialize};

use super::listing::Listing;
use super::{
    DataDirectory, Evidence, FileFinding, ManifestCompared, RunningCounts, Unsettled, layout,
};
use pgtoll_datadir::Names;
use pgtoll_format::wal::Fork;

/// What was read, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Verified {
    /// Files of relations that were read, or are empty.
    pub files: u64,
    /// What was read of them.
    pub pages: Pages,
    /// What is wrong, in the order of relations, forks and blocks. Of very many only some:
    /// [`counts`](Self::counts) has all.
    pub findings: Vec<Finding>,
    /// How much is wrong with each fork that something is wrong with.
    pub counts: BTreeMap<Fork, Counts>,
    /// Files of temporary relations, which are not read.
    pub temporary: u64,
    /// Files of an incremental backup, which hold some blocks each: they are among `files`.
    pub incremental: u64,
    /// Pages of a base backup that are wrong, and that its own WAL replaces when it is recovered:
    /// they are no findings.
    pub healed_by_replay: u64,
    /// What PostgreSQL did not put there.
    pub foreign: Vec<PathBuf>,
    /// What could not be looked into.
    pub unlisted: Vec<(PathBuf, io::Error)>,
    /// What looked damaged while a server wrote it.
    pub running: RunningCounts,
    /// Not all was read, since whoever asked did not want to wait.
    pub is_interrupted: bool,
    /// Files that are missing, or are not as they should be. Of very many only some.
    pub wrong_files: Vec<FileFinding>,
    /// Such files that `wrong_files` has not.
    pub more_wrong_files: u64,
    /// Why nothing can be said of the whole cluster, whatever was read of it.
    pub incomplete: Vec<String>,
    /// What was compared with the backup's manifest; `None`: nothing.
    pub manifest: Option<ManifestCompared>,
    /// Threads that were started, of how many: the system refused the others. `None`: all were.
    pub fewer_threads: Option<(usize, usize)>,
    /// Forks whose first block is zero, which is wrong if they are an index's or a sequence's.
    pub(super) firsts: Vec<Fork>,
    /// The files; `None` where there may be more that were not looked at.
    pub(super) files_of_all: Option<Listing>,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Bytes.
    pub bytes: u64,
    /// Blocks with a verdict.
    pub blocks: u64,
    /// Those of them that were never used: every byte is zero.
    pub new: u64,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Where.
    pub fork: Fork,
    /// The block's number in the fork.
    pub block: u32,
    /// What.
    pub what: WhatIsWrong,
}

/// What is wrong with a block, or with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIsWrong {
    /// A server that reads the page refuses it.
    Invalid {
        /// Why.
        fault: Fault,
        /// Where the record ends that changed it last, as the page says.
        lsn: Lsn,
    },
    /// A server that reads the page refuses it; the server may have written it while the backup
    /// was made, and without the backup's WAL nobody can tell whether recovery replaces it.
    MayBeTorn {
        /// What is wrong with it.
        fault: Fault,
        /// Where the record ends that changed it last, as the page says.
        lsn: Lsn,
    },
    /// The file of an incremental backup is not as any is, and cannot be restored from.
    Incremental(IncrementalError),
    /// It says that it was changed last by WAL that was never written.
    AheadOfWal {
        /// By which.
        lsn: Lsn,
    },
    /// The page is zero, though the visibility map says that all of its rows are visible.
    ZeroButVisible,
    /// The first page of an index or of a sequence is zero, which none ever is.
    ZeroFirst,
    /// The files are not as long, or not there, as a server would have left them.
    Layout(Layout),
    /// The system could not read it.
    Unreadable {
        /// How many blocks, this one and those behind it.
        blocks: u32,
        /// What the system said.
        error: String,
    },
    /// The file became shorter while it was read.
    Changed,
    /// Something else says that the page must be another one.
    Evidence(Evidence),
    /// A server that reads the page would refuse it; but it runs, and may have it otherwise.
    Unsettled {
        /// What is wrong with the page.
        fault: Fault,
        /// Where the record ends that changed it last, as the page says.
        lsn: Lsn,
        /// Why it could not be told.
        why: Unsettled,
    },
}

/// What is wrong with the files of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The file ends within a block, which no server reads.
    EndsInBlock {
        /// Bytes of it that are there.
        bytes: u32,
    },
    /// A file that another one follows is not full.
    Short {
        /// Which one, from 0.
        segment: u32,
    },
    /// A file has more blocks than files have.
    TooLong {
        /// Which one.
        segment: u32,
    },
    /// Files are missing that others follow.
    Missing {
        /// The first one.
        segment: u32,
        /// How many.
        count: u32,
    },
    /// The file ends before this block, and the visibility map says that rows behind are visible.
    VisibleBeyondEnd {
        /// The last block of which a page of the map says so.
        last: u32,
    },
    /// The catalogs name the relation, and it has no file.
    NoFile,
    /// The catalogs name the index or the sequence, and its file is empty, which none ever is.
    Empty,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A server refuses the page.
    Failure,
    /// A server would not notice, and yet it cannot be right.
    Suspicion,
    /// It could not be told.
    Unverified,
}

/// How much is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Pages that a server refuses.
    pub failures: u64,
    /// What a server would not notice.
    pub suspicions: u64,
    /// Blocks that could not be read.
    pub unverified: u64,
}

impl WhatIsWrong {
    /// How bad it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Invalid { .. } | Self::Incremental(_) => Class::Failure,
            Self::Unreadable { .. }
            | Self::Changed
            | Self::MayBeTorn { .. }
            | Self::Unsettled { .. } => Class::Unverified,
            Self::AheadOfWal { .. } | Self::ZeroButVisible | Self::ZeroFirst | Self::Layout(_) => {
                Class::Suspicion
            }
            Self::Evidence(_) => Class::Suspicion,
        }
    }
}

impl Counts {
    fn count(&mut self, what: &WhatIsWrong) {
        match what {
            WhatIsWrong::Unreadable { blocks, .. } => self.unverified += u64::from(*blocks),
            other => match other.class() {
                Class::Failure => self.failures += 1,
                Class::Suspicion => self.suspicions += 1,
                Class::Unverified => self.unverified += 1,
            },
        }
    }
}

impl Verified {
    /// Everything that is wrong, in sums.
    pub fn total(&self) -> Counts {
        self.counts.values().fold(Counts::default(), |sum, of| Counts {
            failures: sum.failures + of.failures,
            suspicions: sum.suspicions + of.suspicions,
            unverified: sum.unverified + of.unverified,
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
            && self.total().unverified == 0
    }

    pub(super) fn threads(&mut self, started: usize, wanted: usize) {
        if started < wanted {
            self.fewer_threads = Some((started, wanted));
        }
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.counts.entry(finding.fork).or_default().count(&finding.what);
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Compares what was found with what the catalogs say. A file that they do not name is a
    /// leftover of a crash, which nobody reads and whose length says nothing; what they name has to
    /// be there.
    ///
    /// `wanted` is that of [`verify`](super::verify). Nothing is concluded where the catalogs may say something else than they should.
    pub fn compare_with(
        &mut self,
        names: &Names,
        data: &DataDirectory,
        wanted: &dyn Fn(RelationFiles) -> bool,
    ) {
        if !data.is_consistent() || !names.unread().is_empty() {
            return;
        }
        let has_name = |fork: &Fork| names.relation(fork.relation).is_some();
        let findings = std::mem::take(&mut self.findings);
        let is_suspicion = |of: &Finding| of.what.class() == Class::Suspicion;
        self.findings = findings
            .into_iter()
            .filter(|finding| has_name(&finding.fork) || !is_suspicion(finding))
            .collect();
        for (_, counts) in self.counts.iter_mut().filter(|(fork, _)| !has_name(fork)) {
            counts.suspicions = 0;
        }
        self.counts.retain(|_, counts| *counts != Counts::default());
        self.firsts(names);
        self.missing(names, wanted);
        self.findings.sort_by_key(|finding| (finding.fork, finding.block));
    }

    /// Every access method writes the first page of an index when it makes it, and so does a
    /// sequence.
    fn firsts(&mut self, names: &Names) {
        let has_one = |fork: Fork| {
            let kind = names.relation(fork.relation).map(|name| name.kind);
            // Of one that could not be made, its files may be left behind as they were.
            matches!(kind, Some(RelationKind::Index | RelationKind::Sequence))
                && !names.is_unready(fork.relation)
        };
        let mut wrong: Vec<(Fork, WhatIsWrong)> = Vec::new();
        let zero = std::mem::take(&mut self.firsts).into_iter().filter(|fork| has_one(*fork));
        wrong.extend(zero.map(|fork| (fork, WhatIsWrong::ZeroFirst)));
        if let Some(files) = &self.files_of_all {
            layout::empty_ones(files, |fork| {
                if has_one(fork) {
                    wrong.push((fork, WhatIsWrong::Layout(Layout::Empty)));
                }
            });
        }
        for (fork, what) in wrong {
            self.add(Finding { fork, block: 0, what });
        }
    }

    fn missing(&mut self, names: &Names, wanted: &dyn Fn(RelationFiles) -> bool) {
        let Some(files) = self.files_of_all.as_ref().filter(|_| self.unlisted.is_empty()) else {
            return;
        };
        let is_there = |fork: &Fork| {
            let first = files.of_fork(*fork).next();
            first.is_some_and(|first| files.file(first).segment == 0)
        };
        let mut missing: Vec<Fork> = names
            .iter()
            .filter(|(_, name)| name.persistence != Persistence::Temporary)
            .filter(|(relation, _)| wanted(*relation))
            .map(|(relation, _)| Fork { relation, fork: 0 })
            .filter(|fork| !is_there(fork))
            .collect();
        missing.sort_unstable();
        for fork in missing {
            self.add(Finding { fork, block: 0, what: WhatIsWrong::Layout(Layout::NoFile) });
        }
    }
}

/// What is told block by block; the rest is counted.
const FINDINGS_MAX: usize = 100_000;
