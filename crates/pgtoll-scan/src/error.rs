//! What can go wrong.

use std::io;
use std::path::PathBuf;

use pgtoll_format::wal::WalError;
use pgtoll_format::{ControlError, UnsupportedMajor};

/// WAL, or a data directory, could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
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
    /// The control file is none.
    #[error("{}: {source}", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ControlError,
    },
    /// The data directory is of a major version that pgtoll does not know.
    #[error(transparent)]
    Major(#[from] UnsupportedMajor),
    /// No file says which major version the data directory is of, and its catalogs are of none.
    #[error("the catalogs of {} have the unknown format {found}", path.display())]
    Catalogs {
        /// The data directory.
        path: PathBuf,
        /// The catalogs' version.
        found: u32,
    },
    /// The server was built otherwise than all packages are.
    #[error("names in {} have {bytes} bytes, which pgtoll cannot read", path.display())]
    NameBytes {
        /// The data directory.
        path: PathBuf,
        /// Bytes of a name.
        bytes: u32,
    },
}

impl ScanError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoSegments { .. } => Some(
                "name a data directory, its pg_wal, an archive's directory, or segments themselves",
            ),
            Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run pgtoll as the files' owner")
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("name a data directory, an archive's directory, a segment, or a tar")
            }
            Self::Read { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("a compressed tar is unpacked into TMPDIR: free some space, or name another")
            }
            Self::Read { .. } => Some("is the file whole? Fetch it again, or name a later one"),
            Self::Empty { .. } | Self::NotWal { source: WalError::Zeros, .. } => {
                Some("name a segment that was written to, or the directory that holds it")
            }
            Self::Major(_) | Self::Catalogs { .. } | Self::NameBytes { .. } => None,
            Self::Control { source: ControlError::UnknownVersion { .. }, .. } => {
                Some("pgtoll reads the files of released PostgreSQL 13 to 18 and of 19rc1")
            }
            Self::Control { .. } => Some("is that a whole data directory of this machine's kind?"),
            Self::NotWal { source: WalError::UnknownMagic { .. }, .. } => {
                Some("pgtoll reads the WAL of released PostgreSQL 13 to 18 and of 19rc1")
            }
            Self::NotWal { .. } => {
                Some("is that a whole segment, neither encrypted nor cut short?")
            }
        }
    }
}
