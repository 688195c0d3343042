//! The record of the bench of replay: pgbench's logged work, replayed by pgtoll and by pgreplay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`ReplayBenchLine`].
pub const BENCH_REPLAY_SCHEMA: &str = "pgtoll.bench-replay/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum ReplayBenchLine {
    /// The first line.
    Header(Box<ReplayBenchHeader>),
    /// A log that was captured.
    Capture(ReplayBenchCapture),
    /// A replay of it.
    Run(ReplayBenchRun),
}

/// How and where the bench was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayBenchHeader {
    /// [`BENCH_REPLAY_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// pgreplay's version; `None`: it is not installed, and its runs are skipped.
    pub pgreplay: Option<String>,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// pgbench's clients.
    pub clients: u32,
    /// Transactions of each client.
    pub transactions: u32,
    /// Seconds after which a replay is killed.
    pub limit_s: u64,
}

/// The log of one pgbench run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayBenchCapture {
    /// The server: version and origin.
    pub server: String,
    /// pgbench's protocol: `simple`, `extended` or `prepared`.
    pub protocol: String,
    /// Wall time of pgbench in seconds.
    pub wall_s: f64,
    /// Bytes of the csvlog.
    pub csv_bytes: u64,
    /// Committed transactions: rows of `pgbench_history`.
    pub transactions: u64,
}

/// One replay of one log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayBenchRun {
    /// The server: version and origin.
    pub server: String,
    /// pgbench's protocol.
    pub protocol: String,
    /// The program and the log that it read: `pgtoll_csv`, `pgreplay_csv`, `pgreplay_stderr`.
    pub arm: String,
    /// Whether it ended by itself within the limit.
    pub ended: bool,
    /// How the program ended, in words.
    pub status: String,
    /// Wall time in seconds, with the reading of the log.
    pub wall_s: f64,
    /// CPU time of the program in seconds; `None`: it was killed.
    pub cpu_s: Option<f64>,
    /// Statements sent, as the program counts them; `None`: it did not say.
    pub statements: Option<u64>,
    /// Errors that the log does not have, as the program counts them; `None`: it did not say.
    pub errors: Option<u64>,
    /// Order that had to be given up; only pgtoll counts it.
    pub order_breaks: Option<u64>,
    /// Transactions that the copy has at the end: rows of `pgbench_history`.
    pub transactions: u64,
    /// Tables that differ from the source's; `pgbench_history` without `mtime`.
    pub differing_tables: Vec<String>,
}

impl ReplayBenchRun {
    /// Ended, without an unexpected error or a broken order, and with the source's data.
    pub fn is_faithful(&self) -> bool {
        self.ended
            && self.errors == Some(0)
            && self.order_breaks.unwrap_or(0) == 0
            && self.differing_tables.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_faithful_only_with_an_end_no_errors_and_equal_tables() {
        let faithful = ReplayBenchRun {
            server: String::new(),
            protocol: "simple".to_owned(),
            arm: "pgtoll_csv".to_owned(),
            ended: true,
            status: "exit status 0".to_owned(),
            wall_s: 1.0,
            cpu_s: None,
            statements: Some(7),
            errors: Some(0),
            order_breaks: Some(0),
            transactions: 1,
            differing_tables: Vec::new(),
        };
        assert!(faithful.is_faithful());
        let table = vec!["pgbench_tellers".to_owned()];
        for unfaithful in [
            ReplayBenchRun { ended: false, ..faithful.clone() },
            ReplayBenchRun { errors: None, ..faithful.clone() },
            ReplayBenchRun { errors: Some(1), ..faithful.clone() },
            ReplayBenchRun { order_breaks: Some(1), ..faithful.clone() },
            ReplayBenchRun { differing_tables: table, ..faithful },
        ] {
            assert!(!unfaithful.is_faithful(), "{unfaithful:?}");
        }
    }
}
