//! A round: every server restarted, warmed up, and then slice after slice.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Interrupt, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_load::{Client, Script, Tally};
use pgtoll_observe::{ClusterCpu, MachineSample, ServerCounters, own_cpu_ns};
use pgtoll_record::{ArmRound, Line, Metric, NoiseShare, Round, RoundEnd, Slice};
use pgtoll_stats::{
    BalancedOrders, Options, Sample, minimum_block_length_for, pair_up, paired_ratio,
};
use pgtoll_wire::Connection;

use crate::measure::Progress;
use crate::plan::ROUNDS;
use crate::prepare::{DATABASE, check_arms, settings};
use crate::recorder::Recorder;
use crate::{BenchError, Plan, WorkloadSpec};

/// What all rounds of a run share.
pub(crate) struct Rounds<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) workload: &'a WorkloadSpec,
    pub(crate) script: Script,
    /// Transactions of a slice, for a script that writes; known after the first warm-up.
    pub(crate) slice_transactions: Option<u64>,
    /// All slices so far, for the stop rule.
    pub(crate) slices: Vec<Slice>,
    pub(crate) facts: &'static MajorFacts,
    pub(crate) clusters: &'a [Cluster],
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
    /// How much wider than they claim intervals of server CPU have to be here.
    pub(crate) kappa: f64,
    pub(crate) start_orders: BalancedOrders,
    pub(crate) slice_orders: BalancedOrders,
}

/// A running arm.
struct Server<'a> {
    cluster: &'a Cluster,
    /// For everything but the load, so that the load's session does nothing else.
    monitor: Connection,
    client: Client,
    cpu: ClusterCpu,
    transactions: u64,
}

/// How long an arm works.
#[derive(Clone, Copy)]
enum Length {
    Time(Duration),
    Transactions(u64),
}

/// An arm's counters at a round's beginning.
type Baselines = Vec<ServerCounters>;

impl<'a> Rounds<'a> {
    /// Runs one round and records it.
    pub(crate) fn run(
        &mut self,
        round: u32,
        guard: &mut Guard,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let mut servers = self.start_all(round, guard, recorder)?;
        self.warm_up(&mut servers)?;
        let before = self.counters(&mut servers)?;
        let machine_before = MachineSample::now()?;
        let cpu_before = all_cpu_ns(&mut servers)?;
        for block in 1..=self.plan.design.blocks_per_round {
            self.interrupt.check()?;
            let workload = &self.workload.name;
            progress(Progress::Block { workload, round, block });
            self.block(round, block, &mut servers, recorder)?;
        }
        let machine = MachineSample::now()?.since(&machine_before);
        let ours = all_cpu_ns(&mut servers)?.saturating_sub(cpu_before);
        let arms = self.stop_all(servers, &before, guard)?;
        let noise = noise(&machine, ours);
        let workload = self.workload.name.clone();
        recorder.write(&Line::RoundEnd(RoundEnd { workload, round, arms, noise }))?;
        recorder.sync()
    }

    /// Whether every interval of server CPU is as narrow as was asked for. The width alone
    /// decides, never what the interval covers; and nobody looks before there are enough rounds.
    #[expect(clippy::cast_precision_loss, reason = "arms are few")]
    pub(crate) fn is_precise_enough(&self, after_round: u32) -> bool {
        let Some(precision) = self.plan.precision.filter(|_| after_round >= ROUNDS) else {
            return false;
        };
        let metric = Metric::CpuPerTransaction;
        let samples: Vec<Sample<'_>> = self
            .slices
            .iter()
            .map(|of| {
                let (numerator, denominator) = metric.of_slice(of);
                Sample { arm: &of.arm, round: of.round, block: of.block, numerator, denominator }
            })
            .collect();
        let experiment = &self.plan.experiment;
        let mut others = experiment.arms.iter().filter(|arm| arm.name != experiment.baseline);
        let design = &self.plan.design;
        let slice = Duration::from_nanos(design.slice_ns + design.lead_in_ns);
        let block = slice.as_secs_f64() * experiment.arms.len() as f64;
        let options = Options {
            resamples: 500,
            seed: self.plan.seed,
            widening: self.kappa,
            minimum_block_length: minimum_block_length_for(block),
            ..Options::default()
        };
        others.all(|arm| {
            let rounds = pair_up(&samples, &arm.name, &experiment.baseline);
            paired_ratio(&rounds, &options).is_ok_and(|of| of.half_width <= precision.ln_1p())
        })
    }

    fn start_all(
        &mut self,
        round: u32,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<Vec<Server<'a>>, BenchError> {
        let order = self.start_orders.next().unwrap_or_default();
        let mut servers: Vec<Option<Server<'a>>> = self.clusters.iter().map(|_| None).collect();
        for &arm in &order {
            servers[arm] = Some(self.start(arm, guard)?);
        }
        let name = |&arm: &usize| self.clusters[arm].name().to_owned();
        let start_order = order.iter().map(name).collect();
        let workload = self.workload.name.clone();
        recorder.write(&Line::Round(Round { workload, round, start_order }))?;
        let mut servers: Vec<Server<'a>> = servers.into_iter().flatten().collect();
        let experiment = &self.plan.experiment;
        check_arms(experiment, servers.iter_mut().map(|of| (of.cluster, &mut of.monitor)))?;
        Ok(servers)
    }

    fn start(&self, arm: usize, guard: &mut Guard) -> Result<Server<'a>, BenchError> {
        let cluster = &self.clusters[arm];
        let (experiment, workload) = (&self.plan.experiment, self.workload);
        cluster.configure(guard, &settings(experiment, workload, &experiment.arms[arm]))?;
        read_into_page_cache(cluster)?;
        let postmaster = cluster.start(guard)?;
        let monitor = cluster.connect(DATABASE)?;
        let load = |source| BenchError::load(cluster, source);
        let client =
            Client::new(cluster.connect(DATABASE)?, self.script, experiment.scale).map_err(load)?;
        let cpu = ClusterCpu::attach(postmaster)?;
        Ok(Server { cluster, monitor, client, cpu, transactions: 0 })
    }

    fn warm_up(&mut self, servers: &mut [Server<'_>]) -> Result<(), BenchError> {
        let slice = Duration::from_nanos(self.plan.design.slice_ns);
        let blocks = self.plan.design.warm_up_blocks;
        for block in 0..blocks {
            self.interrupt.check()?;
            for server in &mut *servers {
                server.client.reseed(self.seed_of(0, block));
                server.work(Length::Time(slice))?;
            }
        }
        if self.script.writes() && self.slice_transactions.is_none() {
            let slowest = servers.iter().map(|server| server.transactions).min().unwrap_or(0);
            self.slice_transactions = Some((slowest / u64::from(blocks.max(1))).max(1));
        }
        // After the warm-up, in which arms do unequally much: their distance from the checkpoint
        // is the same in every slice.
        for server in servers {
            let done = server.monitor.execute("CHECKPOINT");
            done.map_err(|source| BenchError::query(server.cluster, source))?;
        }
        Ok(())
    }

    /// Slices of scripts that read last equally long. Where WAL is written it falls off with the
    /// distance from the checkpoint, and that grows with the transactions: there slices have
    /// equally many.
    fn lengths(&self) -> (Length, Length) {
        let design = &self.plan.design;
        match self.slice_transactions {
            None => (
                Length::Time(Duration::from_nanos(design.lead_in_ns)),
                Length::Time(Duration::from_nanos(design.slice_ns)),
            ),
            Some(count) => (Length::Transactions((count / 10).max(1)), Length::Transactions(count)),
        }
    }

    fn block(
        &mut self,
        round: u32,
        block: u32,
        servers: &mut [Server<'_>],
        recorder: &mut Recorder,
    ) -> Result<(), BenchError> {
        let order = self.slice_orders.next().unwrap_or_default();
        for (position, arm) in (1..).zip(order) {
            // All arms of a block ask for the same accounts.
            servers[arm].client.reseed(self.seed_of(round, block));
            let slice = self.slice(&mut servers[arm])?;
            let slice = Slice { round, block, position, ..slice };
            self.slices.push(slice.clone());
            recorder.write(&Line::Slice(slice))?;
        }
        Ok(())
    }

    fn slice(&self, server: &mut Server<'_>) -> Result<Slice, BenchError> {
        let (lead_in, length) = self.lengths();
        server.work(lead_in)?;
        let start_ns = nanoseconds(self.run_began.elapsed());
        let (server_before, own_before) = (server.cpu.sample()?, own_cpu_ns()?);
        let tally = server.work(length)?;
        let (own_after, server_after) = (own_cpu_ns()?, server.cpu.sample()?);
        let used = server_after.since(&server_before);
        Ok(Slice {
            workload: self.workload.name.clone(),
            round: 0,
            block: 0,
            position: 0,
            arm: server.cluster.name().to_owned(),
            start_ns,
            duration_ns: nanoseconds(tally.elapsed),
            transactions: tally.transactions,
            server_cpu_ns: used.nanoseconds,
            client_cpu_ns: own_after.saturating_sub(own_before),
            processes_changed: used.processes_changed,
        })
    }

    fn seed_of(&self, round: u32, block: u32) -> u64 {
        self.plan.seed.wrapping_add(u64::from(round) << 32 | u64::from(block))
    }

    fn counters(&self, servers: &mut [Server<'_>]) -> Result<Baselines, BenchError> {
        let mut counters = Vec::new();
        for server in servers {
            ServerCounters::publish(server.client.connection(), self.facts)?;
            server.transactions = 0;
            counters.push(ServerCounters::read(&mut server.monitor, self.facts)?);
        }
        Ok(counters)
    }

    fn stop_all(
        &self,
        servers: Vec<Server<'_>>,
        before: &Baselines,
        guard: &mut Guard,
    ) -> Result<Vec<ArmRound>, BenchError> {
        let mut arms = Vec::new();
        for (server, before) in servers.into_iter().zip(before) {
            arms.push(self.stop(server, before, guard)?);
        }
        Ok(arms)
    }

    fn stop(
        &self,
        mut server: Server<'_>,
        before: &ServerCounters,
        guard: &mut Guard,
    ) -> Result<ArmRound, BenchError> {
        ServerCounters::publish(server.client.connection(), self.facts)?;
        let backend = server.client.connection().backend_pid();
        server.client.close();
        let query = |source| BenchError::query(server.cluster, source);
        // A session's counters and CPU time are in their final place when it is gone.
        let present = format!("SELECT 1 FROM pg_stat_activity WHERE pid = {backend}");
        while !server.monitor.query(&present).map_err(query)?.is_empty() {}
        let after = ServerCounters::read(&mut server.monitor, self.facts)?;
        let observed = server.cpu.sample()?;
        server.monitor.close();
        let reaped = server.cluster.stop(guard, StopMode::Fast)?;
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let both = |now: Option<u64>, then: Option<u64>| Some(since(now?, then?));
        Ok(ArmRound {
            arm: server.cluster.name().to_owned(),
            transactions: server.transactions,
            wal_from: before.wal_insert,
            wal_to: after.wal_insert,
            wal_records: both(after.wal_records, before.wal_records),
            wal_full_page_images: both(after.wal_full_page_images, before.wal_full_page_images),
            blocks_read: since(after.blocks_read, before.blocks_read),
            blocks_written: since(after.blocks_written, before.blocks_written),
            cpu_observed_ns: observed.total_ns(),
            cpu_reaped_ns: nanoseconds(reaped.cpu()),
        })
    }
}

impl Server<'_> {
    fn work(&mut self, length: Length) -> Result<Tally, BenchError> {
        let done = match length {
            Length::Time(time) => self.client.run_for(time),
            Length::Transactions(count) => self.client.run_count(count),
        };
        let tally = done.map_err(|source| BenchError::load(self.cluster, source))?;
        self.transactions += tally.transactions;
        Ok(tally)
    }
}

/// CPU time of all servers and of pgtoll itself.
fn all_cpu_ns(servers: &mut [Server<'_>]) -> Result<u64, BenchError> {
    let mut total = own_cpu_ns()?;
    for server in servers {
        total += server.cpu.sample()?.total_ns();
    }
    Ok(total)
}

/// All arms have their data in the page cache, whatever was evicted since the last round.
fn read_into_page_cache(cluster: &Cluster) -> Result<(), BenchError> {
    let mut buffer = vec![0; 1 << 20];
    for path in cluster.relation_files()? {
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&path)?;
            while file.read(&mut buffer)? > 0 {}
            Ok(())
        };
        read().map_err(|source| BenchError::Read { path: path.clone(), source })?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a round's nanoseconds are far below 2^53")]
fn noise(machine: &pgtoll_observe::MachineUse, ours_ns: u64) -> NoiseShare {
    let ours = ours_ns as f64 / 1e9 / machine.cpu_seconds;
    let seconds = machine.cpu_seconds / pgtoll_observe::cores() as f64;
    NoiseShare {
        steal: machine.steal,
        others: (machine.busy - ours).max(0.0),
        cpu_pressure: machine.pressure_us.map(|us| us as f64 / 1e6 / seconds),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
