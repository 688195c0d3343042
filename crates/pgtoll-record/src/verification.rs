//! Results of a verification of pages.

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::WalRelationName;

/// The version of the form of a verification.
pub const VERIFICATION_SCHEMA: &str = "pgtoll.verification/1";

/// A verification and its findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationRecord {
    /// [`VERIFICATION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The source.
    pub source: VerifiedSource,
    /// The result.
    pub outcome: VerificationOutcome,
    /// The checks that were made; empty in older records.
    #[serde(default)]
    pub covered: Vec<String>,
    /// The checks that were left out, each with the reason.
    #[serde(default)]
    pub left_out: Vec<String>,
    /// Its user ended it before all was read.
    pub interrupted: bool,
    /// How much was read.
    pub read: VerifiedAmount,
    /// Pages that a server refuses.
    pub failures: u64,
    /// Suspicions: findings that no server would report.
    pub suspicions: u64,
    /// Blocks that could not be read.
    pub unverified: u64,
    /// Pages of a base backup that are wrong, and that its own WAL replaces when it is recovered:
    /// they are no findings.
    #[serde(default)]
    pub healed_by_replay: u64,
    /// Files and directories that are missing, or are not as they should be: fewer than there are
    /// where there are very many.
    #[serde(default)]
    pub files: Vec<FileFinding>,
    /// How many there are.
    #[serde(default)]
    pub wrong_files: u64,
    /// Why nothing can be said of the whole cluster, whatever was read of it.
    #[serde(default)]
    pub incomplete: Vec<String>,
    /// The comparison with the backup's manifest; `None`: not compared.
    #[serde(default)]
    pub manifest: Option<ManifestComparison>,
    /// The server that ran meanwhile; `None`: no server ran.
    #[serde(default)]
    pub running: Option<VerifiedRunning>,
    /// The forks that something is wrong with.
    pub relations: Vec<VerifiedRelation>,
    /// The source of relations' names; `None`: they have none.
    pub names: Option<String>,
    /// Files that PostgreSQL did not put there.
    pub foreign: Vec<String>,
    /// Files and directories that could not be read, with the system's error.
    pub unlisted: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Changes by a running server to the pages that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedRunning {
    /// The connection, without secrets; `None`: there was none.
    pub server: Option<String>,
    /// Blocks that looked damaged at first.
    pub suspects: u64,
    /// Those of them that were sound when they were read again.
    pub healed: u64,
    /// Those whose image was in the WAL, so that a checkpoint was waited for.
    pub in_flight: u64,
    /// Those, and files, that went away meanwhile.
    pub dropped: u64,
    /// How often the server was asked to read a block.
    pub asked: u64,
}

/// The source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedSource {
    /// The data directory, or the backup.
    pub path: String,
    /// It is a base backup.
    pub backup: bool,
    /// The form unless it is a directory of files: `tar`, or `tar, gzip` and the like.
    #[serde(default)]
    pub form: Option<String>,
    /// The major version; 0 where nothing tells it.
    pub major: u32,
    /// The cluster's identifier; 0 where nothing tells it.
    pub system_identifier: u64,
    /// How the cluster was left, in the words of `pg_controldata`; `unknown` where nothing tells.
    pub state: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of a file.
    pub file_blocks: u32,
    /// Whether pages have checksums.
    pub checksums: bool,
    /// Pages may not have been changed last by WAL behind this; `None`: not compared.
    #[schemars(with = "Option<String>")]
    pub wal_end: Option<Lsn>,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationOutcome {
    /// Everything was read and compared with all evidence that there is, and nothing is wrong.
    Sound,
    /// Nothing wrong was seen in what was looked at; some evidence was left out.
    NoDamageSeen,
    /// Something is wrong.
    Findings,
    /// Not everything could be read.
    Unverified,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedAmount {
    /// Files of relations.
    pub files: u64,
    /// Those of them that are an incremental backup's, and hold some blocks each.
    #[serde(default)]
    pub incremental_files: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Those of them of which every byte is zero: never used, unless evidence says otherwise.
    pub new_blocks: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Files of temporary relations, which are not read.
    pub temporary_files: u64,
}

/// A file or directory that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileFinding {
    /// The place in the data directory.
    pub path: String,
    /// The faults.
    pub kind: FileFindingKind,
    /// In words.
    pub words: String,
}

/// The faults of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileFindingKind {
    /// The manifest lists it, and it is not there.
    Missing,
    /// It has another length than the manifest lists.
    Length,
    /// The manifest does not list it.
    Extra,
    /// Its checksum is not the one that the manifest lists.
    Checksum,
    /// The manifest itself is damaged.
    Manifest,
    /// The manifest is another cluster's.
    OtherCluster,
    /// The directory of a database is missing.
    NoDatabase,
    /// `PG_VERSION` is missing, or names no major version.
    NoVersion,
    /// The tar of a tablespace is missing.
    NoTablespace,
}

/// A comparison with a backup's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestComparison {
    /// Files that it lists: their names and lengths were compared.
    pub files: u64,
    /// Bytes whose checksums were compared; `None`: checksums were not asked for.
    pub checksum_bytes: Option<u64>,
}

/// A fork that something is wrong with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedRelation {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database; 0 for shared relations.
    pub database: u32,
    /// Number of the files (`relfilenode`).
    pub filenode: u32,
    /// `main`, `fsm`, `vm` or `init`.
    pub fork: String,
    /// Its first file, below the data directory; `None` in records before this was kept.
    #[serde(default)]
    pub path: Option<String>,
    /// Its name; `None` where that is unknown.
    pub name: Option<WalRelationName>,
    /// The severity of the damage.
    pub severity: Severity,
    /// The advice in one text: the steps of `advice`.
    pub remedy: String,
    /// The advice, in order.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// Pages that a server refuses.
    pub failures: u64,
    /// Suspicions: findings that no server would report.
    pub suspicions: u64,
    /// Blocks that could not be read.
    pub unverified: u64,
    /// Block by block; fewer than there are where there are very many.
    pub findings: Vec<PageFinding>,
}

/// A step of what to do about damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// Its purpose.
    pub what: String,
    /// The command that does it; `None` where that depends on more than is known.
    #[serde(default)]
    pub command: Option<String>,
    /// The program that takes the command; `None`: no command.
    #[serde(default)]
    pub kind: Option<CommandKind>,
    /// The database in which it is SQL; `None`: any, or unknown.
    #[serde(default)]
    pub database: Option<String>,
}

/// The program that takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// A shell, as the files' owner.
    Shell,
    /// The server, as a superuser: one or several statements.
    Sql,
}

/// The severity of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Rows are lost, unless there is another copy.
    Data,
    /// A catalog is hit: the database may not be usable.
    Catalog,
    /// It can be made again from its table.
    Index,
    /// A free space map or visibility map is damaged: no row is lost.
    Map,
    /// An unlogged relation, which a crash empties anyway.
    Unlogged,
    /// No relation has this file.
    Leftover,
    /// Its owner is unknown.
    Unknown,
}

/// The faults of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageFinding {
    /// Its number in the fork.
    pub block: u32,
    /// How many blocks, this one and those behind it.
    pub blocks: u32,
    /// How bad it is.
    pub class: FindingClass,
    /// The faults.
    pub kind: FindingKind,
    /// In words.
    pub words: String,
    /// The checksum that the page has, where it is wrong.
    pub stored_checksum: Option<u16>,
    /// The one that it should have.
    pub computed_checksum: Option<u16>,
    /// The LSN on the page: the end of the record that changed it last.
    #[schemars(with = "Option<String>")]
    pub lsn: Option<Lsn>,
    /// The end of the record that changed the page last, by WAL; of a missing end of a file
    /// that of the last block there.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub wal: Option<Lsn>,
    /// The index that leads to rows on the page, in words.
    #[serde(default)]
    pub index: Option<String>,
}

/// How bad a finding is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FindingClass {
    /// A server refuses the page.
    Failure,
    /// No server would notice, and it cannot be right.
    Suspicion,
    /// It could not be told.
    Unverified,
}

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The checksum is not that of the page.
    Checksum,
    /// The header is impossible.
    Header,
    /// The header says that the page was never used, and it is not zero.
    NotZero,
    /// The checksum is not that of the page, which the server may have written while it was copied
    /// into the backup; the WAL that would tell is not at hand.
    MayBeTorn,
    /// The file of an incremental backup is not as any is.
    DamagedIncremental,
    /// The page says that WAL changed it that was never written.
    AheadOfWal,
    /// The page is zero, though the visibility map knows rows on it.
    ZeroButVisible,
    /// The visibility map says that the rows of these blocks are all visible, or all frozen, and the
    /// pages contradict it; or it has bits of blocks that the table has not.
    MapStale,
    /// The pages say that all of their rows are visible to everybody, and some are not.
    PageVisible,
    /// The first page of an index or a sequence is zero.
    ZeroFirst,
    /// The file ends within a block.
    EndsInBlock,
    /// A file that another one follows is not full.
    ShortFile,
    /// A file has more blocks than files have.
    LongFile,
    /// Files are missing that others follow.
    MissingFile,
    /// The visibility map knows rows behind the file's end.
    VisibleBeyondEnd,
    /// The relation has no file.
    NoFile,
    /// The index or sequence has an empty file.
    EmptyFile,
    /// The system could not read it.
    Unreadable,
    /// The file became shorter while it was read.
    Changed,
    /// WAL changed the page later than the page says.
    LostWrite,
    /// The page is zero, though WAL changed it.
    ZeroButLogged,
    /// The file ends, though WAL changed blocks behind.
    MissingButLogged,
    /// The page of an index is zero, though another one leads to it.
    ZeroButLinked,
    /// The file of an index ends, though a page leads to blocks behind.
    MissingButLinked,
    /// The page of a table is zero, though an index leads to rows on it.
    ZeroButIndexed,
    /// The file of a table ends, though an index leads to rows behind.
    MissingButIndexed,
    /// A running server may have the page otherwise than the disk.
    Unsettled,
}
