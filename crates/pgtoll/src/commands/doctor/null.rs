//! `--null`: runs in which arms do not differ, for the calibration of later runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pgtoll_bench::{Choices, Experiment, Plan, Site};
use pgtoll_cluster::GuardOptions;
use pgtoll_format::{TimeSpan, shell_quoted};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{Metric, Misses, NullRuns, RunResult};

use crate::arguments::DoctorArguments;
use crate::calibration;
use crate::commands::measure;
use crate::printer::Printer;

/// The built-in experiment.
const EXPERIMENT: &str = "null";
/// Fewer rounds say too little of the spread between them to be counted.
const ROUNDS: u32 = 6;
/// Many short runs say more than a long one: what differs between runs is what is looked for.
const ROUND_TIME: Duration = Duration::from_secs(2);
/// In less a run has not even its first workload.
const SHORTEST: Duration = Duration::from_secs(30);
/// As many as `measure` takes when nobody says otherwise.
const REPETITIONS: u32 = 5;

/// What the runs came to.
pub(super) struct Outcome {
    pub(super) runs: NullRuns,
    /// What ended them before their time.
    pub(super) ended: Option<anyhow::Error>,
}

/// As many runs as fit into `time`, at least one; each adds its comparisons to the calibration.
/// What was finished counts, whatever ends them.
pub(super) fn run(
    time: Duration,
    arguments: &DoctorArguments,
    guard: &GuardOptions,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let installation = measure::installation(arguments.postgres.as_deref(), interrupt, printer)?;
    let base = arguments.output.clone().unwrap_or_else(|| measure::results_directory(EXPERIMENT));
    let (mut results, mut records) = (Vec::new(), Vec::new());
    let mut longest = Duration::ZERO;
    let mut ended = None;
    while results.is_empty() || began.elapsed() + longest <= time {
        let run_began = Instant::now();
        let plan = plan(time, measure::any_seed())?;
        let number = results.len() + 1;
        let output = PathBuf::from(format!("{}-{number}", base.display()));
        printer.stage(&format!("run {number} of identical arms"));
        let site = Site {
            installation: &installation,
            guard,
            interrupt,
            output: &output,
            calibration: calibration::of_host(&pgtoll_bench::host(&guard.base)?),
            pgtoll: env!("CARGO_PKG_VERSION"),
            command: command(&plan, arguments),
        };
        match one_run(&plan, &site, printer) {
            Ok(result) => results.push(result),
            Err(error) => {
                ended = Some(error);
                break;
            }
        }
        records.push(output.display().to_string());
        longest = longest.max(run_began.elapsed());
    }
    let interrupted = interrupt.signal().is_some();
    let runs = NullRuns { records, interrupted, misses: misses(&results) };
    Ok(Outcome { runs, ended })
}

fn one_run(plan: &Plan, site: &Site<'_>, printer: &mut Printer) -> anyhow::Result<RunResult> {
    measure::make_output(site.output)?;
    let outcome = measure::record(plan, site, printer);
    let result = measure::write_result(site.output);
    outcome?;
    let (result, _) = result?;
    calibration::remember(&result);
    Ok(result)
}

/// What does not fit into half of the time is not timed: what differs between runs is looked for
/// too.
fn plan(time: Duration, seed: u64) -> anyhow::Result<Plan> {
    let experiment = Experiment::built_in(EXPERIMENT).context("find the null experiment")??;
    let choices = Choices {
        budget: Some((time / 2).max(SHORTEST)),
        rounds: Some(ROUNDS),
        round_time: Some(ROUND_TIME),
        repetitions: Some(REPETITIONS),
        seed,
        ..Choices::default()
    };
    Ok(Plan::new(experiment, &choices))
}

/// The command that makes a run again.
fn command(plan: &Plan, arguments: &DoctorArguments) -> Vec<String> {
    let text = format!(
        "pgtoll measure {EXPERIMENT} --rounds {ROUNDS} --round-time {} --repetitions {REPETITIONS} \
         --seed {}",
        TimeSpan(ROUND_TIME),
        plan.seed
    );
    let mut command: Vec<String> = text.split(' ').map(ToOwned::to_owned).collect();
    if let Some(postgres) = &arguments.postgres {
        command.extend(["--postgres".to_owned(), shell_quoted(postgres)]);
    }
    if arguments.work_dir != Path::new(crate::arguments::WORK_DIR) {
        let directory = arguments.work_dir.to_string_lossy();
        command.extend(["--work-dir".to_owned(), shell_quoted(&directory)]);
    }
    command
}

/// As intervals were before any widening, by metric.
fn misses(results: &[RunResult]) -> Vec<Misses> {
    let counted = Metric::ALL.into_iter().map(|metric| {
        let comparisons = results.iter().flat_map(|of| &of.comparisons);
        let own: Vec<_> = comparisons.filter(|of| of.null && of.metric == metric).collect();
        let missed = own
            .iter()
            .filter(|of| of.ratio.estimate.ln().abs() > of.half_width / of.kappa.unwrap_or(1.0));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Misses { metric, comparisons: count(own.len()), missed: count(missed.count()) }
    });
    counted.filter(|of| of.comparisons > 0).collect()
}
