//! Why a data directory is not written to.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use pgtoll_format::ClusterState;

use pgtoll_datadir::DatadirError;

/// A data directory was not, or not wholly, written to.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The directory cannot be read.
    #[error(transparent)]
    Scan(#[from] DatadirError),
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
        /// The system's error.
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
    /// Another pgtoll works on it.
    #[error("another pgtoll works on {}: process {pid} holds its postmaster.pid", path.display())]
    HeldByPgtoll {
        /// The data directory.
        path: PathBuf,
        /// The process, in its own PID namespace.
        pid: i32,
    },
    /// There is no data directory.
    #[error("{} is not a data directory", path.display())]
    NotDataDirectory {
        /// The named path.
        path: PathBuf,
        /// The system's error for it, or for its control file.
        source: io::Error,
    },
    /// `postmaster.pid` names no process.
    #[error("{} is empty or damaged: it names no process", path.display())]
    BadLock {
        /// The file.
        path: PathBuf,
    },
    /// `postmaster.pid` is a link, a FIFO, a device or a directory.
    #[error("{} is not a regular file", path.display())]
    LockKind {
        /// The file.
        path: PathBuf,
    },
    /// `postmaster.pid` is a server's, and names the pid of this process.
    #[error("{} names process {pid}, which is pgtoll itself here", path.display())]
    OwnPid {
        /// The file.
        path: PathBuf,
        /// This process.
        pid: i32,
    },
    /// `postmaster.pid` cannot be made.
    #[error("make {}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The cluster was not shut down cleanly.
    #[error("{} was not shut down cleanly: its control file says \"{state}\"", path.display())]
    NotShutDown {
        /// The data directory.
        path: PathBuf,
        /// How it was left.
        state: ClusterState,
        /// The process that its `postmaster.pid` names, which cannot be seen from here.
        pid: Option<i32>,
    },
    /// A server crashed, or runs where it cannot be seen.
    #[error(
        "a server may run on {}: its control file says \"{state}\", and process {pid}, which \
         postmaster.pid names, cannot be seen from here",
        path.display()
    )]
    MayRun {
        /// The data directory.
        path: PathBuf,
        /// How it was left.
        state: ClusterState,
        /// The process.
        pid: i32,
    },
    /// Another process took the directory in spite of the lock.
    #[error("another process took {} while pgtoll held it{}", path.display(), blocks(overwritten))]
    Lost {
        /// The data directory.
        path: PathBuf,
        /// Writes that may have overlapped with pgtoll's own.
        overwritten: Vec<MaybeOverwritten>,
    },
    /// An unreadable file may hold relations.
    #[error("read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A block cannot be read.
    #[error("read block {block} of {}", path.display())]
    ReadBlock {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk does not confirm a file.
    #[error("sync {}", path.display())]
    Sync {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has a number that no block can reach.
    #[error("{} holds blocks beyond the last number that a block can have", path.display())]
    BlockNumber {
        /// The file.
        path: PathBuf,
    },
    /// The file differs from what was written.
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

/// Bytes that a write of pgtoll may have replaced after another process wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybeOverwritten {
    /// The file.
    pub path: PathBuf,
    /// Blocks' numbers in the file; `None`: all of it.
    pub blocks: Option<Range<u64>>,
}

fn blocks(overwrittens: &[MaybeOverwritten]) -> String {
    let mut text = String::new();
    for (number, MaybeOverwritten { path, blocks }) in overwrittens.iter().enumerate() {
        let separator = if number == 0 { "; pgtoll may have overwritten " } else { ", " };
        let _ = match blocks {
            Some(block) if block.end > block.start + 1 => {
                write!(
                    text,
                    "{separator}blocks {}-{} of {}",
                    block.start,
                    block.end - 1,
                    path.display()
                )
            }
            Some(block) => write!(text, "{separator}block {} of {}", block.start, path.display()),
            None => write!(text, "{separator}{}", path.display()),
        };
    }
    text
}

impl WriteError {
    /// Whether writing the control file failed, so that it is unknown whether it says "on" or "off".
    /// After any other error it says what it said before.
    pub fn is_of_control_file(&self) -> bool {
        let is_control = |path: &Path| path.ends_with("global/pg_control");
        match self {
            Self::Write { path, .. } | Self::Sync { path, .. } => is_control(path),
            Self::Lost { overwritten, .. } => overwritten.iter().any(|file| is_control(&file.path)),
            _ => false,
        }
    }

    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path: path.clone(), source }
    }

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Scan(error) => return error.hint(),
            Self::NotOwner { .. } => "run pgtoll as the directory's owner, or as root",
            Self::Become { .. } => "run pgtoll as that user",
            Self::Running { .. } => "stop it first, in good order: pg_ctl stop -m fast",
            Self::SharedMemory { .. } => {
                "its postmaster is gone and backends live on: end them, then start the server and \
                 stop it in good order"
            }
            Self::HeldByPgtoll { .. } => "wait until it has ended",
            Self::NotDataDirectory { .. } => {
                "name the server's data directory: SHOW data_directory, or -D of pg_ctl"
            }
            Self::BadLock { .. } => {
                "a server may be starting; if none is, remove the file, start the server and stop \
                 it in good order"
            }
            Self::LockKind { .. } => {
                "PostgreSQL makes no such file: find out who did, and remove it if no server runs"
            }
            Self::OwnPid { .. } => {
                "a server in another container or on another host may have this pid: stop it \
                 there; if none runs, start the server and stop it in good order"
            }
            Self::Lock { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free some space; nothing was changed"
                }
                _ => of_system(source),
            },
            Self::NotShutDown { pid: Some(_), .. } => {
                "does it run in another container or on another host? Stop it there: pg_ctl stop \
                 -m fast; after a crash start it first to recover"
            }
            Self::NotShutDown { pid: None, .. } => {
                "start the server to recover, then stop it cleanly: pg_ctl stop -m fast"
            }
            Self::MayRun { .. } => {
                "a server in another container or on another host cannot be seen: look for it on \
                 every host that mounts this directory, and stop it; if it crashed and none runs \
                 anywhere, add --crashed"
            }
            Self::Lost { overwritten, .. } if overwritten.is_empty() => {
                "did a server start in another container or on another host? Stop it, and run again"
            }
            Self::Lost { .. } => {
                "a server may have started in another container or on another host: compare these \
                 with a replica, or restore them from a backup"
            }
            Self::BlockNumber { .. } => "is the control file that of this data directory?",
            Self::NotAsWritten { .. } => "the disk lies: look at its log before anything else",
            Self::Interrupted => "completed work is kept: run the same command again",
            Self::Read { path, source } | Self::ReadBlock { path, source, .. }
                if source.kind() == io::ErrorKind::NotFound
                    && !path.iter().any(|part| part == "pg_tblspc") =>
            {
                "is that a whole data directory?"
            }
            Self::Read { source, .. }
            | Self::ReadBlock { source, .. }
            | Self::Write { source, .. }
            | Self::Sync { source, .. } => return Some(of_system(source).to_owned()),
        };
        Some(text.to_owned())
    }
}

fn of_system(source: &io::Error) -> &'static str {
    if [Errno::EMFILE, Errno::ENFILE].iter().any(|item| source.raw_os_error() == Some(*item as i32))
    {
        return "raise the limit of open files (ulimit -n), or lower --jobs";
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "every file in a data directory belongs to its owner; who changed that?"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run the same command again; completed work is kept"
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount the file system for writing",
        io::ErrorKind::NotFound => "is a tablespace's disk not mounted?",
        _ => "look at the system's log; when the disk is well, run the same command again",
    }
}
