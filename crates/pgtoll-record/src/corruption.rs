//! Spread of a damaged page under replication, and the cost of a failover away from it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClientTimeline, Host};

/// The version of the form of a [`CorruptionRecord`].
pub const CORRUPTION_SCHEMA: &str = "pgtoll.corruption/1";

/// A page of a primary was damaged on disk: whether the damage reached the standby, and what writers
/// saw of a failover that kept it away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptionRecord {
    /// [`CORRUPTION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// Version and origin of the servers.
    pub server: String,
    /// The machine.
    pub host: Host,
    /// The planned runs.
    pub design: CorruptionDesign,
    /// The servers' settings that are not defaults.
    pub settings: BTreeMap<String, String>,
    /// Whether the damage reaches the standby, without checksums and with them.
    pub spread: Vec<DamageSpread>,
    /// Each failover.
    pub failovers: Vec<CorruptionFailover>,
    /// All was done that was to be done.
    pub complete: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The planned runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptionDesign {
    /// Number of failovers.
    pub runs: u32,
    /// Clients that write, a connection each.
    pub clients: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// How long transactions fall due, in each run; the page is read after a third of it.
    pub seconds: f64,
    /// How writers reach whichever server is the primary.
    pub entry: String,
    /// Between two looks of the watcher at the counters of checksum failures.
    pub poll_s: f64,
}

/// A row, as a server shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// As it was written.
    Right,
    /// Another value, without an error.
    Wrong,
    /// An error.
    Error,
}

/// A page with two rows is damaged on the primary's disk, where the first row is; then the second row
/// is updated, so that the page is logged as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DamageSpread {
    /// Whether pages have checksums.
    pub checksums: bool,
    /// The server's error for the update; `None` if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_error: Option<String>,
    /// The standby's row before the update.
    pub standby_before: RowState,
    /// The primary's row in the end.
    pub primary_after: RowState,
    /// The standby's row in the end.
    pub standby_after: RowState,
}

/// A failover away from a damaged page. Times in seconds (`_s`) count from the error that the reader of
/// the page got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CorruptionFailover {
    /// From 1.
    pub run: u32,
    /// The error that the reader got.
    pub error: String,
    /// The watcher saw the counter of checksum failures rise.
    pub noticed_s: f64,
    /// The standby read the whole table without an error.
    pub verified_s: f64,
    /// The pooler held new transactions back, and those that had begun were over; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_s: Option<f64>,
    /// The old primary had stopped, with all WAL sent.
    pub stopped_s: f64,
    /// The standby was promoted.
    pub promoted_s: f64,
    /// The row was read on the new primary, as it was written.
    pub readable_s: f64,
    /// The longest time without an acknowledgement to any writer; `None` where there was no gap.
    pub gap_s: Option<f64>,
    /// Transactions acknowledged.
    pub acknowledged: u64,
    /// The part that is absent in the end; `None` if the final set could not be read.
    pub lost: Option<u64>,
    /// Transactions that failed for certain.
    pub failed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Present though failed for certain, never sent, or present twice: 0, or pgtoll is wrong.
    pub impossible: Option<u64>,
    /// Each writer over time, with the steps; `None` in records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<ClientTimeline>,
    /// The judge's findings about the servers.
    pub findings: Vec<String>,
}
