//! Predictions of `pgtoll wal whatif` beside the truth: servers do the same work under different
//! settings, and from the WAL of each run the others are predicted.
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
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::WhatIfTrialKind as Kind;
use pgtoll_record::trials::{
    WHATIF_TRIAL_SCHEMA, WhatIfTrialCompression, WhatIfTrialHeader, WhatIfTrialLine,
    WhatIfTrialPrediction, WhatIfTrialSetting, WhatIfTrialWorkload,
};
use pgtoll_system::Interrupt;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};
use serde::{Deserialize, Serialize};

use crate::work::Run;

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
    #[arg(long, value_name = "WORK", value_delimiter = ',', value_parser = workloads())]
    work: Vec<WhatIfTrialWorkload>,
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

/// The values of `--work`.
fn workloads() -> impl TypedValueParser<Value = WhatIfTrialWorkload> {
    let values = WORKLOADS.map(|(_, value, help)| PossibleValue::new(value).help(help));
    PossibleValuesParser::new(values).try_map(|value| {
        let found = WORKLOADS.iter().find(|(_, name, _)| *name == value);
        found.map(|(workload, ..)| *workload).ok_or("no such work")
    })
}

const WORKLOADS: [(WhatIfTrialWorkload, &str, &str); 4] = [
    (WhatIfTrialWorkload::Pgbench, "pgbench", "pgbench's own transactions"),
    (
        WhatIfTrialWorkload::Mix,
        "mix",
        "Updates of few rows above all, inserts with a random key, reads",
    ),
    (
        WhatIfTrialWorkload::LateHints,
        "late-hints",
        "The same without waiting for commits, and with few shared buffers: hints come late",
    ),
    (
        WhatIfTrialWorkload::Load,
        "load",
        "Loads of tables, then their indexes, then an update and a vacuum",
    ),
];

fn main() -> ExitCode {
    pgtoll_trials::run("whatif-trial", || trial(&Arguments::parse()))
}

fn trial(arguments: &Arguments) -> anyhow::Result<bool> {
    if let (Some(book), Some(record)) = (&arguments.book, &arguments.record) {
        table::into_book(record, book)?;
        return Ok(true);
    }
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let header = WhatIfTrialHeader {
        schema: WHATIF_TRIAL_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask whatif-trial --transactions {} --postgres {}",
            arguments.transactions,
            arguments.postgres.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: site.host()?,
        transactions: arguments.transactions,
    };
    recorder.write(&WhatIfTrialLine::Header(Box::new(header)))?;
    let mut all = Vec::new();
    let mut predict = |done: &Done| -> anyhow::Result<()> {
        for prediction in predictions(done)? {
            recorder.write(&WhatIfTrialLine::Prediction(prediction.clone()))?;
            all.push(prediction);
        }
        Ok(())
    };
    match &arguments.kept {
        Some(kept) => kept_runs(kept)?.iter().try_for_each(&mut predict)?,
        None => run_all(arguments, &site, &mut predict)?,
    }
    print(&table::markdown(&all));
    Ok(table::reached(&all))
}

/// All runs of one work on one server.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    server: String,
    workload: WhatIfTrialWorkload,
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
    site: &TrialSite,
    predict: &mut dyn FnMut(&Done) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for which in &arguments.postgres {
        let installation = installation(which)?;
        let is_wanted = |workload: &WhatIfTrialWorkload| {
            arguments.work.is_empty() || arguments.work.contains(workload)
        };
        for workload in WhatIfTrialWorkload::ALL.into_iter().filter(is_wanted) {
            let mut guard = site.begin_guard()?;
            let base = &site.guard.base;
            let temporary = tempfile::Builder::new().prefix("whatif-").tempdir_in(base)?;
            let name = format!("{}-{}", installation.version, work::name(workload));
            let name = name.replace(' ', "-");
            let directory = arguments.keep.as_ref().map(|keep| keep.join(name));
            let directory = directory.unwrap_or_else(|| temporary.path().to_owned());
            let done =
                run(arguments, workload, &installation, &mut guard, &directory, &site.interrupt)?;
            guard.finish()?;
            predict(&done)?;
        }
    }
    Ok(())
}

fn run(
    arguments: &Arguments,
    workload: WhatIfTrialWorkload,
    installation: &Installation,
    guard: &mut Guard,
    directory: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Done> {
    let loaded = work::loaded(workload, installation, guard)?;
    let mut runs = Vec::new();
    for (number, setting) in settings(installation).into_iter().enumerate() {
        interrupt.check()?;
        say(&format!(
            "{}, {}: {}",
            installation.version,
            work::name(workload),
            table::name(&setting)
        ));
        let into = directory.join(number.to_string());
        runs.push(work::run(workload, setting, arguments.transactions, &loaded, guard, &into)?);
    }
    let done = Done { server: installation.version.to_string(), workload, runs };
    std::fs::write(directory.join(RUNS), serde_json::to_vec(&done)?).context("list the runs")?;
    Ok(done)
}

/// Distances with hints, then without, then compressions.
fn settings(installation: &Installation) -> Vec<WhatIfTrialSetting> {
    let setting = |max_wal_size_mb, hints, compression| WhatIfTrialSetting {
        max_wal_size_mb,
        hints,
        compression,
    };
    let mut settings: Vec<WhatIfTrialSetting> =
        SIZES_MB.map(|size| setting(size, true, WhatIfTrialCompression::Off)).to_vec();
    settings.extend([64, 4096].map(|size| setting(size, false, WhatIfTrialCompression::Off)));
    settings.push(setting(64, true, WhatIfTrialCompression::Pglz));
    // Servers from wheels are built without the others.
    if !installation.bin.starts_with("/var/cache") {
        settings.extend(
            [WhatIfTrialCompression::Lz4, WhatIfTrialCompression::Zstd]
                .map(|kind| setting(64, true, kind)),
        );
    }
    settings
}

const SIZES_MB: [u64; 4] = [64, 128, 256, 4096];

/// Predicts every run from every other that says something about it.
fn predictions(done: &Done) -> anyhow::Result<Vec<WhatIfTrialPrediction>> {
    let Done { server, workload, runs } = done;
    let mut predictions = Vec::new();
    for source in runs.iter().filter(|run| run.setting.compression == WhatIfTrialCompression::Off) {
        let targets: Vec<(Kind, &Run)> = runs
            .iter()
            .filter_map(|run| Some((kind(&source.setting, &run.setting)?, run)))
            .collect();
        let settings: Vec<WhatIfTrialSetting> =
            targets.iter().map(|(_, run)| run.setting).collect();
        let answer = predict::predict(source, &settings, true)?;
        let own = std::iter::once((Kind::OwnRedoPoints, source));
        for ((kind, target), outcome) in own.chain(targets).zip(&answer.outcomes) {
            predictions.push(WhatIfTrialPrediction {
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

/// `None`: a question without practical use.
fn kind(source: &WhatIfTrialSetting, target: &WhatIfTrialSetting) -> Option<Kind> {
    if target.compression != WhatIfTrialCompression::Off {
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
