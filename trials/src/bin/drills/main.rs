//! Random drills: a block of a copied cluster is damaged, `pgtoll verify` has to find it, and
//! `pgtoll repair` has to put the right page there, or none.
//!
//! `cargo xtask drills` runs it. Status 0: the goals are met; 1: they are not; 2: could not tell.

mod damage;
mod drill;
mod score;
mod site;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use pgtoll_format::SplitMix64;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};

use crate::damage::Damage;
use crate::drill::Drill;
use crate::score::Score;
use crate::site::Site;

/// Is every damage found, and is no page repaired wrong?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask drills")]
struct Arguments {
    /// The servers: major versions or directories
    #[arg(long, value_name = "WHICH", default_values = ["15", "17", "18"], value_delimiter = ',')]
    postgres: Vec<String>,
    /// Drills on each server
    #[arg(long, value_name = "N", default_value_t = 100)]
    drills: u64,
    /// Seed of the first drill; each further one has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Verify stopped clusters, and repair them, or running ones
    #[arg(long, value_enum, default_value = "stopped")]
    state: State,
    /// Where the clusters are made; 1 GB is needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Add a line for each drill to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// What the server of a drill does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    Stopped,
    Running,
}

fn main() -> ExitCode {
    pgtoll_trials::run("drills", || run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let trial = TrialSite::prepare(&arguments.work_dir)?;
    let mut recorder = Recorder::append(&arguments.record)?;
    let mut score = Score::default();
    for which in &arguments.postgres {
        let installation = installation(which)?;
        let mut guard = trial.begin_guard()?;
        let mut site = Site::make(&mut guard, &installation, arguments.state == State::Running)?;
        for seed in arguments.seed..arguments.seed + arguments.drills {
            trial.interrupt.check()?;
            let mut random = SplitMix64(seed);
            let damage = Damage::random(&site, &mut random)?;
            let drill = Drill { major: installation.version.major(), seed, damage };
            let outcome = match arguments.state {
                State::Stopped => drill.run_stopped(&mut site, &mut guard, &mut random)?,
                State::Running => drill.run_running(&site)?,
            };
            if outcome.is_failed() {
                say(&serde_json::to_string(&outcome)?);
            }
            recorder.write(&outcome)?;
            score.add(&outcome);
        }
        site.end(&mut guard)?;
        guard.finish()?;
    }
    print(&score.to_string());
    Ok(score.is_good())
}
