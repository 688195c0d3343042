//! Programs that are timed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use pgtoll_record::trials::BenchUsage;
use serde::{Deserialize, Serialize};

/// A program of the same build as this one: cargo puts both into one directory.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let found = std::env::current_exe().context("find this program")?.with_file_name(name);
    if !found.is_file() {
        bail!("{} is missing: start this by cargo xtask, which builds it", found.display());
    }
    Ok(found)
}

/// A command that reads nothing and speaks English.
#[expect(clippy::disallowed_methods, reason = "a bench starts what a developer would start")]
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env("LC_ALL", "C");
    command
}

/// Runs a command and returns the time that it took; a status other than 0 is an error. Nothing else that
/// this process started may end meanwhile.
pub fn timed(command: &mut Command) -> anyhow::Result<BenchUsage> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let before = cpu()?;
    let began = Instant::now();
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let wall_s = began.elapsed().as_secs_f64();
    let after = cpu()?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(BenchUsage { user_s: after.0 - before.0, system_s: after.1 - before.1, wall_s })
}

/// What a program took, and what it printed.
#[derive(Debug)]
pub struct Measured {
    /// Its time.
    pub usage: BenchUsage,
    /// Its largest resident size, in kB.
    pub peak_kb: u64,
    /// What it printed.
    pub stdout: Vec<u8>,
}

/// Time and memory of the only child of a process.
#[derive(Debug, Serialize, Deserialize)]
struct ChildUsage {
    usage: BenchUsage,
    peak_kb: u64,
}

/// Runs a program with these arguments and variables; a status other than 0 is an error. A process in
/// between measures it, since the kernel has the largest size of all children together.
pub fn measured(
    path: &Path,
    arguments: &[&str],
    variables: &[(&str, String)],
) -> anyhow::Result<Measured> {
    let own = std::env::current_exe().context("find this program")?;
    let mut command = program(own);
    command.arg(MEASURE).arg(path).args(arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {message}", path.display());
    }
    let ChildUsage { usage, peak_kb } =
        serde_json::from_str(&message).context("read what it took")?;
    Ok(Measured { usage, peak_kb, stdout: output.stdout })
}

/// The process in between: runs what its arguments are; what that took, to be told.
pub(crate) fn measure(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<String> {
    let mut arguments = arguments;
    let path = arguments.next().context("no program")?;
    let mut command = program(path);
    command.args(arguments).stdout(Stdio::inherit()).stderr(Stdio::piped());
    let began = Instant::now();
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let wall_s = began.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let (user_s, system_s) = cpu()?;
    let most = getrusage(UsageWho::RUSAGE_CHILDREN).context("get the children's usage")?.max_rss();
    let usage = BenchUsage { user_s, system_s, wall_s };
    Ok(serde_json::to_string(&ChildUsage { usage, peak_kb: u64::try_from(most)? })?)
}

/// What the process in between is started with.
pub(crate) const MEASURE: &str = "__measure";

/// CPU of the children that have ended, in user mode and in the kernel.
fn cpu() -> anyhow::Result<(f64, f64)> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("get the children's usage")?;
    let seconds = |time: TimeVal| {
        #[expect(clippy::cast_precision_loss, reason = "seconds are few")]
        let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds
    };
    Ok((seconds(usage.user_time()), seconds(usage.system_time())))
}

/// Reads a file into the page cache.
pub fn warm(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}
