//! The verdicts of `pgtoll measure --against` about two servers whose difference is known: the same build in
//! two directories, or one with a planted cost. Many runs, one after the other.
//!
//! `cargo xtask bench servers` runs it. A run that ended before is taken as it is, so that a bench
//! that was stopped continues. Status 0: with `--same` at most 7 % of the comparisons see a difference, without
//! it at least 80 % do; 1: not so; 2: could not tell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use pgtoll_record::trials::{
    BENCH_TWINS_SCHEMA, TwinsComparison, TwinsHeader, TwinsLine, TwinsRun, TwinsSummary,
};
use pgtoll_record::{Comparison, Metric, RunResult};
use pgtoll_trials::{Recorder, TrialSite, beside, print, program, say};

/// How often are two servers told apart?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench servers")]
struct Arguments {
    /// The baseline: a directory or a major version
    #[arg(long, value_name = "WHICH")]
    postgres: String,
    /// The other server
    #[arg(long, value_name = "WHICH")]
    against: String,
    /// Both are the same build: a difference is a miss
    #[arg(long)]
    same: bool,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seed of the first run; each has one more
    #[arg(long, value_name = "N", default_value_t = 20_261_129)]
    seed: u64,
    /// Directory of the runs' own records, which are found again
    #[arg(long, value_name = "DIR", default_value = "target/bench/servers")]
    records: PathBuf,
    /// Keep the record in this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// More options of pgtoll measure, after --
    #[arg(last = true)]
    measure: Vec<String>,
}

/// The largest share of comparisons of one build that see a difference, and the smallest of other builds.
const MISSES_MOST: f64 = 0.07;
const FOUND_LEAST: f64 = 0.8;

fn main() -> ExitCode {
    pgtoll_trials::run("bench servers", || bench(&Arguments::parse()))
}

fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let started = jiff::Timestamp::now();
    let host = TrialSite::prepare(Path::new("/var/tmp"))?.host()?;
    let mut recorder = Recorder::create(&arguments.output)?;
    fs::create_dir_all(&arguments.records).context("make the records' directory")?;
    recorder.write(&TwinsLine::Header(Box::new(TwinsHeader {
        schema: BENCH_TWINS_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        started: started.to_string(),
        host,
        multiple: 1,
        planted: std::collections::BTreeMap::new(),
    })))?;
    let mut runs = Vec::new();
    for index in 0..arguments.runs {
        let seed = arguments.seed.wrapping_add(u64::from(index));
        let run = run(seed, &result(arguments, seed)?);
        for comparison in &run.handicaps {
            let [estimate, lower, upper] =
                [comparison.ratio.estimate, comparison.ratio.lower, comparison.ratio.upper]
                    .map(|ratio| (ratio - 1.0) * 100.0);
            let workload = &comparison.workload;
            print(&format!("{seed} {workload:<24}{estimate:+6.1} % [{lower:+.1}, {upper:+.1}]\n"));
        }
        recorder.write(&TwinsLine::Run(Box::new(run.clone())))?;
        runs.push(run);
    }
    let summary = summary(&runs);
    recorder.write(&TwinsLine::Summary(summary))?;
    let TwinsSummary { twins, twins_missed, handicaps, handicaps_found, handicaps_missed, .. } =
        summary;
    say(&format!(
        "{handicaps_missed} of {handicaps} comparisons of servers see a difference, {handicaps_found} of them \
         a cost; {twins_missed} of {twins} twins miss"
    ));
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let share = |part: u64| part as f64 / handicaps.max(1) as f64;
    Ok(if arguments.same {
        share(handicaps_missed) <= MISSES_MOST
    } else {
        share(handicaps_found) >= FOUND_LEAST
    })
}

/// The result of the run with this seed, made now if it is not there.
fn result(arguments: &Arguments, seed: u64) -> anyhow::Result<RunResult> {
    let directory = arguments.records.join(seed.to_string());
    let path = directory.join("result.json");
    if !path.is_file() {
        let _ = fs::remove_dir_all(&directory);
        let status = program(beside("pgtoll")?)
            .args(["--quiet", "measure", "--postgres", &arguments.postgres])
            .args(["--against", &arguments.against, "--seed", &seed.to_string()])
            .args(&arguments.measure)
            .arg("--output")
            .arg(&directory)
            .env("XDG_STATE_HOME", arguments.records.join("no-state").join(seed.to_string()))
            .stdout(std::process::Stdio::null())
            .status()
            .context("run pgtoll measure")?;
        if !status.success() {
            bail!("pgtoll measure: {status}");
        }
    }
    let text = fs::read_to_string(&path).context("read the result")?;
    let result: RunResult = serde_json::from_str(&text).context("read the result")?;
    if !result.complete {
        bail!("{} is the result of a run that was interrupted: remove it", path.display());
    }
    Ok(result)
}

/// Server CPU of a run: the twin against the baseline, and the other server against it.
fn run(seed: u64, result: &RunResult) -> TwinsRun {
    let is_cpu = |comparison: &&Comparison| {
        matches!(comparison.metric, Metric::CpuPerTransaction | Metric::CpuPerOperation)
    };
    let of_kind = |is_null: bool| {
        let own = result.comparisons.iter().filter(is_cpu);
        own.filter(|comparison| comparison.null == is_null).map(compared).collect()
    };
    let server = result.header.server.version.to_string();
    TwinsRun { seed, server, noise: result.noise, twins: of_kind(true), handicaps: of_kind(false) }
}

/// As it was printed; missed: it does not hold 1.
fn compared(comparison: &Comparison) -> TwinsComparison {
    let ratio = comparison.ratio;
    TwinsComparison {
        workload: comparison.workload.clone(),
        arm: comparison.arm.clone(),
        metric: comparison.metric,
        ratio,
        missed: ratio.lower > 1.0 || ratio.upper < 1.0,
    }
}

fn summary(runs: &[TwinsRun]) -> TwinsSummary {
    let twins = || runs.iter().flat_map(|run| &run.twins);
    let handicaps = || runs.iter().flat_map(|run| &run.handicaps);
    let missed = |comparison: &&TwinsComparison| comparison.missed;
    TwinsSummary {
        runs: runs.len() as u64,
        twins: twins().count() as u64,
        twins_missed: twins().filter(missed).count() as u64,
        handicaps: handicaps().count() as u64,
        handicaps_found: handicaps().filter(|found| found.ratio.lower > 1.0).count() as u64,
        handicaps_missed: handicaps().filter(missed).count() as u64,
    }
}

/// The command that repeats it.
fn command(arguments: &Arguments) -> String {
    let Arguments { postgres, against, runs, seed, measure, .. } = arguments;
    let same = if arguments.same { " --same" } else { "" };
    format!(
        "cargo xtask bench servers --postgres {postgres} --against {against}{same} --runs {runs} --seed {seed} -- {}",
        measure.join(" ")
    )
}
