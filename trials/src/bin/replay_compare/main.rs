//! Errors of `pgtoll replay compare`: how often it names a statement where nothing differs, and
//! misses one that was made slower. Many comparisons of the same plan: with nothing planted, with a
//! statement that takes a fifth longer, with one that has a worse index.
//! was made slower? Many comparisons of the same plan: with nothing planted, with a statement that
//! takes a fifth longer, with one that has a worse index.
//!
//! `cargo xtask bench replay-compare` runs it. A comparison that ended before is taken as it is, so that a
//! bench that was stopped continues. Status 0: at most one in twenty names a statement where nothing differs, and
//! nine tenths of what was planted are named; 1: not so; 2: could not tell.

mod comparison;
mod score;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pgtoll_record::trials::{
    BENCH_REPLAY_COMPARE_SCHEMA, ReplayCompareHeader, ReplayCompareLine, ReplayComparePlant,
};
use pgtoll_trials::{Recorder, TrialSite, installation, print, say, server_name};

use crate::comparison::{Comparisons, name, trial};
use crate::site::CompareSite;

/// How often does `pgtoll replay compare` name a statement where nothing differs, and one that was made
/// slower?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench replay-compare")]
struct Arguments {
    /// Comparisons of each plant, less than a minute each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    comparisons: u32,
    /// What is planted
    #[arg(long, value_name = "PLANT", default_values = ["nothing", "fifth", "index"], value_delimiter = ',', value_parser = ["nothing", "fifth", "index"])]
    plant: Vec<String>,
    /// Rounds of each comparison
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Seed of the first comparison; each has one more
    #[arg(long, value_name = "N", default_value_t = 20_261_125)]
    seed: u64,
    /// The server: a directory or a major version
    #[arg(long, alias = "major", value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the clusters are made; 1 GB is needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Where the plan and the comparisons' own records go, and are found again
    #[arg(long, value_name = "DIR", default_value = "target/bench/replay-compare")]
    records: PathBuf,
    /// Keep the record in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench replay-compare", || bench(&Arguments::parse()))
}

/// Makes all comparisons, or takes those that ended before; `true` when the goals are reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let trial_site = TrialSite::prepare(&arguments.work_dir)?;
    let server = installation(&arguments.postgres)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut guard = trial_site.begin_guard()?;
    say("making the data and the plan");
    let site = CompareSite::make(&mut guard, &server, &arguments.records)?;
    let header = header(arguments, &trial_site, &server_name(&server), &site)?;
    print(&introduction(&header));
    recorder.write(&ReplayCompareLine::Header(Box::new(header)))?;
    let comparisons = Comparisons {
        site: &site,
        records: &arguments.records,
        work_dir: &arguments.work_dir,
        postgres: &arguments.postgres,
        rounds: arguments.rounds,
    };
    let is_asked =
        |plant: &ReplayComparePlant| arguments.plant.iter().any(|item| item == name(*plant));
    let plants: Vec<ReplayComparePlant> = PLANTS.into_iter().filter(is_asked).collect();
    let mut trials = Vec::new();
    // In turn, so that one that is stopped has some of each.
    for number in 0..arguments.comparisons {
        for plant in &plants {
            trial_site.interrupt.check()?;
            let seed = arguments.seed.wrapping_add(u64::from(number));
            let found = trial(*plant, &comparisons.result(*plant, seed)?)?;
            print(&score::line(&found));
            recorder.write(&ReplayCompareLine::Comparison(Box::new(found.clone())))?;
            trials.push(found);
        }
    }
    guard.finish()?;
    let sums = score::summary(&trials);
    recorder.write(&ReplayCompareLine::Summary(sums))?;
    print(&score::in_words(&sums));
    Ok(score::is_good(&sums))
}

const PLANTS: [ReplayComparePlant; 3] =
    [ReplayComparePlant::Nothing, ReplayComparePlant::Fifth, ReplayComparePlant::Index];

fn introduction(header: &ReplayCompareHeader) -> String {
    format!(
        "{}, {} statements, {} rounds; {} cores of {}\n\
         planted: {} rows instead of {}, {:.3} times as long alone\n",
        header.server,
        header.statements,
        header.rounds,
        header.host.cores,
        header.host.cpu,
        header.planted_rows,
        header.rows,
        header.planted_ratio
    )
}

fn header(
    arguments: &Arguments,
    trial_site: &TrialSite,
    server: &str,
    site: &CompareSite,
) -> anyhow::Result<ReplayCompareHeader> {
    let Arguments { comparisons, plant, rounds, seed, postgres, .. } = arguments;
    Ok(ReplayCompareHeader {
        schema: BENCH_REPLAY_COMPARE_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask bench replay-compare --comparisons {comparisons} --plant {} --rounds {rounds} \
             --seed {seed} --postgres {postgres}",
            plant.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: trial_site.host()?,
        server: server.to_owned(),
        rounds: *rounds,
        statements: site.statements,
        rows: site.plant.rows,
        planted_rows: site.plant.planted_rows,
        planted_ratio: site.plant.ratio,
    })
}
