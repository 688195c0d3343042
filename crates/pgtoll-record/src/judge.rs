//! An application's view of a server, or of a cluster of servers, during a disturbance.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of a [`JudgeRecord`].
pub const JUDGE_SCHEMA: &str = "pgtoll.judge/1";

/// The observations of an application: clients wrote transactions with ids of their own, and the ids that are
/// there in the end were compared with the clients' journals.
///
/// Times in seconds (`_s`) count from the begin of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeRecord {
    /// [`JUDGE_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that judges again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// The server, or the way to the servers.
    pub server: JudgedServer,
    /// The planned load of the clients.
    pub design: JudgeDesign,
    /// When the run began (RFC 3339).
    pub began: String,
    /// From the begin of the run to the last client's end.
    pub seconds: f64,
    /// Why the run ended before its time; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The fault; `None` if pgtoll caused none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<JudgedFault>,
    /// The events, in time order.
    pub events: Vec<JudgedEvent>,
    /// The outcome of the transactions, as the clients saw it.
    pub transactions: TransactionCounts,
    /// The verdict by the ids that are present in the end; `None` if they could not be read.
    pub verdict: Option<JudgeVerdict>,
    /// The longest time without an acknowledgement to any client.
    pub outage: Option<AcknowledgementGap>,
    /// The clients of each side, in the order of [`JudgeDesign::sides`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<JudgedSide>,
    /// Each client.
    pub clients: Vec<JudgedClient>,
    /// Length of a bin of [`JudgedClient::line`].
    pub bin_s: f64,
    /// Errors by kind, the most frequent first; of very many kinds the first ones.
    pub errors: Vec<SeenError>,
    /// The servers that answered, in the order in which they did first.
    pub nodes: Vec<JudgedNode>,
    /// The observations of readers; `None` without readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadChecks>,
    /// The directory of the journals; `None` if they were not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// Findings about the server, a sentence each.
    pub findings: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The server that was judged, as it was at the begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedServer {
    /// The connection string, without secrets.
    pub dsn: String,
    /// Its version, as `server_version` has it.
    pub version: String,
    /// Settings on which losses depend, as `SHOW` has them.
    pub settings: BTreeMap<String, String>,
}

/// The planned load of the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeDesign {
    /// Clients that write, a connection each.
    pub clients: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// Four fifths of them fall due within a quarter of the time; else all at even distances.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bursts: bool,
    /// How long transactions fall due.
    pub seconds: f64,
    /// How long each client may take to be served again afterwards.
    pub heal_limit_s: f64,
    /// How long connecting may take for each host.
    pub connect_timeout_s: f64,
    /// How long a client waits for a reply; `None`: as long as the run lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_timeout_s: Option<f64>,
    /// A transaction that takes longer than this from its due time has waited.
    pub wait_limit_s: f64,
    /// Clients that read, a connection each.
    #[serde(default)]
    pub readers: u32,
    /// The sides from which clients come in, which take them in turn. Empty: there is one way in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<String>,
    /// The schema that was made for the run.
    pub schema_name: String,
}

/// A fault that was caused on purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedFault {
    /// The command line, or the fault's name.
    pub what: String,
    /// When it began.
    pub began_s: f64,
    /// When it ended; `None` where it still ran when the record was made.
    pub ended_s: Option<f64>,
    /// How it ended, in words; `None` where it still ran.
    pub status: Option<String>,
    /// It ended as it should.
    pub success: bool,
    /// The end of what it printed.
    pub output: String,
}

/// Something that happened during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedEvent {
    /// Seconds since the run began.
    pub at_s: f64,
    /// A description in a few words.
    pub what: String,
}

/// Transactions by what became of them, as the clients saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransactionCounts {
    /// They fell due.
    pub due: u64,
    /// A client began with them: each is in a journal.
    pub begun: u64,
    /// `COMMIT` was acknowledged, with or without a standby's confirmation.
    pub acknowledged: u64,
    /// Acknowledged transactions with the warning that the wait for synchronous standbys was cancelled.
    pub unreplicated: u64,
    /// Failed for certain: an error before `COMMIT` was sent, or a rollback.
    pub failed: u64,
    /// Failed transactions without a connection.
    pub refused: u64,
    /// `COMMIT` was sent, and no definite answer came: an error, a lost connection, a time-out, or
    /// the end of the run.
    pub unknown: u64,
    /// Unknown transactions without a reply within the clients' limit.
    pub timed_out: u64,
    /// Unknown transactions whose client still waited when the run ended.
    pub hung: u64,
    /// Acknowledged later than the wait limit after they fell due.
    pub waited: u64,
    /// Neither waited nor failed nor unknown.
    pub unaffected: u64,
    /// Fell due, but no client came to begin with them.
    pub unsent: u64,
    /// Begun later than the wait limit after they fell due, since their client was busy.
    pub late: u64,
    /// Median time from due to acknowledged, in ms; `None` without acknowledgements.
    pub p50_ms: Option<f64>,
    /// Time that 99 % of the acknowledged did not exceed, in ms.
    pub p99_ms: Option<f64>,
    /// The longest time, in ms.
    pub max_ms: Option<f64>,
}

/// The verdict by the ids that are present in the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeVerdict {
    /// The server on which the ids were read.
    pub read_on: NodeIdentity,
    /// Rows that were read.
    pub rows: u64,
    /// Acknowledged, and absent.
    pub lost: LostTransactions,
    /// Unknown, and present: committed without the client's knowledge.
    pub recovered: IdSet,
    /// Failed for certain, and present.
    pub ghosts: IdSet,
    /// Present, and never sent, or with another payload than was sent.
    pub phantoms: IdSet,
    /// Present more than once: somebody between client and server sent them again.
    pub duplicates: IdSet,
}

/// Transactions that were acknowledged, and are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LostTransactions {
    /// How many.
    pub count: u64,
    /// The part that was acknowledged before the fault (without a fault: before the longest outage).
    pub before_fault: u64,
    /// The part that was acknowledged afterwards by a deposed primary.
    pub by_deposed: u64,
    /// The part that was acknowledged afterwards by the last primary, or by an unknown one.
    pub by_survivor: u64,
    /// The part in any of the three that was acknowledged with the warning that synchronous standbys were not
    /// awaited.
    pub unreplicated: u64,
    /// How long before the fault the earliest of them was acknowledged; `None` where none was before.
    pub oldest_before_s: Option<f64>,
    /// Some of them.
    pub examples: Vec<TransactionExample>,
}

/// A set of transactions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdSet {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<TransactionExample>,
}

/// A transaction of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransactionExample {
    /// The client, from 0.
    pub client: u64,
    /// Its transaction, from 0.
    pub sequence: u64,
    /// When the client heard of it last; `None` where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_s: Option<f64>,
    /// The index in [`JudgeRecord::nodes`] of the server that acknowledged it; `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// Time without an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcknowledgementGap {
    /// When the last acknowledgement before it came, or the run began.
    pub began_s: f64,
    /// How long it lasted.
    pub seconds: f64,
    /// No acknowledgement ended it.
    pub open: bool,
}

/// Clients that come in from the same side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedSide {
    /// Its name in the design.
    pub name: String,
    /// How many clients it has.
    pub clients: u32,
    /// Transactions that were acknowledged to them.
    pub acknowledged: u64,
    /// The part since the fault began.
    pub acknowledged_since_fault: u64,
    /// The longest time without an acknowledgement to any of them.
    pub outage: Option<AcknowledgementGap>,
    /// Acknowledged, and absent in the end; `None` where the final set could not be read.
    pub lost: Option<u64>,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedClient {
    /// Transactions that it began.
    pub begun: u64,
    /// Acknowledged ones.
    pub acknowledged: u64,
    /// Acknowledged transactions that had waited.
    pub waited: u64,
    /// Transactions that failed for certain.
    pub failed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Its longest time without an acknowledgement.
    pub outage: Option<AcknowledgementGap>,
    /// It still waited for a reply when the run ended.
    pub hung: bool,
    /// How long after the end of the load, or of the fault, it was served again; `None`: not within
    /// the limit.
    pub healed_s: Option<f64>,
    /// Its observations, a letter for each bin of [`JudgeRecord::bin_s`]: `s` served, `w` waiting, `e` an
    /// error, `.` nothing was due.
    pub line: String,
}

/// Each client over the time of a run, for a picture. Times in seconds (`_s`) count from the begin of
/// the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientTimeline {
    /// From the begin of the run to the last client's end.
    pub seconds: f64,
    /// Length of a bin of [`ClientTimeline::clients`].
    pub bin_s: f64,
    /// A line for each client, as in [`JudgedClient::line`].
    pub clients: Vec<String>,
    /// The events, in time order.
    pub events: Vec<JudgedEvent>,
}

/// A kind of error that clients saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenError {
    /// The SQLSTATE, or `connection` for what no server reported.
    pub code: String,
    /// One client's words for it.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// The server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeIdentity {
    /// The server's own address; empty over a Unix socket.
    pub address: String,
    /// The server's `port`.
    pub port: String,
    /// The server's `cluster_name`; may be empty.
    pub cluster_name: String,
    /// When its postmaster started, as the server writes it in UTC.
    pub started: String,
    /// The timeline that it wrote; `None` where it does not say.
    pub timeline: Option<u32>,
}

/// A server that answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgedNode {
    /// Its number or name.
    pub identity: NodeIdentity,
    /// Transactions that it acknowledged.
    pub acknowledged: u64,
    /// When it acknowledged first.
    pub first_s: Option<f64>,
    /// When it acknowledged last.
    pub last_s: Option<f64>,
    /// Another primary has taken its place: a later timeline, or another address.
    pub deposed: bool,
    /// Acknowledged after a primary of a later timeline had acknowledged: a split brain.
    pub after_successor: u64,
}

/// The observations of readers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadChecks {
    /// The readers' connection string, without secrets; `None`: the writers' one.
    pub dsn: Option<String>,
    /// Reads that were answered.
    pub reads: u64,
    /// Reads that failed.
    pub failed: u64,
    /// Reads that lacked a transaction which had been acknowledged before they were sent
    /// (read-your-writes).
    pub stale: u64,
    /// Transactions that the stalest of them lacked.
    pub stalest_transactions: u64,
    /// Reads that lacked what an earlier read of the same reader had seen (monotonic reads).
    pub backwards: u64,
    /// The probe for Long Fork; `None` where it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_fork: Option<LongForkProbe>,
}

/// Two transactions of two writers, seen in different orders on two servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LongForkProbe {
    /// Pairs that were written.
    pub pairs: u64,
    /// Pairs of which one server showed only one transaction at some time.
    pub half_seen: u64,
    /// Pairs of which the writers' server showed only one, and the readers' only the other.
    pub forks: u64,
}
