//! How fast pgtoll verifies a cluster, beside `pg_checksums --check` on the same files in the same
//! run: ratios, since machines differ. Cold runs are compared with `cat`.
//!
//! `cargo xtask bench verify` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod make;
mod record;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Guard, GuardOptions, Installation, ServerUser};
use pgtoll_format::ByteSize;
use pgtoll_interrupt::Interrupt;
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{Goal as Limit, Outcome, Recorder, beside, outcomes_table, print, ratio, say};

use crate::make::Subject;
use crate::record::{Header, Line, Run, Subject as About};
use crate::runs::{Arm, Programs};

/// How fast are pages verified, beside `pg_checksums`?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench verify")]
struct Arguments {
    /// How much is in the tables of each cluster
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    size: ByteSize,
    /// How often everything is run; in eight orders no program has a better place
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// The servers: directories or major versions
    #[arg(long, value_name = "WHICH", value_delimiter = ',', default_value = "15,18")]
    postgres: Vec<String>,
    /// Where the clusters are made, one after the other; the size is needed, and 1 GB
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Another pgtoll, timed beside this one
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// A ratio that shall not be larger; `None`: it is told, and no goal.
struct Goal {
    what: &'static str,
    arm: Arm,
    to: Arm,
    of_wall: bool,
    at_most: Option<f64>,
}

const GOALS: [Goal; 9] = [
    cpu("one job / pg_checksums, CPU", Arm::Read, Some(0.6)),
    cpu("one job, mapped / pg_checksums, CPU", Arm::Mapped, Some(0.4)),
    wall("one job / pg_checksums, wall", Arm::Read, Arm::Checksums, None),
    wall("two jobs / pg_checksums, wall", Arm::TwoJobs, Arm::Checksums, Some(0.35)),
    wall("two jobs, mapped / pg_checksums, wall", Arm::TwoJobsMapped, Arm::Checksums, None),
    wall("cold / cat, wall", Arm::Cold, Arm::ColdCat, Some(1.1)),
    wall("cold / pg_checksums, wall", Arm::Cold, Arm::ColdChecksums, None),
    Goal {
        what: "one job / the pgtoll before, CPU",
        arm: Arm::Read,
        to: Arm::Before,
        of_wall: false,
        at_most: None,
    },
    wall("two jobs / the pgtoll before, wall", Arm::TwoJobs, Arm::BeforeTwoJobs, None),
];

const fn cpu(what: &'static str, arm: Arm, at_most: Option<f64>) -> Goal {
    Goal { what, arm, to: Arm::Checksums, of_wall: false, at_most }
}

const fn wall(what: &'static str, arm: Arm, to: Arm, at_most: Option<f64>) -> Goal {
    Goal { what, arm, to, of_wall: true, at_most }
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench verify", || bench(&Arguments::parse()))
}

/// All servers' clusters; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let base = std::fs::canonicalize(&arguments.work_dir);
    let base = base.with_context(|| format!("find {}", arguments.work_dir.display()))?;
    let mut installations = Vec::new();
    for which in &arguments.postgres {
        let found = Installation::find(Some(which))?;
        installations.push(found.with_context(|| format!("no PostgreSQL server {which} found"))?);
    }
    let programs = Programs { pgtoll: beside("pgtoll")?, before: arguments.before.clone() };
    let guard = GuardOptions::of_this_program(base, ServerUser::choose()?);
    let mut recorder = Recorder::create(arguments.record.as_deref())?;
    let header = header(arguments, &installations, &guard.base)?;
    print(&table::introduction(&header));
    recorder.write(&Line::Header(Box::new(header)))?;
    let mut reached = true;
    for installation in &installations {
        let mut guard = Guard::begin(&guard, &interrupt)?;
        say(&format!("filling a cluster of {}", installation.version));
        let subject = make::cluster(installation, arguments.size, &mut guard)?;
        let outcomes = measure(arguments, &subject, &programs, &mut recorder, &interrupt)?;
        print(&outcomes_table(&outcomes, 3));
        reached &= outcomes.iter().all(Outcome::is_reached);
        guard.finish()?;
    }
    Ok(reached)
}

fn header(
    arguments: &Arguments,
    installations: &[Installation],
    base: &Path,
) -> anyhow::Result<Header> {
    let Arguments { size, repetitions, seed, postgres, .. } = arguments;
    let server = |of: &Installation| format!("PostgreSQL {} ({})", of.version, of.origin);
    Ok(Header {
        schema: record::SCHEMA,
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: format!(
            "cargo xtask bench verify --size {size} --repetitions {repetitions} --seed {seed} \
             --postgres {}",
            postgres.join(",")
        ) + if arguments.before.is_some() { " --before PROGRAM" } else { "" },
        started: jiff::Timestamp::now().to_string(),
        servers: installations.iter().map(server).collect(),
        host: pgtoll_bench::host(base)?,
        repetitions: *repetitions,
    })
}

/// Every arm in every repetition, then how they compare.
fn measure(
    arguments: &Arguments,
    subject: &Subject,
    programs: &Programs,
    recorder: &mut Recorder,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Outcome<About>>> {
    let (major, bytes, files) = (subject.major, subject.bytes, subject.files.len());
    print(&table::cluster(major, bytes, files));
    recorder.write(&Line::Cluster { major, bytes, files })?;
    // As a server left it, its pages lie in the cache one by one; what is read comes in large
    // pieces, in which later runs would find it.
    subject.cool()?;
    let mut runs = Vec::new();
    let arms = programs.arms();
    let orders = BalancedOrders::new(arms.len(), arguments.seed);
    for (repetition, order) in (1..=arguments.repetitions).zip(orders) {
        say(&format!("PostgreSQL {major}: repetition {repetition}"));
        for arm in order.into_iter().map(|place| arms[place]) {
            interrupt.check()?;
            let usage = runs::run(arm, subject, programs)?;
            let run = Run { major, repetition, arm, usage };
            recorder.write(&Line::Run(run))?;
            runs.push(run);
        }
    }
    let mut outcomes = Vec::new();
    for goal in GOALS.iter().filter(|goal| arms.contains(&goal.to)) {
        outcomes.push(outcome(major, goal, &runs)?);
    }
    for outcome in &outcomes {
        recorder.write(&Line::Outcome(outcome))?;
    }
    Ok(outcomes)
}

/// A goal's ratio: runs of the same repetition are a pair.
fn outcome(major: u32, goal: &Goal, runs: &[Run]) -> anyhow::Result<Outcome<About>> {
    let seconds = |arm: Arm| {
        let own = runs.iter().filter(move |run| run.arm == arm);
        own.map(|run| if goal.of_wall { run.usage.wall_s } else { run.usage.cpu_s() })
    };
    Ok(Outcome {
        subject: About { major },
        what: goal.what,
        estimate: ratio(seconds(goal.arm), seconds(goal.to))?,
        goal: Limit::AtMost(goal.at_most),
    })
}
