//! Counters of a running server and of the machine around it: CPU of a whole cluster from its
//! processes' clocks, statistics views by version, what other programs take.
//!
//! ```no_run
//! use pgtoll_observe::ClusterCpu;
//!
//! let mut cpu = ClusterCpu::attach(4711)?; // the postmaster's pid
//! let before = cpu.sample()?;
//! // … let the server work …
//! let after = cpu.sample()?;
//! println!("{} ns", after.since(&before).nanoseconds);
//! # Ok::<(), pgtoll_observe::ObserveError>(())
//! ```

mod counters;
mod cpu;
mod host;
mod io;
mod local;
mod machine;
mod noise;
mod postmaster;
mod profile;
mod split;
mod sync;

pub use counters::ServerCounters;
pub use cpu::{ClusterCpu, CpuSample, CpuTimes, CpuUsed, own_cpu_ns, own_thread_cpu_ns};
pub use host::{
    Memory, cores, cpu_model, file_system, free_bytes, governor, hypervisor, kernel, memory,
    transparent_huge_pages,
};
pub use io::{ClusterIo, IoSample};
pub use local::LocalSession;
pub use machine::{
    Disk, FileSystem, Pressure, boost, clock_cost_ns, clock_source, cpu_quota, file_system_of,
    has_io_counters, load_average, memory_limit_bytes, memory_nodes, multithreading, online_cores,
    pressure, swap_used_bytes, sysctl, sysctls, timer_slack_ns,
};
pub use noise::{MachineSample, MachineUse};
pub use profile::Profile;
pub use split::{CpuSplit, cpu_split};
pub use sync::sync_times;

use nix::libc;
use procfs::ProcError;

/// A counter that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A process is not there (any more).
    #[error("read the counters of process {pid}")]
    Process {
        /// Its pid.
        pid: i32,
        /// The system's error.
        source: ProcError,
    },
    /// A file of /proc could not be read.
    #[error("read {what}")]
    Proc {
        /// Its path.
        what: &'static str,
        /// The system's error.
        source: ProcError,
    },
    /// A system call failed.
    #[error("{what}")]
    System {
        /// Its path.
        what: &'static str,
        /// The system's error.
        source: nix::errno::Errno,
    },
    /// The server did not answer.
    #[error("read the server's statistics")]
    Server(#[from] pgtoll_wire::Error),
}

impl ObserveError {
    /// Returns advice.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            // ESRCH is what a read of an open file in /proc gives after the process has ended.
            Self::Process { source: ProcError::NotFound(_), .. } => Some(SERVER_ENDED.into()),
            Self::Process { source: ProcError::Io(source, _), .. }
                if source.raw_os_error() == Some(libc::ESRCH) =>
            {
                Some(SERVER_ENDED.into())
            }
            Self::Process { .. } | Self::Proc { .. } | Self::System { .. } | Self::Server(_) => {
                None
            }
        }
    }
}

/// The hint where the process is gone whose counters were to be read.
const SERVER_ENDED: &str = "a server ended while it was measured, or was ended; `measure` with \
                            --keep leaves its log";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Larger than `pid_max` can be.
    const NO_PROCESS: i32 = i32::MAX;

    #[test]
    fn an_ended_server_is_an_error_with_a_hint() {
        let Err(error) = ClusterCpu::attach(NO_PROCESS) else { panic!("no process has this pid") };
        assert_eq!(error.hint().as_deref(), Some(SERVER_ENDED), "{error:?}");
    }

    #[test]
    fn a_server_that_ends_while_it_is_read_is_an_error_with_a_hint() {
        let source = |errno| ProcError::Io(io::Error::from_raw_os_error(errno), None);
        let error = |errno| ObserveError::Process { pid: NO_PROCESS, source: source(errno) };
        assert_eq!(error(libc::ESRCH).hint().as_deref(), Some(SERVER_ENDED));
        assert_eq!(error(libc::EIO).hint(), None);
    }
}
