//! A command line of the user's own, which pgtoll runs as the user would.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::ClusterError;
use crate::process::{command_in_own_environment, tail_of};

/// A command line of the user's own that `/bin/sh` runs: as the user who runs pgtoll, root too, in
/// the same environment and directory.
///
/// Unlike what the [guard](crate::Guard) starts, it is not ended with pgtoll, and neither is what
/// it started: a server that such a command restarted stays up. It has a process group of its own,
/// so that a terminal's Ctrl-C does not reach it.
#[derive(Debug)]
pub struct UserCommand {
    child: Child,
    output: File,
}

/// How a user's command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCommandEnd {
    /// It ended with status 0.
    pub success: bool,
    /// How it ended, in words.
    pub status: String,
    /// The end of what it printed, standard output and error together.
    pub tail: String,
}

impl UserCommand {
    /// Starts the command line.
    pub fn start(line: &str) -> Result<Self, ClusterError> {
        Self::start_with(line, &[])
    }

    /// Starts the command line with more variables in its environment.
    pub fn start_with(line: &str, variables: &[(&str, &str)]) -> Result<Self, ClusterError> {
        let start = || {
            let output = File::from(memfd_create("command's output", MFdFlags::MFD_CLOEXEC)?);
            let mut shell = command_in_own_environment(OsStr::new(SHELL));
            shell.arg("-c").arg(line).process_group(0).envs(variables.iter().copied());
            let child = shell.stdout(output.try_clone()?).stderr(output.try_clone()?).spawn()?;
            Ok(Self { child, output })
        };
        start().map_err(|source: io::Error| ClusterError::UserCommand { source })
    }

    /// The shell's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, but no longer than this: whether it has ended.
    pub fn ends_within(&self, limit: Duration) -> Result<bool, ClusterError> {
        let wait = || {
            let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
            // Not reaped yet, so that it cannot be another process.
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            let until = Instant::now() + limit;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let left = Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                };
                match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                    Err(Errno::INTR) => {}
                    polled => return Ok(polled? > 0),
                }
            }
        };
        wait().map_err(|source: io::Error| ClusterError::UserCommand { source })
    }

    /// Waits for its end. What it left in the background continues.
    pub fn wait(mut self) -> Result<UserCommandEnd, ClusterError> {
        let mut wait = || {
            let status = self.child.wait()?;
            let tail = tail_of(&mut self.output, TAIL_BYTES)?;
            Ok(UserCommandEnd { success: status.success(), status: status.to_string(), tail })
        };
        wait().map_err(|source: io::Error| ClusterError::UserCommand { source })
    }
}

const SHELL: &str = "/bin/sh";
/// Bytes of its output that are kept.
const TAIL_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_output_are_those_of_the_shell() {
        let end = |line| UserCommand::start(line).unwrap().wait().unwrap();
        let done = end("echo out; echo err >&2");
        assert_eq!((done.success, done.tail.as_str()), (true, "out\nerr\n"));
        let failed = end("exit 3");
        assert_eq!((failed.success, failed.status.as_str()), (false, "exit status: 3"));
    }

    #[test]
    fn a_limit_ends_the_wait_and_not_the_command() {
        let command = UserCommand::start("read -r _ < /dev/zero || echo done").unwrap();
        assert!(!command.ends_within(Duration::ZERO).unwrap());
        let pid = nix::unistd::Pid::from_raw(command.pid().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(command.ends_within(Duration::from_secs(120)).unwrap());
        assert!(!command.wait().unwrap().success);
    }

    #[test]
    fn what_goes_on_in_the_background_is_not_waited_for() {
        let end = UserCommand::start("sleep 600 & echo $!").unwrap().wait().unwrap();
        let pid = end.tail.trim().parse().unwrap();
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    #[test]
    fn it_has_the_environment_and_the_user_of_the_caller() {
        let end = UserCommand::start("id -u; echo \"$PATH\"").unwrap().wait().unwrap();
        let expected = format!("{}\n{}\n", nix::unistd::geteuid(), std::env::var("PATH").unwrap());
        assert_eq!(end.tail, expected);
    }
}
