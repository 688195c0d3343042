//! Speed of the kernels that compute page checksums, beside those that servers run, all in one run:
//! ratios, since machines differ.
//! run: ratios, since machines differ.
//!
//! `cargo xtask bench checksum` runs it. Status 0: every goal is reached; 1: one is not; 2: could
//! not tell.

mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use pgtoll_checksum::Kernel;
use pgtoll_format::ByteSize;
use pgtoll_record::trials::{
    BENCH_CHECKSUM_SCHEMA, BenchGoal, BenchHeader, BenchLine, BenchOutcome, BenchPlace, BenchRun,
    BenchSubject,
};
use pgtoll_trials::bench::{header, orders, outcomes_table, ratio};
use pgtoll_trials::{Recorder, print};

use crate::runs::{Arm, PAGE_BYTES, Pages, Run};

/// How fast are checksums computed, beside the servers' own kernels?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench checksum")]
struct Arguments {
    /// How often everything is run, in balanced orders
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..))]
    repetitions: u32,
    /// How much memory is walked through: more than every cache together
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    memory: ByteSize,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// How many times as fast the best kernel shall be.
struct Goal {
    what: &'static str,
    place: BenchPlace,
    as_which: fn(Arm) -> bool,
    at_least: f64,
}

const GOALS: [Goal; 3] = [
    Goal {
        what: "best kernel / servers from 19 on, in the cache",
        place: BenchPlace::Cache,
        as_which: |arm| arm.name() == "server-avx2",
        at_least: 2.4,
    },
    Goal {
        what: "best kernel / servers up to 18, in the cache",
        place: BenchPlace::Cache,
        as_which: |arm| arm.name() == "server-sse2",
        at_least: 7.0,
    },
    Goal {
        what: "best kernel / plain sum, from memory",
        place: BenchPlace::Memory,
        as_which: |arm| matches!(arm, Arm::PlainSum),
        at_least: 0.95,
    },
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench checksum", || bench(&Arguments::parse()))
}

/// `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut recorder = Recorder::create(&arguments.record)?;
    let Arguments { repetitions, memory, seed, .. } = arguments;
    let command = format!(
        "cargo xtask bench checksum --repetitions {repetitions} --memory {memory} --seed {seed}"
    );
    let host = pgtoll_measure::host(Path::new("."))?;
    let best = Kernel::best().name();
    let header = BenchHeader {
        best: Some(best.to_owned()),
        ..header(BENCH_CHECKSUM_SCHEMA, command, host, *repetitions)
    };
    print(&table::introduction(&header, best));
    recorder.write(&BenchLine::Header(Box::new(header)))?;
    let mut pages = Pages::make(arguments.memory, arguments.seed)?;
    let arms = Arm::all();
    agree(&arms, &pages)?;
    let runs = measure(arguments, &arms, &mut pages, &mut recorder)?;
    print(&table::speeds(&arms, &runs));
    let mut outcomes = Vec::new();
    for goal in &GOALS {
        outcomes.extend(outcome(goal, &arms, &runs)?);
    }
    print(&format!("\n{}", outcomes_table(&outcomes, 2)));
    for outcome in &outcomes {
        recorder.write(&BenchLine::Outcome(outcome.clone()))?;
    }
    if outcomes.len() < GOALS.len() {
        bail!("this processor cannot run every server's kernel");
    }
    Ok(outcomes.iter().all(BenchOutcome::is_reached))
}

/// Every kernel that is timed has to agree with the definition.
fn agree(arms: &[Arm], pages: &Pages) -> anyhow::Result<()> {
    let pages = pages.cached();
    let mut defined = vec![0; pages.len() / PAGE_BYTES];
    let definition = Kernel::by_name("portable").context("there is no definition")?;
    definition.checksums(pages, PAGE_BYTES, 0, &mut defined);
    let mut computed = defined.clone();
    for arm in arms {
        if let Arm::Kernel(kernel) = arm {
            kernel.checksums(pages, PAGE_BYTES, 0, &mut computed);
            if computed != defined {
                bail!("{}: wrong checksums", kernel.name());
            }
        }
    }
    Ok(())
}

/// Every arm in every repetition, at both places.
fn measure(
    arguments: &Arguments,
    arms: &[Arm],
    pages: &mut Pages,
    recorder: &mut Recorder,
) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for (repetition, order) in orders(arms, arguments.repetitions, arguments.seed) {
        for place in BenchPlace::ALL {
            for arm in &order {
                let slices_ns = pages.run(*arm, place);
                let nanoseconds_a_byte = runs::nanoseconds_a_byte(&slices_ns, place);
                recorder.write(&BenchLine::Run(BenchRun {
                    subject: BenchSubject::default(),
                    repetition,
                    place: Some(place),
                    arm: arm.name().to_owned(),
                    usage: None,
                    slices_ns: Some(slices_ns),
                    load: None,
                }))?;
                runs.push(Run { place, arm: arm.name(), nanoseconds_a_byte });
            }
        }
    }
    Ok(runs)
}

/// How many times as fast as another the best kernel is: runs of the same repetition are a pair.
/// `None` where this processor cannot run the other one.
fn outcome(goal: &Goal, arms: &[Arm], runs: &[Run]) -> anyhow::Result<Option<BenchOutcome>> {
    let Some(other) = arms.iter().find(|arm| (goal.as_which)(**arm)) else { return Ok(None) };
    let times = |name: &'static str| {
        let own = runs.iter().filter(move |run| run.arm == name && run.place == goal.place);
        own.map(|run| run.nanoseconds_a_byte)
    };
    Ok(Some(BenchOutcome {
        subject: BenchSubject::default(),
        what: goal.what.to_owned(),
        estimate: ratio(times(other.name()), times(Kernel::best().name()))?,
        goal: BenchGoal::AtLeast(goal.at_least),
    }))
}
