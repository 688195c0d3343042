//! The guard's end: all that it started is gone, and so is its directory.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::reaping::reap_one;
use super::{GuardProcess, drain};
use crate::leftover::{self, shared_memory_of_tree};
use crate::process::descendants;
use crate::volume::wait_for_unmount;

/// How long an immediate shutdown may take before the tree is killed. PostgreSQL's own postmaster
/// gives its children 5 s.
const PATIENCE: Duration = Duration::from_secs(7);
/// How often it is tried to remove the working directory, a tenth of a second apart.
const REMOVALS_MAX: u32 = 100;
impl GuardProcess {
    /// Stops the whole tree, gently first: a server that is shut down, even immediately, removes
    /// its System V and POSIX shared memory; one that is killed does not.
    pub(super) fn clean_up(&mut self) {
        let own = Pid::this().as_raw();
        let postmasters: BTreeSet<i32> = self.servers.values().map(|server| server.pid).collect();
        // Programs of ours. A backend is in a group of its own, its postmaster's to end.
        let groups: BTreeSet<Pid> = self
            .programs
            .values()
            .map(|program| program.pid)
            .chain([own])
            .map(Pid::from_raw)
            .collect();
        let is_program = |pid: i32| {
            let group = nix::unistd::getpgid(Some(Pid::from_raw(pid)));
            !postmasters.contains(&pid) && group.is_ok_and(|group| groups.contains(&group))
        };
        // Stopped, a program begins nothing and maps no more memory. initdb's servers leave theirs behind.
        for pid in descendants(own).into_iter().filter(|pid| is_program(*pid)) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
        }
        let shared_memory = shared_memory_of_tree(own);
        for pid in descendants(own) {
            let pid = Pid::from_raw(pid);
            let _ = kill(pid, Signal::SIGCONT);
            if postmasters.contains(&pid.as_raw()) {
                let _ = kill(pid, Signal::SIGQUIT);
            } else if is_program(pid.as_raw()) {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
        if !self.wait_for_children(PATIENCE) {
            self.kill_children();
        }
        remove_files(&shared_memory);
        self.remove_directory();
    }

    /// Returns when all of the tree is gone.
    pub(in crate::guard) fn kill_children(&mut self) {
        while !self.wait_for_children(Duration::from_millis(100)) {
            for pid in descendants(Pid::this().as_raw()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Whether every child was reaped before the time was over.
    fn wait_for_children(&mut self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        loop {
            drain(&mut self.child_ended);
            while reap_one().is_some() {}
            if waitpid(None, Some(WaitPidFlag::WNOHANG)) == Err(Errno::ECHILD) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let mut fds = [PollFd::new(self.child_ended.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut fds, timeout);
        }
    }

    fn remove_directory(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        wait_for_unmount(&directory);
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            leftover::remove_shared_memory_of(&entry.path());
        }
        let _ = std::env::set_current_dir("/");
        if self.keep {
            leftover::unsign(&directory);
        } else {
            remove_all(&directory);
        }
    }
}

/// pgtoll itself may still write files there, until it notices what ended the guard.
fn remove_all(directory: &Path) {
    for _ in 0..REMOVALS_MAX {
        let removed = fs::remove_dir_all(directory);
        if removed.is_ok() || fs::symlink_metadata(directory).is_err() {
            return;
        }
        let _ = poll(&mut [], PollTimeout::from(100_u8));
    }
}

/// Kills a process and all below it; stopped first, so that none escapes by forking. Returns the
/// pids of those that were still there.
pub(super) fn kill_tree(root: i32) -> BTreeSet<i32> {
    let mut stopped = BTreeSet::new();
    loop {
        let tree: BTreeSet<i32> = descendants(root).into_iter().chain([root]).collect();
        let new: Vec<i32> = tree.difference(&stopped).copied().collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            stopped.insert(pid);
        }
    }
    // One that had ended before it was stopped may have been reaped by its own parent: nobody would
    // ever tell of it.
    stopped.retain(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL) != Err(Errno::ESRCH));
    stopped
}

/// Removes what is there of these files.
pub(super) fn remove_files(files: &[PathBuf]) {
    for file in files {
        let _ = fs::remove_file(file);
    }
}
