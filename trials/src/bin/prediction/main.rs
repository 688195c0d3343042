//! Predictions of the cost of checksums beside the cost that is paid: six workloads run without
//! checksums, where the cost is predicted, and with them, where it is paid; and the other way
//! round.
//! cost is predicted, and with them, where it is paid; and the other way round.
//!
//! `cargo xtask prediction-trial` runs it. Status 0: every goal is reached; 1: one is not; 2: could
//! not tell.

mod arm;
mod cells;
mod census;
mod contents;
mod estimate;
mod goals;
mod pair;
mod pooled;
mod product;
mod program;
mod score;
mod segments;
mod table;
mod trial;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::trials::{
    PREDICTION_TRIAL_SCHEMA, PredictionTrialArm as Arm, PredictionTrialHeader, PredictionTrialLine,
    PredictionTrialRegime as Regime, PredictionTrialRights as Rights,
    PredictionTrialWorkload as Workload,
};
use pgtoll_stats::BalancedOrders;
use pgtoll_trials::{Recorder, TrialSite, installation, print, say};

use crate::arm::{Extent, Templates};
use crate::contents::{Contents, Subject};
use crate::pair::PairPlan;

/// How right are predictions of what checksums cost?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask prediction-trial")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
struct Arguments {
    /// The servers: major versions or directories
    #[arg(long, value_name = "WHICH", default_value = "15,17,18", value_delimiter = ',')]
    major: Vec<String>,
    /// What they do; all if it is not said
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = workloads())]
    workload: Vec<Workload>,
    /// How often each workload runs with each setting; with --spread, one of all takes three quarters of an hour
    #[arg(long, value_name = "N", default_value_t = 3)]
    repetitions: u32,
    /// Checkpoint cycles of a run, after its warm-up: 4, and 2 with --spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cycles: Option<u32>,
    /// Amount of work: about this many seconds a cycle, half of that on a fast machine
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Run with `wal_log_hints` instead of checksums too
    #[arg(long, conflicts_with = "spread")]
    hints: bool,
    /// Ask `pgtoll predict` too, about turning checksums on and about turning them off
    #[arg(long)]
    predict: bool,
    /// Ask it as a role with `pg_monitor`, too, which reads neither buffers nor WAL
    #[arg(long, requires = "predict", conflicts_with = "spread")]
    monitor: bool,
    /// Let checkpoints come by time (30 s) and spread over it, as production servers have them,
    /// instead of forcing them. Truth and prediction then are of the same run: a server with
    /// checksums and one without work at the same time
    #[arg(long)]
    spread: bool,
    /// Where the clusters are made; 10 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Keep every run in this file; runs that it has are not run again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
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

impl Arguments {
    fn regime(&self) -> Regime {
        if self.spread { Regime::Timed } else { Regime::Forced }
    }

    /// What servers that take turns pay for. Without the program, the trial takes censuses of its own.
    fn arms(&self) -> Vec<Arm> {
        let mut arms = vec![Arm::Off, Arm::On];
        arms.extend((!self.predict).then_some(Arm::Watched));
        arms.extend(self.hints.then_some(Arm::Hints));
        arms
    }

    fn extent(&self) -> Extent {
        let usual = if self.spread { 2 } else { 4 };
        Extent { cycles: self.cycles.unwrap_or(usual), seconds: self.seconds }
    }

    /// The command that repeats it.
    fn command(&self) -> String {
        let Extent { cycles, seconds } = self.extent();
        let mut command = format!(
            "cargo xtask prediction-trial --major {} --repetitions {} --cycles {cycles} \
             --seconds {seconds}",
            self.major.join(","),
            self.repetitions,
        );
        let options = [
            (self.hints, "--hints"),
            (self.predict, "--predict"),
            (self.monitor, "--monitor"),
            (self.spread, "--spread"),
        ];
        for (_, name) in options.into_iter().filter(|(is_given, _)| *is_given) {
            command.push(' ');
            command.push_str(name);
        }
        command
    }
}

fn trial(arguments: &Arguments) -> anyhow::Result<bool> {
    if let Some(record) = &arguments.record {
        contents::cut_unfinished_line(record)?;
    }
    let contents = Contents::read(arguments.record.as_ref())?;
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let recorder = Recorder::append(&arguments.record)?;
    let mut trial = Trial { arguments, contents, recorder, site };
    let outcome = trial.run();
    // What was found until then, whatever ended it.
    let (text, reached) = table::markdown(&trial.contents)?;
    print(&text);
    outcome?;
    Ok(reached.unwrap_or(true))
}

/// Something to do with a workload, and its repetition.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Run it with each setting, in turns.
    Turns(u32),
    /// Ask `pgtoll predict` about it.
    Ask(Arm, Rights, u32),
    /// Run it with timed checkpoints, with and without checksums, and ask about both.
    Pair(u32),
}

struct Trial<'a> {
    arguments: &'a Arguments,
    contents: Contents,
    recorder: Recorder,
    site: TrialSite,
}

impl Trial<'_> {
    /// All that the record does not have. What fails is reported, and the next workload begins.
    fn run(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        let mut failed = 0_usize;
        for which in &self.arguments.major {
            let installation = installation(which)?;
            for workload in Workload::ALL {
                let requested = &self.arguments.workload;
                if !requested.is_empty() && !requested.contains(&workload) {
                    continue;
                }
                let outcome = self.run_all(workload, &installation);
                // The error of whatever the signal ended says less.
                self.site.interrupt.check()?;
                if let Err(error) = outcome {
                    say(&format!("{} {}: {error:#}", installation.version, workload.name()));
                    failed += 1;
                }
            }
        }
        if failed > 0 {
            bail!("{failed} workloads ended early; the same command with --record resumes");
        }
        Ok(())
    }

    /// Writes a header, which must ask for as much work as those that the record has.
    fn begin(&mut self) -> anyhow::Result<()> {
        let (Extent { cycles, seconds }, regime) =
            (self.arguments.extent(), self.arguments.regime());
        let mut headers = self.contents.headers.iter().filter(|header| header.regime == regime);
        if headers.any(|own| (own.cycles, own.seconds) != (cycles, seconds)) {
            bail!("the record has runs of other --cycles or --seconds");
        }
        let header = PredictionTrialHeader {
            schema: PREDICTION_TRIAL_SCHEMA.to_owned(),
            pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
            command: self.arguments.command(),
            started: jiff::Timestamp::now().to_string(),
            host: self.site.host()?,
            cycles,
            seconds,
            regime,
        };
        self.write(PredictionTrialLine::Header(Box::new(header)))
    }

    /// What the record does not have of a workload, in balanced orders.
    fn missing(&self, workload: Workload, installation: &Installation) -> Vec<Step> {
        let server = installation.version.to_string();
        let mut steps = vec![if self.arguments.spread { Step::Pair(0) } else { Step::Turns(0) }];
        if self.arguments.predict && !self.arguments.spread {
            steps.extend([Arm::Off, Arm::On].map(|arm| Step::Ask(arm, Rights::Superuser, 0)));
        }
        if self.arguments.monitor {
            steps.extend([Arm::Off, Arm::On].map(|arm| Step::Ask(arm, Rights::Monitor, 0)));
        }
        let orders = BalancedOrders::new(steps.len(), ORDER_SEED);
        let numbered = (1..=self.arguments.repetitions).zip(orders).flat_map(|(number, order)| {
            order.into_iter().map(|at| steps[at].numbered(number)).collect::<Vec<_>>()
        });
        numbered.filter(|step| !self.has(*step, workload, &server)).collect()
    }

    fn has(&self, step: Step, workload: Workload, server: &str) -> bool {
        let subject = |arm, rights, repetition| {
            let regime = self.arguments.regime();
            Subject { server: server.to_owned(), workload, regime, arm, repetition, rights }
        };
        let superuser = Rights::Superuser;
        let has_run = |arm, repetition| self.contents.has_run(&subject(arm, superuser, repetition));
        let has_answer =
            |arm, rights, repetition| self.contents.has_answer(&subject(arm, rights, repetition));
        let arms = [Arm::Off, Arm::On];
        match step {
            Step::Turns(repetition) => {
                self.arguments.arms().into_iter().all(|arm| has_run(arm, repetition))
            }
            Step::Ask(arm, rights, repetition) => has_answer(arm, rights, repetition),
            Step::Pair(repetition) => {
                let is_answered =
                    |arm| !self.arguments.predict || has_answer(arm, superuser, repetition);
                arms.into_iter().all(|arm| has_run(arm, repetition) && is_answered(arm))
            }
        }
    }

    fn run_all(&mut self, workload: Workload, installation: &Installation) -> anyhow::Result<()> {
        let steps = self.missing(workload, installation);
        if steps.is_empty() {
            return Ok(());
        }
        let mut guard = self.site.begin_guard()?;
        let templates = Templates::make(workload, installation, &mut guard)?;
        for step in steps {
            self.site.interrupt.check()?;
            for line in self.take(step, workload, &templates, &mut guard)? {
                say(&describe(&line));
                self.write(line)?;
            }
        }
        guard.finish()?;
        Ok(())
    }

    /// The lines of a step.
    fn take(
        &self,
        step: Step,
        workload: Workload,
        templates: &Templates,
        guard: &mut Guard,
    ) -> anyhow::Result<Vec<PredictionTrialLine>> {
        let extent = self.arguments.extent();
        let place = (templates, &self.site.interrupt);
        Ok(match step {
            Step::Turns(repetition) => {
                let arms = self.arguments.arms();
                let runs = arm::run(workload, &arms, repetition, extent, place, guard)?;
                runs.into_iter().map(|run| PredictionTrialLine::Run(Box::new(run))).collect()
            }
            Step::Ask(arm, rights, repetition) => {
                let requested = (repetition, rights);
                let answer = arm::answer(workload, arm, requested, extent, place, guard)?;
                vec![PredictionTrialLine::Answer(Box::new(answer))]
            }
            Step::Pair(repetition) => {
                let predict = self.arguments.predict;
                let plan = PairPlan { workload, repetition, extent, predict };
                let outcomes = pair::run(plan, templates, guard, &self.site.interrupt)?;
                let lines = |outcome: pair::Outcome| {
                    let answer = outcome.answer.map(Box::new).map(PredictionTrialLine::Answer);
                    [PredictionTrialLine::Run(Box::new(outcome.run))].into_iter().chain(answer)
                };
                outcomes.into_iter().flat_map(lines).collect()
            }
        })
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
            Self::Turns(_) => Self::Turns(repetition),
            Self::Ask(arm, rights, _) => Self::Ask(arm, rights, repetition),
            Self::Pair(_) => Self::Pair(repetition),
        }
    }
}

/// A line of the record in one line of text.
fn describe(line: &PredictionTrialLine) -> String {
    match line {
        PredictionTrialLine::Header(header) => header.command.clone(),
        PredictionTrialLine::Run(run) => format!(
            "{} {} {} {}: {:.1} s, {:.1} MB of WAL, {} images",
            run.server,
            run.workload.name(),
            run.arm.name(),
            run.repetition,
            run.elapsed_s,
            float(run.wal_bytes) / 1e6,
            run.images
        ),
        PredictionTrialLine::Answer(answer) => {
            let server = &answer.server;
            let workload = answer.workload.name();
            let found = match (&answer.wal, &answer.failure) {
                (Some(wal), _) => cells::range(wal),
                (None, Some(failure)) => failure.clone(),
                (None, None) => "no prediction of WAL".to_owned(),
            };
            let role = match answer.rights {
                Rights::Superuser => "",
                Rights::Monitor => " as pg_monitor",
            };
            format!("{server} {workload} {}: pgtoll predict{role}: {found}", answer.arm.name())
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
