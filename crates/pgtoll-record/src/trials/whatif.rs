//! The record of the what-if trial: WAL under other settings, predicted and really written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`WhatIfTrialLine`].
pub const WHATIF_TRIAL_SCHEMA: &str = "pgtoll.whatif-trial/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum WhatIfTrialLine {
    /// The first line.
    Header(Box<WhatIfTrialHeader>),
    /// A prediction and what a server really wrote.
    Prediction(WhatIfTrialPrediction),
}

/// How and where the trial was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfTrialHeader {
    /// [`WHATIF_TRIAL_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// Transactions of each run.
    pub transactions: u32,
}

/// A prediction and what a server really wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfTrialPrediction {
    /// The server's version.
    pub server: String,
    /// The work that source and target did.
    pub workload: WhatIfTrialWorkload,
    /// The difference between source and target.
    pub kind: WhatIfTrialKind,
    /// The settings of the server whose WAL was read.
    pub source: WhatIfTrialSetting,
    /// The settings that WAL was predicted for.
    pub target: WhatIfTrialSetting,
    /// Bytes of the source's WAL.
    pub source_bytes: u64,
    /// Bytes predicted for the target.
    pub predicted_bytes: u64,
    /// Bytes that a server with the target's settings wrote.
    pub actual_bytes: u64,
    /// Checkpoints predicted for the target.
    pub predicted_checkpoints: u64,
    /// Redo points of the source.
    pub redo_points: u64,
    /// Images that the model predicts of the source itself, and that its WAL does not have.
    pub absent: u64,
    /// Images that the source's WAL has, and the model does not predict.
    pub unpredicted: u64,
}

/// The work of a run: always the same number of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfTrialWorkload {
    /// pgbench's own transactions.
    Pgbench,
    /// Updates of few rows above all, inserts with a random key, reads.
    Mix,
    /// The same without waiting for commits, and with few shared buffers: hints come late.
    LateHints,
    /// Loads of tables, then their indexes, then an update and a vacuum.
    Load,
}

/// The difference between a source and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfTrialKind {
    /// Nothing: the source's own redo points, replayed.
    OwnRedoPoints,
    /// Nothing: the source's own settings, as a rule.
    Own,
    /// A longer distance between checkpoints.
    Longer,
    /// A shorter one, hints not logged.
    ShorterWithoutHints,
    /// A shorter one, hints logged.
    Shorter,
    /// Hints not logged, from a source that logs them.
    HintsOff,
    /// Images compressed, from a source that does not compress.
    Compressed,
}

/// The settings of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfTrialSetting {
    /// `max_wal_size` in MB; segments have 16 MB.
    pub max_wal_size_mb: u64,
    /// Whether hint bits are logged: data checksums.
    pub hints: bool,
    /// `wal_compression`.
    pub compression: WhatIfTrialCompression,
}

/// `wal_compression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfTrialCompression {
    /// Without compression.
    Off,
    /// PostgreSQL's own.
    Pglz,
    /// Compressed by LZ4.
    Lz4,
    /// Compressed by Zstandard.
    Zstd,
}

impl WhatIfTrialPrediction {
    /// The relative error of the predicted bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
    pub fn error(&self) -> f64 {
        self.predicted_bytes as f64 / self.actual_bytes.max(1) as f64 - 1.0
    }
}

impl WhatIfTrialWorkload {
    /// In the order in which they are run.
    pub const ALL: [Self; 4] = [Self::Pgbench, Self::Mix, Self::LateHints, Self::Load];
}

impl WhatIfTrialCompression {
    /// The setting's value, as in `postgresql.conf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Pglz => "pglz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}
