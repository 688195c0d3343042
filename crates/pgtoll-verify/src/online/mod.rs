//! The pages of a server that runs: it writes them while they are read.
//!
//! What looks damaged is a suspect. Most are read again and are sound: they were being written. What
//! stays is judged at the end of the scan, by proof alone: see [`settle`].

mod confirm;
mod images;
mod pauses;
mod server;
mod settle;
mod suspect;
mod witness;

use std::fs;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use pgtoll_datadir::DataDirectory;
use pgtoll_format::{ClusterState, RelFileLocator};

pub use images::{ImagesInWal, WalImagesError};
pub use pauses::{Pauses, RealPauses};
pub use server::RunningServer;
pub use witness::{ServerAnswer, WalHorizon, Witness};

use crate::defect::{BlockFinding, Defect, Unsettled};
use crate::directory::DirectoryVerification;
use crate::found::{PagesRead, Verified};
use crate::maps::MapRule;
use crate::settings::{VerifyProgress, VerifySettings};
use crate::storage::Storage;
use settle::Settling;
pub(crate) use suspect::DiskBlocks;
use suspect::{Suspect, Watched, watch_all};

/// How a running server is verified.
#[derive(Clone, Debug)]
pub struct RunningSettings {
    /// As of any data directory.
    pub verify: VerifySettings,
    /// How long a checkpoint is waited for, where some block needs one.
    pub patience: Duration,
}

/// Reads the relations of a data directory on which a server runs. See [`verify`](super::verify).
pub fn verify_running(
    disk: &dyn Storage,
    data: &DataDirectory,
    settings: &RunningSettings,
    witness: &mut dyn Witness,
    pauses: &dyn Pauses,
    wanted: &dyn Fn(RelFileLocator) -> bool,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Verified {
    let data = &as_running(data);
    let mut scan = DirectoryVerification::listed(data, &settings.verify, wanted);
    scan.maps = MapRule::of_running(data);
    let mut verified = mem::take(&mut scan.verified);
    verified.unlisted.retain(is_still_unlisted);
    let blocks = DiskBlocks::new(disk, data, &scan.files);
    read_running(&scan, &blocks, verified, settings, witness, pauses, progress)
}

/// Reads the files of a scan while a server runs, and settles what looks damaged.
pub(crate) fn read_running(
    scan: &DirectoryVerification<'_>,
    blocks: &DiskBlocks<'_>,
    mut verified: Verified,
    settings: &RunningSettings,
    witness: &mut dyn Witness,
    pauses: &dyn Pauses,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Verified {
    // Where no thread can be had for it, suspects are read again when all was read.
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let watch_them = || {
        let receiver = pgtoll_system::lock(&receiver);
        watch_all(blocks, pauses, &receiver)
    };
    let (watched, contradictions) = thread::scope(|scope| {
        let watching = thread::Builder::new().spawn_scoped(scope, watch_them);
        let count = 0;
        let maps = Vec::new();
        let mut sieve = Sieve { blocks, sender, count, maps };
        let mut watch = |now| {
            let go_on = progress(now);
            if go_on.is_break() {
                pauses.stop();
            }
            go_on
        };
        let mut take = |verified: &mut Verified, finding| sieve.take(verified, finding);
        scan.read(blocks.disk, &mut verified, None, &mut take, &mut watch);
        verified.running.suspects = sieve.count;
        let Sieve { maps, sender, .. } = sieve;
        // Without a sender the watching ends.
        drop(sender);
        let watched = match watching {
            Ok(watching) => watching.join().unwrap_or_else(|_| Watched::default()),
            Err(_) => watch_them(),
        };
        (watched, maps)
    });
    let all_bytes = scan.files.bytes();
    let mut go_on =
        |pages: PagesRead| progress(VerifyProgress { bytes: pages.bytes, all_bytes }).is_continue();
    let patience = settings.patience;
    let mut settling = Settling { blocks, witness, pauses, patience, go_on: &mut go_on, verified };
    settling.run(watched);
    verified = settling.verified;
    for finding in
        confirm::confirm(blocks, scan.maps, settings.verify.rows, &contradictions, pauses)
    {
        verified.add(finding);
    }
    verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
    verified
}

/// Whether this is there still. A database that is dropped goes with its directory.
pub(crate) fn is_still_unlisted((path, error): &(PathBuf, io::Error)) -> bool {
    error.kind() != io::ErrorKind::NotFound || fs::symlink_metadata(path).is_ok()
}

/// Files that a server changes say nothing about each other.
pub(crate) fn as_running(data: &DataDirectory) -> DataDirectory {
    let mut data = data.clone();
    data.backup_start = None;
    if !matches!(data.control.state, ClusterState::InArchiveRecovery) {
        data.control.state = ClusterState::InProduction;
    }
    data
}

/// Sorts out suspects from what the scan finds.
struct Sieve<'a> {
    blocks: &'a DiskBlocks<'a>,
    sender: Sender<Suspect>,
    count: u64,
    /// Pages that contradict their maps.
    maps: Vec<BlockFinding>,
}

impl Sieve<'_> {
    fn take(&mut self, verified: &mut Verified, finding: BlockFinding) {
        let BlockFinding { fork, block, defect } = finding;
        match defect {
            Defect::Invalid { fault, lsn } => {
                self.suspect(verified, Suspect::new(fork, block, fault, lsn));
            }
            Defect::Changed => verified.running.dropped += 1,
            Defect::Unreadable { .. } if self.blocks.is_gone(fork, block) => {
                verified.running.dropped += 1;
            }
            Defect::Unreadable { .. } | Defect::Unsettled { .. } => {
                verified.add(BlockFinding { fork, block, defect });
            }
            Defect::MapStale { .. } | Defect::PageVisible { .. } => {
                if self.maps.len() < CONTRADICTIONS_MAX {
                    self.maps.push(BlockFinding { fork, block, defect });
                }
            }
            // What contradicts itself may do so only while it changes.
            Defect::AheadOfWal { .. }
            | Defect::ZeroButVisible
            | Defect::ZeroFirst
            | Defect::Layout(_)
            | Defect::Evidence(_)
            | Defect::Incremental(_)
            | Defect::MayBeTorn { .. } => {}
        }
    }

    fn suspect(&mut self, verified: &mut Verified, suspect: Suspect) {
        self.count += 1;
        if self.count <= SUSPECTS_MAX && self.sender.send(suspect).is_ok() {
            return;
        }
        let fork = suspect.fork;
        let block = suspect.block;
        let why = Unsettled::TooMany;
        let defect = Defect::Unsettled { fault: suspect.bad.fault, lsn: suspect.bad.lsn, why };
        verified.add(BlockFinding { fork, block, defect });
    }
}

/// Ranges of pages that contradict their maps, to be read again.
const CONTRADICTIONS_MAX: usize = 100_000;
/// Suspects that are kept in memory; a cluster with more damage has other worries.
const SUSPECTS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests;
