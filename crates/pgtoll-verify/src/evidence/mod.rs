//! Evidence against pages that no checksum convicts: what else in a data directory says that they
//! must be others. All of it holds only where the server was stopped in good order.

mod blocks;
mod changes;
mod indexes;
mod lost;
mod timeline;

use std::fmt;

use pgtoll_format::Lsn;
use pgtoll_format::wal::RelationFiles;
use serde::{Deserialize, Serialize};

pub use indexes::{IndexesCompared, compare_with_indexes};
pub use lost::{WalCompared, compare_with_wal};

use pgtoll_datadir::DataDirectory;
use pgtoll_datadir::Names;
use pgtoll_wal::{End, WalReadError};

/// Why a page cannot be what it is, or cannot be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// WAL changed the page later than the page says: the write was lost, or an old copy put back.
    Stale {
        /// What the page says.
        lsn: Lsn,
        /// Where the record ends that changed it.
        wal: Lsn,
    },
    /// The page is zero, though WAL changed it.
    ZeroButLogged {
        /// Where the last record ends that did.
        wal: Lsn,
    },
    /// The file ends here, though WAL changed blocks behind.
    MissingButLogged {
        /// The last one of them.
        last: u32,
        /// Where the last record ends that changed that one.
        wal: Lsn,
    },
    /// The page of a B-tree is zero, though another one leads to it.
    ZeroButLinked {
        /// Which one.
        from: u32,
    },
    /// The file of a B-tree ends here, though a page leads to blocks behind.
    MissingButLinked {
        /// The last one of them.
        last: u32,
        /// Which page.
        from: u32,
    },
    /// The page of a table is zero, though an index leads to rows on it.
    ZeroButIndexed {
        /// Which index.
        index: RelationFiles,
    },
    /// The file of a table ends here, though an index leads to rows behind.
    MissingButIndexed {
        /// Which index.
        index: RelationFiles,
        /// The last block of them.
        last: u32,
    },
}

/// Why pages were not compared with something.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// The files are not all that there is.
    #[error("the server was not stopped in good order, or this is a backup")]
    NotStopped,
    /// Nobody knows which files are in use.
    #[error("some of the catalogs could not be read")]
    Catalogs,
    /// WAL cannot be read at all.
    #[error(transparent)]
    Wal(#[from] WalReadError),
    /// WAL is missing or damaged.
    #[error("the WAL up to the last checkpoint cannot be read: {0}")]
    Ends(WalEnds),
    /// Whoever asked did not want to wait.
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
