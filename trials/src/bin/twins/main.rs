//! The share of printed intervals that miss a known truth. Many real runs of `pgtoll measure`, in
//! which every arm has a twin, so that nothing differs, and one arm has a handicap of known size.
//! every arm has a twin, so that nothing differs, and one arm has a handicap of known size.
//!
//! `cargo xtask bench twins` runs it. A run that ended before is taken as it is, so that a bench
//! that was stopped continues. Status 0: between 3 and 7 % of the twins' intervals miss, and nine
//! tenths of the handicaps are found; 1: not so; 2: could not tell.

mod runs;
mod score;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pgtoll_record::trials::{BENCH_TWINS_SCHEMA, TwinsHeader, TwinsLine};
use pgtoll_trials::{Recorder, TrialSite, print, say};

use crate::runs::Runs;

/// How often do intervals miss what is known?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench twins")]
struct Arguments {
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seed of the first run; each has one more
    #[arg(long, value_name = "N", default_value_t = 20_261_123)]
    seed: u64,
    /// The servers, taken in turn: directories or major versions
    #[arg(long, value_name = "WHICH", default_values = ["15", "17", "18"])]
    postgres: Vec<String>,
    /// Run this workload alone
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// The handicap: this many rows, or ten times as many for each read-write transaction
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Each run's time. Default: three minutes, in which every kind of workload is timed
    #[arg(long, value_name = "TIME")]
    budget: Option<String>,
    /// Where the clusters are made
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Where the runs' own records go, and are found again
    #[arg(long, value_name = "DIR", default_value = "target/bench/twins")]
    records: PathBuf,
    /// Keep the record in this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench twins", || bench(&Arguments::parse()))
}

/// Runs all, or takes those that ended before; `true` when both goals are reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let started = jiff::Timestamp::now();
    let host = TrialSite::prepare(&arguments.work_dir)?.host()?;
    let mut recorder = Recorder::create(&arguments.output)?;
    let runs = Runs::prepare(
        &arguments.records,
        &arguments.work_dir,
        runs::Case {
            workload: arguments.workload.as_deref(),
            rows: arguments.rows,
            budget: arguments.budget.as_deref(),
        },
    )?;

    say("how large is the handicap?");
    let planted =
        score::planted(&runs.result(runs::MULTIPLE, arguments.seed, &arguments.postgres[0])?)?;
    print(&table::planted(&planted));
    recorder.write(&TwinsLine::Header(Box::new(TwinsHeader {
        schema: BENCH_TWINS_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: command(arguments),
        started: started.to_string(),
        host,
        multiple: runs::MULTIPLE,
        planted: planted.clone(),
    })))?;

    let mut scored = Vec::new();
    for (index, server) in (0..arguments.runs).zip(arguments.postgres.iter().cycle()) {
        let seed = arguments.seed.wrapping_add(u64::from(index));
        say(&format!("run {} of {}: PostgreSQL {server}", index + 1, arguments.runs));
        let run = score::run(seed, &runs.result(1, seed, server)?, &planted);
        recorder.write(&TwinsLine::Run(Box::new(run.clone())))?;
        scored.push(run);
    }
    let summary = score::summary(&scored);
    recorder.write(&TwinsLine::Summary(summary))?;
    print(&table::twins_table(&scored, &summary));
    Ok(score::is_good(&summary))
}

/// The command that repeats it.
fn command(arguments: &Arguments) -> String {
    let Arguments { runs, seed, postgres, workload, rows, budget, .. } = arguments;
    let servers = postgres.join(" --postgres ");
    let option = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!(" --{name} {value}")).unwrap_or_default()
    };
    let workload = option("workload", workload);
    let budget = option("budget", budget);
    format!(
        "cargo xtask bench twins --runs {runs} --seed {seed} --postgres {servers}{workload} \
         --rows {rows}{budget}"
    )
}
