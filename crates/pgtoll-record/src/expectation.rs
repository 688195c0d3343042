//! What was expected of a run before it began, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Interval, Metric};

/// What was expected, and who says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// Of which workload.
    pub workload: String,
    /// Which arm.
    pub arm: String,
    /// Which figure: a [`Metric`], or a counted one such as `wal_per_page`.
    pub metric: String,
    /// The bounds are of the difference from the baseline, as a fraction: 0.08 is 8 %. Else they
    /// are of the arm's value.
    pub relative: bool,
    /// The least that is expected.
    pub lower: Option<f64>,
    /// The most that is expected.
    pub upper: Option<f64>,
    /// Where the expectation comes from.
    pub source: String,
}

/// An expectation, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// What was expected.
    pub expectation: Expectation,
    /// What came out, in the terms of the bounds; `None` where it was not measured. A counted
    /// figure is its own interval.
    pub found: Option<Interval>,
    /// What that means.
    pub outcome: Outcome,
}

/// How what came out lies to what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval lies within the bounds.
    AsExpected,
    /// The whole interval lies outside of them.
    NotAsExpected,
    /// A bound lies within the interval.
    NotResolved,
    /// The run does not have this figure.
    NotMeasured,
}

/// A figure that something can be expected of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFigure {
    /// Compared with the baseline, with an interval.
    Compared(Metric),
    /// Counted over equal work.
    Counted(&'static str),
}

/// Figures that are counted over equal work: of transactions, then of operations.
const COUNTED: [&str; 14] = [
    "wal_per_transaction",
    "wal_images_per_transaction",
    "hint_images_per_transaction",
    "blocks_read_per_transaction",
    "blocks_written_per_transaction",
    "disk_read_per_transaction",
    "file_writes_per_transaction",
    "wal_per_page",
    "wal_images_per_page",
    "hint_images_per_page",
    "blocks_read_per_page",
    "blocks_written_per_page",
    "disk_read_per_page",
    "file_writes_per_page",
];

/// [`Metric::ALL`] by their names in records.
const COMPARED: [&str; 6] = [
    "cpu_per_transaction",
    "transactions_per_second",
    "latency_median",
    "latency_p99",
    "cpu_per_operation",
    "operation_time",
];

impl ExpectedFigure {
    /// The figure with this name in records and results.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(counted) = COUNTED.into_iter().find(|of| *of == name) {
            return Some(Self::Counted(counted));
        }
        serde_json::from_value(Value::from(name)).ok().map(Self::Compared)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        COMPARED.into_iter().chain(COUNTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_name() {
        let compared = COMPARED.map(ExpectedFigure::named);
        assert_eq!(compared, Metric::ALL.map(|of| Some(ExpectedFigure::Compared(of))));
        assert_eq!(ExpectedFigure::named("cpu"), None);
    }
}
