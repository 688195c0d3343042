//! The header of a record, written before anything is measured.

use pgtoll_record::{
    Arm, ArmServer, Expectation, Header, OperationOf, RECORD_SCHEMA, ScriptText, Server, Work,
    Workload,
};
use pgtoll_workload::{Mix, Script};

use crate::experiment::StepKind;
use crate::host::host;
use crate::plan::TURN;
use crate::units::nanoseconds;
use crate::{ArmSpec, BenchError, ExpectSpec, Experiment, Plan, Site, StepSpec, WorkloadSpec};

/// The first line of a plan's record.
pub(crate) fn header(plan: &Plan, site: &Site<'_>) -> Result<Header, BenchError> {
    let experiment = &plan.experiment;
    let baseline = site.baseline(experiment);
    Ok(Header {
        schema: RECORD_SCHEMA.to_owned(),
        kind: "run".to_owned(),
        pgtoll: site.pgtoll.to_owned(),
        command: site.command.clone(),
        started: jiff::Timestamp::now().to_string(),
        seed: plan.seed,
        host: host(&site.guard.base)?,
        server: Server {
            version: baseline.version.clone(),
            origin: baseline.origin.to_string(),
            user: site.guard.user.name.clone(),
            settings: experiment.settings.clone(),
        },
        name: site.name.clone(),
        experiment: experiment.name.clone(),
        question: experiment.question.clone(),
        baseline: experiment.baseline.clone(),
        arms: experiment.arms.iter().map(|arm| recorded_arm(arm, site)).collect(),
        workloads: recorded_workloads(plan),
        design: plan.design.clone(),
        calibration: site.calibration.clone(),
        expect: expectations(experiment),
    })
}

fn recorded_arm(arm: &ArmSpec, site: &Site<'_>) -> Arm {
    let installation = site.server(arm);
    let server = arm.postgres.is_some().then(|| ArmServer {
        version: installation.version.clone(),
        origin: installation.origin.to_string(),
        bin: installation.bin.display().to_string(),
    });
    let ArmSpec { name, since: _, postgres: _, checksums, settings, values, twin_of, against } =
        arm.clone();
    Arm { name, checksums, settings, values, twin_of, against, server }
}

/// Those of workloads that a quick look has not left out.
fn expectations(experiment: &Experiment) -> Vec<Expectation> {
    let exists = |name: &str| {
        experiment.workloads.iter().flat_map(WorkloadSpec::names).any(|known| known == name)
    };
    let planned = experiment.expect.iter().filter(|expected| exists(&expected.workload));
    planned.filter_map(ExpectSpec::expectation).collect()
}

/// The workloads as a record of the plan names them.
pub fn recorded_workloads(plan: &Plan) -> Vec<Workload> {
    plan.experiment.workloads.iter().flat_map(|workload| figures(workload, plan)).collect()
}

/// The figures that a workload has in the record: itself, or each of its measured steps and their
/// total.
fn figures(spec: &WorkloadSpec, plan: &Plan) -> Vec<Workload> {
    let workload = |name: &str, title: &str, work| Workload {
        name: name.to_owned(),
        title: title.to_owned(),
        work,
        settings: spec.settings.clone(),
        timed: plan.timed.contains(&spec.name) && (spec.is_sliced() || plan.design.repetitions > 0),
        slicing: plan.slicing.get(&spec.name).cloned(),
        memory_limit_bytes: spec.memory.map(|limit| limit.0),
    };
    let script = spec.mix.iter().map(|mix| {
        let work = Work::Script {
            scripts: texts(mix),
            rate: spec.rate,
            counted: spec.counted,
            clients: spec.clients(),
        };
        workload(&spec.name, &spec.title, work)
    });
    let command = spec.command.iter().map(|command| {
        workload(&spec.name, &spec.title, Work::Command { command: command.clone() })
    });
    let turn_ns = spec.takes_turns().then(|| nanoseconds(TURN));
    let steps = spec.measured().map(|(name, step)| {
        let action = step.action();
        let title = step.title.clone().unwrap_or_else(|| action.clone());
        workload(name, &title, Work::Operation { action, of: operation_kind(step), turn_ns })
    });
    let total = spec.total.iter().map(|name| {
        let actions: Vec<String> = spec.measured().map(|(_, step)| step.action()).collect();
        let work = Work::Operation { action: actions.join("; "), of: None, turn_ns };
        workload(name, &spec.title, work)
    });
    script.chain(command).chain(steps).chain(total).collect()
}

/// Returns the details of a step beyond its text; `None` for statements, pgbench's steps and restarts.
fn operation_kind(step: &StepSpec) -> Option<OperationOf> {
    match step.kind() {
        StepKind::Program(_) => Some(OperationOf::Program),
        StepKind::Crash => Some(OperationOf::Recovery),
        StepKind::Script(mix) => Some(OperationOf::Script {
            scripts: texts(mix),
            clients: step.clients(),
            transactions: step.transactions,
            time_ns: step.time.map(|time| nanoseconds(time.0)),
            rate: step.rate,
            beside: step.beside.clone(),
        }),
        StepKind::Sql(_) | StepKind::Pgbench(_) | StepKind::Restart | StepKind::Evict => None,
    }
}

fn texts(mix: &Mix) -> Vec<ScriptText> {
    let text = |(script, weight): &(Script, u32)| ScriptText {
        name: script.name().to_owned(),
        weight: *weight,
        text: (!script.is_built_in()).then(|| script.text().to_owned()),
    };
    mix.scripts().iter().map(text).collect()
}
