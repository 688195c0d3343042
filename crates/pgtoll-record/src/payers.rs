//! Relations and statements that would pay a setting's cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Interval;

/// The work of statements while a server was watched, by `pg_stat_statements`: differences between
/// looks at the ends of windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatementWatch {
    /// From the first look to the last, without the time around resets of `pg_stat_statements`.
    pub seconds: f64,
    /// Statements that read, wrote or dirtied a block.
    pub statements: u64,
    /// The work of all together.
    pub all: StatementWork,
    /// Those that did most, first.
    pub listed: Vec<WatchedStatement>,
    /// The server has more statements than one look reads: small ones may be missing.
    pub is_cut: bool,
    /// How often `pg_stat_statements` forgot statements meanwhile (`dealloc`): what they did is
    /// missing.
    pub forgotten: u64,
    /// The record has text of queries, as `pg_stat_statements` normalises it.
    pub has_text: bool,
}

/// Blocks of a statement, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatementWork {
    /// Times that it was executed.
    pub calls: u64,
    /// Blocks read from outside shared buffers, temporary tables' too.
    pub blocks_read: u64,
    /// Blocks that its own session wrote; new blocks are among them.
    pub blocks_written: u64,
    /// Blocks dirtied by SELECTs, less the full-page images that they logged. A page that is
    /// dirtied again after its eviction counts again.
    pub select_dirtied: u64,
}

/// A statement that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedStatement {
    /// `queryid`; a text, since it is larger than other programs' integers.
    pub query_id: String,
    /// Its database.
    pub database: String,
    /// The role that executes it.
    pub role: String,
    /// It is a SELECT.
    pub is_select: bool,
    /// Its work.
    #[serde(flatten)]
    pub work: StatementWork,
    /// The normalised text, cut; of utility statements the first word alone. `None` without
    /// `--with-queries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Relations and statements by their share of what data checksums, or logged hints, would cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PayerRanking {
    /// Relations by their share of the pages that hints alone had changed, largest first.
    pub relations: Vec<RelationShare>,
    /// Pages in the samples that hints alone had changed.
    pub relation_pages: u64,
    /// Censuses that these samples are of: the last one of each window.
    pub censuses: u64,
    /// Share of the predicted images that were in shared buffers at these censuses. Relations of
    /// pages that were evicted before are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_buffers: Option<f64>,
    /// Statements, largest share first.
    pub statements: Vec<StatementCost>,
    /// Share of the predicted CPU that no listed statement pays: the checkpointer, the background
    /// writer, autovacuum, other statements. `None` without statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_cpu_share: Option<f64>,
}

/// A relation's share of the pages that hints alone had changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelationShare {
    /// Its database.
    pub database: String,
    /// Schema and name.
    pub relation: String,
    /// The share of these pages; the range is that of the samples.
    pub share: Interval,
    /// Pages in the samples.
    pub pages: u64,
}

/// The cost of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatementCost {
    /// `queryid`.
    pub query_id: String,
    /// Its database.
    pub database: String,
    /// The role that executes it.
    pub role: String,
    /// The normalised text; `None` without `--with-queries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its rank's value: the mean of its shares of CPU and of images, or the known one.
    pub share: f64,
    /// Executions a second.
    pub calls_per_second: f64,
    /// Cores for its pages that are read and written, and for its images.
    pub cpu_cores: Interval,
    /// Its share of the server's predicted CPU.
    pub cpu_share: f64,
    /// Images of a SELECT, a second: from none to all pages that it dirtied unlogged. `None` where
    /// hints are logged already, or would not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_per_second: Option<Interval>,
    /// Its share of the images of all SELECTs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_share: Option<f64>,
}

impl StatementWork {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            blocks_read: self.blocks_read.saturating_add(other.blocks_read),
            blocks_written: self.blocks_written.saturating_add(other.blocks_written),
            select_dirtied: self.select_dirtied.saturating_add(other.select_dirtied),
        }
    }
}
