//! Why WAL cannot be read.

use std::io;
use std::path::PathBuf;

use pgtoll_datadir::read_hint;
use pgtoll_format::wal::WalError;

/// WAL cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum WalReadError {
    /// There is no segment.
    #[error("{} holds no WAL segment", path.display())]
    NoSegments {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// A file or directory could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The first segment's file is empty.
    #[error("{}: no WAL segment: it is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The first segment is none.
    #[error("{}: {source}", path.display())]
    NotWal {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WalError,
    },
}

impl WalReadError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSegments { .. } => Some(
                "name a data directory, its pg_wal, an archive's directory, or segments themselves",
            ),
            Self::Read { source, .. } => Some(read_hint(source)),
            Self::Empty { .. } | Self::NotWal { source: WalError::Zeros, .. } => {
                Some("name a segment that was written to, or the directory that holds it")
            }
            Self::NotWal { source: WalError::UnknownMagic { .. }, .. } => {
                Some("pgtoll reads the WAL of released PostgreSQL 13 to 18 and of 19rc1")
            }
            Self::NotWal { .. } => {
                Some("is that a whole segment, neither encrypted nor cut short?")
            }
        };
        hint.map(str::to_owned)
    }
}
