//! Backups of many clusters: what is to be verified, and what came out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`FleetPlan`].
pub const FLEET_PLAN_SCHEMA: &str = "pgtoll.fleet-plan/1";
/// The version of the form of [`FleetRecord`].
pub const FLEET_SCHEMA: &str = "pgtoll.fleet/1";

/// The plan of `pgtoll fleet plan`: the backups that were found, and how they are shared out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetPlan {
    /// [`FLEET_PLAN_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The prefixes that were listed.
    pub urls: Vec<String>,
    /// Objects below them.
    pub objects: u64,
    /// Shards that an engine runs, unless it is told otherwise.
    pub shards: u32,
    /// The units to verify, by URL.
    pub units: Vec<FleetUnit>,
    /// Backups that are not read, by URL, each with the reason.
    pub refused: Vec<FleetRefusal>,
    /// The estimated cost of reading all units.
    pub estimate: FleetEstimate,
    /// The measured CPU times that the estimate rests on; `None`: the plan is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_times: Option<FleetCpuTimes>,
}

/// A backup, or a part of one, that is verified by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetUnit {
    /// SHA-256 of the objects' URLs, marks and lengths, in hexadecimal: the name of its result.
    pub id: String,
    /// The backup's URL.
    pub url: String,
    /// The cluster, or server, as the layout names it.
    pub cluster: String,
    /// The backup, as the layout names it.
    pub backup: String,
    /// How it is stored.
    pub layout: FleetLayout,
    /// Bytes of its objects, as they are stored.
    pub bytes: u64,
    /// CPU seconds that reading it takes, roughly.
    pub cpu_seconds: f64,
    /// The same by the lowest and by the highest of the measured CPU times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_range: Option<FleetRange>,
    /// The part of the backup; `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<FleetPart>,
    /// The objects that are read.
    pub objects: Vec<FleetObject>,
    /// Objects of other parts that say how pages are judged, where the backup began and what relations
    /// are called. They are read where something is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<FleetObject>,
    /// Its `backup_manifest`, where that is beside tars; pgBackRest's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<FleetObject>,
}

/// A part of a backup that is too large for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetPart {
    /// Counted from 1.
    pub number: u32,
    /// Parts of the backup.
    pub count: u32,
}

impl FleetPlan {
    /// The units of each backup.
    pub fn backups(&self) -> Vec<&[FleetUnit]> {
        self.units.chunk_by(|one, other| one.url == other.url).collect()
    }
}

impl FleetUnit {
    /// Its name: the backup's URL, and which part of it.
    pub fn name(&self) -> String {
        match self.part {
            Some(FleetPart { number, count }) => format!("{}, part {number} of {count}", self.url),
            None => self.url.clone(),
        }
    }
}

/// How a backup is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetLayout {
    /// Tars of barman-cloud, or of CloudNativePG.
    BarmanCloud,
    /// Tars of a full backup of WAL-G.
    #[serde(rename = "wal-g")]
    WalG,
    /// Tars of `pg_basebackup`.
    Tars,
    /// A backup of pgBackRest: files one by one, or in bundles.
    #[serde(rename = "pgbackrest")]
    PgBackRest,
    /// A data directory's files, as `pg_basebackup` writes them or as they were copied.
    Files,
}

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetObject {
    /// Its place.
    pub url: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The store's mark of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// When it was written, in seconds since 1970.
    pub modified: u64,
}

/// A backup that is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetRefusal {
    /// The backup's URL.
    pub url: String,
    /// The reason, in a sentence.
    pub reason: String,
}

/// The estimated cost of reading all units. Prices are Amazon's list prices, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetEstimate {
    /// Bytes that are read from the store.
    pub bytes: u64,
    /// Requests for them.
    pub gets: u64,
    /// Hours of one core.
    pub core_hours: f64,
    /// The same by the lowest and by the highest of the measured CPU times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_hours_range: Option<FleetRange>,
    /// Seconds that the longest shard takes on one core.
    pub longest_shard_seconds: f64,
    /// Price of the cores, at 0.04 an hour.
    pub core_dollars: f64,
    /// Price of the requests, at 0.40 a million.
    pub get_dollars: f64,
    /// Price of the transfer to another region, at 0.02 per GB.
    pub other_region_dollars: f64,
    /// Price of the transfer to the internet, at 0.09 per GB.
    pub internet_dollars: f64,
}

/// Between what values something is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetRange {
    /// The lowest value.
    pub lowest: f64,
    /// The highest value.
    pub highest: f64,
}

/// CPU times of reading stored backups over TLS, as records have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetCpuTimes {
    /// For a gigabyte that is not packed.
    pub plain: FleetCpuTime,
    /// For a gigabyte of gzip, as it is stored.
    pub gzip: FleetCpuTime,
    /// For a gigabyte of LZ4, as it is stored.
    pub lz4: FleetCpuTime,
    /// For a gigabyte of Zstandard, as it is stored.
    pub zstd: FleetCpuTime,
    /// For an object beyond its bytes.
    pub object: FleetCpuTime,
    /// The records.
    pub sources: Vec<FleetCpuSource>,
}

/// A CPU time that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetCpuTime {
    /// The median, in seconds.
    pub seconds: f64,
    /// The lowest and the highest one.
    pub range: FleetRange,
    /// How often it was measured.
    pub readings: u64,
}

/// The source of CPU times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetCpuSource {
    /// The record: a file.
    pub record: String,
    /// The command that makes it again.
    pub command: String,
    /// The model of the processor.
    pub cpu: String,
    /// Logical CPUs.
    pub cores: u64,
}

/// The merged results of all units, by `pgtoll fleet merge`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetRecord {
    /// [`FLEET_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The place of the plan.
    pub plan: String,
    /// All backups of the plan, the worst first.
    pub backups: Vec<FleetBackup>,
    /// Backups that are sound.
    pub sound: u64,
    /// Backups with findings.
    pub findings: u64,
    /// Backups of which not all could be read, or that have no result yet.
    pub unverified: u64,
    /// Backups that are not read.
    pub refused: u64,
    /// Bytes of pages that were verified.
    pub bytes: u64,
}

/// The result for a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetBackup {
    /// The backup's URL.
    pub url: String,
    /// The cluster, as the layout names it; empty where it was refused.
    pub cluster: String,
    /// The backup, as the layout names it; empty where it was refused.
    pub backup: String,
    /// The result.
    pub outcome: FleetOutcome,
    /// When it was verified (RFC 3339); `None`: it was not.
    pub verified: Option<String>,
    /// Bytes of pages that were verified.
    pub bytes: u64,
    /// Pages that a server refuses.
    pub failures: u64,
    /// Suspicions: findings that no server would report.
    pub suspicions: u64,
    /// Blocks that could not be verified.
    pub unverified: u64,
    /// Files that are missing or wrong.
    pub wrong_files: u64,
    /// The findings, or why it is not verified, a line each: ten at most, and the number of others.
    pub reasons: Vec<String>,
}

/// The result for a backup, the worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FleetOutcome {
    /// Something is wrong with it.
    Findings,
    /// Not all of it could be read.
    Unverified,
    /// It has no result yet.
    Missing,
    /// It is not read.
    Refused,
    /// It is sound.
    Sound,
}
