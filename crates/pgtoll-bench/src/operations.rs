//! Long operations: each on a fresh copy, all arms in a random order and then in the reverse one.

use std::time::Instant;

use pgtoll_cluster::{Cluster, Guard, Interrupt, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_observe::ClusterCpu;
use pgtoll_record::{Line, Operation};
use pgtoll_stats::BalancedOrders;
use pgtoll_wire::Connection;

use crate::counting::Counting;
use crate::measure::Progress;
use crate::prepare::{DATABASE, check_arms, settings};
use crate::recorder::Recorder;
use crate::{BenchError, Plan, StepSpec, WorkloadSpec};

/// What all repetitions share.
pub(crate) struct Operations<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'static MajorFacts,
    /// Empty clusters of the arms.
    pub(crate) clusters: &'a [Cluster],
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
}

/// Where an operation stands.
#[derive(Clone, Copy)]
struct Place {
    repetition: u32,
    half: u32,
    position: u32,
}

impl Operations<'_> {
    /// Repeats the steps of every workload that has some.
    pub(crate) fn run(
        &self,
        guard: &mut Guard,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let workloads = &self.plan.experiment.workloads;
        for workload in workloads.iter().filter(|of| !of.steps.is_empty()) {
            self.check(workload, guard)?;
            let orders = BalancedOrders::new(self.clusters.len(), self.plan.seed.wrapping_add(2));
            for (repetition, order) in (1..=self.plan.design.repetitions).zip(orders) {
                let of = self.plan.design.repetitions;
                let stage = format!("{}: repetition {repetition} of {of}", workload.title);
                progress(Progress::Stage(&stage));
                let halves = [order.clone(), order.into_iter().rev().collect()];
                for (half, order) in (1..).zip(halves) {
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
        &self,
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
        };
        for step in &workload.steps {
            match &step.measure {
                None => session.execute(&step.sql)?,
                Some(name) => {
                    let table = workload.table.as_deref();
                    let operation = self.measure(&mut session, step, table, place, guard)?;
                    let operation = Operation { workload: name.clone(), ..operation };
                    recorder.write(&Line::Operation(operation))?;
                }
            }
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
        let Session { cluster, monitor, worker, .. } = session;
        let counting = Counting::begin(cluster, self.facts, monitor, worker)?;
        let start = self.run_began.elapsed();
        let cpu_before = session.cpu.sample()?;
        let began = Instant::now();
        session.execute(&step.sql)?;
        let duration = began.elapsed();
        let cpu = session.cpu.sample()?.since(&cpu_before);
        let counters = counting.end(guard, &mut session.monitor, &mut session.worker)?;
        let nanoseconds =
            |of: std::time::Duration| u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
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

/// A copy of an arm with its connections.
struct Session<'a> {
    arm: &'a str,
    cluster: &'a Cluster,
    monitor: Connection,
    /// Does the steps and nothing else.
    worker: Connection,
    cpu: ClusterCpu,
}

impl Session<'_> {
    fn execute(&mut self, sql: &str) -> Result<(), BenchError> {
        self.worker.execute(sql).map_err(|source| BenchError::query(self.cluster, source))
    }

    fn pages(&mut self, table: &str) -> Result<u64, BenchError> {
        let sql = format!(
            "SELECT pg_relation_size('{}'::regclass) / current_setting('block_size')::bigint \
             AS pages",
            table.replace('\'', "''")
        );
        let row = self.monitor.query_one(&sql).and_then(|row| row.parse("pages"));
        row.map_err(|source| BenchError::query(self.cluster, source))
    }
}
