//! The cost of watching to the watched: pgbench's load on one server, in slices alone and in slices
//! with `pgtoll predict` or `pgtoll checkup` beside it, in balanced orders. Each slice begins with a
//! checkpoint, so that all have the same part of the full-page images.
//!
//! `cargo xtask bench watch` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod outcome;
mod slice;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::TimeSpan;
use pgtoll_record::trials::{
    BENCH_WATCH_SCHEMA, BenchLine, BenchLoad, BenchOutcome, BenchRun, BenchSubject,
};
use pgtoll_trials::bench::{header, orders, outcomes_table};
use pgtoll_trials::{Recorder, TrialSite, installation, print, say, server_name, settings};

use crate::outcome::outcomes;
use crate::slice::{Arm, Site};

/// What does watching cost the watched server?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench watch")]
struct Arguments {
    /// How often each arm has a slice
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// A slice's length
    #[arg(long, value_name = "TIME", default_value = "2min")]
    slice: TimeSpan,
    /// `checkpoint_timeout`: the default slice has two such cycles
    #[arg(long, value_name = "TIME", default_value = "1min")]
    checkpoint_timeout: TimeSpan,
    /// Clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Transactions a second of all clients together; without it as many as there can be
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// pgbench's scale
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// The server's shared buffers
    #[arg(long, value_name = "SIZE", default_value = "512MB")]
    shared_buffers: String,
    /// Slices with `--gentle`, too
    #[arg(long)]
    gentle: bool,
    /// Slices with `pgtoll checkup`, too
    #[arg(long)]
    checkup: bool,
    /// Seed of the order and of the load
    #[arg(long, value_name = "N", default_value_t = 20_261_123)]
    seed: u64,
    /// The server: a directory or a major version
    #[arg(long, value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the cluster is made; 3 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every slice in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench watch", || bench(&Arguments::parse()))
}

/// Every arm in every repetition, then how they compare; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let installation = installation(&arguments.postgres)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut header =
        header(BENCH_WATCH_SCHEMA, command(arguments), site.host()?, arguments.repetitions);
    header.server = Some(server_name(&installation));
    recorder.write(&BenchLine::Header(Box::new(header)))?;
    let mut guard = site.begin_guard()?;
    let cluster = prepared(arguments, &installation, &mut guard)?;
    let mut slices = Site::begin(&cluster, arguments.clients, arguments.scale, arguments.seed)?;
    let subject =
        BenchSubject { server: Some(server_name(&installation)), ..BenchSubject::default() };
    let time = arguments.slice.0;
    say("warming up");
    slices.run(Arm::Alone, time / 2, arguments.rate)?;
    let mut runs: Vec<(Arm, BenchLoad)> = Vec::new();
    for (repetition, order) in
        orders(Arm::all(arguments.gentle, arguments.checkup), arguments.repetitions, arguments.seed)
    {
        for arm in order {
            site.interrupt.check()?;
            let load = slices.run(arm, time, arguments.rate)?;
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
    slices.close();
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
    let Arguments { repetitions, slice, checkpoint_timeout, clients, scale, .. } = arguments;
    let Arguments { shared_buffers, seed, postgres, .. } = arguments;
    let rate = arguments.rate.map_or_else(String::new, |rate| format!(" --rate {rate}"));
    let gentle = if arguments.gentle { " --gentle" } else { "" };
    let checkup = if arguments.checkup { " --checkup" } else { "" };
    format!(
        "cargo xtask bench watch --repetitions {repetitions} --slice {slice} --checkpoint-timeout \
         {checkpoint_timeout} --clients {clients}{rate} --scale {scale} --shared-buffers \
         {shared_buffers}{gentle}{checkup} --seed {seed} --postgres {postgres}"
    )
}

/// A server as `pgtoll predict` sees most of: without checksums, with all extensions.
fn prepared(
    arguments: &Arguments,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Cluster> {
    say("making the cluster");
    let cluster = Cluster::init(guard, installation, "watched", false)?;
    let timeout = arguments.checkpoint_timeout.to_string();
    let settings = settings([
        ("checkpoint_timeout", timeout.as_str()),
        ("max_wal_size", "8GB"),
        ("shared_buffers", arguments.shared_buffers.as_str()),
        ("shared_preload_libraries", "pg_stat_statements"),
    ]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    let scale = arguments.scale.to_string();
    let load = ["--initialize", "--quiet", "--scale", &scale, slice::DATABASE];
    cluster.run_client(guard, "pgbench", &load)?;
    let mut session = cluster.connect(slice::DATABASE)?;
    for extension in ["pg_buffercache", "pageinspect", "pg_stat_statements"] {
        let sql = format!("CREATE EXTENSION {extension}");
        session.execute(&sql).with_context(|| sql.clone())?;
    }
    session.close();
    Ok(cluster)
}

fn describe(load: &BenchLoad) -> String {
    let milliseconds = |nanoseconds: u64| Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3;
    let watch = load.watch_cpu_s.map_or_else(String::new, |seconds| {
        format!(", watching took {:.2} % of a core", seconds / load.seconds * 100.0)
    });
    format!(
        "{} transactions, median {:.2} ms, p99 {:.2} ms{watch}",
        load.transactions,
        milliseconds(load.median_ns),
        milliseconds(load.p99_ns)
    )
}
