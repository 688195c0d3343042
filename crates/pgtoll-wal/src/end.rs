//! Why WAL is not read further.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pgtoll_format::wal::WalError;
use pgtoll_format::{ByteSize, Lsn};

/// Why the WAL is not read further.
#[derive(Debug)]
pub enum End {
    /// All segments were read to their ends.
    Complete,
    /// A server sent all that was asked for: up to here.
    Asked(Lsn),
    /// All that was asked for was read: up to here.
    RangeEnd(Lsn),
    /// The server was shut down, after it had sent all up to here.
    ServerStopped(Lsn),
    /// The server left the timeline here.
    TimelineEnd(Lsn),
    /// Whoever watched ended it.
    Interrupted,
    /// Its own end: behind the last record nothing follows.
    Own(WalError),
    /// The next part is damaged, and the WAL continues behind it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The faults, and where.
        error: WalError,
        /// The position at which it continues.
        goes_on: Lsn,
    },
    /// A segment is missing, and there are later ones.
    Missing {
        /// The requested start.
        at: Lsn,
        /// The name that it should have.
        name: String,
        /// How many are missing, with those that follow it.
        count: u64,
    },
    /// A file is shorter than its segment.
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its end.
        at: Lsn,
    },
    /// A file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The segment.
        at: Lsn,
        /// The system's error.
        source: io::Error,
    },
}

impl End {
    /// Returns the position; `None` if all was read, or it is unknown.
    pub fn at(&self) -> Option<Lsn> {
        match self {
            Self::Complete | Self::Interrupted => None,
            Self::Asked(at)
            | Self::RangeEnd(at)
            | Self::ServerStopped(at)
            | Self::TimelineEnd(at) => Some(*at),
            Self::Own(error) | Self::Damaged { error, .. } => error.at(),
            Self::Missing { at, .. } | Self::CutShort { at, .. } | Self::Unreadable { at, .. } => {
                Some(*at)
            }
        }
    }

    /// Nothing is missing that is there to be read.
    pub fn is_whole(&self) -> bool {
        !matches!(
            self,
            Self::Interrupted
                | Self::Damaged { .. }
                | Self::Missing { .. }
                | Self::CutShort { .. }
                | Self::Unreadable { .. }
        )
    }

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Damaged { .. } => {
                Some("fetch that segment again from where it was archived, or name a later range")
            }
            Self::Missing { .. } => Some("add the directory that holds it, or name later segments"),
            Self::CutShort { .. } => Some("is it still being copied? Fetch it again, whole"),
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run pgtoll as the files' owner")
            }
            Self::Unreadable { .. } => Some("fetch that segment again"),
            _ => None,
        };
        hint.map(str::to_owned)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("all segments were read to their ends"),
            Self::Asked(at) => write!(f, "the server sent it up to {at}, as requested"),
            Self::RangeEnd(at) => write!(f, "read up to {at}, as requested"),
            Self::ServerStopped(at) => write!(f, "the server was shut down at {at}"),
            Self::TimelineEnd(at) => write!(f, "the server left the timeline at {at}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Own(error) => write!(f, "the WAL ends at {error}"),
            Self::Damaged { path, error, .. } => {
                write!(f, "{}: damaged at {error}", path.display())
            }
            Self::Missing { at, name, count: 1 } => {
                write!(f, "segment {name} is missing, from {at} on")
            }
            Self::Missing { at, name, count } => {
                write!(f, "{count} segments are missing, {name} first, from {at} on")
            }
            Self::CutShort { path, at } => {
                write!(f, "{} is cut short: it ends at {at}", path.display())
            }
            Self::Unreadable { path, at, source } => {
                write!(f, "{} cannot be read, from {at} on: {source}", path.display())
            }
        }
    }
}

/// WAL that was not read, between records that were.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The end of the last record before it, or the start of the requested WAL.
    pub from: Lsn,
    /// The start of the first record behind it.
    pub to: Lsn,
    /// The reason why reading ended there.
    pub why: Arc<End>,
}

impl Gap {
    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.to.bytes_since(self.from).unwrap_or(0)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, why } = self;
        write!(f, "not read from {from} to {to}, {}: {why}", ByteSize(self.bytes()).rounded())
    }
}
