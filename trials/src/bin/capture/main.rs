//! The cost of capturing to clients: pgbench's load on one server, in slices on direct connections,
//! on direct connections of a twin, and through `pgtoll replay record`, in balanced orders. Each
//! slice begins with a checkpoint, so that all have the same part of the full-page images.
//! connections of a twin, and through `pgtoll replay record`, in balanced orders. Each slice begins with
//! a checkpoint, so that all have the same part of the full-page images.
//!
//! `cargo xtask bench capture` runs it. Status 0: it was measured, and no goal is missed; 2: could not
//! tell.

mod outcome;
mod slice;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::TimeSpan;
use pgtoll_record::trials::{
    BENCH_CAPTURE_SCHEMA, BenchLine, BenchLoad, BenchOutcome, BenchRun, BenchSubject,
};
use pgtoll_trials::bench::{header, orders, outcomes_table};
use pgtoll_trials::{Recorder, TrialSite, installation, print, say, server_name, settings};

use crate::outcome::outcomes;
use crate::slice::{CaptureArm, Site};

/// What does capturing through `pgtoll replay record` cost clients?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench capture")]
struct Arguments {
    /// How often each arm has a slice
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// A slice's length
    #[arg(long, value_name = "TIME", default_value = "20s")]
    slice: TimeSpan,
    /// Clients of each arm
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Transactions a second of all clients together; without it as many as there can be
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// A script of pgbench's
    #[arg(long, value_name = "NAME", default_value = "select-only", value_parser = ["select-only", "simple-update", "tpcb-like"])]
    script: String,
    /// pgbench's scale
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Seed of the order and of the load
    #[arg(long, value_name = "N", default_value_t = 20_261_125)]
    seed: u64,
    /// The server: a directory or a major version
    #[arg(long, alias = "major", value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the cluster and the plan are made; 2 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every slice in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench capture", || bench(&Arguments::parse()))
}

/// Every arm in every repetition, then how they compare; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let installation = installation(&arguments.postgres)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut header =
        header(BENCH_CAPTURE_SCHEMA, command(arguments), site.host()?, arguments.repetitions);
    header.server = Some(server_name(&installation));
    recorder.write(&BenchLine::Header(Box::new(header)))?;
    let mut guard = site.begin_guard()?;
    let cluster = prepared(arguments, &installation, &mut guard)?;
    let clients = arguments.clients;
    let scale = arguments.scale;
    let script = (arguments.script.as_str(), scale, arguments.seed);
    let mut slices = Site::begin(&mut guard, &cluster, clients, script)?;
    let subject =
        BenchSubject { server: Some(server_name(&installation)), ..BenchSubject::default() };
    say("warming up");
    for arm in CaptureArm::ALL {
        slices.run(arm, arguments.slice.0 / 4, arguments.rate)?;
    }
    let mut runs: Vec<(CaptureArm, BenchLoad)> = Vec::new();
    for (repetition, order) in orders(&CaptureArm::ALL, arguments.repetitions, arguments.seed) {
        for arm in order {
            site.interrupt.check()?;
            let load = slices.run(arm, arguments.slice.0, arguments.rate)?;
            say(&format!("{repetition} {}: {}", arm.key(), describe(&load)));
            recorder.write(&BenchLine::Run(BenchRun {
                subject: subject.clone(),
                repetition,
                place: None,
                arm: arm.key().to_owned(),
                usage: None,
                slices_ns: None,
                load: Some(load),
            }))?;
            runs.push((arm, load));
        }
    }
    slices.end(&mut guard)?;
    cluster.stop(&mut guard, StopMode::Fast)?;
    guard.finish()?;
    let outcomes = outcomes(&subject, &runs)?;
    for outcome in &outcomes {
        recorder.write(&BenchLine::Outcome(outcome.clone()))?;
    }
    print(&outcomes_table(&outcomes, 4));
    Ok(outcomes.iter().all(BenchOutcome::is_reached))
}

fn command(arguments: &Arguments) -> String {
    let Arguments { repetitions, slice, clients, script, scale, seed, postgres, .. } = arguments;
    let rate = arguments.rate.map_or_else(String::new, |rate| format!(" --rate {rate}"));
    format!(
        "cargo xtask bench capture --repetitions {repetitions} --slice {slice} --clients {clients}{rate} \
         --script {script} --scale {scale} --seed {seed} --postgres {postgres}"
    )
}

fn prepared(
    arguments: &Arguments,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Cluster> {
    say("making the cluster");
    let cluster = Cluster::init(guard, installation, "captured", false)?;
    let settings = settings([("max_wal_size", "8GB"), ("shared_buffers", "512MB")]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    let scale = arguments.scale.to_string();
    let load = ["--initialize", "--quiet", "--scale", &scale, slice::DATABASE];
    cluster.run_client(guard, "pgbench", &load)?;
    Ok(cluster)
}

fn describe(load: &BenchLoad) -> String {
    let milliseconds = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3;
    format!(
        "{} transactions, median {:.3} ms, p99 {:.3} ms",
        load.transactions,
        milliseconds(load.median_ns),
        milliseconds(load.p99_ns)
    )
}
