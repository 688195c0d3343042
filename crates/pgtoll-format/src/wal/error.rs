//! Why WAL ends, or is none.

use crate::Lsn;

/// Why reading WAL stops. Each names where; what is before it is sound.
///
/// A server's own WAL always ends in one of these ways: behind its last record stand zeros, or what
/// a recycled segment held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// The bytes do not begin as a segment does.
    #[error("no WAL segment: its first page has no long header")]
    NoSegment,
    /// It begins with zeros: a server allocated it, and wrote nothing to it.
    #[error("no WAL yet: it begins with nothing but zeros")]
    Zeros,
    /// A page of a version that pgtoll does not know.
    #[error("{at}: WAL of an unknown version (page magic {found:04X})")]
    UnknownMagic {
        /// The page.
        at: Lsn,
        /// The found value.
        found: u16,
    },
    /// A page of another version than the first one.
    #[error("{at}: page magic {found:04X} of another version")]
    OtherMagic {
        /// The page.
        at: Lsn,
        /// The found value.
        found: u16,
    },
    /// Flags that no page has.
    #[error("{at}: page flags {found:04X} are unknown")]
    PageFlags {
        /// The page.
        at: Lsn,
        /// The found value.
        found: u16,
    },
    /// A page of another place: the segment was recycled, and nothing was written here since.
    #[error("{at}: the page is that of {found}")]
    OtherPage {
        /// Its address.
        at: Lsn,
        /// The address that it claims.
        found: Lsn,
    },
    /// A segment of another cluster, or of another size.
    #[error("{at}: the segment belongs to another cluster")]
    OtherCluster {
        /// The segment.
        at: Lsn,
    },
    /// No record begins here: zeros, or a length that no record has.
    #[error("{at}: no record (length {length})")]
    NoRecord {
        /// The position.
        at: Lsn,
        /// The length that stands there.
        length: u32,
    },
    /// The record does not follow the one before it.
    #[error("{at}: the record follows one at {found}, not the one at {expected}")]
    OtherPrevious {
        /// The record.
        at: Lsn,
        /// The one that it names.
        found: Lsn,
        /// The one that was read.
        expected: Lsn,
    },
    /// A record's rest is not on the page where it has to be.
    #[error("{at}: the record's rest is missing at {page}")]
    NoContinuation {
        /// The record.
        at: Lsn,
        /// The page.
        page: Lsn,
    },
    /// The record's checksum does not fit.
    #[error("{at}: the record's CRC is wrong")]
    Crc {
        /// The record.
        at: Lsn,
    },
    /// A record with a right CRC whose parts do not fit each other.
    #[error("{at}: the record is inconsistent: {what}")]
    Inconsistent {
        /// The record.
        at: Lsn,
        /// The part that does not fit.
        what: &'static str,
    },
}

impl WalError {
    /// Returns the position at which reading stopped; `None` if it never began.
    pub fn at(&self) -> Option<Lsn> {
        match self {
            Self::NoSegment | Self::Zeros => None,
            Self::UnknownMagic { at, .. }
            | Self::OtherMagic { at, .. }
            | Self::PageFlags { at, .. }
            | Self::OtherPage { at, .. }
            | Self::OtherCluster { at }
            | Self::NoRecord { at, .. }
            | Self::OtherPrevious { at, .. }
            | Self::NoContinuation { at, .. }
            | Self::Crc { at }
            | Self::Inconsistent { at, .. } => Some(*at),
        }
    }
}
