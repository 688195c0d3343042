//! Replaces damaged pages of a stopped cluster by those of a backup or of another copy of its files,
//! where WAL proves that they are the right ones.
//!
//! [`plan_repair`] reads and changes nothing; [`RepairUndo`] is what would be written, kept on disk
//! before it is.

mod error;
mod install;
mod proof;
mod source;

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::catalog::{Persistence, RelationKind};
use pgtoll_format::{ForkNumber, Lsn, PageHeader, RelationFork, Verdict, WalLevel};
use pgtoll_record::{
    Advice, EvidenceClass, Provenance, REPAIR_SCHEMA, RepairBlock, RepairCandidate, RepairOutcome,
    RepairRecord, RepairSource, RepairSourceKind, RepairWal, RepairWalRecord,
};
use pgtoll_wal::{
    BlockReferences, End, Lineage, checkpoint_segments_with, recorded_name, scan_range_with,
};

use proof::{BlockWal, SourceHistory, fault_words, judge, page_verdict};
use source::{PageSource, RelationBlocks};

pub use error::RepairError;
pub use install::{RepairStep, RepairUndo, UndoPage};

/// A block that is to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// Where.
    pub fork: RelationFork,
    /// The block's number in the fork.
    pub block: u32,
    /// What was found, where a server accepts the page all the same.
    pub suspicion: Option<String>,
    /// What else can be done.
    pub advice: Vec<Advice>,
}

/// With what pages are repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Directories, in the order in which they are tried.
    pub sources: Vec<(RepairSourceKind, PathBuf)>,
    /// More WAL than there is in `pg_wal` and in the sources.
    pub wal: Vec<PathBuf>,
    /// Pages that are only plausible are taken too.
    pub accept_plausible: bool,
    /// Threads that read WAL.
    pub threads: usize,
}

/// Blocks of one plan at most: those behind are left for another one, so that an undo file is read again.
pub const REPAIR_BLOCKS_MAX: usize = 10_000;

/// What would be written.
#[derive(Clone, Debug)]
pub struct RepairPlan {
    /// All blocks, with what is known of them.
    pub record: RepairRecord,
    /// The pages that would be written.
    pub pages: Vec<UndoPage>,
}

/// Works out by what damaged blocks of a stopped cluster can be replaced. Changes nothing. `interrupt`
/// is asked while WAL is read.
pub fn plan_repair(
    data: &DataDirectory,
    names: &Names,
    damaged: &[DamagedBlock],
    options: &RepairOptions,
    provenance: Provenance,
    interrupt: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<RepairPlan, RepairError> {
    check_target(data)?;
    let places: Vec<PathBuf> = options
        .sources
        .iter()
        .map(|(_, path)| path.join("pg_wal"))
        .chain(options.wal.clone())
        .collect();
    let lineage = Lineage::of(data, &places);
    let opened = options
        .sources
        .iter()
        .map(|(kind, path)| PageSource::open(*kind, path, data, &lineage))
        .collect::<Result<Vec<_>, _>>()?;
    let references = read_wal(data, &lineage, &opened, damaged, options, interrupt)?;
    let sources =
        opened.into_iter().map(|opened| JudgedSource::of(opened, references.as_ref())).collect();
    let planner = Planner {
        data,
        names,
        target: RelationBlocks::of(data),
        sources,
        references: references.as_ref(),
        accept_plausible: options.accept_plausible,
    };
    let mut pages = Vec::new();
    // Of one block there may be several findings; the first one counts.
    let mut seen = BTreeSet::new();
    let each = damaged.iter().filter(|of| seen.insert((of.fork, of.block)));
    let blocks = each.take(REPAIR_BLOCKS_MAX).map(|of| planner.block(of, &mut pages)).collect();
    Ok(RepairPlan { record: planner.record(blocks, options, provenance), pages })
}

/// Only a primary that was stopped in good order has all that it wrote in its files.
fn check_target(data: &DataDirectory) -> Result<(), RepairError> {
    let path = || data.path.clone();
    if !data.is_consistent() {
        let (state, is_backup) = (data.control.state, data.backup_start.is_some());
        return Err(RepairError::NotStopped { path: path(), state, is_backup });
    }
    if let Some(pid) = data.server()? {
        return Err(RepairError::Running { path: path(), pid });
    }
    if !data.has_checksums() {
        return Err(RepairError::NoChecksums { path: path() });
    }
    Ok(())
}

/// What the WAL up to the shutdown says of the blocks; `None`: it does not lead there.
fn read_wal(
    data: &DataDirectory,
    lineage: &Lineage,
    sources: &[Result<PageSource, String>],
    damaged: &[DamagedBlock],
    options: &RepairOptions,
    interrupt: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<BlockReferences>, RepairError> {
    let of_sources = sources.iter().flatten().map(|of| of.wal.clone()).filter(|of| of.is_dir());
    let places: Vec<PathBuf> = options.wal.iter().cloned().chain(of_sources).collect();
    let segments = checkpoint_segments_with(data, lineage, &places)?;
    if segments.is_empty() {
        return Ok(None);
    }
    let blocks: Vec<(RelationFork, u32)> = damaged.iter().map(|of| (of.fork, of.block)).collect();
    let new = || BlockReferences::new(blocks.iter().copied(), data.control.checkpoint);
    let all = Lsn::INVALID..Lsn::MAX;
    let watch = &mut |_| interrupt();
    let (summary, end) = scan_range_with(&segments, &all, options.threads.max(1), new, watch)?;
    if matches!(end, End::Interrupted) {
        return Err(RepairError::Interrupted);
    }
    if summary.system_identifier != data.control.system_identifier {
        let found = summary.system_identifier;
        return Err(RepairError::ForeignWal { found, path: data.path.clone() });
    }
    Ok(Some(summary.collected).filter(|of| of.checkpoint_end().is_some()))
}

/// A source, or why nothing is taken from it.
struct JudgedSource {
    opened: Result<(PageSource, SourceHistory), String>,
}

impl JudgedSource {
    fn of(opened: Result<PageSource, String>, wal: Option<&BlockReferences>) -> Self {
        let with_history = |source: PageSource| {
            let history = source.history(wal)?;
            Ok((source, history))
        };
        Self { opened: opened.and_then(with_history) }
    }
}

struct Planner<'a> {
    data: &'a DataDirectory,
    names: &'a Names,
    target: RelationBlocks,
    sources: Vec<JudgedSource>,
    references: Option<&'a BlockReferences>,
    accept_plausible: bool,
}

impl Planner<'_> {
    fn record(
        &self,
        blocks: Vec<RepairBlock>,
        options: &RepairOptions,
        provenance: Provenance,
    ) -> RepairRecord {
        let Provenance { version, command, made } = provenance;
        let control = &self.data.control;
        let named = options.sources.iter().zip(&self.sources);
        let sources = named.map(|((kind, path), source)| RepairSource {
            kind: *kind,
            path: path.display().to_string(),
            contains: source.opened.as_ref().ok().map(|(of, _)| of.contains()),
            refused: source.opened.as_ref().err().cloned(),
        });
        let wal = self.references.and_then(BlockReferences::first).map(|from| RepairWal {
            from,
            to: control.checkpoint,
            timeline: control.last_checkpoint.timeline,
        });
        RepairRecord {
            schema: REPAIR_SCHEMA.to_owned(),
            pgtoll: version,
            command,
            made,
            data: self.data.path.display().to_string(),
            system_identifier: control.system_identifier.to_string(),
            major: self.data.major,
            outcome: RepairOutcome::Planned,
            wal,
            sources: sources.collect(),
            remaining: count_remaining(&blocks),
            blocks,
            undo_file: None,
            ledger: None,
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let unread = self.names.unread();
        let of_names =
            (!unread.is_empty()).then(|| format!("{unread}: some relations have no name"));
        let of_wal = self.references.is_none().then(|| {
            "the WAL up to the cluster's shutdown cannot be read: nothing can be proved".to_owned()
        });
        of_names.into_iter().chain(of_wal).collect()
    }

    fn block(&self, damaged: &DamagedBlock, pages: &mut Vec<UndoPage>) -> RepairBlock {
        let mut found = self.unjudged(damaged);
        let place = self.target.place(damaged.fork, damaged.block);
        let path = place.as_ref().map(|(path, _)| path.as_path());
        let below = |path: &Path| path.strip_prefix(&self.data.path).map(Path::to_owned);
        found.path =
            path.map(|path| below(path).unwrap_or_else(|_| path.to_owned()).display().to_string());
        let (file, page) = match self.target.read(damaged.fork, damaged.block) {
            Ok(Some(read)) => read,
            Ok(None) => return found.without("the file ends before the block"),
            Err(error) => return found.without(&format!("the page cannot be read: {error}")),
        };
        found.lsn = PageHeader::read(&page).map(|header| header.lsn);
        match page_verdict(&page, damaged.block) {
            Verdict::Invalid(fault) => found.damage = fault_words(fault),
            // Other pages that servers accept cannot be told from what they left there.
            Verdict::New => "the page is all zeros".clone_into(&mut found.damage),
            Verdict::Valid => return found.accepted(damaged),
        }
        if let Some(reason) = self.unfit(damaged.fork) {
            return found.without(&reason);
        }
        let candidates: Vec<(RepairCandidate, Option<Vec<u8>>)> =
            (0..self.sources.len()).map(|at| self.candidate(at, damaged, &file, &page)).collect();
        // Of equal ones the first.
        let best = (0..candidates.len()).rev().max_by_key(|at| candidates[*at].0.class);
        found.candidates = candidates.iter().map(|(of, _)| of.clone()).collect();
        let Some((at, after)) = best.and_then(|at| Some((at, candidates[at].1.as_ref()?))) else {
            return found.without(if self.sources.is_empty() {
                "no source was named"
            } else {
                "no source has a page that could be taken"
            });
        };
        let best = &candidates[at].0;
        if best.class == EvidenceClass::Refused {
            return found.without(&best.reason.clone());
        }
        (found.class, found.reason, found.chosen) = (best.class, best.reason.clone(), Some(at));
        found.count_changes(&page, after);
        let is_taken = found.class > EvidenceClass::Plausible
            || (found.class == EvidenceClass::Plausible && self.accept_plausible);
        if let Some((path, offset)) = place.filter(|_| is_taken) {
            pages.push(UndoPage::new(&path, offset, damaged.block, &page, after, found.clone()));
        }
        found
    }

    /// A block of which nothing is known but its names.
    fn unjudged(&self, damaged: &DamagedBlock) -> RepairBlock {
        let RelationFork { relation, number } = damaged.fork;
        let history = self.history(damaged);
        let last_record = history.and_then(|of| of.last).map(|of| RepairWalRecord {
            at: of.at,
            end: of.end,
            kind: of.record_type.name(self.data.major),
        });
        let is_derivable = number == ForkNumber::FSM
            || number == ForkNumber::VM
            || self.names.relation(relation).is_some_and(|name| {
                name.kind == RelationKind::Index || name.persistence == Persistence::Unlogged
            });
        RepairBlock {
            tablespace: relation.tablespace,
            database: relation.database,
            filenode: relation.rel_number,
            fork: number.to_string(),
            block: damaged.block,
            path: None,
            name: self.names.relation(relation).map(recorded_name),
            damage: damaged.suspicion.clone().unwrap_or_default(),
            lsn: None,
            last_record,
            // Where no page can be taken.
            class: if is_derivable { EvidenceClass::Derivable } else { EvidenceClass::Refused },
            reason: String::new(),
            candidates: Vec::new(),
            chosen: None,
            changed_bytes: 0,
            changed: Vec::new(),
            installed: false,
            advice: damaged.advice.clone(),
        }
    }

    fn history(&self, damaged: &DamagedBlock) -> Option<pgtoll_wal::BlockHistory> {
        self.references?.history(damaged.fork, damaged.block)
    }

    /// Why no page of this fork can be proved.
    fn unfit(&self, fork: RelationFork) -> Option<String> {
        let persistence = self.names.relation(fork.relation).map(|name| name.persistence);
        match (fork.number, persistence) {
            (ForkNumber::MAIN, Some(Persistence::Permanent))
            | (ForkNumber::INIT, Some(Persistence::Unlogged)) => None,
            (ForkNumber::FSM | ForkNumber::VM, _) => {
                Some("the page of a map has no LSN that would prove it".to_owned())
            }
            (_, None) => Some("the catalogs name no relation with this file".to_owned()),
            (_, Some(_)) => Some("the relation's changes are not logged".to_owned()),
        }
    }

    /// What a source has for a block; the page where it may be taken.
    fn candidate(
        &self,
        at: usize,
        damaged: &DamagedBlock,
        file: &File,
        page: &[u8],
    ) -> (RepairCandidate, Option<Vec<u8>>) {
        let refused = |reason: String| {
            let class = EvidenceClass::Refused;
            (RepairCandidate { source: at, class, reason, lsn: None }, None)
        };
        let (source, history) = match &self.sources[at].opened {
            Ok(source) => source,
            Err(reason) => return refused(reason.clone()),
        };
        let candidate = match source.page(damaged.fork, damaged.block, file) {
            Ok(candidate) => candidate,
            Err(reason) => return refused(reason),
        };
        let wal = self.block_wal(damaged);
        let judgement = judge(page, &candidate, damaged.block, &wal, history);
        let lsn = PageHeader::read(&candidate).map(|header| header.lsn);
        let (class, reason) = (judgement.class, judgement.reason);
        (RepairCandidate { source: at, class, reason, lsn }, Some(candidate))
    }

    fn block_wal(&self, damaged: &DamagedBlock) -> BlockWal {
        let control = &self.data.control;
        let is_minimal = matches!(control.wal_level, WalLevel::Minimal | WalLevel::Unknown(_));
        let logged = self.references.and_then(BlockReferences::minimal);
        BlockWal {
            from: self.references.and_then(BlockReferences::first).unwrap_or(Lsn::MAX),
            to: control.checkpoint,
            minimal: if is_minimal { Some(Lsn::MAX) } else { logged },
            history: self.history(damaged).unwrap_or_default(),
        }
    }
}

/// Blocks that are not as they should be.
pub(crate) fn count_remaining(blocks: &[RepairBlock]) -> u64 {
    let remains = |of: &&RepairBlock| !of.installed && of.class != EvidenceClass::Sound;
    blocks.iter().filter(remains).count() as u64
}

/// Steps of filling a block.
trait Filled: Sized {
    fn without(self, reason: &str) -> Self;
    fn accepted(self, damaged: &DamagedBlock) -> Self;
    fn count_changes(&mut self, before: &[u8], after: &[u8]);
}

impl Filled for RepairBlock {
    /// No page can be taken.
    fn without(mut self, reason: &str) -> Self {
        reason.clone_into(&mut self.reason);
        self
    }

    /// A server accepts the page.
    fn accepted(mut self, damaged: &DamagedBlock) -> Self {
        if damaged.suspicion.is_some() {
            return self.without(
                "servers accept the page: records of WAL may have been made on it as it is",
            );
        }
        self.class = EvidenceClass::Sound;
        self.without("servers accept the page")
    }

    fn count_changes(&mut self, before: &[u8], after: &[u8]) {
        let mut begin = None;
        for at in 0..=before.len().min(after.len()) {
            let differs = at < before.len() && before.get(at) != after.get(at);
            self.changed_bytes += u32::from(differs);
            match (differs, begin) {
                (true, None) => begin = Some(at),
                (false, Some(first)) => {
                    if self.changed.len() < STRETCHES_MAX {
                        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
                        self.changed.push((place(first), place(at)));
                    }
                    begin = None;
                }
                _ => {}
            }
        }
    }
}

/// Stretches of changed bytes that a record has of a page.
const STRETCHES_MAX: usize = 16;
