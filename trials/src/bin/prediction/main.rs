//! How right predictions of what checksums cost are: six workloads run without checksums, where the
//! cost is predicted, and then with them, where it is paid.
//!
//! `cargo xtask prediction-trial` runs it. Status 0: every goal is reached; 1: one is not; 2: could
//! not tell.

mod arm;
mod census;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pgtoll_record::trials::{
    PREDICTION_TRIAL_SCHEMA, PredictionTrialArm as Arm, PredictionTrialHeader,
    PredictionTrialLine, PredictionTrialWorkload as Workload,
};
use pgtoll_trials::{Recorder, TrialSite, installation, say};

use crate::arm::{Extent, Templates};

/// How right are predictions of what checksums cost?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prediction-trial")]
struct Arguments {
    /// The servers: major versions or directories
    #[arg(long, value_name = "WHICH", default_value = "15,17,18", value_delimiter = ',')]
    major: Vec<String>,
    /// What they do; all if it is not said
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = workloads())]
    workload: Vec<Workload>,
    /// How often each workload runs with each setting
    #[arg(long, value_name = "N", default_value_t = 3)]
    repetitions: u32,
    /// Checkpoint cycles of a run, after its warm-up
    #[arg(long, value_name = "N", default_value_t = 4)]
    cycles: u32,
    /// Amount of work: about so many seconds a cycle
    #[arg(long, value_name = "N", default_value_t = 4)]
    seconds: u32,
    /// Run with `wal_log_hints` too
    #[arg(long)]
    hints: bool,
    /// Where the clusters are made; 10 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file; runs that it has are not run again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn workloads() -> impl TypedValueParser<Value = Workload> {
    PossibleValuesParser::new(Workload::ALL.map(Workload::name)).try_map(|value| {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == value);
        found.ok_or("no such workload")
    })
}

fn main() -> ExitCode {
    pgtoll_trials::run("prediction-trial", || trial(&Arguments::parse()))
}

fn trial(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let mut recorder = Recorder::append(&arguments.record)?;
    let header = PredictionTrialHeader {
        schema: PREDICTION_TRIAL_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: String::new(),
        started: jiff::Timestamp::now().to_string(),
        host: site.host()?,
        cycles: arguments.cycles,
        seconds: arguments.seconds,
    };
    recorder.write(&PredictionTrialLine::Header(Box::new(header)))?;
    let extent = Extent { cycles: arguments.cycles, seconds: arguments.seconds };
    for which in &arguments.major {
        let installation = installation(which)?;
        for workload in Workload::ALL {
            if !arguments.workload.is_empty() && !arguments.workload.contains(&workload) {
                continue;
            }
            let mut guard = site.begin_guard()?;
            let templates = Templates::make(workload, &installation, &mut guard)?;
            for repetition in 1..=arguments.repetitions {
                for arm in [Arm::Off, Arm::On] {
                    site.interrupt.check()?;
                    let run = arm::run(workload, arm, repetition, extent, &templates, &mut guard)?;
                    let dirty: Vec<_> = run.cycles.iter().map(|c| (c.wal_bytes >> 10, c.written, c.evicted, c.censuses.iter().map(|c| (c.dirty, c.hint_only, c.low, c.low_hint_only)).collect::<Vec<_>>())).collect();
                    say(&format!("{} {} {} {}: {:.1} s, {} kB, images {} hint {}, cpu {:.2} s, read {} written {}, select {} statements {}, without {:?} {:?}",
                        run.server, workload.name(), arm.name(), repetition, run.elapsed_s, run.wal_bytes >> 10, run.images, run.hint_images, run.cpu_ns as f64 / 1e9, run.blocks_read, run.blocks_written, run.select_dirtied, run.statement_dirtied, run.without_hints_bytes.map(|b| b >> 10), dirty));
                    recorder.write(&PredictionTrialLine::Run(Box::new(run)))?;
                }
            }
            guard.finish()?;
        }
    }
    Ok(true)
}
