//! The same work on a server without checksums and on one with them, at the same time. Checkpoints
//! come by time and are spread over it, as on production servers, and `pgtoll predict` watches each
//! of them: what it predicts of one server is what the other one pays.
//!
//! Both at once, since work that is spread over the time between checkpoints leaves most of that
//! time idle.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_format::Lsn;
use pgtoll_observe::CpuSample;
use pgtoll_record::trials::{
    PredictionTrialAnswer as Answer, PredictionTrialArm as Arm, PredictionTrialCycle as Cycle,
    PredictionTrialRegime as Regime, PredictionTrialRights as Rights, PredictionTrialRun as Run,
    PredictionTrialWorkload as Workload,
};
use pgtoll_system::Interrupt;
use pgtoll_trials::settings;

use crate::arm::{Extent, Session, Templates, all_settings, parts, read_wal, wal_end};
use crate::census::written;
use crate::program::Program;
use crate::segments;

/// The shortest time between checkpoints that there is.
const TIMED: [(&str, &str); 2] =
    [("checkpoint_timeout", "30s"), ("checkpoint_completion_target", "0.9")];
/// The work of a cycle begins with a checkpoint and is spread over most of the time to the next one.
const WORK_TIME: Duration = Duration::from_secs(26);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a checkpoint may take that was to be spread over 27 s.
const LONGEST_CHECKPOINT: Duration = Duration::from_secs(120);

/// What a pair is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairPlan {
    pub(crate) workload: Workload,
    pub(crate) repetition: u32,
    pub(crate) extent: Extent,
    /// Let the program watch.
    pub(crate) predict: bool,
}

/// What came of one server.
pub(crate) struct Outcome {
    pub(crate) run: Run,
    pub(crate) answer: Option<Answer>,
}

/// Runs both on copies, and removes them.
pub(crate) fn run(
    plan: PairPlan,
    templates: &Templates,
    guard: &mut Guard,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Outcome>> {
    let mut servers = Vec::new();
    for (arm, name) in [(Arm::Off, "run"), (Arm::On, "run-on")] {
        let cluster = templates.template(arm).copy(guard, name)?;
        let mut all = all_settings(plan.workload, arm);
        all.extend(settings(TIMED));
        cluster.configure(guard, &all)?;
        let subject = (plan.workload, arm, Regime::Timed);
        let session = Session::begin(subject, plan.extent, (&cluster, templates), guard)?;
        servers.push((cluster, session));
    }
    let watched = thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter_mut()
            .map(|(cluster, session)| {
                scope.spawn(move || TimedRun { session, plan, interrupt }.run(cluster))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<(Outcome, Span)>>>()
    })?;
    let mut outcomes = Vec::new();
    for ((cluster, session), (mut outcome, span)) in servers.into_iter().zip(watched) {
        session.close();
        cluster.stop(guard, StopMode::Fast)?;
        read_wal(&cluster, span.from, span.known_to, &mut outcome.run)?;
        cluster.remove(guard)?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// WAL of the work that counts, from its first record to where its last redo point is known.
#[derive(Clone, Copy)]
struct Span {
    from: Lsn,
    known_to: Lsn,
}

/// CPU of a server, and of the sessions that watch it.
struct CpuLook {
    all: CpuSample,
    watchers_ns: u64,
}

/// A server at work.
struct TimedRun<'a> {
    session: &'a mut Session,
    plan: PairPlan,
    interrupt: &'a Interrupt,
}

impl TimedRun<'_> {
    fn run(mut self, cluster: &Cluster) -> anyhow::Result<(Outcome, Span)> {
        self.warm_up()?;
        let mut begun = self.checkpoint_now()?;
        self.session.monitor.execute("SELECT pg_stat_statements_reset()")?;
        // A cycle that begins with pages that were all written at once is unlike those that follow. The
        // program reads WAL from the last redo point on, so it begins in the cycle after the next.
        self.cycle_work()?;
        let spread_begin = wal_end(&mut self.session.monitor)?;
        begun = self.next_checkpoint(begun)?;
        self.cycle_work()?;
        self.await_completion(spread_begin)?;
        let program = self
            .plan
            .predict
            .then(|| Program::begin(cluster, self.plan.extent.cycles, Rights::Superuser));
        let mut program = program.transpose()?;
        // No new segment: the rest of this one would be WAL of the first cycle that the program reads.
        let from = wal_end(&mut self.session.monitor)?;
        self.session.begin_counting()?;
        let cpu = self.cpu()?;
        let mut cycles = Vec::new();
        // One more than the program is to see: it sees the first one's end, not its begin.
        let mut last_begin = from;
        for _ in 0..=self.plan.extent.cycles {
            last_begin = wal_end(&mut self.session.monitor)?;
            begun = self.next_checkpoint(begun)?;
            cycles.push(self.cycle()?);
        }
        let to = wal_end(&mut self.session.monitor)?;
        let used = self.cpu()?;
        let watchers_ns = used.watchers_ns.saturating_sub(cpu.watchers_ns);
        self.session.cpu_ns = used.all.since(&cpu.all).nanoseconds.saturating_sub(watchers_ns);
        let PairPlan { repetition, extent, .. } = self.plan;
        let run = self.session.measured(repetition, (from, to), cycles)?;
        self.await_completion(last_begin)?;
        let known_to = wal_end(&mut self.session.monitor)?;
        let answer = match &mut program {
            None => None,
            Some(watching) => {
                // It may have missed the begin of a checkpoint.
                for _ in 0..=extent.cycles {
                    begun = self.await_program(watching, begun)?;
                }
                // A signal ends the program, too.
                self.interrupt.check()?;
                program.map(|program| {
                    self.session.answer(repetition, Rights::Superuser, program.finish())
                })
            }
        };
        Ok((Outcome { run, answer }, Span { from, known_to }))
    }

    /// A cycle's work, and segments for all that follow: two before the program begins, one before it
    /// counts, and as many as it may miss.
    fn warm_up(&mut self) -> anyhow::Result<()> {
        let from = wal_end(&mut self.session.monitor)?;
        for part in 0..parts(Regime::Timed) {
            self.interrupt.check()?;
            self.session.work(part)?;
        }
        let bytes = wal_end(&mut self.session.monitor)?.bytes_since(from).unwrap_or(0);
        let cycles = 2 * self.plan.extent.cycles + 4;
        segments::make(&mut self.session.monitor, bytes * u64::from(cycles))
    }

    /// The work of a cycle, which has just begun.
    fn cycle(&mut self) -> anyhow::Result<Cycle> {
        let Session { monitor, facts, .. } = &mut *self.session;
        let from = wal_end(monitor)?;
        let before = written(monitor, facts)?;
        self.cycle_work()?;
        self.session.publish()?;
        let Session { monitor, facts, .. } = &mut *self.session;
        let written = written(monitor, facts)?.since(before);
        Ok(Cycle {
            wal_bytes: wal_end(monitor)?.bytes_since(from).unwrap_or(0),
            written: written.all,
            evicted: written.by_others_than_checkpoints,
            censuses: Vec::new(),
        })
    }

    /// Work in equal parts, at equal distances.
    fn cycle_work(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        let parts = u32::try_from(parts(Regime::Timed))?;
        for part in 0..parts {
            self.session.work(part.into())?;
            let due = WORK_TIME * (part + 1) / parts;
            self.interrupt.wait(due.saturating_sub(began.elapsed()))?;
        }
        Ok(())
    }

    /// Begins a checkpoint cycle at once. How many checkpoints have begun then.
    fn checkpoint_now(&mut self) -> anyhow::Result<u64> {
        let before = self.session.checkpoints()?;
        self.session.monitor.execute("CHECKPOINT")?;
        // It is counted a moment later.
        self.await_begin(before)?;
        Ok(before + 1)
    }

    /// Waits for the checkpoint after `begun` of them, which has not begun yet.
    fn next_checkpoint(&mut self, begun: u64) -> anyhow::Result<u64> {
        if self.session.checkpoints()? > begun {
            bail!(
                "the work of a checkpoint cycle takes longer than {} s here: ask for less \
                 (--seconds)",
                WORK_TIME.as_secs()
            );
        }
        self.await_begin(begun)?;
        Ok(begun + 1)
    }

    fn await_begin(&mut self, begun: u64) -> anyhow::Result<()> {
        while self.session.checkpoints()? <= begun {
            self.pause()?;
        }
        Ok(())
    }

    /// Writes a record meanwhile. A checkpoint that comes by time is counted, but skipped, where WAL has
    /// nothing after the checkpoint before: the work may be over when that one completes.
    fn pause(&mut self) -> anyhow::Result<()> {
        let record = "SELECT pg_logical_emit_message(false, 'pgtoll', 'busy')";
        self.session.monitor.execute(record)?;
        self.interrupt.wait(PAUSE)?;
        Ok(())
    }

    /// Until the last checkpoint that began has completed: its redo point is not before `begin`.
    fn await_completion(&mut self, begin: Lsn) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let row =
                self.session.monitor.query_one("SELECT redo_lsn FROM pg_control_checkpoint()")?;
            if row.parse::<Lsn>("redo_lsn")? >= begin {
                return Ok(());
            }
            if began.elapsed() > LONGEST_CHECKPOINT {
                bail!("a checkpoint does not complete");
            }
            self.interrupt.wait(PAUSE)?;
        }
    }

    /// Until the program has ended, or through another cycle. How many checkpoints have begun then.
    fn await_program(&mut self, program: &mut Program, begun: u64) -> anyhow::Result<u64> {
        while self.session.checkpoints()? <= begun {
            if program.has_ended()? {
                return Ok(begun);
            }
            self.pause()?;
        }
        if !program.has_ended()? {
            self.cycle_work()?;
        }
        Ok(begun + 1)
    }

    fn cpu(&mut self) -> anyhow::Result<CpuLook> {
        let watchers_ns = self.watchers_ns()?;
        Ok(CpuLook { all: self.session.cpu.sample()?, watchers_ns })
    }

    /// Of the processes that serve the program: its session, and the one that sends it WAL.
    fn watchers_ns(&mut self) -> anyhow::Result<u64> {
        let rows = self.session.monitor.query(
            "SELECT pid FROM pg_stat_activity \
             WHERE application_name = 'pgtoll predict' OR backend_type = 'walsender'",
        )?;
        let mut sum = 0;
        for row in rows {
            let pid: i32 = row.parse("pid")?;
            // It may have ended; the first figure is the time on a CPU.
            let found = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            sum += found.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }
}
