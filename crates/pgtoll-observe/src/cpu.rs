//! CPU time of a whole cluster.
//!
//! A live process tells its time through its CPU clock (`clock_getcpuclockid(3)`): the same
//! scheduler counter that `/proc/PID/schedstat` prints, but exact to the nanosecond also while the
//! process runs, and without text. A process that ended is in its postmaster's `cutime` and
//! `cstime` (`/proc/PID/stat`) as soon as the postmaster has reaped it, in ticks of 10 ms.

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;

use crate::ObserveError;

/// The CPU time of a postmaster and its children. Readable by every user.
#[derive(Debug)]
pub struct ClusterCpu {
    postmaster: Process,
    pid: i32,
    clocks: Vec<(i32, ClockId)>,
}

/// A cluster's CPU time since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// Of the live processes, in ns.
    live_ns: u64,
    /// Of the processes that ended, in ns; a multiple of the kernel's tick.
    ended_ns: u64,
    children: Vec<i32>,
}

/// CPU time between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuUsed {
    /// In ns.
    pub nanoseconds: u64,
    /// Processes came or went, so it is only exact to the kernel's tick.
    pub processes_changed: bool,
}

impl ClusterCpu {
    /// Looks up the processes of the cluster whose postmaster has this pid.
    pub fn attach(pid: i32) -> Result<Self, ObserveError> {
        let postmaster =
            Process::new(pid).map_err(|source| ObserveError::Process { pid, source })?;
        Ok(Self { postmaster, pid, clocks: Vec::new() })
    }

    /// The CPU time until now. A process that ends while this looks is looked up again.
    pub fn sample(&mut self) -> Result<CpuSample, ObserveError> {
        loop {
            let before = self.children()?;
            self.follow(&before)?;
            // Children first, then the postmaster: a child that ends in between is counted by the
            // postmaster, and the list tells.
            let Some(live_ns) = self.live_ns() else { continue };
            let ended_ns = self.ended_ns()?;
            if self.children()? == before {
                return Ok(CpuSample { live_ns, ended_ns, children: before });
            }
        }
    }

    fn children(&self) -> Result<Vec<i32>, ObserveError> {
        let children = self.postmaster.task_main_thread().and_then(|thread| thread.children());
        let children = children.map_err(|source| self.process_error(source))?;
        Ok(children.into_iter().filter_map(|pid| i32::try_from(pid).ok()).collect())
    }

    /// Keeps a clock for each process, made once.
    fn follow(&mut self, children: &[i32]) -> Result<(), ObserveError> {
        let wanted = || children.iter().copied().chain([self.pid]);
        if wanted().eq(self.clocks.iter().map(|(pid, _)| *pid)) {
            return Ok(());
        }
        self.clocks = wanted()
            .filter_map(|pid| Some((pid, clock_getcpuclockid(Pid::from_raw(pid)).ok()?)))
            .collect();
        if self.clocks.last().is_some_and(|(pid, _)| *pid == self.pid) {
            return Ok(());
        }
        let source = procfs::ProcError::NotFound(None);
        Err(self.process_error(source))
    }

    /// `None` when a process ended meanwhile.
    fn live_ns(&self) -> Option<u64> {
        self.clocks.iter().map(|(_, clock)| clock_ns(*clock).ok()).sum()
    }

    fn ended_ns(&self) -> Result<u64, ObserveError> {
        let stat = self.postmaster.stat().map_err(|source| self.process_error(source))?;
        let ticks = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
        Ok(ticks.saturating_mul(1_000_000_000) / procfs::ticks_per_second().max(1))
    }

    fn process_error(&self, source: procfs::ProcError) -> ObserveError {
        ObserveError::Process { pid: self.pid, source }
    }
}

impl CpuSample {
    /// Since the cluster's start, in ns.
    pub fn total_ns(&self) -> u64 {
        self.live_ns + self.ended_ns
    }

    /// What was used since an earlier sample.
    pub fn since(&self, earlier: &Self) -> CpuUsed {
        CpuUsed {
            nanoseconds: self.total_ns().saturating_sub(earlier.total_ns()),
            processes_changed: self.children != earlier.children,
        }
    }
}

/// CPU time of this process, in ns.
pub fn own_cpu_ns() -> Result<u64, ObserveError> {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_err(|source| ObserveError::System { what: "read the CPU time of pgtoll", source })
}

fn clock_ns(clock: ClockId) -> nix::Result<u64> {
    let time = clock_gettime(clock)?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Ok(seconds * 1_000_000_000 + nanoseconds)
}
