//! Why pages are not repaired.

use std::path::PathBuf;

use pgtoll_datadir::DatadirError;
use pgtoll_format::ClusterState;
use pgtoll_wal::WalReadError;

use crate::WriteError;

/// Pages are not, or not all, repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A directory cannot be read.
    #[error(transparent)]
    Datadir(#[from] DatadirError),
    /// WAL cannot be read.
    #[error(transparent)]
    Wal(#[from] WalReadError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A server cannot be asked.
    #[error(transparent)]
    Server(pgtoll_wire::Error),
    /// A standby cannot be asked.
    #[error("ask the standby {dsn}")]
    Standby {
        /// The connection, without secrets.
        dsn: String,
        /// The underlying error.
        source: pgtoll_wire::Error,
    },
    /// A server runs, and no page may be repaired meanwhile.
    #[error("{} cannot be repaired while its server runs: {reason}", path.display())]
    NotOnline {
        /// The data directory.
        path: PathBuf,
        /// The reason, in a sentence.
        reason: String,
    },
    /// The cluster is none that was stopped in good order.
    #[error("{} was not stopped in good order as a primary: {}", path.display(), left(*state, *is_backup))]
    NotStopped {
        /// The data directory.
        path: PathBuf,
        /// How it was left.
        state: ClusterState,
        /// It is a base backup.
        is_backup: bool,
    },
    /// A server runs on it.
    #[error("a server runs on {}: process {pid}", path.display())]
    Running {
        /// The data directory.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// Nothing shows that a page is sound.
    #[error("{} has no data checksums: no page can be shown to be sound", path.display())]
    NoChecksums {
        /// The data directory.
        path: PathBuf,
    },
    /// The WAL at hand is another cluster's.
    #[error("the WAL is of the cluster with system identifier {found}, not of {}", path.display())]
    ForeignWal {
        /// The identifier in the WAL.
        found: u64,
        /// The data directory.
        path: PathBuf,
    },
    /// The undo file is none.
    #[error("{} is not an undo file of pgtoll repair", path.display())]
    NotRepairUndo {
        /// The file.
        path: PathBuf,
    },
    /// The undo file is about another data directory.
    #[error("the undo file is about {}, which is not a relation's file of this cluster", path.display())]
    OtherFile {
        /// The file that it names.
        path: PathBuf,
    },
    /// The cluster was used between the plan and the writing.
    #[error("a server was started on {} since the plan was made", path.display())]
    UsedSince {
        /// The data directory.
        path: PathBuf,
    },
    /// The page is not as it was when the plan was made, or as the repair left it.
    #[error("block {block} of {} was written since", path.display())]
    PageChanged {
        /// The file.
        path: PathBuf,
        /// The block's number in the file.
        block: u64,
    },
    /// The directory of undo files and ledger cannot be made or read.
    #[error("the repairs' directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Other users may write to the directory of undo files and ledger.
    #[error("{} is not a private directory of the data directory's owner", path.display())]
    SharedDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn left(state: ClusterState, is_backup: bool) -> String {
    if is_backup { "it is a base backup".to_owned() } else { format!("its state is \"{state}\"") }
}

impl RepairError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Datadir(error) => return error.hint(),
            Self::Wal(error) => return error.hint(),
            Self::Write(error) => return error.hint(),
            Self::Server(error) | Self::Standby { source: error, .. } => return error.hint(),
            Self::NotOnline { .. } => {
                "mend that, or stop the server in good order (pg_ctl stop -m fast) and repair then"
            }
            Self::NotStopped { is_backup: true, .. } => "take another backup, or restore this one",
            Self::NotStopped { state: ClusterState::ShutDownInRecovery, .. } => {
                "this is a standby: rebuild it from its primary"
            }
            Self::NotStopped { .. } | Self::Running { .. } => {
                "stop the server in good order: pg_ctl stop -m fast"
            }
            Self::NoChecksums { .. } => "restore the relation from a backup, or the whole cluster",
            Self::ForeignWal { .. } => "name the archive of this cluster with --wal",
            Self::NotRepairUndo { .. } => "name the file that pgtoll repair wrote with --undo-file",
            Self::OtherFile { .. } => "name the data directory that was repaired",
            Self::UsedSince { .. } => "stop it, and run the same command again",
            Self::PageChanged { .. } => {
                "run pgtoll repair again without --yes and look at the plan"
            }
            Self::Directory { .. } | Self::SharedDirectory { .. } => {
                "name files elsewhere with --undo-file and --ledger"
            }
            Self::Interrupted => "run the same command again",
        };
        Some(text.to_owned())
    }
}
