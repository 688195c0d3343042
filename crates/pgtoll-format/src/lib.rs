#![doc = include_str!("../README.md")]

pub mod btree;
mod bytes;
pub mod catalog;
pub mod conf;
mod control;
mod crc32c;
pub mod heap;
mod incremental;
pub mod log;
mod lsn;
mod page;
mod page_difference;
mod page_kind;
pub mod pglz;
mod provider;
mod random;
mod relation;
mod text;
mod units;
mod version;
mod visibility;
pub mod wal;

pub use control::{
    CONTROL_FILE_BYTES, Checkpoint, ClusterState, ControlError, ControlFile, WalLevel,
};
pub use crc32c::{Crc32c, crc32c};
pub use incremental::{IncrementalError, IncrementalHeader};
pub use lsn::{Lsn, LsnParseError};
pub use page::{
    Fault, LinePointer, LinePointerState, PAGE_BYTES, PAGE_CHECKSUM, PageError, PageHeader,
    Verdict, line_pointers, verdict,
};
pub use page_difference::{HeaderField, PageDifference};
pub use page_kind::PageKind;
pub use provider::{AURORA_FUNCTION, Provider, ProviderFacts};
pub use random::SplitMix64;
pub use relation::{BlockNumber, ForkNumber, RelFileLocator, RelationFork};
pub use text::{hex, is_unprintable, shell_quoted, single_quoted, unhex};
pub use units::{ByteSize, TimeSpan, UnitError};
pub use version::{
    BlocksWritten, ControlFacts, ImageCompressions, MAJORS, MajorFacts, PageSumming, ServerVersion,
    UnsupportedMajor, VersionParseError, WalFacts, facts_of_major, setting_since,
};
pub use visibility::{RowVisibility, is_all_visible};
