//! A round: every server restarted, warmed up, and then slice after slice.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard, Interrupt, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_load::{Client, Script};
use pgtoll_observe::{ClusterCpu, MachineSample, ServerCounters, own_cpu_ns};
use pgtoll_record::{ArmRound, Line, NoiseShare, Round, RoundEnd, Slice};
use pgtoll_stats::BalancedOrders;
use pgtoll_wire::Connection;

use crate::measure::Progress;
use crate::prepare::{DATABASE, Shown};
use crate::recorder::Recorder;
use crate::{BenchError, Plan};

/// What all rounds of a run share.
pub(crate) struct Rounds<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'static MajorFacts,
    pub(crate) clusters: &'a [Cluster],
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
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
            progress(Progress::Block { round, block });
            self.block(round, block, &mut servers, recorder)?;
        }
        let machine = MachineSample::now()?.since(&machine_before);
        let ours = all_cpu_ns(&mut servers)?.saturating_sub(cpu_before);
        let arms = self.stop_all(servers, &before, guard)?;
        let noise = noise(&machine, ours);
        recorder.write(&Line::RoundEnd(RoundEnd { round, arms, noise }))?;
        recorder.sync()
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
        recorder.write(&Line::Round(Round { round, start_order }))?;
        let mut servers: Vec<Server<'a>> = servers.into_iter().flatten().collect();
        self.check_arms(&mut servers)?;
        for server in &mut servers {
            let done = server.monitor.execute("CHECKPOINT");
            done.map_err(|source| BenchError::query(server.cluster, source))?;
        }
        Ok(servers)
    }

    fn start(&self, arm: usize, guard: &mut Guard) -> Result<Server<'a>, BenchError> {
        let cluster = &self.clusters[arm];
        read_into_page_cache(cluster)?;
        let postmaster = cluster.start(guard)?;
        let monitor = cluster.connect(DATABASE)?;
        let load = |source| BenchError::load(cluster, source);
        let client = Client::new(cluster.connect(DATABASE)?, Script::SelectOnly, self.plan.scale)
            .map_err(load)?;
        let cpu = ClusterCpu::attach(postmaster)?;
        Ok(Server { cluster, monitor, client, cpu, transactions: 0 })
    }

    /// Every arm is what the experiment says, at every start.
    fn check_arms(&self, servers: &mut [Server<'_>]) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut shown = Vec::new();
        for (arm, server) in experiment.arms.iter().zip(servers) {
            shown.push(Shown::by(arm, server.cluster, &mut server.monitor)?);
        }
        let baseline = experiment.arms.iter().position(|arm| arm.name == experiment.baseline);
        let baseline = &shown[baseline.unwrap_or(0)];
        shown.iter().try_for_each(|arm| arm.check_against(baseline, experiment))
    }

    fn warm_up(&self, servers: &mut [Server<'_>]) -> Result<(), BenchError> {
        for block in 0..self.plan.design.warm_up_blocks {
            self.interrupt.check()?;
            for server in &mut *servers {
                server.client.reseed(self.seed_of(0, block));
                server.work(Duration::from_nanos(self.plan.design.slice_ns))?;
            }
        }
        Ok(())
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
            recorder.write(&Line::Slice(Slice { round, block, position, ..slice }))?;
        }
        Ok(())
    }

    fn slice(&self, server: &mut Server<'_>) -> Result<Slice, BenchError> {
        let design = &self.plan.design;
        server.work(Duration::from_nanos(design.lead_in_ns))?;
        let start_ns = nanoseconds(self.run_began.elapsed());
        let (server_before, own_before) = (server.cpu.sample()?, own_cpu_ns()?);
        let tally = server.work(Duration::from_nanos(design.slice_ns))?;
        let (own_after, server_after) = (own_cpu_ns()?, server.cpu.sample()?);
        let used = server_after.since(&server_before);
        Ok(Slice {
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
    fn work(&mut self, length: Duration) -> Result<pgtoll_load::Tally, BenchError> {
        let done = self.client.run_for(length);
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
