//! The pages of a server that runs: it writes them while they are read.
//!
//! What looks damaged is a suspect. Most are read again and are sound: they were being written. What
//! stays is judged at the end of the scan, by proof alone: see [`settle`].

mod images;
mod pauses;
mod server;
mod settle;
mod suspect;
#[cfg(test)]
mod tests;
mod witness;

use std::fs;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pgtoll_format::ClusterState;
use pgtoll_format::wal::RelationFiles;
use serde::{Deserialize, Serialize};

pub use images::WalImages;
use images::images_in_wal;
pub use pauses::{Pauses, RealPauses};
pub use server::RunningServer;
pub use witness::{Moment, Said, Witness};

use crate::directory::Scan;
use crate::{Disk, Finding, Pages, Progress, Verified, VerifySettings, WhatIsWrong};
use pgtoll_datadir::DataDirectory;
use settle::Settling;
use suspect::{Blocks, Suspect, Watched, watch_all};

/// What happened to suspects.
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

/// Why it could not be told whether a block is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsettled {
    /// The WAL has its image: a crash now would lose nothing.
    InFlight,
    /// The server has it in memory, and could not be made to read it from the disk.
    Resident,
    /// It was never twice the same.
    Changing,
    /// No connection, and only the server can tell.
    NoServer,
    /// The server knows no relation with this file: not yet, or not any more.
    Unnamed,
    /// SQL reads no such page, and the extensions that do are not there.
    NoWay,
    /// The server could not be asked.
    Refused(String),
    /// The WAL since the last checkpoint could not be read.
    NoWal(String),
    /// The server is starting, stopping or recovering.
    NotReady(String),
    /// There are too many to ask for each.
    TooMany,
    /// Ended before.
    Interrupted,
}

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
    disk: &dyn Disk,
    data: &DataDirectory,
    settings: &RunningSettings,
    witness: &mut dyn Witness,
    pauses: &dyn Pauses,
    wanted: &dyn Fn(RelationFiles) -> bool,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Verified {
    let data = &as_running(data);
    let mut scan = Scan::listed(data, &settings.verify, wanted);
    let mut verified = mem::take(&mut scan.verified);
    // A database that is dropped goes with its directory.
    verified.unlisted.retain(|(path, error)| {
        error.kind() != io::ErrorKind::NotFound || fs::symlink_metadata(path).is_ok()
    });
    let blocks = Blocks::new(disk, data, &scan.files);
    // Where no thread can be had for it, suspects are read again when all was read.
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let watch_them = || {
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        watch_all(&blocks, pauses, &receiver)
    };
    let watched = thread::scope(|scope| {
        let watching = thread::Builder::new().spawn_scoped(scope, watch_them);
        let mut sieve = Sieve { blocks: &blocks, sender, count: 0 };
        let mut watch = |now| {
            let go_on = progress(now);
            if go_on.is_break() {
                pauses.stop();
            }
            go_on
        };
        let mut take = |verified: &mut Verified, finding| sieve.take(verified, finding);
        scan.read(disk, &mut verified, None, &mut take, &mut watch);
        verified.running.suspects = sieve.count;
        drop(sieve);
        match watching {
            Ok(watching) => watching.join().unwrap_or_else(|_| Watched::default()),
            Err(_) => watch_them(),
        }
    });
    let all_bytes = scan.files.bytes();
    let mut go_on =
        |pages: Pages| progress(Progress { bytes: pages.bytes, all_bytes }).is_continue();
    let patience = settings.patience;
    let mut settling =
        Settling { blocks: &blocks, witness, pauses, patience, go_on: &mut go_on, verified };
    settling.run(watched);
    verified = settling.verified;
    verified.findings.sort_by_key(|finding| (finding.fork, finding.block));
    verified
}

/// Files that a server changes say nothing about each other.
fn as_running(data: &DataDirectory) -> DataDirectory {
    let mut data = data.clone();
    data.backup_start = None;
    if !matches!(data.control.state, ClusterState::InArchiveRecovery) {
        data.control.state = ClusterState::InProduction;
    }
    data
}

/// Sorts out suspects from what the scan finds.
struct Sieve<'a> {
    blocks: &'a Blocks<'a>,
    sender: Sender<Suspect>,
    count: u64,
}

impl Sieve<'_> {
    fn take(&mut self, verified: &mut Verified, finding: Finding) {
        let Finding { fork, block, what } = finding;
        match what {
            WhatIsWrong::Invalid { fault, lsn } => {
                self.suspect(verified, Suspect::new(fork, block, fault, lsn));
            }
            WhatIsWrong::Changed => verified.running.dropped += 1,
            WhatIsWrong::Unreadable { .. } if self.blocks.is_gone(fork, block) => {
                verified.running.dropped += 1;
            }
            WhatIsWrong::Unreadable { .. } | WhatIsWrong::Unsettled { .. } => {
                verified.add(Finding { fork, block, what });
            }
            // What contradicts itself may do so only while it changes.
            WhatIsWrong::AheadOfWal { .. }
            | WhatIsWrong::ZeroButVisible
            | WhatIsWrong::ZeroFirst
            | WhatIsWrong::Layout(_)
            | WhatIsWrong::Evidence(_)
            | WhatIsWrong::Incremental(_)
            | WhatIsWrong::MayBeTorn { .. } => {}
        }
    }

    fn suspect(&mut self, verified: &mut Verified, suspect: Suspect) {
        self.count += 1;
        if self.count <= SUSPECTS_MAX && self.sender.send(suspect).is_ok() {
            return;
        }
        let (fork, block, why) = (suspect.fork, suspect.block, Unsettled::TooMany);
        let what = WhatIsWrong::Unsettled { fault: suspect.bad.fault, lsn: suspect.bad.lsn, why };
        verified.add(Finding { fork, block, what });
    }
}

/// Suspects that are kept in memory; a cluster with more damage has other worries.
const SUSPECTS_MAX: u64 = 100_000;
