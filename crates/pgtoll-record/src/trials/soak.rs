//! The record of the soak: a running server that was verified over and over under load, with damage
//! planted in it. A line for each soak.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of [`SoakRecord`].
pub const SOAK_SCHEMA: &str = "pgtoll.soak/1";

/// One soak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoakRecord {
    /// [`SOAK_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The server: version and origin.
    pub server: String,
    /// The machine.
    pub host: Host,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: SoakOutcome,
}

/// The outcome of a soak: sums over its scans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoakOutcome {
    /// Wall time of all scans, in seconds.
    pub seconds: u64,
    /// pgbench's transactions and rate, in its own words.
    pub pgbench: String,
    /// Scans of the whole cluster.
    pub scans: u64,
    /// How often the server crashed and recovered; `None` in records before it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crashes: Option<u64>,
    /// Scans in which pages could not be compared with WAL; `None` in records before they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_evidence: Option<u64>,
    /// Pages that were verified.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that looked damaged at first, those with planted damage left out.
    pub suspects: u64,
    /// Suspects that were sound when they were read again.
    pub healed: u64,
    /// Suspects whose image the WAL had, so that the scan waited for a checkpoint.
    pub in_flight: u64,
    /// Suspects that were gone when they were read again, and files that went or became shorter.
    pub dropped: u64,
    /// Blocks that were damaged, one after the other, and restored.
    pub planted: u64,
    /// Planted blocks that were reported as failures.
    pub found: u64,
    /// Planted blocks that were reported as unverified.
    pub planted_unverified: u64,
    /// Failures where nothing was planted.
    pub false_alarms: u64,
    /// Unverified blocks where nothing was planted.
    pub unverified: u64,
    /// Planted blocks, by kind of damage.
    pub kinds: BTreeMap<String, u64>,
}

impl SoakOutcome {
    /// Whether all planted damage was found, without a false alarm or an unverified block.
    pub fn is_good(&self) -> bool {
        self.planted > 0 && self.found == self.planted && self.false_alarms + self.unverified == 0
    }
}
