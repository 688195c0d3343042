//! Whether backups in stores are read as cheaply as files, in how much memory, and whether fleets are
//! planned quickly and evenly. The server of objects is this program, and makes what it serves: no disk
//! has 100 GB, let alone 500 TB.
//!
//! `cargo xtask bench fleet` runs it. Status 0: every goal is reached; 1: one is not; 2: could not tell.

mod made;
mod objects;
mod packed;
mod plans;
mod reads;
mod score;
mod tls_store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_format::ByteSize;
use pgtoll_record::trials::{
    BENCH_FLEET_SCHEMA, FleetBenchCase, FleetBenchHeader, FleetBenchLine, FleetBenchPlan,
    FleetBenchRead,
};
use pgtoll_trials::bench::orders;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};

/// Is a store read as cheaply as a file, and is a fleet planned quickly and evenly?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench fleet")]
struct Arguments {
    /// What is tried
    #[arg(long, value_name = "CASE", default_values = CASES, value_delimiter = ',', value_parser = CASES)]
    case: Vec<String>,
    /// The backup that is read from a store and from a file
    #[arg(long, value_name = "SIZE", default_value = "4GB")]
    size: ByteSize,
    /// How often it is read from each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_126)]
    seed: u64,
    /// The backups whose memory is compared
    #[arg(long, value_name = "SIZE", default_values = ["1GB", "10GB", "100GB"], value_delimiter = ',')]
    memory_sizes: Vec<ByteSize>,
    /// Objects that are listed
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(4..))]
    objects: u32,
    /// How long each of the server's answers takes while they are listed the second time
    #[arg(long, value_name = "MS", default_value_t = 20)]
    delay: u64,
    /// The cluster whose backup is packed in each way
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    packed_size: ByteSize,
    /// Its server: a directory or a major version
    #[arg(long, value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the file and the cluster are made: the size is needed, and three times the cluster's
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench fleet", || bench(&Arguments::parse()))
}

/// Every case; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let header = header(arguments, &site)?;
    print(&score::introduction(&header));
    recorder.write(&FleetBenchLine::Header(Box::new(header)))?;
    let mut lines = BenchLines { recorder, reads: Vec::new(), plans: Vec::new() };
    let is_tried = |case: &str| arguments.case.iter().any(|item| item == case);
    if is_tried("cost") {
        cost(arguments, &site, &mut lines)?;
    }
    if is_tried("memory") {
        memory(arguments, &site, &mut lines)?;
    }
    if is_tried("listing") {
        for delay in [Duration::ZERO, Duration::from_millis(arguments.delay)] {
            site.interrupt.check()?;
            lines.plan(plans::listing(arguments.objects, delay)?)?;
        }
    }
    if is_tried("shares") {
        for (unit_bytes, shards) in SHARES {
            site.interrupt.check()?;
            lines.plan(plans::shares(unit_bytes, shards)?)?;
        }
    }
    if is_tried("packing") {
        packing(arguments, &site, &mut lines)?;
    }
    if is_tried("objects") {
        objects(arguments, &site, &mut lines)?;
    }
    let outcomes = score::outcomes(&lines.reads, &lines.plans)?;
    print(&score::table(&outcomes));
    Ok(outcomes.iter().all(score::FleetOutcomeLine::is_reached))
}

/// A backup from a file and from a store, in balanced orders.
fn cost(arguments: &Arguments, site: &TrialSite, lines: &mut BenchLines) -> anyhow::Result<()> {
    say("making a backup");
    let backup = reads::BenchBackup::make(arguments.size.0, Some(&site.guard.base))?;
    let orders = orders(&reads::PLACES, arguments.repetitions, arguments.seed);
    for (repetition, order) in orders {
        for place in order {
            site.interrupt.check()?;
            lines.read(backup.read(FleetBenchCase::Cost, repetition, place)?)?;
        }
    }
    Ok(())
}

/// The smallest backup from a file and all from a store.
fn memory(arguments: &Arguments, site: &TrialSite, lines: &mut BenchLines) -> anyhow::Result<()> {
    let smallest = arguments.memory_sizes.iter().map(|size| size.0).min();
    let smallest = smallest.context("--memory-sizes names none")?;
    let backup = reads::BenchBackup::make(smallest, Some(&site.guard.base))?;
    lines.read(backup.read(FleetBenchCase::Memory, 1, reads::PLACES[0])?)?;
    for ByteSize(bytes) in &arguments.memory_sizes {
        site.interrupt.check()?;
        say(&format!("reading {}", ByteSize(*bytes)));
        let backup = reads::BenchBackup::make(*bytes, None)?;
        lines.read(backup.read(FleetBenchCase::Memory, 1, reads::PLACES[1])?)?;
    }
    Ok(())
}

/// A real backup in each packing, in balanced orders.
fn packing(arguments: &Arguments, site: &TrialSite, lines: &mut BenchLines) -> anyhow::Result<()> {
    let installation = installation(&arguments.postgres)?;
    let mut guard = site.begin_guard()?;
    say("making a backup of a cluster");
    let size = arguments.packed_size.0;
    let backup = packed::PackedBackup::make(&mut guard, &installation, size)?;
    guard.finish()?;
    let orders = orders(&packed::PACKINGS, arguments.repetitions, arguments.seed);
    for (repetition, order) in orders {
        for packing in order {
            site.interrupt.check()?;
            lines.read(backup.read(repetition, packing)?)?;
        }
    }
    Ok(())
}

/// A real backup of many short objects.
fn objects(arguments: &Arguments, site: &TrialSite, lines: &mut BenchLines) -> anyhow::Result<()> {
    let installation = installation(&arguments.postgres)?;
    let mut guard = site.begin_guard()?;
    say("making a backup of many files");
    let backup = objects::StoredFiles::make(&mut guard, &installation)?;
    guard.finish()?;
    for repetition in 1..=arguments.repetitions {
        site.interrupt.check()?;
        lines.read(backup.read(repetition)?)?;
    }
    Ok(())
}

/// What was measured so far, and where it is kept.
struct BenchLines {
    recorder: Recorder,
    reads: Vec<FleetBenchRead>,
    plans: Vec<FleetBenchPlan>,
}

impl BenchLines {
    fn read(&mut self, fleet_bench_read: FleetBenchRead) -> anyhow::Result<()> {
        print(&score::read_line(&fleet_bench_read));
        self.recorder.write(&FleetBenchLine::Read(Box::new(fleet_bench_read.clone())))?;
        self.reads.push(fleet_bench_read);
        Ok(())
    }

    fn plan(&mut self, plan: FleetBenchPlan) -> anyhow::Result<()> {
        print(&score::plan_line(&plan));
        self.recorder.write(&FleetBenchLine::Plan(Box::new(plan.clone())))?;
        self.plans.push(plan);
        Ok(())
    }
}

const CASES: [&str; 6] = ["cost", "memory", "listing", "shares", "packing", "objects"];

/// Units and shards: as they are planned; were units whole backups; more nodes than are advised.
const SHARES: [(u64, u32); 3] =
    [(score::UNIT_BYTES, 100), (WHOLE_BACKUPS, 100), (score::UNIT_BYTES, 1000)];
const WHOLE_BACKUPS: u64 = 1 << 50;

fn header(arguments: &Arguments, site: &TrialSite) -> anyhow::Result<FleetBenchHeader> {
    let Arguments { case, size, repetitions, seed, memory_sizes, objects, delay, .. } = arguments;
    let Arguments { packed_size, postgres, .. } = arguments;
    let sizes: Vec<String> = memory_sizes.iter().map(ToString::to_string).collect();
    Ok(FleetBenchHeader {
        schema: BENCH_FLEET_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask bench fleet --case {} --size {size} --repetitions {repetitions} \
             --seed {seed} --memory-sizes {} --objects {objects} --delay {delay} \
             --packed-size {packed_size} --postgres {postgres}",
            case.join(","),
            sizes.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: site.host()?,
    })
}
