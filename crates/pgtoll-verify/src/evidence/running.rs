//! Evidence beside a server that runs.
//!
//! A checkpoint is complete when all changes of records before its redo point are on the disk. So
//! such a record's page must have its LSN, or a newer one, unless later WAL cut the file, made it
//! again or removed its database. A page of a B-tree or of a visibility map whose LSN is at or before
//! the redo point leads to nothing but blocks that were used before it: those are not zeros on the
//! disk. What contradicts this is looked at again, with a fresh redo point and the WAL up to a
//! place behind the look, and the server has to know the block.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use pgtoll_datadir::{DataDirectory, Names, control_file};
use pgtoll_format::{ForkNumber, Lsn, RelFileLocator, RelationFork};

use super::NotCompared;
use super::blocks::{Forks, is_zero};
use super::changes::Horizon;
use super::compare::{BTREES, LENGTHS, WAL};
use super::indexes::Trees;
use super::lost::{LoggedChanges, logged_forks};
use super::unexplained::unexplained_zeros;
use crate::defect::{BlockFinding, Defect, Evidence, Unsettled};
use crate::found::{EvidenceCompared, Verified};
use crate::maps::MapRule;
use crate::online::{Pauses, RunningServer, ServerAnswer, WalHorizon, Witness as _};
use crate::settings::{VerifyProgress, VerifySettings};
use crate::storage::{Files, Storage as _};
use crate::visible::VisibilityMap;
use crate::zeros::ZeroPages;

/// The inputs of evidence beside a running server.
pub(crate) struct RunningEvidence<'a> {
    pub(crate) data: &'a DataDirectory,
    pub(crate) names: &'a Names,
    pub(crate) server: &'a mut RunningServer,
    pub(crate) settings: &'a VerifySettings,
    pub(crate) pauses: &'a dyn Pauses,
    /// How long WAL may take to its file.
    pub(crate) patience: Duration,
    /// Whether to wait for a checkpoint first, so that all that was changed before can be compared.
    pub(crate) awaits_checkpoint: bool,
    pub(crate) wanted: &'a dyn Fn(RelFileLocator) -> bool,
}

/// The result of a look at the evidence.
struct Look {
    compared: EvidenceCompared,
    suspects: Vec<BlockFinding>,
}

/// Told which evidence is read and how far; it may end the reading.
type Progress<'a> = &'a mut dyn FnMut(&str, VerifyProgress) -> ControlFlow<()>;

impl RunningEvidence<'_> {
    /// Adds what the evidence proves wrong to what was found.
    pub(crate) fn compare(
        mut self,
        verified: &mut Verified,
        progress: Progress<'_>,
    ) -> EvidenceCompared {
        let zeros = std::mem::take(&mut verified.zeros);
        let outcome = self.confirmed(&zeros, verified, progress);
        verified.zeros = zeros;
        match outcome {
            Ok(compared) => compared,
            Err(NotCompared::Interrupted) => {
                verified.is_interrupted = true;
                EvidenceCompared::default()
            }
            Err(why) => EvidenceCompared::skipped_while_running(&why.to_string()),
        }
    }

    fn confirmed(
        &mut self,
        zeros: &ZeroPages,
        verified: &mut Verified,
        progress: Progress<'_>,
    ) -> Result<EvidenceCompared, NotCompared> {
        if self.awaits_checkpoint {
            self.await_checkpoint(progress)?;
        }
        let Look { mut compared, mut suspects } = self.look(zeros, None, progress)?;
        for pause in PAUSES {
            if suspects.is_empty() {
                break;
            }
            if !self.pauses.pause(pause) {
                return Err(NotCompared::Interrupted);
            }
            let again = self.look(zeros, Some(&suspects), progress)?.suspects;
            let again: BTreeSet<_> = again.iter().map(|again| (again.fork, again.block)).collect();
            suspects.retain(|suspect| again.contains(&(suspect.fork, suspect.block)));
        }
        suspects.retain(|suspect| self.is_known_to_server(suspect));
        verified.add_evidence(suspects);
        let forks = Forks::new(self.data, self.settings, self.wanted);
        compared.notes.extend(unexplained_zeros(verified, zeros, self.data, &forks, self.names));
        Ok(compared)
    }

    /// One look at all evidence, or at that against some blocks.
    fn look(
        &mut self,
        zeros: &ZeroPages,
        only: Option<&[BlockFinding]>,
        progress: Progress<'_>,
    ) -> Result<Look, NotCompared> {
        let redo = self.horizon()?.redo;
        let chosen = only.map(|suspects| self.with_their_trees(suspects));
        let is_wanted = |relation: RelFileLocator| {
            (self.wanted)(relation)
                && chosen.as_ref().is_none_or(|chosen| chosen.contains(&relation))
        };
        let mut data = self.data.clone();
        data.control = control_file(&data.path).map_err(|error| unreadable(&error))?;
        let forks = Forks::new(&data, self.settings, &is_wanted);
        let logged = logged_forks(&forks, self.names);
        let horizon = Horizon::Redo(redo);
        let watch = &mut |now| progress(WAL, now);
        let changes = again_while_segments_change(|| {
            LoggedChanges::read(&data, self.settings, horizon, &logged, watch)
        })?;
        let mut compared = EvidenceCompared::default();
        let wal = changes.compared();
        compared.covered.push(format!("{WAL} from {} to {}", wal.from, wal.to));
        compared.covered.push(BTREES.to_owned());
        compared.left_out.push(LENGTHS.to_owned());
        let mut suspects = changes.compare(&data, &forks, true, &mut |now| progress(WAL, now))?;
        let rule = MapRule::Since(redo);
        let jobs = self.settings.jobs.get();
        suspects.extend(zeros_under_visible_bits(&data, &forks, zeros, self.names, rule));
        let trees = Trees::new(&forks, self.names, zeros, rule);
        suspects.extend(trees.compare(&data, jobs, &mut |now| progress("indexes", now))?);
        suspects.retain(|suspect| is_still_so(&data, &forks, suspect));
        if suspects.is_empty() {
            return Ok(Look { compared, suspects });
        }
        // A cut that was made before the look is in the WAL up to here.
        let seen_to = self.flushed_position()?;
        let watch = &mut |now| progress(WAL, now);
        let later = again_while_segments_change(|| {
            LoggedChanges::read(&data, self.settings, horizon, &logged, watch)
        })?;
        if later.read_to < seen_to {
            return Err(NotCompared::Behind { read_to: later.read_to, inserted: seen_to });
        }
        suspects.retain(|suspect| match suspect.defect {
            Defect::Evidence(Evidence::Stale { .. } | Evidence::ZeroButLogged { .. }) => {
                later.has_change(suspect.fork, suspect.block)
            }
            Defect::Evidence(Evidence::MissingButLogged { last, .. }) => {
                later.has_change(suspect.fork, last)
            }
            _ => !later.is_cut_later(suspect.fork, suspect.block),
        });
        let mut seen = BTreeSet::new();
        suspects.retain(|suspect| seen.insert((suspect.fork, suspect.block)));
        Ok(Look { compared, suspects })
    }

    /// The relations of suspects, with the B-trees that lead to them, and those B-trees' tables.
    fn with_their_trees(&self, suspects: &[BlockFinding]) -> BTreeSet<RelFileLocator> {
        let mut relations: BTreeSet<RelFileLocator> =
            suspects.iter().map(|suspect| suspect.fork.relation).collect();
        let pairs = self.names.btrees();
        let pairs: Vec<(RelFileLocator, RelFileLocator)> = pairs
            .filter(|(index, table)| relations.contains(index) || relations.contains(table))
            .collect();
        relations.extend(pairs.into_iter().flat_map(|(index, table)| [index, table]));
        relations
    }

    /// False where its relation was dropped or rewritten.
    fn is_known_to_server(&mut self, suspect: &BlockFinding) -> bool {
        let answer = self.server.ask(suspect.fork, suspect.block);
        answer != ServerAnswer::Nothing(Unsettled::Unnamed)
    }

    fn horizon(&mut self) -> Result<WalHorizon, NotCompared> {
        let horizon = self.server.now().map_err(|why| NotCompared::Server(why.to_string()))?;
        if horizon.replays { Err(NotCompared::Replays) } else { Ok(horizon) }
    }

    /// Returns the end of WAL, after all of it up to there was flushed to files.
    fn flushed_position(&mut self) -> Result<Lsn, NotCompared> {
        let (inserted, mut flushed) = self.positions()?;
        let mut waited = Duration::ZERO;
        while flushed < inserted && waited < self.patience {
            if !self.pauses.pause(POLL) {
                return Err(NotCompared::Interrupted);
            }
            waited += POLL;
            flushed = self.positions()?.1;
        }
        Ok(inserted.min(flushed))
    }

    fn positions(&mut self) -> Result<(Lsn, Lsn), NotCompared> {
        self.server.wal_positions().map_err(|why| NotCompared::Server(why.to_string()))
    }

    /// Waits until a checkpoint began behind all that was inserted until now, or patience ends.
    fn await_checkpoint(&mut self, progress: Progress<'_>) -> Result<(), NotCompared> {
        let (inserted, _) = self.positions()?;
        let mut waited = Duration::ZERO;
        while self.horizon()?.redo < inserted && waited < self.patience {
            let now =
                VerifyProgress { bytes: waited.as_secs(), all_bytes: self.patience.as_secs() };
            if progress("checkpoint", now).is_break() || !self.pauses.pause(POLL) {
                return Err(NotCompared::Interrupted);
            }
            waited += POLL;
        }
        Ok(())
    }
}

fn unreadable(error: &pgtoll_datadir::DatadirError) -> NotCompared {
    NotCompared::Server(error.to_string())
}

/// A running server removes and renames segments while they are read.
fn again_while_segments_change<T>(
    mut read: impl FnMut() -> Result<T, NotCompared>,
) -> Result<T, NotCompared> {
    for _ in 1..READS {
        match read() {
            Err(NotCompared::Wal(_) | NotCompared::Ends(_)) => {}
            other => return other,
        }
    }
    read()
}

/// Pages of zeros whose rows are all visible, as a settled page of the map says.
fn zeros_under_visible_bits(
    data: &DataDirectory,
    forks: &Forks<'_>,
    zeros: &ZeroPages,
    names: &Names,
    rule: MapRule,
) -> Vec<BlockFinding> {
    let mut found = Vec::new();
    for (relation, runs) in zeros.by_relation() {
        let fork = RelationFork { relation, number: ForkNumber::MAIN };
        let map = RelationFork { number: ForkNumber::VM, ..fork };
        let file = forks.first_file(map).filter(|_| names.heap_blocks(relation).is_some());
        let Some(file) = file.and_then(|path| Files.open(&path).ok()) else { continue };
        let block_bytes = data.control.block_bytes as usize;
        let mut map = VisibilityMap::new(file, block_bytes, data.has_checksums());
        for block in runs.iter().flat_map(crate::zeros::ZeroRun::blocks) {
            let bits = map.bits(block).filter(|map| map.bits != 0 && rule.is_settled(map.lsn));
            found.extend(bits.map(|_| BlockFinding {
                fork,
                block,
                defect: Defect::ZeroButVisible,
            }));
        }
    }
    found
}

/// Whether a suspect that is said to be zeros, or missing, still is; others pass.
fn is_still_so(data: &DataDirectory, forks: &Forks<'_>, suspect: &BlockFinding) -> bool {
    let mut page = vec![0; data.control.block_bytes as usize];
    let read = forks.blocks(suspect.fork).read(suspect.block, &mut page);
    match suspect.defect {
        Defect::Evidence(Evidence::Stale { .. }) => true,
        Defect::Evidence(Evidence::MissingButLogged { .. }) => read.is_err(),
        _ => read.is_ok() && is_zero(&page),
    }
}

/// Before each further look.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
const POLL: Duration = Duration::from_millis(250);
const READS: usize = 4;
