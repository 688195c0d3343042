//! The record of the bench of fleets: what reading a backup from a store costs beside a file, how much
//! memory it takes, and how backups are listed and shared out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BenchUsage;
use crate::Host;

/// The version of the form of [`FleetBenchLine`].
pub const BENCH_FLEET_SCHEMA: &str = "pgtoll.bench-fleet/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum FleetBenchLine {
    /// The first line.
    Header(Box<FleetBenchHeader>),
    /// A backup that was verified.
    Read(Box<FleetBenchRead>),
    /// Backups that were planned.
    Plan(Box<FleetBenchPlan>),
}

/// How and where the bench was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetBenchHeader {
    /// [`BENCH_FLEET_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
}

/// The case of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetBenchCase {
    /// The cost of reading from a store.
    Cost,
    /// How much memory reading takes.
    Memory,
    /// How long listing and planning many objects takes.
    Listing,
    /// How evenly half a petabyte is shared out.
    Shares,
    /// The cost of reading by packing, over TLS.
    Packing,
    /// The cost of an object beyond its bytes: many short ones, over TLS.
    Objects,
}

/// How a backup is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetBenchPacking {
    /// Not at all.
    Plain,
    /// gzip, level 6.
    Gzip,
    /// Compressed by LZ4.
    Lz4,
    /// Zstandard, level 3.
    Zstd,
}

/// The place of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetBenchPlace {
    /// A file in the page cache.
    File,
    /// An object of a server on this machine.
    Store,
    /// The same object, of which `curl` fetches the ranges that pgtoll asks for, to nowhere.
    Download,
}

/// A backup that `pgtoll verify` verified, or that was only fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetBenchRead {
    /// Its case.
    pub case: FleetBenchCase,
    /// Counted from 1.
    pub repetition: u32,
    /// The place of the backup.
    pub place: FleetBenchPlace,
    /// How it is packed; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<FleetBenchPacking>,
    /// Bytes of the backup, as it is stored.
    pub bytes: u64,
    /// Objects that it consists of; `None`: it is one tar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Bytes of it, unpacked; `None`: as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
    /// Time that pgtoll took.
    #[serde(flatten)]
    pub usage: BenchUsage,
    /// Largest resident size of pgtoll, in kB.
    pub peak_kb: u64,
}

/// Backups that `pgtoll fleet plan` listed and shared out. Their objects have lengths and no content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetBenchPlan {
    /// Its case.
    pub case: FleetBenchCase,
    /// How long each of the server's answers took at least, in milliseconds.
    pub delay_ms: u64,
    /// Objects that were listed.
    pub objects: u64,
    /// Backups that they are.
    pub backups: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes that a unit has at most, where it can be cut.
    pub unit_bytes: u64,
    /// Number of units.
    pub units: u64,
    /// Bytes of the largest one.
    pub largest_unit_bytes: u64,
    /// Number of shards.
    pub shards: u32,
    /// CPU seconds of the longest shard, as planned.
    pub longest_shard_s: f64,
    /// CPU seconds of each shard, were they all as long.
    pub even_shard_s: f64,
    /// Wall time of `pgtoll fleet plan`, in seconds.
    pub wall_s: f64,
    /// Largest resident size of pgtoll, in kB.
    pub peak_kb: u64,
}

impl FleetBenchPlan {
    /// The longest shard over an even one.
    pub fn makespan(&self) -> f64 {
        self.longest_shard_s / self.even_shard_s
    }
}
