//! What is timed, and how long it takes.

use std::path::PathBuf;

use pgtoll_trials::{Usage, program, timed};
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
    if arm.is_cold() { subject.cool() } else { subject.warm() }?;
    timed(&mut command)
}
