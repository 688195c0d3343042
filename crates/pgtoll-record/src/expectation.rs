//! Claims and expectations before a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Metric;

/// An expectation, and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The name of the workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The figure: a [`Metric`], or a counted one such as `wal_per_page`.
    pub metric: String,
    /// The bounds are of the difference from the baseline, or from the arm `against`, as a
    /// fraction: 0.08 is 8 %. Else they are of the arm's value.
    pub relative: bool,
    /// The arm that the difference is from, where that is not the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The least that is expected.
    pub lower: Option<f64>,
    /// The most that is expected.
    pub upper: Option<f64>,
    /// The source of the expectation.
    pub source: String,
    /// The published sentence, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The address of the publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Why it may come out otherwise here; shown unless it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<String>,
}

/// A figure that something can be expected of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFigure {
    /// Compared with the baseline, with an interval.
    Compared(Metric),
    /// Counted over equal work.
    Counted(&'static str),
}

/// Figures that are counted over equal work: of transactions, of operations for each page of a
/// table, of whole operations.
const COUNTED: [&str; 21] = [
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
    "wal_per_operation",
    "wal_images_per_operation",
    "hint_images_per_operation",
    "blocks_read_per_operation",
    "blocks_written_per_operation",
    "disk_read_per_operation",
    "file_writes_per_operation",
];

/// [`Metric::ALL`] by their names in records.
const COMPARED: [&str; 10] = [
    "cpu_per_transaction",
    "transactions_per_second",
    "latency_median",
    "latency_p90",
    "latency_p95",
    "latency_p99",
    "latency_stddev",
    "cpu_per_operation",
    "operation_time",
    "client_cpu_per_operation",
];

impl ExpectedFigure {
    /// The figure with this name in records and results.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(counted) = COUNTED.into_iter().find(|counted| *counted == name) {
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
        assert_eq!(compared, Metric::ALL.map(|item| Some(ExpectedFigure::Compared(item))));
        assert_eq!(ExpectedFigure::named("cpu"), None);
    }
}
