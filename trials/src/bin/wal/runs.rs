//! The timed runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use pgtoll_cluster::Installation;
use pgtoll_record::trials::{BenchPeak, BenchUsage, BenchWalTotal};
use pgtoll_trials::bench::TimedArm;
use pgtoll_trials::{beside, program, timed, warm};

use crate::make::Wal;

/// A way to read WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// `pg_waldump --stats`.
    Stats,
    /// `pg_waldump`, a line for each record, to nowhere.
    Text,
    /// pgtoll on one thread.
    Sums,
    /// The same without relations and causes, which is what `--stats` has.
    Plain,
    /// pgtoll on two threads.
    TwoThreads,
    /// The other pgtoll (`--before`) on one thread.
    Before,
}

impl TimedArm for Arm {
    const ALL: &'static [Self] =
        &[Self::Stats, Self::Text, Self::Sums, Self::Plain, Self::TwoThreads, Self::Before];

    fn key(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Text => "text",
            Self::Sums => "sums",
            Self::Plain => "plain",
            Self::TwoThreads => "two_threads",
            Self::Before => "before",
        }
    }

    fn is_before(self) -> bool {
        self == Self::Before
    }
}

impl Arm {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Stats => &["--stats"],
            Self::Text | Self::Sums | Self::Before => &[],
            Self::Plain => &["--plain"],
            Self::TwoThreads => &["--threads", "2"],
        }
    }
}

/// The programs that are compared.
pub(crate) struct Programs {
    waldump: PathBuf,
    sums: PathBuf,
    /// Another pgtoll's `wal_sums`, to be compared with this one's.
    before: Option<PathBuf>,
}

impl Programs {
    /// pgtoll's program lies beside this one.
    pub(crate) fn find(
        installation: &Installation,
        before: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let sums = beside("wal_sums")?;
        Ok(Self { waldump: installation.program("pg_waldump")?, sums, before })
    }

    /// One timed run, of WAL that was just read, so that it is in the page cache.
    pub(crate) fn run(&self, arm: Arm, wal: &Wal) -> anyhow::Result<BenchUsage> {
        let mut command = self.command(arm, wal)?;
        for file in &wal.files {
            warm(file).with_context(|| format!("read {}", file.display()))?;
        }
        timed(&mut command)
    }

    fn command(&self, arm: Arm, wal: &Wal) -> anyhow::Result<Command> {
        if !matches!(arm, Arm::Stats | Arm::Text) {
            let other = self.before.as_ref().filter(|_| arm == Arm::Before);
            return Ok(sums(other.unwrap_or(&self.sums), arm, &wal.files));
        }
        let first = wal.files.first();
        let last = wal.files.last();
        let (first, last) = first.zip(last).context("there is no WAL")?;
        let mut command = program(&self.waldump);
        command.args(arm.options()).arg("--path").arg(first.parent().unwrap_or(Path::new("")));
        command.args([first.file_name(), last.file_name()].into_iter().flatten());
        Ok(command)
    }

    pub(crate) fn our_total(&self, wal: &Wal) -> anyhow::Result<BenchWalTotal> {
        let output = output(&mut sums(&self.sums, Arm::Sums, &wal.files))?;
        let number = |name| field(&output, name);
        Ok(BenchWalTotal {
            records: number("records")?,
            record_bytes: number("record_bytes")?,
            image_bytes: number("image_bytes")?,
        })
    }

    /// `Total   2616426   170262873 [4.73%]   3425961708 [95.27%]   3596224581 [100%]`
    pub(crate) fn their_total(&self, wal: &Wal) -> anyhow::Result<BenchWalTotal> {
        let output = output(&mut self.command(Arm::Stats, wal)?)?;
        let total = output.lines().find_map(|line| line.strip_prefix("Total ")).unwrap_or("");
        let words = total.split_whitespace().filter_map(|word| word.parse().ok());
        match *words.collect::<Vec<u64>>() {
            [records, record_bytes, image_bytes, _] => {
                Ok(BenchWalTotal { records, record_bytes, image_bytes })
            }
            _ => bail!("pg_waldump reported no total: {output}"),
        }
    }

    pub(crate) fn peak(&self, wal: &Wal) -> anyhow::Result<BenchPeak> {
        let peak = |files: &[PathBuf]| {
            field(&output(&mut sums(&self.sums, Arm::TwoThreads, files))?, "peak_memory_kb")
        };
        let quarter = &wal.files[..wal.files.len().div_ceil(4)];
        Ok(BenchPeak { quarter_kb: peak(quarter)?, whole_kb: peak(&wal.files)? })
    }
}

fn sums(program_path: &Path, arm: Arm, files: &[PathBuf]) -> Command {
    let mut command = program(program_path);
    command.args(arm.options()).args(files);
    command
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The number behind a name.
fn field(output: &str, name: &str) -> anyhow::Result<u64> {
    let mut words = output.split_whitespace();
    words.find(|word| *word == name);
    words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no {name}: {output}"))
}
