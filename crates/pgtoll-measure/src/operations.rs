//! Long operations: each on a fresh copy, all arms in a random order and then in the reverse one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, StopMode, usable_cpus};
use pgtoll_estimate::RecordLines;
use pgtoll_format::MajorFacts;
use pgtoll_observe::ServerCounters;
use pgtoll_record::{ArmLatencies, Calibration, Counters, Line, Operation};
use pgtoll_stats::BalancedOrders;
use pgtoll_workload::Crowd;

use crate::arm_trial::{ArmTrial, StepOutcome};
use crate::counting::Counting;
use crate::experiment::StepKind;
use crate::interim::{InterimEstimate, half_width};
use crate::names::DATABASE;
use crate::prepare::{Arms, settings};
use crate::profile::{self, Sampled};
use crate::run::Run;
use crate::servers::programs_read_again;
use crate::sessions::Sessions;
use crate::shown::check_arms;
use crate::turns::{Turns, in_turns};
use crate::units::nanoseconds;
use crate::{BenchError, Plan, Progress, StepSpec, WorkloadSpec};

/// The state that all repetitions share.
pub(crate) struct Operations<'a> {
    plan: &'a Plan,
    arms: &'a Arms,
    /// pgtoll's own program, for programs that call it.
    pgtoll: &'a Path,
    /// Calibrations from earlier runs here.
    calibration: &'a [Calibration],
    /// Those of the workload that runs.
    done: Vec<Operation>,
    /// Notes that were already made.
    noted: BTreeSet<String>,
}

/// A trial's place among the trials.
#[derive(Clone, Copy)]
struct OrderSlot {
    repetition: u32,
    half: u32,
    position: u32,
}

/// A step that is to be done.
#[derive(Clone, Copy)]
struct NextStep<'a> {
    step: &'a StepSpec,
    /// The table that it is about.
    table: Option<&'a str>,
    slot: OrderSlot,
    /// The seed of its clients.
    seed: u64,
}

/// The measured steps of a workload together, where it asks for that.
struct Totals<'a> {
    /// Their name in the record.
    name: Option<&'a str>,
    by_arm: Vec<Option<Operation>>,
}

impl<'a> Totals<'a> {
    fn new(workload: &'a WorkloadSpec, arms: usize) -> Self {
        Self { name: workload.total.as_deref(), by_arm: vec![None; arms] }
    }

    fn add(&mut self, arm: usize, operation: &Operation) {
        let total = &mut self.by_arm[arm];
        *total = Some(match total.take() {
            Some(before) => before.and_then(operation),
            None => operation.clone(),
        });
    }

    fn write(self, run: &mut Run<'_>) -> Result<(), BenchError> {
        let Some(name) = self.name else { return Ok(()) };
        for total in self.by_arm.into_iter().flatten() {
            run.write(&Line::Operation(Operation { workload: name.to_owned(), ..total }))?;
        }
        Ok(())
    }
}

/// The costs of a measured step.
struct Measurement {
    /// When it began, in the run.
    start: Duration,
    outcome: StepOutcome,
    /// `None`: in one piece.
    turns: Option<u32>,
    server_cpu_ns: u64,
    io_workers_cpu_ns: Option<u64>,
    beside_cpu_ns: Option<u64>,
    counters: Counters,
}

impl<'a> Operations<'a> {
    pub(crate) fn new<'r: 'a>(arms: &'a Arms, pgtoll: &'a Path, run: &Run<'r>) -> Self {
        let done = Vec::new();
        let noted = BTreeSet::new();
        Self { plan: run.plan, arms, pgtoll, calibration: run.calibration, done, noted }
    }

    /// Repeats the steps of every workload that has some. Where only counters are wanted, once is
    /// enough.
    pub(crate) fn run(&mut self, run: &mut Run<'_>) -> Result<(), BenchError> {
        let all = self.plan.design.repetitions;
        let workloads = self.plan.experiment.workloads.iter();
        for workload in workloads.filter(|workload| !workload.steps.is_empty() && all > 0) {
            self.check(workload, run)?;
            let is_timed = self.plan.timed.contains(&workload.name);
            let (repetitions, halves) = if is_timed { (all, 2) } else { (1, 1) };
            self.done.clear();
            if is_timed && workload.takes_turns() {
                self.repeat_in_turns(workload, run)?;
            } else {
                self.repeat(workload, repetitions, halves, run)?;
            }
            if is_timed {
                self.profile(workload, run)?;
            }
        }
        Ok(())
    }

    /// All repetitions of a workload.
    fn repeat(
        &mut self,
        workload: &WorkloadSpec,
        repetitions: u32,
        halves: usize,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        for (repetition, order) in (1..=repetitions).zip(self.orders(2)) {
            self.report(workload, repetition, repetitions, began, run);
            programs_read_again(self.clusters(workload), run)?;
            let both = [order.clone(), order.into_iter().rev().collect()];
            for (half, order) in (1..).zip(both.into_iter().take(halves)) {
                for (position, arm) in (1..).zip(order) {
                    run.interrupt.check()?;
                    self.try_arm(workload, arm, OrderSlot { repetition, half, position }, run)?;
                }
            }
            run.recorder.sync()?;
        }
        Ok(())
    }

    /// All repetitions of a workload whose arms take turns, and then some in one piece, to check
    /// them by.
    fn repeat_in_turns(
        &mut self,
        workload: &WorkloadSpec,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let in_turns = self.plan.design.repetitions * 2;
        let all = in_turns + self.plan.in_one_piece();
        let orders = self.orders(3);
        let cpus = usable_cpus()?;
        let mut turns = Turns { orders, cpu: 0, cpus, taken: BTreeMap::new() };
        let began = Instant::now();
        for (repetition, order) in (1..=all).zip(self.orders(2)) {
            self.report(workload, repetition, all, began, run);
            programs_read_again(self.clusters(workload), run)?;
            if repetition <= in_turns {
                turns.cpu = turns.cpus[repetition as usize % turns.cpus.len()];
                self.try_together(workload, repetition, &mut turns, run)?;
            } else {
                for (position, arm) in (1..).zip(order) {
                    run.interrupt.check()?;
                    self.try_arm(workload, arm, OrderSlot { repetition, half: 1, position }, run)?;
                }
            }
            run.recorder.sync()?;
        }
        Ok(())
    }

    /// Orders of the arms; `stream` numbers independent sequences.
    fn orders(&self, stream: u64) -> BalancedOrders {
        let arms = self.plan.experiment.arms.len();
        BalancedOrders::new(arms, self.plan.seed.wrapping_add(stream))
    }

    /// Reports that a repetition begins, and what those before it have shown.
    fn report(
        &self,
        workload: &WorkloadSpec,
        repetition: u32,
        repetitions: u32,
        began: Instant,
        run: &mut Run<'_>,
    ) {
        let half_width = self.half_width(workload);
        let interim =
            InterimEstimate::after(half_width, repetition - 1, repetitions, began.elapsed());
        let title = workload.title.as_str();
        (run.progress)(Progress::Repetition { title, repetition, repetitions, interim });
    }

    /// All steps of all arms, the measured ones in turns.
    fn try_together(
        &mut self,
        workload: &WorkloadSpec,
        repetition: u32,
        turns: &mut Turns,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let arms = 0..self.plan.experiment.arms.len();
        let begun = arms.map(|arm| self.begin(workload, arm, run));
        let mut trials = begun.collect::<Result<Vec<_>, _>>()?;
        let mut totals = Totals::new(workload, trials.len());
        let slot = OrderSlot { repetition, half: 1, position: 1 };
        for (index, step) in (0..).zip(&workload.steps) {
            run.interrupt.check()?;
            let table = workload.table.as_deref();
            let next = NextStep { step, table, slot, seed: self.seed(slot, index) };
            if step.measure.is_some() {
                let measured = Self::measure_in_turns(&mut trials, next, turns, run)?;
                for (arm, operation) in measured.into_iter().enumerate() {
                    self.keep(operation, arm, &mut totals, run)?;
                }
                continue;
            }
            let done = trials.into_iter().map(|trial| Ok(self.step(trial, next, run)?.0));
            trials = done.collect::<Result<_, BenchError>>()?;
        }
        totals.write(run)?;
        trials.into_iter().try_for_each(|trial| trial.end(run.guard))
    }

    /// Does a step in all trials, and measures each of them.
    fn measure_in_turns(
        trials: &mut [ArmTrial<'_>],
        next: NextStep<'_>,
        turns: &mut Turns,
        run: &mut Run<'_>,
    ) -> Result<Vec<Operation>, BenchError> {
        let name = next.step.measure.as_deref().unwrap_or_default();
        let clusters: Vec<Cluster> = trials.iter().map(|trial| trial.cluster().clone()).collect();
        let mut all_counting = Vec::new();
        for (trial, cluster) in trials.iter_mut().zip(&clusters) {
            let Sessions { monitor, worker, io, .. } = &mut trial.sessions;
            all_counting.push(Counting::begin(cluster, cluster.facts()?, monitor, worker, io)?);
        }
        let outcomes = in_turns(trials, next.step, turns, run)?;
        let mut operations = Vec::new();
        let measured = trials.iter_mut().zip(all_counting).zip(outcomes);
        for (position, ((trial, counting), outcome)) in (1..).zip(measured) {
            let Sessions { monitor, worker, io, .. } = &mut trial.sessions;
            let counters = counting.end(monitor, worker, io)?;
            let client_cpu_ns = outcome.client_cpu_ns;
            let measurement = Measurement {
                start: outcome.start,
                outcome: StepOutcome { client_cpu_ns, ..StepOutcome::in_server(outcome.elapsed) },
                turns: Some(outcome.turns),
                server_cpu_ns: outcome.server_cpu.nanoseconds,
                io_workers_cpu_ns: outcome.server_cpu.io_workers_ns,
                beside_cpu_ns: None,
                counters,
            };
            let slot = OrderSlot { position, ..next.slot };
            operations.push(NextStep { slot, ..next }.operation(name, measurement, trial)?);
        }
        Ok(operations)
    }

    /// Writes what an arm did, and adds it to the arm's total.
    fn keep(
        &mut self,
        operation: Operation,
        arm: usize,
        totals: &mut Totals<'_>,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        totals.add(arm, &operation);
        run.write(&Line::Operation(operation.clone()))?;
        self.done.push(operation);
        Ok(())
    }

    /// Samples functions during the first measured step of scripts, in a trial of its own of every
    /// arm that may have what the workload's `profile` names.
    fn profile(&mut self, workload: &WorkloadSpec, run: &mut Run<'_>) -> Result<(), BenchError> {
        let (Some(function), Some((index, name))) = (&workload.profile, workload.profiled_step())
        else {
            return Ok(());
        };
        let plan = self.plan;
        let arms = plan.experiment.arms.iter().zip(0..);
        for (arm, number) in arms.filter(|(arm, _)| plan.is_profiled(arm)) {
            run.stage(&format!("{name}: sample functions of arm {}", arm.name));
            let sampled = self.sample(workload, number, index, run)?;
            if !profile::keep(sampled, name, arm, function, run)? {
                break;
            }
        }
        run.recorder.sync()
    }

    /// Samples an arm's server during the step with this number.
    fn sample(
        &mut self,
        workload: &WorkloadSpec,
        arm: usize,
        index: usize,
        run: &mut Run<'_>,
    ) -> Result<Sampled, BenchError> {
        let mut trial = self.begin(workload, arm, run)?;
        let slot = OrderSlot { repetition: 0, half: 1, position: 1 };
        for (number, step) in (0..).zip(&workload.steps[..index]) {
            run.interrupt.check()?;
            let next = NextStep { step, table: None, slot, seed: self.seed(slot, number) };
            trial = self.step(trial, next, run)?.0;
        }
        let step = &workload.steps[index];
        let scale = self.plan.experiment.scale;
        let mut crowd = trial.crowd(step, scale, self.seed(slot, index as u64))?;
        let pids = trial.sessions.cpu.pids()?;
        let sampled = profile::during(&pids, run, |run| {
            trial.act(step, crowd.as_mut(), run.guard)?;
            self.end_beside(&mut trial, step, run)?;
            Ok(())
        })?;
        crowd.into_iter().for_each(Crowd::close);
        trial.end(run.guard)?;
        Ok(sampled)
    }

    /// Half of the widest interval of server CPU until now, of all measured steps.
    fn half_width(&self, workload: &WorkloadSpec) -> Option<f64> {
        let steps: Vec<&str> = workload.measured().map(|(name, _)| name).collect();
        let lines = RecordLines { operations: &self.done, ..RecordLines::default() };
        half_width(self.plan, self.calibration, &steps, lines)
    }

    /// The arms' clusters, to be copied.
    fn clusters(&self, workload: &WorkloadSpec) -> &[Cluster] {
        if workload.loaded { &self.arms.loaded } else { &self.arms.empty }
    }

    /// Every arm is what the experiment says; once, since copies do not change.
    fn check(&self, workload: &WorkloadSpec, run: &mut Run<'_>) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut servers = Vec::new();
        for (arm, cluster) in experiment.arms.iter().zip(self.clusters(workload)) {
            cluster.configure(run.guard, &settings(experiment, workload, arm))?;
            cluster.start(run.guard)?;
            servers.push((cluster, cluster.connect(DATABASE)?));
        }
        let connected = servers.iter_mut().map(|(cluster, connection)| (*cluster, connection));
        check_arms(experiment, connected)?;
        for (cluster, connection) in servers {
            connection.close();
            cluster.stop(run.guard, StopMode::Fast)?;
        }
        Ok(())
    }

    fn begin(
        &self,
        workload: &WorkloadSpec,
        arm: usize,
        run: &mut Run<'_>,
    ) -> Result<ArmTrial<'a>, BenchError> {
        let cluster = &self.clusters(workload)[arm];
        ArmTrial::begin(&self.plan.experiment.arms[arm], cluster, workload, self.pgtoll, run.guard)
    }

    /// All steps of one arm.
    fn try_arm(
        &mut self,
        workload: &WorkloadSpec,
        arm: usize,
        slot: OrderSlot,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let mut trial = self.begin(workload, arm, run)?;
        let mut totals = Totals::new(workload, 1);
        for (index, step) in (0..).zip(&workload.steps) {
            run.interrupt.check()?;
            let table = workload.table.as_deref();
            let next = NextStep { step, table, slot, seed: self.seed(slot, index) };
            let measured;
            (trial, measured) = self.step(trial, next, run)?;
            if let Some(operation) = measured {
                self.keep(operation, 0, &mut totals, run)?;
            }
        }
        totals.write(run)?;
        trial.end(run.guard)
    }

    /// The same for all arms.
    fn seed(&self, slot: OrderSlot, step: u64) -> u64 {
        self.plan.seed.wrapping_add(u64::from(slot.repetition) << 32 | step << 24)
    }

    /// Does a step, and measures it if it is to be.
    fn step<'t>(
        &mut self,
        mut trial: ArmTrial<'t>,
        next: NextStep<'_>,
        run: &mut Run<'_>,
    ) -> Result<(ArmTrial<'t>, Option<Operation>), BenchError> {
        let step = next.step;
        match step.kind() {
            StepKind::Restart => return Ok((trial.restart(false, run.guard)?, None)),
            StepKind::Evict => return Ok((trial.restart(true, run.guard)?, None)),
            StepKind::Crash => return crash(trial, next, run),
            StepKind::Sql(_)
            | StepKind::Pgbench(_)
            | StepKind::Program(_)
            | StepKind::Script(_) => {}
        }
        let at_rest = trial.sessions.cpu.sample()?;
        let mut crowd = trial.crowd(step, self.plan.experiment.scale, next.seed)?;
        let operation = if let Some(name) = &step.measure {
            let measurement = self.measure(&mut trial, step, &mut crowd, run)?;
            Some(next.operation(name, measurement, &mut trial)?)
        } else {
            trial.act(step, crowd.as_mut(), run.guard)?;
            self.end_beside(&mut trial, step, run)?;
            None
        };
        crowd.into_iter().for_each(Crowd::close);
        // A session that ended in the middle of the next step would count there, and to a tick of the
        // kernel's clock only.
        trial.wait_for_sessions(&at_rest)?;
        Ok((trial, operation))
    }

    fn measure(
        &mut self,
        trial: &mut ArmTrial<'_>,
        step: &StepSpec,
        crowd: &mut Option<Crowd>,
        run: &mut Run<'_>,
    ) -> Result<Measurement, BenchError> {
        let cluster = trial.cluster().clone();
        let facts = cluster.facts()?;
        publish(crowd, facts)?;
        let sessions = &mut trial.sessions;
        let monitor = &mut sessions.monitor;
        let worker = &mut sessions.worker;
        let counting = Counting::begin(&cluster, facts, monitor, worker, &mut sessions.io)?;
        sessions.cpu.find_io_workers(&mut sessions.monitor)?;
        let start = run.elapsed();
        let cpu_before = sessions.cpu.sample()?;
        let outcome = trial.act(step, crowd.as_mut(), run.guard)?;
        let cpu = trial.cpu_after(step, &cpu_before)?.since(&cpu_before);
        let beside_cpu_ns = self.end_beside(trial, step, run)?;
        if beside_cpu_ns.is_some() {
            trial.wait_for_sessions(&cpu_before)?;
        }
        publish(crowd, facts)?;
        let sessions = &mut trial.sessions;
        let monitor = &mut sessions.monitor;
        let worker = &mut sessions.worker;
        let counters = counting.end(monitor, worker, &mut sessions.io)?;
        Ok(Measurement {
            start,
            outcome,
            turns: None,
            server_cpu_ns: cpu.nanoseconds,
            io_workers_cpu_ns: cpu.io_workers_ns,
            beside_cpu_ns,
            counters,
        })
    }

    /// The CPU time of what ran beside a step, in ns, if anything did. What went wrong with it is
    /// noted.
    fn end_beside(
        &mut self,
        trial: &mut ArmTrial<'_>,
        step: &StepSpec,
        run: &mut Run<'_>,
    ) -> Result<Option<u64>, BenchError> {
        let Some((cpu_ns, failed)) = trial.end_beside(step, run.guard)? else { return Ok(None) };
        if let Some(text) = failed.filter(|text| self.noted.insert(text.clone())) {
            run.note(text)?;
        }
        Ok(Some(cpu_ns))
    }
}

/// Kills the server, lets it recover, and measures that if it is to be.
fn crash<'t>(
    trial: ArmTrial<'t>,
    next: NextStep<'_>,
    run: &mut Run<'_>,
) -> Result<(ArmTrial<'t>, Option<Operation>), BenchError> {
    let start = run.elapsed();
    let (mut trial, recovery) = trial.crash(run.guard)?;
    let measurement = Measurement {
        start,
        outcome: StepOutcome::in_server(recovery.elapsed),
        turns: None,
        server_cpu_ns: recovery.server_cpu_ns,
        io_workers_cpu_ns: None,
        beside_cpu_ns: None,
        counters: recovery.counters,
    };
    let name = next.step.measure.as_deref();
    let operation = name.map(|name| next.operation(name, measurement, &mut trial)).transpose()?;
    Ok((trial, operation))
}

/// A session's counters are to be seen when it has published them.
fn publish(crowd: &mut Option<Crowd>, facts: &MajorFacts) -> Result<(), BenchError> {
    for connection in crowd.iter_mut().flat_map(Crowd::connections) {
        ServerCounters::publish(connection, facts)?;
    }
    Ok(())
}

impl NextStep<'_> {
    /// The record's line of it, now that it is done.
    fn operation(
        self,
        name: &str,
        measurement: Measurement,
        trial: &mut ArmTrial<'_>,
    ) -> Result<Operation, BenchError> {
        let OrderSlot { repetition, half, position } = self.slot;
        let Measurement {
            start,
            outcome,
            turns,
            server_cpu_ns,
            io_workers_cpu_ns,
            beside_cpu_ns,
            counters,
        } = measurement;
        let StepOutcome { elapsed, client_cpu_ns, tally, latencies, course } = outcome;
        let late = tally.map_or(0, |tally| tally.late);
        let latencies = latencies.and_then(|all| ArmLatencies::new(&trial.arm().name, late, &all));
        Ok(Operation {
            workload: name.to_owned(),
            repetition,
            half,
            position,
            arm: trial.arm().name.clone(),
            start_ns: nanoseconds(start),
            duration_ns: nanoseconds(elapsed),
            turns,
            server_cpu_ns,
            io_workers_cpu_ns,
            client_cpu_ns,
            beside_cpu_ns,
            transactions: tally.map(|tally| tally.transactions),
            latencies: latencies.map(Box::new),
            memory: trial.memory_use()?,
            pages: self.table.map(|table| trial.pages(table)).transpose()?,
            counters,
            course,
        })
    }
}
