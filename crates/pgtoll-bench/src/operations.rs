//! Long operations: each on a fresh copy, all arms in a random order and then in the reverse one.

use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Interrupt, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_observe::{ClusterCpu, ClusterIo};
use pgtoll_record::{Line, Operation};
use pgtoll_stats::{BalancedOrders, Sample};
use pgtoll_wire::Connection;

use crate::counting::Counting;
use crate::measure::Progress;
use crate::prepare::{DATABASE, check_arms, settings};
use crate::recorder::Recorder;
use crate::so_far::{SoFar, quick_options, widest};
use crate::{BenchError, Plan, StepSpec, WorkloadSpec};

/// What all repetitions share.
pub(crate) struct Operations<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'static MajorFacts,
    /// Empty clusters of the arms.
    pub(crate) clusters: &'a [Cluster],
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
    /// How much wider than they claim intervals of server CPU have to be here.
    pub(crate) kappa: f64,
    /// Those of the workload that runs.
    pub(crate) done: Vec<Operation>,
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
            let orders = BalancedOrders::new(self.clusters.len(), self.plan.seed.wrapping_add(2));
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
        }
        Ok(())
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
                denominator: 1.0,
            });
            widest(self.plan, &own.collect::<Vec<_>>(), &quick_options(self.plan, self.kappa))
        };
        let steps: Option<Vec<f64>> = workload.measured().map(|(name, _)| of_step(name)).collect();
        steps?.into_iter().max_by(f64::total_cmp)
    }

    /// Every arm is what the experiment says; once, since copies do not change.
    fn check(&self, workload: &WorkloadSpec, guard: &mut Guard) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut servers = Vec::new();
        for (arm, cluster) in experiment.arms.iter().zip(self.clusters) {
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
        let copy = self.clusters[arm].copy(guard, "operation")?;
        let postmaster = copy.start(guard)?;
        let mut session = Session {
            arm: &self.plan.experiment.arms[arm].name,
            cluster: &copy,
            monitor: copy.connect(DATABASE)?,
            worker: copy.connect(DATABASE)?,
            cpu: ClusterCpu::attach(postmaster)?,
            io: ClusterIo::attach(postmaster)?,
        };
        let mut total: Option<Operation> = None;
        for step in &workload.steps {
            let Some(name) = &step.measure else {
                session.act(step, guard)?;
                continue;
            };
            let table = workload.table.as_deref();
            let operation = self.measure(&mut session, step, table, place, guard)?;
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
        session.worker.close();
        session.monitor.close();
        copy.stop(guard, StopMode::Immediate)?;
        Ok(copy.remove(guard)?)
    }

    fn measure(
        &self,
        session: &mut Session<'_>,
        step: &StepSpec,
        table: Option<&str>,
        place: Place,
        guard: &mut Guard,
    ) -> Result<Operation, BenchError> {
        let Session { cluster, monitor, worker, io, .. } = session;
        let counting = Counting::begin(cluster, self.facts, monitor, worker, io)?;
        let start = self.run_began.elapsed();
        let cpu_before = session.cpu.sample()?;
        let began = Instant::now();
        session.act(step, guard)?;
        let duration = began.elapsed();
        if step.pgbench.is_some() {
            // A program's sessions are in the postmaster's account when they are gone.
            session.cpu.wait_until_back(&cpu_before, SESSIONS_GONE)?;
        }
        let cpu = session.cpu.sample()?.since(&cpu_before);
        let Session { monitor, worker, io, .. } = session;
        let counters = counting.end(guard, monitor, worker, io)?;
        let nanoseconds = |of: Duration| u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
        Ok(Operation {
            workload: String::new(),
            repetition: place.repetition,
            half: place.half,
            position: place.position,
            arm: session.arm.to_owned(),
            start_ns: nanoseconds(start),
            duration_ns: nanoseconds(duration),
            server_cpu_ns: cpu.nanoseconds,
            pages: table.map(|table| session.pages(table)).transpose()?,
            counters,
        })
    }
}

/// A session that ended writes nothing and waits for nobody.
const SESSIONS_GONE: Duration = Duration::from_secs(10);

/// A copy of an arm with its connections.
struct Session<'a> {
    arm: &'a str,
    cluster: &'a Cluster,
    monitor: Connection,
    /// Does the steps and nothing else.
    worker: Connection,
    cpu: ClusterCpu,
    io: ClusterIo,
}

impl Session<'_> {
    fn act(&mut self, step: &StepSpec, guard: &mut Guard) -> Result<(), BenchError> {
        if let Some(sql) = &step.sql {
            let done = self.worker.execute(sql);
            return done.map_err(|source| BenchError::query(self.cluster, source));
        }
        let steps = format!("--init-steps={}", step.pgbench.as_deref().unwrap_or_default());
        let scale = format!("--scale={}", step.scale);
        let arguments = ["--initialize", "--quiet", &steps, &scale, DATABASE];
        self.cluster.run_client(guard, "pgbench", &arguments)?;
        Ok(())
    }

    /// Pages of a table; 0 when it is not there yet.
    fn pages(&mut self, table: &str) -> Result<u64, BenchError> {
        let sql = format!(
            "SELECT coalesce(pg_relation_size(to_regclass('{}')), 0) \
             / current_setting('block_size')::bigint AS pages",
            table.replace('\'', "''")
        );
        let row = self.monitor.query_one(&sql).and_then(|row| row.parse("pages"));
        row.map_err(|source| BenchError::query(self.cluster, source))
    }
}
