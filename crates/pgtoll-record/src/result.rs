//! The summary of a run, `result.json`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Expectation, Header, Interval, Metric, NoiseShare, RunAnswer, SkippedArm, Verdict};

/// The version of the result's form.
pub const RESULT_SCHEMA: &str = "pgtoll.result/2";

/// The summary of a run: every figure with its interval, its method, and the command that makes
/// it again (in the header).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`RESULT_SCHEMA`].
    pub schema: String,
    /// The run's header.
    pub header: Header,
    /// All that was planned was done.
    pub complete: bool,
    /// Its answer; `None` if nothing was compared or counted, and in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RunAnswer>,
    /// A sentence for each workload that has an answer, in the workloads' order.
    pub answers: Vec<String>,
    /// Settings of every server that are not the default, and how it does I/O; empty in records
    /// before this was kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Arms that were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedArm>,
    /// Rounds that were completed, by workload.
    pub rounds: BTreeMap<String, u32>,
    /// Values of each arm, without comparison.
    pub values: Vec<MetricValue>,
    /// Each arm against the baseline.
    pub comparisons: Vec<Comparison>,
    /// Arms against other arms than the baseline: of a ladder's rungs each against the one below,
    /// and what claims need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against_others: Vec<Comparison>,
    /// Expectations before the run, and their outcomes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Expected>,
    /// Operations in turns, checked by the same ones in one piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_one_piece: Vec<OnePieceCheck>,
    /// Means over the rounds.
    pub noise: Option<NoiseShare>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A metric of an arm over the whole run: ratio of totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricValue {
    /// The name of the workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The figure: a [`Metric`], or `blocks_read_per_transaction` and the like.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// It comes from counters over a fixed amount of work, and another run would give the same.
    pub exact: bool,
    /// The transactions of each round that it is of, where it is not of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_transactions: Option<TransactionRange>,
}

/// Some of an arm's transactions in each round, counted from the checkpoint with which a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransactionRange {
    /// Transactions before them: in the round that has fewest.
    pub from: u64,
    /// The last one: in the round that has most.
    pub to: u64,
}

/// An arm against the baseline, or against another arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The name of the workload.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// The arm.
    pub arm: String,
    /// The arm that it is compared with, where comparisons with others than the baseline stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The arm is a copy of the baseline: its interval should cover 1.
    pub null: bool,
    /// Arm over baseline, typical slice: mean over rounds of the Hodges–Lehmann estimate of the
    /// paired log-ratios, with its interval.
    pub ratio: Interval,
    /// Arm over baseline, ratio of totals, which keeps rare stalls.
    pub total_ratio: Interval,
    /// Half the interval's width, on the log scale: the resolution.
    pub half_width: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// For a comparison that is not resolved: about how many more seconds of rounds or repetitions
    /// would make it narrow enough.
    pub more_seconds: Option<f64>,
    /// Rounds in it.
    pub rounds: u32,
    /// Pairs of slices in it.
    pub pairs: u32,
    /// Pairs that have no log-ratio (a slice without a transaction); they count in totals.
    pub dropped_pairs: u32,
    /// Bootstrap resamples.
    pub resamples: u32,
    /// Factor by which intervals were widened for this machine; `None`: it was never calibrated.
    #[serde(rename = "kappa")]
    pub widening: Option<f64>,
    /// Factor by which all intervals of this workload and metric were widened besides, since a null
    /// arm differed from what it copies by that many half-widths; `None`: none differed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_factor: Option<f64>,
    /// How the comparison held over time; `None` where it has too few pairs.
    #[serde(default, rename = "receipt")]
    pub steadiness: Option<Steadiness>,
}

/// A check by operations in one piece, the arms one after the other, of a comparison of operations in
/// turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnePieceCheck {
    /// The name of the workload.
    pub workload: String,
    /// The metric.
    pub metric: Metric,
    /// The arm.
    pub arm: String,
    /// Arm over baseline in one piece, with its interval.
    pub in_one_piece: Interval,
    /// That interval and the one of the turns overlap.
    pub agrees: bool,
}

impl Comparison {
    /// Half the interval's width, on the log scale, before it was widened for the machine or for a
    /// null arm.
    pub fn half_width_before_widening(&self) -> f64 {
        self.half_width / self.widening.unwrap_or(1.0) / self.null_factor.unwrap_or(1.0)
    }
}

/// Whether a comparison was the same all the time. No slice is ever left out because of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steadiness {
    /// Spearman's rank correlation of the paired log-ratios with time.
    pub drift: f64,
    /// The probability of such a correlation, or a stronger one, when there is no drift.
    pub drift_p: f64,
    /// The typical ratio of the rounds' second halves over that of their first halves.
    pub halves: Option<Interval>,
    /// Slices beyond Tukey's outer fences.
    pub outliers: Option<Outliers>,
}

/// Slices far off, which are in every estimate all the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outliers {
    /// Slices of the arm beyond Tukey's outer fences.
    pub arm: u32,
    /// Slices of the baseline beyond them.
    pub baseline: u32,
    /// Slices of each.
    pub slices: u32,
    /// The probability of numbers as different as these, or more, when the arms do not differ.
    pub p: f64,
}

/// An expectation, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// The expectation.
    pub expectation: Expectation,
    /// The result, in the terms of the bounds; `None` where it was not measured. A counted
    /// figure is its own interval.
    pub found: Option<Interval>,
    /// It was counted over equal work, and another run would give the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// The outcome.
    pub outcome: Outcome,
}

/// How what came out lies to what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval lies within the bounds.
    #[serde(alias = "as_expected")]
    Holds,
    /// The whole interval lies outside of them.
    #[serde(alias = "not_as_expected")]
    DoesNotHold,
    /// A bound lies within the interval.
    NotResolved,
    /// The run does not have this figure.
    NotMeasured,
}

/// The columns of a result as CSV, a row for each metric of an arm.
pub const CSV_COLUMNS: [&str; 14] = [
    "record",
    "workload",
    "arm",
    "metric",
    "value",
    "unit",
    "exact",
    "ratio",
    "ratio_lower",
    "ratio_upper",
    "verdict",
    "rounds",
    "kappa",
    "complete",
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn outcomes_of_older_results_can_be_read() {
        let read = |name: &str| serde_json::from_value::<Outcome>(Value::from(name)).unwrap();
        assert_eq!(read("as_expected"), Outcome::Holds);
        assert_eq!(read("not_as_expected"), Outcome::DoesNotHold);
        let all =
            [Outcome::Holds, Outcome::DoesNotHold, Outcome::NotResolved, Outcome::NotMeasured];
        let names = all.map(|item| serde_json::to_value(item).unwrap());
        assert_eq!(names, ["holds", "does_not_hold", "not_resolved", "not_measured"]);
    }
}
