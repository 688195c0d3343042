//! The record of the trial of detection: which damage which detector reports.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`DetectionRecord`].
pub const DETECTION_SCHEMA: &str = "pgtoll.detection/1";

/// Every damage with every detector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DetectionRecord {
    /// [`DETECTION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// The servers' versions.
    pub servers: Vec<String>,
    /// A row for each damage on each server.
    pub rows: Vec<DetectionRow>,
}

/// One damage on one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DetectionRow {
    /// The server's major version.
    pub major: u32,
    /// The damaged relation: `table` or `index`.
    pub relation: String,
    /// The kind of damage, as `pgtoll corrupt --kind` names it.
    pub damage: String,
    /// The report of each detector.
    pub found: BTreeMap<Detector, DetectionOutcome>,
}

/// A program or a query that may report damage.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Detector {
    /// `pgtoll verify`, the server stopped.
    Offline,
    /// `pgtoll verify`, the server running.
    Online,
    /// `pg_checksums --check`.
    PgChecksums,
    /// `pg_basebackup`, which verifies checksums.
    PgBasebackup,
    /// `pg_verifybackup` on the backup that `pg_basebackup` made.
    PgVerifybackup,
    /// A full backup by pgBackRest, which verifies checksums.
    PgBackRest,
    /// `pg_amcheck --heapallindexed`.
    PgAmcheck,
    /// `pg_check_visible` and `pg_check_frozen` of the extension `pg_visibility`.
    PgVisibility,
    /// Queries: by a sequential scan, by the index, and by the index and the visibility map alone.
    Server,
    /// The same with `ignore_checksum_failure`.
    Ignoring,
    /// The same in a cluster that has no checksums.
    WithoutChecksums,
}

/// The report of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetectionOutcome {
    /// The damage: an error, or an exit status that means damage.
    Found,
    /// That it could not verify the page.
    Unverified,
    /// No error, and a wrong result of the query.
    WrongResult,
    /// No server or tool notices.
    Unnoticed,
    /// It was not run: there was nothing to look at.
    NotRun,
}

impl Detector {
    /// In the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Offline,
        Self::Online,
        Self::PgChecksums,
        Self::PgBasebackup,
        Self::PgVerifybackup,
        Self::PgBackRest,
        Self::PgAmcheck,
        Self::PgVisibility,
        Self::Server,
        Self::Ignoring,
        Self::WithoutChecksums,
    ];

    fn is_pgtoll(self) -> bool {
        matches!(self, Self::Offline | Self::Online)
    }
}

impl DetectionRow {
    /// Whether another detector finds the damage, and pgtoll does not while the server is stopped.
    pub fn is_missed(&self) -> bool {
        let is_found =
            |detector: &Detector| self.found.get(detector) == Some(&DetectionOutcome::Found);
        let mut others = Detector::ALL.iter().filter(|detector| !detector.is_pgtoll());
        others.any(is_found) && !is_found(&Detector::Offline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: &[(Detector, DetectionOutcome)], is_missed: bool) {
        let row = DetectionRow {
            major: 15,
            relation: "table".to_owned(),
            damage: "bit".to_owned(),
            found: found.iter().copied().collect(),
        };
        assert_eq!(row.is_missed(), is_missed, "{row:?}");
    }

    #[test]
    fn damage_is_missed_if_only_others_find_it() {
        use DetectionOutcome::{Found, Unnoticed, WrongResult};
        check(&[(Detector::Offline, Unnoticed), (Detector::PgAmcheck, Found)], true);
        check(&[(Detector::Offline, Found), (Detector::PgAmcheck, Found)], false);
        check(&[(Detector::Offline, Unnoticed), (Detector::Server, WrongResult)], false);
        // A scan of the running server leaves out what only a stopped one can prove.
        check(&[(Detector::Online, Found), (Detector::Offline, Unnoticed)], false);
        check(&[(Detector::Online, Found), (Detector::PgChecksums, Found)], true);
    }
}
