//! From a result and a threshold to a decision.

use pgtoll_record::{Interval, MetricValue, RunResult, Workload};

use super::{Figure, Limit, Relation, Threshold};
use crate::figures::{signed_percent, three_digits};

/// The decision about a threshold under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The threshold, the workload, the figure and the outcome, in a line.
    pub line: String,
    /// The outcome alone.
    pub outcome: ThresholdOutcome,
}

/// How it is decided. The order is that in which the worst one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThresholdOutcome {
    /// The whole interval lies on the good side.
    Kept,
    /// The interval covers the threshold, or there is no figure.
    NotResolved,
    /// The whole interval lies beyond the threshold.
    Broken,
}

impl ThresholdOutcome {
    /// As lines end.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::NotResolved => "not resolved",
            Self::Broken => "threshold exceeded",
        }
    }
}

/// A decision for each workload that the threshold is about; at least one.
pub fn decide(threshold: &Threshold, result: &RunResult) -> Vec<Decision> {
    let decision =
        |text: &str, outcome| Decision { line: format!("{}: {text}", threshold.text), outcome };
    let (left_out, workloads): (Vec<&Workload>, Vec<&Workload>) =
        threshold.workloads(result).partition(|workload| threshold.passes_over(workload, result));
    if workloads.is_empty() {
        return vec![decision(
            "no workload has this figure: not resolved",
            ThresholdOutcome::NotResolved,
        )];
    }
    let decided = workloads.into_iter().map(|workload| under(threshold, workload, result));
    let left_out = left_out.into_iter().map(|workload| {
        decision(&format!("{}: was not timed: passed over", workload.name), ThresholdOutcome::Kept)
    });
    decided.chain(left_out).collect()
}

fn under(threshold: &Threshold, workload: &Workload, result: &RunResult) -> Decision {
    let (figure, outcome) = match threshold.figure {
        Figure::Compared(metric) => {
            let mut all = result.comparisons.iter();
            let item = all.find(|comparison| {
                comparison.workload == workload.name
                    && comparison.metric == metric
                    && comparison.arm == threshold.arm
            });
            item.map_or_else(missing, |comparison| compared(threshold, &comparison.ratio))
        }
        Figure::Counted(name) => counted(threshold, workload, name, result),
    };
    let line = format!("{}: {}: {figure}: {}", threshold.text, workload.name, outcome.describe());
    Decision { line, outcome }
}

fn missing() -> (String, ThresholdOutcome) {
    ("no figure".to_owned(), ThresholdOutcome::NotResolved)
}

fn compared(threshold: &Threshold, ratio: &Interval) -> (String, ThresholdOutcome) {
    let Limit::Percent(limit) = threshold.limit else { return missing() };
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let lower = percent(ratio.lower);
    let upper = percent(ratio.upper);
    let figure = format!(
        "{} % [{}, {}]",
        signed_percent(ratio.estimate, 1),
        signed_percent(ratio.lower, 1),
        signed_percent(ratio.upper, 1)
    );
    (figure, threshold.relation.of_interval(lower, upper, limit))
}

fn counted(
    threshold: &Threshold,
    workload: &Workload,
    name: &str,
    result: &RunResult,
) -> (String, ThresholdOutcome) {
    let value = |arm: &str| -> Option<&MetricValue> {
        let mut all = result.values.iter();
        all.find(|value| {
            value.workload == workload.name && value.arm == arm && value.metric == name
        })
    };
    let Some(own) = value(&threshold.arm) else { return missing() };
    match threshold.limit {
        Limit::Absolute(limit) => {
            let figure = format!("{} {}", three_digits(own.value), own.unit);
            exactly(figure, own.exact, threshold.relation.of_value(own.value, limit))
        }
        Limit::Percent(limit) => {
            let Some(baseline) = value(&result.header.baseline) else { return missing() };
            let ratio = if own.value.to_bits() == baseline.value.to_bits() {
                1.0
            } else {
                own.value / baseline.value
            };
            let from = three_digits(baseline.value);
            let to = three_digits(own.value);
            let figure = if ratio.is_finite() {
                format!("{} % (from {from} to {to} {})", signed_percent(ratio, 1), own.unit)
            } else {
                format!("from {from} to {to} {}", own.unit)
            };
            let broken = threshold.relation.of_value((ratio - 1.0) * 100.0, limit);
            exactly(figure, own.exact && baseline.exact, broken)
        }
    }
}

/// A counter that did not come out the same each time decides nothing: its spread is unknown.
fn exactly(figure: String, exact: bool, broken: bool) -> (String, ThresholdOutcome) {
    match (exact, broken) {
        (false, _) => (format!("{figure}, not the same each time"), ThresholdOutcome::NotResolved),
        (true, true) => (figure, ThresholdOutcome::Broken),
        (true, false) => (figure, ThresholdOutcome::Kept),
    }
}

impl Relation {
    fn of_value(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Less => value < limit,
            Self::AtMost => value <= limit,
            Self::Greater => value > limit,
            Self::AtLeast => value >= limit,
        }
    }

    /// It holds for all of the interval, for a part of it, or for nothing of it.
    pub(super) fn of_interval(self, lower: f64, upper: f64, limit: f64) -> ThresholdOutcome {
        match (self.of_value(lower, limit), self.of_value(upper, limit)) {
            _ if lower.is_nan() || upper.is_nan() => ThresholdOutcome::NotResolved,
            (true, true) => ThresholdOutcome::Broken,
            (false, false) => ThresholdOutcome::Kept,
            _ => ThresholdOutcome::NotResolved,
        }
    }
}
