//! Why a data directory cannot be read.

use std::io;
use std::path::PathBuf;

use pgtoll_format::{ControlError, UnsupportedMajor};

/// A data directory, or a backup of one, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DatadirError {
    /// A file or directory could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Its number or name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The control file cannot be read as one.
    #[error("{}: {source}", path.display())]
    Control {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: ControlError,
    },
    /// The data directory is of a major version that pgtoll does not know.
    #[error("{}: {source}", path.display())]
    Major {
        /// The data directory.
        path: PathBuf,
        /// Its version.
        source: UnsupportedMajor,
    },
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

impl DatadirError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Read { source, .. } => Some(read_hint(source)),
            Self::Major { .. } | Self::Catalogs { .. } | Self::NameBytes { .. } => None,
            Self::Control { source: ControlError::UnknownVersion { .. }, .. } => {
                Some("pgtoll reads the files of released PostgreSQL 13 to 18 and of 19rc1")
            }
            Self::Control { .. } => Some("is that a whole data directory of this machine's kind?"),
        };
        hint.map(str::to_owned)
    }
}

/// Returns advice about an unreadable file of a server.
pub fn read_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run pgtoll as the files' owner",
        io::ErrorKind::NotFound => {
            "name a data directory, an archive's directory, a segment, or a tar"
        }
        io::ErrorKind::StorageFull => {
            "a compressed tar is unpacked into TMPDIR: free some space, or name another"
        }
        _ => "is the file whole? Fetch it again, or name a later one",
    }
}
