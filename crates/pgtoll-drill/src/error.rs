//! Why a backup is not drilled.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_cluster::ClusterError;
use pgtoll_datadir::{DatadirError, read_hint};
use pgtoll_format::ByteSize;
use pgtoll_interrupt::Interrupted;
use pgtoll_wal::WalReadError;

/// A backup is not drilled, or the drill broke off: nothing is known of the backup.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// The directory holds no data directory.
    #[error("{} is no base backup: neither PG_VERSION nor global is in it", path.display())]
    NotABackup {
        /// The directory.
        path: PathBuf,
    },
    /// The backup is in tars.
    #[error("{} is a backup in tars, and a drill needs a directory", path.display())]
    Tars {
        /// The tar, or the directory with them.
        path: PathBuf,
    },
    /// Blocks of it are in other backups.
    #[error("{} is an incremental backup: what it lacks is in the backups before it", path.display())]
    Incremental {
        /// The backup.
        path: PathBuf,
    },
    /// A server runs on it.
    #[error("a server runs on {} (process {pid})", path.display())]
    Running {
        /// The data directory.
        path: PathBuf,
        /// The server's process.
        pid: u32,
    },
    /// It is no backup, and was not shut down.
    #[error(
        "{} has no backup_label, and its control file says \"{state}\": it is neither a base backup \
         nor the copy of a server that was shut down",
        path.display()
    )]
    NotShutDown {
        /// The data directory.
        path: PathBuf,
        /// How the server was left, in PostgreSQL's words.
        state: String,
    },
    /// Its major version is unknown.
    #[error("{}: neither PG_VERSION nor global/pg_control says which version it is of", path.display())]
    NoVersion {
        /// The data directory.
        path: PathBuf,
    },
    /// The server that was named is of another major version.
    #[error("the backup is of PostgreSQL {backup}, and the server in {} of {server}", bin.display())]
    OtherMajor {
        /// The backup's major version.
        backup: u32,
        /// The server's.
        server: u32,
        /// Where the server's programs are.
        bin: PathBuf,
    },
    /// The disk is too small.
    #[error(
        "the drill needs {} in {}, where {} are free",
        ByteSize(*needed_bytes).rounded(), work_dir.display(), ByteSize(*free_bytes).rounded()
    )]
    NoSpace {
        /// What it needs at most.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
        /// Where.
        work_dir: PathBuf,
    },
    /// A file or directory could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the copy could not be written.
    #[error("write {}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The data directory cannot be read.
    #[error(transparent)]
    Datadir(#[from] DatadirError),
    /// The WAL that was named cannot be read.
    #[error(transparent)]
    Wal(#[from] WalReadError),
    /// A server could not be found or run.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl DrillError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotABackup { .. } => {
                "name the directory of a plain base backup, with PG_VERSION, base and global"
            }
            Self::Tars { .. } => {
                "unpack it: mkdir restored && tar -xf base.tar -C restored; WAL from pg_wal.tar goes \
                 to a directory for --wal, a tablespace's tar behind a link in restored/pg_tblspc"
            }
            Self::Incremental { .. } => "combine it with those first: pg_combinebackup -o DIR …",
            Self::Running { .. } => {
                "name a base backup (pg_basebackup -D DIR), or stop the server in good order"
            }
            Self::NotShutDown { .. } => {
                "name a base backup, or shut the server down in good order and copy it again"
            }
            Self::NoVersion { .. } => "is that a whole data directory of this machine's kind?",
            Self::OtherMajor { .. } => "leave --postgres out, or name a server of that version",
            Self::NoSpace { .. } => "free some space, or name another disk with --work-dir",
            Self::Read { source, .. } => read_hint(source),
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some space, or name another disk with --work-dir"
            }
            Self::Write { .. } | Self::Interrupted(_) => return None,
            Self::Datadir(error) => return error.hint(),
            Self::Wal(error) => return error.hint(),
            Self::Cluster(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}
