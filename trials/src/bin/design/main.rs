//! Resolution of two designs on identical clusters: sequential runs of stock `pgbench`, as people
//! do it, and pgtoll's slices. Both have the same wall time on the same machine, under a bursty
//! background load that the bench itself makes. The true ratio is 1, so the width of the interval
//! is all that counts.
//! people do it, or pgtoll's slices? Both have the same wall time on the same machine, under a
//! bursty background load that the bench itself makes. The true ratio is 1, so the width of the
//! interval is all that counts.
//!
//! `cargo xtask bench design` runs it. Status 0: pgtoll's interval is narrower by the goal's
//! factor; 1: it is not; 2: could not tell.

mod bursts;
mod estimate;
mod neighbours;
mod sequential;
mod site;
mod sliced;
mod table;
mod tps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::Installation;
use pgtoll_measure::Experiment;
use pgtoll_record::trials::{
    BENCH_DESIGN_SCHEMA, DesignHeader, DesignLine, DesignSummary, DesignTrial,
};
use pgtoll_stats::{BalancedOrders, median};
use pgtoll_trials::{Recorder, TrialSite, print, say, server_name};

use crate::site::Site;
use crate::sliced::Pace;

/// The two copies that are compared.
pub(crate) const EXPERIMENT: &str = include_str!("experiment.toml");
/// How much narrower pgtoll's interval shall be.
const GOAL: f64 = 10.0;

/// How wide is the interval of two identical clusters, sequentially and in slices?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench design")]
struct Arguments {
    /// How often both designs are run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Wall time of each design in each trial; a multiple of six is taken
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=36_000))]
    seconds: u64,
    /// Seed of the order, the background load and pgtoll's design
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// Processes of the background load [default: one for each core]
    #[arg(long, value_name = "N")]
    neighbours: Option<u32>,
    /// The server: a directory or a major version [default: the newest]
    #[arg(long, value_name = "WHICH")]
    postgres: Option<String>,
    /// Where the clusters are made
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// One more file for the record, beside the one in target/bench
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    pgtoll_trials::run("bench design", || match words.first().map(String::as_str) {
        Some(neighbours::ARGUMENT) => neighbours::process(&words[1..]).map(|()| true),
        _ => bench(&Arguments::parse()),
    })
}

/// Runs all trials; `true` when the goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let started = jiff::Timestamp::now();
    let stem = format!("target/bench/design-{}", started.strftime("%Y-%m-%dT%H-%M-%SZ"));
    let site = site(arguments, Path::new(&stem))?;
    let run_seconds = arguments.seconds.div_ceil(u64::from(2 * sequential::RUNS));
    let header = header(arguments, &site, started, run_seconds)?;
    let wall = Duration::from_secs(header.wall_seconds);
    let file = PathBuf::from(format!("{stem}.jsonl"));
    let mut recorder = Recorder::create([&file].into_iter().chain(&arguments.output))?;
    print(&table::introduction(&header));
    recorder.write(&DesignLine::Header(Box::new(header)))?;

    say("pilot: how long does a restart take?");
    let mut pace = Pace::by_pilot(&site, wall, arguments.seed)?;
    let mut trials = Vec::new();
    for (number, order) in (1..=arguments.trials).zip(BalancedOrders::new(2, arguments.seed)) {
        let seed = arguments.seed.wrapping_add(u64::from(number));
        let trial = trial(&site, number, seed, order[0] == 0, run_seconds, &mut pace)?;
        recorder.write(&DesignLine::Trial(Box::new(trial.clone())))?;
        print(&table::trial(&trial));
        trials.push(trial);
    }
    let summary = summary(&trials).context("take the medians")?;
    recorder.write(&DesignLine::Summary(summary))?;
    print(&(table::summary(&summary) + table::LEGEND));
    say(&format!("record: {}; raw records: {stem}/", file.display()));
    Ok(summary.half_widths_ratio >= GOAL)
}

fn site(arguments: &Arguments, records: &Path) -> anyhow::Result<Site> {
    let TrialSite { interrupt, guard } = TrialSite::prepare(&arguments.work_dir)?;
    let installation = Installation::find(arguments.postgres.as_deref())?;
    let cores = u32::try_from(pgtoll_observe::cores()).unwrap_or(u32::MAX);
    Ok(Site {
        installation: installation.context("no PostgreSQL server found: run cargo xtask test")?,
        guard,
        interrupt,
        experiment: Experiment::parse(EXPERIMENT, Path::new(""))?,
        neighbours: arguments.neighbours.unwrap_or(cores),
        records: records.to_owned(),
    })
}

fn header(
    arguments: &Arguments,
    site: &Site,
    started: jiff::Timestamp,
    run_seconds: u64,
) -> anyhow::Result<DesignHeader> {
    let trials = arguments.trials;
    let seed = arguments.seed;
    let seconds = arguments.seconds;
    let neighbours = site.neighbours;
    Ok(DesignHeader {
        schema: BENCH_DESIGN_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask bench design --trials {trials} --seconds {seconds} --seed {seed} \
             --neighbours {neighbours}"
        ),
        started: started.to_string(),
        seed,
        trials,
        wall_seconds: run_seconds * u64::from(2 * sequential::RUNS),
        runs_per_cluster: sequential::RUNS,
        run_seconds,
        rounds: sliced::ROUNDS,
        slice_ms: u64::try_from(sliced::SLICE.as_millis())?,
        neighbours,
        mean_span_seconds: bursts::MEAN_SPAN.as_secs_f64(),
        scale: site.experiment.scale,
        server: server_name(&site.installation),
        host: pgtoll_measure::host(&site.guard.base)?,
    })
}

/// Both designs, one after the other.
fn trial(
    site: &Site,
    number: u32,
    seed: u64,
    sequential_first: bool,
    run_seconds: u64,
    pace: &mut Pace,
) -> anyhow::Result<DesignTrial> {
    let run_sequential = || {
        say(&format!("trial {number}: sequential"));
        sequential::measure(site, run_seconds, seed)
    };
    let mut run_sliced = || {
        say(&format!("trial {number}: pgtoll"));
        sliced::measure(site, pace, number, seed)
    };
    let (sequential, sliced) = if sequential_first {
        let sequential = run_sequential()?;
        (sequential, run_sliced()?)
    } else {
        let sliced = run_sliced()?;
        (run_sequential()?, sliced)
    };
    let half_widths_ratio = sequential.tps.half_width / sliced.tps.half_width;
    Ok(DesignTrial { number, seed, sequential_first, sequential, sliced, half_widths_ratio })
}

/// `None` without trials.
fn summary(trials: &[DesignTrial]) -> Option<DesignSummary> {
    let middle =
        |figure: fn(&DesignTrial) -> f64| median(&trials.iter().map(figure).collect::<Vec<f64>>());
    let count = |covers_one: fn(&DesignTrial) -> bool| {
        trials.iter().filter(|trial| covers_one(trial)).count() as u64
    };
    Some(DesignSummary {
        trials: trials.len() as u64,
        sequential_tps_half_width: middle(|trial| trial.sequential.tps.half_width)?,
        sequential_covers_one: count(|trial| trial.sequential.tps.covers_one),
        sliced_tps_half_width: middle(|trial| trial.sliced.tps.half_width)?,
        sliced_tps_covers_one: count(|trial| trial.sliced.tps.covers_one),
        sliced_cpu_half_width: middle(|trial| trial.sliced.cpu.half_width)?,
        sliced_cpu_covers_one: count(|trial| trial.sliced.cpu.covers_one),
        half_widths_ratio: middle(|trial| trial.half_widths_ratio)?,
        goal: GOAL,
    })
}
