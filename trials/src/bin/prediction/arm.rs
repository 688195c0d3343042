//! A run: a workload on a fresh copy of a data directory, from its warm-up to its last checkpoint.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::{Lsn, MajorFacts, ServerVersion};
use pgtoll_load::{Crowd, Until};
use pgtoll_model::{Geometry, ImageCompression, Schedule, Settings};
use pgtoll_observe::{ClusterCpu, ServerCounters};
use pgtoll_record::ImageCause;
use pgtoll_record::trials::{
    PredictionTrialAnswer, PredictionTrialArm as Arm, PredictionTrialCycle, PredictionTrialRun,
    PredictionTrialWorkload as Workload,
};
use pgtoll_trials::settings;
use pgtoll_wal::{
    Compressing, Question, SegmentFile, WalStatistics, WhatIfCollector, first_header, scan_with,
    segments,
};
use pgtoll_wire::Connection;

use crate::census::{Written, census, statements_dirtied, written};
use crate::estimate::float;
use crate::program::{Program, ProgramAnswer};
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

    fn of(&self, arm: Arm) -> &Cluster {
        if arm == Arm::On { &self.on } else { &self.off }
    }
}

fn all_settings(workload: Workload, arm: Arm) -> BTreeMap<String, String> {
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
/// Pages that a census looks at.
const SAMPLE: u32 = 400;
/// The same, just before a checkpoint writes all of them anyway.
const LAST_SAMPLE: u32 = 4000;

/// Checkpoints as production servers have them, by time and spread over it: the shortest time that
/// there is. The work of a cycle begins with a checkpoint and takes most of this time.
const SPREAD: [(&str, &str); 2] =
    [("checkpoint_timeout", "30s"), ("checkpoint_completion_target", "0.9")];
const SPREAD_WORK: Duration = Duration::from_secs(26);
/// Cycles after which the program has seen two, of which it looks at each from one end of a checkpoint
/// to the next.
const ANSWERED_AFTER: u32 = 6;

/// Does the work on a copy while `pgtoll predict` watches it, and removes it.
pub(crate) fn answer(
    workload: Workload,
    arm: Arm,
    repetition: u32,
    extent: Extent,
    templates: &Templates,
    guard: &mut Guard,
) -> anyhow::Result<PredictionTrialAnswer> {
    let cluster = templates.of(arm).copy(guard, "run")?;
    let mut all = all_settings(workload, arm);
    all.extend(settings(SPREAD));
    cluster.configure(guard, &all)?;
    let server = (&cluster, templates.version.clone());
    let mut session = Session::begin(workload, arm, extent, server, guard)?;
    session.spread_cycle()?;
    let mut program = Program::begin(&cluster)?;
    for _ in 0..ANSWERED_AFTER {
        if program.has_ended()? {
            break;
        }
        session.spread_cycle()?;
    }
    let ProgramAnswer { wal, basis, cpu } = program.finish()?;
    let server = session.server.clone();
    session.close();
    cluster.stop(guard, StopMode::Immediate)?;
    cluster.remove(guard)?;
    Ok(PredictionTrialAnswer { server, workload, arm, repetition, wal, basis, cpu })
}

/// Does the work on a copy, and removes it.
pub(crate) fn run(
    workload: Workload,
    arm: Arm,
    repetition: u32,
    extent: Extent,
    templates: &Templates,
    guard: &mut Guard,
) -> anyhow::Result<PredictionTrialRun> {
    let cluster = templates.of(arm).copy(guard, "run")?;
    cluster.configure(guard, &all_settings(workload, arm))?;
    let mut session =
        Session::begin(workload, arm, extent, (&cluster, templates.version.clone()), guard)?;
    session.cycle()?;
    let from = session.begin_measuring()?;
    let cycles: Vec<PredictionTrialCycle> =
        (0..extent.cycles).map(|_| session.cycle()).collect::<anyhow::Result<_>>()?;
    let to = wal_end(&mut session.monitor)?;
    let mut finished = session.finish(repetition, from, to, cycles)?;
    cluster.stop(guard, StopMode::Fast)?;
    read_wal(&cluster, from, to, &mut finished)?;
    cluster.remove(guard)?;
    Ok(finished)
}

/// A server at work.
pub(crate) struct Session {
    facts: &'static MajorFacts,
    workload: Workload,
    arm: Arm,
    server: String,
    crowds: Vec<(Crowd, u64)>,
    pub(crate) monitor: Connection,
    cpu: ClusterCpu,
    /// Since the end of the warm-up.
    cpu_ns: u64,
    elapsed: Duration,
    transactions: u64,
    before: Option<ServerCounters>,
}

impl Session {
    pub(crate) fn begin(
        workload: Workload,
        arm: Arm,
        extent: Extent,
        (cluster, version): (&Cluster, ServerVersion),
        guard: &mut Guard,
    ) -> anyhow::Result<Self> {
        let postmaster = cluster.start(guard)?;
        let monitor = cluster.connect(DATABASE)?;
        let crowd = |(number, group): (u64, work::ClientGroup)| {
            let connections = (0..group.clients).map(|_| cluster.connect(DATABASE));
            let connections = connections.collect::<Result<Vec<_>, _>>()?;
            let mut crowd = Crowd::new(connections, &group.mix, work::scale(workload))?;
            crowd.reseed(SEED + number);
            let transactions = group.transactions * u64::from(extent.seconds) / PARTS;
            anyhow::Ok((crowd, transactions))
        };
        let groups = (0..).zip(work::groups(workload)?);
        Ok(Self {
            facts: version.facts()?,
            workload,
            arm,
            server: version.to_string(),
            crowds: groups.map(crowd).collect::<anyhow::Result<_>>()?,
            monitor,
            cpu: ClusterCpu::attach(postmaster)?,
            cpu_ns: 0,
            elapsed: Duration::ZERO,
            transactions: 0,
            before: None,
        })
    }

    /// Begins a segment and a checkpoint cycle; from here on everything counts.
    fn begin_measuring(&mut self) -> anyhow::Result<Lsn> {
        self.monitor.execute("SELECT pg_switch_wal()")?;
        let from = wal_end(&mut self.monitor)?;
        self.monitor.execute("CHECKPOINT")?;
        self.monitor.execute("SELECT pg_stat_statements_reset()")?;
        self.publish()?;
        self.before = Some(ServerCounters::read(&mut self.monitor, self.facts, DATABASE)?);
        (self.cpu_ns, self.elapsed, self.transactions) = (0, Duration::ZERO, 0);
        Ok(from)
    }

    /// A checkpoint cycle: the same work as every other one, then the checkpoint.
    pub(crate) fn cycle(&mut self) -> anyhow::Result<PredictionTrialCycle> {
        let from = wal_end(&mut self.monitor)?;
        let before = written(&mut self.monitor, self.facts)?;
        let mut censuses = Vec::new();
        for part in 0..PARTS {
            self.work(part == 0)?;
            if self.arm == Arm::Watched {
                let sample = if part + 1 == PARTS { LAST_SAMPLE } else { SAMPLE };
                censuses.push(census(&mut self.monitor, sample)?);
            }
        }
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

    /// The work of a cycle, spread over the time between two checkpoints that come by themselves.
    fn spread_cycle(&mut self) -> anyhow::Result<()> {
        let before = self.checkpoints()?;
        while self.checkpoints()? == before {
            self.monitor.execute("SELECT pg_sleep(0.1)")?;
        }
        let began = std::time::Instant::now();
        for part in 1..=PARTS {
            self.work(part == 1)?;
            let due = SPREAD_WORK.as_secs_f64() * float(part) / float(PARTS);
            let left = (due - began.elapsed().as_secs_f64()).max(0.0);
            self.monitor.execute(&format!("SELECT pg_sleep({left})"))?;
        }
        Ok(())
    }

    /// Checkpoints that have begun.
    fn checkpoints(&mut self) -> anyhow::Result<u64> {
        let sql = if self.facts.has_pg_stat_checkpointer {
            "SELECT num_timed + num_requested AS count FROM pg_stat_checkpointer"
        } else {
            "SELECT checkpoints_timed + checkpoints_req AS count FROM pg_stat_bgwriter"
        };
        Ok(self.monitor.query_one(sql)?.parse("count")?)
    }

    /// A part of a cycle: all groups at once, each to its end.
    fn work(&mut self, is_first: bool) -> anyhow::Result<()> {
        if let Some(statement) = work::before_part(self.workload) {
            self.monitor.execute(statement)?;
        }
        let cpu = self.cpu.sample()?;
        let began = std::time::Instant::now();
        let tallies = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .crowds
                .iter_mut()
                .map(|(crowd, count)| (crowd, if is_first { (*count).max(1) } else { *count }))
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
    fn publish(&mut self) -> anyhow::Result<()> {
        let Self { crowds, monitor, facts, .. } = self;
        let clients = crowds.iter_mut().flat_map(|(crowd, _)| crowd.connections());
        for connection in clients.chain([monitor]) {
            ServerCounters::publish(connection, facts)?;
        }
        Ok(())
    }

    fn finish(
        mut self,
        repetition: u32,
        from: Lsn,
        to: Lsn,
        cycles: Vec<PredictionTrialCycle>,
    ) -> anyhow::Result<PredictionTrialRun> {
        let (select_dirtied, statement_dirtied) = statements_dirtied(&mut self.monitor)?;
        let before = self.before.context("measuring has not begun")?;
        let after = ServerCounters::read(&mut self.monitor, self.facts, DATABASE)?;
        let server = self.server.clone();
        let finished = PredictionTrialRun {
            server,
            workload: self.workload,
            arm: self.arm,
            repetition,
            transactions: self.transactions,
            elapsed_s: self.elapsed.as_secs_f64(),
            wal_bytes: to.bytes_since(from).unwrap_or(0),
            images: 0,
            hint_images: 0,
            hint_image_bytes: 0,
            blocks_read: after.blocks_read.saturating_sub(before.blocks_read),
            blocks_written: cycles.iter().map(|cycle| cycle.written).sum(),
            cpu_ns: self.cpu_ns,
            select_dirtied,
            statement_dirtied,
            without_hints_bytes: None,
            cycles,
        };
        self.close();
        Ok(finished)
    }

    fn close(self) {
        self.crowds.into_iter().for_each(|(crowd, _)| crowd.close());
        self.monitor.close();
    }
}

const SEED: u64 = 20_261_123;

fn wal_end(connection: &mut Connection) -> anyhow::Result<Lsn> {
    // Its commit brings all before it to disk.
    connection.execute("SELECT pg_logical_emit_message(true, 'pgtoll', 'end')")?;
    let row = connection.query_one("SELECT pg_current_wal_flush_lsn() AS at")?;
    Ok(row.parse("at")?)
}

/// Counts the images, and lets the what-if leave out those for hints.
fn read_wal(
    cluster: &Cluster,
    from: Lsn,
    to: Lsn,
    run: &mut PredictionTrialRun,
) -> anyhow::Result<()> {
    let files = segments(&[cluster.data()])?;
    let (header, facts) = first_header(&files)?;
    let segment_bytes = u64::from(header.segment_bytes);
    // It begins with a segment of its own; the last one has little besides.
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
    let (summary, _) = scan_with(&files, 2, new, &mut |_| ControlFlow::Continue(()))?;
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
