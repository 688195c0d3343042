//! Detection of damage: each kind is done to a page of a table and of an index, on fresh copies of
//! one cluster, and pgtoll, servers and PostgreSQL's own tools look for it.
//! fresh copies of one cluster, and pgtoll, servers and PostgreSQL's own tools look for it.
//!
//! `cargo xtask detection` runs it. Status 0: pgtoll finds all that anybody else finds; 1: it does
//! not; 2: could not tell.

mod damage;
mod detectors;
mod site;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pgtoll_record::trials::{DETECTION_SCHEMA, DetectionRecord, DetectionRow};
use pgtoll_trials::detection::markdown;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};

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
    let trial_site = TrialSite::prepare(&arguments.work_dir)?;
    let mut recorder = Recorder::create(&arguments.record)?;
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    for which in &arguments.postgres {
        let installation = installation(which)?;
        servers.push(installation.version.to_string());
        let mut guard = trial_site.begin_guard()?;
        let site = Site::make(&mut guard, &installation)?;
        for case in Case::all().filter(|case| case.name().contains(&arguments.only)) {
            trial_site.interrupt.check()?;
            let row = DetectionRow {
                major: installation.version.major(),
                relation: case.relation.to_owned(),
                damage: case.kind.name().to_owned(),
                found: detectors::all(&site, &mut guard, case)?,
            };
            say(&describe(&row));
            rows.push(row);
        }
        guard.finish()?;
    }
    let command = format!("cargo xtask detection --postgres {}", arguments.postgres.join(","));
    let detection = DetectionRecord {
        schema: DETECTION_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        servers,
        rows,
    };
    recorder.write_indented(&detection)?;
    print(&markdown(&detection));
    let missed = detection.rows.iter().filter(|row| row.is_missed()).map(describe);
    let missed: Vec<String> = missed.collect();
    for row in &missed {
        say(&format!("pgtoll misses what others find: {row}"));
    }
    Ok(missed.is_empty())
}

/// A row in one line.
fn describe(row: &DetectionRow) -> String {
    let mut text = format!("{} {} of {}:", row.major, row.damage, row.relation);
    for (detector, outcome) in &row.found {
        let _ = write!(text, " {detector:?} {outcome:?},");
    }
    text
}
