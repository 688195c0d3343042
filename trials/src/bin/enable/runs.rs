//! What is timed, and how long it takes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation};
use pgtoll_trials::{Usage, beside, program, timed, warm};
use serde::Serialize;

/// A way to bring checksums, or as many bytes, to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

impl Arm {
    pub(crate) const ALL: [Self; 9] = [
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

    /// Whether the other pgtoll is timed.
    fn is_before(self) -> bool {
        matches!(self, Self::BeforeOneJobNoSync | Self::BeforeTwoJobs)
    }

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

/// The programs, and the cluster that is copied for them.
pub(crate) struct Subject<'a> {
    pg_checksums: PathBuf,
    pgtoll: PathBuf,
    /// Another pgtoll, to be compared with this one.
    before: Option<PathBuf>,
    cluster: &'a Cluster,
    /// What `dd` writes over.
    plain: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

const MIB: u64 = 1 << 20;

impl<'a> Subject<'a> {
    /// pgtoll lies in the directory above this program's.
    pub(crate) fn of(
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
        let (pg_checksums, plain) = (installation.program("pg_checksums")?, base.join("plain"));
        let files = files.len();
        let subject = Self { pg_checksums, pgtoll, before, cluster, plain, bytes, files };
        timed(&mut subject.command(Arm::PlainWrite, Path::new("")))?;
        Ok(subject)
    }

    /// What can be run: without another pgtoll, not its arms.
    pub(crate) fn arms(&self) -> Vec<Arm> {
        let is_there = |arm: &Arm| self.before.is_some() || !arm.is_before();
        Arm::ALL.into_iter().filter(is_there).collect()
    }

    /// One timed run, of a fresh copy.
    pub(crate) fn run(&self, arm: Arm, guard: &mut Guard) -> anyhow::Result<Usage> {
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

impl Drop for Subject<'_> {
    fn drop(&mut self) {
        // It lies in the guard's directory, which goes too.
        let _ = std::fs::remove_file(&self.plain);
    }
}
