//! Whether a server runs on this machine: by the process of one of its sessions.

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::process::Process;

use crate::cpu::clock_ns;

/// A session's process on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSession {
    pid: i32,
    /// Its postmaster's pid.
    pub postmaster: i32,
}

impl LocalSession {
    /// The process with this pid, if its title has these words, as that of a session has its role,
    /// its database and the client's address. A server elsewhere may use the same pid.
    pub fn find(pid: i32, words: &str) -> Option<Self> {
        let process = Process::new(pid).ok()?;
        let title = process.cmdline().ok()?.join(" ");
        let is_session = title.starts_with("postgres: ") && title.contains(words);
        let postmaster = process.stat().ok()?.ppid;
        is_session.then_some(Self { pid, postmaster })
    }

    /// CPU time of the process in ns; `None` where it has ended.
    pub fn cpu_ns(&self) -> Option<u64> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.pid)).ok()?;
        clock_ns(clock).ok()
    }
}
