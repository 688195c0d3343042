//! Runs: a workload on fresh copies of a data directory, from its warm-up to its last checkpoint.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, ServerProcesses, StopMode};
use pgtoll_format::{Lsn, MajorFacts, ServerVersion};
use pgtoll_model::{Geometry, ImageCompression, Schedule, Settings};
use pgtoll_observe::{ClusterCpu, ServerCounters};
use pgtoll_record::ImageCause;
use pgtoll_record::trials::{
    PredictionTrialAnswer, PredictionTrialArm as Arm, PredictionTrialCensus, PredictionTrialCycle,
    PredictionTrialRegime as Regime, PredictionTrialRights as Rights, PredictionTrialRun,
    PredictionTrialWorkload as Workload,
};
use pgtoll_system::Interrupt;
use pgtoll_trials::settings;
use pgtoll_wal::{
    Compressing, Question, SegmentFile, WalStatistics, WhatIfCollector, first_header,
    scan_range_with,
};
use pgtoll_wire::Connection;
use pgtoll_workload::{Crowd, Until};

use crate::census::{Written, census, statements_dirtied, written};
use crate::program::{Program, ProgramAnswer};
use crate::segments;
use crate::work::{self, DATABASE};

/// Data directories with the same data: without and with checksums.
pub(crate) struct Templates {
    version: ServerVersion,
    off: Cluster,
    on: Cluster,
}

impl Templates {
    pub(crate) fn make(
        workload: Workload,
        installation: &Installation,
        guard: &mut Guard,
    ) -> anyhow::Result<Self> {
        let off = Cluster::init(guard, installation, "off", false)?;
        off.configure(guard, &all_settings(workload, Arm::Off))?;
        off.start(guard)?;
        work::prepare(workload, &off, guard)?;
        off.stop(guard, StopMode::Fast)?;
        let on = off.copy(guard, "on")?;
        on.enable_checksums(guard)?;
        Ok(Self { version: installation.version.clone(), off, on })
    }

    pub(crate) fn template(&self, arm: Arm) -> &Cluster {
        if arm == Arm::On { &self.on } else { &self.off }
    }
}

pub(crate) fn all_settings(workload: Workload, arm: Arm) -> BTreeMap<String, String> {
    settings([
        // The shortest there is: several times in a checkpoint cycle, as on production servers.
        ("autovacuum_naptime", "1s"),
        // As large tables need them. Vacuums are many and small, so that each run has about as much of them.
        ("autovacuum_vacuum_insert_scale_factor", "0.02"),
        ("autovacuum_vacuum_scale_factor", "0.02"),
        ("checkpoint_timeout", "1h"),
        ("max_wal_size", "100GB"),
        ("min_wal_size", "32MB"),
        // Predictions read it after the run.
        ("wal_keep_size", "100GB"),
        ("shared_buffers", work::shared_buffers(workload)),
        ("shared_preload_libraries", "pg_stat_statements"),
        ("wal_log_hints", if arm == Arm::Hints { "on" } else { "off" }),
    ])
}

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) cycles: u32,
    pub(crate) seconds: u32,
}

/// The work of a cycle is cut into this number of parts, with a census after each where the server is watched.
const PARTS: u64 = 8;
/// As many where they are spread over a cycle's time: about one a second, since work on production
/// servers comes evenly. In a few bursts, what is evicted in each would be the answer of one census.
const TIMED_PARTS: u64 = 24;

/// The parts of a cycle's work.
pub(crate) const fn parts(regime: Regime) -> u64 {
    match regime {
        Regime::Forced => PARTS,
        Regime::Timed => TIMED_PARTS,
    }
}

/// Pages that a census looks at.
const SAMPLE: u32 = 400;
/// The same, just before a checkpoint writes all of them anyway.
const LAST_SAMPLE: u32 = 4000;

/// Does the work on a copy while `pgtoll predict` watches it, and removes it.
pub(crate) fn answer(
    workload: Workload,
    arm: Arm,
    (repetition, rights): (u32, Rights),
    extent: Extent,
    (templates, interrupt): (&Templates, &Interrupt),
    guard: &mut Guard,
) -> anyhow::Result<PredictionTrialAnswer> {
    let cluster = templates.template(arm).copy(guard, "run")?;
    cluster.configure(guard, &all_settings(workload, arm))?;
    let subject = (workload, arm, Regime::Forced);
    let mut session = Session::begin(subject, extent, (&cluster, templates), guard)?;
    let most_cycles = 2 * extent.cycles + 2;
    session.warm_up(most_cycles)?;
    let mut program = Program::begin(&cluster, extent.cycles, rights)?;
    // It counts from a checkpoint on that it has seen, and misses some where it starts late.
    for _ in 0..most_cycles {
        if program.has_ended()? {
            break;
        }
        interrupt.check()?;
        session.cycle()?;
    }
    // A signal ends the program, too.
    interrupt.check()?;
    let answer = session.answer(repetition, rights, program.finish());
    session.close();
    cluster.stop(guard, StopMode::Immediate)?;
    cluster.remove(guard)?;
    Ok(answer)
}

/// Does the same work on copies, one for each of `arms`, and removes them.
///
/// The servers take turns, a part of the work each, and stand still in between: what disturbs the
/// machine for longer than a turn disturbs all of them alike.
pub(crate) fn run(
    workload: Workload,
    arms: &[Arm],
    repetition: u32,
    extent: Extent,
    place: (&Templates, &Interrupt),
    guard: &mut Guard,
) -> anyhow::Result<Vec<PredictionTrialRun>> {
    let mut players = Vec::new();
    for arm in arms {
        players.push(Player::begin((workload, *arm), extent, place.0, guard)?);
    }
    for cycle in 0..extent.cycles {
        place.1.check()?;
        cycle_in_turns(&mut players, cycle + repetition)?;
    }
    players.into_iter().map(|player| player.finish(repetition, guard)).collect()
}

/// A cycle of each. Every other part, and the first of every other cycle, is done in reverse order.
fn cycle_in_turns(players: &mut [Player], first: u32) -> anyhow::Result<()> {
    let mut open = Vec::new();
    for player in &mut *players {
        open.push(player.turn(Session::begin_cycle)?);
    }
    for part in 0..PARTS {
        let mut order: Vec<usize> = (0..players.len()).collect();
        if (part + u64::from(first)) % 2 == 1 {
            order.reverse();
        }
        for at in order {
            players[at].turn(|session| session.part(&mut open[at], part))?;
        }
    }
    for (player, open) in players.iter_mut().zip(open) {
        let cycle = player.turn(|session| session.end_cycle(open))?;
        player.cycles.push(cycle);
    }
    Ok(())
}

/// A server that stands still but for its turns.
struct Player {
    cluster: Cluster,
    session: Session,
    processes: ServerProcesses,
    /// The first record that counts.
    from: Lsn,
    cycles: Vec<PredictionTrialCycle>,
}

impl Player {
    /// Starts it and warms it up.
    fn begin(
        (workload, arm): (Workload, Arm),
        extent: Extent,
        templates: &Templates,
        guard: &mut Guard,
    ) -> anyhow::Result<Self> {
        let name = if arm == Arm::Hints { "run-hints" } else { &format!("run-{}", arm.name()) };
        let cluster = templates.template(arm).copy(guard, name)?;
        cluster.configure(guard, &all_settings(workload, arm))?;
        let subject = (workload, arm, Regime::Forced);
        let mut session = Session::begin(subject, extent, (&cluster, templates), guard)?;
        session.warm_up(extent.cycles)?;
        let from = session.begin_measuring()?;
        let processes = ServerProcesses::from_postmaster(session.postmaster)?;
        processes.suspend()?;
        Ok(Self { cluster, session, processes, from, cycles: Vec::new() })
    }

    fn turn<T>(
        &mut self,
        act: impl FnOnce(&mut Session) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.processes.resume()?;
        let done = act(&mut self.session)?;
        self.processes.suspend()?;
        Ok(done)
    }

    fn finish(self, repetition: u32, guard: &mut Guard) -> anyhow::Result<PredictionTrialRun> {
        let Self { cluster, mut session, processes, from, cycles } = self;
        processes.resume()?;
        let to = wal_end(&mut session.monitor)?;
        let mut finished = session.measured(repetition, (from, to), cycles)?;
        session.close();
        cluster.stop(guard, StopMode::Fast)?;
        read_wal(&cluster, from, to, &mut finished)?;
        cluster.remove(guard)?;
        Ok(finished)
    }
}

/// A checkpoint cycle that is not over.
struct OpenCycle {
    from: Lsn,
    before: Written,
    censuses: Vec<PredictionTrialCensus>,
}

/// A server at work.
pub(crate) struct Session {
    pub(crate) facts: &'static MajorFacts,
    workload: Workload,
    arm: Arm,
    regime: Regime,
    server: String,
    postmaster: i32,
    /// Each with the transactions of a client in a cycle.
    crowds: Vec<(Crowd, u64)>,
    parts: u64,
    pub(crate) monitor: Connection,
    pub(crate) cpu: ClusterCpu,
    /// Since the end of the warm-up.
    pub(crate) cpu_ns: u64,
    elapsed: Duration,
    transactions: u64,
    before: Option<ServerCounters>,
    /// What statements had dirtied then.
    dirtied_before: (u64, u64),
}

impl Session {
    pub(crate) fn begin(
        (workload, arm, regime): (Workload, Arm, Regime),
        extent: Extent,
        (cluster, templates): (&Cluster, &Templates),
        guard: &mut Guard,
    ) -> anyhow::Result<Self> {
        let version = &templates.version;
        let postmaster = cluster.start(guard)?;
        let monitor = cluster.connect(DATABASE)?;
        let crowd = |(number, group): (u64, work::ClientGroup)| {
            let connections = (0..group.clients).map(|_| cluster.connect(DATABASE));
            let connections = connections.collect::<Result<Vec<_>, _>>()?;
            let mut crowd = Crowd::new(connections, &group.mix, work::scale(workload))?;
            crowd.reseed(SEED + number);
            anyhow::Ok((crowd, group.transactions * u64::from(extent.seconds)))
        };
        let groups = (0..).zip(work::groups(workload, regime, extent.seconds)?);
        Ok(Self {
            facts: version.facts()?,
            workload,
            arm,
            regime,
            server: version.to_string(),
            postmaster,
            crowds: groups.map(crowd).collect::<anyhow::Result<_>>()?,
            parts: parts(regime),
            monitor,
            cpu: ClusterCpu::attach(postmaster)?,
            cpu_ns: 0,
            elapsed: Duration::ZERO,
            transactions: 0,
            before: None,
            dirtied_before: (0, 0),
        })
    }

    /// A cycle, and the segments that the next `cycles` need.
    fn warm_up(&mut self, cycles: u32) -> anyhow::Result<()> {
        let bytes = self.cycle()?.wal_bytes * u64::from(cycles);
        segments::make(&mut self.monitor, bytes)
    }

    /// Begins a segment and a checkpoint cycle; from here on everything counts.
    fn begin_measuring(&mut self) -> anyhow::Result<Lsn> {
        let from = self.begin_segment()?;
        self.monitor.execute("CHECKPOINT")?;
        self.monitor.execute("SELECT pg_stat_statements_reset()")?;
        self.begin_counting()?;
        Ok(from)
    }

    /// Where it begins.
    fn begin_segment(&mut self) -> anyhow::Result<Lsn> {
        self.monitor.execute("SELECT pg_switch_wal()")?;
        wal_end(&mut self.monitor)
    }

    /// From here on work, counters and what statements dirty count.
    pub(crate) fn begin_counting(&mut self) -> anyhow::Result<()> {
        self.publish()?;
        self.before = Some(ServerCounters::read(&mut self.monitor, self.facts, DATABASE)?);
        self.dirtied_before = statements_dirtied(&mut self.monitor)?;
        (self.cpu_ns, self.elapsed, self.transactions) = (0, Duration::ZERO, 0);
        Ok(())
    }

    /// A checkpoint cycle: the same work as every other one, then the checkpoint.
    fn cycle(&mut self) -> anyhow::Result<PredictionTrialCycle> {
        let mut open = self.begin_cycle()?;
        for part in 0..PARTS {
            self.part(&mut open, part)?;
        }
        self.end_cycle(open)
    }

    fn begin_cycle(&mut self) -> anyhow::Result<OpenCycle> {
        let from = wal_end(&mut self.monitor)?;
        let before = written(&mut self.monitor, self.facts)?;
        Ok(OpenCycle { from, before, censuses: Vec::new() })
    }

    /// A part of a cycle's work, and a look at what it left.
    fn part(&mut self, open: &mut OpenCycle, part: u64) -> anyhow::Result<()> {
        self.work(part)?;
        if self.arm == Arm::Watched {
            let sample = if part + 1 == PARTS { LAST_SAMPLE } else { SAMPLE };
            open.censuses.push(census(&mut self.monitor, sample)?);
        }
        Ok(())
    }

    fn end_cycle(&mut self, open: OpenCycle) -> anyhow::Result<PredictionTrialCycle> {
        let OpenCycle { from, before, censuses } = open;
        let cpu = self.cpu.sample()?;
        self.monitor.execute("CHECKPOINT")?;
        self.cpu_ns += self.cpu.sample()?.since(&cpu).nanoseconds;
        self.publish()?;
        let to = wal_end(&mut self.monitor)?;
        let Written { all, by_others_than_checkpoints } =
            written(&mut self.monitor, self.facts)?.since(before);
        Ok(PredictionTrialCycle {
            wal_bytes: to.bytes_since(from).unwrap_or(0),
            written: all,
            evicted: by_others_than_checkpoints,
            censuses,
        })
    }

    /// Checkpoints that have begun.
    pub(crate) fn checkpoints(&mut self) -> anyhow::Result<u64> {
        let sql = if self.facts.has_pg_stat_checkpointer {
            "SELECT num_timed + num_requested AS count FROM pg_stat_checkpointer"
        } else {
            "SELECT checkpoints_timed + checkpoints_req AS count FROM pg_stat_bgwriter"
        };
        Ok(self.monitor.query_one(sql)?.parse("count")?)
    }

    /// A part of a cycle: all groups at once, each to its end.
    pub(crate) fn work(&mut self, part: u64) -> anyhow::Result<()> {
        if let Some(statement) = work::before_part(self.workload) {
            self.monitor.execute(statement)?;
        }
        let cpu = self.cpu.sample()?;
        let began = std::time::Instant::now();
        let parts = self.parts;
        let of_part = |count: u64| match (part, count) {
            (0, 0) => 1,
            _ => count * (part + 1) / parts - count * part / parts,
        };
        let tallies = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .crowds
                .iter_mut()
                .map(|(crowd, count)| (crowd, of_part(*count)))
                .filter(|(_, count)| *count > 0)
                .map(|(crowd, count)| {
                    scope.spawn(move || crowd.run(Until::Transactions(count), None))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        })?;
        self.elapsed += began.elapsed();
        self.cpu_ns += self.cpu.sample()?.since(&cpu).nanoseconds;
        self.transactions += tallies.iter().map(|tally| tally.transactions).sum::<u64>();
        Ok(())
    }

    /// Lets every session publish its counters.
    pub(crate) fn publish(&mut self) -> anyhow::Result<()> {
        let Self { crowds, monitor, facts, .. } = self;
        let clients = crowds.iter_mut().flat_map(|(crowd, _)| crowd.connections());
        for connection in clients.chain([monitor]) {
            ServerCounters::publish(connection, facts)?;
        }
        Ok(())
    }

    /// What was counted since [`begin_counting`](Self::begin_counting).
    pub(crate) fn measured(
        &mut self,
        repetition: u32,
        (from, to): (Lsn, Lsn),
        cycles: Vec<PredictionTrialCycle>,
    ) -> anyhow::Result<PredictionTrialRun> {
        let (selects, statements) = statements_dirtied(&mut self.monitor)?;
        let before = self.before.context("measuring has not begun")?;
        let after = ServerCounters::read(&mut self.monitor, self.facts, DATABASE)?;
        Ok(PredictionTrialRun {
            server: self.server.clone(),
            workload: self.workload,
            arm: self.arm,
            regime: self.regime,
            repetition,
            transactions: self.transactions,
            elapsed_s: self.elapsed.as_secs_f64(),
            wal_bytes: to.bytes_since(from).unwrap_or(0),
            images: 0,
            hint_images: 0,
            hint_image_bytes: 0,
            blocks_read: after
                .blocks_read
                .unwrap_or(0)
                .saturating_sub(before.blocks_read.unwrap_or(0)),
            blocks_written: cycles.iter().map(|cycle| cycle.written).sum(),
            cpu_ns: self.cpu_ns,
            select_dirtied: selects.saturating_sub(self.dirtied_before.0),
            statement_dirtied: statements.saturating_sub(self.dirtied_before.1),
            without_hints_bytes: None,
            cycles,
        })
    }

    /// What the program answered, or why it did not.
    pub(crate) fn answer(
        &self,
        repetition: u32,
        rights: Rights,
        answered: anyhow::Result<ProgramAnswer>,
    ) -> PredictionTrialAnswer {
        let (answered, failure) = match answered {
            Ok(answered) => (answered, None),
            Err(error) => (ProgramAnswer::default(), Some(format!("{error:#}"))),
        };
        let ProgramAnswer { wal, basis, cpu, blind } = answered;
        PredictionTrialAnswer {
            server: self.server.clone(),
            workload: self.workload,
            arm: self.arm,
            regime: self.regime,
            repetition,
            rights,
            wal,
            basis,
            cpu,
            blind,
            failure,
        }
    }

    pub(crate) fn close(self) {
        self.crowds.into_iter().for_each(|(crowd, _)| crowd.close());
        self.monitor.close();
    }
}

const SEED: u64 = 20_261_123;

pub(crate) fn wal_end(connection: &mut Connection) -> anyhow::Result<Lsn> {
    // Its commit brings all before it to disk.
    connection.execute("SELECT pg_logical_emit_message(true, 'pgtoll', 'end')")?;
    let row = connection.query_one("SELECT pg_current_wal_flush_lsn() AS at")?;
    Ok(row.parse("at")?)
}

/// Counts the images, and lets the what-if leave out those for hints. WAL after `to`, where work
/// ended, says where redo points were.
pub(crate) fn read_wal(
    cluster: &Cluster,
    from: Lsn,
    to: Lsn,
    run: &mut PredictionTrialRun,
) -> anyhow::Result<()> {
    let files = pgtoll_wal::segments(&[cluster.data()])?;
    let (header, facts) = first_header(&files)?;
    let segment_bytes = u64::from(header.segment_bytes);
    // The last segment has little besides.
    let span = from.align_down(segment_bytes)..=to;
    let is_own = |file: &SegmentFile| span.contains(&file.name.begin(segment_bytes));
    let files: Vec<SegmentFile> = files.into_iter().filter(is_own).collect();
    let own = Settings {
        schedule: Schedule::Source,
        hints: logs_hints(run.arm),
        full_page_writes: true,
        compression: ImageCompression::AsStored,
    };
    let settings = vec![own, Settings { hints: false, ..own }];
    let question = Arc::new(Question {
        geometry: Geometry { segment_bytes, page_bytes: u64::from(header.page_bytes) },
        facts,
        compressing: Compressing::for_settings(&settings, false),
        settings,
        today: None,
    });
    let new = || (WalStatistics::default(), WhatIfCollector::new(question.clone()));
    let (summary, _) =
        scan_range_with(&files, &(from..Lsn::MAX), 2, new, &mut |_| ControlFlow::Continue(()))?;
    let (statistics, whatif) = summary.collected;
    for (cause, images) in statistics.causes() {
        run.images += images.images;
        if cause == ImageCause::Hint {
            (run.hint_images, run.hint_image_bytes) = (images.images, images.bytes);
        }
    }
    if logs_hints(run.arm) {
        let answer = whatif.finish();
        // What was written after the run is the same with and without hints.
        let saved = answer.outcomes[0].bytes.saturating_sub(answer.outcomes[1].bytes);
        run.without_hints_bytes = Some(run.wal_bytes.saturating_sub(saved));
    }
    Ok(())
}

fn logs_hints(arm: Arm) -> bool {
    matches!(arm, Arm::Hints | Arm::On)
}
