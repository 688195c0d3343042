//! Whether `pgtoll replay` brings pgbench's logged work to the same data, and what pgreplay does with
//! the same log: each on a copy of the data directory as it was before pgbench.
//!
//! `cargo xtask bench replay` runs it. Status 0: every replay of pgtoll ends without error and with
//! the source's tables; 1: one does not; 2: could not tell. pgreplay's results are shown, not judged.

mod capture;
mod replays;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::{
    BENCH_REPLAY_SCHEMA, ReplayBenchHeader, ReplayBenchLine, ReplayBenchRun,
};
use pgtoll_trials::{Recorder, TrialSite, installation, print, say, server_name};

use crate::capture::{Before, CLIENTS};
use crate::replays::{Arm, pgreplay_version};

/// Does pgtoll replay pgbench's log to the same data, and does pgreplay?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench replay")]
struct Arguments {
    /// The servers: directories or major versions
    #[arg(long, alias = "major", value_name = "WHICH", default_values = ["15", "18"], value_delimiter = ',')]
    postgres: Vec<String>,
    /// pgbench's protocols
    #[arg(long, value_name = "PROTOCOL", default_values = ["simple", "extended", "prepared"], value_delimiter = ',', value_parser = ["simple", "extended", "prepared"])]
    protocol: Vec<String>,
    /// Transactions of each of pgbench's 16 clients
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    transactions: u32,
    /// Seconds after which a replay is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Where the clusters are made; 1 GB is needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("bench replay", || bench(&Arguments::parse()))
}

/// Every protocol on every server; `true` when all of pgtoll's replays are faithful.
fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let servers = arguments.postgres.iter().map(|which| installation(which));
    let servers = servers.collect::<anyhow::Result<Vec<_>>>()?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut guard = site.begin_guard()?;
    let header = header(arguments, &site, pgreplay_version(&mut guard))?;
    guard.finish()?;
    let arms: Vec<Arm> = Arm::ALL
        .into_iter()
        .filter(|arm| !arm.is_pgreplay() || header.pgreplay.is_some())
        .collect();
    print(&table::introduction(&header));
    recorder.write(&ReplayBenchLine::Header(Box::new(header)))?;
    let mut runs = Vec::new();
    for server in &servers {
        let mut guard = site.begin_guard()?;
        let before = Before::make(&mut guard, server)?;
        for protocol in &arguments.protocol {
            site.interrupt.check()?;
            let mut record = |line: &ReplayBenchLine| recorder.write(line);
            runs.extend(replays(
                arguments,
                &mut guard,
                &before,
                (server, protocol),
                &arms,
                &mut record,
            )?);
        }
        guard.finish()?;
    }
    let mut own = runs.iter().filter(|(arm, _)| !arm.is_pgreplay());
    Ok(own.all(|(_, run)| run.is_faithful()))
}

/// A log of this protocol, then its replay by every arm.
fn replays(
    arguments: &Arguments,
    guard: &mut Guard,
    before: &Before,
    (server, protocol): (&Installation, &str),
    arms: &[Arm],
    record: &mut impl FnMut(&ReplayBenchLine) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<(Arm, ReplayBenchRun)>> {
    let server = server_name(server);
    say(&format!("{server}, {protocol}: pgbench"));
    let captured = before.capture(guard, protocol, arguments.transactions)?;
    let capture = captured.line(&server, protocol);
    print(&table::capture(&capture));
    record(&ReplayBenchLine::Capture(capture))?;
    let mut runs = Vec::new();
    for &arm in arms {
        say(&format!("{server}, {protocol}: {}", arm.name()));
        let replayed = arm.replay(guard, before, &captured, arguments.limit);
        let run = replayed.with_context(|| arm.name())?.line(arm, &server, protocol, &captured);
        print(&table::run(arm, &run, arguments.limit));
        record(&ReplayBenchLine::Run(run.clone()))?;
        runs.push((arm, run));
    }
    Ok(runs)
}

fn header(
    arguments: &Arguments,
    site: &TrialSite,
    pgreplay: Option<String>,
) -> anyhow::Result<ReplayBenchHeader> {
    let Arguments { postgres, protocol, transactions, limit, .. } = arguments;
    Ok(ReplayBenchHeader {
        schema: BENCH_REPLAY_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        pgreplay,
        command: format!(
            "cargo xtask bench replay --postgres {} --protocol {} --transactions {transactions} --limit {limit}",
            postgres.join(","),
            protocol.join(",")
        ),
        started: jiff::Timestamp::now().to_string(),
        host: site.host()?,
        clients: CLIENTS,
        transactions: *transactions,
        limit_s: *limit,
    })
}
