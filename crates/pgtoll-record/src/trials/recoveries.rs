//! The record of the bench of recoveries: how long servers took to return after a crash, beside a checkup's forecast.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, RecoveryForecast};

/// The version of the form of [`RecoveriesLine`].
pub const BENCH_RECOVERIES_SCHEMA: &str = "pgtoll.bench-recoveries/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum RecoveriesLine {
    /// The first line.
    Header(Box<RecoveriesHeader>),
    /// One crash.
    Run(Box<RecoveryRun>),
    /// The last line.
    Summary(RecoveriesSummary),
}

/// How and where the servers ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveriesHeader {
    /// [`BENCH_RECOVERIES_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// Version and origin of the servers.
    pub server: String,
    /// Their settings that are not defaults.
    pub settings: BTreeMap<String, String>,
}

/// A crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryRun {
    /// The load before it.
    pub workload: String,
    /// From 1.
    pub repetition: u32,
    /// Bytes of WAL since the redo point that were waited for.
    pub distance_bytes: u64,
    /// Seconds from the server's start until it accepted connections.
    pub seconds: f64,
    /// The forecast of a checkup just before.
    pub forecast: RecoveryForecast,
}

impl RecoveryRun {
    /// Whether the time lies in the forecast's range.
    pub fn is_in_range(&self) -> bool {
        let range = self.forecast.median_s;
        (range.lower..=range.upper).contains(&self.seconds)
    }
}

/// Sums over all crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveriesSummary {
    /// Crashes.
    pub runs: u64,
    /// The part whose time lies in the forecast's range.
    pub hits: u64,
    /// Crashes of servers whose log had a recovery.
    pub seen: u64,
    /// The part of these whose time lies in the range.
    pub seen_hits: u64,
}
