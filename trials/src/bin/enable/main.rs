//! Speed of `pgtoll enable`, beside `pg_checksums --enable` on copies of the same cluster in the
//! same run, and beside a plain write of as many bytes: ratios, since machines differ.
//! same run, and beside a plain write of as many bytes: ratios, since machines differ.
//!
//! `cargo xtask bench enable` runs it. Status 0: every goal is reached; 1: one is not; 2: could not
//! tell.

mod runs;
mod table;

use std::process::ExitCode;

use clap::{Arg, Parser};
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::ByteSize;
use pgtoll_record::trials::{
    BENCH_ENABLE_SCHEMA, BenchCluster, BenchLine, BenchOutcome, BenchSubject,
};
use pgtoll_trials::bench::{ArmGoal, Bench, BenchArguments, compare};
use pgtoll_trials::{print, say, server_name, settings};

use crate::runs::{Arm, Programs};

/// How fast are checksums turned on, beside `pg_checksums`?
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask bench enable",
    mut_arg("size", |size: Arg| size.help("How large the cluster is")),
    mut_arg("repetitions", |repetitions: Arg| repetitions
        .default_value("7")
        .help("How often everything is run; in seven orders no program has a better place")),
    mut_arg("work_dir", |work_dir: Arg| work_dir.help(
        "Where the clusters are made; three times the size is needed, and 2 GB"
    )),
)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArguments,
}

const GOALS: [ArmGoal<Arm>; 8] = [
    ArmGoal::wall(
        "one job / pg_checksums, no sync, wall",
        Arm::OneJobNoSync,
        Arm::TheirsNoSync,
        Some(0.3),
    ),
    ArmGoal::wall(
        "two jobs / pg_checksums, no sync, wall",
        Arm::TwoJobsNoSync,
        Arm::TheirsNoSync,
        Some(0.18),
    ),
    ArmGoal::cpu(
        "one job / pg_checksums, no sync, CPU",
        Arm::OneJobNoSync,
        Arm::TheirsNoSync,
        None,
    ),
    ArmGoal::wall(
        "two jobs / plain write, with sync, wall",
        Arm::TwoJobs,
        Arm::PlainWrite,
        Some(1.15),
    ),
    ArmGoal::wall("one job / plain write, with sync, wall", Arm::OneJob, Arm::PlainWrite, None),
    ArmGoal::wall("two jobs / pg_checksums, with sync, wall", Arm::TwoJobs, Arm::Theirs, None),
    ArmGoal::cpu(
        "one job / the pgtoll before, no sync, CPU",
        Arm::OneJobNoSync,
        Arm::BeforeOneJobNoSync,
        None,
    ),
    ArmGoal::wall(
        "two jobs / the pgtoll before, with sync, wall",
        Arm::TwoJobs,
        Arm::BeforeTwoJobs,
        None,
    ),
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench enable", || bench(&Arguments::parse().bench))
}

/// A cluster of each server; `true` when every goal is reached.
fn bench(arguments: &BenchArguments) -> anyhow::Result<bool> {
    let (mut bench, installations) = Bench::begin(arguments)?;
    let postgres = format!(" --postgres {}", arguments.postgres.join(" --postgres "));
    let header = bench.header(BENCH_ENABLE_SCHEMA, arguments.command("enable", &postgres))?;
    print(&table::introduction(&header));
    bench.record(&BenchLine::Header(Box::new(header)))?;
    bench.measure_each(&installations, measure)
}

/// A stopped cluster of pgbench's tables, without checksums.
fn cluster(
    size: ByteSize,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Cluster> {
    let cluster = Cluster::init(guard, installation, "cluster", false)?;
    let settings = settings([("fsync", "off"), ("autovacuum", "off"), ("max_wal_size", "128MB")]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    let scale = size.0.div_ceil(SCALE_BYTES).to_string();
    let load = ["--initialize", "--quiet", "--scale", &scale, "postgres"];
    cluster.run_client(guard, "pgbench", &load)?;
    cluster.stop(guard, StopMode::Fast)?;
    Ok(cluster)
}

/// Bytes of a unit of pgbench's scale.
const SCALE_BYTES: u64 = 15_700_000;

/// Every arm in every repetition, then how they compare.
fn measure(
    bench: &mut Bench<'_>,
    installation: &Installation,
    guard: &mut Guard,
) -> anyhow::Result<Vec<BenchOutcome>> {
    let server = server_name(installation);
    say(&format!("{server}: making the cluster"));
    let before = bench.arguments.before.clone();
    let cluster = cluster(bench.arguments.size, installation, guard)?;
    let programs = Programs::new(installation, &cluster, guard.directory(), before)?;
    let subject = BenchSubject { server: Some(server.clone()), ..BenchSubject::default() };
    let bytes = programs.bytes;
    let files = programs.files as u64;
    bench.record(&BenchLine::Cluster(BenchCluster { subject: subject.clone(), bytes, files }))?;
    let runs = bench.run_arms(&subject, &server, |arm| programs.run(arm, guard))?;
    let title = format!("{server}, {}", ByteSize(bytes).rounded());
    print(&table::times(&title, &runs));
    compare(&GOALS, &subject, &runs)
}
