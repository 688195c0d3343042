//! A patrol's progress and findings: its output, and the file that it resumes from.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PageFinding, Severity, WalRelationName};

/// The version of the form of a patrol's state.
pub const PATROL_SCHEMA: &str = "pgtoll.patrol/1";

/// The state of a patrol: it goes round and round over a cluster's pages, a piece at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolRecord {
    /// [`PATROL_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that continues.
    pub command: Vec<String>,
    /// When it was written (RFC 3339).
    #[schemars(with = "String")]
    pub made: Timestamp,
    /// When the patrol began: the first run with this file.
    #[schemars(with = "String")]
    pub began: Timestamp,
    /// The source.
    pub source: PatrolSource,
    /// How fast it is read, and how soon each page should be read again.
    pub budget: PatrolBudget,
    /// The amount that was read since the patrol began.
    pub read: PatrolAmount,
    /// The round at hand.
    pub round: PatrolRound,
    /// The last round that came to its end; `None`: none did.
    pub last_round: Option<PatrolRound>,
    /// The page that waits longest to be read again was read then, or later. Before the first round
    /// came to its end: when the patrol began.
    #[schemars(with = "String")]
    pub oldest_read: Timestamp,
    /// Pages that a server refuses, when they were read last.
    pub failures: u64,
    /// Suspicions: findings that no server would report.
    pub suspicions: u64,
    /// Blocks that could not be read, or not be judged.
    pub unverified: u64,
    /// The faults, in the order of files and blocks. A finding stays until its blocks read sound, or
    /// are gone.
    pub findings: Vec<PatrolFinding>,
    /// Directories and files that could not be listed, and what the system said.
    pub unlisted: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The source of a patrol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolSource {
    /// The data directory.
    pub path: String,
    /// The major version.
    pub major: u32,
    /// The cluster's identifier: a patrol continues with this cluster only.
    pub system_identifier: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of a file.
    pub file_blocks: u32,
    /// Whether pages have checksums.
    pub checksums: bool,
    /// Whether a server ran on it.
    pub running: bool,
    /// Files of relations, when they were listed last.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How fast a patrol reads, and how soon each page should be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolBudget {
    /// Bytes a second at most (`--rate`).
    pub rate_bytes: u64,
    /// Each page should be read again within this time, in seconds (`--within`).
    pub within_seconds: u64,
    /// The duration of a round at that rate, in seconds.
    pub round_seconds: u64,
}

/// How much a patrol read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolAmount {
    /// Number of pages.
    pub pages: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A round over all files of relations, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolRound {
    /// Counted from 1.
    pub number: u64,
    /// When it began.
    #[schemars(with = "String")]
    pub began: Timestamp,
    /// When it came to its end; `None`: it has not.
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// The amount that it read.
    pub read: PatrolAmount,
    /// Blocks with something wrong that it found and the list of findings had no room for.
    pub left_out: u64,
    /// The next block; `None`: the first block of the first file, or the round has ended.
    pub next: Option<PatrolBlock>,
    /// When it came by, in its order.
    pub marks: Vec<PatrolMark>,
}

/// When a round came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolMark {
    /// All before this block was read by then, and nothing behind it.
    pub block: PatrolBlock,
    /// The time of it.
    #[schemars(with = "String")]
    pub time: Timestamp,
}

/// The place of a block. Blocks are read in this order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct PatrolBlock {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database; 0 for shared relations.
    pub database: u32,
    /// Number of the files (`relfilenode`).
    pub filenode: u32,
    /// The fork's number: 0 `main`, 1 `fsm`, 2 `vm`, 3 `init`.
    pub fork: u8,
    /// The number of the fork's file, from 0.
    pub segment: u32,
    /// The number of the block in the file, from 0.
    pub block: u64,
}

/// Something that is wrong with a block, or with several that follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatrolFinding {
    /// The place of the first of its blocks.
    pub at: PatrolBlock,
    /// When it was found.
    #[schemars(with = "String")]
    pub found: Timestamp,
    /// When it was seen last.
    #[schemars(with = "String")]
    pub seen: Timestamp,
    /// The fork's first file, below the data directory.
    pub path: String,
    /// `main`, `fsm`, `vm` or `init`.
    pub fork: String,
    /// The name of the relation; `None` where that is unknown.
    pub name: Option<WalRelationName>,
    /// The severity of the damage.
    pub severity: Severity,
    /// The faults. Of many blocks that follow each other it has no checksums.
    pub page: PageFinding,
}
