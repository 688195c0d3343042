//! What was found, as it is kept.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

const SCHEMA: &str = "pgtoll.detection/1";

/// Who found what.
#[derive(Debug, Serialize, Deserialize)]
pub struct Detection {
    /// The record's form.
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: String,
    /// The servers' versions.
    pub servers: Vec<String>,
    /// A row for each damage on each server.
    pub rows: Vec<Row>,
}

/// One damage on one server.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// The server's major version.
    pub major: u32,
    /// The damaged relation.
    pub relation: String,
    /// The kind of damage, as `pgtoll corrupt --kind` names it.
    pub damage: String,
    /// What each detector reported.
    pub found: BTreeMap<Detector, Outcome>,
}

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// `pgtoll verify --lost-writes --indexes`, the server stopped.
    Offline,
    /// `pgtoll verify`, the server running.
    Online,
    /// `pg_checksums --check`.
    PgChecksums,
    /// `pg_basebackup`, which verifies checksums.
    PgBasebackup,
    /// `pg_verifybackup` of the backup that it made.
    PgVerifybackup,
    /// `pg_amcheck --heapallindexed`.
    PgAmcheck,
    /// Queries, by a sequential scan and by the index.
    Server,
    /// The same with `ignore_checksum_failure`.
    Ignoring,
    /// The same in a cluster that has no checksums.
    WithoutChecksums,
}

/// What whoever looks says of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An error, or a status that says so.
    Found,
    /// A result of its own: it could not be told.
    Unverified,
    /// Not an error, and the query's result is wrong.
    WrongResult,
    /// Nothing.
    Unnoticed,
    /// There was nothing to look at.
    NotRun,
}

impl Detector {
    /// In the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Offline,
        Self::Online,
        Self::PgChecksums,
        Self::PgBasebackup,
        Self::PgVerifybackup,
        Self::PgAmcheck,
        Self::Server,
        Self::Ignoring,
        Self::WithoutChecksums,
    ];

    fn is_pgtoll(self) -> bool {
        matches!(self, Self::Offline | Self::Online)
    }
}

impl Detection {
    /// A record without rows, made by this command.
    pub fn new(command: String) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            servers: Vec::new(),
            rows: Vec::new(),
        }
    }
}

impl Row {
    /// Somebody else finds it, and pgtoll does not where the server is stopped.
    pub fn is_missed(&self) -> bool {
        let is_found = |of: Option<&Outcome>| of == Some(&Outcome::Found);
        let others = self.found.iter().any(|(who, of)| !who.is_pgtoll() && is_found(Some(of)));
        others && !is_found(self.found.get(&Detector::Offline))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}:", self.major, self.damage, self.relation)?;
        self.found.iter().try_for_each(|(who, of)| write!(f, " {who:?} {of:?},"))
    }
}
