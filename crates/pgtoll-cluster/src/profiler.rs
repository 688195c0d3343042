//! `perf record` on the processes of a server, as the servers' user.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::environment::find_program;
use crate::error::last_words;
use crate::process::read_small;
use crate::{ClusterError, Guard, ProgramSignal};

/// How long perf may take to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Samples a second of CPU time. Not a round number, so as not to be in step with what the server
/// does at round ones.
const FREQUENCY: &str = "999";
/// Pages of perf's buffer for each CPU. An ordinary user may lock half a megabyte for each, for all
/// of its profilers together.
const BUFFER_PAGES: &str = "16";
/// The most bytes of a report.
const REPORT_BYTES: u64 = 64 << 20;

/// A running `perf record`: samples of user mode by CPU time (`cpu-clock:u`), which needs neither
/// root nor a CPU with counters.
#[derive(Debug)]
pub struct Profiler {
    name: String,
    perf: PathBuf,
    directory: PathBuf,
}

/// Why there is no profile. A run continues without.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// There is no such program.
    #[error("perf is not installed")]
    Missing,
    /// The system's administrator has closed the kernel's interface.
    #[error("perf may not be used by ordinary users (kernel.perf_event_paranoid = {paranoid})")]
    Forbidden {
        /// The setting; 2 is what pgtoll needs.
        paranoid: i32,
    },
    /// perf could not.
    #[error("perf can't: {0}")]
    Failed(String),
}

impl NoProfile {
    /// Returns advice in one sentence.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Missing => Some("install it (Debian: apt-get install linux-perf)"),
            Self::Forbidden { .. } => Some("sysctl kernel.perf_event_paranoid=2"),
            Self::Failed(_) => None,
        };
        hint.map(str::to_owned)
    }
}

impl Profiler {
    /// Returns the path of perf.
    pub fn program() -> Option<PathBuf> {
        find_program("perf")
    }

    /// Attaches perf to these processes and to what they start from now on (a postmaster's later
    /// sessions), and waits until it records. `name` is free again after [`finish`](Self::finish).
    pub fn begin(
        guard: &mut Guard,
        name: &str,
        pids: &[i32],
    ) -> Result<Result<Self, NoProfile>, ClusterError> {
        let Some(perf) = Self::program() else { return Ok(Err(NoProfile::Missing)) };
        let mut pids = pids.to_vec();
        loop {
            let begun = Self::attach(guard, name, perf.clone(), &pids)?;
            // perf refuses all when one has ended since it was looked up.
            let living: Vec<i32> = pids.iter().copied().filter(|pid| is_there(*pid)).collect();
            if begun.is_ok() || living.is_empty() || living.len() == pids.len() {
                return Ok(begun);
            }
            pids = living;
        }
    }

    fn attach(
        guard: &mut Guard,
        name: &str,
        perf: PathBuf,
        pids: &[i32],
    ) -> Result<Result<Self, NoProfile>, ClusterError> {
        let directory = guard.directory().join(format!("{name}.perf"));
        guard.run(Path::new("mkdir"), &[&directory.to_string_lossy()])?;
        let profiler = Self { name: name.to_owned(), perf, directory };
        let [control, answer] = ["control", "answer"].map(|name| profiler.file(name));
        guard.run(Path::new("mkfifo"), &[&control, &answer])?;
        let pid = profiler.record(guard, pids, &format!("fifo:{control},{answer}"))?;
        match is_recording(pid, Path::new(&control), Path::new(&answer)) {
            Ok(true) => Ok(Ok(profiler)),
            Ok(false) => profiler.give_up(guard).map(Err),
            Err(error) => Err(ClusterError::io("talk to perf in", &profiler.directory)(error)),
        }
    }

    /// Ends the recording. Returns what `perf report` prints about it: a line with the number of
    /// samples, a tab and the symbol for each symbol.
    pub fn finish(self, guard: &mut Guard) -> Result<Result<String, NoProfile>, ClusterError> {
        match guard.signal(&self.name, ProgramSignal::Interrupt) {
            // It ends by itself when all of its processes have ended.
            Err(ClusterError::Guard { .. }) => {}
            message => message?,
        }
        let recorded = guard.reap(&self.name, PATIENCE)?;
        let reported = self.report(guard)?;
        guard.run(Path::new("rm"), &["-r", &self.directory.to_string_lossy()])?;
        // Only the report tells whether there is a recording: how perf ends after a signal differs
        // between its versions.
        Ok(reported.map_err(|report| {
            NoProfile::Failed(format!(
                "{}; {}",
                last_words(&recorded.tail).trim(),
                last_words(&report).trim()
            ))
        }))
    }

    fn record(&self, guard: &mut Guard, pids: &[i32], control: &str) -> Result<i32, ClusterError> {
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        let pids = pids.join(",");
        let data = self.file("data");
        let control = format!("--control={control}");
        let mut arguments = vec!["record", "-e", "cpu-clock:u", "-F", FREQUENCY];
        // No copies of the programs for later: the report is made at once, of the same files.
        arguments.extend(["-m", BUFFER_PAGES, "--no-buildid", "--no-buildid-cache"]);
        // Nothing is counted until it is told to.
        arguments.extend(["--delay=-1", &control, "-p", &pids, "-o", &data]);
        guard.spawn(&self.name, &self.perf, &arguments, &environment())
    }

    /// The report, or what it failed with.
    fn report(&self, guard: &mut Guard) -> Result<Result<String, String>, ClusterError> {
        let data = self.file("data");
        let mut arguments = vec!["report", "--stdio", "--no-children", "-i", &data];
        arguments.extend(["-F", "sample,symbol", "-t", "\t"]);
        // In the background, since what a program prints is told whole only in its log.
        let name = format!("{}-report", self.name);
        guard.spawn(&name, &self.perf, &arguments, &environment())?;
        let output = guard.reap(&name, PATIENCE)?;
        let log = guard.program_log(&name);
        if !output.success {
            return Ok(Err(output.tail));
        }
        read_small(&log, REPORT_BYTES).map(Ok).map_err(ClusterError::io("read", &log))
    }

    /// Why perf did not begin.
    fn give_up(self, guard: &mut Guard) -> Result<NoProfile, ClusterError> {
        let output = guard.reap(&self.name, Duration::ZERO)?;
        guard.run(Path::new("rm"), &["-r", &self.directory.to_string_lossy()])?;
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
        let paranoid = paranoid.ok().and_then(|text| text.trim().parse().ok());
        Ok(match paranoid {
            // 3 and 4 are those of distributions' kernels.
            Some(paranoid) if paranoid > 2 => NoProfile::Forbidden { paranoid },
            _ => NoProfile::Failed(format!("{}: {}", output.status, last_words(&output.tail))),
        })
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_string_lossy().into_owned()
    }
}

/// Tells perf to begin and waits until it says that it did; false when it ended instead, or was
/// silent for too long.
fn is_recording(pid: i32, control: &Path, answer: &Path) -> io::Result<bool> {
    // Opened for both directions, neither waits for perf to open its end.
    let open = |path| -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        File::options().read(true).write(true).custom_flags(flags.bits()).open(path)
    };
    let mut control = open(control)?;
    let answer = open(answer)?;
    let perf = Pid::from_raw(pid).expect("a pid is positive");
    let perf = match pidfd_open(perf, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        fd => fd?,
    };
    control.write_all(b"enable\n")?;
    let mut fds = [PollFd::new(&answer, PollFlags::IN), PollFd::new(&perf, PollFlags::IN)];
    poll(&mut fds, Timespec::try_from(PATIENCE).ok().as_ref())?;
    Ok(fds[0].revents().contains(PollFlags::IN))
}

/// perf must not ask the network for symbols.
fn environment() -> BTreeMap<String, String> {
    [("DEBUGINFOD_URLS".to_owned(), String::new())].into()
}

fn is_there(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
