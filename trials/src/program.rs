//! Programs that are timed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use pgtoll_record::trials::BenchUsage;

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
    let (before, began) = (cpu()?, Instant::now());
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let (wall_s, after) = (began.elapsed().as_secs_f64(), cpu()?);
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(BenchUsage { user_s: after.0 - before.0, system_s: after.1 - before.1, wall_s })
}

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
    let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 20]);
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}
