//! The record of the bench of `pgtoll replay compare`: how often it names a statement where nothing
//! differs, and whether it names one that was made slower.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, RatioRange};

/// The version of the form of [`ReplayCompareLine`].
pub const BENCH_REPLAY_COMPARE_SCHEMA: &str = "pgtoll.bench-replay-compare/1";

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum ReplayCompareLine {
    /// The first line.
    Header(Box<ReplayCompareHeader>),
    /// One comparison.
    Comparison(Box<ReplayCompareTrial>),
    /// The last line: sums over all comparisons.
    Summary(ReplayCompareSummary),
}

/// How and where the comparisons were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCompareHeader {
    /// [`BENCH_REPLAY_COMPARE_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that repeats it.
    pub command: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// The server: version and origin.
    pub server: String,
    /// Rounds of each comparison.
    pub rounds: u32,
    /// Statements of the plan that is replayed.
    pub statements: u64,
    /// Rows that the statement of [`ReplayComparePlant::Fifth`] reads, on the baseline.
    pub rows: u32,
    /// Rows that it reads on the arm.
    pub planted_rows: u32,
    /// Its median latency with the planted rows over that without, one session alone.
    pub planted_ratio: f64,
}

/// The difference of the arm from the baseline.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ReplayComparePlant {
    /// Nothing: whatever is named is a false alarm.
    Nothing,
    /// One statement reads more rows, so that it takes a fifth longer.
    Fifth,
    /// One statement's index is replaced by one with fewer columns.
    Index,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCompareTrial {
    /// The planted change.
    pub plant: ReplayComparePlant,
    /// Fixes the order of arms in rounds.
    pub seed: u64,
    /// When it was made (RFC 3339).
    pub made: String,
    /// Shapes of statements that were compared.
    pub shapes: u64,
    /// The median of the shapes' distances between two replays of the same, as in 0.03 for 3 %.
    pub floor: f64,
    /// The statements that were named as slower.
    pub slower: Vec<ReplayCompareNamed>,
    /// The statements that were named as faster.
    pub faster: Vec<ReplayCompareNamed>,
    /// The answer about the slowed statement; `None` if nothing was planted.
    pub planted: Option<RatioRange>,
    /// Whether that one is named as slower; `None` where nothing was planted.
    pub found: Option<bool>,
}

/// A statement that is named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCompareNamed {
    /// The statement without its values.
    pub statement: String,
    /// Arm over baseline.
    pub range: RatioRange,
}

/// Sums over all comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayCompareSummary {
    /// Comparisons without a difference.
    pub same: u64,
    /// Those that name any statement.
    pub same_named: u64,
    /// Comparisons with a statement slower by a fifth.
    pub fifth: u64,
    /// Those that name it as slower.
    pub fifth_found: u64,
    /// Comparisons with a worse index.
    pub index: u64,
    /// Those that name its statement as slower.
    pub index_found: u64,
}
