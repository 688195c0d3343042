//! Damaged pages, what they can be replaced by, and what was replaced.

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Advice, WalRelationName};

/// The version of the form of a [`RepairRecord`].
pub const REPAIR_SCHEMA: &str = "pgtoll.repair/1";

/// The findings of `pgtoll repair`, and the pages that it wrote. A ledger is a file of these, a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairRecord {
    /// [`REPAIR_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The data directory.
    pub data: String,
    /// Its cluster's identifier, in decimal.
    pub system_identifier: String,
    /// Its major version.
    pub major: u32,
    /// How far the repair came.
    pub outcome: RepairOutcome,
    /// A server runs on the data directory.
    #[serde(default)]
    pub running: bool,
    /// The WAL that pages were compared with; `None`: it was not read.
    pub wal: Option<RepairWal>,
    /// The sources of pages, in the order in which they were tried.
    pub sources: Vec<RepairSource>,
    /// The blocks, in the order of relations, forks and blocks.
    pub blocks: Vec<RepairBlock>,
    /// Those of them that a server refuses or that hold something else than they should, after this.
    pub remaining: u64,
    /// Damage was found that is no block, such as missing files.
    #[serde(default)]
    pub has_other_damage: bool,
    /// Not all pages could be verified.
    #[serde(default)]
    pub is_partial: bool,
    /// The file that undoes the repair; `None`: nothing was to be written.
    pub undo_file: Option<String>,
    /// The file that keeps attempts; `None`: nothing was to be written.
    pub ledger: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// How far a repair came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairOutcome {
    /// Nothing was written: this is what would be.
    Planned,
    /// The undo file is on disk, and pages are about to be written.
    Begun,
    /// Pages were written, or there was none to write.
    Finished,
    /// It ended with an error: pages may have been written.
    Failed,
    /// The pages of an undo file are as they were before the repair.
    Undone,
}

/// The WAL that leads to the cluster's last checkpoint, or to the end of a running server's WAL, as far
/// back as it has no gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairWal {
    /// The start of its first record.
    #[schemars(with = "String")]
    pub from: Lsn,
    /// The start of its last record: the checkpoint of the shutdown; of a running server, where its
    /// next record would have begun when its pages were found damaged.
    #[schemars(with = "String")]
    pub to: Lsn,
    /// The timeline of its end.
    pub timeline: u32,
}

/// A source of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairSource {
    /// Its kind.
    pub kind: RepairSourceKind,
    /// The directory; of a running standby the connection, without secrets; of pages that were rebuilt
    /// the server that did it.
    pub path: String,
    /// Its pages contain all changes by WAL before this; of WAL alone, where the records begin that were
    /// replayed; `None` where it was refused.
    #[schemars(with = "Option<String>")]
    pub contains: Option<Lsn>,
    /// Why nothing is taken from it.
    pub refused: Option<String>,
}

/// A kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairSourceKind {
    /// A base backup that no server was started on.
    Backup,
    /// The files of a standby, or a copy of the cluster, that was stopped in good order.
    Stopped,
    /// A running standby, asked for pages as it has them in memory.
    Standby,
    /// WAL alone, replayed by a server in a directory that was made for it.
    Wal,
}

/// The known facts about a page that would replace a damaged one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceClass {
    /// It is not the right one, or nothing shows that it is. Never written.
    Refused,
    /// There is none, but the content can be made again from other relations.
    Derivable,
    /// Nothing contradicts it, but WAL has a gap in which the page may have changed.
    Plausible,
    /// It is what the last record that names the block left, but for hints.
    Proved,
    /// That, and the damaged page's own LSN and checksum fit it.
    Exact,
    /// A server accepts the page that is there: nothing is to be done.
    Sound,
}

/// A block, and what it can be replaced by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairBlock {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database; 0 for shared relations.
    pub database: u32,
    /// Number of the files (`relfilenode`).
    pub filenode: u32,
    /// `main`, `fsm`, `vm` or `init`.
    pub fork: String,
    /// The block's number in the fork.
    pub block: u32,
    /// Its file, below the data directory; `None`: there is none.
    pub path: Option<String>,
    /// The name of the relation; `None` where that is unknown.
    pub name: Option<WalRelationName>,
    /// The faults of the page.
    pub damage: String,
    /// The LSN that the page has now, right or wrong; `None`: it cannot be read.
    #[schemars(with = "Option<String>")]
    pub lsn: Option<Lsn>,
    /// The last record of the WAL that names the block; `None`: none does, or the WAL was not read.
    pub last_record: Option<RepairWalRecord>,
    /// The result.
    pub class: EvidenceClass,
    /// The reason, in a sentence.
    pub reason: String,
    /// The candidates, in the order of the sources.
    pub candidates: Vec<RepairCandidate>,
    /// The one that is taken: its place in `candidates`.
    pub chosen: Option<usize>,
    /// Bytes of the page that would change, or changed.
    pub changed_bytes: u32,
    /// In which stretches of the page they are, each from its first byte to behind its last; of very many
    /// the first ones.
    pub changed: Vec<(u32, u32)>,
    /// Whether it was written.
    pub installed: bool,
    /// Other advice, in order.
    pub advice: Vec<Advice>,
}

/// A page that a source has for a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairCandidate {
    /// The place of the source in the record's `sources`.
    pub source: usize,
    /// The known facts about it.
    pub class: EvidenceClass,
    /// The reason, in a sentence.
    pub reason: String,
    /// Its LSN; `None`: there is no such page.
    #[schemars(with = "Option<String>")]
    pub lsn: Option<Lsn>,
}

/// A record of WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepairWalRecord {
    /// Its start.
    #[schemars(with = "String")]
    pub at: Lsn,
    /// Its end.
    #[schemars(with = "String")]
    pub end: Lsn,
    /// Its resource manager and type, as `pg_waldump` calls them.
    pub kind: String,
}
