//! Statistics of a stretch of WAL.

use std::collections::BTreeMap;

use std::fmt;

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of WAL statistics.
pub const WAL_STATISTICS_SCHEMA: &str = "pgtoll.wal-statistics/1";

/// The content of a stretch of WAL, counted record by record. All sums are exact; only what is
/// said of times between two commits is interpolated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WalStatisticsRecord {
    /// [`WAL_STATISTICS_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again, as long as the WAL is there.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The WAL.
    pub source: WalSource,
    /// Why it was not read further.
    pub end: WalEnd,
    /// The amount of all records.
    pub total: WalAmount,
    /// By resource manager: those that have records, in the order of their numbers.
    pub managers: Vec<WalOfKind>,
    /// By type of record, in the order of managers and types.
    pub types: Vec<WalOfKind>,
    /// Images by cause. Each is in [`Self::total`] too.
    pub causes: BTreeMap<ImageCause, WalImages>,
    /// Images by compression: `none`, `pglz`, `lz4`, `zstd`.
    pub compressions: BTreeMap<String, WalImages>,
    /// By fork of a relation, the largest first. A record that changes several relations is counted
    /// for the first it names, each image for its own.
    pub relations: Vec<WalOfRelation>,
    /// Records that name no relation: commits, checkpoints and the like.
    pub without_relation: WalAmount,
    /// The source of relations' names; `None`: they have none.
    pub names: Option<String>,
    /// By database, the largest first.
    pub databases: Vec<WalOfDatabase>,
    /// From one checkpoint's redo point to the next, in the order of the WAL. The first and the
    /// last may have only a part in it.
    pub cycles: Vec<WalCycle>,
    /// Pieces in the order of the WAL, each as long as the next: rates over time are made of them.
    pub pieces: Vec<WalPiece>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalSource {
    /// The named sources: paths, or a server without its secrets.
    pub names: Vec<String>,
    /// The major version that wrote it.
    pub major: u32,
    /// The cluster's identifier.
    pub system_identifier: u64,
    /// Segments that were read.
    pub segments: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// The timelines, in their order.
    pub timelines: Vec<u32>,
    /// The start of the first record; `None` without a record.
    #[schemars(with = "Option<String>")]
    pub from: Option<Lsn>,
    /// The end of the last record.
    #[schemars(with = "Option<String>")]
    pub to: Option<Lsn>,
    /// When its first transaction ended (RFC 3339); `None` without one.
    pub first_time: Option<String>,
    /// When its last one ended.
    pub last_time: Option<String>,
    /// For how long a server's WAL was streamed, in milliseconds; `None` where files were read, and
    /// in older records. The stream begins with what the server wrote before, from the segment of
    /// its last checkpoint on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamed_ms: Option<u64>,
    /// The unread gaps between the first and the last record. All figures leave them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<WalGap>,
}

impl WalSource {
    /// Bytes of WAL that were read, page headers included.
    pub fn bytes(&self) -> u64 {
        let all = self.from.zip(self.to).and_then(|(from, to)| to.bytes_since(from));
        let gaps = self.gaps.iter().fold(0, |sum: u64, gap| sum.saturating_add(gap.bytes()));
        all.unwrap_or(0).saturating_sub(gaps)
    }
}

/// WAL that was not read, between records that were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalGap {
    /// The end of the last record before it, or the start of the requested WAL.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// The start of the first record behind it.
    #[schemars(with = "String")]
    pub to: Lsn,
    /// Why it was not read.
    pub kind: WalEndKind,
    /// In a sentence.
    pub words: String,
    /// From the last commit before it to the first one behind it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasted_ms: Option<u64>,
}

impl WalGap {
    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.to.bytes_since(self.from).unwrap_or(0)
    }
}

/// Why WAL was not read further. Where it has gaps, it is that of the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalEnd {
    /// The kind of end.
    pub kind: WalEndKind,
    /// The position; `None` if all was read.
    #[schemars(with = "Option<String>")]
    pub at: Option<Lsn>,
    /// In a sentence.
    pub words: String,
}

/// The kind of end of WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WalEndKind {
    /// All segments were read to their ends, or all that a server was asked for.
    Complete,
    /// Nothing follows the last record: its own end.
    Own,
    /// A record or page cannot be read, though the WAL continues after it.
    Damaged,
    /// A segment is missing, and there are later ones.
    Missing,
    /// A file is shorter than its segment.
    CutShort,
    /// The system could not read a file.
    Unreadable,
    /// Whoever ran pgtoll ended it.
    Interrupted,
}

impl WalEndKind {
    /// Nothing that is there to be read is missing.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::Own)
    }
}

/// Records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalAmount {
    /// Number of records.
    pub records: u64,
    /// Bytes of the records without their images.
    pub record_bytes: u64,
    /// Bytes of their full-page images, as they are stored.
    pub image_bytes: u64,
}

impl WalAmount {
    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.record_bytes.saturating_add(self.image_bytes)
    }

    /// Adds other records.
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.record_bytes += other.record_bytes;
        self.image_bytes += other.image_bytes;
    }

    /// Takes away some of its records.
    pub fn subtract(&mut self, part: &Self) {
        self.records = self.records.saturating_sub(part.records);
        self.record_bytes = self.record_bytes.saturating_sub(part.record_bytes);
        self.image_bytes = self.image_bytes.saturating_sub(part.image_bytes);
    }
}

/// Full-page images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalImages {
    /// How many.
    pub images: u64,
    /// Bytes, as they are stored.
    pub bytes: u64,
    /// Bytes before they were compressed; holes are left out in both.
    pub uncompressed_bytes: u64,
}

impl WalImages {
    /// Adds other images.
    pub fn add(&mut self, other: &Self) {
        self.images += other.images;
        self.bytes += other.bytes;
        self.uncompressed_bytes += other.uncompressed_bytes;
    }

    /// Takes away some of its images.
    pub fn subtract(&mut self, part: &Self) {
        self.images = self.images.saturating_sub(part.images);
        self.bytes = self.bytes.saturating_sub(part.bytes);
        self.uncompressed_bytes = self.uncompressed_bytes.saturating_sub(part.uncompressed_bytes);
    }
}

/// Why a full-page image is there.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ImageCause {
    /// The page was changed for the first time after a checkpoint.
    FirstTouch,
    /// A hint bit was set on it for the first time after a checkpoint: data checksums or
    /// `wal_log_hints` are on.
    Hint,
    /// Whatever the checkpoints: a new index, a rewritten table, a page that its access method
    /// always logs whole.
    Forced,
    /// It is there to check replay (`wal_consistency_checking`).
    Check,
}

impl ImageCause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::FirstTouch, Self::Hint, Self::Forced, Self::Check];
}

/// The records of a resource manager, or of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalOfKind {
    /// As `pg_waldump` calls it: `Heap`, `Heap/INSERT+INIT`.
    pub name: String,
    /// The amount of its records.
    #[serde(flatten)]
    pub amount: WalAmount,
}

/// The records of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalOfRelation {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database; 0 for shared relations.
    pub database: u32,
    /// Number of the files (`relfilenode`).
    pub filenode: u32,
    /// `main`, `fsm`, `vm` or `init`.
    pub fork: String,
    /// Its name; `None` where nobody knows, such as of a dropped table.
    pub name: Option<WalRelationName>,
    /// The amount of its records.
    #[serde(flatten)]
    pub amount: WalAmount,
    /// Its images.
    pub images: u64,
    /// Bytes of its images for hints.
    pub hint_bytes: u64,
}

/// The name of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalRelationName {
    /// Its database; empty for shared relations.
    pub database: String,
    /// Its schema.
    pub schema: String,
    /// Its own name.
    pub relation: String,
    /// `table`, `index`, `TOAST table` and the like.
    pub kind: String,
    /// The table that an index or a TOAST table belongs to.
    pub of: Option<String>,
}

/// With its schema and database, as far as they are known.
impl fmt::Display for WalRelationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.database, &self.schema, &self.relation];
        let parts: Vec<&str> =
            parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
        f.write_str(&parts.join("."))
    }
}

/// The records of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalOfDatabase {
    /// Its OID; 0: relations that all databases share.
    pub oid: u32,
    /// Its name.
    pub name: Option<String>,
    /// The amount of its records that name a relation.
    #[serde(flatten)]
    pub amount: WalAmount,
    /// Number of full-page images.
    pub images: u64,
}

/// From one checkpoint's redo point to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalCycle {
    /// Its redo point; of the first cycle where the WAL begins.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// The next redo point; of the last cycle where the WAL ends.
    #[schemars(with = "String")]
    pub to: Lsn,
    /// It begins at a redo point and ends at one.
    pub whole: bool,
    /// The event that began it.
    pub began_by: CycleBegin,
    /// When the checkpoint that begins it began (RFC 3339, to the second).
    pub began: Option<String>,
    /// The amount of its records.
    #[serde(flatten)]
    pub amount: WalAmount,
    /// Images by cause.
    pub causes: BTreeMap<ImageCause, WalImages>,
}

/// The event that began a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CycleBegin {
    /// The WAL that was read begins within it.
    Unknown,
    /// A checkpoint while the server ran.
    Online,
    /// The checkpoint of a shutdown, or of the end of a recovery.
    Shutdown,
}

/// A piece of the WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalPiece {
    /// Its start.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// When the last transaction before its end had ended, in microseconds since 1970; `None`
    /// before the first.
    pub until_us: Option<i64>,
    /// Bytes by kind: `first_touch`, `hint`, `other_images`, `heap`, `index`, `transaction`,
    /// `other`.
    pub bytes: BTreeMap<WalKind, u64>,
}

/// A kind of WAL that is counted over time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WalKind {
    /// Images of pages changed for the first time after a checkpoint.
    FirstTouch,
    /// Images for hints.
    Hint,
    /// Other images.
    OtherImages,
    /// Records of tables, without images.
    Heap,
    /// Records of indexes, without images.
    Index,
    /// Commits, aborts and what belongs to them.
    Transaction,
    /// All else.
    Other,
}

impl WalKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FirstTouch,
        Self::Hint,
        Self::OtherImages,
        Self::Heap,
        Self::Index,
        Self::Transaction,
        Self::Other,
    ];
}
