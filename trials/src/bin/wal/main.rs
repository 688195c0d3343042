//! How fast pgtoll reads WAL, beside `pg_waldump` on the same WAL in the same run: ratios, since
//! machines differ. Two kinds of WAL are made: one that is mostly full-page images, one of short
//! records.
//!
//! `cargo xtask bench wal` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod make;
mod record;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use pgtoll_cluster::{Guard, GuardOptions, Installation, ServerUser};
use pgtoll_format::ByteSize;
use pgtoll_interrupt::Interrupt;
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{
    Estimate, Goal as Limit, Outcome, Recorder, outcomes_table, print, ratio, say,
};

use crate::make::{Kind, Wal};
use crate::record::{Header, Line, Run, Subject as About};
use crate::runs::{Arm, Peak, Subject};

/// How fast is WAL read, beside `pg_waldump`?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench wal")]
struct Arguments {
    /// How much WAL of each kind is made
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    size: ByteSize,
    /// How often everything is run; in five orders no program has a better place
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// The server: a directory or a major version
    #[arg(long, value_name = "WHICH", default_value = "15")]
    postgres: String,
    /// Where the clusters are made; twice the size is needed, and 2 GB
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Another pgtoll's `target/release/wal_sums`, timed beside this one's
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
    of_wall: bool,
    at_most: fn(Kind) -> f64,
}

const GOALS: [Goal; 6] = [
    Goal {
        what: "one thread / pg_waldump --stats, CPU",
        arm: Arm::Sums,
        to: Arm::Stats,
        of_wall: false,
        at_most: |_| 0.7,
    },
    Goal {
        what: "two threads / pg_waldump --stats, wall",
        arm: Arm::TwoThreads,
        to: Arm::Stats,
        of_wall: true,
        at_most: |_| 0.4,
    },
    Goal {
        what: "one thread / pg_waldump as text, CPU",
        arm: Arm::Sums,
        to: Arm::Text,
        of_wall: false,
        at_most: |kind| match kind {
            Kind::Images => 1.0 / 4.0,
            Kind::Dense => 1.0 / 15.0,
        },
    },
    Goal {
        what: "with relations and causes / without, CPU",
        arm: Arm::Sums,
        to: Arm::Plain,
        of_wall: false,
        at_most: |_| 1.3,
    },
    Goal {
        what: "one thread / pg_waldump --stats, wall",
        arm: Arm::Sums,
        to: Arm::Stats,
        of_wall: true,
        // Told, and no goal.
        at_most: |_| f64::INFINITY,
    },
    Goal {
        what: "one thread / the pgtoll before, CPU",
        arm: Arm::Sums,
        to: Arm::Before,
        of_wall: false,
        at_most: |_| f64::INFINITY,
    },
];
/// How much more memory four times the WAL may take, as a ratio.
const MEMORY_AT_MOST: f64 = 1.25;

fn main() -> ExitCode {
    pgtoll_trials::run("bench wal", || bench(&Arguments::parse()))
}

/// Both kinds of WAL; `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let base = std::fs::canonicalize(&arguments.work_dir);
    let base = base.with_context(|| format!("find {}", arguments.work_dir.display()))?;
    let installation = Installation::find(Some(&arguments.postgres))?;
    let installation = installation.context("no such PostgreSQL server found")?;
    let guard = GuardOptions::of_this_program(base, ServerUser::choose()?);
    let mut recorder = Recorder::create(arguments.record.as_deref())?;
    let header = header(arguments, &installation, &guard.base)?;
    print(&table::introduction(&header));
    recorder.write(&Line::Header(Box::new(header)))?;
    let mut reached = true;
    for kind in Kind::ALL {
        let mut guard = Guard::begin(&guard, &interrupt)?;
        say(&format!("making WAL: {}", kind.name()));
        let wal = make::wal(kind, arguments.size, &installation, &mut guard)?;
        let outcomes = measure(arguments, kind, &wal, &installation, &mut recorder, &interrupt)?;
        print(&outcomes_table(&outcomes, 3));
        reached &= outcomes.iter().all(Outcome::is_reached);
        guard.finish()?;
    }
    Ok(reached)
}

fn header(
    arguments: &Arguments,
    installation: &Installation,
    base: &Path,
) -> anyhow::Result<Header> {
    let Installation { version, origin, .. } = installation;
    let Arguments { size, repetitions, seed, .. } = arguments;
    Ok(Header {
        schema: record::SCHEMA,
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: format!(
            "cargo xtask bench wal --size {size} --repetitions {repetitions} --seed {seed}"
        ) + if arguments.before.is_some() { " --before PROGRAM" } else { "" },
        started: jiff::Timestamp::now().to_string(),
        server: format!("PostgreSQL {version} ({origin})"),
        host: pgtoll_bench::host(base)?,
        repetitions: *repetitions,
    })
}

/// Every arm in every repetition, then how they compare.
fn measure(
    arguments: &Arguments,
    kind: Kind,
    wal: &Wal,
    installation: &Installation,
    recorder: &mut Recorder,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Outcome<About>>> {
    let subject = Subject::find(installation, arguments.before.clone())?;
    let (ours, theirs) = (subject.our_total(wal)?, subject.their_total(wal)?);
    if ours != theirs {
        bail!("{}: pgtoll counts {ours:?}, pg_waldump {theirs:?}", kind.name());
    }
    print(&table::wal(kind, wal, &ours));
    recorder.write(&Line::Wal { kind, bytes: wal.bytes, total: ours })?;
    let mut runs = Vec::new();
    let arms = subject.arms();
    let orders = BalancedOrders::new(arms.len(), arguments.seed);
    for (repetition, order) in (1..=arguments.repetitions).zip(orders) {
        say(&format!("{}: repetition {repetition}", kind.name()));
        for arm in order.into_iter().map(|place| arms[place]) {
            interrupt.check()?;
            let usage = subject.run(arm, wal)?;
            let run = Run { kind, repetition, arm, usage };
            recorder.write(&Line::Run(run))?;
            runs.push(run);
        }
    }
    let mut outcomes = Vec::new();
    for goal in GOALS.iter().filter(|goal| arms.contains(&goal.to)) {
        outcomes.push(outcome(kind, goal, &runs)?);
    }
    let peak = subject.peak(wal)?;
    print(&table::memory(peak));
    recorder.write(&Line::Memory { kind, peak })?;
    outcomes.push(memory(kind, peak));
    for outcome in &outcomes {
        recorder.write(&Line::Outcome(outcome))?;
    }
    Ok(outcomes)
}

/// A goal's ratio: runs of the same repetition are a pair.
fn outcome(kind: Kind, goal: &Goal, runs: &[Run]) -> anyhow::Result<Outcome<About>> {
    let seconds = |arm: Arm| {
        let own = runs.iter().filter(move |run| run.arm == arm);
        own.map(|run| if goal.of_wall { run.usage.wall_s } else { run.usage.cpu_s() })
    };
    let at_most = (goal.at_most)(kind);
    Ok(Outcome {
        subject: About { kind },
        what: goal.what,
        estimate: ratio(seconds(goal.arm), seconds(goal.to))?,
        goal: Limit::AtMost(at_most.is_finite().then_some(at_most)),
    })
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes are few")]
fn memory(kind: Kind, peak: Peak) -> Outcome<About> {
    let ratio = peak.whole_kb as f64 / peak.quarter_kb as f64;
    let what = "peak memory, four times the WAL / once";
    let estimate = Estimate { ratio, lower: ratio, upper: ratio };
    Outcome { subject: About { kind }, what, estimate, goal: Limit::AtMost(Some(MEMORY_AT_MOST)) }
}
