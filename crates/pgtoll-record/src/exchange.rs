//! The cost of a commit's durability, and the losses that it prevents.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, Interval, LossBounds, SynchronousCommit};

/// The version of the form of an [`ExchangeRecord`].
pub const EXCHANGE_SCHEMA: &str = "pgtoll.exchange/1";

/// The exchange rate of durability: for each value of `synchronous_commit` and each delay of
/// replication, what a commit costs while all is well, and what is lost when the primary's host dies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeRecord {
    /// [`EXCHANGE_SCHEMA`].
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
    pub design: ExchangeDesign,
    /// The servers' settings that are not defaults.
    pub settings: BTreeMap<String, String>,
    /// Each case, as they were run.
    pub cases: Vec<ExchangeCase>,
    /// All cases were run.
    pub complete: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The planned runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeDesign {
    /// Clients that write, a connection each.
    pub clients: u32,
    /// How long clients commit as fast as they can, in each case.
    pub load_s: f64,
    /// How long transactions fall due before and after the primary's death, in each case.
    pub judged_s: f64,
    /// How long WAL is on its way to the standby.
    pub delays_ms: Vec<f64>,
    /// Values of `synchronous_commit`.
    pub commits: Vec<SynchronousCommit>,
    /// How often each case is run.
    pub repetitions: u32,
    /// The seed of the orders of cases.
    pub seed: u64,
    /// When the primary dies, four fifths of transactions fall due within a quarter of the time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bursts: bool,
}

impl ExchangeCase {
    /// Whether the loss lies in the forecast's range; `None` where commits waited for the standby, or one of
    /// both is unknown.
    pub fn is_in_range(&self) -> Option<bool> {
        let (lower, upper) = self.forecast.filter(|_| !self.commit.is_remote())?.range;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let lost = self.lost? as f64;
        Some((lower.floor()..=upper.ceil()).contains(&lost))
    }
}

/// Time that a level adds to a commit, in ms: forecast from standbys' lags, and measured by the level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddedLatency {
    /// How long WAL was on its way to the standby.
    pub delay_ms: f64,
    /// The level.
    pub commit: SynchronousCommit,
    /// The forecast of a checkup while commits did not wait.
    pub forecast: f64,
    /// The median of commits at the level, less the median of those that waited for the primary's disk alone.
    pub measured: f64,
}

impl AddedLatency {
    /// Whether the forecast is within 25 % or 0.3 ms.
    pub fn is_near(&self) -> bool {
        (self.forecast - self.measured).abs() <= (0.25 * self.measured).max(0.3)
    }
}

impl ExchangeRecord {
    /// The added time of each remote level at each delay, from the first repetitions of both.
    pub fn added_latencies(&self) -> Vec<AddedLatency> {
        let first = self.cases.iter().filter(|case| case.repetition == 1);
        let added = |case: &ExchangeCase| {
            let local = self.cases.iter().find(|local| {
                local.commit == SynchronousCommit::Local
                    && local.repetition == 1
                    && local.delay_ms.total_cmp(&case.delay_ms).is_eq()
            })?;
            let forecast = *local.added_ms.get(&case.commit)?;
            let measured = case.p50_ms? - local.p50_ms?;
            let ExchangeCase { delay_ms, commit, .. } = *case;
            Some(AddedLatency { delay_ms, commit, forecast, measured })
        };
        first.filter(|case| case.commit.is_remote()).filter_map(added).collect()
    }
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeCase {
    /// The wait of commits.
    pub commit: SynchronousCommit,
    /// How long WAL was on its way to the standby.
    pub delay_ms: f64,
    /// From 1.
    pub repetition: u32,
    /// Transactions a second of all clients, each beginning the next as soon as one is committed: the
    /// mean over slices of the time, with a 95 % interval.
    pub transactions_per_second: Interval,
    /// Median time of a transaction, in ms.
    pub p50_ms: Option<f64>,
    /// Time that 99 % of them did not exceed, in ms.
    pub p99_ms: Option<f64>,
    /// Transactions a second that fell due when the primary died.
    pub judged_rate: f64,
    /// Transactions acknowledged in that part.
    pub acknowledged: u64,
    /// The part that is absent in the end; `None` if the final set could not be read.
    pub lost: Option<u64>,
    /// How long before the primary's death the earliest of them was acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_lost_s: Option<f64>,
    /// Commits that a checkup forecast to be lost, from the half of the time before the primary's death.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<LossBounds>,
    /// Milliseconds that the levels which wait for a standby add to a commit, as a checkup forecast then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added_ms: BTreeMap<SynchronousCommit, f64>,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// The part that is present in the end.
    pub recovered: Option<u64>,
    /// Present though failed for certain, never sent, or present twice: 0, or pgtoll is wrong.
    pub impossible: Option<u64>,
    /// The longest time without an acknowledgement: death, promotion and reconnecting.
    pub outage_s: Option<f64>,
    /// The judge's findings about the servers.
    pub findings: Vec<String>,
}
