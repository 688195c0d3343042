//! A round: every server restarted, warmed up, and then slice after slice.

use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, Guard};
use pgtoll_format::MajorFacts;
use pgtoll_interrupt::Interrupt;
use pgtoll_load::Tally;
use pgtoll_observe::{MachineSample, own_cpu_ns};
use pgtoll_record::{
    ArmLatencies, ArmRound, Latencies, Line, Metric, NoiseShare, Round, RoundEnd, Slice, Slicing,
};
use pgtoll_stats::{BalancedOrders, Options, Sample, minimum_block_length_for};

use crate::measure::Progress;
use crate::pace::FEWEST_BLOCKS;
use crate::plan::ROUNDS;
use crate::prepare::{Shown, check_shown, settings};
use crate::recorder::Recorder;
use crate::server::{Length, Load, Server, nanoseconds};
use crate::so_far::{SoFar, quick_options, widest};
use crate::{BenchError, Plan, WorkloadSpec};

/// What all rounds of a workload share.
pub(crate) struct Rounds<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) workload: &'a WorkloadSpec,
    pub(crate) slicing: &'a Slicing,
    /// Transactions of a slice, for scripts that write; known after the first warm-up.
    pub(crate) slice_transactions: Option<u64>,
    /// All slices so far, for the stop rule.
    pub(crate) slices: Vec<Slice>,
    pub(crate) facts: &'static MajorFacts,
    /// Of the arms; in a crossover the one that is all of them.
    pub(crate) clusters: &'a [Cluster],
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) run_began: Instant,
    /// How much wider than they claim intervals of server CPU have to be here.
    pub(crate) kappa: f64,
    pub(crate) start_orders: BalancedOrders,
    pub(crate) slice_orders: BalancedOrders,
}

/// Data that do not fill the memory in this time are taken to fit into it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two readings of what the servers have moved.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(500);

/// What a round has of an arm besides its slices.
#[derive(Default)]
struct OfArm {
    latencies: Latencies,
    late: u64,
}

impl<'a> Rounds<'a> {
    /// Runs one round and records it.
    pub(crate) fn run(
        &mut self,
        round: u32,
        blocks: u32,
        so_far: SoFar,
        guard: &mut Guard,
        recorder: &mut Recorder,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let mut servers = self.start_all(round, guard, recorder)?;
        self.warm_up(&mut servers, guard)?;
        for server in &mut servers {
            server.begin(self.facts, guard)?;
        }
        let machine_before = MachineSample::now()?;
        let cpu_before = all_cpu_ns(&mut servers)?;
        let arms = self.plan.experiment.arms.iter();
        let mut of_arms: Vec<OfArm> = arms.map(|_| OfArm::default()).collect();
        let began = Instant::now();
        let mut sampled = began;
        for block in 1..=blocks {
            self.interrupt.check()?;
            // Nobody foresaw transactions that are longer than a slice.
            if block > FEWEST_BLOCKS && began.elapsed() > self.planned(blocks) * 2 {
                break;
            }
            progress(Progress::Block { workload: &self.workload.name, round, block, so_far });
            self.block((round, block), &mut servers, &mut of_arms, guard, recorder)?;
            if block == blocks || sampled.elapsed() >= BETWEEN_SAMPLES {
                self.sample(round, &mut servers, recorder)?;
                sampled = Instant::now();
            }
        }
        let machine = MachineSample::now()?.since(&machine_before);
        let ours = all_cpu_ns(&mut servers)?.saturating_sub(cpu_before);
        let (arms, programs) = self.stop_all(servers, guard)?;
        let noise = noise(&machine, ours + programs);
        let latencies = self.latencies(&of_arms);
        let workload = self.workload.name.clone();
        recorder.write(&Line::RoundEnd(RoundEnd { workload, round, arms, latencies, noise }))?;
        recorder.sync()
    }

    /// Between two blocks, so that what it costs is in no slice.
    fn sample(
        &self,
        round: u32,
        servers: &mut [Server<'_>],
        recorder: &mut Recorder,
    ) -> Result<(), BenchError> {
        for server in servers {
            let workload = self.workload.name.clone();
            let of_server = server.sample(self.run_began.elapsed())?;
            recorder.write(&Line::Sample(pgtoll_record::Sample {
                workload,
                round,
                ..of_server
            }))?;
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
        let slices = self.slices.iter().map(|of| {
            let (numerator, denominator) = Metric::CpuPerTransaction.of_slice(of);
            Sample { arm: &of.arm, round: of.round, block: of.block, numerator, denominator }
        });
        let minimum_block_length = minimum_block_length_for(self.planned(1).as_secs_f64());
        let options = quick_options(self.plan, self.kappa);
        let options = Options { minimum_block_length, ..options };
        widest(self.plan, &slices.collect::<Vec<_>>(), &options)
    }

    fn start_all(
        &mut self,
        round: u32,
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<Vec<Server<'a>>, BenchError> {
        let order = self.start_orders.next().unwrap_or_default();
        let mut servers: Vec<Option<Server<'a>>> = self.clusters.iter().map(|_| None).collect();
        for &index in &order {
            servers[index] = Some(self.start(index, guard)?);
        }
        let name = |&index: &usize| self.clusters[index].name().to_owned();
        let start_order = order.iter().map(name).collect();
        let workload = self.workload.name.clone();
        recorder.write(&Line::Round(Round { workload, round, start_order }))?;
        let mut servers: Vec<Server<'a>> = servers.into_iter().flatten().collect();
        self.check_arms(&mut servers, guard)?;
        Ok(servers)
    }

    pub(crate) fn start(&self, index: usize, guard: &mut Guard) -> Result<Server<'a>, BenchError> {
        let cluster = &self.clusters[index];
        let (experiment, workload) = (&self.plan.experiment, self.workload);
        cluster.configure(guard, &settings(experiment, workload, &experiment.arms[index]))?;
        Server::start(cluster, workload, experiment.scale, self.facts, guard)
    }

    /// Every arm is what the experiment says: it differs from the baseline in that and nothing
    /// else.
    fn check_arms(&self, servers: &mut [Server<'_>], guard: &mut Guard) -> Result<(), BenchError> {
        let experiment = &self.plan.experiment;
        let mut shown = Vec::new();
        for (index, arm) in experiment.arms.iter().enumerate() {
            let server = &mut servers[self.server_of(index)];
            self.become_arm(server, index, guard)?;
            let Server { cluster, monitor, load, .. } = server;
            // In a crossover the session that works has to have changed.
            let connection = match load {
                Load::Client { client, .. } => client.connection(),
                Load::Program { .. } | Load::Ended => monitor,
            };
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
        guard: &mut Guard,
    ) -> Result<(), BenchError> {
        if !self.plan.design.crossover {
            return Ok(());
        }
        let (experiment, workload) = (&self.plan.experiment, self.workload);
        let settings = settings(experiment, workload, &experiment.arms[arm]);
        server.cluster.configure(guard, &settings)?;
        server.reload()
    }

    fn warm_up(&mut self, servers: &mut [Server<'_>], guard: &mut Guard) -> Result<(), BenchError> {
        self.fill_memory(servers, guard)?;
        for server in servers.iter_mut() {
            server.transactions = 0;
        }
        let began = Instant::now();
        let mut blocks = 0;
        // Transactions that are longer than a slice must not make the warm-up endless.
        while blocks < self.slicing.warm_up_blocks
            && (blocks == 0 || began.elapsed() < self.planned(self.slicing.warm_up_blocks) * 3)
        {
            self.warm_up_block(blocks, servers, guard)?;
            blocks += 1;
        }
        if self.writes() && self.workload.rate.is_none() && self.slice_transactions.is_none() {
            let slices = u64::from(blocks.max(1)) * self.plan.experiment.arms.len() as u64
                / servers.len().max(1) as u64;
            let slowest = servers.iter().map(|server| server.transactions).min().unwrap_or(0);
            self.slice_transactions = Some((slowest / slices).max(1));
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
        guard: &mut Guard,
    ) -> Result<(), BenchError> {
        self.interrupt.check()?;
        for arm in 0..self.plan.experiment.arms.len() {
            let server = &mut servers[self.server_of(arm)];
            self.become_arm(server, arm, guard)?;
            self.reseed(server, (0, block), arm);
            let slice = Duration::from_nanos(self.slicing.slice_ns);
            server.work(Length::Time(slice), guard, self.interrupt)?;
        }
        Ok(())
    }

    /// Under a limit of memory the page cache is empty at first: warms up until it is full.
    fn fill_memory(&self, servers: &mut [Server<'_>], guard: &mut Guard) -> Result<(), BenchError> {
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
                Some(_) => self.warm_up_block(block, servers, guard)?,
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
        (round, block): (u32, u32),
        servers: &mut [Server<'_>],
        of_arms: &mut [OfArm],
        guard: &mut Guard,
        recorder: &mut Recorder,
    ) -> Result<(), BenchError> {
        let order = self.slice_orders.next().unwrap_or_default();
        for (position, arm) in (1..).zip(order) {
            let server = &mut servers[self.server_of(arm)];
            self.become_arm(server, arm, guard)?;
            self.reseed(server, (round, block), arm);
            let slice = self.slice(server, &mut of_arms[arm], guard)?;
            let arm = self.plan.experiment.arms[arm].name.clone();
            let slice = Slice { arm, round, block, position, ..slice };
            self.slices.push(slice.clone());
            recorder.write(&Line::Slice(slice))?;
        }
        Ok(())
    }

    fn slice(
        &self,
        server: &mut Server<'_>,
        of_arm: &mut OfArm,
        guard: &mut Guard,
    ) -> Result<Slice, BenchError> {
        let (lead_in, length) = self.lengths();
        // What a program does in a lead-in would be among its transactions.
        if self.slicing.lead_in_ns > 0 {
            server.work(lead_in, guard, self.interrupt)?;
            server.take_latencies();
        }
        let start_ns = nanoseconds(self.run_began.elapsed());
        let (server_before, own_before) = (server.cpu.sample()?, own_cpu_ns()?);
        let tally = server.work(length, guard, self.interrupt)?;
        let (own_after, server_after) = (own_cpu_ns()?, server.cpu.sample()?);
        self.check_rate(length, &tally)?;
        let used = server_after.since(&server_before);
        if let Some(latencies) = server.take_latencies() {
            of_arm.latencies.merge(&latencies);
            of_arm.late += tally.late;
        }
        Ok(Slice {
            workload: self.workload.name.clone(),
            round: 0,
            block: 0,
            position: 0,
            arm: String::new(),
            start_ns,
            duration_ns: nanoseconds(tally.elapsed),
            transactions: tally.transactions,
            server_cpu_ns: used.nanoseconds,
            client_cpu_ns: own_after.saturating_sub(own_before),
            processes_changed: used.processes_changed,
        })
    }

    /// All arms of a block ask for the same rows. In a crossover that writes they must not: the arm
    /// that comes first would make the images of the pages, and the others find them made.
    fn reseed(&self, server: &mut Server<'_>, (round, block): (u32, u32), arm: usize) {
        let seed = self.plan.seed.wrapping_add(u64::from(round) << 32 | u64::from(block));
        let Load::Client { client, .. } = &mut server.load else { return };
        client.reseed(seed);
        if self.plan.design.crossover && self.writes() {
            client.reseed_draws(seed.wrapping_add((arm as u64 + 1) << 56));
        }
    }

    fn writes(&self) -> bool {
        self.workload.mix.as_ref().is_some_and(pgtoll_load::Mix::writes)
    }

    /// How long so many blocks should take.
    fn planned(&self, blocks: u32) -> Duration {
        self.slicing.block(self.plan.experiment.arms.len()) * blocks
    }

    /// A load that comes faster than the server works it off piles up without end.
    #[expect(clippy::cast_precision_loss, reason = "a slice's transactions are far below 2^53")]
    fn check_rate(&self, length: Length, tally: &Tally) -> Result<(), BenchError> {
        let (Some(asked), Length::Time(time)) = (self.workload.rate, length) else {
            return Ok(());
        };
        if tally.elapsed < time * 3 {
            return Ok(());
        }
        let achieved = tally.transactions as f64 / tally.elapsed.as_secs_f64();
        Err(BenchError::RateTooHigh { asked, achieved })
    }

    /// The arms' totals, and the CPU time of the programs that made their load, in ns.
    fn stop_all(
        &self,
        servers: Vec<Server<'_>>,
        guard: &mut Guard,
    ) -> Result<(Vec<ArmRound>, u64), BenchError> {
        let (mut arms, mut programs) = (Vec::new(), 0);
        for server in servers {
            let (arm, program) = server.stop(self.facts, guard)?;
            arms.push(arm);
            programs += program;
        }
        Ok((arms, programs))
    }

    fn latencies(&self, of_arms: &[OfArm]) -> Vec<ArmLatencies> {
        let all = self.plan.experiment.arms.iter().zip(of_arms);
        let all = all.filter_map(|(arm, of)| ArmLatencies::of(&arm.name, of.late, &of.latencies));
        all.collect()
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
