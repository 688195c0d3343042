//! Why a patrol cannot continue.

use std::io;
use std::path::PathBuf;

use pgtoll_datadir::{AttachError, DatadirError};

/// Why a patrol cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum PatrolError {
    /// The state could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The state could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is something else, or of another version.
    #[error("{} is not a patrol state that this pgtoll can read", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is a link, or another user's.
    #[error("{} is {what}", path.display())]
    Planted {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: &'static str,
    },
    /// The state is of another cluster.
    #[error("{} is of the cluster {of}, and this one is {found}", path.display())]
    OtherCluster {
        /// The file, or the data directory that was another one before.
        path: PathBuf,
        /// The system identifier in the state.
        of: u64,
        /// The system identifier of the data directory.
        found: u64,
    },
    /// Another patrol continues from the same file.
    #[error("another patrol uses {}", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file would be in a directory of the cluster's own.
    #[error("{} is in the data directory {}", path.display(), data.display())]
    InDataDirectory {
        /// The file.
        path: PathBuf,
        /// The data directory.
        data: PathBuf,
    },
    /// A base backup does not change: it is verified once.
    #[error("{} is a base backup", path.display())]
    Backup {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to read.
    #[error("no file of a relation was found in {}", path.display())]
    NoRelation {
        /// The data directory.
        path: PathBuf,
    },
    /// The data directory cannot be read.
    #[error(transparent)]
    Datadir(#[from] DatadirError),
    /// The server that runs on it cannot be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl PatrolError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run pgtoll as the file's owner"
            }
            Self::Read { .. } => "name a regular file that may be written, or is not there yet",
            Self::Write { .. } => "name a file in a directory where you may write, with some space",
            Self::Foreign { .. } => "name another file: this one is left as it is",
            Self::Planted { .. } => "name a file of your own, in a directory of your own",
            Self::OtherCluster { .. } => "each cluster has a state of its own: name another file",
            Self::InUse { .. } => "end that one first, or name another file",
            Self::InDataDirectory { .. } => {
                "name a file elsewhere: a patrol writes nothing to the cluster's directories"
            }
            Self::Backup { .. } => "verify it once: leave out --patrol",
            Self::NoRelation { .. } => "is it a cluster's data directory, and all of it?",
            Self::Datadir(error) => return error.hint(),
            Self::Attach(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}
