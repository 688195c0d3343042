//! CPU time of a whole cluster.
//!
//! A live process tells its time through its CPU clock (`clock_getcpuclockid(3)`): the same
//! scheduler counter that `/proc/PID/schedstat` prints, but exact to the nanosecond also while the
//! process runs, and without text. A process that ended is in its postmaster's `cutime` and
//! `cstime` (`/proc/PID/stat`) as soon as the postmaster has reaped it, in ticks of 10 ms.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use pgtoll_wire::Connection;
use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::ObserveError;
use crate::postmaster::PostmasterProcess;

/// The CPU time of a postmaster and its children. Readable by every user.
#[derive(Debug)]
pub struct ClusterCpu {
    postmaster: PostmasterProcess,
    clocks: Vec<(i32, ClockId)>,
    /// Pids of the I/O workers, as the server reported them.
    io_workers: Vec<i32>,
}

/// A cluster's CPU time since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// The CPU time of live processes, in ns.
    live_ns: u64,
    /// The CPU time of I/O workers among them, in ns; `None` if the server has none.
    io_workers_ns: Option<u64>,
    /// The CPU time of ended processes, in ns; a multiple of the kernel's tick.
    ended_ns: u64,
    children: Vec<i32>,
}

/// CPU time between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuUsed {
    /// In ns.
    pub nanoseconds: u64,
    /// By the server's I/O workers, in ns: a part of `nanoseconds`. `None` where it has none, or where
    /// [`ClusterCpu::find_io_workers`] has not been called before both samples.
    pub io_workers_ns: Option<u64>,
    /// Processes came or went, so it is only exact to the kernel's tick.
    pub processes_changed: bool,
}

/// User and system time apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode, in ns.
    pub user_ns: u64,
    /// In the kernel, in ns.
    pub system_ns: u64,
}

impl CpuTimes {
    /// Returns the use since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

/// Servers before 18 have no process of this type.
const IO_WORKERS: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'";

impl ClusterCpu {
    /// Looks up the processes of the cluster whose postmaster has this pid.
    pub fn attach(pid: i32) -> Result<Self, ObserveError> {
        let clocks = Vec::new();
        let io_workers = Vec::new();
        Ok(Self { postmaster: PostmasterProcess::attach(pid)?, clocks, io_workers })
    }

    /// Asks the server which of its processes are I/O workers (`io_method = worker`, 18 and later).
    /// Those that come later count as workers when this is called again.
    pub fn find_io_workers(&mut self, connection: &mut Connection) -> Result<(), ObserveError> {
        let rows = connection.query(IO_WORKERS)?;
        self.io_workers = rows.iter().map(|row| row.parse("pid")).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Pids of the I/O workers, as [`find_io_workers`](Self::find_io_workers) found them.
    pub fn io_workers(&self) -> &[i32] {
        &self.io_workers
    }

    /// The CPU time until now. A process that ends while this looks is looked up again.
    pub fn sample(&mut self) -> Result<CpuSample, ObserveError> {
        loop {
            let before = self.postmaster.children()?;
            self.follow(&before)?;
            // Children first, then the postmaster: a child that ends in between is counted by the
            // postmaster, and the list tells.
            let Some((live_ns, io_workers_ns)) = self.live_ns() else { continue };
            let ended_ns = self.ended_ns()?;
            if self.postmaster.children()? == before {
                let io_workers_ns = (!self.io_workers.is_empty()).then_some(io_workers_ns);
                return Ok(CpuSample { live_ns, io_workers_ns, ended_ns, children: before });
            }
        }
    }

    /// The postmaster and its children, by pid.
    pub fn pids(&self) -> Result<Vec<i32>, ObserveError> {
        let mut pids = self.postmaster.children()?;
        pids.insert(0, self.postmaster.pid);
        Ok(pids)
    }

    /// Waits until every child that was not there at the earlier sample is gone and reaped, so that
    /// its time is in the postmaster's totals: a client program such as `pgbench` returns a little
    /// before its sessions' processes end. Returns those that are still there after `at_most`: none
    /// when it went well. The earlier sample should be of a server at rest, since a process that
    /// stays (the autovacuum launcher, a moment after the start) is waited for too.
    pub fn wait_until_back(
        &self,
        earlier: &CpuSample,
        at_most: Duration,
    ) -> Result<Vec<i32>, ObserveError> {
        let deadline = Instant::now() + at_most;
        loop {
            let mut new = self.postmaster.children()?;
            new.retain(|pid| !earlier.children.contains(pid));
            let left = deadline.saturating_duration_since(Instant::now());
            match new.first() {
                Some(pid) if !left.is_zero() => wait_until_reaped(*pid, left)?,
                _ => return Ok(new),
            }
        }
    }

    /// User and system time of the live processes and of those that ended. How exact that is tells
    /// [`cpu_split`](crate::cpu_split); each process is cut to the kernel's tick of 10 ms.
    pub fn times(&self) -> Result<CpuTimes, ObserveError> {
        loop {
            let before = self.postmaster.children()?;
            let Some(live) = before.iter().map(|pid| times_of(*pid)).sum::<Option<Ticks>>() else {
                continue;
            };
            let stat = self.postmaster.process.stat();
            let stat = stat.map_err(|source| self.postmaster.error(source))?;
            if self.postmaster.children()? == before {
                let ended = |ticks: i64| u64::try_from(ticks).unwrap_or(0);
                return Ok(CpuTimes {
                    user_ns: ticks_ns(live.user + stat.utime + ended(stat.cutime)),
                    system_ns: ticks_ns(live.system + stat.stime + ended(stat.cstime)),
                });
            }
        }
    }

    /// Keeps a clock for each process, made once.
    fn follow(&mut self, children: &[i32]) -> Result<(), ObserveError> {
        let wanted = || children.iter().copied().chain([self.postmaster.pid]);
        if wanted().eq(self.clocks.iter().map(|(pid, _)| *pid)) {
            return Ok(());
        }
        self.clocks = wanted()
            .filter_map(|pid| Some((pid, clock_getcpuclockid(Pid::from_raw(pid)).ok()?)))
            .collect();
        if self.clocks.last().is_some_and(|(pid, _)| *pid == self.postmaster.pid) {
            return Ok(());
        }
        let source = procfs::ProcError::NotFound(None);
        Err(self.postmaster.error(source))
    }

    /// Returns the CPU times of live processes and of I/O workers among them; `None` if one ended meanwhile.
    fn live_ns(&self) -> Option<(u64, u64)> {
        let mut all = 0;
        let mut io_workers = 0;
        for (pid, clock) in &self.clocks {
            let used = clock_ns(*clock).ok()?;
            all += used;
            if self.io_workers.contains(pid) {
                io_workers += used;
            }
        }
        Some((all, io_workers))
    }

    fn ended_ns(&self) -> Result<u64, ObserveError> {
        let stat = self.postmaster.process.stat();
        let stat = stat.map_err(|source| self.postmaster.error(source))?;
        Ok(ticks_ns(u64::try_from(stat.cutime + stat.cstime).unwrap_or(0)))
    }
}

impl CpuSample {
    /// Since the cluster's start, in ns.
    pub fn total_ns(&self) -> u64 {
        self.live_ns + self.ended_ns
    }

    /// Returns the use since an earlier sample.
    pub fn since(&self, earlier: &Self) -> CpuUsed {
        CpuUsed {
            nanoseconds: self.total_ns().saturating_sub(earlier.total_ns()),
            io_workers_ns: self
                .io_workers_ns
                .zip(earlier.io_workers_ns)
                .map(|(now, then)| now.saturating_sub(then)),
            processes_changed: self.children != earlier.children,
        }
    }
}

/// CPU time of this process, in ns.
pub fn own_cpu_ns() -> Result<u64, ObserveError> {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_err(|source| ObserveError::System { what: "read the CPU time of pgtoll", source })
}

/// CPU time of the calling thread, in ns.
pub fn own_thread_cpu_ns() -> Result<u64, ObserveError> {
    clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_err(|source| ObserveError::System { what: "read the CPU time of pgtoll", source })
}

/// Waits for at most this long, and not always until the end: the caller looks again.
fn wait_until_reaped(pid: i32, at_most: Duration) -> Result<(), ObserveError> {
    let Some(fd) = rustix::process::Pid::from_raw(pid)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return Ok(());
    };
    let wait = |event, at_most: Duration| {
        let timeout = Timespec::try_from(at_most).ok();
        match poll(&mut [PollFd::new(&fd, event)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ObserveError::System {
                what: "wait for a process's end",
                source: nix::errno::Errno::from_raw(error.raw_os_error()),
            }),
        }
    };
    wait(PollFlags::IN, at_most)?;
    // It has ended and waits for its parent. From Linux 6.9 on the descriptor hangs up when that
    // is done; before, nothing tells, and a millisecond is long for a parent that got its signal.
    wait(PollFlags::empty(), at_most.min(Duration::from_millis(1)))
}

#[derive(Clone, Copy, Default)]
struct Ticks {
    user: u64,
    system: u64,
}

impl std::iter::Sum for Ticks {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, i| Self {
            user: sum.user + i.user,
            system: sum.system + i.system,
        })
    }
}

/// `None` when the process is gone.
fn times_of(pid: i32) -> Option<Ticks> {
    let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
    Some(Ticks { user: stat.utime, system: stat.stime })
}

fn ticks_ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000) / procfs::ticks_per_second().max(1)
}

pub(crate) fn clock_ns(clock: ClockId) -> nix::Result<u64> {
    let time = clock_gettime(clock)?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Ok(seconds * 1_000_000_000 + nanoseconds)
}
