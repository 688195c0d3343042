//! Reads the write-ahead log where it lies: data directories, archives, single segments, plain or
//! compressed; and from a data directory the names of relations.

mod collect;
mod corrupt;
mod end;
mod error;
mod files;
mod forks;
#[doc(hidden)]
pub mod fuzzed;
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
mod tar_stream;
mod tars;
mod threads;
mod verify;
mod whatif;
mod write_error;

pub use collect::Collect;
pub use corrupt::{Change, CorruptError, Damage, UNDO_SCHEMA, Wound, any_block, plan};
pub use end::End;
pub use error::ScanError;
pub use files::{SegmentFile, segments};
pub use forks::{Fork, OfFork};
pub use hold::{Hold, HoldPolicy, become_owner_of, data_directory_control};
pub use names::{Names, RelationName, TableName, Unread, control_file};
pub use packing::Packing;
pub use pieces::{Course, Cycle, CycleBegin, Kind, Piece, Sums};
pub use relation_files::{RelationFile, RelationFileList, RelationFileName, relation_files};
pub use scan::{Contents, WalSummary, first_header, scan, scan_with};
pub use segment_name::SegmentName;
pub use server::{ServerError, ServerNames, names_of_server, stream, stream_with};
pub use statistics::{Amount, ImageCause, Images, WalStatistics};
pub use stream::WalStream;
pub use switch::{
    Earlier, EnableOptions, Pages as SwitchedPages, Prediction, Progress as SwitchProgress,
    RefusedPage, Step, Switched, Threads as SwitchThreads, disable, enable, predict,
};
pub use verify::{
    BackupWal, Class, Counts, DataDirectory, DirectFiles, Disk, Evidence, FileFinding, Files,
    Finding, IndexesCompared, Journal, JournalError, Layout, ManifestCompared, MappedFiles, Moment,
    NotCompared, Pages, Pauses, Postmaster, Progress, ReadAt, RealPauses, RunningCounts,
    RunningServer, RunningSettings, Said, TarBackup, Unsettled, Verified, VerifiedTars,
    VerifySettings, WalAtHand, WalCompared, WalImages, WhatIsWrong, Window, Witness, WrongFile,
    compare_with_indexes, compare_with_wal, page_verdict, verify, verify_again, verify_on,
    verify_running, verify_tars,
};
pub use whatif::{Answer, Asked, Compressing, Glance, Question, RedoPoint};
pub use write_error::{MaybeOverwritten, WriteError};
