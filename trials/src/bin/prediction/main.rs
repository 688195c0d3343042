//! How right predictions of what checksums cost are: six workloads run without checksums, where the
//! cost is predicted, and with them, where it is paid; and the other way round.
//!
//! `cargo xtask prediction-trial` runs it. Status 0: every goal is reached; 1: one is not; 2: could
//! not tell.

mod arm;
mod census;
mod estimate;
mod product;
mod program;
mod score;
mod table;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::{
    PREDICTION_TRIAL_SCHEMA, PredictionTrialArm as Arm, PredictionTrialHeader, PredictionTrialLine,
    PredictionTrialRun, PredictionTrialWorkload as Workload,
};
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};

use crate::arm::{Extent, Templates};
use crate::table::Contents;

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
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    cycles: u32,
    /// Amount of work: about so many seconds a cycle, half of that on a fast machine
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Run with `wal_log_hints` instead of checksums too
    #[arg(long)]
    hints: bool,
    /// Ask `pgtoll predict` too
    #[arg(long)]
    predict: bool,
    /// With --predict: let checkpoints of the server that it watches come by time, and spread over
    /// it, as production servers have them. The truths' checkpoints are forced, and quick
    #[arg(long, requires = "predict")]
    spread: bool,
    /// Where the clusters are made; 10 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file; runs that it has are not run again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Put the tables of a record (--record) into this chapter, and run nothing
    #[arg(long, value_name = "FILE", requires = "record")]
    book: Option<PathBuf>,
}

/// The values of `--workload`.
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
    let contents = Contents::read(arguments.record.as_deref())?;
    if let Some(book) = &arguments.book {
        table::into_book(&contents, book)?;
        return Ok(true);
    }
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let recorder = Recorder::append(&arguments.record)?;
    let mut trial = Trial { arguments, contents, recorder };
    trial.begin(&site)?;
    for which in &arguments.major {
        let installation = installation(which)?;
        for workload in Workload::ALL {
            if arguments.workload.is_empty() || arguments.workload.contains(&workload) {
                let missing = trial.missing(workload, &installation);
                let mut guard = site.begin_guard()?;
                trial.run_all(workload, &missing, &installation, &mut guard, &site)?;
                guard.finish()?;
            }
        }
    }
    let (text, reached) = table::markdown(&trial.contents)?;
    print(&text);
    Ok(reached.unwrap_or(true))
}

/// Something to do with a workload, and its repetition.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Run it.
    Run(Arm, u32),
    /// Ask `pgtoll predict` about it.
    Ask(Arm, u32),
}

struct Trial<'a> {
    arguments: &'a Arguments,
    contents: Contents,
    recorder: Recorder,
}

impl Trial<'_> {
    /// Writes a header, which must ask for as much work as those that the record has.
    fn begin(&mut self, site: &TrialSite) -> anyhow::Result<()> {
        let Arguments { repetitions, cycles, seconds, .. } = *self.arguments;
        if self.contents.headers.iter().any(|own| (own.cycles, own.seconds) != (cycles, seconds)) {
            bail!("the record has runs of other --cycles or --seconds");
        }
        let header = PredictionTrialHeader {
            schema: PREDICTION_TRIAL_SCHEMA.to_owned(),
            pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
            command: format!(
                "cargo xtask prediction-trial --major {} --repetitions {repetitions} \
                 --cycles {cycles} --seconds {seconds}{}{}",
                self.arguments.major.join(","),
                if self.arguments.hints { " --hints" } else { "" },
                match (self.arguments.predict, self.arguments.spread) {
                    (true, true) => " --predict --spread",
                    (true, false) => " --predict",
                    (false, _) => "",
                },
            ),
            started: jiff::Timestamp::now().to_string(),
            host: site.host()?,
            cycles,
            seconds,
        };
        self.write(PredictionTrialLine::Header(Box::new(header)))
    }

    /// What the record does not have of a workload, in balanced orders.
    fn missing(&self, workload: Workload, installation: &Installation) -> Vec<Step> {
        let server = installation.version.to_string();
        let mut steps =
            vec![Step::Run(Arm::Off, 0), Step::Run(Arm::On, 0), Step::Run(Arm::Watched, 0)];
        if self.arguments.hints {
            steps.push(Step::Run(Arm::Hints, 0));
        }
        if self.arguments.predict {
            steps.extend([Step::Ask(Arm::Off, 0), Step::Ask(Arm::On, 0)]);
        }
        let orders = BalancedOrders::new(steps.len(), ORDER_SEED);
        let numbered = (1..=self.arguments.repetitions).zip(orders).flat_map(|(number, order)| {
            order.into_iter().map(|at| steps[at].numbered(number)).collect::<Vec<_>>()
        });
        numbered.filter(|step| !self.has(*step, workload, &server)).collect()
    }

    fn has(&self, step: Step, workload: Workload, server: &str) -> bool {
        match step {
            Step::Run(arm, repetition) => self.contents.runs.iter().any(|run| {
                (run.arm, run.repetition, run.workload) == (arm, repetition, workload)
                    && run.server == server
            }),
            Step::Ask(arm, repetition) => self.contents.answers.iter().any(|answer| {
                (answer.arm, answer.repetition, answer.workload) == (arm, repetition, workload)
                    && answer.server == server
            }),
        }
    }

    fn run_all(
        &mut self,
        workload: Workload,
        steps: &[Step],
        installation: &Installation,
        guard: &mut Guard,
        site: &TrialSite,
    ) -> anyhow::Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let Arguments { cycles, seconds, spread, .. } = *self.arguments;
        let extent = Extent { cycles, seconds, spread };
        let templates = Templates::make(workload, installation, guard)?;
        for step in steps {
            site.interrupt.check()?;
            let line = match *step {
                Step::Run(arm, repetition) => {
                    let run = arm::run(workload, arm, repetition, extent, &templates, guard)?;
                    say(&words(&run));
                    PredictionTrialLine::Run(Box::new(run))
                }
                Step::Ask(arm, repetition) => {
                    let answer = arm::answer(workload, arm, repetition, extent, &templates, guard)?;
                    say(&format!(
                        "{} {} {}: {:?}",
                        answer.server,
                        workload.name(),
                        arm.name(),
                        answer.wal
                    ));
                    PredictionTrialLine::Answer(Box::new(answer))
                }
            };
            self.write(line)?;
        }
        Ok(())
    }

    fn write(&mut self, line: PredictionTrialLine) -> anyhow::Result<()> {
        self.recorder.write(&line)?;
        self.contents.add(line);
        Ok(())
    }
}

const ORDER_SEED: u64 = 20_261_123;

impl Step {
    fn numbered(self, repetition: u32) -> Self {
        match self {
            Self::Run(arm, _) => Self::Run(arm, repetition),
            Self::Ask(arm, _) => Self::Ask(arm, repetition),
        }
    }
}

/// A run in one line.
fn words(run: &PredictionTrialRun) -> String {
    format!(
        "{} {} {} {}: {:.1} s, {:.1} MB of WAL, {} images",
        run.server,
        run.workload.name(),
        run.arm.name(),
        run.repetition,
        run.elapsed_s,
        estimate::float(run.wal_bytes) / 1e6,
        run.images
    )
}
