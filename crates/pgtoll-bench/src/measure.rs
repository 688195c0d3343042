//! Runs a plan and writes its record.

use std::path::Path;
use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard, GuardOptions, Installation, Interrupt};
use pgtoll_observe as observe;
use pgtoll_record::{
    Arm, Calibration, End, EndStatus, Header, Host, Line, Metric, Note, Prepared, RECORD_SCHEMA,
    Server, Work, Workload,
};
use pgtoll_stats::BalancedOrders;

use crate::counting::count_all;
use crate::operations::Operations;
use crate::prepare::{DATABASE, prepare};
use crate::recorder::Recorder;
use crate::round::Rounds;
use crate::{BenchError, Plan, WorkloadSpec};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    outcome?;
    Ok(guard.finish()?)
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
    count_all(plan, facts, &arms.loaded, interrupt, guard, recorder, progress)?;
    let clusters = &arms.empty;
    let operations = Operations { plan, facts, clusters, interrupt, run_began: began };
    operations.run(guard, recorder, progress)?;
    let mut calibrated = site.calibration.iter();
    let kappa = calibrated.find(|of| of.metric == Metric::CpuPerTransaction);
    for (workload, script) in plan.experiment.scripts() {
        if !plan.timed.contains(&workload.name) {
            continue;
        }
        let mut rounds = Rounds {
            plan,
            workload,
            script,
            slice_transactions: None,
            slices: Vec::new(),
            kappa: kappa.map_or(1.0, |of| of.kappa),
            facts,
            clusters: &arms.loaded,
            interrupt,
            run_began: began,
            start_orders: BalancedOrders::new(arms.loaded.len(), plan.seed.wrapping_add(1)),
            slice_orders: BalancedOrders::new(arms.loaded.len(), plan.seed),
        };
        for round in 1..=plan.design.rounds {
            rounds.run(round, guard, recorder, progress)?;
            if rounds.is_precise_enough(round) {
                break;
            }
        }
    }
    Ok(())
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
                twin_of: arm.twin_of.clone(),
            })
            .collect(),
        workloads: experiment.workloads.iter().flat_map(|of| workloads(of, plan)).collect(),
        design: plan.design.clone(),
        calibration: site.calibration.clone(),
    })
}

/// What is recorded of a workload: itself, or each of its measured steps.
fn workloads(of: &WorkloadSpec, plan: &Plan) -> Vec<Workload> {
    let settings = || of.settings.clone();
    let script = of.script.iter().map(|script| Workload {
        name: of.name.clone(),
        title: of.title.clone(),
        work: Work::Script { name: script.clone(), counted: of.counted },
        settings: settings(),
        timed: plan.timed.contains(&of.name),
    });
    let steps = of.measured().map(|(name, step)| Workload {
        name: name.to_owned(),
        title: step.title.clone().unwrap_or_else(|| step.sql.clone()),
        work: Work::Operation { sql: step.sql.clone() },
        settings: settings(),
        timed: plan.design.repetitions > 0,
    });
    script.chain(steps).collect()
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
    })
}
