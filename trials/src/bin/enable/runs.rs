//! The timed runs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation};
use pgtoll_record::trials::BenchUsage;
use pgtoll_trials::bench::TimedArm;
use pgtoll_trials::{beside, program, timed, warm};

/// A way to bring checksums, or as many bytes, to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    TheirsNoSync,
    OneJobNoSync,
    TwoJobsNoSync,
    Theirs,
    OneJob,
    TwoJobs,
    /// The same number of bytes, one after the other, over a file that is there.
    PlainWrite,
    /// The other pgtoll (`--before`).
    BeforeOneJobNoSync,
    BeforeTwoJobs,
}

impl TimedArm for Arm {
    const ALL: &'static [Self] = &[
        Self::TheirsNoSync,
        Self::OneJobNoSync,
        Self::TwoJobsNoSync,
        Self::Theirs,
        Self::OneJob,
        Self::TwoJobs,
        Self::PlainWrite,
        Self::BeforeOneJobNoSync,
        Self::BeforeTwoJobs,
    ];

    fn key(self) -> &'static str {
        match self {
            Self::TheirsNoSync => "theirs_no_sync",
            Self::OneJobNoSync => "one_job_no_sync",
            Self::TwoJobsNoSync => "two_jobs_no_sync",
            Self::Theirs => "theirs",
            Self::OneJob => "one_job",
            Self::TwoJobs => "two_jobs",
            Self::PlainWrite => "plain_write",
            Self::BeforeOneJobNoSync => "before_one_job_no_sync",
            Self::BeforeTwoJobs => "before_two_jobs",
        }
    }

    fn is_before(self) -> bool {
        matches!(self, Self::BeforeOneJobNoSync | Self::BeforeTwoJobs)
    }
}

impl Arm {
    /// The arm's name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TheirsNoSync => "pg_checksums --enable --no-sync",
            Self::OneJobNoSync => "pgtoll, one job, --no-sync",
            Self::TwoJobsNoSync => "pgtoll, two jobs, --no-sync",
            Self::Theirs => "pg_checksums --enable",
            Self::OneJob => "pgtoll, one job",
            Self::TwoJobs => "pgtoll, two jobs",
            Self::PlainWrite => "dd of as many bytes, with fsync",
            Self::BeforeOneJobNoSync => "the pgtoll before, one job, --no-sync",
            Self::BeforeTwoJobs => "the pgtoll before, two jobs",
        }
    }
}

/// The programs that are compared, and the cluster that is copied for them.
pub(crate) struct Programs<'a> {
    pg_checksums: PathBuf,
    pgtoll: PathBuf,
    /// Another pgtoll, to be compared with this one.
    before: Option<PathBuf>,
    cluster: &'a Cluster,
    /// The file that `dd` writes over.
    plain: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

const MIB: u64 = 1 << 20;

impl<'a> Programs<'a> {
    /// pgtoll lies in the directory above this program's.
    pub(crate) fn new(
        installation: &Installation,
        cluster: &'a Cluster,
        base: &Path,
        before: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let pgtoll = beside("pgtoll")?;
        let files = cluster.relation_files()?;
        let mut bytes = 0;
        for file in &files {
            bytes += std::fs::metadata(file).context("look at the cluster")?.len();
        }
        let pg_checksums = installation.program("pg_checksums")?;
        let plain = base.join("plain");
        let files = files.len();
        let programs = Self { pg_checksums, pgtoll, before, cluster, plain, bytes, files };
        timed(&mut programs.command(Arm::PlainWrite, Path::new("")))?;
        Ok(programs)
    }

    /// One timed run, of a fresh copy.
    pub(crate) fn run(&self, arm: Arm, guard: &mut Guard) -> anyhow::Result<BenchUsage> {
        if arm == Arm::PlainWrite {
            return timed(&mut self.command(arm, Path::new("")));
        }
        let copy = self.cluster.copy(guard, "copy")?;
        for file in copy.relation_files()? {
            let synced = File::open(&file).and_then(|file| file.sync_all());
            synced.with_context(|| format!("sync {}", file.display()))?;
        }
        // As after reading, not as after copying: what was just copied is cheaper to write.
        copy.evict()?;
        for file in copy.relation_files()? {
            warm(&file).with_context(|| format!("read {}", file.display()))?;
        }
        let usage = timed(&mut self.command(arm, &copy.data()))?;
        copy.remove(guard)?;
        Ok(usage)
    }

    fn command(&self, arm: Arm, data: &Path) -> Command {
        let mut command = match arm {
            Arm::Theirs | Arm::TheirsNoSync => program(&self.pg_checksums),
            Arm::PlainWrite => program(Path::new("dd")),
            _ => program(self.before.as_ref().filter(|_| arm.is_before()).unwrap_or(&self.pgtoll)),
        };
        match arm {
            Arm::TheirsNoSync => command.args(["--enable", "--no-sync", "-D"]),
            Arm::Theirs => command.args(["--enable", "-D"]),
            Arm::OneJobNoSync | Arm::BeforeOneJobNoSync => {
                command.args(["enable", "--no-sync", "--jobs", "1"])
            }
            Arm::TwoJobsNoSync => command.args(["enable", "--no-sync", "--jobs", "2"]),
            Arm::OneJob => command.args(["enable", "--jobs", "1"]),
            Arm::TwoJobs | Arm::BeforeTwoJobs => command.args(["enable", "--jobs", "2"]),
            Arm::PlainWrite => command
                .args(["if=/dev/zero", "bs=1M", "conv=fsync,notrunc"])
                .arg(format!("of={}", self.plain.display()))
                .arg(format!("count={}", self.bytes.div_ceil(MIB))),
        };
        if arm != Arm::PlainWrite {
            command.arg(data);
        }
        command
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        // It lies in the guard's directory, which goes too.
        let _ = std::fs::remove_file(&self.plain);
    }
}
