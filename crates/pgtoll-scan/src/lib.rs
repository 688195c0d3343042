//! Reads the write-ahead log where it lies: data directories, archives, single segments, plain or
//! compressed.

mod error;
mod files;
mod scan;
mod statistics;

pub use error::ScanError;
pub use files::{Packing, SegmentFile, SegmentName, segments};
pub use scan::{End, scan};
pub use statistics::{Amount, Fork, ImageCause, Images, WalStatistics, WalSummary};
