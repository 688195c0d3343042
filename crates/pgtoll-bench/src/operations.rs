//! Long operations: each on a fresh copy, all arms in a random order and then in the reverse one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard, NoProfile, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_interrupt::Interrupt;
use pgtoll_load::Crowd;
use pgtoll_observe::ServerCounters;
use pgtoll_record::{ArmLatencies, Line, Note, Operation};
use pgtoll_stats::{BalancedOrders, Sample};

use crate::counting::Counting;
use crate::experiment::StepKind;
use crate::measure::Progress;
use crate::prepare::{Arms, DATABASE, check_arms, settings};
use crate::profile;
use crate::recorder::Recorder;
use crate::server::nanoseconds;
use crate::so_far::{SoFar, quick_options, widest};
use crate::turn::{Done, Turn};
use crate::{BenchError, Plan, StepSpec, WorkloadSpec};

/// What all repetitions share.
pub(crate) struct Operations<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'static MajorFacts,
    pub(crate) arms: &'a Arms,
    /// pgtoll's own program, for programs that call it.
    pub(crate) pgtoll: &'a Path,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
    /// How much wider than they claim intervals of server CPU have to be here.
    pub(crate) kappa: f64,
    /// Those of the workload that runs.
    pub(crate) done: Vec<Operation>,
    /// What was noted once is not noted again.
    pub(crate) noted: BTreeSet<String>,
}

/// Where an operation stands.
#[derive(Clone, Copy)]
struct Place {
    repetition: u32,
    half: u32,
    position: u32,
}

impl Operations<'_> {
    /// Repeats the steps of every workload that has some. Where only counters are wanted, once is
    /// enough.
    pub(crate) fn run(
        &mut self,
        guard: &mut Guard,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let all = self.plan.design.repetitions;
        let workloads = self.plan.experiment.workloads.iter().filter(|of| !of.steps.is_empty());
        for workload in workloads.filter(|_| all > 0) {
            self.check(workload, guard)?;
            let is_timed = self.plan.timed.contains(&workload.name);
            let (repetitions, halves) = if is_timed { (all, 2) } else { (1, 1) };
            let orders = BalancedOrders::new(
                self.plan.experiment.arms.len(),
                self.plan.seed.wrapping_add(2),
            );
            self.done.clear();
            let began = Instant::now();
            for (repetition, order) in (1..=repetitions).zip(orders) {
                let (half_width, took) = (self.half_width(workload), began.elapsed());
                let so_far = SoFar::after(half_width, repetition - 1, repetitions, took);
                let (title, of) = (workload.title.as_str(), repetitions);
                progress(Progress::Repetition { title, repetition, of, so_far });
                let both = [order.clone(), order.into_iter().rev().collect()];
                for (half, order) in (1..).zip(both.into_iter().take(halves)) {
                    for (position, arm) in (1..).zip(order) {
                        self.interrupt.check()?;
                        let place = Place { repetition, half, position };
                        self.repeat(workload, arm, place, guard, recorder)?;
                    }
                }
                recorder.sync()?;
            }
            if is_timed {
                self.profile(workload, guard, recorder, progress)?;
            }
        }
        Ok(())
    }

    /// Samples functions during the first measured step of scripts, in a turn of its own of every
    /// arm that may have what the workload's `profile` names.
    fn profile(
        &mut self,
        workload: &WorkloadSpec,
        guard: &mut Guard,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let (Some(function), Some((index, name))) = (&workload.profile, workload.profiled_step())
        else {
            return Ok(());
        };
        let plan = self.plan;
        let arms = plan.experiment.arms.iter().zip(0..);
        for (arm, number) in arms.filter(|(arm, _)| plan.is_profiled(arm)) {
            progress(Progress::Stage(&format!("{name}: sample functions of arm {}", arm.name)));
            let sampled = self.sample(workload, number, index, guard, recorder)?;
            if !profile::keep(sampled, (name, &arm.name), function, recorder)? {
                break;
            }
        }
        recorder.sync()
    }

    /// What an arm's server does during the step with this number.
    fn sample(
        &mut self,
        workload: &WorkloadSpec,
        arm: usize,
        index: usize,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<Result<pgtoll_observe::Profile, NoProfile>, BenchError> {
        let cluster = &self.clusters(workload)[arm];
        let arm = &self.plan.experiment.arms[arm];
        let mut turn = Turn::begin(arm, cluster, workload, self.pgtoll, guard)?;
        let place = Place { repetition: 0, half: 1, position: 1 };
        for (number, step) in (0..).zip(&workload.steps[..index]) {
            self.interrupt.check()?;
            let about = About { table: None, place, seed: self.seed(place, number) };
            turn = self.step(turn, step, about, guard, recorder)?.0;
        }
        let (step, scale) = (&workload.steps[index], self.plan.experiment.scale);
        let mut crowd = turn.crowd(step, scale, self.seed(place, index as u64))?;
        let pids = turn.sessions.cpu.pids()?;
        let sampled = profile::during(&pids, guard, |guard| {
            turn.act(step, crowd.as_mut(), guard)?;
            self.end_beside(&mut turn, step, guard, recorder)?;
            Ok(())
        })?;
        crowd.into_iter().for_each(Crowd::close);
        turn.end(guard)?;
        Ok(sampled)
    }

    /// Half of the widest interval of server CPU until now, of all measured steps.
    #[expect(clippy::cast_precision_loss, reason = "an operation's CPU time is far below 2^53 ns")]
    fn half_width(&self, workload: &WorkloadSpec) -> Option<f64> {
        let of_step = |name: &str| {
            let own = self.done.iter().filter(|of| of.workload == name).map(|of| Sample {
                arm: &of.arm,
                round: of.repetition,
                block: of.half,
                numerator: of.server_cpu_ns as f64,
                denominator: of.transactions.unwrap_or(1) as f64,
            });
            widest(self.plan, &own.collect::<Vec<_>>(), &quick_options(self.plan, self.kappa))
        };
        let steps: Option<Vec<f64>> = workload.measured().map(|(name, _)| of_step(name)).collect();
        steps?.into_iter().max_by(f64::total_cmp)
    }

    /// The arms' clusters, to be copied.
    fn clusters(&self, workload: &WorkloadSpec) -> &[Cluster] {
        if workload.loaded { &self.arms.loaded } else { &self.arms.empty }
    }

    /// Every arm is what the experiment says; once, since copies do not change.
    fn check(&self, workload: &WorkloadSpec, guard: &mut Guard) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut servers = Vec::new();
        for (arm, cluster) in experiment.arms.iter().zip(self.clusters(workload)) {
            cluster.configure(guard, &settings(experiment, workload, arm))?;
            cluster.start(guard)?;
            servers.push((cluster, cluster.connect(DATABASE)?));
        }
        check_arms(experiment, servers.iter_mut().map(|(cluster, of)| (*cluster, of)))?;
        for (cluster, connection) in servers {
            connection.close();
            cluster.stop(guard, StopMode::Fast)?;
        }
        Ok(())
    }

    /// All steps of one arm.
    fn repeat(
        &mut self,
        workload: &WorkloadSpec,
        arm: usize,
        place: Place,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<(), BenchError> {
        let cluster = &self.clusters(workload)[arm];
        let arm = &self.plan.experiment.arms[arm];
        let mut turn = Turn::begin(arm, cluster, workload, self.pgtoll, guard)?;
        let mut total: Option<Operation> = None;
        for (index, step) in (0..).zip(&workload.steps) {
            self.interrupt.check()?;
            let table = workload.table.as_deref();
            let about = About { table, place, seed: self.seed(place, index) };
            let operation;
            (turn, operation) = self.step(turn, step, about, guard, recorder)?;
            let (Some(name), Some(operation)) = (&step.measure, operation) else { continue };
            let operation = Operation { workload: name.clone(), ..operation };
            total = Some(match total {
                Some(before) => before.and_then(&operation),
                None => operation.clone(),
            });
            recorder.write(&Line::Operation(operation.clone()))?;
            self.done.push(operation);
        }
        if let (Some(name), Some(total)) = (&workload.total, total) {
            recorder.write(&Line::Operation(Operation { workload: name.clone(), ..total }))?;
        }
        turn.end(guard)
    }

    /// The same for all arms.
    fn seed(&self, place: Place, step: u64) -> u64 {
        self.plan.seed.wrapping_add(u64::from(place.repetition) << 32 | step << 24)
    }

    /// Does a step, and measures it if it is to be.
    fn step<'t>(
        &mut self,
        mut turn: Turn<'t>,
        step: &StepSpec,
        about: About<'_>,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<(Turn<'t>, Option<Operation>), BenchError> {
        match step.kind() {
            StepKind::Restart => return Ok((turn.restart(false, guard)?, None)),
            StepKind::Evict => return Ok((turn.restart(true, guard)?, None)),
            StepKind::Crash => {
                let (turn, operation) = self.crash(turn, about, guard)?;
                return Ok((turn, Some(operation)));
            }
            StepKind::Sql(_)
            | StepKind::Pgbench(_)
            | StepKind::Program(_)
            | StepKind::Script(_) => {}
        }
        let at_rest = turn.sessions.cpu.sample()?;
        let mut crowd = turn.crowd(step, self.plan.experiment.scale, about.seed)?;
        let operation = if step.measure.is_some() {
            Some(self.measure(&mut turn, step, &mut crowd, about, guard, recorder)?)
        } else {
            turn.act(step, crowd.as_mut(), guard)?;
            self.end_beside(&mut turn, step, guard, recorder)?;
            None
        };
        crowd.into_iter().for_each(Crowd::close);
        // A session that ended in the middle of the next step would count there, and to a tick of the
        // kernel's clock only.
        turn.wait_for_sessions(&at_rest)?;
        Ok((turn, operation))
    }

    fn measure(
        &mut self,
        turn: &mut Turn<'_>,
        step: &StepSpec,
        crowd: &mut Option<Crowd>,
        about: About<'_>,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<Operation, BenchError> {
        self.publish(crowd)?;
        let cluster = turn.cluster().clone();
        let sessions = &mut turn.sessions;
        let (monitor, worker) = (&mut sessions.monitor, &mut sessions.worker);
        let counting = Counting::begin(&cluster, self.facts, monitor, worker, &mut sessions.io)?;
        let start = self.run_began.elapsed();
        let cpu_before = sessions.cpu.sample()?;
        let done = turn.act(step, crowd.as_mut(), guard)?;
        let cpu = turn.cpu_after(step, &cpu_before)?.since(&cpu_before);
        let beside_cpu_ns = self.end_beside(turn, step, guard, recorder)?;
        if beside_cpu_ns.is_some() {
            turn.wait_for_sessions(&cpu_before)?;
        }
        self.publish(crowd)?;
        let sessions = &mut turn.sessions;
        let (monitor, worker) = (&mut sessions.monitor, &mut sessions.worker);
        let counters = counting.end(guard, monitor, worker, &mut sessions.io)?;
        let Done { elapsed, client_cpu_ns, tally, latencies, course } = done;
        let late = tally.map_or(0, |tally| tally.late);
        let latencies = latencies.and_then(|of| ArmLatencies::of(&turn.arm.name, late, &of));
        Ok(Operation {
            start_ns: nanoseconds(start),
            duration_ns: nanoseconds(elapsed),
            server_cpu_ns: cpu.nanoseconds,
            client_cpu_ns,
            beside_cpu_ns,
            transactions: tally.map(|tally| tally.transactions),
            latencies: latencies.map(Box::new),
            counters,
            course,
            ..about.operation(turn)?
        })
    }

    fn crash<'t>(
        &self,
        turn: Turn<'t>,
        about: About<'_>,
        guard: &mut Guard,
    ) -> Result<(Turn<'t>, Operation), BenchError> {
        let start = self.run_began.elapsed();
        let (mut turn, recovery) = turn.crash(guard)?;
        let operation = Operation {
            start_ns: nanoseconds(start),
            duration_ns: nanoseconds(recovery.elapsed),
            server_cpu_ns: recovery.server_cpu_ns,
            counters: recovery.counters,
            ..about.operation(&mut turn)?
        };
        Ok((turn, operation))
    }

    /// A session's counters are to be seen when it has published them.
    fn publish(&self, crowd: &mut Option<Crowd>) -> Result<(), BenchError> {
        for connection in crowd.iter_mut().flat_map(Crowd::connections) {
            ServerCounters::publish(connection, self.facts)?;
        }
        Ok(())
    }

    /// The CPU time of what ran beside a step, in ns, if anything did. What went wrong with it is
    /// noted.
    fn end_beside(
        &mut self,
        turn: &mut Turn<'_>,
        step: &StepSpec,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<Option<u64>, BenchError> {
        let Some((cpu_ns, failed)) = turn.end_beside(step, guard)? else { return Ok(None) };
        if let Some(text) = failed.filter(|text| self.noted.insert(text.clone())) {
            recorder.write(&Line::Note(Note { text }))?;
        }
        Ok(Some(cpu_ns))
    }
}

/// What a measurement is about.
#[derive(Clone, Copy)]
struct About<'a> {
    table: Option<&'a str>,
    place: Place,
    seed: u64,
}

impl About<'_> {
    /// What is known of the operation when it is done, apart from what it took.
    fn operation(self, turn: &mut Turn<'_>) -> Result<Operation, BenchError> {
        let Place { repetition, half, position } = self.place;
        Ok(Operation {
            repetition,
            half,
            position,
            arm: turn.arm.name.clone(),
            memory: turn.memory_use()?,
            pages: self.table.map(|table| turn.pages(table)).transpose()?,
            ..Operation::default()
        })
    }
}
