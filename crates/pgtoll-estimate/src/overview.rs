//! The part of an overview that an experiment has.

use pgtoll_record::{OverviewExperiment, RunResult, Workload};

use crate::metrics::metrics;

/// Returns an experiment's part of an overview, from its record if it exists.
pub fn overview_experiment(
    experiment: &OverviewExperiment,
    result: &RunResult,
) -> OverviewExperiment {
    let primary = |workload: &Workload| (workload.name.clone(), metrics(workload)[0]);
    let primary: Vec<_> = result.header.workloads.iter().map(primary).collect();
    let comparisons = result.comparisons.iter();
    let is_primary = |workload: &str, metric| primary.contains(&(workload.to_owned(), metric));
    let arms = &result.header.arms;
    let is_twin = |name: &str| arms.iter().any(|arm| arm.name == name && arm.twin_of.is_some());
    let counted = result.values.iter().filter(|value| {
        value.exact && WAL.contains(&value.metric.as_str()) && !is_twin(&value.arm)
    });
    OverviewExperiment {
        question: result.header.question.clone(),
        baseline: result.header.baseline.clone(),
        answer: result.answer.clone(),
        answers: result.answers.clone(),
        comparisons: comparisons
            .filter(|comparison| is_primary(&comparison.workload, comparison.metric))
            .cloned()
            .collect(),
        counted: counted.cloned().collect(),
        claims: result.expected.clone(),
        ..experiment.clone()
    }
}

const WAL: [&str; 3] = ["wal_per_transaction", "wal_per_page", "wal_per_operation"];
