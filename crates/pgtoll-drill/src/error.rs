//! Why a backup is not drilled.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_cluster::ClusterError;
use pgtoll_datadir::{DatadirError, read_hint};
use pgtoll_format::ByteSize;
use pgtoll_system::Interrupted;
use pgtoll_wal::WalReadError;

/// A backup is not drilled, or the drill broke off: nothing is known of the backup.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// The directory holds no data directory.
    #[error("{} is not a base backup: it contains neither PG_VERSION nor global nor base.tar", path.display())]
    NotABackup {
        /// The directory, or the tar.
        path: PathBuf,
    },
    /// Several tars may be that of the data directory.
    #[error("{} has several tars of a data directory", path.display())]
    SeveralBases {
        /// The directory with them.
        path: PathBuf,
    },
    /// Tars are so damaged that nothing says of which version they are.
    #[error("{words}; nothing in front of that says which version the backup is of")]
    DamagedTars {
        /// The faults.
        words: String,
    },
    /// A tar is another one than when it was looked through.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The tar.
        path: PathBuf,
    },
    /// It is in a repository, and stored in a way that is not read.
    #[error("{}: {reason}", path.display())]
    Unread {
        /// The backup.
        path: PathBuf,
        /// Why it is not read.
        reason: String,
    },
    /// Blocks of it are in other backups.
    #[error("{} is an incremental backup: what it lacks is in the backups before it", path.display())]
    Incremental {
        /// The backup.
        path: PathBuf,
    },
    /// A backup that is named before an incremental one is none.
    #[error("{} has no backup_label and is not part of a chain of backups", path.display())]
    NotInChain {
        /// The backup.
        path: PathBuf,
    },
    /// Several backups were named, and the last is not incremental.
    #[error(
        "--drill restores one backup, and here are several: {} is the last, and not incremental",
        path.display()
    )]
    NotIncremental {
        /// The last one.
        path: PathBuf,
    },
    /// The backups are a chain in another order.
    #[error("the backups are not in the order in which they were taken")]
    ChainOrder {
        /// The right order.
        order: Vec<PathBuf>,
    },
    /// The user that combines backups may not read one.
    #[error("{} cannot be read by {user}, as whom pg_combinebackup runs", path.display())]
    Unreadable {
        /// The backup.
        path: PathBuf,
        /// The user.
        user: String,
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
        /// The place of the server's programs.
        bin: PathBuf,
    },
    /// The disk is too small.
    #[error(
        "the drill needs {} in {}, where {} are free",
        ByteSize(*needed_bytes).rounded(), work_dir.display(), ByteSize(*free_bytes).rounded()
    )]
    NoSpace {
        /// The most bytes that it needs.
        needed_bytes: u64,
        /// The free bytes.
        free_bytes: u64,
        /// The position.
        work_dir: PathBuf,
    },
    /// A file or directory could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Its number or name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the copy could not be written.
    #[error("write {}", path.display())]
    Write {
        /// Its number or name.
        path: PathBuf,
        /// The system's error.
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
    /// The server, which runs code that is in the backup, cannot be confined.
    #[error(
        "this system cannot confine the drill's server, which runs code of the backup: {reason}"
    )]
    Unconfined {
        /// The missing part.
        reason: String,
    },
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

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotABackup { .. } => {
                "name the directory of a base backup: with PG_VERSION, base and global, or with base.tar"
            }
            Self::SeveralBases { .. } => "name the tar of the data directory that is meant",
            Self::DamagedTars { .. } => "is the tar whole? Fetch it again, or name another backup",
            Self::Unread { .. } => RESTORE_FIRST,
            Self::Changed { .. } => "drill a complete backup that nothing writes to",
            Self::Incremental { .. } => {
                "name the backups before it, too, the full one first: --drill FULL … INCREMENTAL"
            }
            Self::NotInChain { .. } => "name base backups alone, as pg_basebackup makes them",
            Self::NotIncremental { .. } => {
                "drill one after the other; of an incremental backup name all before it, the full one first"
            }
            Self::ChainOrder { order } => {
                let paths: Vec<String> =
                    order.iter().map(|path| path.display().to_string()).collect();
                return Some(format!("pgtoll verify --drill {}", paths.join(" ")));
            }
            Self::Unreadable { .. } => "let that user read it, or run pgtoll as the files' owner",
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
            Self::Unconfined { .. } => {
                "confining it takes Linux 6.2 with Landlock; for a backup that you trust: --unconfined"
            }
            Self::Write { .. } | Self::Interrupted(_) => return None,
            Self::Datadir(error) => return error.hint(),
            Self::Wal(error) => return error.hint(),
            Self::Cluster(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}

/// Advice about a backup that cannot be read in place.
const RESTORE_FIRST: &str = "restore it with the tool that made it, if that can, into an empty directory \
     (tablespaces too); start no server there; then pgtoll verify --drill DIRECTORY --wal ARCHIVE";

/// An error with its source, unless its own words end in it.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) if !error.to_string().ends_with(&source.to_string()) => {
            format!("{error}: {source}")
        }
        _ => error.to_string(),
    }
}
