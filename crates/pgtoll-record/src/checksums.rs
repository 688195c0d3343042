//! Results of turning data checksums on or off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`ChecksumsRecord`].
pub const CHECKSUMS_SCHEMA: &str = "pgtoll.checksums/1";

/// The result of `pgtoll enable` or `pgtoll disable`, or their plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChecksumsRecord {
    /// [`CHECKSUMS_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The data directory.
    pub data: String,
    /// Its cluster's identifier, in decimal.
    pub system_identifier: String,
    /// The outcome of it.
    pub outcome: ChecksumsOutcome,
    /// Whether the pages have checksums now.
    pub enabled: bool,
    /// Files of relations.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Counts of pages; `None` if no page was read.
    pub pages: Option<ChecksumsPages>,
    /// The rest of an earlier, interrupted run.
    #[serde(default)]
    pub earlier: Option<EarlierRun>,
    /// Seconds that it took.
    pub seconds: Option<f64>,
    /// Seconds that it would take, at least and at most.
    pub predicted_seconds: Option<(f64, f64)>,
    /// The sample that it is taken from.
    #[serde(default)]
    pub sample: Option<ChecksumsSample>,
    /// Files among the relations' that are not PostgreSQL's, and were left alone.
    pub foreign: Vec<String>,
    /// The next steps.
    pub next: Vec<String>,
}

/// The outcome of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumsOutcome {
    /// Checksums were turned on.
    Enabled,
    /// They were turned off.
    Disabled,
    /// It was so before.
    Already,
    /// Nothing was done: it was only asked what would be.
    DryRun,
}

/// The journal of a run that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierRun {
    /// Whether nobody used the cluster since. Else everything was read again.
    pub valid: bool,
    /// Files that were passed over: their checksums were on disk.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Pages that were read to tell how long it would take. Nothing was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChecksumsSample {
    /// Pages that were read.
    pub pages: u64,
    /// Those whose checksum would be written.
    pub stale: u64,
    /// Bytes a second that one thread reads, as the files are cached now, and sums.
    pub read_bytes_per_second: f64,
    /// Bytes a second that the disk itself reads; `None` where the file system cannot tell.
    pub disk_bytes_per_second: Option<f64>,
}

/// Counts of pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChecksumsPages {
    /// Number of pages.
    pub all: u64,
    /// Those that were written.
    pub written: u64,
    /// Those that were never used.
    pub new: u64,
    /// Those that a server refuses, with checksums or without.
    pub refused: u64,
    /// The first of these.
    pub refused_pages: Vec<BlockOfFile>,
    /// Files whose last page is not whole.
    pub cut_short: Vec<String>,
}

/// A block of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockOfFile {
    /// The file.
    pub file: String,
    /// The block's number in the file, from 0.
    pub block: u64,
}
