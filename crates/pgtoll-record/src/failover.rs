//! Failovers of topologies, repeated: how long clients had no service, and what they lost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClientTimeline, Host, JudgedEvent};

/// The version of the form of a [`FailoverRecord`].
pub const FAILOVER_SCHEMA: &str = "pgtoll.failover/1";

/// Failovers of a primary and a standby: for each fault, each engine and each of its settings, what
/// clients saw, run by run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailoverRecord {
    /// [`FAILOVER_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// Version and origin of the servers.
    pub server: String,
    /// Failover managers, and what is used beside them, with their versions.
    pub engines: Vec<String>,
    /// The machine.
    pub host: Host,
    /// The planned runs.
    pub design: FailoverDesign,
    /// The servers' settings that are not defaults.
    pub settings: BTreeMap<String, String>,
    /// Each engine: its programs, the way in, its settings. Empty in records from before there was more
    /// than repmgr.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<EngineTopology>,
    /// Each run, in the order in which they were done.
    pub runs: Vec<FailoverRun>,
    /// Faults that could not be made on this machine, or that an engine has no answer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedFault>,
    /// All runs were done, but for those of [`skipped`](Self::skipped) faults.
    pub complete: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A fault that could not be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedFault {
    /// The fault.
    pub fault: FailoverFault,
    /// The engine beside which it could not; `None`: beside none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<FailoverEngine>,
    /// It would be the same on any machine: the engine, or the lab beside it, does not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_nature: bool,
    /// The reason, in a sentence.
    pub reason: String,
}

/// A failover manager, what is used beside it, and how it is set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineTopology {
    /// The failover manager.
    pub engine: FailoverEngine,
    /// Its programs with their versions, those of others that it needs included.
    pub versions: Vec<String>,
    /// How clients reach whichever server is the primary.
    pub entry: String,
    /// Its settings that differ between [`FailoverDetector`]s, or are no defaults of its own.
    pub settings: Vec<EngineSettings>,
}

/// How an engine is set up for one of the [`FailoverDetector`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EngineSettings {
    /// Under which name.
    pub detector: FailoverDetector,
    /// By the names that the engine's own documentation has.
    pub values: BTreeMap<String, String>,
}

/// The planned runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command")]
pub struct FailoverDesign {
    /// The faults of the primary.
    pub faults: Vec<FailoverFault>,
    /// The failover managers.
    #[serde(default = "repmgr_alone", skip_serializing_if = "is_repmgr_alone")]
    pub engines: Vec<FailoverEngine>,
    /// How they are set up.
    pub detectors: Vec<FailoverDetector>,
    /// Whether commits wait for the standby (`synchronous_standby_names`).
    pub synchronous: bool,
    /// Runs of each fault with each engine and each of its settings.
    pub runs: u32,
    /// Clients that write, a connection each.
    pub clients: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// Whether the same fault happens to the new primary afterwards, when the old one has returned.
    #[serde(default)]
    pub fail_back: bool,
    /// Poolers between clients and servers; clients know all of them.
    #[serde(default = "one")]
    pub bouncers: u32,
    /// Whether there is a witness, on the primary's side of the link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub witness: bool,
    /// Whether there is a second standby, which is never promoted and has WAL sooner than the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub third_node: bool,
}

/// The value for records from before there could be more.
fn one() -> u32 {
    1
}

/// The value for records from before there could be others.
fn repmgr_alone() -> Vec<FailoverEngine> {
    vec![FailoverEngine::Repmgr]
}

fn is_repmgr_alone(engines: &[FailoverEngine]) -> bool {
    engines == [FailoverEngine::Repmgr]
}

/// The failover manager of the servers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailoverEngine {
    /// repmgr, with PgBouncer in front.
    #[default]
    Repmgr,
    /// Patroni with etcd, and `HAProxy` in front.
    Patroni,
    /// `pg_auto_failover`, whose clients know all servers.
    PgAutoFailover,
    /// Nobody promotes the standby; clients know both servers.
    None,
}

impl FailoverEngine {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Patroni, Self::PgAutoFailover, Self::Repmgr, Self::None];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Repmgr => "repmgr",
            Self::Patroni => "patroni",
            Self::PgAutoFailover => "pg_auto_failover",
            Self::None => "none",
        }
    }

    /// As its authors write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Repmgr => "repmgr",
            Self::Patroni => "Patroni",
            Self::PgAutoFailover => "pg_auto_failover",
            Self::None => "no failover manager",
        }
    }

    /// The settings that it has.
    pub fn detectors(self) -> &'static [FailoverDetector] {
        match self {
            Self::Repmgr => &FailoverDetector::ALL,
            Self::Patroni | Self::PgAutoFailover => {
                &[FailoverDetector::Default, FailoverDetector::Fast]
            }
            Self::None => &[FailoverDetector::None],
        }
    }
}

/// A fault, of the primary unless it says otherwise.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailoverFault {
    /// All processes of its host stop at once, then are killed: the server, and the engine beside it.
    HostDeath,
    /// SIGKILL to the postmaster alone.
    Postmaster,
    /// All processes of its host are stopped, and continue after the standby was promoted.
    Freeze,
    /// The link between both servers is cut: replication, and what repmgrd of the standby sees. The
    /// primary lives and clients reach it, as do etcd or a monitor.
    LinkCut,
    /// The primary's host is cut off from the standby's, with clients on both sides: all packets between
    /// them vanish, for a time.
    Partition,
    /// The volume of the primary's WAL is full.
    WalFull,
    /// Writes to the primary's disk wait, and continue when the standby was promoted, or after a limit.
    IoFreeze,
    /// The standby's host dies; with synchronous replication nobody confirms commits then.
    StandbyDeath,
    /// A handover by plan: clients wait, the primary is shut down, the standby promoted.
    Switchover,
    /// A handover by plan while another receiver of the primary's WAL has hung: the primary waits for it
    /// when it is shut down.
    WalsenderHang,
}

impl FailoverFault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::HostDeath,
        Self::Postmaster,
        Self::Freeze,
        Self::LinkCut,
        Self::Partition,
        Self::WalFull,
        Self::IoFreeze,
        Self::StandbyDeath,
        Self::Switchover,
        Self::WalsenderHang,
    ];

    /// Whether the standby is to be promoted by plan.
    pub fn is_handover(self) -> bool {
        matches!(self, Self::Switchover | Self::WalsenderHang)
    }

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostDeath => "host-death",
            Self::Postmaster => "postmaster",
            Self::Freeze => "freeze",
            Self::LinkCut => "link-cut",
            Self::Partition => "partition",
            Self::WalFull => "wal-full",
            Self::IoFreeze => "io-freeze",
            Self::StandbyDeath => "standby-death",
            Self::Switchover => "switchover",
            Self::WalsenderHang => "walsender-hang",
        }
    }
}

/// How an engine is set up, which decides when it notices that the primary is gone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailoverDetector {
    /// The engine's defaults.
    Default,
    /// The shortest times that the engine takes.
    Fast,
    /// Nobody notices. With repmgr, the promotion begins as the fault does: the floor of every failover
    /// manager. Without an engine, the standby is not promoted while clients are watched.
    None,
}

impl FailoverDetector {
    /// All of them, the slowest first.
    pub const ALL: [Self; 3] = [Self::Default, Self::Fast, Self::None];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fast => "fast",
            Self::None => "none",
        }
    }

    /// `monitor_interval_secs`, `reconnect_attempts` and `reconnect_interval` of `repmgr.conf`; `None`
    /// without repmgrd.
    pub fn repmgr_timers(self) -> Option<[u32; 3]> {
        match self {
            Self::Default => Some([2, 6, 10]),
            Self::Fast => Some([1, 1, 1]),
            Self::None => None,
        }
    }
}

/// A run: new servers, a fault under load, and the old primary's return as a standby. Times in
/// seconds (`_s`) count from the begin of the fault, unless said otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailoverRun {
    /// The fault of the primary.
    pub fault: FailoverFault,
    /// The failover manager.
    #[serde(default, skip_serializing_if = "is_repmgr")]
    pub engine: FailoverEngine,
    /// How it was set up.
    pub detector: FailoverDetector,
    /// The run's number for this fault, engine and settings, from 1.
    pub number: u32,
    /// Transactions acknowledged.
    pub acknowledged: u64,
    /// Transactions that failed for certain.
    pub failed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Unknown transactions that are present in the end.
    pub recovered: Option<u64>,
    /// Acknowledged, and absent in the end; `None` where the final set could not be read.
    pub lost: Option<u64>,
    /// Lost transactions that were acknowledged before the fault.
    pub lost_before: Option<u64>,
    /// How long before the fault the earliest of the lost was acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_lost_s: Option<f64>,
    /// Present though failed for certain, never sent, or present twice: 0, or pgtoll is wrong.
    pub impossible: Option<u64>,
    /// Acknowledged by the old primary after the new one had acknowledged: a split brain that clients
    /// saw.
    pub after_successor: u64,
    /// Old and new primary both took writes at the end.
    pub two_primaries: bool,
    /// The longest time without an acknowledgement to any client (a duration).
    pub outage_s: Option<f64>,
    /// No acknowledgement ended the outage.
    #[serde(default)]
    pub outage_open: bool,
    /// When the lab itself ended the outage, since no engine would: [`outage_s`](Self::outage_s) is a
    /// lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by_hand_s: Option<f64>,
    /// When the engine noticed, on the standby's side.
    pub noticed_s: Option<f64>,
    /// When the standby was promoted.
    pub promoted_s: Option<f64>,
    /// When the pooler or proxy led to it; `None` also where clients know all servers.
    pub routed_s: Option<f64>,
    /// The old primary took writes again where it was: the engine, or the server itself, restarted it,
    /// and no standby was promoted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted_in_place: bool,
    /// The steps that the engine and the promotion hook reported.
    pub steps: Vec<JudgedEvent>,
    /// The outcome of a partition's sides; `None` for other faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionOutcome>,
    /// The return of the old primary, or of the standby that died; `None` where it was not tried.
    pub rejoin: Option<FailoverRejoin>,
    /// The second standby after the promotion of the first; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third: Option<ThirdNode>,
    /// `synchronous_standby_names` on the promoted server, at the end of the load; `None` where no
    /// standby was promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_names: Option<String>,
    /// How often a repmgrd had ended by itself and was started again.
    #[serde(default)]
    pub daemon_restarts: u32,
    /// The machine's load average over the minute before the run; `None` where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Each client over time; `None` in records from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<ClientTimeline>,
    /// The second failover, back to the server that had been the primary; `None` where it was not asked
    /// for, or could not be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Box<FailoverRun>>,
    /// Findings about the topology, a sentence each.
    pub findings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_repmgr(engine: &FailoverEngine) -> bool {
    *engine == FailoverEngine::Repmgr
}

/// The outcome of both sides of a partition. Times count from its begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionOutcome {
    /// When it was healed; `None` where the run ended before.
    pub healed_s: Option<f64>,
    /// When the old primary stopped taking writes; `None` where it went on.
    pub old_primary_ended_s: Option<f64>,
    /// An administrator stopped it, since the engine would not: the lab, after the partition was healed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_by_hand: bool,
    /// How long both servers took writes (a duration): from when the promoted standby did until the old
    /// primary did no more, or until the end of the load. `None` where no standby was promoted.
    pub two_primaries_s: Option<f64>,
    /// The primary's side, and the standby's.
    pub sides: Vec<PartitionSide>,
}

/// The clients on one side of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionSide {
    /// `primary's side`, `standby's side`.
    pub name: String,
    /// How many clients it has.
    pub clients: u32,
    /// Transactions that were acknowledged to them since the partition began.
    pub acknowledged: u64,
    /// The part acknowledged to them that is absent in the end. `None` where the final set could not be
    /// read.
    pub lost: Option<u64>,
    /// The longest time without an acknowledgement to any of them (a duration).
    pub outage_s: Option<f64>,
    /// No acknowledgement ended the outage.
    #[serde(default)]
    pub outage_open: bool,
}

/// The old primary's return as a standby of the new one, by `pg_rewind`; or the return of a standby that
/// died.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailoverRejoin {
    /// From the decision to bring it back until it streams (a duration); `None` where it did not return.
    pub seconds: Option<f64>,
    /// Why it did not return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Pages that were verified afterwards; `None` where that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// The unsound part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsound: Option<u64>,
    /// When each step was done, from the begin of the return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<JudgedEvent>,
}

/// A standby beside the one that was promoted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThirdNode {
    /// WAL that it had received behind the place where the new primary's timeline begins (bytes): what the
    /// new primary does not have. `None` where that is unknown.
    pub past_fork_bytes: Option<u64>,
    /// The message of repmgr when it refused to let it follow the new primary (`repmgr standby follow`);
    /// `None` where it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Its return by `pg_rewind`; `None` where it was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin: Option<FailoverRejoin>,
}
