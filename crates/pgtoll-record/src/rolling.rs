//! Results of turning data checksums on or off over a replica set, node by node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`RollingRecord`].
pub const ROLLING_SCHEMA: &str = "pgtoll.rolling/1";

/// The result of `pgtoll enable --rolling` or `pgtoll disable --rolling`, or their plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RollingRecord {
    /// [`ROLLING_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command, a shell's word each.
    pub command: Vec<String>,
    /// When it began (RFC 3339).
    pub made: String,
    /// Whether checksums are being turned on; else off.
    pub enable: bool,
    /// The identifier that the nodes share, in decimal; empty where no node could be asked.
    pub system_identifier: String,
    /// How it ended.
    pub outcome: RollingOutcome,
    /// Why it ended before everything was done.
    pub ended: Option<String>,
    /// The primary now, or when it was last seen.
    pub primary: Option<String>,
    /// The nodes, in the order in which they are converted.
    pub nodes: Vec<RollingNode>,
    /// The standby that takes over when the primary is converted; `None`: no switchover is needed.
    pub candidate: Option<String>,
    /// Seconds without a writable primary that are expected at each switchover, at least and at most.
    pub predicted_gap_seconds: Option<(f64, f64)>,
    /// Seconds without a second copy of the data that are expected, at least and at most: only a set
    /// of two nodes has any.
    pub predicted_alone_seconds: Option<(f64, f64)>,
    /// Switchovers, in order.
    pub switchovers: Vec<RollingSwitchover>,
    /// The objections of the checks before the run.
    pub objections: Vec<RollingObjection>,
    /// Seconds since the begin.
    pub seconds: Option<f64>,
    /// The next steps.
    pub next: Vec<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RollingOutcome {
    /// Nothing was done: it was only asked what would be.
    DryRun,
    /// The checks before refused, and nothing was done.
    Refused,
    /// All nodes of the run are converted.
    Finished,
    /// It ended before: `--resume` continues, `--abort` ends it in good order.
    Stopped,
    /// An unfinished run was ended in good order.
    Aborted,
}

/// A node of the set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RollingNode {
    /// Its name in the file of nodes.
    pub name: String,
    /// Whether it was the primary at first.
    pub primary: bool,
    /// The node that it streamed from at first.
    pub upstream: Option<String>,
    /// Whether it had checksums at first.
    pub checksums_before: Option<bool>,
    /// Whether it has checksums now.
    pub checksums: Option<bool>,
    /// Seconds that converting its files is expected to take, at least and at most.
    pub predicted_seconds: Option<(f64, f64)>,
    /// Bytes of its relations' files.
    pub bytes: Option<u64>,
    /// Seconds that converting its files took, where this run did.
    pub convert_seconds: Option<f64>,
    /// Seconds from the begin of its stop until it took connections again, for that.
    pub down_seconds: Option<f64>,
    /// Seconds from then until it had replayed what the primary had flushed.
    pub catch_up_seconds: Option<f64>,
    /// Whether a verification of all its pages found them sound afterwards; `None`: there was none.
    pub verified: Option<bool>,
    /// Pages that a server refuses, with checksums or without.
    pub refused_pages: u64,
}

/// A switchover: the primary is stopped, made a standby, and another node promoted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RollingSwitchover {
    /// The primary before.
    pub from: String,
    /// The primary since.
    pub to: String,
    /// Seconds that the old primary took to stop.
    pub stop_seconds: f64,
    /// Seconds until it could start as a standby only.
    pub fence_seconds: f64,
    /// Seconds until the new one had replayed all of the old one's WAL.
    pub replay_seconds: f64,
    /// Seconds until the new one took writes.
    pub promote_seconds: f64,
    /// Seconds from the begin of the stop until then; `None` where an earlier run had begun it.
    pub gap_seconds: Option<f64>,
    /// Seconds from the begin of the stop until the old primary streamed from the new one.
    pub rejoin_seconds: Option<f64>,
    /// The new timeline.
    pub timeline: u32,
}

/// An objection of a check before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollingObjection {
    /// Whether nothing is done because of it; else it is a warning.
    pub refuses: bool,
    /// The name of the node.
    pub node: Option<String>,
    /// The finding.
    pub text: String,
    /// Returns advice, if there is any.
    pub hint: String,
}
