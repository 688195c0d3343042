//! A run's record, `run.jsonl`.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_format::{Lsn, ServerVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Expectation, Latencies, Metric, ShapePlans, WalAmount};

/// The version of the record's form. A reader takes what it knows and passes over fields and
/// lines that it does not know; the number grows when that is not enough.
pub const RECORD_SCHEMA: &str = "pgtoll.record/2";

/// A line of a run's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Line {
    /// The first line: what was run, where, with what.
    Header(Box<Header>),
    /// An arm of the header that was not measured.
    Skipped(SkippedArm),
    /// The clusters are ready.
    Prepared(Prepared),
    /// A round begins: every server was restarted.
    Round(RoundBegin),
    /// One arm's turn.
    Slice(Slice),
    /// An arm's counters so far.
    Sample(CounterReading),
    /// A round ended; totals of each arm over the whole round.
    RoundEnd(RoundEnd),
    /// An arm did a fixed number of transactions: its exact counters.
    Counted(Counted),
    /// The predicted WAL of an arm, from that of another.
    Predicted(Predicted),
    /// An arm did one long operation.
    Operation(Operation),
    /// How often a function was found running in an arm's server.
    Profile(Profile),
    /// Something that a reader of the results has to know.
    Note(Note),
    /// The last line.
    End(End),
}

/// The run, its machine and its servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// The kind of record: `run`.
    pub kind: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes this again, seed included.
    pub command: Vec<String>,
    /// When it began (RFC 3339).
    pub started: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// The server.
    pub server: Server,
    /// The run's own name (`--name`), which distinguishes its metrics and reports from others'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The experiment's name.
    pub experiment: String,
    /// The question it asks.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// The compared arms.
    pub arms: Vec<Arm>,
    /// The workloads, in the order of the report.
    pub workloads: Vec<Workload>,
    /// How slices and operations lie.
    pub design: Design,
    /// Calibrations from earlier runs on this machine; empty: it was not calibrated.
    #[serde(default)]
    pub calibration: Vec<Calibration>,
    /// Expectations before the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
}

/// How much wider than they claim a metric's intervals have to be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// The metric.
    pub metric: Metric,
    /// κ, the factor by which half-widths are multiplied; at least 1.
    #[serde(rename = "kappa")]
    pub widening: f64,
    /// Comparisons of an arm with its twin that it comes from.
    pub comparisons: u32,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// `uname`: system, release, architecture.
    pub kernel: String,
    /// The CPU's model name.
    pub cpu: String,
    /// Logical CPUs that this process may use.
    pub cores: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The clusters' file system: type, device and mount options.
    pub file_system: String,
    /// The hypervisor, where the CPU tells that there is one.
    pub hypervisor: bool,
    /// Transparent huge pages: the chosen one of `always`, `madvise`, `never`.
    pub transparent_huge_pages: Option<String>,
    /// The CPU frequency governor.
    pub governor: Option<String>,
    /// How the kernel tells user time from system time: `exact`, or `sampled`, which is good for
    /// sums of many seconds only.
    #[serde(default)]
    pub cpu_split: String,
}

impl Header {
    /// Returns the versions of the servers, each once: `17.10 and 18.6`.
    pub fn versions(&self) -> String {
        let mut versions: Vec<String> = Vec::new();
        for arm in &self.arms {
            let version =
                arm.server.as_ref().map_or(&self.server.version, |server| &server.version);
            let version = version.to_string();
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        if versions.is_empty() { self.server.version.to_string() } else { versions.join(" and ") }
    }
}

/// The server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Its version.
    #[schemars(with = "String")]
    pub version: ServerVersion,
    /// `named`, `installed` or `embedded`.
    pub origin: String,
    /// The operating system's user that it ran as.
    pub user: String,
    /// The settings of every arm, apart from the defaults.
    pub settings: BTreeMap<String, String>,
}

/// One of the configurations that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// Data checksums are on.
    pub checksums: bool,
    /// Settings that only this arm has.
    pub settings: BTreeMap<String, String>,
    /// The values of `${name}` in its steps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// For a null arm: the arm that it is a copy of, without any difference.
    pub twin_of: Option<String>,
    /// An arm that it is also compared with: of a ladder's rungs the one below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Its own server; `None`: the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ArmServer>,
}

/// A server that an arm has of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmServer {
    /// Its version.
    #[schemars(with = "String")]
    pub version: ServerVersion,
    /// `named`, `installed` or `embedded`.
    pub origin: String,
    /// The directory of its programs.
    pub bin: String,
}

/// The work of the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// The work.
    pub work: Work,
    /// Settings of every arm under this workload.
    pub settings: BTreeMap<String, String>,
    /// Slices or repetitions of it were planned; else it was only counted.
    pub timed: bool,
    /// How its slices lie; `None` for operations.
    pub slicing: Option<Slicing>,
    /// Memory that each arm's server might use, page cache included; `None`: no limit.
    pub memory_limit_bytes: Option<u64>,
}

/// How the slices of a workload lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slicing {
    /// A slice's length, in ns. Slices of scripts that write have as many transactions as fit into
    /// it in the slowest arm.
    pub slice_ns: u64,
    /// Work before each slice that is not counted, in ns.
    pub lead_in_ns: u64,
    /// Blocks a round, fewer where time was short; each arm has one slice a block, in random order.
    pub blocks_per_round: u32,
    /// Blocks at a round's start that are not counted.
    pub warm_up_blocks: u32,
    /// Within a round the sessions of all arms, and pgtoll's client, are held on the same CPU; those of
    /// several clients and of programs are free. `None`: in records before this was kept, where
    /// [`Design::one_cpu`] says so for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_cpu: Option<bool>,
}

fn one() -> u32 {
    1
}

impl Slicing {
    /// How long a block of this many arms takes, lead-ins included.
    pub fn block(&self, arms: usize) -> Duration {
        let slice = Duration::from_nanos(self.slice_ns.saturating_add(self.lead_in_ns));
        slice.saturating_mul(u32::try_from(arms).unwrap_or(u32::MAX))
    }
}

/// The work of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Transactions of scripts.
    Script {
        /// The scripts, in pgbench's language; each transaction runs one of them.
        scripts: Vec<ScriptText>,
        /// Transactions a second that were asked for, of all clients together, at random times (open
        /// loop); `None`: each begins when the client's last one ended (closed loop).
        rate: Option<f64>,
        /// Transactions in the counted pass, by one client.
        counted: u64,
        /// Clients that work at the same time.
        #[serde(default = "one")]
        clients: u32,
    },
    /// A program that makes the load, stopped and continued by signals.
    Command {
        /// The shell's command.
        command: String,
    },
    /// One action, after those before it on a fresh copy of the arm.
    Operation {
        /// The statement, pgbench's initialisation step, or the like.
        action: String,
        /// Details of it; `None` for statements and pgbench's steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<OperationOf>,
        /// The arms do it at the same time, in turns of this length in ns, while the others'
        /// servers are suspended; `None`: one after the other, each in one piece.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_ns: Option<u64>,
    },
}

impl Work {
    /// Its figures are per transaction; else those of operations.
    pub fn is_of_transactions(&self) -> bool {
        match self {
            Self::Script { .. } | Self::Command { .. } => true,
            Self::Operation { of: item, .. } => matches!(item, Some(OperationOf::Script { .. })),
        }
    }
}

/// Operations that are more than a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationOf {
    /// A program, run to its end.
    Program,
    /// The recovery after all of the server's processes were killed.
    Recovery,
    /// Transactions of scripts, by clients that work at the same time.
    Script {
        /// The scripts, in pgbench's language; each transaction runs one of them.
        scripts: Vec<ScriptText>,
        /// How many clients.
        clients: u32,
        /// Transactions of each client; `None`: they worked for a time.
        transactions: Option<u64>,
        /// How long they worked, in ns; `None`: until the transactions were done.
        time_ns: Option<u64>,
        /// Transactions a second that were asked for, of all clients together (open loop); `None`:
        /// each begins when the client's last one ended (closed loop).
        rate: Option<f64>,
        /// The program that ran beside them.
        beside: Option<String>,
    },
}

/// A script of a mix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptText {
    /// pgbench's name of a built-in script, or the file's name.
    pub name: String,
    /// How often it runs, relative to the others.
    pub weight: u32,
    /// Its text; `None` for a built-in one.
    pub text: Option<String>,
}

/// How rounds and repetitions lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Rounds that were planned; all servers restart for each.
    pub rounds: u32,
    /// Repetitions of each operation. In each, an arm does it twice: all arms in a random order and
    /// then in the reverse order, or, where they take turns, all arms together and then again.
    pub repetitions: u32,
    /// pgbench's scale factor of the data.
    pub scale: u32,
    /// All arms are one cluster, whose settings change between slices; else each has a cluster of
    /// its own.
    #[serde(default)]
    pub crossover: bool,
    /// Within a round, or a start of operations, the sessions of all arms work on the same CPU, and
    /// so does pgtoll's client; see [`Slicing::one_cpu`] for those of several clients.
    #[serde(default)]
    pub one_cpu: bool,
    /// Half-width of an interval that its user called precise enough, 0.01 for 1 %: rounds end at it,
    /// and intervals within it are resolved; `None`: nothing was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<f64>,
    /// Rows of the loaded data were frozen before the copies were made, so that reads set no hint
    /// bits; false in records before this was kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows_frozen: bool,
}

/// An arm that was not measured, since the server cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedArm {
    /// Its name.
    pub arm: String,
    /// The reason, in a sentence.
    pub reason: String,
}

/// The clusters are ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prepared {
    /// The server's full version text, `SELECT version()`.
    pub version_text: String,
    /// Bytes of each arm's data directory.
    pub data_bytes: u64,
    /// Settings of every server that are not the default, and how it does I/O, as a server with the
    /// experiment's settings shows them; arms and workloads have more. Empty in records before this
    /// was kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The builds of the servers, where arms have servers of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<ArmBuild>,
    /// The statements of scripts for which an arm's server has another generic plan than the baseline's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanDifference>,
}

/// A statement for which two servers have different plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDifference {
    /// The arm.
    pub arm: String,
    /// The name of the workload.
    pub workload: String,
    /// The statement, with `$1` for the first variable.
    pub statement: String,
    /// Both plans.
    pub plans: ShapePlans,
}

/// The build of an arm's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmBuild {
    /// The arm.
    pub arm: String,
    /// The server's full version text, `SELECT version()`.
    pub version_text: String,
    /// The arguments of `configure` or of meson, as `pg_config` has them.
    pub configure: Option<String>,
    /// The compiler's flags.
    pub cflags: Option<String>,
    /// Bytes of `postgres`.
    pub postgres_bytes: u64,
    /// SHA-256 of `postgres`, in hexadecimal.
    pub postgres_sha256: String,
    /// Settings that differ from the baseline's as shipped, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differing: BTreeMap<String, ShippedValues>,
    /// Settings that the arm was given, with the values that the experiment's `settings_of` ships.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<String, String>,
}

/// A setting's values as two servers ship it; `null` where a server has no such setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShippedValues {
    /// The baseline's value.
    pub baseline: Option<String>,
    /// The arm's value.
    pub arm: Option<String>,
}

/// A round begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundBegin {
    /// The name of the workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// The order in which the servers started.
    pub start_order: Vec<String>,
}

/// One arm's turn in one block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    /// The name of the workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// Counted from 1 in each round.
    pub block: u32,
    /// Its place in the block, from 1.
    pub position: u32,
    /// The arm.
    pub arm: String,
    /// When it began, in ns since the run began.
    pub start_ns: u64,
    /// How long it took, in ns.
    pub duration_ns: u64,
    /// Transactions that were completed.
    pub transactions: u64,
    /// CPU time of all processes of the arm's server, in ns.
    pub server_cpu_ns: u64,
    /// The part of its I/O workers, in ns; `None` where it has none (before 18, or another
    /// `io_method` than `worker`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_workers_cpu_ns: Option<u64>,
    /// CPU time of pgtoll itself, in ns.
    pub client_cpu_ns: u64,
    /// A server process came or went meanwhile, so the server's CPU time is only exact to the
    /// kernel's tick of 10 ms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processes_changed: bool,
}

/// The counters of an arm since its round began, read between two blocks about every half second
/// and after the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterReading {
    /// The name of the workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// The arm; in a crossover the one cluster that all arms share.
    pub arm: String,
    /// When it was read, in ns since the run began.
    pub at_ns: u64,
    /// How long the arm has worked in this round, lead-ins included, in ns: arms take turns.
    pub worked_ns: u64,
    /// Transactions, those of lead-ins included; 0 where pgtoll does not run them.
    pub transactions: u64,
    /// Bytes of WAL that were made.
    pub wal_bytes: u64,
    /// Reads and writes of the server's processes; `None` if the kernel does not report them.
    pub io: Option<IoBytes>,
}

/// A round ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundEnd {
    /// The name of the workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// Totals of each arm.
    pub arms: Vec<ArmRound>,
    /// Latencies of each arm's transactions in the slices; empty where pgtoll does not run them.
    #[serde(default)]
    pub latencies: Vec<ArmLatencies>,
    /// Other activity on the machine.
    pub noise: NoiseShare,
}

/// Latencies of an arm's transactions over a round or an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmLatencies {
    /// The arm.
    pub arm: String,
    /// Transactions that began later than they were scheduled (open loop).
    pub late: u64,
    /// Half of the transactions took at most this long, in ns; in an open loop since the time for
    /// which they were scheduled.
    pub p50_ns: u64,
    /// 90 % of them.
    pub p90_ns: u64,
    /// 99 % of them.
    pub p99_ns: u64,
    /// 99.9 % of them.
    pub p999_ns: u64,
    /// The slowest, in ns.
    pub max_ns: u64,
    /// Their mean, in ns; `None` in records before this was kept.
    #[serde(default)]
    pub mean_ns: Option<f64>,
    /// Their standard deviation, in ns; `None` in records before this was kept.
    #[serde(default)]
    pub stddev_ns: Option<f64>,
    /// All of them, in ns: a histogram in HDR's form V2, in base64.
    pub histogram: String,
}

impl ArmLatencies {
    /// Makes the latencies of an arm; `None`: it has none.
    pub fn new(arm: &str, late: u64, latencies: &Latencies) -> Option<Self> {
        let quantile = |part| u64::try_from(latencies.quantile(part)?.as_nanos()).ok();
        let (mean_ns, stddev_ns) = latencies.mean_and_stddev_ns()?;
        Some(Self {
            arm: arm.to_owned(),
            late,
            p50_ns: quantile(0.5)?,
            p90_ns: quantile(0.9)?,
            p99_ns: quantile(0.99)?,
            p999_ns: quantile(0.999)?,
            max_ns: quantile(1.0)?,
            mean_ns: Some(mean_ns),
            stddev_ns: Some(stddev_ns),
            histogram: latencies.to_base64(),
        })
    }
}

/// Totals of an arm over a round. Counters cover everything between the first slice's lead-in and
/// the end of the last slice; CPU totals cover the server's life up to there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmRound {
    /// The arm; in a crossover the one cluster that all arms share.
    pub arm: String,
    /// Transactions, those of lead-ins included.
    pub transactions: u64,
    /// Insert position of the WAL at the beginning.
    #[schemars(with = "String")]
    pub wal_from: Lsn,
    /// Insert position of the WAL at the end.
    #[schemars(with = "String")]
    pub wal_to: Lsn,
    /// WAL records (`pg_stat_wal`, 15 and later).
    pub wal_records: Option<u64>,
    /// Full-page images in the WAL (`pg_stat_wal`, 15 and later).
    pub wal_full_page_images: Option<u64>,
    /// Blocks read into shared buffers (15 and later).
    pub blocks_read: Option<u64>,
    /// Data blocks written (15 and later).
    pub blocks_written: Option<u64>,
    /// CPU time of the server from its start to the end of the round, in ns, from its processes'
    /// clocks.
    pub cpu_observed_ns: u64,
    /// CPU time of the server from its start to its end, in ns, as the kernel reported to the process that waited
    /// for it (`wait4`).
    pub cpu_reaped_ns: u64,
    /// The part in the kernel, in ns; see [`Host::cpu_split`].
    #[serde(default)]
    pub cpu_reaped_system_ns: u64,
    /// The disk I/O of the server's processes, from the first slice's lead-in to the end of the
    /// last slice; `None` where the kernel does not tell.
    #[serde(default)]
    pub io: Option<IoBytes>,
    /// Memory that the server used of its limit; `None`: no limit.
    #[serde(default)]
    pub memory: Option<MemoryUse>,
}

/// Bytes that a server's processes read from disks and wrote to files, as `/proc/PID/io` counts
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoBytes {
    /// Read from a disk: not from the page cache.
    pub read: u64,
    /// Given to `write(2)` and its relatives, WAL and data alike. (What the kernel counts as written
    /// to disks is whole folios of the page cache, which may be much larger than what was written
    /// in them.)
    pub written: u64,
    /// Given by `read(2)` and its relatives, from the page cache too; `None` in records before
    /// this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_calls: Option<u64>,
}

/// Memory that a server used of its limit, page cache included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// The most that it used at once, in bytes; `None` where the kernel does not tell.
    pub peak_bytes: Option<u64>,
    /// How often it ran into the limit.
    pub limit_hits: u64,
}

/// Other activity in a round, as shares of the machine's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseShare {
    /// Stolen by the hypervisor.
    pub steal: f64,
    /// Used by processes that are neither our servers nor pgtoll.
    pub others: f64,
    /// Share of time in which some task waited for a CPU (`/proc/pressure/cpu`).
    pub cpu_pressure: Option<f64>,
}

/// The exact counters of an arm after a fixed number of transactions: one client, fixed seed, from
/// a checkpoint on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// The name of the workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// Number of transactions.
    pub transactions: u64,
    /// Their counters.
    pub counters: Counters,
}

/// WAL of an arm over the transactions that are counted, as `pgtoll wal whatif` predicts it from the
/// WAL that another arm wrote for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// The name of the workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// From whose WAL.
    pub from: String,
    /// Bytes of WAL.
    pub wal_bytes: u64,
}

/// One long operation of an arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// Its number or name.
    pub workload: String,
    /// Counted from 1.
    pub repetition: u32,
    /// The first half of a repetition (1) or the second, in reverse order (2). Arms that take turns
    /// have one half.
    pub half: u32,
    /// Its place in the half, from 1.
    pub position: u32,
    /// The arm.
    pub arm: String,
    /// When it began, in ns since the run began.
    pub start_ns: u64,
    /// How long it took, in ns: the turns of other arms are not in it.
    pub duration_ns: u64,
    /// Turns in which it was done; `None`: in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// CPU time of all processes of the arm's server, in ns.
    pub server_cpu_ns: u64,
    /// The part of the server's I/O workers, in ns; `None` where it has none (before 18, or
    /// another `io_method` than `worker`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_workers_cpu_ns: Option<u64>,
    /// CPU time of what made the work outside of the server, in ns: a program with its children, or
    /// pgtoll's clients; `None` of statements and pgbench's steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu_ns: Option<u64>,
    /// CPU time of the program that ran beside it, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_cpu_ns: Option<u64>,
    /// Transactions that its clients completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// Their latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Box<ArmLatencies>>,
    /// The memory that the server has used of its limit until then, since its turn began;
    /// `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Pages of the table that it is about.
    pub pages: Option<u64>,
    /// Its counters.
    pub counters: Counters,
    /// How far it was about every fifth of a second, and at its end; of steps that have a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<StepReading>,
}

/// Counters of an arm's server since an operation began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepReading {
    /// How long after the operation's beginning, in ns.
    pub after_ns: u64,
    /// CPU time of all processes of the server, in ns.
    pub server_cpu_ns: u64,
    /// Bytes of WAL that were made.
    pub wal_bytes: u64,
    /// Reads and writes of the server's processes; `None` if the kernel does not report them.
    pub io: Option<IoBytes>,
}

impl Operation {
    /// Both operations as one, of which `next` is the second. Latencies of transactions are not those
    /// of both, and a course is of one.
    #[must_use]
    pub fn and_then(self, next: &Self) -> Self {
        let either = |one: Option<u64>, other: Option<u64>| {
            (one.is_some() || other.is_some())
                .then(|| one.unwrap_or_default().saturating_add(other.unwrap_or_default()))
        };
        Self {
            io_workers_cpu_ns: either(self.io_workers_cpu_ns, next.io_workers_cpu_ns),
            client_cpu_ns: either(self.client_cpu_ns, next.client_cpu_ns),
            beside_cpu_ns: either(self.beside_cpu_ns, next.beside_cpu_ns),
            transactions: either(self.transactions, next.transactions),
            turns: self.turns.zip(next.turns).map(|(one, other)| one.saturating_add(other)),
            latencies: None,
            course: Vec::new(),
            memory: next.memory,
            duration_ns: self.duration_ns.saturating_add(next.duration_ns),
            server_cpu_ns: self.server_cpu_ns.saturating_add(next.server_cpu_ns),
            pages: next.pages,
            counters: self.counters.plus(&next.counters),
            ..self
        }
    }
}

/// The server's counters over some work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Bytes of WAL: difference of insert positions, page headers included.
    pub wal_bytes: u64,
    /// WAL records (`pg_stat_wal`, 15 and later).
    pub wal_records: Option<u64>,
    /// Full-page images in the WAL (`pg_stat_wal`; before 15 as the WAL itself has them).
    pub wal_images: Option<u64>,
    /// WAL by record type, as `pg_waldump --stats=record` counts it; page headers are not in it.
    pub wal_by_type: BTreeMap<String, WalAmount>,
    /// Blocks read into shared buffers: with data checksums each was verified (15 and later).
    pub blocks_read: Option<u64>,
    /// Data blocks written, up to and including the checkpoint that followed: with data checksums
    /// each got one (15 and later).
    pub blocks_written: Option<u64>,
    /// The disk I/O of the server's processes, the checkpoint that followed included; `None`
    /// where the kernel does not tell. Not exact: it depends on what is written back when.
    #[serde(default)]
    pub io: Option<IoBytes>,
}

impl Counters {
    /// Both together; what one of them does not know, the sum does not know.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let mut wal_by_type = self.wal_by_type.clone();
        for (name, item) in &other.wal_by_type {
            let sum = wal_by_type.entry(name.clone()).or_default();
            sum.records += item.records;
            sum.record_bytes += item.record_bytes;
            sum.image_bytes += item.image_bytes;
        }
        let io = self.io.zip(other.io);
        Self {
            wal_bytes: self.wal_bytes + other.wal_bytes,
            wal_records: both(self.wal_records, other.wal_records),
            wal_images: both(self.wal_images, other.wal_images),
            wal_by_type,
            blocks_read: both(self.blocks_read, other.blocks_read),
            blocks_written: both(self.blocks_written, other.blocks_written),
            io: io.map(|(one, other)| IoBytes {
                read: one.read + other.read,
                written: one.written + other.written,
                read_calls: both(one.read_calls, other.read_calls),
            }),
        }
    }

    /// Full-page images that were written because a hint bit was set for the first time after a
    /// checkpoint.
    pub fn hint_images(&self) -> u64 {
        self.wal_by_type.get("XLOG/FPI_FOR_HINT").map_or(0, |wal_by_type| wal_by_type.records)
    }

    /// Standby snapshots, which a timer writes and not the work.
    pub fn snapshots(&self) -> WalAmount {
        self.wal_by_type.get("Standby/RUNNING_XACTS").copied().unwrap_or_default()
    }
}

/// How often a function was found running when `perf` looked at an arm's server, in user mode and
/// apart from all slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// The name of the workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// How the function's name begins.
    pub function: String,
    /// Samples in it.
    pub samples: u64,
    /// All samples.
    pub of: u64,
}

/// Something that a reader of the results has to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// In a sentence.
    pub text: String,
}

/// The last line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// How the run ended.
    pub status: EndStatus,
    /// Why, when it did not end well.
    pub reason: Option<String>,
    /// Seconds since it began.
    pub seconds: f64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndStatus {
    /// All that was planned was done.
    Complete,
    /// A signal ended it.
    Interrupted,
    /// An error ended it.
    Failed,
}
