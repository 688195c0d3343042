//! Speed of reading WAL, beside `pg_waldump` on the same WAL in the same run: ratios, since
//! machines differ. Two kinds of WAL are made: one that is mostly full-page images, one of short
//! records.
//! machines differ. Two kinds of WAL are made: one that is mostly full-page images, one of short
//! records.
//!
//! `cargo xtask bench wal` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod make;
mod runs;
mod table;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, Parser};
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::{
    BENCH_WAL_SCHEMA, BenchEstimate, BenchGoal, BenchHeader, BenchLine, BenchMemory, BenchOutcome,
    BenchPeak, BenchSubject, BenchWal, BenchWalKind,
};
use pgtoll_trials::bench::{ArmGoal, Bench, BenchArguments, compare};
use pgtoll_trials::{print, say, server_name};

use crate::runs::{Arm, Programs};

/// How fast is WAL read, beside `pg_waldump`?
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench wal",
    mut_arg("size", |size: Arg| size.help("How much WAL of each kind is made")),
    mut_arg("repetitions", |repetitions: Arg| repetitions
        .default_value("5")
        .help("How often everything is run; in five orders no program has a better place")),
    mut_arg("postgres", |postgres: Arg| postgres
        .action(ArgAction::Set)
        .default_value("15")
        .help("The server: a directory or a major version")),
    mut_arg("work_dir", |work_dir: Arg| work_dir.help(
        "Where the clusters are made; twice the size is needed, and 2 GB"
    )),
    mut_arg("before", |before: Arg| before.help(
        "Another pgtoll's `target/distribution/wal_sums`, timed beside this one's"
    )),
)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArguments,
}

fn goals(kind: BenchWalKind) -> [ArmGoal<Arm>; 6] {
    let text = match kind {
        BenchWalKind::Images => 1.0 / 4.0,
        BenchWalKind::Dense => 1.0 / 15.0,
    };
    [
        ArmGoal::cpu("one thread / pg_waldump --stats, CPU", Arm::Sums, Arm::Stats, Some(0.7)),
        ArmGoal::wall(
            "two threads / pg_waldump --stats, wall",
            Arm::TwoThreads,
            Arm::Stats,
            Some(0.4),
        ),
        ArmGoal::cpu("one thread / pg_waldump as text, CPU", Arm::Sums, Arm::Text, Some(text)),
        ArmGoal::cpu("with relations and causes / without, CPU", Arm::Sums, Arm::Plain, Some(1.3)),
        ArmGoal::wall("one thread / pg_waldump --stats, wall", Arm::Sums, Arm::Stats, None),
        ArmGoal::cpu("one thread / the pgtoll before, CPU", Arm::Sums, Arm::Before, None),
    ]
}

/// How much more memory four times the WAL may take, as a ratio.
const MEMORY_AT_MOST: f64 = 1.25;

fn main() -> ExitCode {
    pgtoll_trials::run("bench wal", || bench(&Arguments::parse().bench))
}

/// Both kinds of WAL; `true` when every goal is reached.
fn bench(arguments: &BenchArguments) -> anyhow::Result<bool> {
    let (mut bench, installations) = Bench::begin(arguments)?;
    let installation = installations.first().context("--postgres names no server")?;
    let programs = Programs::find(installation, arguments.before.clone())?;
    let server = server_name(installation);
    let header = bench.header(BENCH_WAL_SCHEMA, arguments.command("wal", ""))?;
    print(&table::introduction(&header, &server));
    bench.record(&BenchLine::Header(Box::new(BenchHeader { server: Some(server), ..header })))?;
    bench.measure_each(BenchWalKind::ALL, |bench, kind, guard| {
        measure(bench, kind, installation, &programs, guard)
    })
}

/// Every arm in every repetition, then how they compare.
fn measure(
    bench: &mut Bench<'_>,
    kind: BenchWalKind,
    installation: &Installation,
    programs: &Programs,
    guard: &mut Guard,
) -> anyhow::Result<Vec<BenchOutcome>> {
    let name = make::name(kind);
    say(&format!("making WAL: {name}"));
    let wal = make::wal(kind, bench.arguments.size, installation, guard)?;
    let total = programs.our_total(&wal)?;
    let theirs = programs.their_total(&wal)?;
    if total != theirs {
        bail!("{name}: pgtoll counts {total:?}, pg_waldump {theirs:?}");
    }
    print(&table::wal(kind, &wal, &total));
    let subject = BenchSubject { kind: Some(kind), ..BenchSubject::default() };
    let bytes = wal.bytes;
    bench.record(&BenchLine::Wal(BenchWal { subject: subject.clone(), bytes, total }))?;
    let runs = bench.run_arms(&subject, name, |arm| programs.run(arm, &wal))?;
    let mut outcomes = compare(&goals(kind), &subject, &runs)?;
    let peak = programs.peak(&wal)?;
    print(&table::memory(peak));
    bench.record(&BenchLine::Memory(BenchMemory { subject: subject.clone(), peak }))?;
    outcomes.push(memory(subject, peak));
    Ok(outcomes)
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes are few")]
fn memory(subject: BenchSubject, peak: BenchPeak) -> BenchOutcome {
    let ratio = peak.whole_kb as f64 / peak.quarter_kb as f64;
    BenchOutcome {
        subject,
        what: "peak memory, four times the WAL / once".to_owned(),
        estimate: BenchEstimate { ratio, lower: ratio, upper: ratio },
        goal: BenchGoal::AtMost(Some(MEMORY_AT_MOST)),
    }
}
