//! Reads that a balancer sends to standbys: where statements went, and what readers saw there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, Interval};

/// The version of the form of a [`BalanceRecord`].
pub const BALANCE_SCHEMA: &str = "pgtoll.balance/1";

/// The name of the primary in such a set.
pub const BALANCE_PRIMARY: &str = "primary";

/// A primary and two standbys behind Pgpool-II: where each kind of statement went, how old what readers
/// saw was, what balancing cost, and what clients saw when a standby died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceRecord {
    /// [`BALANCE_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// Version and origin of the servers.
    pub server: String,
    /// Version of the balancer.
    pub balancer: String,
    /// The machine.
    pub host: Host,
    /// How much was tried.
    pub design: BalanceDesign,
    /// The servers' settings that are not defaults.
    pub settings: BTreeMap<String, String>,
    /// The balancer's settings that are not defaults.
    pub balancer_settings: BTreeMap<String, String>,
    /// Each kind of statement that was tried, in order.
    pub routes: Vec<BalanceRoute>,
    /// How sessions that read were shared out.
    pub split: Option<BalanceSplit>,
    /// Reads after writes, for each rung of what commits wait for, in order.
    pub freshness: Vec<BalanceRung>,
    /// Reads through the balancer beside reads without it.
    pub throughput: Option<BalanceThroughput>,
    /// More clients than the balancer takes at a time.
    pub queue: Option<BalanceQueue>,
    /// A standby that died and came back.
    pub death: Option<BalanceDeath>,
    /// All of it was done, whatever was found.
    pub complete: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// How much is tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceDesign {
    /// Each server's share of the reads relative to the others', by name.
    pub weights: BTreeMap<String, u32>,
    /// Sessions in which each kind of statement is tried.
    pub route_sessions: u32,
    /// Sessions whose share on each standby is counted.
    pub split_sessions: u32,
    /// Rows that are written and then read, for each rung.
    pub writes: u32,
    /// Clients that read at full speed, with and without the balancer in turn.
    pub clients: u32,
    /// For this many seconds each time.
    pub slice_s: f64,
    /// So often each.
    pub slices: u32,
    /// Clients that the balancer takes at a time.
    pub balancer_clients: u32,
}

/// The servers on which a statement may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceNeed {
    /// On the primary only: it writes, locks, or reads what only the session there has.
    Primary,
    /// Any server may execute it.
    Any,
}

/// A kind of statement, and which servers answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceRoute {
    /// Its peculiarity, in a few words.
    pub kind: String,
    /// The statements of each session, in order; the last one's answer names the server.
    pub statements: Vec<String>,
    /// The servers on which it may be executed.
    pub need: BalanceNeed,
    /// Sessions that tried it.
    pub sessions: u64,
    /// Answers of each server, by its name.
    pub answers: BTreeMap<String, u64>,
    /// Sessions in which it failed.
    pub errors: u64,
    /// The message that the first of them got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl BalanceRoute {
    /// Whether every session got an answer, from a server that may give it.
    pub fn holds(&self) -> bool {
        self.errors == 0 && !(self.need == BalanceNeed::Primary && self.is_balanced())
    }

    /// Whether a standby answered any.
    pub fn is_balanced(&self) -> bool {
        self.answers.keys().any(|server| server != BALANCE_PRIMARY)
    }
}

/// How sessions were shared out among the standbys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceSplit {
    /// Sessions that each server answered, by its name.
    pub sessions: BTreeMap<String, u64>,
    /// The first standby's share of them.
    pub share: Interval,
    /// The share by the weights.
    pub expected: f64,
}

/// Rows that were written and then read through the balancer, with commits that wait for so much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceRung {
    /// The wait of commits, in words.
    pub rung: String,
    /// The primary's `synchronous_commit`.
    pub synchronous_commit: String,
    /// The primary's `synchronous_standby_names`.
    pub synchronous_standby_names: String,
    /// Rows that were written.
    pub writes: u64,
    /// Reads after them that a standby answered.
    pub standby_reads: u64,
    /// Those that did not find the row.
    pub stale: u64,
    /// Their share of the standbys' reads, with its 95 % interval.
    pub stale_share: Option<Interval>,
    /// The median time of a write, in milliseconds.
    pub write_p50_ms: Option<f64>,
    /// How the reader waited for its own write; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<BalanceWait>,
}

/// Readers that wait until what they have written was applied (`WAIT FOR LSN`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceWait {
    /// The reader waits and reads on a standby itself, without the balancer.
    pub is_direct: bool,
    /// Waits that a standby answered, when it had applied the write.
    pub applied: u64,
    /// Waits that the primary answered, where there is nothing to wait for.
    pub on_primary: u64,
    /// The median time of a wait, in milliseconds.
    pub p50_ms: Option<f64>,
}

impl BalanceRung {
    /// Whether a session is promised to find on every standby what it has committed: each of them has
    /// applied it by then, or it waits on the one that it reads from.
    pub fn is_promised(&self) -> bool {
        if let Some(wait) = &self.wait {
            return wait.is_direct;
        }
        let is_one_enough = self.synchronous_standby_names.starts_with("ANY");
        self.synchronous_commit == "remote_apply" && !is_one_enough
    }

    /// Whether that was not so.
    pub fn is_broken(&self) -> bool {
        self.stale > 0 && self.is_promised()
    }
}

/// Reads through the balancer beside reads that go to the standbys without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceThroughput {
    /// Reads a second without the balancer, one figure for each slice.
    pub direct_per_second: Vec<f64>,
    /// Through it, in the same order.
    pub balanced_per_second: Vec<f64>,
    /// The latter over the former, with its 95 % interval.
    pub ratio: Interval,
    /// The median time of a read without it, in milliseconds.
    pub direct_p50_ms: Option<f64>,
    /// Through it.
    pub balanced_p50_ms: Option<f64>,
}

/// More clients than the balancer takes at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceQueue {
    /// Clients that it takes at a time.
    pub room: u64,
    /// Clients beyond that.
    pub more: u64,
    /// The part that was served while all others stayed connected.
    pub served_at_once: u64,
    /// Served after others had left.
    pub served_later: u64,
    /// Refused, or never served.
    pub refused: u64,
    /// The message that the first of them got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// A standby that was killed under readers, and started again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceDeath {
    /// Clients that read and reconnect.
    pub readers: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Reads and connections that failed before the balancer called the standby down.
    pub errors_until_down: u64,
    /// While it was called down.
    pub errors_while_down: u64,
    /// After it had been started again.
    pub errors_after_start: u64,
    /// The longest time in which a reader got no answer, in seconds.
    pub longest_gap_s: f64,
    /// When the balancer called the standby down, in seconds after the kill.
    pub down_s: f64,
    /// When a new session was answered by it again, in seconds after its start.
    pub back_s: f64,
    /// Reads that each server answered while the standby was called down, by its name.
    pub answers_while_down: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_needs_the_primary_must_be_answered_there_each_time() {
        let answers = |texts: &[(&str, u64)]| {
            texts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let route = BalanceRoute {
            kind: "INSERT".to_owned(),
            statements: Vec::new(),
            need: BalanceNeed::Primary,
            sessions: 3,
            answers: answers(&[("primary", 3)]),
            errors: 0,
            first_error: None,
        };
        assert!(route.holds() && !route.is_balanced());
        let astray =
            BalanceRoute { answers: answers(&[("primary", 2), ("standby1", 1)]), ..route.clone() };
        assert!(!astray.holds());
        assert!(BalanceRoute { need: BalanceNeed::Any, ..astray }.holds());
        assert!(!BalanceRoute { errors: 1, ..route }.holds());
    }
}
