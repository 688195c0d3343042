//! Thresholds for figures, as `--fail-if` takes them.

mod checkup;
mod decide;
mod parse;
mod prediction;

use pgtoll_record::{Metric, RunResult, Work, Workload};

pub use checkup::{CheckupFigure, CheckupThreshold, checkup_figures};
pub use decide::{Decision, ThresholdOutcome, decide};
pub use prediction::PredictionThreshold;

use crate::metrics::{key, metrics};

/// A refused condition: `[WORKLOAD/]ARM.METRIC > NUMBER[%|UNIT]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// The name of the workload; `None`: each with this metric.
    workload: Option<String>,
    arm: String,
    figure: Figure,
    relation: Relation,
    limit: Limit,
    /// As it was written.
    text: String,
}

/// A figure of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// It has an interval, as a difference from the baseline.
    Compared(Metric),
    /// A counter: its name among the values, for a transaction or for a page.
    Counted(&'static str),
}

/// On which side of the number the threshold is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// The limit of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Per cent of difference from the baseline.
    Percent(f64),
    /// In the figure's own unit.
    Absolute(f64),
}

/// The faults of a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" {problem}")]
pub struct ThresholdError {
    text: String,
    problem: String,
    hint: String,
}

impl ThresholdError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl Threshold {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a run of this kind can decide it at all: the names are known, and figures of that
    /// kind are going to be there.
    pub fn check(
        &self,
        baseline: &str,
        arms: &[&str],
        workloads: &[Workload],
    ) -> Result<(), ThresholdError> {
        if !arms.contains(&self.arm.as_str()) {
            return Err(self.error(
                format!("names arm \"{}\", which is not there", self.arm),
                format!("arms: {}", arms.join(", ")),
            ));
        }
        if self.arm == baseline && matches!(self.limit, Limit::Percent(_)) {
            let others: Vec<&str> = arms.iter().copied().filter(|arm| *arm != baseline).collect();
            return Err(self.error(
                format!("compares the baseline \"{baseline}\" with itself"),
                format!("arms: {}", others.join(", ")),
            ));
        }
        self.check_workloads(workloads)
    }

    fn check_workloads(&self, workloads: &[Workload]) -> Result<(), ThresholdError> {
        let named: Vec<&Workload> = match &self.workload {
            Some(name) => workloads.iter().filter(|workload| workload.name == *name).collect(),
            None => workloads.iter().collect(),
        };
        let names = |workloads: &[&Workload]| {
            workloads.iter().map(|item| item.name.clone()).collect::<Vec<_>>().join(", ")
        };
        if let (Some(name), []) = (&self.workload, named.as_slice()) {
            return Err(self.error(
                format!("names workload \"{name}\", which is not there"),
                format!("workloads: {}", names(&workloads.iter().collect::<Vec<_>>())),
            ));
        }
        if named.iter().any(|workload| self.figure.is_of(workload)) {
            return Ok(());
        }
        let with: Vec<&Workload> =
            workloads.iter().filter(|workload| self.figure.is_of(workload)).collect();
        let hint = match with.as_slice() {
            [] => format!("known: {}; --budget lets more workloads be timed", known(workloads)),
            some => format!("workloads with it: {}", names(some)),
        };
        let name = self.figure.name();
        let which = match &self.workload {
            Some(workload) => format!("workload \"{workload}\" has no {name}, or is not timed"),
            None => format!("no workload that is timed has {name}"),
        };
        Err(self.error(format!("cannot be decided: {which}"), hint))
    }

    fn error(&self, problem: String, hint: String) -> ThresholdError {
        ThresholdError { text: self.text.clone(), problem, hint }
    }

    /// The workloads of a result that it is about.
    fn workloads<'a>(&self, result: &'a RunResult) -> impl Iterator<Item = &'a Workload> {
        let all = result.header.workloads.iter().filter(|workload| self.figure.is_of(workload));
        let all = all.filter(|item| match self.figure {
            Figure::Counted(name) if !item.work.is_of_transactions() => result
                .values
                .iter()
                .any(|value| value.workload == item.name && value.metric == name),
            _ => true,
        });
        all.filter(|item| self.workload.as_ref().is_none_or(|name| *name == item.name))
    }

    /// It was going to be timed, the run's budget was spent before, and no threshold names it.
    fn passes_over(&self, workload: &Workload, result: &RunResult) -> bool {
        let timed = matches!(self.figure, Figure::Compared(_)) && workload.slicing.is_some();
        let left_out = timed && result.complete && !result.rounds.contains_key(&workload.name);
        left_out && self.workload.is_none()
    }
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Compared(metric) => key(metric).0,
            Self::Counted(name) => name,
        }
    }

    /// Whether a workload of this kind has it.
    fn is_of(self, workload: &Workload) -> bool {
        match self {
            Self::Compared(metric) => workload.timed && metrics(workload).contains(&metric),
            Self::Counted(name) => match workload.work {
                Work::Command { .. } => false,
                _ if workload.work.is_of_transactions() => name.ends_with("_per_transaction"),
                // Which of the two depends on whether the operation's table is known.
                _ => name.ends_with("_per_page") || name.ends_with("_per_operation"),
            },
        }
    }
}

/// The metrics that these workloads have.
fn known(workloads: &[Workload]) -> String {
    let all = METRIC_NAMES
        .iter()
        .filter_map(|(name, _)| parse::figure(name).map(|figure| (name, figure)));
    let all = all.filter(|(_, figure)| workloads.iter().any(|workload| figure.is_of(workload)));
    all.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The names of metrics in thresholds, and the full names where they are short for others.
const METRIC_NAMES: [(&str, &str); 25] = [
    ("cpu_per_tx", "cpu_per_transaction"),
    ("tps", "transactions_per_second"),
    ("latency_p50", "latency_p50"),
    ("latency_p90", "latency_p90"),
    ("latency_p95", "latency_p95"),
    ("latency_p99", "latency_p99"),
    ("latency_stddev", "latency_stddev"),
    ("cpu_per_operation", "cpu_per_operation"),
    ("operation_time", "operation_time"),
    ("client_cpu_per_operation", "client_cpu_per_operation"),
    ("wal_per_tx", "wal_per_transaction"),
    ("wal_per_page", "wal_per_page"),
    ("wal_per_operation", "wal_per_operation"),
    ("images_per_tx", "wal_images_per_transaction"),
    ("images_per_page", "wal_images_per_page"),
    ("images_per_operation", "wal_images_per_operation"),
    ("hint_images_per_tx", "hint_images_per_transaction"),
    ("hint_images_per_page", "hint_images_per_page"),
    ("hint_images_per_operation", "hint_images_per_operation"),
    ("blocks_read_per_tx", "blocks_read_per_transaction"),
    ("blocks_read_per_page", "blocks_read_per_page"),
    ("blocks_read_per_operation", "blocks_read_per_operation"),
    ("blocks_written_per_tx", "blocks_written_per_transaction"),
    ("blocks_written_per_page", "blocks_written_per_page"),
    ("blocks_written_per_operation", "blocks_written_per_operation"),
];
