//! Results of a watch of a primary for damaged pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of a [`WatchRecord`].
pub const WATCH_SCHEMA: &str = "pgtoll.watch/1";

/// A primary was watched for pages that it refuses to read, and these pages of its standby verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchRecord {
    /// [`WATCH_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that was called.
    pub command: Vec<String>,
    /// When the watch ended (RFC 3339).
    pub made: String,
    /// The primary, without its password.
    pub primary: String,
    /// The standby, without its password; `None` where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    /// Looks at the primary that it answered.
    pub looks: u64,
    /// Looks that it did not answer.
    pub missed: u64,
    /// Checksum failures that were counted before the watch.
    pub failures_before: u64,
    /// Checksum failures that were counted since.
    pub failures: u64,
    /// Pages that the primary refused, by its log.
    pub pages: Vec<WatchedPage>,
    /// The standby's pages are sound, each of them, and there is at least one: a failover to it would get
    /// rid of the damage that is known.
    pub standby_is_verified: bool,
    /// A command was given, to be run where the standby's pages are sound.
    #[serde(default)]
    pub action_requested: bool,
    /// The user's command; `None` where none was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<WatchAction>,
    /// The proposals, the first choice first.
    pub proposals: Vec<String>,
    /// Why the watch ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A page that the primary refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedPage {
    /// The file of the relation's fork, below the data directory, without the segment's number.
    pub file: String,
    /// The block of the fork.
    pub block: u32,
    /// The database; `None` where it could not be asked for, or for shared relations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The relation with its schema; `None` where it could not be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// The page in the primary's file, after the error.
    pub primary: PageCondition,
    /// The page in the standby's file, after the standby had replayed what the primary had flushed.
    pub standby: PageCondition,
}

/// A page in a server's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum PageCondition {
    /// Its checksum and header are right.
    Sound,
    /// A server refuses it.
    Unsound,
    /// It was not found out.
    Unknown {
        /// The reason, in a sentence.
        reason: String,
    },
}

/// A command of the user's that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchAction {
    /// The command line.
    pub command: String,
    /// How it ended.
    pub status: String,
    /// It ended with status 0.
    pub success: bool,
    /// The end of what it printed.
    pub output: String,
}
