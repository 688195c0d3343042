//! The record of the bench of designs: how narrow intervals of two identical clusters are, by
//! pgtoll's slices and by sequential runs of `pgbench`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`DesignLine`].
pub const BENCH_DESIGN_SCHEMA: &str = "pgtoll.bench-design/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum DesignLine {
    /// The first line.
    Header(Box<DesignHeader>),
    /// One trial of both designs.
    Trial(Box<DesignTrial>),
    /// The last line: medians over all trials.
    Summary(DesignSummary),
}

/// How, where and with which server the designs were run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignHeader {
    /// [`BENCH_DESIGN_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// Seed of the order, the background load and pgtoll's design.
    pub seed: u64,
    /// How often both designs were run.
    pub trials: u32,
    /// Wall time of each design in each trial, in seconds.
    pub wall_seconds: u64,
    /// Runs of each cluster in the sequential design.
    pub runs_per_cluster: u32,
    /// Length of such a run, in seconds.
    pub run_seconds: u64,
    /// Rounds of the sliced design.
    pub rounds: u32,
    /// Length of its slices, in milliseconds.
    pub slice_ms: u64,
    /// Processes of the background load.
    pub neighbours: u32,
    /// The mean length of their busy spans, and of their idle ones, in seconds.
    pub mean_span_seconds: f64,
    /// pgbench's scale.
    pub scale: u32,
    /// The server: version and origin.
    pub server: String,
    /// The machine.
    pub host: Host,
}

/// One trial of both designs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignTrial {
    /// Counted from 1.
    pub number: u32,
    /// Seed of its background load and of pgtoll's design.
    pub seed: u64,
    /// Whether the sequential design came first.
    pub sequential_first: bool,
    /// Sequential runs of `pgbench`.
    pub sequential: DesignSequential,
    /// pgtoll's slices.
    pub sliced: DesignSliced,
    /// Half-widths of transactions per second, sequential over sliced.
    pub half_widths_ratio: f64,
}

/// The result of the sequential design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignSequential {
    /// Wall time of the counted runs, without starts and warm-ups, in seconds.
    pub wall_seconds: f64,
    /// Transactions per second of each run of the first cluster, in time order.
    pub tps_a: Vec<f64>,
    /// Transactions per second of each run of the second cluster, in time order.
    pub tps_b: Vec<f64>,
    /// The second cluster's transactions per second over the first's.
    pub tps: DesignEstimate,
    /// The background load meanwhile.
    pub neighbours: DesignNeighbours,
}

/// The result of the sliced design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignSliced {
    /// Wall time of all rounds with restarts and warm-ups, in seconds: the mean time from one
    /// round's first slice to the next one's, times the rounds.
    pub wall_seconds: f64,
    /// Number of rounds.
    pub rounds: u32,
    /// Blocks of each round.
    pub blocks_per_round: u32,
    /// The second cluster's transactions per second over the first's.
    pub tps: DesignEstimate,
    /// The same of the server's CPU time for a transaction.
    pub cpu: DesignEstimate,
    /// The background load meanwhile.
    pub neighbours: DesignNeighbours,
}

/// A ratio and its 95 % interval, which is symmetric on the log scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignEstimate {
    /// The ratio.
    pub ratio: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// The interval's upper end.
    pub upper: f64,
    /// Half the interval's width on the log scale.
    pub half_width: f64,
    /// Whether the interval covers 1, the true ratio.
    pub covers_one: bool,
}

/// The background load, all its processes together; 1 is a core for all of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignNeighbours {
    /// Wall time of the longest process, in seconds.
    pub seconds: f64,
    /// Cores that their schedules asked for.
    pub cores_wanted: f64,
    /// Cores that they got in competition with the servers.
    pub cores_used: f64,
}

/// All trials together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DesignSummary {
    /// Number of trials.
    pub trials: u64,
    /// Median half-width of transactions per second, sequential.
    pub sequential_tps_half_width: f64,
    /// Trials in which that interval covers 1.
    pub sequential_covers_one: u64,
    /// Median half-width of transactions per second, sliced.
    pub sliced_tps_half_width: f64,
    /// Trials in which that interval covers 1.
    pub sliced_tps_covers_one: u64,
    /// Median half-width of the server's CPU time for a transaction, sliced.
    pub sliced_cpu_half_width: f64,
    /// Trials in which that interval covers 1.
    pub sliced_cpu_covers_one: u64,
    /// The median of the trials' ratios of half-widths, sequential over sliced.
    pub half_widths_ratio: f64,
    /// The smallest such ratio that is good enough.
    pub goal: f64,
}

impl DesignEstimate {
    /// The interval around a ratio.
    pub fn new(ratio: f64, half_width: f64) -> Self {
        let lower = ratio * (-half_width).exp();
        let upper = ratio * half_width.exp();
        Self { ratio, lower, upper, half_width, covers_one: lower <= 1.0 && 1.0 <= upper }
    }
}
