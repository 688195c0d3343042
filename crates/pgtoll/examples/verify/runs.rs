//! What is timed, and how long it takes.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;

use crate::make::Subject;

/// A way to read a cluster's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arm {
    /// `pg_checksums --check`.
    Checksums,
    /// pgtoll, one job.
    Read,
    /// The same with files mapped.
    Mapped,
    /// Two jobs.
    TwoJobs,
    /// Two jobs with files mapped.
    TwoJobsMapped,
    /// `cat`, nothing being in the cache.
    ColdCat,
    /// `pg_checksums --check`, nothing being in the cache.
    ColdChecksums,
    /// pgtoll as it is started by itself, nothing being in the cache.
    Cold,
    /// The other pgtoll (`--before`), one job.
    Before,
    /// The other pgtoll, two jobs.
    BeforeTwoJobs,
}

impl Arm {
    pub(crate) const ALL: [Self; 10] = [
        Self::Checksums,
        Self::Read,
        Self::Mapped,
        Self::TwoJobs,
        Self::TwoJobsMapped,
        Self::ColdCat,
        Self::ColdChecksums,
        Self::Cold,
        Self::Before,
        Self::BeforeTwoJobs,
    ];

    /// Whether the other pgtoll is timed.
    pub(crate) fn is_before(self) -> bool {
        matches!(self, Self::Before | Self::BeforeTwoJobs)
    }

    fn is_cold(self) -> bool {
        matches!(self, Self::ColdCat | Self::ColdChecksums | Self::Cold)
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Read | Self::Before => &["--jobs", "1"],
            Self::Mapped => &["--jobs", "1", "--mmap"],
            Self::TwoJobs | Self::BeforeTwoJobs => &["--jobs", "2"],
            Self::TwoJobsMapped => &["--jobs", "2", "--mmap"],
            _ => &[],
        }
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit comes last")]
pub(crate) struct Usage {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    pub(crate) wall_s: f64,
}

impl Usage {
    pub(crate) fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// pgtoll, which lies above this program.
pub(crate) fn pgtoll() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    let directory = own.parent().and_then(|examples| examples.parent());
    let found = directory.map(|directory| directory.join("pgtoll"));
    let found = found.filter(|path| path.is_file());
    found.context("pgtoll is not built: run cargo xtask bench verify")
}

/// The programs that are compared.
pub(crate) struct Programs {
    pub(crate) pgtoll: PathBuf,
    /// Another pgtoll, to be compared with this one.
    pub(crate) before: Option<PathBuf>,
}

impl Programs {
    /// What can be run: without another pgtoll, not its arms.
    pub(crate) fn arms(&self) -> Vec<Arm> {
        let is_there = |arm: &Arm| self.before.is_some() || !arm.is_before();
        Arm::ALL.into_iter().filter(is_there).collect()
    }
}

/// One timed run, of a cluster that is in the page cache, or not at all.
pub(crate) fn run(arm: Arm, subject: &Subject, programs: &Programs) -> anyhow::Result<Usage> {
    let mut command = match arm {
        Arm::Checksums | Arm::ColdChecksums => {
            let mut command = program(&subject.checksums);
            command.arg("--check").arg("--pgdata").arg(&subject.data);
            command
        }
        Arm::ColdCat => {
            let mut command = program("cat");
            command.args(&subject.files);
            command
        }
        _ => {
            let other = programs.before.as_ref().filter(|_| arm.is_before());
            let mut command = program(other.unwrap_or(&programs.pgtoll));
            command.arg("verify").arg(&subject.data).args(arm.options());
            command
        }
    };
    command.stdout(Stdio::null());
    if arm.is_cold() { subject.cool() } else { subject.warm() }?;
    // This process starts nothing else meanwhile, and its guard is not reaped.
    let (before, began) = (cpu()?, Instant::now());
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    let (wall_s, after) = (began.elapsed().as_secs_f64(), cpu()?);
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(Usage { user_s: after.0 - before.0, system_s: after.1 - before.1, wall_s })
}

#[expect(clippy::disallowed_methods, reason = "a bench starts what a developer would start")]
fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env("LC_ALL", "C");
    command
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
