//! One trial of an arm: a fresh copy with its server and sessions, and what steps do to it.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, ClusterError, Guard, MemoryGroup, StopMode};
use pgtoll_format::{ControlFile, Lsn};
use pgtoll_observe::{ClusterCpu, ClusterIo, CpuSample, IoSample, own_cpu_ns};
use pgtoll_record::{Counters, Latencies, MemoryUse, StepReading};
use pgtoll_wire::Connection;
use pgtoll_workload::{Crowd, Tally, Until};

use crate::course;
use crate::experiment::{StepKind, substituted};
use crate::names::{DATABASE, OPERATION};
use crate::programs::Programs;
use crate::readings::{io_bytes, memory_use};
use crate::sessions::Sessions;
use crate::{ArmSpec, BenchError, StepSpec, WorkloadSpec};

/// A copy of an arm with its running server.
pub(crate) struct ArmTrial<'a> {
    pub(crate) programs: Programs<'a>,
    memory: Option<MemoryGroup>,
    pub(crate) sessions: Sessions,
}

/// The outcome of a step without counters.
pub(crate) struct StepOutcome {
    pub(crate) elapsed: Duration,
    /// Outside of the server.
    pub(crate) client_cpu_ns: Option<u64>,
    pub(crate) tally: Option<Tally>,
    pub(crate) latencies: Option<Latencies>,
    pub(crate) course: Vec<StepReading>,
}

impl StepOutcome {
    /// Makes the outcome of a step without a client of pgtoll's.
    pub(crate) fn in_server(elapsed: Duration) -> Self {
        Self { elapsed, client_cpu_ns: None, tally: None, latencies: None, course: Vec::new() }
    }
}

/// The time of a recovery.
pub(crate) struct Recovery {
    pub(crate) elapsed: Duration,
    pub(crate) server_cpu_ns: u64,
    pub(crate) counters: Counters,
}

/// A session that ended writes nothing and waits for nobody.
pub(crate) const SESSIONS_GONE: Duration = Duration::from_secs(10);

impl<'a> ArmTrial<'a> {
    /// Copies the arm's cluster and starts the copy. Under a limit of memory nothing of it is in memory.
    pub(crate) fn begin(
        arm: &'a ArmSpec,
        cluster: &Cluster,
        workload: &WorkloadSpec,
        pgtoll: &'a Path,
        guard: &mut Guard,
    ) -> Result<Self, BenchError> {
        let cluster = cluster.copy(guard, &format!("{OPERATION}-{}", arm.name))?;
        let memory = match workload.memory {
            Some(limit) => {
                // The page cache counts for whom it was who read first.
                cluster.evict()?;
                Some(MemoryGroup::create(cluster.name(), limit.0)?)
            }
            None => None,
        };
        let postmaster = start(&cluster, memory.as_ref(), guard)?;
        let sessions = Sessions::begin(&cluster, postmaster)?;
        Ok(Self { programs: Programs { arm, cluster, pgtoll }, memory, sessions })
    }

    pub(crate) fn arm(&self) -> &'a ArmSpec {
        self.programs.arm
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.programs.cluster
    }

    /// Stops and starts the server, so that its shared buffers are empty, and, if wanted, its part of
    /// the page cache.
    pub(crate) fn restart(self, evicts: bool, guard: &mut Guard) -> Result<Self, BenchError> {
        let Self { programs, memory, sessions } = self;
        let cluster = &programs.cluster;
        sessions.close();
        cluster.stop(guard, StopMode::Fast)?;
        if evicts {
            cluster.evict()?;
        }
        let postmaster = start(cluster, memory.as_ref(), guard)?;
        let sessions = Sessions::begin(cluster, postmaster)?;
        Ok(Self { programs, memory, sessions })
    }

    /// Kills the server and lets it recover.
    pub(crate) fn crash(self, guard: &mut Guard) -> Result<(Self, Recovery), BenchError> {
        let Self { programs, memory, sessions } = self;
        let cluster = &programs.cluster;
        cluster.kill(guard)?;
        drop(sessions);
        let redo = redo_in_control_file(cluster)?;
        let began = Instant::now();
        let postmaster = start(cluster, memory.as_ref(), guard)?;
        let elapsed = began.elapsed();
        // Everything since its start was for the recovery.
        let server_cpu_ns = ClusterCpu::attach(postmaster)?.sample()?.total_ns();
        let io = ClusterIo::attach(postmaster)?.sample()?;
        let mut sessions = Sessions::begin(cluster, postmaster)?;
        let end = end_of_recovery(cluster, &mut sessions.monitor)?;
        let counters = Counters {
            wal_bytes: end.bytes_since(redo).unwrap_or(0),
            io: io_bytes(Some(IoSample::default()), io),
            ..Counters::default()
        };
        let trial = Self { programs, memory, sessions };
        Ok((trial, Recovery { elapsed, server_cpu_ns, counters }))
    }

    /// The clients of a script step, connected; of other steps there are none.
    pub(crate) fn crowd(
        &self,
        step: &StepSpec,
        scale: u32,
        seed: u64,
    ) -> Result<Option<Crowd>, BenchError> {
        let StepKind::Script(mix) = step.kind() else { return Ok(None) };
        let connections: Result<Vec<Connection>, ClusterError> =
            (0..step.clients()).map(|_| self.cluster().connect(DATABASE)).collect();
        let crowd = Crowd::new(connections?, mix, step.scale.unwrap_or(scale));
        let mut crowd = crowd.map_err(|source| BenchError::load(self.cluster(), source))?;
        crowd.reseed(seed);
        Ok(Some(crowd))
    }

    /// Does a step that leaves the server running. What runs beside it still does afterwards.
    pub(crate) fn act(
        &mut self,
        step: &StepSpec,
        crowd: Option<&mut Crowd>,
        guard: &mut Guard,
    ) -> Result<StepOutcome, BenchError> {
        let began = Instant::now();
        let client_cpu_ns = match step.kind() {
            StepKind::Sql(text) => {
                let done = self.sessions.worker.execute(&substituted(text, &self.arm().values));
                done.map_err(|source| BenchError::query(self.cluster(), source))?;
                None
            }
            StepKind::Pgbench(letters) => {
                self.programs.initialise(letters, step.pgbench_scale(), guard)?;
                None
            }
            StepKind::Program(text) => Some(self.programs.run(text, guard)?),
            StepKind::Script(_) => {
                return match crowd {
                    Some(crowd) => self.work(step, crowd, guard),
                    None => Ok(StepOutcome::in_server(Duration::ZERO)),
                };
            }
            StepKind::Restart | StepKind::Evict | StepKind::Crash => None,
        };
        Ok(StepOutcome { client_cpu_ns, ..StepOutcome::in_server(began.elapsed()) })
    }

    /// CPU time after a step. Sessions of programs are in the postmaster's account when they are gone.
    pub(crate) fn cpu_after(
        &mut self,
        step: &StepSpec,
        before: &CpuSample,
    ) -> Result<CpuSample, BenchError> {
        if matches!(step.kind(), StepKind::Pgbench(_) | StepKind::Program(_)) {
            self.wait_for_sessions(before)?;
        }
        Ok(self.sessions.cpu.sample()?)
    }

    /// Waits until the sessions that began since are gone: then they have published their counters.
    pub(crate) fn wait_for_sessions(&self, since: &CpuSample) -> Result<(), BenchError> {
        self.sessions.cpu.wait_until_back(since, SESSIONS_GONE)?;
        Ok(())
    }

    /// All clients at the same time, and what runs beside them.
    fn work(
        &mut self,
        step: &StepSpec,
        crowd: &mut Crowd,
        guard: &mut Guard,
    ) -> Result<StepOutcome, BenchError> {
        if let Some(text) = self.beside(step) {
            self.programs.start_beside(&text, guard)?;
        }
        let until = match (step.time, step.transactions) {
            (Some(time), _) => Until::Time(time.0),
            (None, count) => Until::Transactions(count.unwrap_or(1)),
        };
        crowd.take_latencies();
        let own_before = own_cpu_ns()?;
        let (tally, course) = if step.time.is_some() && step.measure.is_some() {
            self.followed(|| crowd.run(until, step.rate))
        } else {
            (crowd.run(until, step.rate), Ok(Vec::new()))
        };
        let tally = tally.map_err(|source| BenchError::load(self.cluster(), source))?;
        check_rate(step, &tally)?;
        Ok(StepOutcome {
            elapsed: tally.elapsed,
            client_cpu_ns: Some(own_cpu_ns()?.saturating_sub(own_before)),
            tally: Some(tally),
            latencies: Some(crowd.take_latencies()),
            course: course?,
        })
    }

    /// Works, and looks at the server meanwhile.
    fn followed<T>(
        &mut self,
        work: impl FnOnce() -> T,
    ) -> (T, Result<Vec<StepReading>, BenchError>) {
        let cluster = &self.programs.cluster;
        let sessions = &mut self.sessions;
        thread::scope(|scope| {
            let began = Instant::now();
            let (end, ended) = mpsc::channel();
            let follower = scope.spawn(move || course::follow(cluster, sessions, began, &ended));
            let done = work();
            drop(end);
            let course = follower.join();
            (done, course.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Returns the load beside the step in this arm.
    fn beside(&self, step: &StepSpec) -> Option<String> {
        let text = step.beside.as_deref().map(|text| substituted(text, &self.arm().values));
        text.filter(|text| !text.trim().is_empty())
    }

    /// Ends what runs beside a step. Its CPU time in ns, and what went wrong with it.
    pub(crate) fn end_beside(
        &mut self,
        step: &StepSpec,
        guard: &mut Guard,
    ) -> Result<Option<(u64, Option<String>)>, BenchError> {
        let Some(text) = self.beside(step) else { return Ok(None) };
        self.programs.end_beside(&text, guard).map(Some)
    }

    /// Pages of a table; 0 when it is not there yet.
    pub(crate) fn pages(&mut self, table: &str) -> Result<u64, BenchError> {
        let sql = format!(
            "SELECT coalesce(pg_relation_size(to_regclass('{}')), 0) \
             / current_setting('block_size')::bigint AS pages",
            table.replace('\'', "''")
        );
        let row = self.sessions.monitor.query_one(&sql).and_then(|row| row.parse("pages"));
        row.map_err(|source| BenchError::query(self.cluster(), source))
    }

    /// Returns the memory that the server used of its limit.
    pub(crate) fn memory_use(&self) -> Result<Option<MemoryUse>, BenchError> {
        memory_use(self.memory.as_ref())
    }

    /// Ends the server and removes the copy.
    pub(crate) fn end(self, guard: &mut Guard) -> Result<(), BenchError> {
        self.sessions.close();
        self.programs.cluster.stop(guard, StopMode::Immediate)?;
        self.programs.cluster.remove(guard)?;
        Ok(())
    }
}

fn start(
    cluster: &Cluster,
    memory: Option<&MemoryGroup>,
    guard: &mut Guard,
) -> Result<i32, ClusterError> {
    match memory {
        Some(group) => cluster.start_within(guard, group),
        None => cluster.start(guard),
    }
}

/// The start of recovery will.
fn redo_in_control_file(cluster: &Cluster) -> Result<Lsn, BenchError> {
    let path = cluster.data().join("global/pg_control");
    let read = |source| BenchError::Read { path: path.clone(), source };
    let control = ControlFile::read(&fs::read(&path).map_err(read)?);
    let control = control.map_err(|error| read(std::io::Error::other(error)))?;
    Ok(control.last_checkpoint.redo)
}

/// The checkpoint that ends a recovery stands right behind the WAL that was replayed.
fn end_of_recovery(cluster: &Cluster, monitor: &mut Connection) -> Result<Lsn, BenchError> {
    let row = monitor.query_one("SELECT redo_lsn FROM pg_control_checkpoint()");
    let lsn = row.and_then(|row| row.parse("redo_lsn"));
    lsn.map_err(|source| BenchError::query(cluster, source))
}

/// Clients that come faster than the server works them off pile up without end.
#[expect(clippy::cast_precision_loss, reason = "a step's transactions are far below 2^53")]
fn check_rate(step: &StepSpec, tally: &Tally) -> Result<(), BenchError> {
    let Some(requested) = step.rate else { return Ok(()) };
    let achieved = tally.transactions as f64 / tally.elapsed.as_secs_f64();
    // A Poisson process of few transactions may be far from its rate.
    let is_far = achieved < requested / 3.0 && tally.transactions > 100;
    if is_far { Err(BenchError::RateTooHigh { asked: requested, achieved }) } else { Ok(()) }
}
