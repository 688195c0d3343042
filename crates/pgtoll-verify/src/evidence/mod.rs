//! Evidence against pages that no checksum convicts: what else in a data directory says that they
//! must be others.

mod blocks;
mod changes;
mod compare;
mod indexes;
mod lost;
mod running;
mod unexplained;

use std::fmt;

pub use compare::compare_with_evidence;
pub use indexes::{IndexesCompared, compare_with_indexes};
pub use lost::{WalCompared, compare_with_wal};
pub(crate) use running::RunningEvidence;

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::Lsn;
use pgtoll_wal::{End, WalReadError};

/// Why pages were not compared with something.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// Files of a backup are copied while they change.
    #[error("a backup's files are copied while they change")]
    Backup,
    /// Recovery is still to come.
    #[error("the server was not stopped in good order")]
    NotStopped,
    /// It is unknown which files are in use.
    #[error("some of the catalogs could not be read")]
    Catalogs,
    /// The server replays WAL, or was promoted since its last checkpoint.
    #[error("the server replays WAL, or did so since its last checkpoint")]
    Replays,
    /// The server does not answer.
    #[error("{0}")]
    Server(String),
    /// WAL that the server inserted did not come to its files.
    #[error("WAL was read to {read_to}, and the server is at {inserted}")]
    Behind {
        /// The end of the WAL in files.
        read_to: Lsn,
        /// The server's position.
        inserted: Lsn,
    },
    /// WAL cannot be read at all.
    #[error(transparent)]
    Wal(#[from] WalReadError),
    /// WAL is missing or damaged.
    #[error("the WAL up to the last checkpoint cannot be read: {0}")]
    Ends(WalEnds),
    /// The caller interrupted it.
    #[error("interrupted")]
    Interrupted,
}

/// Why WAL is not whole.
#[derive(Debug)]
pub enum WalEnds {
    /// The segment of the checkpoint is not there.
    Missing,
    /// It cannot be read so far.
    At(End),
}

impl fmt::Display for WalEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("its segment is missing"),
            Self::At(end) => end.fmt(f),
        }
    }
}

/// Whether it is known which files are in use: not of a backup, which is copied file by file.
fn check_names(data: &DataDirectory, names: &Names) -> Result<(), NotCompared> {
    if data.backup_start.is_some() {
        return Err(NotCompared::Backup);
    }
    if names.unread().is_empty() { Ok(()) } else { Err(NotCompared::Catalogs) }
}
