//! Reads the write-ahead log where it lies: data directories, archives, single segments, plain or
//! compressed; and from a data directory the names of relations.

mod collect;
mod end;
mod error;
mod files;
mod forks;
mod names;
mod packing;
mod pieces;
mod scan;
mod segment_name;
mod server;
mod statistics;
mod stream;
mod tars;

pub use collect::Collect;
pub use end::End;
pub use error::ScanError;
pub use files::{SegmentFile, segments};
pub use forks::{Fork, OfFork};
pub use names::{Names, RelationName, TableName, Unread, control_file};
pub use packing::Packing;
pub use pieces::{Course, Cycle, CycleBegin, Kind, Piece, Sums};
pub use scan::{Contents, WalSummary, scan, scan_with};
pub use segment_name::SegmentName;
pub use server::{ServerError, ServerNames, names_of_server, stream};
pub use statistics::{Amount, ImageCause, Images, WalStatistics};
pub use stream::WalStream;
