//! A backup that was restored into a server of pgtoll's own, recovered, and read.

use pgtoll_format::Lsn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{VerificationOutcome, VerificationRecord};

/// The version of the form of a [`DrillRecord`].
pub const DRILL_SCHEMA: &str = "pgtoll.drill/1";

/// The result of `pgtoll verify --drill`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillRecord {
    /// [`DRILL_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The restored backup.
    pub backup: DrilledBackup,
    /// The version of the server that recovered it.
    pub server: String,
    /// How far it was to be recovered: `consistency`, `latest`, an LSN or a time.
    pub until: String,
    /// The three verdicts together.
    pub outcome: VerificationOutcome,
    /// The disk that it needed.
    pub disk: DrillDisk,
    /// Are the pages sound, and can all be read?
    pub pages: DrillPages,
    /// Is the WAL there that recovery needs?
    pub wal: DrillWal,
    /// Does a server start on it?
    pub start: DrillStart,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The restored backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrilledBackup {
    /// The directory, or the tar.
    pub path: String,
    /// Its kind.
    pub kind: DrilledKind,
    /// How it lies there.
    #[serde(default)]
    pub form: DrilledForm,
    /// How its tars are compressed, in PostgreSQL's words; `None`: not, or it is a directory.
    #[serde(default)]
    pub packing: Option<String>,
    /// The backups of the chain that it is the last of, the full one first; empty: it is none.
    #[serde(default)]
    pub chain: Vec<DrilledMember>,
    /// Its major version.
    pub major: u32,
    /// Its cluster's identifier, in decimal; `None`: its control file cannot be read.
    pub system_identifier: Option<String>,
    /// Whether its pages have checksums; `None`: its control file cannot be read.
    pub checksums: Option<bool>,
    /// Bytes of the files that were copied, unpacked or combined, without WAL; of tars and repositories each file in
    /// whole blocks of the disk.
    pub bytes: u64,
    /// Its tablespaces, by OID, and the directory or tar of each. In the restored cluster all are in the work
    /// directory.
    pub tablespaces: Vec<DrilledTablespace>,
}

/// A kind of backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrilledKind {
    /// It has a `backup_label`: WAL from its begin to its end is needed.
    BaseBackup,
    /// The files of a server that was shut down in good order.
    ColdCopy,
    /// A base backup whose `backup_label` is missing.
    WithoutLabel,
}

/// How a backup lies there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrilledForm {
    /// A directory, which is copied.
    #[default]
    Directory,
    /// Tars, which are unpacked.
    Tars,
    /// Files in a repository of pgBackRest, which are unpacked.
    Repository,
    /// An incremental backup and those before it, which are combined.
    Chain,
}

/// A backup of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrilledMember {
    /// The directory, or the tar.
    pub path: String,
    /// How it lies there.
    pub form: DrilledForm,
    /// How its tars are compressed, in PostgreSQL's words; `None`: not, or it is a directory.
    pub packing: Option<String>,
    /// Its start; `None`: unknown.
    #[schemars(with = "Option<String>")]
    pub start: Option<Lsn>,
    /// The start of the backup that it builds on; `None`: it is a full backup.
    #[schemars(with = "Option<String>")]
    pub incremental_from: Option<Lsn>,
}

/// A tablespace of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrilledTablespace {
    /// Its OID.
    pub oid: u32,
    /// The directory that was copied, the tar that was unpacked, or in a repository where its files would be if each
    /// lay by itself; `None`: there is none.
    pub path: Option<String>,
}

/// The disk that a drill needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrillDisk {
    /// Bytes at most: the copy, its WAL, and what the server adds.
    pub needed_bytes: u64,
    /// Bytes that were free there.
    pub free_bytes: u64,
}

/// One of the three verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrillVerdict {
    /// All was looked at, and nothing is wrong.
    Passed,
    /// Something is wrong.
    Failed,
    /// Nothing is known to be wrong, and not all could be looked at.
    Unknown,
}

/// The verdict on pages, indexes and tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillPages {
    /// The result.
    pub verdict: DrillVerdict,
    /// The reason, in a sentence.
    pub reason: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The files of each backup of a chain, as they lie or were unpacked, in its order; those that could be
    /// verified.
    #[serde(default)]
    pub members: Vec<VerificationRecord>,
    /// The files of the backup, before they were copied, or as they were unpacked or combined; its manifest, with
    /// checksums. `None`: they could not be verified.
    pub backup: Option<VerificationRecord>,
    /// The files of the restored cluster, when its server had been stopped; `None`: it was not restored.
    pub restored: Option<VerificationRecord>,
    /// The databases, in the order of their names.
    pub databases: Vec<DrilledDatabase>,
    /// Unreadable and contradictory objects on the restored server; the first of very many.
    pub findings: Vec<DrillFinding>,
    /// How many findings there are beside these.
    pub more_findings: u64,
}

/// The part of a database that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrilledDatabase {
    /// Its name.
    pub name: String,
    /// Tables that were read to their ends, catalogs included.
    pub tables: u64,
    /// B-trees that were compared with their tables, row by row; `None`: there is no amcheck.
    pub indexes: Option<u64>,
    /// Tables whose rows' structure was checked; `None`: there is no amcheck that does it.
    pub structures: Option<u64>,
    /// Why it was not read; `None`: it was.
    pub skipped: Option<String>,
    /// How long reading its tables took, in seconds.
    pub tables_seconds: f64,
    /// How long checking its indexes and rows took, in seconds.
    pub checks_seconds: f64,
}

/// An unreadable or contradictory object on the restored server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrillFinding {
    /// The database; `None`: of all.
    pub database: Option<String>,
    /// The relation, with its schema; `None`: of the whole database.
    pub relation: Option<String>,
    /// The check that found it.
    pub check: DrillCheck,
    /// False: it says nothing of the backup, and keeps something of it unread.
    pub is_damage: bool,
    /// The server's words.
    pub words: String,
    /// Its SQLSTATE, where it has one.
    pub sqlstate: Option<String>,
}

/// A check on the restored server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrillCheck {
    /// A tar is read to its end, and its members are looked at.
    Tar,
    /// A file in a repository is unpacked, and compared with its checksum.
    Repository,
    /// A tablespace is looked for.
    Tablespace,
    /// A connection to the database, and its catalogs.
    Connect,
    /// A table, read from its first row to its last, long values too.
    Read,
    /// `bt_index_check`: a B-tree has an entry for each row of its table.
    Index,
    /// `verify_heapam`: the structure of a table's rows.
    Structure,
}

/// The verdict on the WAL that recovery needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillWal {
    /// The result.
    pub verdict: DrillVerdict,
    /// The reason, in a sentence.
    pub reason: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The places that were searched.
    pub sources: Vec<String>,
    /// The timeline on which the backup was made; `None`: unknown.
    pub timeline: Option<u32>,
    /// The start of recovery; `None`: unknown.
    #[schemars(with = "Option<String>")]
    pub start: Option<Lsn>,
    /// The end of the backup, which is consistent from there on; `None`: unknown.
    #[schemars(with = "Option<String>")]
    pub stop: Option<Lsn>,
    /// The end of the last record that was read without a gap; `None`: no record was read.
    #[schemars(with = "Option<String>")]
    pub read_to: Option<Lsn>,
    /// Segments that were copied for the server.
    pub segments: u64,
    /// Tablespaces that the WAL makes. The server made none of them: their files are in the work
    /// directory.
    pub made_tablespaces: Vec<LoggedTablespace>,
}

/// A tablespace that WAL makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedTablespace {
    /// The start of the record.
    #[schemars(with = "String")]
    pub at: Lsn,
    /// The tablespace's OID.
    pub oid: u32,
    /// The directory that it names, which the drill does not touch.
    pub path: String,
}

/// The verdict on the server's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrillStart {
    /// The result.
    pub verdict: DrillVerdict,
    /// The reason, in a sentence.
    pub reason: String,
    /// How long the server took until it served, in seconds.
    pub seconds: f64,
    /// How long copying, unpacking and combining took, in seconds.
    pub copy_seconds: f64,
    /// The end of redo, as the server logged it; `None`: redo did nothing or did not end.
    #[schemars(with = "Option<String>")]
    pub recovered_to: Option<Lsn>,
    /// The last words of a server that did not start.
    pub last_words: Option<String>,
}
