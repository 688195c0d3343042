//! Why a data directory is not written to.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_format::ClusterState;

use crate::ScanError;

/// A data directory was not, or not wholly, written to.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It cannot be told what is in it.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Somebody else's.
    #[error("{} belongs to user {uid}", path.display())]
    NotOwner {
        /// The data directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Root could not become the owner.
    #[error("become user {uid}, the data directory's owner")]
    Become {
        /// The owner.
        uid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A server runs, or somebody else works on it.
    #[error("a server runs on {}: process {pid} holds its postmaster.pid", path.display())]
    Running {
        /// The data directory.
        path: PathBuf,
        /// The process.
        pid: i32,
    },
    /// Processes of a server that is gone still live.
    #[error("processes of a server on {} still use its shared memory {id}", path.display())]
    SharedMemory {
        /// The data directory.
        path: PathBuf,
        /// The segment's identifier.
        id: i64,
    },
    /// `postmaster.pid` names no process.
    #[error("{} names no process", path.display())]
    BadLock {
        /// The file.
        path: PathBuf,
    },
    /// The cluster was not shut down in good order.
    #[error("{} was not shut down in good order: its control file says \"{state}\"", path.display())]
    NotShutDown {
        /// The data directory.
        path: PathBuf,
        /// How it was left.
        state: ClusterState,
    },
    /// Somebody else wrote to the directory in spite of the lock.
    #[error("somebody else took {} while it was held", path.display())]
    Lost {
        /// The data directory.
        path: PathBuf,
    },
    /// What cannot be read may hold relations.
    #[error("read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A block cannot be read.
    #[error("read block {block} of {}", path.display())]
    ReadBlock {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk does not confirm a file.
    #[error("sync {}", path.display())]
    Sync {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has a number that no block can reach.
    #[error("{} holds blocks beyond the last number that a block can have", path.display())]
    BlockNumber {
        /// The file.
        path: PathBuf,
    },
    /// What was written is not what was read.
    #[error("block {block} of {} is not as it was written", path.display())]
    NotAsWritten {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl WriteError {
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path: path.clone(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Scan(error) => error.hint()?,
            Self::NotOwner { .. } => "run pgtoll as the directory's owner, or as root",
            Self::Become { .. } => "run pgtoll as that user",
            Self::Running { .. } => "stop it first, in good order: pg_ctl stop -m fast",
            Self::SharedMemory { .. } => {
                "its postmaster is gone and backends live on: end them, then start the server and \
                 stop it in good order"
            }
            Self::BadLock { .. } => {
                "a server may be starting; if none is, remove the file, start the server and stop \
                 it in good order"
            }
            Self::NotShutDown { .. } => {
                "start the server, so that it recovers, and stop it in good order: pg_ctl stop -m \
                 fast"
            }
            Self::Lost { .. } => "did a server start in another container? Stop it, and run again",
            Self::BlockNumber { .. } => "is the control file that of this data directory?",
            Self::NotAsWritten { .. } => "the disk lies: look at its log before anything else",
            Self::Interrupted => "what was done stays done: run the same command again",
            Self::Read { source, .. }
            | Self::ReadBlock { source, .. }
            | Self::Write { source, .. }
            | Self::Sync { source, .. } => return Some(of_system(source).to_owned()),
        };
        Some(text.to_owned())
    }
}

fn of_system(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "every file in a data directory belongs to its owner; who changed that?"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run the same command again; what was done stays done"
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        io::ErrorKind::NotFound => "is a tablespace's disk not mounted?",
        _ => "look at the system's log; when the disk is well, run the same command again",
    }
}
