//! Which damage is noticed by whom: each kind is done to a page of a table and of an index, on
//! fresh copies of one cluster, and pgtoll, servers and PostgreSQL's own tools look for it.
//!
//! `cargo xtask detection` runs it. Status 0: pgtoll finds all that anybody else finds; 1: it does
//! not; 2: could not tell.

mod damage;
mod detectors;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Guard, GuardOptions, Installation, ServerUser};
use pgtoll_interrupt::Interrupt;
use pgtoll_trials::detection::{Detection, Row, markdown};
use pgtoll_trials::{print, say};

use crate::damage::Case;
use crate::site::Site;

/// Which damage is noticed by whom?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask detection")]
struct Arguments {
    /// The servers: major versions or directories.
    #[arg(long, value_name = "WHICH", default_values = ["15", "17", "18"], value_delimiter = ',')]
    postgres: Vec<String>,
    /// Where the clusters are made; 1 GB is needed.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Only damage whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Keep what was found in this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("detection", || detect(&Arguments::parse()))
}

/// Every damage with every server; `true` when pgtoll finds all that anybody else finds.
fn detect(arguments: &Arguments) -> anyhow::Result<bool> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let base = std::fs::canonicalize(&arguments.work_dir);
    let base = base.with_context(|| format!("find {}", arguments.work_dir.display()))?;
    let options = GuardOptions::of_this_program(base, ServerUser::choose()?);
    let mut detection = Detection::new(format!(
        "cargo xtask detection --postgres {}",
        arguments.postgres.join(",")
    ));
    for which in &arguments.postgres {
        let installation = Installation::find(Some(which))?;
        let installation = installation.context("no such PostgreSQL server found")?;
        detection.servers.push(installation.version.to_string());
        let mut guard = Guard::begin(&options, &interrupt)?;
        let site = Site::make(&mut guard, &installation)?;
        for case in Case::all().filter(|case| case.name().contains(&arguments.only)) {
            interrupt.check()?;
            let row = Row {
                major: installation.version.major(),
                relation: case.relation.to_owned(),
                damage: case.kind.name().to_owned(),
                found: detectors::all(&site, &mut guard, case)?,
            };
            say(&row.to_string());
            detection.rows.push(row);
        }
        guard.finish()?;
    }
    if let Some(path) = &arguments.record {
        std::fs::write(path, serde_json::to_string_pretty(&detection)? + "\n")
            .with_context(|| format!("write {}", path.display()))?;
    }
    print(&markdown(&detection));
    let missed: Vec<&Row> = detection.rows.iter().filter(|row| row.is_missed()).collect();
    for row in &missed {
        say(&format!("pgtoll misses what others find: {row}"));
    }
    Ok(missed.is_empty())
}
