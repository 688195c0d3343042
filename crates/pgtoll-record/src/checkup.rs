//! A checkup: each safety of a server, what it buys and what it costs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DrillRecord, Interval, PatrolRecord, PredictionRecord, SynchronousCommit, VerificationOutcome,
    VerificationRecord, VerifiedSource, WatchCost, WatchSource,
};

/// The version of the form of a [`CheckupRecord`].
pub const CHECKUP_SCHEMA: &str = "pgtoll.checkup/1";

/// A running server's safeties, with what each buys and costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckupRecord {
    /// [`CHECKUP_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// The server, its settings and what its views contain.
    pub server: CheckedServer,
    /// The looks at the server.
    pub watch: CheckupWatch,
    /// Commits that would be lost; `None` where no look succeeded.
    pub loss: Option<LossWindow>,
    /// Recovery after a crash; `None` where the role may not read the redo point.
    pub recovery: Option<RecoveryForecast>,
    /// One row for each safety, the worst first.
    pub rows: Vec<SafetyRow>,
    /// Sources that the role may read or not, with the grant that each takes.
    pub sources: Vec<WatchSource>,
    /// Records of verifications and drills that were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<CheckedRecord>,
    /// The predicted costs of settings; `None` where they could not be watched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Box<PredictionRecord>>,
}

/// A server as its views describe it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedServer {
    /// Its name in sentences: the host or socket that was connected to.
    pub host: String,
    /// Its version, as `server_version` has it.
    pub version: String,
    /// The provider of a managed server, where its settings show one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The role of the sessions.
    pub role: String,
    /// Bytes of all databases; `None` where the role may not see them.
    pub data_bytes: Option<u64>,
    /// Settings that rows depend on, as `SHOW` has them.
    pub settings: BTreeMap<String, String>,
    /// Weaker or stronger values of `synchronous_commit` for databases and roles.
    pub commit_overrides: Vec<CommitOverride>,
    /// All databases.
    pub databases: Vec<CheckedDatabase>,
    /// Replication slots.
    pub slots: Vec<CheckedSlot>,
    /// Archiving of WAL; `None` where `archive_mode` is off.
    pub archive: Option<CheckedArchive>,
}

/// A value of `synchronous_commit` that is not the server's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommitOverride {
    /// The database; `None`: all.
    pub database: Option<String>,
    /// The role; `None`: all.
    pub role: Option<String>,
    /// The value.
    pub value: String,
}

/// A database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedDatabase {
    /// Its name.
    pub name: String,
    /// Transactions since the oldest that is not frozen.
    pub transaction_age: u64,
    /// Multixacts since the oldest that is not frozen.
    pub multixact_age: u64,
    /// Pages whose checksum was wrong; `None` without checksums.
    pub checksum_failures: Option<u64>,
    /// When the last of them was read (as the server writes it).
    pub last_checksum_failure: Option<String>,
}

/// A replication slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedSlot {
    /// Its name.
    pub name: String,
    /// A standby or subscriber uses it now.
    pub active: bool,
    /// Bytes of WAL that it keeps.
    pub retained_bytes: Option<u64>,
    /// `wal_status`: `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
}

/// Archiving of WAL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedArchive {
    /// Seconds since a segment was archived; `None`: none since counters were reset.
    pub archived_age_s: Option<f64>,
    /// Seconds since archiving failed; `None`: it has not.
    pub failed_age_s: Option<f64>,
    /// Failures since counters were reset.
    pub failures: u64,
}

impl CheckedArchive {
    /// The last attempt failed.
    pub fn is_failing(&self) -> bool {
        let archived = self.archived_age_s.unwrap_or(f64::INFINITY);
        self.failed_age_s.is_some_and(|failed| failed < archived)
    }
}

/// A record of a verification or a drill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedRecord {
    /// Its kind.
    pub kind: CheckedRecordKind,
    /// The file.
    pub path: String,
    /// Its time (RFC 3339); of a patrol: the time at which the page that waits longest was read.
    pub made: String,
    /// Seconds since then, at the checkup.
    #[serde(default)]
    pub age_s: f64,
    /// The outcome.
    pub outcome: VerificationOutcome,
    /// The cluster's identifier, in decimal; `None`: the record does not have it.
    pub system_identifier: Option<String>,
    /// Whether it is of the server's cluster; `None`: not known.
    #[serde(default)]
    pub is_own: Option<bool>,
}

/// The subject of a verification or a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckedRecordKind {
    /// The cluster's own pages.
    Pages,
    /// A backup's.
    Backup,
    /// A backup, which was restored and started.
    Drill,
}

impl CheckedRecord {
    fn new(kind: CheckedRecordKind, made: String, outcome: VerificationOutcome) -> Self {
        Self {
            kind,
            path: String::new(),
            made,
            age_s: 0.0,
            outcome,
            system_identifier: None,
            is_own: None,
        }
    }
}

impl From<&VerificationRecord> for CheckedRecord {
    fn from(record: &VerificationRecord) -> Self {
        let VerifiedSource { backup, system_identifier, .. } = record.source;
        let kind = if backup { CheckedRecordKind::Backup } else { CheckedRecordKind::Pages };
        let known = (system_identifier != 0).then(|| system_identifier.to_string());
        let new = Self::new(kind, record.made.clone(), record.outcome);
        Self { system_identifier: known, ..new }
    }
}

impl From<&DrillRecord> for CheckedRecord {
    fn from(record: &DrillRecord) -> Self {
        let new = Self::new(CheckedRecordKind::Drill, record.made.clone(), record.outcome);
        Self { system_identifier: record.backup.system_identifier.clone(), ..new }
    }
}

impl From<&PatrolRecord> for CheckedRecord {
    /// Before its first round is done, a patrol has not read all.
    fn from(record: &PatrolRecord) -> Self {
        let outcome = match (record.failures + record.suspicions, &record.last_round) {
            (0, None) => VerificationOutcome::Unverified,
            (0, Some(_)) if record.unverified > 0 => VerificationOutcome::Unverified,
            (0, Some(_)) => VerificationOutcome::NoDamageSeen,
            _ => VerificationOutcome::Findings,
        };
        let new = Self::new(CheckedRecordKind::Pages, record.oldest_read.to_string(), outcome);
        Self { system_identifier: Some(record.source.system_identifier.to_string()), ..new }
    }
}

/// The looks at a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckupWatch {
    /// When it began (RFC 3339).
    pub began: String,
    /// How long it lasted.
    pub seconds: f64,
    /// Looks that succeeded.
    pub looks: u64,
    /// Why it ended before; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Transactions a second that were given an ID: those that write.
    pub writes_per_second: f64,
    /// Bytes of WAL a second.
    pub wal_bytes_per_second: f64,
    /// Waits of client sessions; `None` where the role may not see them.
    pub waits: Option<CommitWaits>,
    /// The cost of the looks for the server, without those of the prediction.
    pub cost: WatchCost,
}

/// Shares of the time of active client sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommitWaits {
    /// Active client sessions, at the mean look.
    pub active: f64,
    /// The share that waited until WAL was written or flushed.
    pub wal_share: f64,
    /// The share that waited for a synchronous standby.
    pub standby_share: f64,
}

/// The middle, the 95 % quantile and the maximum over a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// 95 % of the looks had at most this.
    pub p95: f64,
    /// The maximum.
    pub most: f64,
}

/// Commits that would be lost if the server died at a moment of the watch: transactions with an ID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossWindow {
    /// Commits whose WAL the primary had not flushed: lost if its operating system crashed.
    pub crash: Spread,
    /// Commits that no standby had confirmed to have flushed: lost with the primary's host; `None` without
    /// a standby.
    pub host: Option<LossBounds>,
    /// Each standby that streamed.
    pub standbys: Vec<StandbyWindow>,
}

impl LossWindow {
    /// Milliseconds that a level of `synchronous_commit` adds to a commit that waits for the nearest standby: the
    /// median lag. `None` where the level waits for none, or no WAL was sent.
    pub fn added_ms(&self, level: SynchronousCommit) -> Option<f64> {
        let lag = |standby: &StandbyWindow| match level {
            SynchronousCommit::Off | SynchronousCommit::Local => None,
            SynchronousCommit::RemoteWrite => standby.write_lag_ms,
            SynchronousCommit::On => standby.flush_lag_ms,
            SynchronousCommit::RemoteApply => standby.replay_lag_ms,
        };
        self.standbys.iter().filter_map(|standby| Some(lag(standby)?.median)).min_by(f64::total_cmp)
    }
}

/// Commits that a standby would lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossBounds {
    /// At most: beyond what the standby had confirmed.
    pub confirmed: Spread,
    /// At least: beyond what had been sent to it. What is on its way may still arrive.
    pub sent: Spread,
    /// The range of 95 % of the moments, of both bounds.
    pub range: (f64, f64),
}

/// A standby.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandbyWindow {
    /// Its `application_name`.
    pub name: String,
    /// `sync_state`: `async`, `potential`, `sync` or `quorum`.
    pub sync_state: String,
    /// Looks at which it streamed.
    pub looks: u64,
    /// Commits that it would lack.
    pub loss: LossBounds,
    /// Milliseconds until it had written WAL: what `remote_write` would add to a commit; `None` where no
    /// WAL was sent.
    pub write_lag_ms: Option<Spread>,
    /// Milliseconds until it had flushed WAL: what `on` would add.
    pub flush_lag_ms: Option<Spread>,
    /// Milliseconds until it had replayed WAL: what `remote_apply` would add.
    pub replay_lag_ms: Option<Spread>,
    /// Bytes of WAL a second that it replayed while more was waiting; `None` where it kept up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_bytes_per_second: Option<f64>,
}

/// Recovery after a crash at a moment of the watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryForecast {
    /// Bytes of WAL since the redo point.
    pub wal_bytes: Spread,
    /// Bytes of WAL that are replayed a second, at least and at most.
    pub bytes_per_second: (f64, f64),
    /// The source of that rate.
    pub basis: RecoveryBasis,
    /// Seconds until connections are accepted, at the median moment.
    pub median_s: Interval,
    /// At the worst moment.
    pub most_s: Interval,
}

/// The source of the rate at which WAL is replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryBasis {
    /// The server's last recovery in its log.
    Log(SeenRecovery),
    /// A standby replayed at this many bytes a second while it had WAL to replay.
    Standby(f64),
    /// An assumption: neither was seen.
    #[default]
    Assumed,
}

/// A recovery from a crash, as the server's log has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenRecovery {
    /// When connections were accepted, on the server's clock.
    pub ended: String,
    /// Bytes of WAL that were replayed.
    pub wal_bytes: u64,
    /// Seconds from the first message of the startup process until connections were accepted.
    pub seconds: f64,
    /// The part in which WAL was replayed; `None` before 14, which do not log it.
    pub redo_seconds: Option<f64>,
}

/// A safety of a server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// `fsync`.
    Fsync,
    /// `full_page_writes`.
    FullPageWrites,
    /// `data_checksums`.
    DataChecksums,
    /// Checksum failures that the server has counted.
    ChecksumFailures,
    /// `synchronous_commit`.
    SynchronousCommit,
    /// Standbys, and `synchronous_standby_names`.
    Standbys,
    /// `wal_log_hints`.
    HintBits,
    /// Replication slots.
    Slots,
    /// Archiving of WAL.
    Archive,
    /// Checkpoints: time to recover.
    Checkpoints,
    /// Transaction IDs and multixacts that are left.
    Wraparound,
    /// `autovacuum`.
    Autovacuum,
}

impl Safety {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Fsync,
        Self::FullPageWrites,
        Self::DataChecksums,
        Self::ChecksumFailures,
        Self::SynchronousCommit,
        Self::Standbys,
        Self::HintBits,
        Self::Slots,
        Self::Archive,
        Self::Checkpoints,
        Self::Wraparound,
        Self::Autovacuum,
    ];

    /// Its name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::FullPageWrites => "full_page_writes",
            Self::DataChecksums => "data_checksums",
            Self::ChecksumFailures => "checksum failures",
            Self::SynchronousCommit => "synchronous_commit",
            Self::Standbys => "standbys",
            Self::HintBits => "wal_log_hints",
            Self::Slots => "replication slots",
            Self::Archive => "archive",
            Self::Checkpoints => "crash recovery",
            Self::Wraparound => "wraparound",
            Self::Autovacuum => "autovacuum",
        }
    }
}

/// The state of a safety, the worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SafetyState {
    /// It is off, or fails: a finding.
    Missing,
    /// It protects in part, or is a choice with a price.
    Partial,
    /// The role may not see it.
    Unknown,
    /// It is on and works, as far as views can show.
    Held,
}

impl SafetyState {
    /// Its word in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Held => "held",
        }
    }
}

/// A safety: its state, what it buys here and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SafetyRow {
    /// The safety.
    pub safety: Safety,
    /// Its state.
    pub state: SafetyState,
    /// The settings and views that show it.
    pub now: String,
    /// The protection, as a figure of this server.
    pub buys: String,
    /// Its price, as a range where it is not paid yet.
    pub costs: String,
    /// The step to take; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The source of the figures.
    pub basis: String,
}

impl CheckupRecord {
    /// The row of a safety.
    pub fn row(&self, safety: Safety) -> Option<&SafetyRow> {
        self.rows.iter().find(|row| row.safety == safety)
    }
}
