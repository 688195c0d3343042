//! Are the pages sound? The verdict on a page is the server's; what contradicts itself although no
//! server would notice is a suspicion.
//!
//! Entry points: [`verify`] for a data directory that no server writes to, [`verify_running`] beside a
//! server, [`verify_tars`] for backups; [`compare_with_wal`] and [`compare_with_indexes`] look for lost
//! writes.

mod backup;
mod complete;
mod directory;
mod disk;
mod evidence;
mod found;
#[doc(hidden)]
pub mod fuzzed;
mod journal;
mod layout;
mod listing;
mod manifest;
mod mapped;
mod online;
mod pace;
mod page;
mod settings;
mod visible;
mod work;

pub use backup::{BackupWal, TarBackup, VerifiedTars, WalAtHand, verify_tars};
pub use directory::{verify, verify_again, verify_on};
pub use disk::{DirectFiles, Disk, Files, MappedFiles, ReadAt};
pub use evidence::{
    Evidence, IndexesCompared, NotCompared, WalCompared, compare_with_indexes, compare_with_wal,
};
pub use found::{Class, Counts, Finding, Layout, Pages, Verified, WhatIsWrong};
pub use journal::{Journal, JournalError};
pub use manifest::{FileFinding, ManifestCompared, WrongFile};
pub use mapped::Window;
pub use online::{
    Moment, Pauses, RealPauses, RunningCounts, RunningServer, RunningSettings, Said, Unsettled,
    WalImages, Witness, verify_running,
};
pub use page::page_verdict;
pub use settings::{Progress, VerifySettings};

use pgtoll_datadir::DataDirectory;
use settings::PROGRESS;
