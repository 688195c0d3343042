//! Why WAL cannot be read.

use std::io;
use std::path::PathBuf;

use pgtoll_datadir::read_hint;
use pgtoll_format::Lsn;
use pgtoll_format::wal::WalError;

use crate::range::WalBound;

/// WAL cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum WalReadError {
    /// There is no segment.
    #[error("{} holds no WAL segment", path.display())]
    NoSegments {
        /// The place that was searched.
        path: PathBuf,
    },
    /// A file or directory could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Its number or name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no segment of the timeline.
    #[error("no segment of timeline {timeline}; there are timelines {}", listed(found))]
    NoTimeline {
        /// Its number or name.
        timeline: u32,
        /// Those that there are.
        found: Vec<u32>,
    },
    /// The WAL has nothing so late.
    #[error("no commit or checkpoint at {from} or later")]
    NothingSince {
        /// The request.
        from: WalBound,
    },
    /// Nothing lies between the two.
    #[error("no WAL from {from} to {to}: the one is not before the other")]
    EmptyRange {
        /// The requested start.
        from: WalBound,
        /// The requested end.
        to: WalBound,
    },
    /// The segments are of another part of the WAL.
    #[error("the range lies outside the WAL, whose segments are from {begin} to {end}")]
    OutOfRange {
        /// The start of the first segment.
        begin: Lsn,
        /// The end of the last one.
        end: Lsn,
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
        /// The underlying error.
        source: WalError,
    },
}

fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl WalReadError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSegments { .. } => Some(
                "name a data directory, its pg_wal, an archive's directory, or segments themselves",
            ),
            Self::NoTimeline { .. } => Some("name one of those, or more of the archive"),
            Self::NothingSince { .. } | Self::OutOfRange { .. } => Some(
                "pgtoll wal stats without --from and --to says from where to where, and when, it is",
            ),
            Self::EmptyRange { .. } => Some("--from is where the range begins, --to where it ends"),
            // A store's, which has one of its own.
            Self::Read { source, .. } if source.kind() == io::ErrorKind::Other => None,
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
