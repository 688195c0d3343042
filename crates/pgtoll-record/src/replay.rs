//! Capabilities of a server's log, and results of its replay on another server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`LogExamination`].
pub const LOG_EXAMINATION_SCHEMA: &str = "pgtoll.log/1";

/// The version of the form of [`ReplayRecord`].
pub const REPLAY_SCHEMA: &str = "pgtoll.replay/1";

/// The uses that a server's log allows: printed by `pgtoll replay doctor` and `pgtoll replay plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogExamination {
    /// [`LOG_EXAMINATION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes the record again, a shell's word each.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The logs, in the order in which they were read.
    pub sources: Vec<LogSource>,
    /// From the first entry to the last one, in seconds.
    pub length_s: f64,
    /// The counts.
    pub counts: LogCounts,
    /// The uses that the logs allow, one line each.
    pub findings: Vec<LogFinding>,
    /// The plan that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The plan has timing, shapes and order alone: values were replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Statements were lost while they were captured.
    #[serde(default)]
    pub is_partial: bool,
}

/// A log that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogSource {
    /// The file's name.
    pub name: String,
    /// `stderr`, `csvlog` or `jsonlog`.
    pub format: String,
    /// `log_line_prefix`, of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Bytes, unpacked.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Lines that belong to no entry.
    #[serde(default)]
    pub foreign_lines: u64,
    /// The log ends within an entry.
    #[serde(default)]
    pub is_truncated: bool,
    /// The envelope that it came in; `None`: it is a server's own file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<LogEnvelope>,
}

/// The form in which a collector or a provider handed over a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEnvelope {
    /// Its name.
    pub form: String,
    /// Events of the server.
    pub events: u64,
    /// Events of other programs or servers, or without a message.
    pub foreign: u64,
    /// Events that came twice, and were dropped.
    pub duplicates: u64,
    /// Events that came out of order, and were put in their place.
    pub reordered: u64,
    /// Events that came too late for that.
    pub late: u64,
    /// Events that were cut or damaged.
    pub damaged: u64,
    /// Messages that the sequence numbers of syslog show to be missing.
    #[serde(default)]
    pub missing: u64,
}

/// Counts of log entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogCounts {
    /// Entries of all kinds.
    pub entries: u64,
    /// Sessions with at least one statement.
    pub sessions: u64,
    /// Sessions whose begin is logged.
    pub sessions_begun: u64,
    /// Sessions whose end is logged.
    pub sessions_ended: u64,
    /// Queries and executions that can be replayed.
    pub statements: u64,
    /// The part with the simple protocol.
    pub simple: u64,
    /// The part with the extended protocol.
    pub extended: u64,
    /// Statements whose begin is logged (`log_statement`).
    pub begins: u64,
    /// Statements whose end is logged with a duration.
    pub durations: u64,
    /// Statements that failed.
    pub failed: u64,
    /// The part that was cancelled.
    pub cancelled: u64,
    /// Simple statements that write outside of transaction blocks: their commit position is not certain.
    pub autocommit_simple: u64,
    /// The part whose commit position `log_executor_stats` gives.
    pub autocommit_exact: u64,
    /// Statements that mention parameters and have none logged.
    pub without_parameters: u64,
    /// Statements whose parameters seem to be cut by `log_parameter_max_length`.
    pub cut_parameters: u64,
    /// `COPY … FROM STDIN`, whose data no log has.
    pub copy_in: u64,
    /// Fetches of more rows from a portal, whose statement is executed once.
    pub fetches: u64,
    /// Fast-path calls, whose arguments no log has.
    pub fast_path: u64,
    /// Statements that are not UTF-8.
    pub not_utf8: u64,
    /// Errors that no statement is logged for.
    pub errors_without_statement: u64,
    /// Waits for locks longer than `deadlock_timeout`.
    pub lock_waits: u64,
    /// Entries with a virtual transaction id.
    pub with_vxid: u64,
    /// Entries with a transaction id, 0 included.
    pub with_xid: u64,
    /// Entries whose time has milliseconds.
    pub with_milliseconds: u64,
    /// Functions whose values are others in a replay, by name, with the statements that call them.
    pub volatile_calls: BTreeMap<String, u64>,
    /// Entries of `pgaudit`, which are skipped.
    #[serde(default)]
    pub audits: u64,
    /// Plans of `auto_explain`, which are skipped.
    #[serde(default)]
    pub plans: u64,
    /// Transaction blocks.
    #[serde(default)]
    pub blocks: u64,
    /// Transaction blocks whose begin or end is not logged.
    #[serde(default)]
    pub half_blocks: u64,
    /// The shortest duration, in microseconds.
    #[serde(default)]
    pub shortest_us: Option<u64>,
    /// Settings that leave statements out of the log, as the log says that they were changed.
    #[serde(default)]
    pub settings_changed: BTreeMap<String, String>,
}

/// One respect in which a log can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogFinding {
    /// Timing, order and so on.
    pub topic: String,
    /// How good it is.
    pub state: LogFindingState,
    /// In a sentence.
    pub text: String,
    /// The setting that would improve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How good a log is in one respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFindingState {
    /// Nothing is missing.
    Complete,
    /// Something is missing, and the replay differs in it.
    Partial,
    /// It cannot be done.
    Missing,
}

/// How a log's work went on another server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRecord {
    /// [`REPLAY_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes the record again, a shell's word each.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The logs that the plan was made from.
    pub sources: Vec<LogSource>,
    /// The target: its connection string without secrets, and its version. `None` of a dry run.
    pub target: Option<ReplayTarget>,
    /// `key`, `table` or `none`.
    pub order: String,
    /// The recorded time's multiple; `None` is as fast as possible.
    pub speed: Option<f64>,
    /// Whether all of the plan was replayed.
    pub complete: bool,
    /// The reason for an early end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The plan.
    pub planned: ReplayPlanned,
    /// The replay; `None` for a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<ReplayDone>,
}

/// The server that was replayed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayTarget {
    /// Its connection string without secrets.
    pub dsn: String,
    /// `server_version`.
    pub version: String,
}

/// The content of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayPlanned {
    /// From the first entry to the last one, in seconds.
    pub length_s: f64,
    /// Sessions with at least one statement.
    pub sessions: u64,
    /// The most sessions that were open at the same time.
    pub sessions_open_max: u64,
    /// Statements, and groups of them with one Sync.
    pub steps: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Statements that are not executed, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Waits of a statement for another session's.
    pub edges: u64,
    /// Statements that wait for all transactions before theirs: DDL, functions of unknown effect.
    pub barriers: u64,
    /// Pairs of statements on the same rows of which the log leaves open which came first, or whether the
    /// later one saw the other's rows.
    pub uncertain_pairs: u64,
    /// Statements whose results need not be those that were logged, by why: functions such as `nextval` and
    /// `now`, and `skip locked`. Empty in older records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unrepeatable: BTreeMap<String, u64>,
    /// Statements that failed when they were logged, by code.
    pub failed: BTreeMap<String, u64>,
    /// How long statements took when they were logged, in milliseconds.
    pub latency_ms: Option<ReplayQuantiles>,
    /// The same as a histogram. Empty without durations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<ReplayLatencyCount>,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDone {
    /// From the first connection to the last statement's end, in seconds.
    pub run_s: f64,
    /// Connections that were made.
    pub connections: u64,
    /// Sessions that ended early: connections that could not be made, or broke.
    pub broken_sessions: u64,
    /// Statements that were sent.
    pub statements: u64,
    /// Statements that were not executed, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Statements at the server at the same time: the mean over the run.
    pub concurrency_mean: f64,
    /// Statements at the server at the same time: the most.
    pub concurrency_max: u64,
    /// How long statements took, in milliseconds.
    pub latency_ms: Option<ReplayQuantiles>,
    /// The same as a histogram.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<ReplayLatencyCount>,
    /// How much later than due statements were sent, in milliseconds. `None` at full speed.
    pub lateness_ms: Option<ReplayQuantiles>,
    /// Seconds from sessions' begin to their end, added up.
    #[serde(default)]
    pub sessions_s: f64,
    /// Seconds that all sessions together waited until a statement was due.
    #[serde(default)]
    pub due_wait_s: f64,
    /// Seconds that all sessions together waited for others' statements, to keep the order.
    pub order_wait_s: f64,
    /// Waits that were given up, since they led in a circle.
    pub order_breaks: u64,
    /// The first of them.
    pub breaks: Vec<OrderBreak>,
    /// Statements that failed as they had failed when they were logged.
    pub expected_errors: u64,
    /// Statements that failed and had not failed, or had failed otherwise.
    pub unexpected_errors: u64,
    /// Statements that had failed and did not.
    pub missing_errors: u64,
    /// Transactions that were begun again, as clients do, after a failure of serialization or a deadlock that
    /// they did not have when they were logged.
    #[serde(default)]
    pub retried: u64,
    /// The first divergences.
    pub divergences: Vec<ReplayDivergence>,
    /// CPU time of the replaying process, in seconds.
    pub client_cpu_s: f64,
    /// CPUs that the replaying process may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpus: Option<u64>,
    /// The bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<ReplayBottleneck>,
    /// The tables that were to be compared, when all was replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<ReplayTable>,
}

/// The reason of a statement that is not replayed since it failed in a way that need not come again.
pub const FAILED_WHEN_LOGGED: &str = "failed for a lock, serialization or cancel";
/// The reason of a statement that is not replayed since its transaction had failed before it.
pub const AFTER_FAILURE: &str = "its transaction had failed";

impl ReplayDone {
    /// Statements that had an effect when they were logged, and were not replayed.
    pub fn missing(&self) -> u64 {
        let without_effect = [FAILED_WHEN_LOGGED, AFTER_FAILURE];
        let missing =
            self.skipped.iter().filter(|(why, _)| !without_effect.contains(&why.as_str()));
        missing.map(|(_, count)| *count).fold(0, u64::saturating_add)
    }
}

/// The state of a table behind a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayTable {
    /// Its name, as it was given.
    pub name: String,
    /// Columns that are left out.
    pub without: Vec<String>,
    /// Its rows.
    pub rows: u64,
    /// A hash of its rows in any order: equal states have equal hashes, on any server.
    pub hash: String,
    /// The rows that it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_rows: Option<u64>,
    /// The hash that it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_hash: Option<String>,
    /// Whether it is as it should be; `None` where there was nothing to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<bool>,
}

/// Quantiles of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayQuantiles {
    /// How many there are.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half are not longer.
    pub median: f64,
    /// 95 % are not longer.
    pub p95: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Statements that took so long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayLatencyCount {
    /// Longer than the entry before, and not longer than this many milliseconds. `None`: any longer ones.
    pub up_to_ms: Option<f64>,
    /// How many.
    pub statements: u64,
}

/// The longest wait of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayBottleneck {
    /// For statements' times: it kept up with the recorded work.
    Pace,
    /// For the server.
    Server,
    /// For other sessions' statements, to keep the order.
    Order,
    /// For the replaying process itself.
    Replayer,
}

/// A wait that was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderBreak {
    /// The number of the step that was let go.
    pub step: u64,
    /// The statement without its values.
    pub statement: String,
    /// The number of the step that it should have waited for.
    pub waited_for: Option<u64>,
    /// That statement without its values.
    pub waited_for_statement: Option<String>,
    /// The reason, in a sentence.
    pub reason: String,
}

/// A statement that ended otherwise than when it was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDivergence {
    /// The statement without its values.
    pub statement: String,
    /// The code that it failed with when it was logged.
    pub logged: Option<String>,
    /// The code that it failed with now.
    pub now: Option<String>,
    /// How often.
    pub count: u64,
}
