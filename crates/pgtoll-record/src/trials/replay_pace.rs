//! The record of the bench of replays' pace: whether statements are sent when they are due, with how many
//! sessions, and how fast a replay is beside the program whose work it repeats.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`ReplayPaceLine`].
pub const BENCH_REPLAY_PACE_SCHEMA: &str = "pgtoll.bench-replay-pace/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum ReplayPaceLine {
    /// The first line.
    Header(Box<ReplayPaceHeader>),
    /// A replay.
    Replay(Box<ReplayPaceRun>),
}

/// How and where the bench was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayPaceHeader {
    /// [`BENCH_REPLAY_PACE_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// The server: version and origin.
    pub server: String,
}

/// The case of a replay.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReplayPaceCase {
    /// Statements are sent when they are due: 16 clients of pgbench's TPC-B at a fixed rate.
    Timed,
    /// This many sessions at a time: clients that read, at a fixed rate.
    Sessions,
    /// As fast as possible: clients that read as fast as they can, beside pgbench's own rate.
    Full,
}

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayPaceRun {
    /// Its case.
    pub case: ReplayPaceCase,
    /// How clients asked, and statements are replayed: pgbench's `-M` (`simple`, `prepared`).
    pub protocol: String,
    /// Counted from 1.
    pub repetition: u32,
    /// The recorded time's multiple; `None` is as fast as possible.
    pub speed: Option<f64>,
    /// From the log's first entry to its last, in seconds.
    pub recorded_s: f64,
    /// From the first connection to the last statement's end, in seconds.
    pub run_s: f64,
    /// How much later than due statements were sent, in milliseconds: the 99th percentile. `None` at full
    /// speed.
    pub lateness_p99_ms: Option<f64>,
    /// The most.
    pub lateness_max_ms: Option<f64>,
    /// Sessions of the log that were open at the same time, at most.
    pub sessions: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Sessions that ended early.
    pub broken_sessions: u64,
    /// Statements that were sent.
    pub statements: u64,
    /// Statements that ended otherwise than logged.
    pub errors: u64,
    /// CPU time of the replaying process, in seconds.
    pub client_cpu_s: f64,
    /// pgbench's own transactions a second on an equal copy that logs nothing, right before; at full speed.
    pub pgbench_tps: Option<f64>,
}

impl ReplayPaceRun {
    /// Its length over the one that it should have; `None` at full speed.
    pub fn length_ratio(&self) -> Option<f64> {
        Some(self.run_s * self.speed? / self.recorded_s)
    }

    /// Statements a second over pgbench's; `None` where pgbench did not run.
    pub fn rate_ratio(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "statements of a minute")]
        let statements = self.statements as f64;
        Some(statements / self.run_s / self.pgbench_tps?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_what_should_be() {
        let run = ReplayPaceRun {
            case: ReplayPaceCase::Timed,
            protocol: "prepared".to_owned(),
            repetition: 1,
            speed: Some(2.0),
            recorded_s: 20.0,
            run_s: 10.2,
            lateness_p99_ms: Some(1.0),
            lateness_max_ms: Some(2.0),
            sessions: 16,
            connections: 17,
            broken_sessions: 0,
            statements: 10_200,
            errors: 0,
            client_cpu_s: 0.5,
            pgbench_tps: None,
        };
        assert!((run.length_ratio().unwrap() - 1.02).abs() < 1e-12);
        assert_eq!(run.rate_ratio(), None);
        let full = ReplayPaceRun { speed: None, pgbench_tps: Some(2000.0), ..run };
        assert_eq!(full.length_ratio(), None);
        assert!((full.rate_ratio().unwrap() - 0.5).abs() < 1e-12);
    }
}
