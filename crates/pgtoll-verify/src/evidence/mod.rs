//! Evidence against pages that no checksum convicts: what else in a data directory says that they
//! must be others. All of it holds only where the server was stopped in good order.

mod blocks;
mod changes;
mod compare;
mod indexes;
mod lost;

use std::fmt;

pub use compare::{EvidenceCompared, EvidenceSources, compare_with_evidence};
pub use indexes::{IndexesCompared, compare_with_indexes};
pub use lost::{WalCompared, compare_with_wal};

use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_wal::{End, WalReadError};

/// Why pages were not compared with something.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// The files are not all that there is.
    #[error("the server was not stopped in good order, or this is a backup")]
    NotStopped,
    /// It is unknown which files are in use.
    #[error("some of the catalogs could not be read")]
    Catalogs,
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

/// Whether anything that contradicts itself in this directory is wrong.
fn check_is_consistent(data: &DataDirectory, names: &Names) -> Result<(), NotCompared> {
    if !data.is_consistent() {
        return Err(NotCompared::NotStopped);
    }
    if names.unread().is_empty() { Ok(()) } else { Err(NotCompared::Catalogs) }
}
