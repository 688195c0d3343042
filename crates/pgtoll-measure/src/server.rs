//! A running arm: its server, what makes its load, and what is read from it.

use std::io::Read;
use std::time::{Duration, Instant};

use pgtoll_cluster::{Cluster, ClusterError, Guard, MemoryGroup, ProgramSignal, StopMode, Usage};
use pgtoll_format::{MajorFacts, single_quoted};
use pgtoll_observe::{ClusterCpu, ClusterIo, IoSample, ServerCounters};
use pgtoll_record::{ArmRound, CounterReading, Latencies};
use pgtoll_wire::Connection;
use pgtoll_workload::{Crowd, Tally, Until};

use crate::names::{DATABASE, SHELL};
use crate::readings::{io_bytes, memory_use, wal_insert};
use crate::run::Run;
use crate::units::nanoseconds;
use crate::{BenchError, WorkloadSpec};

/// A running server with its load.
pub(crate) struct Server<'a> {
    pub(crate) cluster: &'a Cluster,
    /// For everything but the load, so that the load's session does nothing else.
    pub(crate) monitor: Connection,
    pub(crate) load: Load,
    pub(crate) cpu: ClusterCpu,
    io: ClusterIo,
    memory: Option<MemoryGroup>,
    pub(crate) transactions: u64,
    /// How long the load ran.
    worked: Duration,
    /// CPU time of the load's programs that have ended, in ns.
    programs_cpu_ns: u64,
    before: Counts,
}

/// Counters at a round's beginning or end.
struct Counts {
    counters: ServerCounters,
    /// Transactions of the database's sessions.
    finished: u64,
    io: Option<IoSample>,
}

/// The source of the load.
pub(crate) enum Load {
    /// Sessions of our own.
    Clients { crowd: Crowd, rate: Option<f64> },
    /// A program, which is stopped between its slices.
    Program { command: String, runs: bool },
    /// Nothing any more.
    Ended,
}

/// How long an arm works.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Time(Duration),
    Transactions(u64),
}

/// The database of our own sessions while a program makes the load: what they do must not be among
/// its transactions.
const APART: &str = "template1";
/// Between two looks at whether a stopped program's sessions have come to rest.
const REST: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// Statements that run longer than this after their program was stopped are taken for a program
/// that was not stopped.
const LONGEST_STATEMENT: Duration = Duration::from_secs(60);
/// A program that takes longer to end is killed.
const PATIENCE: Duration = Duration::from_secs(10);

impl<'a> Server<'a> {
    /// Starts the server and connects its load, which does nothing yet. Its data are in the page
    /// cache, unless its memory is limited: then nothing of them is in memory.
    pub(crate) fn start(
        cluster: &'a Cluster,
        workload: &WorkloadSpec,
        run: &mut Run<'_>,
    ) -> Result<Self, BenchError> {
        let mut memory = None;
        let postmaster = if let Some(limit) = workload.memory {
            // The page cache counts for whom it was who read first.
            cluster.evict()?;
            let group = MemoryGroup::create(cluster.name(), limit.0)?;
            let pid = cluster.start_within(run.guard, &group)?;
            memory = Some(group);
            pid
        } else {
            read_into_page_cache(cluster)?;
            cluster.start(run.guard)?
        };
        let load = Load::begin(cluster, workload, run.plan.experiment.scale)?;
        let database = if workload.command.is_some() { APART } else { DATABASE };
        let mut monitor = cluster.connect(database)?;
        let mut io = ClusterIo::attach(postmaster)?;
        let before = Counts::read(cluster, &mut monitor, &mut io, cluster.facts()?)?;
        let cpu = ClusterCpu::attach(postmaster)?;
        Ok(Self {
            cluster,
            monitor,
            load,
            cpu,
            io,
            memory,
            transactions: 0,
            worked: Duration::ZERO,
            programs_cpu_ns: 0,
            before,
        })
    }

    /// The processes that work for pgtoll's own clients, their backends and the I/O workers; none
    /// where a program makes the load.
    pub(crate) fn client_processes(&mut self) -> Result<Vec<i32>, BenchError> {
        self.cpu.find_io_workers(&mut self.monitor)?;
        let mut pids = self.backends();
        if !pids.is_empty() {
            pids.extend(self.cpu.io_workers());
        }
        Ok(pids)
    }

    /// The backends of pgtoll's own clients; none where a program makes the load.
    fn backends(&mut self) -> Vec<i32> {
        self.load.connections().map(|connection| connection.backend_pid()).collect()
    }

    /// From now on everything counts.
    pub(crate) fn begin(&mut self, run: &mut Run<'_>) -> Result<(), BenchError> {
        self.end_program(run.guard)?;
        let facts = self.cluster.facts()?;
        for connection in self.load.connections() {
            ServerCounters::publish(connection, facts)?;
        }
        (self.transactions, self.worked, self.programs_cpu_ns) = (0, Duration::ZERO, 0);
        self.cpu.find_io_workers(&mut self.monitor)?;
        self.before = Counts::read(self.cluster, &mut self.monitor, &mut self.io, facts)?;
        Ok(())
    }

    /// Works for so long. What a program did meanwhile is known at the end only.
    pub(crate) fn work(&mut self, length: Length, run: &mut Run<'_>) -> Result<Tally, BenchError> {
        let Load::Clients { crowd, rate } = &mut self.load else {
            let tally = self.run_program(length, run)?;
            self.worked += tally.elapsed;
            return Ok(tally);
        };
        let done = match length {
            Length::Time(time) => crowd.run(Until::Time(time), *rate),
            Length::Transactions(count) => crowd.run(Until::TogetherTransactions(count), None),
        };
        let tally = done.map_err(|source| BenchError::load(self.cluster, source))?;
        self.transactions += tally.transactions;
        self.worked += tally.elapsed;
        Ok(tally)
    }

    /// Lets the server read its configuration again, and waits until the load's sessions have: each
    /// looks before each of its statements.
    pub(crate) fn reload(&mut self) -> Result<(), BenchError> {
        let query = |source| BenchError::query(self.cluster, source);
        let loaded = "SELECT pg_conf_load_time()::text AS loaded";
        let mut when = || -> Result<Vec<String>, BenchError> {
            let times = self.load.connections().map(|connection| {
                let row = connection.query_one(loaded).map_err(query)?;
                row.parse("loaded").map_err(query)
            });
            times.collect()
        };
        let before = when()?;
        self.monitor.execute("SELECT pg_reload_conf()").map_err(query)?;
        let began = Instant::now();
        while when()?.iter().zip(&before).any(|(now, before)| now == before) {
            if began.elapsed() > PATIENCE {
                return self.check_configuration().and(Err(self.load_goes_on()));
            }
        }
        Ok(())
    }

    /// An error when the server refuses a setting of its configuration file: it would continue with
    /// the value before.
    pub(crate) fn check_configuration(&mut self) -> Result<(), BenchError> {
        let refused = "SELECT coalesce(name, 'the file'), coalesce(setting, '') \
                       FROM pg_file_settings WHERE error IS NOT NULL";
        let rows = self.query(refused)?;
        let Some([name, value]) = rows.first().map(pgtoll_wire::Row::values) else {
            return Ok(());
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Err(BenchError::SettingRefused { name: text(name), value: text(value) })
    }

    /// The server has run into its limit of memory, or has none.
    pub(crate) fn has_filled_its_memory(&self) -> Result<bool, BenchError> {
        let usage = self.memory.as_ref().map(MemoryGroup::usage).transpose()?;
        Ok(usage.is_none_or(|usage| usage.limit_hits > 0))
    }

    /// Returns the server's counters since [`Server::begin`], in this round of a workload at this time of
    /// the run.
    pub(crate) fn sample(
        &mut self,
        workload: &str,
        round: u32,
        at: Duration,
    ) -> Result<CounterReading, BenchError> {
        let lsn = wal_insert(self.cluster, &mut self.monitor)?;
        Ok(CounterReading {
            workload: workload.to_owned(),
            round,
            arm: self.cluster.name().to_owned(),
            at_ns: nanoseconds(at),
            worked_ns: nanoseconds(self.worked),
            transactions: self.transactions,
            wal_bytes: lsn.bytes_since(self.before.counters.wal_insert).unwrap_or(0),
            io: io_bytes(self.before.io, self.io.sample()?),
        })
    }

    /// Latencies since they were taken last.
    pub(crate) fn take_latencies(&mut self) -> Option<Latencies> {
        match &mut self.load {
            Load::Clients { crowd, .. } => Some(crowd.take_latencies()),
            Load::Program { .. } | Load::Ended => None,
        }
    }

    /// Ends the load and the server. The second value is the CPU time of the load's programs.
    pub(crate) fn stop(mut self, run: &mut Run<'_>) -> Result<(ArmRound, u64), BenchError> {
        let is_program = matches!(self.load, Load::Program { .. });
        self.end_load(run)?;
        let facts = self.cluster.facts()?;
        let after = Counts::read(self.cluster, &mut self.monitor, &mut self.io, facts)?;
        // What the shutdown would write is written while the processes' clocks can still be read.
        self.query("CHECKPOINT")?;
        let observed = self.cpu.sample()?;
        let memory = memory_use(self.memory.as_ref())?;
        self.monitor.close();
        let reaped = self.cluster.stop(run.guard, StopMode::Fast)?;
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let both = |now: Option<u64>, then: Option<u64>| Some(since(now?, then?));
        let before = &self.before.counters;
        let now = &after.counters;
        let transactions = if is_program {
            since(after.finished, self.before.finished)
        } else {
            self.transactions
        };
        let round = ArmRound {
            arm: self.cluster.name().to_owned(),
            transactions,
            wal_from: before.wal_insert,
            wal_to: now.wal_insert,
            wal_records: both(now.wal_records, before.wal_records),
            wal_full_page_images: both(now.wal_full_page_images, before.wal_full_page_images),
            blocks_read: both(now.blocks_read, before.blocks_read),
            blocks_written: both(now.blocks_written, before.blocks_written),
            cpu_observed_ns: observed.total_ns(),
            cpu_reaped_ns: nanoseconds(reaped.cpu()),
            cpu_reaped_system_ns: nanoseconds(reaped.system),
            io: io_bytes(self.before.io, after.io),
            memory,
        };
        Ok((round, self.programs_cpu_ns))
    }

    /// A session's counters and CPU time are in their final place when it is gone.
    fn end_load(&mut self, run: &mut Run<'_>) -> Result<(), BenchError> {
        self.end_program(run.guard)?;
        let backends: Vec<String> = self.backends().iter().map(i32::to_string).collect();
        if let Load::Clients { mut crowd, .. } = std::mem::replace(&mut self.load, Load::Ended) {
            let facts = self.cluster.facts()?;
            for connection in crowd.connections() {
                ServerCounters::publish(connection, facts)?;
            }
            crowd.close();
            let backends = backends.join(", ");
            let present = format!("SELECT 1 FROM pg_stat_activity WHERE pid IN ({backends})");
            while !self.query(&present)?.is_empty() {}
        }
        Ok(())
    }

    fn run_program(&mut self, length: Length, run: &mut Run<'_>) -> Result<Tally, BenchError> {
        let time = match length {
            Length::Time(time) => time,
            // Nobody can count a program's transactions while it runs.
            Length::Transactions(_) => Duration::ZERO,
        };
        let began = Instant::now();
        self.continue_program(run.guard)?;
        run.interrupt.wait(time)?;
        self.check_program(run.guard)?;
        run.guard.signal(self.cluster.name(), ProgramSignal::Stop)?;
        self.wait_for_rest(run)?;
        Ok(Tally { transactions: 0, elapsed: began.elapsed(), late: 0 })
    }

    /// An error when the program ended by itself.
    fn check_program(&self, guard: &mut Guard) -> Result<(), BenchError> {
        let name = self.cluster.name();
        let Some(output) = guard.has_ended(name)? else { return Ok(()) };
        let arm = name.to_owned();
        let status = output.status;
        Err(BenchError::LoadEnded { arm, status, output: output.tail })
    }

    fn continue_program(&mut self, guard: &mut Guard) -> Result<(), BenchError> {
        let name = self.cluster.name();
        let Load::Program { command, runs } = &mut self.load else { return Ok(()) };
        if *runs {
            return Ok(guard.signal(name, ProgramSignal::Continue)?);
        }
        // Where the user is, as far as the servers' user may go there.
        let here = std::env::current_dir().unwrap_or_default();
        let here = single_quoted(&here.to_string_lossy());
        let command = format!("cd {here} 2>/dev/null; {command}");
        let arguments = ["-c", command.as_str()];
        guard.spawn(name, SHELL.as_ref(), &arguments, &self.cluster.environment())?;
        *runs = true;
        Ok(())
    }

    /// A stopped program's statements run to their end: that is still its time. One that waits for
    /// the program itself, or for a lock of a session that does, has come to rest.
    fn wait_for_rest(&mut self, run: &Run<'_>) -> Result<(), BenchError> {
        let active = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' \
                      AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
                      AND coalesce(wait_event_type, '') NOT IN ('Client', 'Lock')";
        let began = Instant::now();
        let mut wait = REST;
        while !self.query(active)?.is_empty() {
            if began.elapsed() > LONGEST_STATEMENT {
                return Err(self.load_goes_on());
            }
            run.interrupt.wait(wait)?;
            // Asking uses the CPU time that is measured.
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(())
    }

    fn load_goes_on(&self) -> BenchError {
        BenchError::LoadGoesOn { arm: self.cluster.name().to_owned() }
    }

    fn end_program(&mut self, guard: &mut Guard) -> Result<(), BenchError> {
        let Load::Program { runs, .. } = &mut self.load else { return Ok(()) };
        if !std::mem::replace(runs, false) {
            return Ok(());
        }
        let name = self.cluster.name();
        self.check_program(guard)?;
        guard.signal(name, ProgramSignal::Terminate)?;
        let Usage { user, system, .. } = guard.reap(name, PATIENCE)?.usage;
        self.programs_cpu_ns += nanoseconds(user + system);
        let present = "SELECT 1 FROM pg_stat_activity \
                       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let began = Instant::now();
        while !self.query(present)?.is_empty() {
            // A session whose client is gone notices that when it next reads from it.
            if began.elapsed() > PATIENCE {
                self.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                )?;
            }
            if began.elapsed() > PATIENCE * 2 {
                return Err(self.load_goes_on());
            }
        }
        Ok(())
    }

    pub(crate) fn query(&mut self, sql: &str) -> Result<Vec<pgtoll_wire::Row>, BenchError> {
        self.monitor.query(sql).map_err(|source| BenchError::query(self.cluster, source))
    }
}

impl Counts {
    fn read(
        cluster: &Cluster,
        monitor: &mut Connection,
        io: &mut ClusterIo,
        facts: &'static MajorFacts,
    ) -> Result<Self, BenchError> {
        // Of the sessions that have ended.
        let sql = format!(
            "SELECT xact_commit + xact_rollback AS finished FROM pg_stat_database \
             WHERE datname = '{DATABASE}'"
        );
        let finished = monitor.query_one(&sql).and_then(|row| row.parse("finished"));
        Ok(Self {
            finished: finished.map_err(|source| BenchError::query(cluster, source))?,
            counters: ServerCounters::read(monitor, facts, DATABASE)?,
            io: io.sample()?,
        })
    }
}

impl Load {
    fn begin(cluster: &Cluster, workload: &WorkloadSpec, scale: u32) -> Result<Self, BenchError> {
        if let Some(command) = &workload.command {
            return Ok(Self::Program { command: command.clone(), runs: false });
        }
        let Some(mix) = &workload.mix else { return Ok(Self::Ended) };
        let clients = 0..workload.clients();
        let connections: Result<Vec<Connection>, ClusterError> =
            clients.map(|_| cluster.connect(DATABASE)).collect();
        let crowd = Crowd::new(connections?, mix, scale);
        let crowd = crowd.map_err(|source| BenchError::load(cluster, source))?;
        Ok(Self::Clients { crowd, rate: workload.rate })
    }

    /// Returns the connections of pgtoll's own sessions.
    pub(crate) fn connections(&mut self) -> impl Iterator<Item = &mut Connection> {
        let crowd = match self {
            Self::Clients { crowd, .. } => Some(crowd),
            Self::Program { .. } | Self::Ended => None,
        };
        crowd.into_iter().flat_map(Crowd::connections)
    }
}

/// All arms have their data in the page cache, whatever was evicted since the last round.
fn read_into_page_cache(cluster: &Cluster) -> Result<(), BenchError> {
    let mut buffer = vec![0; 1 << 20];
    for path in cluster.relation_files()? {
        let mut read = || -> std::io::Result<()> {
            let mut file = pgtoll_system::open_unlinked(&path)?;
            while file.read(&mut buffer)? > 0 {}
            Ok(())
        };
        read().map_err(|source| BenchError::Read { path: path.clone(), source })?;
    }
    Ok(())
}
