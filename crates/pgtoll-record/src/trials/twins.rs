//! The record of the bench of twins: how often intervals of real runs miss what is known, and
//! whether a known handicap is found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, Interval, Metric, NoiseShare};

/// The version of the form of [`TwinsLine`].
pub const BENCH_TWINS_SCHEMA: &str = "pgtoll.bench-twins/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum TwinsLine {
    /// The first line.
    Header(Box<TwinsHeader>),
    /// One run.
    Run(Box<TwinsRun>),
    /// The last line: sums over all runs.
    Summary(TwinsSummary),
}

/// How and where the runs were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwinsHeader {
    /// [`BENCH_TWINS_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// By how much the handicap was multiplied to find out how large it is.
    pub multiple: u32,
    /// The handicap in each workload: what the multiple of it added to server CPU, as a share of
    /// the baseline's, divided by the multiple.
    pub planted: BTreeMap<String, f64>,
}

/// One run of `pgtoll measure`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwinsRun {
    /// Its seed.
    pub seed: u64,
    /// The server's version.
    pub server: String,
    /// Other activity of the machine, as means over the rounds.
    pub noise: Option<NoiseShare>,
    /// Arms against those that they are copies of: the truth is 1.
    pub twins: Vec<TwinsComparison>,
    /// The arm with the handicap against the one without, in workloads that have one, by server
    /// CPU: the truth is 1 and what was planted.
    pub handicaps: Vec<TwinsComparison>,
}

/// An arm against another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwinsComparison {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// The arm over the other, with the interval as it is without the widening by twins of the same
    /// run.
    pub ratio: Interval,
    /// The interval does not hold the truth.
    pub missed: bool,
}

/// Sums over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwinsSummary {
    /// Number of runs.
    pub runs: u64,
    /// Comparisons of twins.
    pub twins: u64,
    /// Those whose interval does not hold 1.
    pub twins_missed: u64,
    /// Comparisons with a handicap.
    pub handicaps: u64,
    /// Those that say that it costs: the whole interval lies above 1.
    pub handicaps_found: u64,
    /// Those whose interval does not hold what was planted.
    pub handicaps_missed: u64,
}
