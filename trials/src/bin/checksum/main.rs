//! How fast the kernels are that compute page checksums, beside those that servers run, all in one
//! run: ratios, since machines differ.
//!
//! `cargo xtask bench checksum` runs it. Status 0: every goal is reached; 1: one is not; 2: could
//! not tell.

mod record;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use pgtoll_checksum::Kernel;
use pgtoll_format::ByteSize;
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{Goal as Limit, Outcome, Recorder, outcomes_table, print, ratio};

use crate::record::{Header, Line, Run, Subject};
use crate::runs::{Arm, PAGE_BYTES, Pages, Place};

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
    place: Place,
    as_which: fn(Arm) -> bool,
    at_least: f64,
}

const GOALS: [Goal; 3] = [
    Goal {
        what: "best kernel / servers from 19 on, in the cache",
        place: Place::Cache,
        as_which: |arm| arm.name() == "server-avx2",
        at_least: 2.4,
    },
    Goal {
        what: "best kernel / servers up to 18, in the cache",
        place: Place::Cache,
        as_which: |arm| arm.name() == "server-sse2",
        at_least: 7.0,
    },
    Goal {
        what: "best kernel / plain sum, from memory",
        place: Place::Memory,
        as_which: |arm| matches!(arm, Arm::PlainSum),
        at_least: 0.95,
    },
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench checksum", || bench(&Arguments::parse()))
}

/// `true` when every goal is reached.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut recorder = Recorder::create(arguments.record.as_deref())?;
    let header = header(arguments)?;
    print(&table::introduction(&header));
    recorder.write(&Line::Header(Box::new(header)))?;
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
        recorder.write(&Line::Outcome(outcome))?;
    }
    if outcomes.len() < GOALS.len() {
        bail!("this processor cannot run every server's kernel");
    }
    Ok(outcomes.iter().all(Outcome::is_reached))
}

fn header(arguments: &Arguments) -> anyhow::Result<Header> {
    let Arguments { repetitions, memory, seed, .. } = arguments;
    Ok(Header {
        schema: record::SCHEMA,
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: format!(
            "cargo xtask bench checksum --repetitions {repetitions} --memory {memory} --seed {seed}"
        ),
        started: jiff::Timestamp::now().to_string(),
        host: pgtoll_bench::host(Path::new("."))?,
        best: Kernel::best().name(),
        repetitions: *repetitions,
    })
}

/// What is timed has to be right.
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
    let orders = BalancedOrders::new(arms.len(), arguments.seed);
    for (repetition, order) in (1..=arguments.repetitions).zip(orders) {
        for place in Place::ALL {
            for arm in order.iter().map(|at| arms[*at]) {
                let slices_ns = pages.run(arm, place);
                let run = Run { repetition, place, arm: arm.name(), slices_ns };
                recorder.write(&Line::Run(&run))?;
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// How many times as fast as another the best kernel is: runs of the same repetition are a pair.
/// `None` where this processor cannot run the other one.
fn outcome(goal: &Goal, arms: &[Arm], runs: &[Run]) -> anyhow::Result<Option<Outcome<Subject>>> {
    let Some(other) = arms.iter().find(|arm| (goal.as_which)(**arm)) else { return Ok(None) };
    let times = |name: &'static str| {
        let own = runs.iter().filter(move |run| run.arm == name && run.place == goal.place);
        own.map(Run::nanoseconds_a_byte)
    };
    Ok(Some(Outcome {
        subject: Subject {},
        what: goal.what,
        estimate: ratio(times(other.name()), times(Kernel::best().name()))?,
        goal: Limit::AtLeast(goal.at_least),
    }))
}
