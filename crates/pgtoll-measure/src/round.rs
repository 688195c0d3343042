//! A round: every server restarted, warmed up, and then slice after slice.

use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, PinnedThread, pin, usable_cpus};
use pgtoll_estimate::RecordLines;
use pgtoll_observe::{MachineSample, own_cpu_ns};
use pgtoll_record::{
    ArmLatencies, ArmRound, Calibration, Latencies, Line, NoiseShare, RoundBegin, RoundEnd, Slice,
    Slicing,
};
use pgtoll_stats::BalancedOrders;
use pgtoll_workload::Tally;

use crate::interim::{InterimEstimate, half_width};
use crate::pace::FEWEST_BLOCKS;
use crate::plan::ROUNDS;
use crate::prepare::settings;
use crate::run::Run;
use crate::server::{Length, Load, Server};
use crate::servers::programs_read_again;
use crate::shown::{Shown, check_shown};
use crate::units::nanoseconds;
use crate::{BenchError, Plan, Progress, WorkloadSpec};

/// The state that all rounds of a workload share.
pub(crate) struct Rounds<'a> {
    plan: &'a Plan,
    pub(crate) workload: &'a WorkloadSpec,
    slicing: &'a Slicing,
    /// Transactions of a slice, for scripts that write; known after the first warm-up.
    slice_transactions: Option<u64>,
    /// All slices so far, for the stop rule.
    slices: Vec<Slice>,
    /// The rounds that ended, for the stop rule.
    ended: Vec<RoundEnd>,
    /// The clusters of the arms; in a crossover the one that all share.
    clusters: &'a [Cluster],
    /// Calibrations from earlier runs here.
    calibration: &'a [Calibration],
    start_orders: BalancedOrders,
    slice_orders: BalancedOrders,
}

/// Data that do not fill the memory in this time are taken to fit into it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two readings of what the servers have moved.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(500);

/// The sums of an arm in a round besides its slices.
#[derive(Default)]
struct ArmTally {
    latencies: Latencies,
    /// Transactions that began later than they should.
    late: u64,
}

/// A slice's place among the slices.
#[derive(Clone, Copy)]
struct SliceSlot {
    round: u32,
    block: u32,
    /// In the block, from 1.
    position: u32,
    /// The arm's index in the experiment.
    arm: usize,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new<'r: 'a>(
        workload: &'a WorkloadSpec,
        slicing: &'a Slicing,
        clusters: &'a [Cluster],
        run: &Run<'r>,
    ) -> Self {
        let plan = run.plan;
        Self {
            plan,
            workload,
            slicing,
            slice_transactions: None,
            slices: Vec::new(),
            ended: Vec::new(),
            clusters,
            calibration: run.calibration,
            start_orders: BalancedOrders::new(clusters.len(), plan.seed.wrapping_add(1)),
            slice_orders: BalancedOrders::new(plan.experiment.arms.len(), plan.seed),
        }
    }

    /// Runs one round and records it.
    pub(crate) fn round(
        &mut self,
        round: u32,
        blocks: u32,
        interim: InterimEstimate,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let mut servers = self.start_all(round, run)?;
        let is_held = self.slicing.one_cpu == Some(true);
        let pinned = is_held.then(|| hold_on_one_cpu(&mut servers, round)).transpose()?;
        self.warm_up(&mut servers, run)?;
        for server in &mut servers {
            server.begin(run)?;
        }
        let machine_before = MachineSample::now()?;
        let cpu_before = all_cpu_ns(&mut servers)?;
        let tallies = self.blocks(round, blocks, interim, &mut servers, run)?;
        let machine = MachineSample::now()?.since(&machine_before);
        let ours = all_cpu_ns(&mut servers)?.saturating_sub(cpu_before);
        drop(pinned);
        let (arms, programs) = stop_all(servers, run)?;
        let noise = noise(&machine, ours + programs);
        let latencies = self.latencies(&tallies);
        let workload = self.workload.name.clone();
        let end = RoundEnd { workload, round, arms, latencies, noise };
        self.ended.push(end.clone());
        run.write(&Line::RoundEnd(end))?;
        run.recorder.sync()
    }

    /// Block after block, with readings of the servers' counters between them.
    fn blocks(
        &mut self,
        round: u32,
        blocks: u32,
        interim: InterimEstimate,
        servers: &mut [Server<'_>],
        run: &mut Run<'_>,
    ) -> Result<Vec<ArmTally>, BenchError> {
        let arms = self.plan.experiment.arms.iter();
        let mut tallies: Vec<ArmTally> = arms.map(|_| ArmTally::default()).collect();
        let began = Instant::now();
        let mut sampled = began;
        for block in 1..=blocks {
            run.interrupt.check()?;
            // Nobody foresaw transactions that are longer than a slice.
            if block > FEWEST_BLOCKS && began.elapsed() > self.planned(blocks) * 2 {
                break;
            }
            let workload = &self.workload.name;
            (run.progress)(Progress::Block { workload, round, block, interim });
            self.block(round, block, servers, &mut tallies, run)?;
            if block == blocks || sampled.elapsed() >= BETWEEN_SAMPLES {
                self.sample(round, servers, run)?;
                sampled = Instant::now();
            }
        }
        Ok(tallies)
    }

    /// Between two blocks, so that what it costs is in no slice.
    fn sample(
        &self,
        round: u32,
        servers: &mut [Server<'_>],
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        for server in servers {
            let sample = server.sample(&self.workload.name, round, run.elapsed())?;
            run.write(&Line::Sample(sample))?;
        }
        Ok(())
    }

    /// The server that is this arm.
    fn server_of(&self, arm: usize) -> usize {
        if self.plan.design.crossover { 0 } else { arm }
    }

    /// Whether every interval of server CPU is as narrow as was asked for. The width alone
    /// decides, never what the interval covers; and nobody looks before there are enough rounds.
    pub(crate) fn is_precise_enough(&self, after_round: u32) -> bool {
        let precision = self.plan.precision.filter(|_| after_round >= ROUNDS);
        let enough = |precision: f64| Some(self.half_width()? <= precision.ln_1p());
        precision.and_then(enough).unwrap_or(false)
    }

    /// Half of the widest interval of server CPU until now, on the log scale.
    pub(crate) fn half_width(&self) -> Option<f64> {
        let lines =
            RecordLines { slices: &self.slices, rounds: &self.ended, ..RecordLines::default() };
        half_width(self.plan, self.calibration, &[&self.workload.name], lines)
    }

    fn start_all(&mut self, round: u32, run: &mut Run<'_>) -> Result<Vec<Server<'a>>, BenchError> {
        programs_read_again(self.clusters, run)?;
        let order = self.start_orders.next().unwrap_or_default();
        let mut servers: Vec<Option<Server<'a>>> = self.clusters.iter().map(|_| None).collect();
        for &index in &order {
            servers[index] = Some(self.start(index, run)?);
        }
        let name = |&index: &usize| self.clusters[index].name().to_owned();
        let start_order = order.iter().map(name).collect();
        let workload = self.workload.name.clone();
        run.write(&Line::Round(RoundBegin { workload, round, start_order }))?;
        let mut servers: Vec<Server<'a>> = servers.into_iter().flatten().collect();
        self.check_arms(&mut servers, run)?;
        Ok(servers)
    }

    pub(crate) fn start(&self, index: usize, run: &mut Run<'_>) -> Result<Server<'a>, BenchError> {
        let cluster = &self.clusters[index];
        let experiment = &self.plan.experiment;
        let workload = self.workload;
        cluster.configure(run.guard, &settings(experiment, workload, &experiment.arms[index]))?;
        Server::start(cluster, workload, run)
    }

    /// Every arm is what the experiment says: it differs from the baseline in that and nothing
    /// else.
    fn check_arms(&self, servers: &mut [Server<'_>], run: &mut Run<'_>) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut shown = Vec::new();
        for (index, arm) in experiment.arms.iter().enumerate() {
            let server = &mut servers[self.server_of(index)];
            self.become_arm(server, index, run)?;
            let Server { cluster, monitor, load, .. } = server;
            // In a crossover the sessions that work have to have changed.
            let connection = load.connections().next().unwrap_or(monitor);
            shown.push(Shown::by(arm, cluster, connection)?);
            if self.plan.design.crossover {
                server.check_configuration()?;
            }
        }
        check_shown(experiment, &shown)
    }

    /// In a crossover: gives the one server the arm's settings, and waits until its session has
    /// them.
    fn become_arm(
        &self,
        server: &mut Server<'_>,
        arm: usize,
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        if !self.plan.design.crossover {
            return Ok(());
        }
        let experiment = &self.plan.experiment;
        let workload = self.workload;
        let settings = settings(experiment, workload, &experiment.arms[arm]);
        server.cluster.configure(run.guard, &settings)?;
        server.reload()
    }

    fn warm_up(&mut self, servers: &mut [Server<'_>], run: &mut Run<'_>) -> Result<(), BenchError> {
        self.fill_memory(servers, run)?;
        for server in servers.iter_mut() {
            server.transactions = 0;
        }
        let began = Instant::now();
        let mut blocks = 0;
        // Transactions that are longer than a slice must not make the warm-up endless.
        while blocks < self.slicing.warm_up_blocks
            && (blocks == 0 || began.elapsed() < self.planned(self.slicing.warm_up_blocks) * 3)
        {
            self.warm_up_block(blocks, servers, run)?;
            blocks += 1;
        }
        if self.writes() && self.workload.rate.is_none() && self.slice_transactions.is_none() {
            let slices = u64::from(blocks.max(1)) * self.plan.experiment.arms.len() as u64
                / servers.len().max(1) as u64;
            let slowest = servers.iter().map(|server| server.transactions).min().unwrap_or(0);
            self.slice_transactions = Some((slowest / slices).max(self.workload.clients().into()));
        }
        // After the warm-up, in which arms do unequally much: their distance from the checkpoint
        // is the same in every slice.
        for server in servers {
            server.query("CHECKPOINT")?;
            server.take_latencies();
        }
        Ok(())
    }

    fn warm_up_block(
        &self,
        block: u32,
        servers: &mut [Server<'_>],
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        run.interrupt.check()?;
        for arm in 0..self.plan.experiment.arms.len() {
            let server = &mut servers[self.server_of(arm)];
            self.become_arm(server, arm, run)?;
            self.reseed(server, 0, block, arm);
            let slice = Duration::from_nanos(self.slicing.slice_ns);
            server.work(Length::Time(slice), run)?;
        }
        Ok(())
    }

    /// Under a limit of memory the page cache is empty at first: warms up until it is full.
    fn fill_memory(&self, servers: &mut [Server<'_>], run: &mut Run<'_>) -> Result<(), BenchError> {
        let Some(limit) = self.workload.memory else { return Ok(()) };
        let began = Instant::now();
        for block in self.slicing.warm_up_blocks.. {
            let mut below = None;
            for server in servers.iter() {
                if !server.has_filled_its_memory()? {
                    below = Some(server.cluster.name());
                }
            }
            match below {
                None => break,
                Some(arm) if began.elapsed() > PATIENCE => {
                    return Err(BenchError::LimitNotReached { arm: arm.to_owned(), limit });
                }
                Some(_) => self.warm_up_block(block, servers, run)?,
            }
        }
        Ok(())
    }

    /// Slices of scripts that read last equally long. Where WAL is written it falls off with the
    /// distance from the checkpoint, and that grows with the transactions: there slices have
    /// equally many.
    fn lengths(&self) -> (Length, Length) {
        match self.slice_transactions {
            None => (
                Length::Time(Duration::from_nanos(self.slicing.lead_in_ns)),
                Length::Time(Duration::from_nanos(self.slicing.slice_ns)),
            ),
            Some(count) => (Length::Transactions((count / 10).max(1)), Length::Transactions(count)),
        }
    }

    fn block(
        &mut self,
        round: u32,
        block: u32,
        servers: &mut [Server<'_>],
        tallies: &mut [ArmTally],
        run: &mut Run<'_>,
    ) -> Result<(), BenchError> {
        let order = self.slice_orders.next().unwrap_or_default();
        for (position, arm) in (1..).zip(order) {
            let server = &mut servers[self.server_of(arm)];
            self.become_arm(server, arm, run)?;
            self.reseed(server, round, block, arm);
            let slot = SliceSlot { round, block, position, arm };
            let slice = self.slice(slot, server, &mut tallies[arm], run)?;
            self.slices.push(slice.clone());
            run.write(&Line::Slice(slice))?;
        }
        Ok(())
    }

    fn slice(
        &self,
        SliceSlot { round, block, position, arm }: SliceSlot,
        server: &mut Server<'_>,
        arm_tally: &mut ArmTally,
        run: &mut Run<'_>,
    ) -> Result<Slice, BenchError> {
        let (lead_in, length) = self.lengths();
        // What a program does in a lead-in would be among its transactions.
        if self.slicing.lead_in_ns > 0 {
            server.work(lead_in, run)?;
            server.take_latencies();
        }
        let start_ns = nanoseconds(run.elapsed());
        let server_before = server.cpu.sample()?;
        let own_before = own_cpu_ns()?;
        let tally = server.work(length, run)?;
        let own_after = own_cpu_ns()?;
        let server_after = server.cpu.sample()?;
        self.check_rate(length, &tally)?;
        let used = server_after.since(&server_before);
        if let Some(latencies) = server.take_latencies() {
            arm_tally.latencies.merge(&latencies);
            arm_tally.late += tally.late;
        }
        Ok(Slice {
            workload: self.workload.name.clone(),
            round,
            block,
            position,
            arm: self.plan.experiment.arms[arm].name.clone(),
            start_ns,
            duration_ns: nanoseconds(tally.elapsed),
            transactions: tally.transactions,
            server_cpu_ns: used.nanoseconds,
            io_workers_cpu_ns: used.io_workers_ns,
            client_cpu_ns: own_after.saturating_sub(own_before),
            processes_changed: used.processes_changed,
        })
    }

    /// All arms of a block ask for the same rows. In a crossover that writes they must not: the arm
    /// that comes first would make the images of the pages, and the others find them made.
    fn reseed(&self, server: &mut Server<'_>, round: u32, block: u32, arm: usize) {
        let seed = self.plan.seed.wrapping_add(u64::from(round) << 32 | u64::from(block));
        let Load::Clients { crowd, .. } = &mut server.load else { return };
        crowd.reseed(seed);
        if self.plan.design.crossover && self.writes() {
            crowd.reseed_draws(seed.wrapping_add((arm as u64 + 1) << 56));
        }
    }

    fn writes(&self) -> bool {
        self.workload.mix.as_ref().is_some_and(pgtoll_workload::Mix::writes)
    }

    /// How long this many blocks should take.
    fn planned(&self, blocks: u32) -> Duration {
        self.slicing.block(self.plan.experiment.arms.len()) * blocks
    }

    /// A load that comes faster than the server works it off piles up without end.
    #[expect(clippy::cast_precision_loss, reason = "a slice's transactions are far below 2^53")]
    fn check_rate(&self, length: Length, tally: &Tally) -> Result<(), BenchError> {
        let (Some(requested), Length::Time(time)) = (self.workload.rate, length) else {
            return Ok(());
        };
        if tally.elapsed < time * 3 {
            return Ok(());
        }
        let achieved = tally.transactions as f64 / tally.elapsed.as_secs_f64();
        Err(BenchError::RateTooHigh { asked: requested, achieved })
    }

    fn latencies(&self, tallies: &[ArmTally]) -> Vec<ArmLatencies> {
        let arms = self.plan.experiment.arms.iter().zip(tallies);
        arms.filter_map(|(arm, tally)| ArmLatencies::new(&arm.name, tally.late, &tally.latencies))
            .collect()
    }
}

/// Lets the sessions of all arms, and the client, work on the same CPU, another one in the next round:
/// CPUs differ by what runs beside them, and a session would stay on its own. A client and a server
/// that wait for each other cost another amount of CPU on two CPUs than on one, and the kernel
/// chooses now so and now so. The same holds for a session and the I/O workers that read for it.
fn hold_on_one_cpu(servers: &mut [Server<'_>], round: u32) -> Result<PinnedThread, BenchError> {
    let cpus = usable_cpus()?;
    let cpu = cpus[round as usize % cpus.len()];
    for server in servers {
        for pid in server.client_processes()? {
            pin(pid, &[cpu])?;
        }
    }
    Ok(PinnedThread::on(cpu)?)
}

/// The arms' totals, and the CPU time of the programs that made their load, in ns.
fn stop_all(
    servers: Vec<Server<'_>>,
    run: &mut Run<'_>,
) -> Result<(Vec<ArmRound>, u64), BenchError> {
    let mut arms = Vec::new();
    let mut programs = 0;
    for server in servers {
        let (arm, program) = server.stop(run)?;
        arms.push(arm);
        programs += program;
    }
    Ok((arms, programs))
}

/// CPU time of all servers and of pgtoll itself.
fn all_cpu_ns(servers: &mut [Server<'_>]) -> Result<u64, BenchError> {
    let mut total = own_cpu_ns()?;
    for server in servers {
        total += server.cpu.sample()?.total_ns();
    }
    Ok(total)
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
