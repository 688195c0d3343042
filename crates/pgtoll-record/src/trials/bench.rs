//! The record of a bench: a line for its header, for each cluster or WAL that it made, for each run
//! of each arm, for each comparison. Six benches share the form; a field that a bench does not need
//! is absent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form that `cargo xtask bench capture` writes.
pub const BENCH_CAPTURE_SCHEMA: &str = "pgtoll.bench-capture/1";
/// The version of the form that `cargo xtask bench checksum` writes.
pub const BENCH_CHECKSUM_SCHEMA: &str = "pgtoll.bench-checksum/1";
/// The version of the form that `cargo xtask bench enable` writes.
pub const BENCH_ENABLE_SCHEMA: &str = "pgtoll.bench-enable/1";
/// The version of the form that `cargo xtask bench verify` writes.
pub const BENCH_VERIFY_SCHEMA: &str = "pgtoll.bench-verify/1";
/// The version of the form that `cargo xtask bench wal` writes.
pub const BENCH_WAL_SCHEMA: &str = "pgtoll.bench-wal/1";

/// The version of the form that `cargo xtask bench watch` writes.
pub const BENCH_WATCH_SCHEMA: &str = "pgtoll.bench-watch/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum BenchLine {
    /// The first line.
    Header(Box<BenchHeader>),
    /// A cluster that was made; `enable` and `verify`.
    Cluster(BenchCluster),
    /// WAL that was made; `wal`.
    Wal(BenchWal),
    /// A run of an arm.
    Run(BenchRun),
    /// Memory that reading took; `wal`.
    Memory(BenchMemory),
    /// A comparison of two arms.
    Outcome(BenchOutcome),
}

/// How, where and with which servers a bench was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchHeader {
    /// The schema of this bench: [`BENCH_CAPTURE_SCHEMA`], [`BENCH_CHECKSUM_SCHEMA`],
    /// [`BENCH_ENABLE_SCHEMA`], [`BENCH_VERIFY_SCHEMA`], [`BENCH_WAL_SCHEMA`] or
    /// [`BENCH_WATCH_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The server: version and origin; `capture`, `wal` and `watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The servers: versions and origins; `verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<String>>,
    /// The machine.
    pub host: Host,
    /// The kernel that pgtoll chooses on this machine; `checksum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<String>,
    /// How often every arm ran.
    pub repetitions: u32,
}

/// The subject of a bench's line. A bench has one of these fields; `checksum` has
/// none, as its only subject is the kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchSubject {
    /// The server: version and origin; `capture`, `enable` and `watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The server's major version; `verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// The kind of WAL; `wal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<BenchWalKind>,
}

/// A cluster that programs read or write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchCluster {
    /// Its server.
    #[serde(flatten)]
    pub subject: BenchSubject,
    /// Bytes of its relations.
    pub bytes: u64,
    /// Files of its relations.
    pub files: u64,
}

/// WAL that programs read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchWal {
    /// Its kind.
    #[serde(flatten)]
    pub subject: BenchSubject,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Its content, as pgtoll and `pg_waldump` both counted it.
    pub total: BenchWalTotal,
}

/// The kind of WAL that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BenchWalKind {
    /// Mostly full-page images: checkpoints follow each other closely.
    Images,
    /// Short records: no checkpoint, and every page was changed before.
    Dense,
}

/// Sums over WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchWalTotal {
    /// Number of records.
    pub records: u64,
    /// Bytes of records without their full-page images.
    pub record_bytes: u64,
    /// Bytes of full-page images.
    pub image_bytes: u64,
}

/// One run of one arm. Programs have a usage, kernels a place and slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchRun {
    /// The subject of the arm.
    #[serde(flatten)]
    pub subject: BenchSubject,
    /// Counted from 1. Runs of the same repetition are compared with each other.
    pub repetition: u32,
    /// The place of the pages; `checksum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<BenchPlace>,
    /// The arm: a program with its options, or a kernel.
    pub arm: String,
    /// Time that the program took; `enable`, `verify` and `wal`.
    #[serde(flatten)]
    pub usage: Option<BenchUsage>,
    /// Nanoseconds of each slice; `checksum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices_ns: Option<Vec<u64>>,
    /// The work of the load, and the cost of watching it; `capture` and `watch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<BenchLoad>,
}

/// The work of a load in a slice, and the cost of `pgtoll predict` beside it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchLoad {
    /// Wall time.
    pub seconds: f64,
    /// Transactions of all clients.
    pub transactions: u64,
    /// Median latency.
    pub median_ns: u64,
    /// 99th percentile of the latencies.
    pub p99_ns: u64,
    /// CPU of the server's processes that watching took; `None`: nothing watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_cpu_s: Option<f64>,
    /// Statements of these sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_statements: Option<u64>,
    /// Censuses of dirty buffers among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_censuses: Option<u64>,
}

/// Time that a program took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchUsage {
    /// CPU time in user mode, in seconds.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds.
    pub system_s: f64,
    /// Wall time, in seconds.
    pub wall_s: f64,
}

/// The place of pages before a kernel read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BenchPlace {
    /// In the core's second-level cache.
    Cache,
    /// In no cache.
    Memory,
}

/// Memory that two threads took to read WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchMemory {
    /// The WAL.
    #[serde(flatten)]
    pub subject: BenchSubject,
    /// The largest resident sizes.
    pub peak: BenchPeak,
}

/// The largest resident sizes of a program (`VmHWM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BenchPeak {
    /// While it read a quarter of the WAL, in kB.
    pub quarter_kb: u64,
    /// While it read all of it, in kB.
    pub whole_kb: u64,
}

/// A comparison of two arms with its goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchOutcome {
    /// The subject of both arms.
    #[serde(flatten)]
    pub subject: BenchSubject,
    /// The arms that are compared, and by which figure.
    pub what: String,
    /// The ratio.
    #[serde(flatten)]
    pub estimate: BenchEstimate,
    /// The bound that the ratio should meet.
    #[serde(flatten)]
    pub goal: BenchGoal,
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchEstimate {
    /// The ratio.
    pub ratio: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// The interval's upper end.
    pub upper: f64,
}

/// The bound that a ratio should meet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BenchGoal {
    /// The largest ratio that is good enough; `None`: the ratio is reported and has no goal.
    AtMost(Option<f64>),
    /// The smallest ratio that is good enough.
    AtLeast(f64),
}

impl BenchWalKind {
    /// In the order in which the bench makes them.
    pub const ALL: [Self; 2] = [Self::Images, Self::Dense];
}

impl BenchPlace {
    /// In the order in which the bench reads them.
    pub const ALL: [Self; 2] = [Self::Cache, Self::Memory];
}

impl BenchUsage {
    /// CPU time in user mode and in the kernel, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl BenchOutcome {
    /// Whether the ratio itself, whatever its interval, meets the goal.
    pub fn is_reached(&self) -> bool {
        match self.goal {
            BenchGoal::AtMost(goal) => goal.is_none_or(|goal| self.estimate.ratio <= goal),
            BenchGoal::AtLeast(goal) => self.estimate.ratio >= goal,
        }
    }
}
