//! How fast `pgtoll enable` is, beside `pg_checksums --enable` on copies of the same cluster in the
//! same run, and beside a plain write of as many bytes: ratios, since machines differ.
//!
//! `cargo xtask bench enable` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod record;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Cluster, Guard, GuardOptions, Installation, ServerUser, StopMode};
use pgtoll_format::ByteSize;
use pgtoll_interrupt::Interrupt;
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{Goal as Limit, Outcome, Recorder, Usage, outcomes_table, print, ratio, say};

use crate::record::{Header, Line, Run, Subject as About};
use crate::runs::{Arm, Subject};

/// How fast are checksums turned on, beside `pg_checksums`?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench enable")]
struct Arguments {
    /// How large the cluster is
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    size: ByteSize,
    /// How often everything is run; in seven orders no program has a better place
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// The servers: directories or major versions
    #[arg(long, value_name = "WHICH", default_values = ["15", "18"])]
    postgres: Vec<String>,
    /// Where the clusters are made; three times the size is needed, and 2 GB
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Another pgtoll, timed beside this one
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// A ratio that shall not be larger.
struct Goal {
    what: &'static str,
    arm: Arm,
    to: Arm,
    of: fn(&Usage) -> f64,
    /// `None`: it is told, and no goal.
    at_most: Option<f64>,
}

const WALL: fn(&Usage) -> f64 = |usage| usage.wall_s;

const GOALS: [Goal; 8] = [
    Goal {
        what: "one job / pg_checksums, no sync, wall",
        arm: Arm::OneJobNoSync,
        to: Arm::TheirsNoSync,
        of: WALL,
        at_most: Some(0.3),
    },
    Goal {
        what: "two jobs / pg_checksums, no sync, wall",
        arm: Arm::TwoJobsNoSync,
        to: Arm::TheirsNoSync,
        of: WALL,
        at_most: Some(0.18),
    },
    Goal {
        what: "one job / pg_checksums, no sync, CPU",
        arm: Arm::OneJobNoSync,
        to: Arm::TheirsNoSync,
        of: Usage::cpu_s,
        at_most: None,
    },
    Goal {
        what: "two jobs / plain write, with sync, wall",
        arm: Arm::TwoJobs,
        to: Arm::PlainWrite,
        of: WALL,
        at_most: Some(1.15),
    },
    Goal {
        what: "one job / plain write, with sync, wall",
        arm: Arm::OneJob,
        to: Arm::PlainWrite,
        of: WALL,
        at_most: None,
    },
    Goal {
        what: "two jobs / pg_checksums, with sync, wall",
        arm: Arm::TwoJobs,
        to: Arm::Theirs,
        of: WALL,
        at_most: None,
    },
    Goal {
        what: "one job / the pgtoll before, no sync, CPU",
        arm: Arm::OneJobNoSync,
        to: Arm::BeforeOneJobNoSync,
        of: Usage::cpu_s,
        at_most: None,
    },
    Goal {
        what: "two jobs / the pgtoll before, with sync, wall",
        arm: Arm::TwoJobs,
        to: Arm::BeforeTwoJobs,
        of: WALL,
        at_most: None,
    },
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench enable", || bench(&Arguments::parse()))
}

/// A cluster of each server; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let base = std::fs::canonicalize(&arguments.work_dir);
    let base = base.with_context(|| format!("find {}", arguments.work_dir.display()))?;
    let options = GuardOptions::of_this_program(base, ServerUser::choose()?);
    let mut recorder = Recorder::create(arguments.record.as_deref())?;
    let header = header(arguments, &options.base)?;
    print(&table::introduction(&header));
    recorder.write(&Line::Header(Box::new(header)))?;
    let mut reached = true;
    for which in &arguments.postgres {
        let installation = Installation::find(Some(which))?;
        let installation = installation.context("no such PostgreSQL server found")?;
        let mut guard = Guard::begin(&options, &interrupt)?;
        let outcomes = measure(arguments, &installation, &mut guard, &mut recorder, &interrupt)?;
        print(&outcomes_table(&outcomes, 3));
        reached &= outcomes.iter().all(Outcome::is_reached);
        guard.finish()?;
    }
    Ok(reached)
}

fn header(arguments: &Arguments, base: &Path) -> anyhow::Result<Header> {
    let Arguments { size, repetitions, seed, postgres, .. } = arguments;
    let servers = postgres.join(" --postgres ");
    Ok(Header {
        schema: record::SCHEMA,
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: format!(
            "cargo xtask bench enable --size {size} --repetitions {repetitions} --seed \
             {seed} --postgres {servers}"
        ) + if arguments.before.is_some() { " --before PROGRAM" } else { "" },
        started: jiff::Timestamp::now().to_string(),
        host: pgtoll_bench::host(base)?,
        repetitions: *repetitions,
    })
}

/// A stopped cluster of pgbench's tables, without checksums.
fn cluster(
    size: ByteSize,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Cluster> {
    let cluster = Cluster::init(guard, installation, "cluster", false)?;
    let settings = [("fsync", "off"), ("autovacuum", "off"), ("max_wal_size", "128MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into())?;
    cluster.start(guard)?;
    let scale = size.0.div_ceil(SCALE_BYTES).to_string();
    let load = ["--initialize", "--quiet", "--scale", &scale, "postgres"];
    cluster.run_client(guard, "pgbench", &load)?;
    cluster.stop(guard, StopMode::Fast)?;
    Ok(cluster)
}

/// What a unit of pgbench's scale takes.
const SCALE_BYTES: u64 = 15_700_000;

/// Every arm in every repetition, then how they compare.
fn measure(
    arguments: &Arguments,
    installation: &Installation,
    guard: &mut Guard,
    recorder: &mut Recorder,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Outcome<About>>> {
    let server = format!("PostgreSQL {} ({})", installation.version, installation.origin);
    say(&format!("{server}: making the cluster"));
    let cluster = cluster(arguments.size, installation, guard)?;
    let subject = Subject::of(installation, &cluster, guard.directory(), arguments.before.clone())?;
    let (bytes, files) = (subject.bytes, subject.files);
    recorder.write(&Line::Cluster { server: &server, bytes, files })?;
    let mut runs = Vec::new();
    let arms = subject.arms();
    let orders = BalancedOrders::new(arms.len(), arguments.seed);
    for (repetition, order) in (1..=arguments.repetitions).zip(orders) {
        say(&format!("{server}: repetition {repetition}"));
        for arm in order.into_iter().map(|place| arms[place]) {
            interrupt.check()?;
            let usage = subject.run(arm, guard)?;
            recorder.write(&Line::Run(Run { server: &server, repetition, arm, usage }))?;
            runs.push((arm, usage));
        }
    }
    let size = format!("{server}, {}", ByteSize(bytes).rounded());
    print(&table::times(&size, &runs));
    let mut outcomes = Vec::new();
    for goal in GOALS.iter().filter(|goal| arms.contains(&goal.to)) {
        outcomes.push(outcome(&server, goal, &runs)?);
    }
    for outcome in &outcomes {
        recorder.write(&Line::Outcome(outcome))?;
    }
    Ok(outcomes)
}

/// A goal's ratio: runs of the same repetition are a pair.
fn outcome(server: &str, goal: &Goal, runs: &[(Arm, Usage)]) -> anyhow::Result<Outcome<About>> {
    let seconds = |arm: Arm| {
        let own = runs.iter().filter(move |(of, _)| *of == arm);
        own.map(|(_, usage)| (goal.of)(usage))
    };
    Ok(Outcome {
        subject: About { server: server.to_owned() },
        what: goal.what,
        estimate: ratio(seconds(goal.arm), seconds(goal.to))?,
        goal: Limit::AtMost(goal.at_most),
    })
}
