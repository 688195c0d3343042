//! What there is, and what would be done: `--list`, `--check`.

use std::fmt::Write as _;
use std::time::Duration;

use pgtoll_bench::{BUILT_IN, Plan};
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_record::{EXPERIMENTS_SCHEMA, ExperimentList, ListedExperiment};

use super::{PlannedExperiment, choices, experiment};
use crate::arguments::MeasureArguments;
use crate::commands::output;

/// The built-in experiments, a line each, with the time that they take.
pub(super) fn list(arguments: &MeasureArguments) -> anyhow::Result<String> {
    let plans = BUILT_IN.iter().map(|(name, _)| {
        let plan = Plan::new(experiment(name)?, &choices(arguments));
        Ok(ListedExperiment {
            name: (*name).to_owned(),
            seconds: (plan.duration() + Duration::from_millis(500)).as_secs(),
            disk_bytes: plan.disk_bytes(),
            question: plan.experiment.question,
        })
    });
    let experiments: Vec<ListedExperiment> = plans.collect::<anyhow::Result<_>>()?;
    if arguments.json {
        let list = ExperimentList { schema: EXPERIMENTS_SCHEMA.to_owned(), experiments };
        return output::json(&list);
    }
    let width = experiments.iter().map(|of| of.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ListedExperiment { name, question, seconds, .. } in &experiments {
        let time = TimeSpan(Duration::from_secs(*seconds)).rounded();
        let _ = writeln!(text, "{name:<width$} {question} ({time})");
    }
    Ok(text)
}

/// What `--check` says of experiments in which nothing is wrong.
pub(super) fn checked(asked: &[PlannedExperiment]) -> String {
    let each: Vec<String> = asked.iter().map(checked_one).collect();
    each.join("\n") + &sum(asked).map(|sum| format!("\n{sum}\n")).unwrap_or_default()
}

fn checked_one(PlannedExperiment { name, plan, .. }: &PlannedExperiment) -> String {
    let (arms, workloads) = (plan.experiment.arms.len(), plan.experiment.workloads.len());
    let plural = if workloads == 1 { "" } else { "s" };
    let first = format!("{name}: {arms} arms, {workloads} workload{plural}: nothing is wrong");
    [vec![first], plan.lines()].concat().join("\n") + "\n"
}

/// What several need together, one after the other; `None` of one.
pub(super) fn sum(asked: &[PlannedExperiment]) -> Option<String> {
    let time: Duration = asked.iter().map(|of| of.plan.duration()).sum();
    let disk = asked.iter().map(|of| of.plan.disk_bytes()).max()?;
    (asked.len() > 1).then(|| {
        format!(
            "{} experiments, one after the other: about {} of time, at most {} of disk at once",
            asked.len(),
            TimeSpan(time).rounded(),
            ByteSize(disk).rounded()
        )
    })
}
