//! A run's record, `run.jsonl`.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_format::{Lsn, ServerVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the record's form. A reader takes what it knows and passes over fields and
/// lines that it does not know; the number grows when that is not enough.
pub const RECORD_SCHEMA: &str = "pgtoll.record/1";

/// A line of a run's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Line {
    /// The first line: what was run, where, with what.
    Header(Box<Header>),
    /// The clusters are ready.
    Prepared(Prepared),
    /// A round begins: every server was restarted.
    Round(Round),
    /// One arm's turn.
    Slice(Slice),
    /// A round ended; totals of each arm over the whole round.
    RoundEnd(RoundEnd),
    /// An arm did a fixed number of transactions: its exact counters.
    Counted(Counted),
    /// An arm did one long operation.
    Operation(Operation),
    /// Something that a reader of the results has to know.
    Note(Note),
    /// The last line.
    End(End),
}

/// What was run, where, with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// What the record is about: `run`.
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
    /// The experiment's name.
    pub experiment: String,
    /// The question it asks.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// What the servers had to do, in the order of the report.
    pub workloads: Vec<Workload>,
    /// How slices and operations lie.
    pub design: Design,
    /// What earlier runs on this machine say of its intervals; empty: it was not calibrated.
    #[serde(default)]
    pub calibration: Vec<Calibration>,
}

/// How much wider than they claim a metric's intervals have to be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Which metric.
    pub metric: Metric,
    /// κ, the factor by which half-widths are multiplied; at least 1.
    pub kappa: f64,
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
    /// For a null arm: the arm that it is a copy of, without any difference.
    pub twin_of: Option<String>,
}

/// What the servers had to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// What is done.
    pub work: Work,
    /// Settings of every arm under this workload.
    pub settings: BTreeMap<String, String>,
    /// Slices or operations of it were planned; else it was only counted.
    pub timed: bool,
}

/// What is done in a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Transactions of a script, with one client.
    Script {
        /// pgbench's name of the script.
        name: String,
        /// Transactions in the counted pass.
        counted: u64,
    },
    /// One statement, after the steps before it on a fresh copy of the arm.
    Operation {
        /// The statement.
        sql: String,
    },
}

/// How the slices lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Rounds that were planned; all servers restart for each.
    pub rounds: u32,
    /// Blocks of slices a round; each arm has one slice a block, in random order.
    pub blocks_per_round: u32,
    /// A slice's length, in ns.
    pub slice_ns: u64,
    /// Work before each slice that is not counted, in ns.
    pub lead_in_ns: u64,
    /// Blocks at a round's start that are not counted.
    pub warm_up_blocks: u32,
    /// Repetitions of each operation: in each, all arms in a random order and then in the reverse
    /// order.
    pub repetitions: u32,
    /// pgbench's scale factor of the data.
    pub scale: u32,
}

/// The clusters are ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prepared {
    /// The server's full version text, `SELECT version()`.
    pub version_text: String,
    /// Bytes of each arm's data directory.
    pub data_bytes: u64,
}

/// A round begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Of which workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// The order in which the servers started.
    pub start_order: Vec<String>,
}

/// One arm's turn in one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    /// Of which workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// Counted from 1 in each round.
    pub block: u32,
    /// Its place in the block, from 1.
    pub position: u32,
    /// Which arm.
    pub arm: String,
    /// When it began, in ns since the run began.
    pub start_ns: u64,
    /// How long it took, in ns.
    pub duration_ns: u64,
    /// Transactions that were completed.
    pub transactions: u64,
    /// CPU time of all processes of the arm's server, in ns.
    pub server_cpu_ns: u64,
    /// CPU time of pgtoll itself, in ns.
    pub client_cpu_ns: u64,
    /// A server process came or went meanwhile, so the server's CPU time is only exact to the
    /// kernel's tick of 10 ms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processes_changed: bool,
}

/// A round ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundEnd {
    /// Of which workload.
    pub workload: String,
    /// Counted from 1.
    pub round: u32,
    /// Totals of each arm.
    pub arms: Vec<ArmRound>,
    /// What else went on.
    pub noise: NoiseShare,
}

/// Totals of an arm over a round. Counters cover everything between the first slice's lead-in and
/// the end of the last slice; CPU totals cover the server's life up to there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmRound {
    /// Which arm.
    pub arm: String,
    /// Transactions, those of lead-ins included.
    pub transactions: u64,
    /// Insert position of the WAL at the beginning.
    #[schemars(with = "String")]
    pub wal_from: Lsn,
    /// Insert position of the WAL at the end.
    #[schemars(with = "String")]
    pub wal_to: Lsn,
    /// WAL records (`pg_stat_wal`, 14 and later).
    pub wal_records: Option<u64>,
    /// Full-page images in the WAL (`pg_stat_wal`, 14 and later).
    pub wal_full_page_images: Option<u64>,
    /// Blocks read into shared buffers.
    pub blocks_read: u64,
    /// Data blocks written.
    pub blocks_written: u64,
    /// CPU time of the server from its start to the end of the round, in ns, from its processes'
    /// clocks.
    pub cpu_observed_ns: u64,
    /// CPU time of the server from its start to its end, in ns, as the kernel told whoever waited
    /// for it (`wait4`).
    pub cpu_reaped_ns: u64,
}

/// What else went on in a round, as shares of the CPU time that the machine had.
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
    /// Of which workload.
    pub workload: String,
    /// Which arm.
    pub arm: String,
    /// Transactions.
    pub transactions: u64,
    /// What they made.
    pub counters: Counters,
}

/// One long operation of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// Which one.
    pub workload: String,
    /// Counted from 1.
    pub repetition: u32,
    /// The first half of a repetition (1) or the second, in reverse order (2).
    pub half: u32,
    /// Its place in the half, from 1.
    pub position: u32,
    /// Which arm.
    pub arm: String,
    /// When it began, in ns since the run began.
    pub start_ns: u64,
    /// How long it took, in ns.
    pub duration_ns: u64,
    /// CPU time of all processes of the arm's server, in ns.
    pub server_cpu_ns: u64,
    /// Pages of the table that it is about.
    pub pages: Option<u64>,
    /// What it made.
    pub counters: Counters,
}

/// What the server counted over some work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Bytes of WAL: difference of insert positions, page headers included.
    pub wal_bytes: u64,
    /// WAL records (`pg_stat_wal`, 14 and later).
    pub wal_records: Option<u64>,
    /// Full-page images in the WAL (`pg_stat_wal`, 14 and later).
    pub wal_images: Option<u64>,
    /// WAL by record type, as `pg_waldump --stats=record` counts it; page headers are not in it.
    pub wal_by_type: BTreeMap<String, WalOfType>,
    /// Blocks read into shared buffers: with data checksums each was verified.
    pub blocks_read: u64,
    /// Data blocks written, up to and including the checkpoint that followed: with data checksums
    /// each got one.
    pub blocks_written: u64,
}

/// WAL of one record type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WalOfType {
    /// Records.
    pub records: u64,
    /// Bytes of the records without their images.
    pub record_bytes: u64,
    /// Bytes of their full-page images.
    pub image_bytes: u64,
}

impl Counters {
    /// Full-page images that were written because a hint bit was set for the first time after a
    /// checkpoint.
    pub fn hint_images(&self) -> u64 {
        self.wal_by_type.get("XLOG/FPI_FOR_HINT").map_or(0, |of| of.records)
    }

    /// Standby snapshots, which a timer writes and not the work.
    pub fn snapshots(&self) -> WalOfType {
        self.wal_by_type.get("Standby/RUNNING_XACTS").copied().unwrap_or_default()
    }
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

/// What is compared: a ratio of two amounts of a slice.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU time of the server for a transaction, in ns.
    CpuPerTransaction,
    /// Transactions per second.
    TransactionsPerSecond,
    /// CPU time of the server for one operation, in ns.
    CpuPerOperation,
    /// Duration of one operation, in s.
    OperationTime,
}

impl Metric {
    /// Of slices, in the order in which they are shown.
    pub const OF_SLICES: [Self; 2] = [Self::CpuPerTransaction, Self::TransactionsPerSecond];
    /// Of operations, in the order in which they are shown.
    pub const OF_OPERATIONS: [Self; 2] = [Self::CpuPerOperation, Self::OperationTime];

    /// Numerator and denominator of the metric in a slice: ns and transactions, or transactions
    /// and s.
    #[expect(clippy::cast_precision_loss, reason = "a slice's amounts are far below 2^53")]
    pub fn of_slice(self, slice: &Slice) -> (f64, f64) {
        let transactions = slice.transactions as f64;
        match self {
            Self::TransactionsPerSecond => (transactions, slice.duration_ns as f64 / 1e9),
            _ => (slice.server_cpu_ns as f64, transactions),
        }
    }

    /// A larger value is a cost (or else a gain).
    pub fn more_is_worse(self) -> bool {
        self != Self::TransactionsPerSecond
    }
}

/// A run's record, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The first line.
    pub header: Header,
    /// What was measured on; `None` when the run ended before.
    pub prepared: Option<Prepared>,
    /// All slices of rounds that ended, in time order.
    pub slices: Vec<Slice>,
    /// The rounds that ended.
    pub rounds: Vec<RoundEnd>,
    /// Exact counters.
    pub counted: Vec<Counted>,
    /// All operations, in time order; the last repetition may lack some.
    pub operations: Vec<Operation>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// The last line; `None` when the record breaks off.
    pub end: Option<End>,
    /// Lines that could not be read, by number from 1.
    pub unreadable_lines: Vec<usize>,
}

impl Run {
    /// Reads a record. Whatever ended the run, and wherever the file breaks off, what was measured
    /// up to there is read; slices of a round that did not end are left out.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let mut lines = text.lines().enumerate();
        let (_, first) = lines.next().ok_or(RecordError::Empty)?;
        let Line::Header(header) = serde_json::from_str(first).map_err(RecordError::Header)? else {
            return Err(RecordError::NoHeader);
        };
        if header.schema != RECORD_SCHEMA || header.kind != "run" {
            return Err(RecordError::Unknown { schema: header.schema, kind: header.kind });
        }
        let mut run = Self {
            header: *header,
            prepared: None,
            slices: Vec::new(),
            rounds: Vec::new(),
            counted: Vec::new(),
            operations: Vec::new(),
            notes: Vec::new(),
            end: None,
            unreadable_lines: Vec::new(),
        };
        for (index, line) in lines {
            match serde_json::from_str(line) {
                Ok(line) => run.take(line),
                Err(_) if is_of_a_later_version(line) => {}
                Err(_) => run.unreadable_lines.push(index + 1),
            }
        }
        let ended: BTreeSet<(String, u32)> =
            run.rounds.iter().map(|round| (round.workload.clone(), round.round)).collect();
        run.slices.retain(|slice| ended.contains(&(slice.workload.clone(), slice.round)));
        Ok(run)
    }

    /// Everything that was planned was done.
    pub fn is_complete(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete)
            && self.unreadable_lines.is_empty()
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Prepared(prepared) => self.prepared = Some(prepared),
            Line::Slice(slice) => self.slices.push(slice),
            Line::RoundEnd(round) => self.rounds.push(round),
            Line::Counted(counted) => self.counted.push(counted),
            Line::Operation(operation) => self.operations.push(operation),
            Line::Note(note) => self.notes.push(note.text),
            Line::End(end) => self.end = Some(end),
            Line::Header(_) | Line::Round(_) => {}
        }
    }
}

/// Whole JSON with a tag that this version does not know.
fn is_of_a_later_version(line: &str) -> bool {
    const KNOWN: [&str; 9] = [
        "header",
        "prepared",
        "counted",
        "operation",
        "round",
        "slice",
        "round_end",
        "note",
        "end",
    ];
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    value
        .as_ref()
        .and_then(|value| value.get("t")?.as_str())
        .is_some_and(|tag| !KNOWN.contains(&tag))
}

/// The text is no record of a run.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is nothing in it.
    #[error("the record is empty")]
    Empty,
    /// The first line is not what it should be.
    #[error("read the record's first line")]
    Header(#[source] serde_json::Error),
    /// The first line is of another kind.
    #[error("the record's first line is not its header")]
    NoHeader,
    /// Another version, or another kind of record.
    #[error(
        "the record is of schema {schema:?} and kind {kind:?}, not {RECORD_SCHEMA:?} and \"run\""
    )]
    Unknown {
        /// The schema it names.
        schema: String,
        /// The kind it names.
        kind: String,
    },
}
