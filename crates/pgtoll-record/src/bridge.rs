//! Foreign tables of other servers, a CSV file and Redis: what one server showed of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Host;

/// The version of the form of a [`BridgeRecord`].
pub const BRIDGE_SCHEMA: &str = "pgtoll.bridge/1";

/// A server, the hub, with foreign tables of two other servers, a CSV file and Redis: what queries,
/// commits and failures showed there, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeRecord {
    /// [`BRIDGE_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes it again.
    pub command: Vec<String>,
    /// When the record was made (RFC 3339).
    pub made: String,
    /// Version and origin of the servers.
    pub server: String,
    /// Version of Redis.
    pub redis: String,
    /// Versions of the hub's extensions, by name.
    pub extensions: BTreeMap<String, String>,
    /// The machine.
    pub host: Host,
    /// The servers' settings that are not defaults.
    pub settings: BTreeMap<String, String>,
    /// Each step that was begun, in order.
    pub steps: Vec<BridgeStep>,
    /// The foreign scans of the join's plan.
    pub scans: Vec<ForeignScan>,
    /// All steps were done, whatever their checks found.
    pub complete: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A step: statements, and checks of what they showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeStep {
    /// One word.
    pub name: String,
    /// Its subject.
    pub title: String,
    /// The lesson for users of such foreign tables.
    pub lesson: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The statements, in order.
    pub statements: Vec<BridgeStatement>,
    /// The checks.
    pub checks: Vec<BridgeCheck>,
    /// All of it was done. A step that ended early says nothing, whatever was checked before.
    pub complete: bool,
}

/// A statement, and what the server showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeStatement {
    /// The session that ran it: `hub`, `shop`, `billing`, or `second` (another session with the hub).
    /// `redis` is a command of Redis, `file` a file that a foreign table's program needs.
    pub session: String,
    /// Its text. `DIR` is the run's directory, which is gone.
    pub sql: String,
    /// The command tag, the number of rows, or the error with its SQLSTATE; of a file where it is.
    pub result: String,
    /// Rows of a query, values with ` | ` between; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
}

/// Something that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BridgeCheck {
    /// The subject.
    pub subject: String,
    /// The expected value.
    pub expected: String,
    /// The value that was found.
    pub found: String,
    /// Whether it was as it should be.
    pub holds: bool,
}

/// A foreign scan, as `EXPLAIN ANALYZE` showed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForeignScan {
    /// The foreign table.
    pub table: String,
    /// `Remote SQL`, `Foreign File` or `Foreign Program`.
    pub kind: String,
    /// The query, the file or the command line.
    pub source: String,
    /// Rows that the scan returned, each time.
    pub rows: f64,
    /// How often it was run.
    pub loops: f64,
    /// Time in it, in milliseconds; the mean of all times that it was run.
    pub milliseconds: f64,
}
