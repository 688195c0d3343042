//! Several runs of one experiment side by side.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Arm, Interval, Metric, RunResult, Workload};

/// The version of this form.
pub const SIDE_BY_SIDE_SCHEMA: &str = "pgtoll.side-by-side/1";

/// Records that can be compared, with what differs between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideBySide {
    /// [`SIDE_BY_SIDE_SCHEMA`].
    pub schema: String,
    /// The records, at least one, in the order in which they were named.
    pub records: Vec<RecordColumn>,
    /// Differences between their headers.
    pub differences: Vec<HeaderDifference>,
    /// How the costs that they found differ.
    pub changes: Vec<Change>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The column of one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordColumn {
    /// `A`, `B` and so on: short enough for the title of a column.
    pub label: String,
    /// Its path, as it was named.
    pub name: String,
    /// Its result.
    pub result: RunResult,
}

/// A field of the records' headers that is not the same in all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderDifference {
    /// The field of the header, as `host.cpu`.
    pub field: String,
    /// The value of each record; `None`: the record has no such field.
    pub values: Vec<Option<String>>,
}

/// The ratio that one record found for an arm, over the ratio that the first one found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The record's label.
    pub record: String,
    /// The first record's label.
    pub against: String,
    /// The workload's name.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// The arm's name.
    pub arm: String,
    /// Ratio of ratios. Its interval has as half-width, on the log scale, the root of the sum of the
    /// squares of both: the runs are independent.
    pub ratio: Interval,
}

impl SideBySide {
    /// The workloads of all records, as the first record that has them describes them.
    pub fn workloads(&self) -> Vec<&Workload> {
        let mut workloads: Vec<&Workload> = Vec::new();
        for workload in self.records.iter().flat_map(|record| &record.result.header.workloads) {
            if workloads.iter().all(|known| known.name != workload.name) {
                workloads.push(workload);
            }
        }
        workloads
    }

    /// The arms of all records, twins last.
    pub fn arms(&self) -> Vec<&Arm> {
        let mut arms: Vec<&Arm> = Vec::new();
        for arm in self.records.iter().flat_map(|record| &record.result.header.arms) {
            if arms.iter().all(|known| known.name != arm.name) {
                arms.push(arm);
            }
        }
        arms.sort_by_key(|arm| arm.twin_of.is_some());
        arms
    }

    /// The arm that the others are compared with: the same in all records.
    pub fn baseline(&self) -> &str {
        self.records.first().map_or("", |record| &record.result.header.baseline)
    }
}
