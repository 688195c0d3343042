//! The record of a series of rolling runs: how long clients could not write, beside switchovers by hand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`RollingSeriesLine`].
pub const ROLLING_SERIES_SCHEMA: &str = "pgtoll.rolling-series/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum RollingSeriesLine {
    /// The first line.
    Header(Box<RollingSeriesHeader>),
    /// A run, or a switchover by hand.
    Run(Box<RollingSeriesRun>),
}

/// How and where the series was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RollingSeriesHeader {
    /// [`ROLLING_SERIES_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// The machine.
    pub host: Host,
}

/// A run of `pgtoll enable --rolling` or `disable --rolling` over a primary, a standby and a cascading one
/// under clients that write; or a switchover by hand of the same servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RollingSeriesRun {
    /// The server's version.
    pub server: String,
    /// `enable`, `disable` or `by hand`.
    pub what: String,
    /// The longest time in which no client's transaction was acknowledged, in seconds.
    pub gap_seconds: f64,
    /// The gap by pgtoll's own clock; `None` by hand.
    pub own_gap_seconds: Option<f64>,
    /// Each node with the seconds that its conversion took, and those for which it was down.
    pub nodes: Vec<(String, Option<f64>, Option<f64>)>,
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Acknowledged ones that are lost.
    pub lost: u64,
}
