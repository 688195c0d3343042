//! Replaces damaged pages of a cluster by those of a backup, of another copy of its files or of a
//! standby, where WAL proves that they are the right ones.
//!
//! [`plan_repair`] reads and changes nothing; [`RepairUndo`] is what would be written, kept on disk
//! before it is. A server may run meanwhile ([`RunningTarget`]): pages that it refuses cannot change.

mod directory;
mod error;
mod failure;
mod fetched;
mod install;
mod proof;
mod redo;
mod refusal;
mod running;
mod source;
mod standby;
mod tars;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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
    BlockChains, BlockReferences, End, Lineage, WalLimit, recorded_name, scan_range_with,
    segments_up_to,
};
use pgtoll_wire::Dsn;

use proof::{BlockWal, SourceHistory, fault_words, judge, page_verdict};
use refusal::SourceRefusal;
use running::Horizon;
use source::{PageSource, RelationBlocks};
use standby::Standby;

pub use directory::RepairDirectory;
pub use error::RepairError;
pub use fetched::RebuiltPages;
pub use install::{RepairStep, RepairUndo, UndoPage};
pub use redo::{Rebuild, RedoPlan};
pub use refusal::{BlockRefusal, RedoRefusal};
pub use running::{AskBlock, BlockAnswer, NotWritten, RunningTarget};

/// A block that is to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// The position.
    pub fork: RelationFork,
    /// The block's number in the fork.
    pub block: u32,
    /// The suspicion, if a server accepts the page.
    pub suspicion: Option<String>,
    /// WAL changed the page later than the page says.
    pub is_lost_write: bool,
    /// Other advice.
    pub advice: Vec<Advice>,
}

/// The source of pages.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few of them")]
pub enum PageOrigin {
    /// A base backup, plain or in tars.
    Backup(PathBuf),
    /// The files of a stopped server.
    Stopped(PathBuf),
    /// A running standby.
    Standby(Dsn),
}

impl PageOrigin {
    fn kind(&self) -> RepairSourceKind {
        match self {
            Self::Backup(_) => RepairSourceKind::Backup,
            Self::Stopped(_) => RepairSourceKind::Stopped,
            Self::Standby(_) => RepairSourceKind::Standby,
        }
    }

    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Backup(path) | Self::Stopped(path) => Some(path),
            Self::Standby(_) => None,
        }
    }

    /// Its name, without secrets.
    fn name(&self) -> String {
        match self {
            Self::Backup(path) | Self::Stopped(path) => path.display().to_string(),
            Self::Standby(dsn) => dsn.redacted(),
        }
    }
}

/// With what pages are repaired.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// In the order in which they are tried.
    pub sources: Vec<PageOrigin>,
    /// More WAL than there is in `pg_wal` and in the sources.
    pub wal: Vec<PathBuf>,
    /// Pages that are only plausible are taken too.
    pub accept_plausible: bool,
    /// Threads that read WAL.
    pub threads: usize,
}

/// Blocks of one plan at most: those behind are left for another one, so that an undo file is read again.
pub const REPAIR_BLOCKS_MAX: usize = 10_000;

/// The plan of a repair.
#[derive(Clone, Debug)]
pub struct RepairPlan {
    /// All blocks, with what is known of them.
    pub record: RepairRecord,
    /// The pages that would be written.
    pub pages: Vec<UndoPage>,
}

/// The helpers of a plan.
pub struct RepairHelp<'a, 'b> {
    /// The server that runs on the data directory.
    pub running: Option<&'a mut RunningTarget<'b>>,
    /// Lets a server replay WAL for blocks that no source has; `None`: it is not done.
    pub rebuild: Option<Rebuild<'a>>,
    /// Ends the reading of WAL.
    pub interrupt: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl fmt::Debug for RepairHelp<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepairHelp").field("running", &self.running).finish_non_exhaustive()
    }
}

/// Works out by what damaged blocks of a cluster can be replaced. Changes nothing.
pub fn plan_repair(
    data: &DataDirectory,
    names: &Names,
    damaged: &[DamagedBlock],
    options: &RepairOptions,
    provenance: Provenance,
    help: RepairHelp<'_, '_>,
) -> Result<RepairPlan, RepairError> {
    let RepairHelp { mut running, rebuild, interrupt } = help;
    if running.is_none() {
        check_target(data)?;
    }
    // Of one block there may be several findings; the first one counts.
    let mut seen = BTreeSet::new();
    let each = damaged.iter().filter(|damaged| seen.insert((damaged.fork, damaged.block)));
    let damaged: Vec<DamagedBlock> = each.take(REPAIR_BLOCKS_MAX).cloned().collect();
    // Nothing changes a block that the server refuses, so what it says comes first.
    let mut unfit = BTreeMap::new();
    if let Some(target) = &mut running {
        for damaged in &damaged {
            unfit.insert((damaged.fork, damaged.block), target.unfit(damaged.fork, damaged.block));
        }
    }
    let places: Vec<PathBuf> = options
        .sources
        .iter()
        .filter_map(|source| Some(source.directory()?.join("pg_wal")))
        .chain(options.wal.clone())
        .collect();
    let lineage = Lineage::new(data, &places);
    let mut opened = Vec::new();
    for origin in &options.sources {
        opened.push(match origin {
            PageOrigin::Standby(dsn) => {
                let requested = Asked { data, lineage: &lineage, damaged: &damaged };
                requested.standby(dsn, running.as_deref_mut())?
            }
            PageOrigin::Backup(path) | PageOrigin::Stopped(path) => {
                let tars = match origin {
                    PageOrigin::Backup(path) => tars::backup_tars(path),
                    _ => Vec::new(),
                };
                if tars.is_empty() {
                    PageSource::open(origin.kind(), path, data, &lineage)?
                } else {
                    tars::open(path, &tars, data, &lineage, &damaged)?
                }
            }
        });
    }
    let limit = match &mut running {
        Some(target) => WalLimit::Insert(target.horizon()?.insert),
        None => WalLimit::Shutdown(data.control.checkpoint),
    };
    let wanted = WantedWal { data, lineage: &lineage, limit, damaged: &damaged, options };
    let wal = wanted.read(&opened, interrupt)?;
    let references = wal.as_ref().map(|(references, _)| references);
    let sources = options
        .sources
        .iter()
        .zip(opened)
        .map(|(origin, opened)| JudgedSource::new(origin.kind(), origin.name(), opened, references))
        .collect();
    let mut planner = Planner {
        data,
        names,
        target: RelationBlocks::from_data(data),
        sources,
        references,
        limit,
        unfit,
        accept_plausible: options.accept_plausible,
        notes: Vec::new(),
    };
    if let (Some((_, chains)), Some(rebuild)) = (&wal, rebuild) {
        planner.rebuild(&damaged, chains, rebuild);
    }
    let mut pages = Vec::new();
    let blocks = damaged.iter().map(|damaged| planner.block(damaged, &mut pages)).collect();
    let mut record = planner.record(blocks, provenance);
    record.running = running.is_some();
    Ok(RepairPlan { record, pages })
}

/// The request to a standby.
struct Asked<'a> {
    data: &'a DataDirectory,
    lineage: &'a Lineage,
    damaged: &'a [DamagedBlock],
}

impl Asked<'_> {
    /// The pages that a standby has. Where one is newer than what shows that the standby is of the
    /// same past, servers are asked for checkpoints that show it.
    fn standby(
        &self,
        dsn: &Dsn,
        mut running: Option<&mut RunningTarget<'_>>,
    ) -> Result<Result<PageSource, SourceRefusal>, RepairError> {
        let error = |source| RepairError::Standby { dsn: dsn.redacted(), source };
        let mut standby = match Standby::open(dsn, self.data, self.lineage).map_err(error)? {
            Ok(standby) => standby,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut horizon = self.horizon(running.as_deref_mut())?;
        let mut replayed = standby.catch_up(horizon.insert).map_err(error)?;
        let mut restarted =
            standby.restart_point(horizon.checkpoint, replayed.to).map_err(error)?;
        let pages = standby.fetch(self.damaged);
        let is_behind = || {
            let lsn = |page: &Vec<u8>| PageHeader::read(page).map(|header| header.lsn);
            pages.values().flatten().filter_map(lsn).any(|lsn| lsn > restarted.0)
        };
        if let Some(target) = running.as_mut().filter(|_| is_behind()) {
            target.checkpoint()?;
            horizon = target.horizon()?;
            let to = standby.catch_up(horizon.insert).map_err(error)?.to;
            restarted = standby.restart_point(horizon.checkpoint, to).map_err(error)?;
            // The pages are those that it had before.
            replayed.is_paused |= to < horizon.insert;
        }
        let timeline_end = self.lineage.end_of(standby.timeline()).unwrap_or(Lsn::INVALID);
        Ok(Ok(PageSource::of_standby(pages, replayed, timeline_end, restarted)))
    }

    fn horizon(&self, running: Option<&mut RunningTarget<'_>>) -> Result<Horizon, RepairError> {
        let checkpoint = self.data.control.checkpoint;
        match running {
            Some(target) => target.horizon(),
            // Its record is to be replayed.
            None => Ok(Horizon { checkpoint, insert: Lsn(checkpoint.0.saturating_add(1)) }),
        }
    }
}

/// Only a primary that was stopped in good order has all that it wrote in its files.
fn check_target(data: &DataDirectory) -> Result<(), RepairError> {
    let path = || data.path.clone();
    if !data.is_consistent() {
        let state = data.control.state;
        let is_backup = data.backup_start.is_some();
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

/// The WAL that says what happened to damaged blocks.
struct WantedWal<'a> {
    data: &'a DataDirectory,
    lineage: &'a Lineage,
    limit: WalLimit,
    damaged: &'a [DamagedBlock],
    options: &'a RepairOptions,
}

impl WantedWal<'_> {
    /// Reads the blocks' history up to the limit; `None`: the WAL does not lead there.
    fn read(
        &self,
        sources: &[Result<PageSource, SourceRefusal>],
        interrupt: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<(BlockReferences, BlockChains)>, RepairError> {
        let data = self.data;
        let of_sources = sources.iter().flatten().filter_map(|source| source.wal.clone());
        let of_sources = of_sources.filter(|item| item.exists());
        let places: Vec<PathBuf> = self.options.wal.iter().cloned().chain(of_sources).collect();
        let segments = segments_up_to(data, self.lineage, &places, self.limit.lsn())?;
        if segments.is_empty() {
            return Ok(None);
        }
        let blocks: Vec<(RelationFork, u32)> =
            self.damaged.iter().map(|damaged| (damaged.fork, damaged.block)).collect();
        let new = || {
            let blocks = || blocks.iter().copied();
            (
                BlockReferences::new(blocks(), self.limit),
                BlockChains::new(blocks(), self.limit.lsn()),
            )
        };
        let all = Lsn::INVALID..Lsn::MAX;
        let threads = self.options.threads.max(1);
        let watch = &mut |_| interrupt();
        let (summary, end) = scan_range_with(&segments, &all, threads, new, watch)?;
        if matches!(end, End::Interrupted) {
            return Err(RepairError::Interrupted);
        }
        if summary.system_identifier != data.control.system_identifier {
            let found = summary.system_identifier;
            return Err(RepairError::ForeignWal { found, path: data.path.clone() });
        }
        Ok(Some(summary.collected).filter(|(references, _)| references.reaches_limit()))
    }
}

/// A source, or why nothing is taken from it.
struct JudgedSource {
    kind: RepairSourceKind,
    name: String,
    opened: Result<(PageSource, SourceHistory), SourceRefusal>,
}

impl JudgedSource {
    fn new(
        kind: RepairSourceKind,
        name: String,
        opened: Result<PageSource, SourceRefusal>,
        wal: Option<&BlockReferences>,
    ) -> Self {
        let with_history = |source: PageSource| {
            let history = source.history(wal)?;
            Ok((source, history))
        };
        Self { kind, name, opened: opened.and_then(with_history) }
    }
}

struct Planner<'a> {
    data: &'a DataDirectory,
    names: &'a Names,
    target: RelationBlocks,
    sources: Vec<JudgedSource>,
    references: Option<&'a BlockReferences>,
    limit: WalLimit,
    /// Why blocks cannot be repaired while the server runs.
    unfit: BTreeMap<(RelationFork, u32), Option<BlockRefusal>>,
    accept_plausible: bool,
    notes: Vec<String>,
}

/// Replays what is planned, without the blocks at whose records redo fails.
fn replayed(mut plan: RedoPlan, rebuild: Rebuild<'_>) -> Result<RebuiltPages, RedoRefusal> {
    for _ in 0..REPLAYS_MAX {
        let rebuilt = rebuild(&plan)?;
        let Some(failure) = rebuilt.failure else { return Ok(rebuilt) };
        plan = plan.without(&failure).ok_or(RedoRefusal::Failed(failure.words))?;
    }
    Err(RedoRefusal::TooManyFailures)
}

/// Each takes a fraction of a second and more; that many records fail only where something else is wrong.
const REPLAYS_MAX: u32 = 20;

impl Planner<'_> {
    /// Lets a server replay WAL for the blocks that no source proves, and takes what came out for one
    /// more source.
    fn rebuild(&mut self, damaged: &[DamagedBlock], chains: &BlockChains, rebuild: Rebuild<'_>) {
        let is_open = |block: &&DamagedBlock| {
            let found = self.block(block, &mut Vec::new());
            found.class < EvidenceClass::Proved && self.why_not(block).is_none()
        };
        let open: Vec<(RelationFork, u32)> =
            damaged.iter().filter(is_open).map(|damaged| (damaged.fork, damaged.block)).collect();
        if open.is_empty() {
            return;
        }
        if chains.is_full() {
            self.notes.push("there is too much WAL about the blocks to replay it alone".to_owned());
            return;
        }
        let rebuilt = match RedoPlan::new(self.data, &open, chains) {
            Ok(None) => return,
            Ok(Some(plan)) => replayed(plan, rebuild),
            Err(reason) => Err(reason),
        };
        match rebuilt {
            Ok(rebuilt) => {
                let name = rebuilt.server.clone();
                let source = Ok(PageSource::of_redo(rebuilt));
                let kind = RepairSourceKind::Wal;
                self.sources.push(JudgedSource::new(kind, name, source, self.references));
            }
            Err(reason) => self.notes.push(format!("WAL alone was not replayed: {reason}")),
        }
    }

    fn record(&self, blocks: Vec<RepairBlock>, provenance: Provenance) -> RepairRecord {
        let Provenance { version, command, made } = provenance;
        let control = &self.data.control;
        let sources = self.sources.iter().map(|source| RepairSource {
            kind: source.kind,
            path: source.name.clone(),
            contains: source.opened.as_ref().ok().map(|(opened, _)| opened.contains()),
            refused: source.opened.as_ref().err().map(ToString::to_string),
        });
        let wal = self.references.and_then(BlockReferences::first).map(|from| RepairWal {
            from,
            to: self.limit.lsn(),
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
            running: false,
            wal,
            sources: sources.collect(),
            remaining: count_remaining(&blocks),
            blocks,
            has_other_damage: false,
            is_partial: false,
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
            let end = match self.limit {
                WalLimit::Shutdown(_) => "the cluster's shutdown",
                WalLimit::Insert(_) => "the server's present position",
            };
            format!("the WAL up to {end} cannot be read: nothing can be proved")
        });
        of_names.into_iter().chain(of_wal).chain(self.notes.iter().cloned()).collect()
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
            Verdict::New => "the page is all zeros".clone_into(&mut found.damage),
            // While a server runs, it may change a page that it accepts.
            Verdict::Valid if damaged.is_lost_write && self.is_stopped() => {}
            // Other pages that servers accept cannot be told from what they left there.
            Verdict::Valid => return found.accepted(damaged),
        }
        if let Some(reason) = self.why_not(damaged) {
            return found.without(&reason);
        }
        let candidates: Vec<(RepairCandidate, Option<Vec<u8>>)> =
            (0..self.sources.len()).map(|at| self.candidate(at, damaged, &file, &page)).collect();
        // Of equal ones the first.
        let best = (0..candidates.len()).rev().max_by_key(|at| candidates[*at].0.class);
        found.candidates = candidates.iter().map(|(candidate, _)| candidate.clone()).collect();
        let Some((at, after)) = best.and_then(|at| Some((at, candidates[at].1.as_ref()?))) else {
            let reason = match &candidates[..] {
                [] => "no source was named",
                [(only, _)] => &only.reason,
                _ => "no source has a page that could be taken",
            };
            return found.without(&format!("{reason}; {}", self.needed(damaged)));
        };
        let best = &candidates[at].0;
        if best.class == EvidenceClass::Refused {
            let reason = format!("{}; {}", best.reason, self.needed(damaged));
            return found.without(&reason);
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

    /// The sources that would have the page, as far as WAL says.
    fn needed(&self, damaged: &DamagedBlock) -> String {
        let last = self.history(damaged).and_then(|history| history.last);
        let first = self.references.and_then(BlockReferences::first);
        match (last, first) {
            (Some(last), _) => format!(
                "it takes WAL from the block's last full-page image to {}, or a copy of the page with \
                 this LSN",
                last.end
            ),
            (None, Some(first)) => format!(
                "a backup whose WAL reaches {first} without a gap is needed: no later WAL names the block"
            ),
            (None, None) => "it takes the WAL up to the cluster's end".to_owned(),
        }
    }

    fn is_stopped(&self) -> bool {
        matches!(self.limit, WalLimit::Shutdown(_))
    }

    /// A block of which nothing is known but its names.
    fn unjudged(&self, damaged: &DamagedBlock) -> RepairBlock {
        let RelationFork { relation, number } = damaged.fork;
        let history = self.history(damaged);
        let last_record = history.and_then(|history| history.last).map(|item| RepairWalRecord {
            at: item.at,
            end: item.end,
            kind: item.record_type.name(self.data.major),
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

    /// Why no page is written there, whatever the sources have.
    fn why_not(&self, damaged: &DamagedBlock) -> Option<String> {
        let while_running = || {
            let refusal = self.unfit.get(&(damaged.fork, damaged.block))?.as_ref()?;
            Some(refusal.to_string())
        };
        self.unfit(damaged.fork).or_else(while_running)
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

    /// Returns a source's page for a block, if it may be taken.
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
            Err(refusal) => return refused(refusal.to_string()),
        };
        let candidate = match source.page(damaged.fork, damaged.block, file) {
            Ok(candidate) => candidate,
            Err(refusal) => return refused(refusal.to_string()),
        };
        let wal = self.block_wal(damaged);
        let judgement = judge(page, &candidate, damaged.block, &wal, history);
        let lsn = PageHeader::read(&candidate).map(|header| header.lsn);
        let class = judgement.class;
        let mut reason = judgement.reason;
        if let Some(note) = source.note.as_ref().filter(|_| class == EvidenceClass::Refused) {
            reason = format!("{reason}; {note}");
        }
        (RepairCandidate { source: at, class, reason, lsn }, Some(candidate))
    }

    fn block_wal(&self, damaged: &DamagedBlock) -> BlockWal {
        let control = &self.data.control;
        let is_minimal = matches!(control.wal_level, WalLevel::Minimal | WalLevel::Unknown(_));
        let logged = self.references.and_then(BlockReferences::minimal);
        BlockWal {
            from: self.references.and_then(BlockReferences::first).unwrap_or(Lsn::MAX),
            to: self.limit.lsn(),
            minimal: if is_minimal { Some(Lsn::MAX) } else { logged },
            history: self.history(damaged).unwrap_or_default(),
        }
    }
}

/// Blocks that are not as they should be.
pub(crate) fn count_remaining(blocks: &[RepairBlock]) -> u64 {
    let remains = |block: &&RepairBlock| !block.installed && block.class != EvidenceClass::Sound;
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
        if damaged.is_lost_write {
            return self.without(
                "the server accepts the page and may change it: stop the server in good order first",
            );
        }
        if damaged.suspicion.is_some() {
            return self.without("servers accept the page, and no WAL shows what it should be");
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
