//! The decision on suspects.
//!
//! A block that looks damaged for as long as it is watched may still be one that is being written,
//! by a process that waits for the disk in the middle of it; or one that a crash tore and recovery
//! has made whole in memory. Each has a proof:
//!
//! * Blocks are written front to back, so the LSN lands first. A checkpoint is complete when all
//!   changes before its redo point are written. So a block whose LSN is before the redo point of the
//!   last completed checkpoint is not being written: it is damaged.
//! * WAL is written before pages. A block whose LSN is beyond the WAL that was written when the block
//!   was read is damaged.
//! * A block whose LSN is in between has an image in the WAL since the redo point; without one it is
//!   damaged. With an image it is in flight until the next checkpoint.
//!
//! That holds for what WAL records: main and init forks of logged relations. Of the rest, and of
//! what is in flight, the server is asked: its refusal is a proof. That it takes a block is one
//! only if it read it from the disk.

use std::collections::HashSet;
use std::time::Duration;

use pgtoll_format::{Fault, ForkNumber, Lsn, RelationFork};

use super::images::{ImagesInWal, WalImagesError};
use super::pauses::Pauses;
use super::suspect::{Bad, DiskBlocks, Suspect, Watched, watch};
use super::witness::{ServerAnswer, WalHorizon, Witness};
use crate::defect::Unsettled;
use crate::defect::{BlockFinding, Defect};
use crate::found::{PagesRead, Verified};

/// The inputs and results of settling suspects.
pub(super) struct Settling<'a> {
    pub(super) blocks: &'a DiskBlocks<'a>,
    pub(super) witness: &'a mut dyn Witness,
    pub(super) pauses: &'a dyn Pauses,
    /// How long a checkpoint is waited for.
    pub(super) patience: Duration,
    /// Told what was read; false: to be ended.
    pub(super) go_on: &'a mut dyn FnMut(PagesRead) -> bool,
    pub(super) verified: Verified,
}

/// The verdict of the proofs on a block.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Damaged,
    /// Only the server's answer decides.
    Ask,
    /// As long as no checkpoint began after this.
    InFlight(Lsn),
    /// Only the WAL decides.
    LookIntoWal,
}

impl Settling<'_> {
    pub(super) fn run(&mut self, watched: Watched) {
        let left = self.take(watched);
        if left.is_empty() {
            return;
        }
        let before = self.witness.now();
        let left = self.watch_again(left);
        let after = self.witness.now();
        if self.verified.is_interrupted {
            return self.all_unsettled(&left, &Unsettled::Interrupted);
        }
        let horizon = match (before, after) {
            // What is on the disk is asked for before the last read, what can be there after it.
            (Ok(before), Ok(after)) => WalHorizon {
                redo: before.redo,
                full_page_writes: before.full_page_writes && after.full_page_writes,
                replays: before.replays || after.replays,
                ..after
            },
            (Err(why), _) | (_, Err(why)) => return self.all_unsettled(&left, &why),
        };
        let images = self.images(&left, horizon);
        let mut in_flight = Vec::new();
        for suspect in left {
            in_flight.extend(self.settle(suspect, horizon, &images));
        }
        self.await_checkpoint(in_flight);
    }

    /// Settles one; what needs a checkpoint comes back.
    fn settle(
        &mut self,
        suspect: Suspect,
        horizon: WalHorizon,
        images: &Result<ImagesInWal, WalImagesError>,
    ) -> Option<(Suspect, Lsn)> {
        let verdict = self.judged(&suspect, horizon, images);
        if verdict == Verdict::Damaged {
            self.damaged(&suspect);
            return None;
        }
        let in_flight = matches!(verdict, Verdict::InFlight(_));
        self.verified.running.in_flight += u64::from(in_flight);
        let (suspect, why) = self.retry(suspect)?;
        match (verdict, images) {
            (Verdict::InFlight(until), _) if why != Unsettled::Interrupted => {
                return Some((suspect, until));
            }
            (Verdict::LookIntoWal, Err(error)) => {
                self.unsettled(&suspect, Unsettled::NoWal(error.to_string()));
            }
            (Verdict::LookIntoWal, Ok(images)) => {
                self.unsettled(&suspect, Unsettled::NoWal(format!("it ends at {}", images.to)));
            }
            _ if !suspect.is_steady() && why == Unsettled::Resident => {
                self.unsettled(&suspect, Unsettled::Changing);
            }
            _ => self.unsettled(&suspect, why),
        }
        None
    }

    /// All are read again, the scan being over.
    fn watch_again(&mut self, left: Vec<Suspect>) -> Vec<Suspect> {
        let blocks = self.blocks;
        let pauses = self.pauses;
        let pages = self.verified.pages;
        let mut is_over = self.verified.is_interrupted;
        let go_on = &mut *self.go_on;
        let watched = watch(blocks, left, &mut |time| {
            is_over |= !patiently(pauses, go_on, pages, time);
            !is_over
        });
        self.verified.is_interrupted |= is_over;
        self.take(watched)
    }

    /// The proofs, one after the other.
    fn judged(
        &self,
        suspect: &Suspect,
        horizon: WalHorizon,
        images: &Result<ImagesInWal, WalImagesError>,
    ) -> Verdict {
        let bad = suspect.bad;
        if !suspect.is_steady() {
            return Verdict::Ask;
        }
        let by_lsn = self.by_lsn(suspect.fork, bad, horizon);
        let Ok(images) = images else { return by_lsn };
        if by_lsn != Verdict::LookIntoWal {
            return by_lsn;
        }
        let is_beyond = horizon.wal_end.is_some_and(|end| bad.lsn > end);
        if let Some(image) = images.last.get(&(suspect.fork, suspect.block)) {
            return Verdict::InFlight(if is_beyond { *image } else { bad.lsn.max(*image) });
        }
        if !images.full_page_writes || !horizon.full_page_writes {
            return Verdict::Ask;
        }
        // Without a known end of WAL, the end of what was read counts.
        let is_read = bad.lsn <= images.to || bad.lsn <= horizon.redo || horizon.wal_end.is_none();
        if is_read || is_beyond { Verdict::Damaged } else { Verdict::LookIntoWal }
    }

    /// Returns the verdict of the LSN alone.
    fn by_lsn(&self, fork: RelationFork, bad: Bad, horizon: WalHorizon) -> Verdict {
        let is_logged = matches!(fork.number, ForkNumber::MAIN | ForkNumber::INIT)
            && !self.blocks.is_unlogged(fork);
        if !is_logged {
            return Verdict::Ask;
        }
        if horizon.replays {
            // A crash or a copy may have left anything that the WAL has an image of.
            return Verdict::LookIntoWal;
        }
        if bad.lsn < horizon.first_lsn {
            // An index that is being built has no LSNs before it is whole. It has headers.
            return if has_header(bad.fault) { Verdict::Ask } else { Verdict::Damaged };
        }
        if bad.lsn <= horizon.redo || horizon.wal_end.is_some_and(|end| bad.lsn > end) {
            return Verdict::Damaged;
        }
        if horizon.full_page_writes { Verdict::LookIntoWal } else { Verdict::Ask }
    }

    /// Images of those that only the WAL decides.
    fn images(
        &mut self,
        left: &[Suspect],
        horizon: WalHorizon,
    ) -> Result<ImagesInWal, WalImagesError> {
        let is_open = |suspect: &&Suspect| {
            suspect.is_steady()
                && self.by_lsn(suspect.fork, suspect.bad, horizon) == Verdict::LookIntoWal
        };
        let open: Vec<&Suspect> = left.iter().filter(is_open).collect();
        let keys: HashSet<(RelationFork, u32)> =
            open.iter().map(|open| (open.fork, open.block)).collect();
        if keys.is_empty() {
            return Ok(ImagesInWal::default());
        }
        let is_possible = |lsn: &Lsn| horizon.wal_end.is_some_and(|end| *lsn <= end);
        let newest = open.iter().map(|open| open.bad.lsn).filter(is_possible).max();
        let images = self.witness.images(&keys, horizon.redo)?;
        if newest.is_none_or(|newest| newest <= images.to) || !self.pauses.pause(WAL_LAG) {
            return Ok(images);
        }
        // What is inserted is written soon.
        self.witness.images(&keys, horizon.redo)
    }

    /// Asks the server, and looks again. What is still open comes back, and why it is.
    fn retry(&mut self, mut suspect: Suspect) -> Option<(Suspect, Unsettled)> {
        for _ in 0..ASKED_MAX {
            if self.verified.is_interrupted || !(self.go_on)(self.verified.pages) {
                self.verified.is_interrupted = true;
                return Some((suspect, Unsettled::Interrupted));
            }
            if self.verified.running.asked >= ASKED_ALL_MAX {
                return Some((suspect, Unsettled::TooMany));
            }
            let output = self.witness.ask(suspect.fork, suspect.block);
            let is_asked = !matches!(output, ServerAnswer::Nothing(_));
            self.verified.running.asked += u64::from(is_asked);
            if !self.looked(&mut suspect) {
                return None;
            }
            match output {
                ServerAnswer::Refuses => {
                    self.damaged(&suspect);
                    return None;
                }
                ServerAnswer::Takes { from_disk: false } => {
                    return Some((suspect, Unsettled::Resident));
                }
                ServerAnswer::Nothing(why) => return Some((suspect, why)),
                // Somebody else had it read, and changed it, between our two questions.
                ServerAnswer::Takes { from_disk: true } => {}
            }
        }
        Some((suspect, Unsettled::Resident))
    }

    /// Waits for the next checkpoint, which writes the blocks in flight.
    fn await_checkpoint(&mut self, mut in_flight: Vec<(Suspect, Lsn)>) {
        let mut waited = Duration::ZERO;
        while !in_flight.is_empty() && waited < self.patience {
            let pages = self.verified.pages;
            if !patiently(self.pauses, &mut *self.go_on, pages, POLL) {
                self.verified.is_interrupted = true;
                break;
            }
            waited += POLL;
            let Ok(horizon) = self.witness.now() else { break };
            let mut left = Vec::new();
            for (mut suspect, until) in in_flight {
                if horizon.redo < until {
                    left.push((suspect, until));
                } else if self.looked(&mut suspect) {
                    let lsn = suspect.bad.lsn;
                    let is_possible = horizon.wal_end.is_none_or(|end| lsn <= end);
                    if lsn > horizon.redo && is_possible {
                        // It has been changed again since.
                        left.push((suspect, lsn));
                    } else {
                        self.damaged(&suspect);
                    }
                }
            }
            in_flight = left;
        }
        for (mut suspect, _) in in_flight {
            if self.looked(&mut suspect) {
                self.unsettled(&suspect, Unsettled::InFlight);
            }
        }
    }

    /// Looks once more; true: it is still damaged.
    fn looked(&mut self, suspect: &mut Suspect) -> bool {
        let look = self.blocks.look(suspect.fork, suspect.block);
        let mut watched = Watched::default();
        let is_left = watched.file(suspect, look);
        self.take(watched);
        is_left
    }

    /// Counts what is settled; what is left comes back.
    fn take(&mut self, watched: Watched) -> Vec<Suspect> {
        self.verified.running.healed += watched.healed;
        self.verified.running.dropped += watched.dropped;
        for (fork, block, error) in watched.unreadable {
            self.verified.add(BlockFinding {
                fork,
                block,
                defect: Defect::Unreadable { blocks: 1, error },
            });
        }
        watched.left
    }

    fn all_unsettled(&mut self, left: &[Suspect], why: &Unsettled) {
        for suspect in left {
            self.unsettled(suspect, why.clone());
        }
    }

    fn damaged(&mut self, suspect: &Suspect) {
        let Bad { fault, lsn, .. } = suspect.bad;
        let defect = Defect::Invalid { fault, lsn };
        self.verified.add(BlockFinding { fork: suspect.fork, block: suspect.block, defect });
    }

    fn unsettled(&mut self, suspect: &Suspect, why: Unsettled) {
        let Bad { fault, lsn, .. } = suspect.bad;
        let defect = Defect::Unsettled { fault, lsn, why };
        self.verified.add(BlockFinding { fork: suspect.fork, block: suspect.block, defect });
    }
}

/// The header is one that a server may have written.
fn has_header(fault: Fault) -> bool {
    matches!(fault, Fault::Checksum { header_is_plausible: true, .. })
}

/// Waits in short pieces, so that an interruption ends it soon.
fn patiently(
    pauses: &dyn Pauses,
    go_on: &mut dyn FnMut(PagesRead) -> bool,
    pages: PagesRead,
    time: Duration,
) -> bool {
    let mut left = time;
    loop {
        let piece = left.min(PIECE);
        if !go_on(pages) {
            pauses.stop();
        }
        if !pauses.pause(piece) {
            return false;
        }
        left -= piece;
        if left.is_zero() {
            return true;
        }
    }
}

/// How often one block is asked for, where others read it in between.
const ASKED_MAX: u32 = 3;
/// Each refusal is a line in the server's log.
const ASKED_ALL_MAX: u64 = 10_000;
const PIECE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(250);
/// How long WAL may take from its insertion to its file (`wal_writer_delay`, and some more).
const WAL_LAG: Duration = Duration::from_secs(1);
