//! How right `pgtoll wal whatif` is: servers do the same work under different settings, and from
//! the WAL of each run the others are predicted.
//!
//! `cargo xtask whatif-trial` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod predict;
mod table;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Guard, GuardOptions, Installation, ServerUser};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::Host;
use pgtoll_trials::{Recorder, print, say};
use serde::{Deserialize, Serialize};

use crate::work::{Run, Setting, WalCompression, Workload};

/// How right are predictions of WAL?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask whatif-trial")]
struct Arguments {
    /// Transactions of each run
    #[arg(long, value_name = "N", default_value_t = 120_000)]
    transactions: u32,
    /// The servers: directories or major versions
    #[arg(long, value_name = "WHICH", default_value = "15,18", value_delimiter = ',')]
    postgres: Vec<String>,
    /// What they do; all if it is not said
    #[arg(long, value_name = "WORK", value_delimiter = ',')]
    work: Vec<Workload>,
    /// Where the clusters are made; 10 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Leave the WAL of all runs in this directory; 20 GB a server
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run nothing: predict from the WAL that --keep has left
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    kept: Option<PathBuf>,
    /// Keep every run and prediction in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Put the table of a record (--record) into this chapter, and run nothing
    #[arg(long, value_name = "FILE", requires = "record")]
    book: Option<PathBuf>,
}

const SCHEMA: &str = "pgtoll.whatif-trial/1";

/// A line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum Line {
    Header(Box<Header>),
    Prediction(Prediction),
}

/// What was run, where, with what.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    schema: String,
    pgtoll: String,
    command: String,
    /// RFC 3339.
    started: String,
    host: Host,
    transactions: u32,
}

/// What a prediction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// The source's own redo points, replayed.
    OwnRedoPoints,
    /// The source's own settings, as a rule.
    Own,
    /// A longer distance.
    Longer,
    /// A shorter one, hints not logged.
    ShorterWithoutHints,
    /// A shorter one, hints logged.
    Shorter,
    /// Hints not logged, from a source that logs them.
    HintsOff,
    /// Images compressed, from a source that does not.
    Compressed,
}

/// A prediction beside what a server really wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Prediction {
    server: String,
    workload: Workload,
    kind: Kind,
    source: Setting,
    target: Setting,
    source_bytes: u64,
    predicted_bytes: u64,
    actual_bytes: u64,
    predicted_checkpoints: u64,
    /// Of the source.
    redo_points: u64,
    absent: u64,
    unpredicted: u64,
}

impl Prediction {
    /// By how much it is wrong.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
    fn error(&self) -> f64 {
        self.predicted_bytes as f64 / self.actual_bytes.max(1) as f64 - 1.0
    }
}

fn main() -> ExitCode {
    pgtoll_trials::run("whatif-trial", || trial(&Arguments::parse()))
}

fn trial(arguments: &Arguments) -> anyhow::Result<bool> {
    if let (Some(book), Some(record)) = (&arguments.book, &arguments.record) {
        table::into_book(record, book)?;
        return Ok(true);
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let base = std::fs::canonicalize(&arguments.work_dir);
    let base = base.with_context(|| format!("find {}", arguments.work_dir.display()))?;
    let mut recorder = Recorder::create(arguments.record.as_deref())?;
    let header = Header {
        schema: SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask whatif-trial --transactions {} --postgres {}",
            arguments.transactions,
            arguments.postgres.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: pgtoll_bench::host(&base)?,
        transactions: arguments.transactions,
    };
    recorder.write(&Line::Header(Box::new(header)))?;
    let mut all = Vec::new();
    let mut predict = |done: &Done| -> anyhow::Result<()> {
        for prediction in predictions(done)? {
            recorder.write(&Line::Prediction(prediction.clone()))?;
            all.push(prediction);
        }
        Ok(())
    };
    match &arguments.kept {
        Some(kept) => kept_runs(kept)?.iter().try_for_each(&mut predict)?,
        None => run_all(arguments, &base, &interrupt, &mut predict)?,
    }
    print(&table::markdown(&all));
    Ok(table::reached(&all))
}

/// All runs of one work on one server.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    server: String,
    workload: Workload,
    runs: Vec<Run>,
}

const RUNS: &str = "runs.json";

/// Those that an earlier trial has left.
fn kept_runs(kept: &Path) -> anyhow::Result<Vec<Done>> {
    let list = std::fs::read_dir(kept).with_context(|| format!("list {}", kept.display()))?;
    let mut files: Vec<PathBuf> =
        list.map(|entry| Ok(entry?.path().join(RUNS))).collect::<std::io::Result<_>>()?;
    files.sort();
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file)?;
        anyhow::Ok(serde_json::from_str(&text)?)
    };
    files
        .iter()
        .map(|file| read(file).with_context(|| format!("read {}", file.display())))
        .collect()
}

/// Every work on every server; the WAL is gone when its predictions are made, unless it is kept.
fn run_all(
    arguments: &Arguments,
    base: &Path,
    interrupt: &Interrupt,
    predict: &mut dyn FnMut(&Done) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for which in &arguments.postgres {
        let installation = Installation::find(Some(which))?;
        let installation = installation.with_context(|| format!("find PostgreSQL {which}"))?;
        let is_asked = |of: &Workload| arguments.work.is_empty() || arguments.work.contains(of);
        for workload in Workload::ALL.into_iter().filter(is_asked) {
            let options = GuardOptions::of_this_program(base.to_owned(), ServerUser::choose()?);
            let mut guard = Guard::begin(&options, interrupt)?;
            let temporary = tempfile::Builder::new().prefix("whatif-").tempdir_in(base)?;
            let name = format!("{}-{}", installation.version, workload.name().replace(' ', "-"));
            let directory = arguments.keep.as_ref().map(|keep| keep.join(name));
            let directory = directory.unwrap_or_else(|| temporary.path().to_owned());
            let done = run(arguments, workload, &installation, &mut guard, &directory, interrupt)?;
            guard.finish()?;
            predict(&done)?;
        }
    }
    Ok(())
}

fn run(
    arguments: &Arguments,
    workload: Workload,
    installation: &Installation,
    guard: &mut Guard,
    directory: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Done> {
    let loaded = work::loaded(workload, installation, guard)?;
    let mut runs = Vec::new();
    for (number, setting) in settings(installation).into_iter().enumerate() {
        interrupt.check()?;
        say(&format!("{}, {}: {}", installation.version, workload.name(), table::name(&setting)));
        let into = directory.join(number.to_string());
        runs.push(work::run(workload, setting, arguments.transactions, &loaded, guard, &into)?);
    }
    let done = Done { server: installation.version.to_string(), workload, runs };
    std::fs::write(directory.join(RUNS), serde_json::to_vec(&done)?).context("list the runs")?;
    Ok(done)
}

/// Distances with hints, then without, then compressions.
fn settings(installation: &Installation) -> Vec<Setting> {
    let of = |max_wal_size_mb, hints, compression| Setting { max_wal_size_mb, hints, compression };
    let mut settings: Vec<Setting> =
        SIZES_MB.map(|size| of(size, true, WalCompression::Off)).to_vec();
    settings.extend([64, 4096].map(|size| of(size, false, WalCompression::Off)));
    settings.push(of(64, true, WalCompression::Pglz));
    // Servers from wheels are built without the others.
    if !installation.bin.starts_with("/var/cache") {
        settings.extend([WalCompression::Lz4, WalCompression::Zstd].map(|kind| of(64, true, kind)));
    }
    settings
}

const SIZES_MB: [u64; 4] = [64, 128, 256, 4096];

/// Every run from every other that can tell something of it.
fn predictions(done: &Done) -> anyhow::Result<Vec<Prediction>> {
    let Done { server, workload, runs } = done;
    let mut predictions = Vec::new();
    for source in runs.iter().filter(|run| run.setting.compression == WalCompression::Off) {
        let targets: Vec<(Kind, &Run)> = runs
            .iter()
            .filter_map(|run| Some((kind(&source.setting, &run.setting)?, run)))
            .collect();
        let settings: Vec<Setting> = targets.iter().map(|(_, run)| run.setting).collect();
        let answer = predict::predict(source, &settings, true)?;
        let own = std::iter::once((Kind::OwnRedoPoints, source));
        for ((kind, target), outcome) in own.chain(targets).zip(&answer.outcomes) {
            predictions.push(Prediction {
                server: server.clone(),
                workload: *workload,
                kind,
                source: source.setting,
                target: target.setting,
                source_bytes: source.bytes(),
                predicted_bytes: outcome.bytes,
                actual_bytes: target.bytes(),
                predicted_checkpoints: outcome.by_volume + outcome.by_time + outcome.forced,
                redo_points: answer.redo_points.len() as u64,
                absent: answer.check.absent,
                unpredicted: answer.check.unpredicted,
            });
        }
    }
    Ok(predictions)
}

/// `None`: nobody would ask.
fn kind(source: &Setting, target: &Setting) -> Option<Kind> {
    if target.compression != WalCompression::Off {
        let is_same =
            (source.max_wal_size_mb, source.hints) == (target.max_wal_size_mb, target.hints);
        return is_same.then_some(Kind::Compressed);
    }
    match (source.hints, target.hints) {
        (true, false) => {
            (source.max_wal_size_mb <= target.max_wal_size_mb).then_some(Kind::HintsOff)
        }
        (false, true) => None,
        (_, hints) => Some(match source.max_wal_size_mb.cmp(&target.max_wal_size_mb) {
            std::cmp::Ordering::Equal => Kind::Own,
            std::cmp::Ordering::Less => Kind::Longer,
            std::cmp::Ordering::Greater if hints => Kind::Shorter,
            std::cmp::Ordering::Greater => Kind::ShorterWithoutHints,
        }),
    }
}
