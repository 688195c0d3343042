//! The timed runs.

use std::path::PathBuf;

use pgtoll_record::trials::BenchUsage;
use pgtoll_trials::bench::TimedArm;
use pgtoll_trials::{program, timed};

use crate::make::MadeCluster;

/// A way to read a cluster's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl TimedArm for Arm {
    const ALL: &'static [Self] = &[
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

    fn key(self) -> &'static str {
        match self {
            Self::Checksums => "checksums",
            Self::Read => "read",
            Self::Mapped => "mapped",
            Self::TwoJobs => "two_jobs",
            Self::TwoJobsMapped => "two_jobs_mapped",
            Self::ColdCat => "cold_cat",
            Self::ColdChecksums => "cold_checksums",
            Self::Cold => "cold",
            Self::Before => "before",
            Self::BeforeTwoJobs => "before_two_jobs",
        }
    }

    fn is_before(self) -> bool {
        matches!(self, Self::Before | Self::BeforeTwoJobs)
    }
}

impl Arm {
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

/// One timed run, of a cluster that is in the page cache, or not at all.
pub(crate) fn run(
    arm: Arm,
    cluster: &MadeCluster,
    programs: &Programs,
) -> anyhow::Result<BenchUsage> {
    let mut command = match arm {
        Arm::Checksums | Arm::ColdChecksums => {
            let mut command = program(&cluster.checksums);
            command.arg("--check").arg("--pgdata").arg(&cluster.data);
            command
        }
        Arm::ColdCat => {
            let mut command = program("cat");
            command.args(&cluster.files);
            command
        }
        _ => {
            let other = programs.before.as_ref().filter(|_| arm.is_before());
            let mut command = program(other.unwrap_or(&programs.pgtoll));
            command.arg("verify").arg(&cluster.data).args(arm.options());
            command
        }
    };
    if arm.is_cold() { cluster.cool() } else { cluster.warm() }?;
    timed(&mut command)
}
