//! The record of the prediction trial: what checksums cost a workload, predicted without them and
//! really paid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`PredictionTrialLine`].
pub const PREDICTION_TRIAL_SCHEMA: &str = "pgtoll.prediction-trial/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum PredictionTrialLine {
    /// The first line; one more whenever the trial is resumed.
    Header(Box<PredictionTrialHeader>),
    /// A run of a workload.
    Run(Box<PredictionTrialRun>),
    /// The answer of `pgtoll predict` about a server under a workload.
    Answer(Box<PredictionTrialAnswer>),
}

/// How and where the trial was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialHeader {
    /// [`PREDICTION_TRIAL_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// Checkpoint cycles of each run.
    pub cycles: u32,
    /// Amount of work, in units of about a second of a run.
    pub seconds: u32,
    /// How checkpoints come in the runs that it asks for.
    #[serde(default, skip_serializing_if = "PredictionTrialRegime::is_forced")]
    pub regime: PredictionTrialRegime,
}

/// A workload on a fresh copy of a data directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialRun {
    /// The server's version.
    pub server: String,
    /// The workload.
    pub workload: PredictionTrialWorkload,
    /// The arm of the server.
    pub arm: PredictionTrialArm,
    /// How its checkpoints come.
    #[serde(default, skip_serializing_if = "PredictionTrialRegime::is_forced")]
    pub regime: PredictionTrialRegime,
    /// From 1. Runs of the same repetition are a pair.
    pub repetition: u32,
    /// Transactions after the warm-up.
    pub transactions: u64,
    /// Time that clients worked after the warm-up.
    pub elapsed_s: f64,
    /// WAL after the warm-up, in bytes.
    pub wal_bytes: u64,
    /// Full-page images in it.
    pub images: u64,
    /// Those of records `FPI_FOR_HINT`.
    pub hint_images: u64,
    /// Bytes of those.
    pub hint_image_bytes: u64,
    /// Blocks read from outside shared buffers.
    pub blocks_read: u64,
    /// Blocks written, by all processes.
    pub blocks_written: u64,
    /// CPU time of all of the server's processes, without that of the censuses and of other sessions
    /// that watch it.
    pub cpu_ns: u64,
    /// Blocks that SELECTs dirtied and that are in no image that they logged: the sum over
    /// statements of `shared_blks_dirtied - wal_fpi`.
    pub select_dirtied: u64,
    /// The same of all statements, VACUUM among them; autovacuum has none.
    pub statement_dirtied: u64,
    /// WAL without images for hints, as the what-if has it from this run's own; of servers that log
    /// hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_hints_bytes: Option<u64>,
    /// The checkpoint cycles after the warm-up.
    pub cycles: Vec<PredictionTrialCycle>,
}

/// A checkpoint cycle of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialCycle {
    /// Its WAL, in bytes.
    pub wal_bytes: u64,
    /// Blocks written to data files, by all processes.
    pub written: u64,
    /// Those that were not written by its checkpoint, without extensions of files.
    pub evicted: u64,
    /// Shared buffers after equal parts of its work, the last one just before its checkpoint.
    pub censuses: Vec<PredictionTrialCensus>,
}

/// Dirty pages of permanent relations in shared buffers: main forks and free space maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialCensus {
    /// How many.
    pub dirty: u64,
    /// How many of them were looked at, drawn at random; the figures below are of these.
    pub sampled: u64,
    /// Those whose LSN is older than the redo point: no WAL record has set it in this cycle.
    pub hint_only: u64,
    /// The bytes of their images, without holes.
    pub hint_only_bytes: u64,
    /// Those with a usage count of at most 1: those to be evicted next.
    pub low: u64,
    /// Those of them whose LSN is older than the redo point.
    pub low_hint_only: u64,
}

/// The answer of `pgtoll predict` about a server under a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialAnswer {
    /// The server's version.
    pub server: String,
    /// The workload.
    pub workload: PredictionTrialWorkload,
    /// The arm of the watched server; the prediction is for the other one.
    pub arm: PredictionTrialArm,
    /// How its checkpoints came.
    #[serde(default, skip_serializing_if = "PredictionTrialRegime::is_forced")]
    pub regime: PredictionTrialRegime,
    /// From 1.
    pub repetition: u32,
    /// The rights of the role that watched.
    #[serde(default, skip_serializing_if = "PredictionTrialRights::is_superuser")]
    pub rights: PredictionTrialRights,
    /// Predicted relative change of WAL; `None` where nothing was predicted.
    pub wal: Option<PredictionTrialRange>,
    /// The basis of it, as the program names it.
    pub basis: Option<String>,
    /// Predicted relative change of CPU time; `None` where nothing was predicted.
    pub cpu: Option<PredictionTrialRange>,
    /// The program's own test of itself; `None` where hints are not logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind: Option<PredictionTrialBlind>,
    /// Why it answered nothing; `None` where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The role that watches a server.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PredictionTrialRights {
    /// A superuser, which reads buffers and the server's WAL.
    #[default]
    Superuser,
    /// A role with `pg_monitor`, which reads views alone.
    Monitor,
}

impl PredictionTrialRights {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_superuser(&self) -> bool {
        *self == Self::Superuser
    }
}

/// The blind self-test: what logging hints costs a server that logs them, predicted as for one that
/// does not, and as the what-if finds it in the same WAL. Both are relative to the WAL without hints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialBlind {
    /// The predicted change, with its range.
    pub predicted: PredictionTrialRange,
    /// By the what-if.
    pub found: f64,
}

/// A relative change (0.1: ten percent more) with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionTrialRange {
    /// The estimate.
    pub middle: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// The interval's upper end.
    pub upper: f64,
}

/// The arm of a server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PredictionTrialArm {
    /// Neither checksums nor `wal_log_hints`.
    Off,
    /// The same, with a census now and then.
    Watched,
    /// `wal_log_hints` without checksums.
    Hints,
    /// Data checksums.
    On,
}

/// How checkpoints come.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PredictionTrialRegime {
    /// By `CHECKPOINT`, at once, after a fixed amount of work.
    #[default]
    Forced,
    /// By `checkpoint_timeout`, spread by `checkpoint_completion_target = 0.9`.
    Timed,
}

/// The work of a run: always the same number of transactions, by eight clients.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PredictionTrialWorkload {
    /// pgbench's own transactions.
    TpcB,
    /// One client writes in bulk, seven read what was written some time ago.
    HintStorm,
    /// Bulk loads, each of them vacuumed after the next checkpoint.
    LoadVacuum,
    /// Single-row updates and range selects of a table far larger than shared buffers.
    Eviction,
    /// Inserts into an indexed table, and a few reads of its end.
    AppendOnly,
    /// Updates of few rows above all, inserts with a random key, reads by two indexes.
    Skewed,
    /// Tables that are made, filled, read into another one and dropped, as imports have them. Like the kinds
    /// after it, in no trial that a factor was set by.
    Staging,
    /// A time series: a partition is filled and the oldest one dropped.
    Partitions,
    /// A queue: jobs are inserted, taken with `SKIP LOCKED`, and deleted.
    Queue,
    /// Documents with TOAST and a GIN index, now and then rewritten.
    Documents,
}

impl PredictionTrialWorkload {
    /// In the order in which they are run.
    pub const ALL: [Self; 10] = [
        Self::TpcB,
        Self::HintStorm,
        Self::LoadVacuum,
        Self::Eviction,
        Self::AppendOnly,
        Self::Skewed,
        Self::Staging,
        Self::Partitions,
        Self::Queue,
        Self::Documents,
    ];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::TpcB => "tpc-b",
            Self::HintStorm => "hint-storm",
            Self::LoadVacuum => "load-vacuum",
            Self::Eviction => "eviction",
            Self::AppendOnly => "append-only",
            Self::Skewed => "skewed",
            Self::Staging => "staging",
            Self::Partitions => "partitions",
            Self::Queue => "queue",
            Self::Documents => "documents",
        }
    }
}

impl PredictionTrialRegime {
    /// In the order in which results are shown.
    pub const ALL: [Self; 2] = [Self::Forced, Self::Timed];

    /// The one that records have without naming it.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_forced(&self) -> bool {
        *self == Self::Forced
    }

    /// In tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forced => "forced checkpoints",
            Self::Timed => "timed, spread checkpoints",
        }
    }
}

impl PredictionTrialArm {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Watched => "watched",
            Self::Hints => "wal_log_hints",
            Self::On => "on",
        }
    }
}
