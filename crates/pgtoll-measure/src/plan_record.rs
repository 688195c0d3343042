//! A plan as a record: what would run, before anything does.

use std::time::Duration;

use pgtoll_format::TimeSpan;
use pgtoll_record::PlannedRun;

use crate::{Plan, recorded_workloads};

/// The plan, for programs; `name` is the run's own, and `warnings` are what its user has to know.
pub fn planned_run(plan: &Plan, name: Option<&str>, warnings: Vec<String>) -> PlannedRun {
    let experiment = &plan.experiment;
    PlannedRun {
        experiment: experiment.name.clone(),
        name: name.map(str::to_owned),
        question: experiment.question.clone(),
        baseline: experiment.baseline.clone(),
        arms: experiment.arms.iter().map(|arm| arm.name.clone()).collect(),
        settings: experiment.settings.clone(),
        workloads: recorded_workloads(plan),
        left_out: plan.left_out.clone(),
        rounds: plan.design.rounds,
        repetitions: plan.design.repetitions,
        scale: experiment.scale,
        seed: plan.seed,
        seconds: (plan.duration() + Duration::from_millis(500)).as_secs(),
        disk_bytes: plan.disk_bytes(),
        warnings,
        lines: plan.lines(),
    }
}

/// Says that the least that the experiment takes is more than the budget; `None`: it is not.
pub fn over_budget(plan: &Plan) -> Option<String> {
    let budget = plan.budget?;
    let duration = plan.duration();
    // What a plan leaves out makes it no shorter than this.
    (duration > budget.mul_f64(TOLERANCE)).then(|| {
        format!(
            "the budget of {} is too short: the least that {} takes is about {}",
            TimeSpan(budget).rounded(),
            plan.experiment.name,
            TimeSpan(duration).rounded()
        )
    })
}

/// Plans are estimates.
const TOLERANCE: f64 = 1.1;
