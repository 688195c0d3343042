//! Reads the write-ahead log where it lies: data directories, archives, single segments, plain or
//! compressed; and from a data directory the names of relations.

mod collect;
mod corrupt;
mod end;
mod error;
mod files;
mod forks;
mod hold;
mod names;
mod packing;
mod pieces;
mod relation_files;
mod scan;
mod segment_name;
mod server;
mod statistics;
mod stream;
mod switch;
mod tars;
mod verify;
mod write_error;

pub use collect::Collect;
pub use corrupt::{Change, CorruptError, Damage, UNDO_SCHEMA, Wound, any_block, plan};
pub use end::End;
pub use error::ScanError;
pub use files::{SegmentFile, segments};
pub use forks::{Fork, OfFork};
pub use hold::Hold;
pub use names::{Names, RelationName, TableName, Unread, control_file};
pub use packing::Packing;
pub use pieces::{Course, Cycle, CycleBegin, Kind, Piece, Sums};
pub use relation_files::{RelationFile, RelationFileList, RelationFileName, relation_files};
pub use scan::{Contents, WalSummary, scan, scan_with};
pub use segment_name::SegmentName;
pub use server::{ServerError, ServerNames, names_of_server, stream};
pub use statistics::{Amount, ImageCause, Images, WalStatistics};
pub use stream::WalStream;
pub use switch::{
    EnableOptions, Pages as SwitchedPages, Progress as SwitchProgress, RefusedPage, Step, Switched,
    disable, enable,
};
pub use verify::{
    Class, Counts, DataDirectory, Disk, Files, Finding, Layout, Pages, Progress, ReadAt, Verified,
    VerifySettings, WhatIsWrong, page_verdict, verify, verify_on,
};
pub use write_error::WriteError;
