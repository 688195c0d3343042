//! Reads the write-ahead log where it lies (directories, archives, tars, single segments, plain or
//! compressed, a server's stream) into collectors, in parallel.
//!
//! Entry points: [`segments`] lists what is there, [`scan_with`] reads it into any [`Collect`] up
//! to the first gap, [`scan_range_with`] past all gaps, [`stream_with`] does so from a server. [`WalStatistics`], [`BlockReferences`], [`BlockChains`] and the what-if's [`WhatIfCollector`] are
//! collectors. [`checkpoint_segments`] lists the WAL that leads to a server's last checkpoint.

mod chains;
mod collect;
mod end;
mod error;
mod files;
mod forks;
#[doc(hidden)]
pub mod fuzzed;
mod lineage;
mod locate;
mod packing;
mod pieces;
mod queue;
mod range;
mod record;
mod recorded_name;
mod references;
mod scan;
mod segment_file;
mod segment_name;
mod segment_reader;
mod server;
mod statistics;
mod stream;
mod tar_stream;
mod tars;
mod whatif;

pub use chains::{BlockChains, NamedRecord};
pub use collect::Collect;
pub use end::{End, Gap};
pub use error::WalReadError;
pub use files::{Archive, files, segments};
pub use forks::ForkTotals;
pub use lineage::{
    Lineage, checkpoint_segments, checkpoint_segments_with, segments_around, segments_up_to,
};
pub use packing::Packing;
pub use pieces::{Cycle, FinishedTimeline, Piece, Sums, WalTimeline};
pub use range::{WalBound, WalBoundParseError, WalRange};
pub use record::{RelationNames, statistics_record};
pub use recorded_name::recorded_name;
pub use references::{BlockHistory, BlockReferences, NamingRecord, WalLimit};
pub use scan::{
    Contents, WalSummary, first_header, locate_range, scan, scan_range_with, scan_with,
};
pub use segment_file::{OpenSegment, SegmentFile};
pub use segment_name::SegmentName;
pub use server::{
    ServerError, StreamProgress, StreamWatch, Streamed, stream, stream_watched, stream_with,
};
pub use statistics::WalStatistics;
pub use stream::WalStream;
pub use tar_stream::{TarError, TarMember, TarMemberKind, TarMemberReader, TarStream};
pub use whatif::{
    Answer, CheckpointSurvey, Compressing, CycleOutcome, Question, RedoPoint, SourceCycle,
    WhatIfCollector, WhatIfSource, whatif_record,
};
