//! Lists and plans: `--list`, `--check`, `--dry-run`.

use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::ServerUser;
use pgtoll_measure::{BUILT_IN, Plan, planned_run};
use pgtoll_record::{
    EXPERIMENTS_SCHEMA, ExperimentList, ListedExperiment, PLAN_SCHEMA, PlanRecord,
};

use super::{PlannedExperiment, choices, experiment};
use crate::arguments::MeasureArguments;

/// The built-in experiments, with the time that they take.
pub(super) fn list(arguments: &MeasureArguments) -> anyhow::Result<ExperimentList> {
    let plans = BUILT_IN.iter().map(|(name, _)| {
        let plan = Plan::new(experiment(name)?, &choices(arguments));
        Ok(ListedExperiment {
            name: (*name).to_owned(),
            seconds: (plan.duration() + Duration::from_millis(500)).as_secs(),
            disk_bytes: plan.disk_bytes(),
            question: plan.experiment.question,
        })
    });
    let experiments = plans.collect::<anyhow::Result<_>>()?;
    Ok(ExperimentList { schema: EXPERIMENTS_SCHEMA.to_owned(), experiments })
}

/// Returns the plan of valid experiments, for `--check`.
pub(super) fn checked(requested: &[PlannedExperiment]) -> PlanRecord {
    let mut record = record(requested);
    for (item, run) in requested.iter().zip(&mut record.experiments) {
        let arms = item.plan.experiment.arms.len();
        let workloads = item.plan.experiment.workloads.len();
        let plural = if workloads == 1 { "" } else { "s" };
        let first = format!("{}: {arms} arms, {workloads} workload{plural}: valid", item.name);
        run.lines.insert(0, first);
    }
    record
}

/// Returns the plan.
pub(super) fn plan(
    requested: &[PlannedExperiment],
    server: &str,
    user: &ServerUser,
    work_dir: &Path,
) -> PlanRecord {
    PlanRecord {
        server: Some(server.to_owned()),
        work_dir: Some(work_dir.display().to_string()),
        user: Some(user.name.clone()),
        instead_of_root: user.changed,
        ..record(requested)
    }
}

fn record(requested: &[PlannedExperiment]) -> PlanRecord {
    let runs = requested.iter().map(|experiment| {
        planned_run(&experiment.plan, experiment.run_name.as_deref(), experiment.warnings.clone())
    });
    let time: Duration = requested.iter().map(|experiment| experiment.plan.duration()).sum();
    PlanRecord {
        schema: PLAN_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        server: None,
        work_dir: None,
        user: None,
        instead_of_root: false,
        experiments: runs.collect(),
        seconds: time.as_secs(),
        disk_bytes: requested
            .iter()
            .map(|experiment| experiment.plan.disk_bytes())
            .max()
            .unwrap_or(0),
    }
}
