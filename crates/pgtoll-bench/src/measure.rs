//! Runs a plan and writes its record.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard, GuardOptions, Installation, MemoryGroup};
use pgtoll_interrupt::Interrupt;
use pgtoll_load::{Mix, Script};
use pgtoll_observe as observe;
use pgtoll_record::{
    Arm, Calibration, End, EndStatus, Header, Host, Line, Metric, Note, OperationOf, Prepared,
    RECORD_SCHEMA, ScriptText, Server, Work, Workload,
};
use pgtoll_stats::BalancedOrders;

use crate::counting::count_all;
use crate::experiment::StepKind;
use crate::operations::Operations;
use crate::pace::Pace;
use crate::prepare::{DATABASE, check_reloadable, prepare};
use crate::profile::profile;
use crate::recorder::Recorder;
use crate::round::Rounds;
use crate::server::nanoseconds;
use crate::{BenchError, ExpectSpec, Plan, SoFar, StepSpec, WorkloadSpec};

/// Where and with what a plan runs.
#[derive(Debug)]
pub struct Site<'a> {
    /// The servers' programs.
    pub installation: &'a Installation,
    /// How to begin the guard.
    pub guard: &'a GuardOptions,
    /// Whether a signal came.
    pub interrupt: &'a Interrupt,
    /// Where the record goes; the directory exists.
    pub output: &'a Path,
    /// What earlier runs on this machine say of its intervals.
    pub calibration: Vec<Calibration>,
    /// pgtoll's version.
    pub pgtoll: &'a str,
    /// The command that makes this run again.
    pub command: Vec<String>,
}

/// What a run is about at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress<'a> {
    /// Where the clusters are.
    Directory(&'a Path),
    /// Something that takes a while.
    Stage(&'a str),
    /// A block of a round begins; both count from 1.
    Block {
        /// The workload's name.
        workload: &'a str,
        /// The round.
        round: u32,
        /// The block in the round.
        block: u32,
        /// What the rounds before it have shown.
        so_far: SoFar,
    },
    /// A repetition of operations begins.
    Repetition {
        /// The workload's title.
        title: &'a str,
        /// Which one, from 1.
        repetition: u32,
        /// How many there will be.
        of: u32,
        /// What those before it have shown.
        so_far: SoFar,
    },
}

/// Runs the plan. Whatever ends it, the record holds what was measured, and no process and no
/// directory stays (but for the guard's `keep`).
pub fn measure(
    plan: &Plan,
    site: &Site<'_>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let began = Instant::now();
    plan.check_room(&site.guard.base)?;
    let mut guard = Guard::begin(site.guard, site.interrupt)?;
    progress(Progress::Directory(guard.directory()));
    let first = Line::Header(Box::new(header(plan, site)?));
    let mut recorder = Recorder::create(site.output, &first)?;
    let outcome = run(plan, site, &mut guard, &mut recorder, progress);
    // When a signal came, whatever failed failed because of it.
    let outcome = site.interrupt.check().map_err(BenchError::from).and(outcome);
    let outcome = outcome.map_err(|error| error.or_disk_full(guard.directory()));
    recorder.write(&Line::End(End {
        status: match &outcome {
            Ok(()) => EndStatus::Complete,
            Err(error) if error.is_interruption() => EndStatus::Interrupted,
            Err(_) => EndStatus::Failed,
        },
        reason: outcome.as_ref().err().map(ToString::to_string),
        seconds: began.elapsed().as_secs_f64(),
    }))?;
    recorder.sync()?;
    let finished = guard.finish();
    MemoryGroup::remove_all();
    outcome?;
    Ok(finished?)
}

fn run(
    plan: &Plan,
    site: &Site<'_>,
    guard: &mut Guard,
    recorder: &mut Recorder,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), BenchError> {
    let began = Instant::now();
    let facts = site.installation.version.facts().map_err(pgtoll_cluster::ClusterError::from)?;
    if plan.experiment.workloads.iter().any(|of| of.command.is_some())
        && !facts.has_force_next_flush
    {
        return Err(BenchError::TooOldForCommands(site.installation.version.to_string()));
    }
    let pgtoll = own_program(plan, site, guard)?;
    let arms = prepare(plan, guard, site.installation, progress)?;
    let first = arms.loaded.first().or(arms.empty.first());
    if let Some(first) = first {
        let data_bytes = first.bytes()?;
        let version_text = version_text(first, guard)?;
        recorder.write(&Line::Prepared(Prepared { version_text, data_bytes }))?;
    }
    for text in plan.warnings() {
        recorder.write(&Line::Note(Note { text }))?;
    }
    let interrupt = site.interrupt;
    if let (true, Some(cluster)) = (plan.design.crossover, arms.loaded.first()) {
        check_reloadable(&plan.experiment, cluster, guard)?;
    }
    count_all(plan, facts, &arms.loaded, interrupt, guard, recorder, progress)?;
    let kappa = |metric: Metric| {
        site.calibration.iter().find(|of| of.metric == metric).map_or(1.0, |of| of.kappa)
    };
    let mut operations = Operations {
        plan,
        facts,
        arms: &arms,
        pgtoll: &pgtoll,
        interrupt,
        run_began: began,
        kappa: kappa(Metric::CpuPerOperation),
        done: Vec::new(),
        noted: BTreeSet::new(),
    };
    operations.run(guard, recorder, progress)?;
    let timed = plan.experiment.sliced().filter(|of| plan.timed.contains(&of.name));
    for workload in timed {
        let Some(slicing) = plan.slicing.get(&workload.name) else { continue };
        let mut pace = Pace::new(plan, began);
        let is_first = plan.timed.first() == Some(&workload.name);
        let blocks = pace.blocks(slicing, plan.beyond_blocks(slicing));
        if !is_first && blocks < slicing.blocks_per_round / 4 {
            let text = format!("{}: not timed after all, the budget is spent", workload.name);
            recorder.write(&Line::Note(Note { text }))?;
            continue;
        }
        let arms_of = plan.experiment.arms.len();
        let mut rounds = Rounds {
            plan,
            workload,
            slicing,
            slice_transactions: None,
            slices: Vec::new(),
            kappa: kappa(Metric::CpuPerTransaction),
            facts,
            clusters: &arms.loaded,
            interrupt,
            run_began: began,
            start_orders: BalancedOrders::new(arms.loaded.len(), plan.seed.wrapping_add(1)),
            slice_orders: BalancedOrders::new(arms_of, plan.seed),
        };
        let mut shortest = slicing.blocks_per_round;
        let rounds_began = Instant::now();
        for round in 1..=plan.design.rounds {
            let round_began = Instant::now();
            let blocks = pace.blocks(slicing, plan.beyond_blocks(slicing));
            let (half_width, took) = (rounds.half_width(), rounds_began.elapsed());
            let so_far = SoFar::after(half_width, round - 1, plan.design.rounds, took);
            rounds.run(round, blocks, so_far, guard, recorder, progress)?;
            pace.learn(slicing, blocks, round_began.elapsed());
            shortest = shortest.min(blocks);
            if rounds.is_precise_enough(round) {
                break;
            }
        }
        if shortest < slicing.blocks_per_round {
            let (name, planned) = (&workload.name, slicing.blocks_per_round);
            let text = format!(
                "{name}: rounds were cut from {planned} blocks to as few as {shortest} to keep to \
                 the budget"
            );
            recorder.write(&Line::Note(Note { text }))?;
        }
        profile(&rounds, guard, recorder, progress)?;
    }
    Ok(())
}

/// pgtoll's own program. Where steps call it, the servers' user has to be able to.
fn own_program(plan: &Plan, site: &Site<'_>, guard: &mut Guard) -> Result<PathBuf, BenchError> {
    let executable = &site.guard.executable;
    let path = std::fs::canonicalize(executable)
        .map_err(|source| BenchError::Read { path: executable.clone(), source })?;
    let mut steps = plan.experiment.workloads.iter().flat_map(|of| &of.steps);
    if steps.any(StepSpec::calls_pgtoll) {
        guard.check_executable(&path)?;
    }
    Ok(path)
}

fn version_text(cluster: &Cluster, guard: &mut Guard) -> Result<String, BenchError> {
    cluster.start(guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    let version =
        connection.query_one("SELECT version() AS version").and_then(|row| row.parse("version"));
    connection.close();
    cluster.stop(guard, pgtoll_cluster::StopMode::Fast)?;
    version.map_err(|source| BenchError::query(cluster, source))
}

fn header(plan: &Plan, site: &Site<'_>) -> Result<Header, BenchError> {
    let experiment = &plan.experiment;
    Ok(Header {
        schema: RECORD_SCHEMA.to_owned(),
        kind: "run".to_owned(),
        pgtoll: site.pgtoll.to_owned(),
        command: site.command.clone(),
        started: jiff::Timestamp::now().to_string(),
        seed: plan.seed,
        host: host(&site.guard.base)?,
        server: Server {
            version: site.installation.version.clone(),
            origin: site.installation.origin.to_string(),
            user: site.guard.user.name.clone(),
            settings: experiment.settings.clone(),
        },
        experiment: experiment.name.clone(),
        question: experiment.question.clone(),
        baseline: experiment.baseline.clone(),
        arms: experiment
            .arms
            .iter()
            .map(|arm| Arm {
                name: arm.name.clone(),
                checksums: arm.checksums,
                settings: arm.settings.clone(),
                values: arm.values.clone(),
                twin_of: arm.twin_of.clone(),
                against: arm.against.clone(),
            })
            .collect(),
        workloads: recorded_workloads(plan),
        design: plan.design.clone(),
        calibration: site.calibration.clone(),
        // A quick look leaves workloads out.
        expect: experiment
            .expect
            .iter()
            .filter(|of| {
                experiment
                    .workloads
                    .iter()
                    .flat_map(WorkloadSpec::names)
                    .any(|name| name == of.workload)
            })
            .filter_map(ExpectSpec::expectation)
            .collect(),
    })
}

/// The workloads as a record of the plan names them.
pub fn recorded_workloads(plan: &Plan) -> Vec<Workload> {
    plan.experiment.workloads.iter().flat_map(|of| workloads(of, plan)).collect()
}

/// What is recorded of a workload: itself, or each of its measured steps and their total.
fn workloads(of: &WorkloadSpec, plan: &Plan) -> Vec<Workload> {
    let workload = |name: &str, title: &str, work| Workload {
        name: name.to_owned(),
        title: title.to_owned(),
        work,
        settings: of.settings.clone(),
        timed: plan.timed.contains(&of.name) && (of.is_sliced() || plan.design.repetitions > 0),
        slicing: plan.slicing.get(&of.name).cloned(),
        memory_limit_bytes: of.memory.map(|of| of.0),
    };
    let script = of.mix.iter().map(|mix| {
        let work = Work::Script { scripts: texts(mix), rate: of.rate, counted: of.counted };
        workload(&of.name, &of.title, work)
    });
    let command = of
        .command
        .iter()
        .map(|command| workload(&of.name, &of.title, Work::Command { command: command.clone() }));
    let steps = of.measured().map(|(name, step)| {
        let action = step.action();
        let title = step.title.clone().unwrap_or_else(|| action.clone());
        workload(name, &title, Work::Operation { action, of: step_of(step) })
    });
    let total = of.total.iter().map(|name| {
        let actions: Vec<String> = of.measured().map(|(_, step)| step.action()).collect();
        workload(name, &of.title, Work::Operation { action: actions.join("; "), of: None })
    });
    script.chain(command).chain(steps).chain(total).collect()
}

/// What more than its action there is to say of a step.
fn step_of(step: &StepSpec) -> Option<OperationOf> {
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

/// Facts of this machine; `work_base` is where the clusters are made.
pub fn host(work_base: &Path) -> Result<Host, BenchError> {
    Ok(Host {
        kernel: observe::kernel()?,
        cpu: observe::cpu_model(),
        cores: observe::cores(),
        memory_bytes: observe::memory()?.total_bytes,
        file_system: observe::file_system(work_base)?,
        hypervisor: observe::hypervisor(),
        transparent_huge_pages: observe::transparent_huge_pages(),
        governor: observe::governor(),
        cpu_split: match observe::cpu_split() {
            observe::CpuSplit::Exact => "exact",
            observe::CpuSplit::Sampled { .. } => "sampled",
        }
        .to_owned(),
    })
}
