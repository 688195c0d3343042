//! Servers that are suspended and resumed, so that several of them can take turns.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::ClusterError;
use crate::leftover::shared_memory_of_tree;

/// All processes of a server that the [guard](crate::Guard) started, to be stopped where they are
/// and continued.
///
/// A suspended server does not notice: time passes, and that is all. A process that waits for a disk
/// stops when that is done. Suspending does no harm to data: processes hold the same locks when they
/// continue.
///
/// A suspended server neither answers nor shuts down: [resume](Self::resume) it first. Dropping this
/// resumes it. However pgtoll ends, the guard resumes what it ends.
#[derive(Debug)]
pub struct ServerProcesses {
    pid: i32,
    /// Never another process that has got the postmaster's pid.
    postmaster: OwnedFd,
}

/// The longest wait for a disk.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Short against a turn, and long against a look at `/proc`.
const BETWEEN_LOOKS_NS: i64 = 100_000;

impl ServerProcesses {
    /// The processes of the server whose postmaster has this pid.
    pub fn from_postmaster(postmaster: i32) -> Result<Self, ClusterError> {
        let attach = |source| ClusterError::Suspend { pid: postmaster, source };
        let pid = rustix::process::Pid::from_raw(postmaster)
            .ok_or_else(|| attach(io::ErrorKind::InvalidInput.into()))?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| attach(errno.into()))?;
        Ok(Self { pid: postmaster, postmaster: fd })
    }

    /// Stops all of them, and returns when none works any more. A disk that takes longer than
    /// some seconds is not waited for.
    ///
    /// An error when the server has ended.
    pub fn suspend(&self) -> Result<(), ClusterError> {
        // The postmaster first: while it is stopped it neither starts a child nor reaps one, so that
        // each pid in the list stays that of its child.
        self.signal_postmaster(rustix::process::Signal::STOP)?;
        self.signal_children(Signal::SIGSTOP)?;
        let deadline = Instant::now() + LONGEST_WAIT;
        while !self.is_stopped()? && Instant::now() < deadline {
            // A process other than a child does not announce that it has stopped.
            let ended = self.postmaster.as_fd();
            let pause = Timespec { tv_sec: 0, tv_nsec: BETWEEN_LOOKS_NS };
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&pause))
                .map_err(|errno| self.error(errno.into()))?;
            // A child whose birth was under way when the postmaster got its signal.
            self.signal_children(Signal::SIGSTOP)?;
        }
        Ok(())
    }

    /// Whether none of them works, or waits for a disk.
    fn is_stopped(&self) -> Result<bool, ClusterError> {
        let is_stopped = |pid: i32| {
            let state = Process::new(pid).and_then(|process| process.stat()).map(|stat| stat.state);
            // One that is gone does not work, either.
            state.map_or(true, |state| matches!(state, 'T' | 't' | 'Z' | 'X'))
        };
        // A postmaster that is stopped starts no child that is not in the list.
        Ok(is_stopped(self.pid) && self.children()?.into_iter().all(is_stopped))
    }

    /// Continues all of them. An error when the server has ended.
    pub fn resume(&self) -> Result<(), ClusterError> {
        self.signal_children(Signal::SIGCONT)?;
        self.signal_postmaster(rustix::process::Signal::CONT)
    }

    /// Kills all of them, which were [suspended](Self::suspend), and waits for the postmaster's end.
    /// Returns files of shared memory that they had mapped and no process maps any more.
    pub fn kill(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let shared_memory = shared_memory_of_tree(self.pid);
        self.signal_children(Signal::SIGKILL)?;
        self.kill_postmaster()?;
        Ok(shared_memory)
    }

    /// Kills the postmaster alone, and waits for its end. What it started ends by itself, later.
    pub fn kill_postmaster(&self) -> Result<(), ClusterError> {
        self.signal_postmaster(rustix::process::Signal::KILL)?;
        loop {
            let postmaster = self.postmaster.as_fd();
            match poll(&mut [PollFd::new(&postmaster, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                polled => return polled.map(|_| ()).map_err(|errno| self.error(errno.into())),
            }
        }
    }

    fn signal_postmaster(&self, signal: rustix::process::Signal) -> Result<(), ClusterError> {
        pidfd_send_signal(self.postmaster.as_fd(), signal).map_err(|errno| self.error(errno.into()))
    }

    fn signal_children(&self, signal: Signal) -> Result<(), ClusterError> {
        for child in self.children()? {
            match kill(Pid::from_raw(child), signal) {
                // It has ended, and waits for the postmaster.
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(errno) => return Err(self.error(errno.into())),
            }
        }
        Ok(())
    }

    fn children(&self) -> Result<Vec<i32>, ClusterError> {
        let children = Process::new(self.pid)
            .and_then(|process| process.task_main_thread()?.children())
            .map_err(|source| self.error(io::Error::other(source)))?;
        Ok(children.into_iter().filter_map(|pid| i32::try_from(pid).ok()).collect())
    }

    fn error(&self, source: io::Error) -> ClusterError {
        ClusterError::Suspend { pid: self.pid, source }
    }
}

impl Drop for ServerProcesses {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        let _ = self.resume();
    }
}

/// Waits until the process with this pid has ended: one that the guard [spawned](crate::Guard::spawn).
/// Returns at once when it has ended before.
pub fn wait_for_exit(pid: i32) -> Result<(), ClusterError> {
    let failed = |errno: Errno| ClusterError::Suspend { pid, source: errno.into() };
    let process = rustix::process::Pid::from_raw(pid).ok_or_else(|| failed(Errno::INVAL))?;
    let process = match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        fd => fd.map_err(failed)?,
    };
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            polled => return polled.map(|_| ()).map_err(failed),
        }
    }
}
