//! Speed of verifying a cluster, beside `pg_checksums --check` on the same files in the same run:
//! ratios, since machines differ. Cold runs are compared with `cat`.
//! run: ratios, since machines differ. Cold runs are compared with `cat`.
//!
//! `cargo xtask bench verify` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod make;
mod runs;
mod table;

use std::process::ExitCode;

use clap::{Arg, Parser};
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::{
    BENCH_VERIFY_SCHEMA, BenchCluster, BenchHeader, BenchLine, BenchOutcome, BenchSubject,
};
use pgtoll_trials::bench::{ArmGoal, Bench, BenchArguments, compare};
use pgtoll_trials::{beside, print, say, server_name};

use crate::runs::{Arm, Programs};

/// How fast are pages verified, beside `pg_checksums`?
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench verify",
    mut_arg("size", |size: Arg| size.help("How much is in the tables of each cluster")),
    mut_arg("repetitions", |repetitions: Arg| repetitions
        .default_value("8")
        .help("How often everything is run; in eight orders no program has a better place")),
    mut_arg("postgres", |postgres: Arg| postgres.value_delimiter(',').default_value("15,18")),
    mut_arg("work_dir", |work_dir: Arg| work_dir.help(
        "Where the clusters are made, one after the other; the size is needed, and 1 GB"
    )),
)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArguments,
}

const GOALS: [ArmGoal<Arm>; 9] = [
    ArmGoal::cpu("one job / pg_checksums, CPU", Arm::Read, Arm::Checksums, Some(0.6)),
    ArmGoal::cpu("one job, mapped / pg_checksums, CPU", Arm::Mapped, Arm::Checksums, Some(0.4)),
    ArmGoal::wall("one job / pg_checksums, wall", Arm::Read, Arm::Checksums, None),
    ArmGoal::wall("two jobs / pg_checksums, wall", Arm::TwoJobs, Arm::Checksums, Some(0.35)),
    ArmGoal::wall(
        "two jobs, mapped / pg_checksums, wall",
        Arm::TwoJobsMapped,
        Arm::Checksums,
        None,
    ),
    ArmGoal::wall("cold / cat, wall", Arm::Cold, Arm::ColdCat, Some(1.1)),
    ArmGoal::wall("cold / pg_checksums, wall", Arm::Cold, Arm::ColdChecksums, None),
    ArmGoal::cpu("one job / the pgtoll before, CPU", Arm::Read, Arm::Before, None),
    ArmGoal::wall("two jobs / the pgtoll before, wall", Arm::TwoJobs, Arm::BeforeTwoJobs, None),
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench verify", || bench(&Arguments::parse().bench))
}

/// Every server's cluster; `true` when every goal is reached.
fn bench(arguments: &BenchArguments) -> anyhow::Result<bool> {
    let (mut bench, installations) = Bench::begin(arguments)?;
    let programs = Programs { pgtoll: beside("pgtoll")?, before: arguments.before.clone() };
    let servers: Vec<String> = installations.iter().map(server_name).collect();
    let postgres = format!(" --postgres {}", arguments.postgres.join(","));
    let header = bench.header(BENCH_VERIFY_SCHEMA, arguments.command("verify", &postgres))?;
    print(&table::introduction(&header, &servers));
    bench.record(&BenchLine::Header(Box::new(BenchHeader { servers: Some(servers), ..header })))?;
    bench.measure_each(&installations, |bench, installation, guard| {
        measure(bench, installation, &programs, guard)
    })
}

/// Every arm in every repetition, then how they compare.
fn measure(
    bench: &mut Bench<'_>,
    installation: &Installation,
    programs: &Programs,
    guard: &mut Guard,
) -> anyhow::Result<Vec<BenchOutcome>> {
    say(&format!("filling a cluster of {}", installation.version));
    let cluster = make::cluster(installation, bench.arguments.size, guard)?;
    let major = cluster.major;
    let bytes = cluster.bytes;
    let files = cluster.files.len();
    print(&table::cluster(major, bytes, files));
    let subject = BenchSubject { major: Some(major), ..BenchSubject::default() };
    let files = files as u64;
    bench.record(&BenchLine::Cluster(BenchCluster { subject: subject.clone(), bytes, files }))?;
    // As a server left it, its pages lie in the cache one by one; what is read comes in large
    // pieces, in which later runs would find it.
    cluster.cool()?;
    let title = format!("PostgreSQL {major}");
    let runs = bench.run_arms(&subject, &title, |arm| runs::run(arm, &cluster, programs))?;
    compare(&GOALS, &subject, &runs)
}
