//! `--null`: runs in which arms do not differ, for the calibration of later runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgtoll_cluster::GuardOptions;
use pgtoll_format::shell_quoted;
use pgtoll_measure::{Plan, Site, null};
use pgtoll_record::{NullRuns, RunResult};
use pgtoll_system::Interrupt;

use crate::arguments::DoctorArguments;
use crate::calibration;
use crate::commands::measure;
use crate::printer::Printer;

/// The outcome of the runs.
pub(super) struct Outcome {
    pub(super) runs: NullRuns,
    /// The error that ended them early.
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
    let base =
        arguments.output.clone().unwrap_or_else(|| measure::results_directory(null::EXPERIMENT));
    let (mut results, mut records): (Vec<RunResult>, Vec<String>) = (Vec::new(), Vec::new());
    let mut longest = Duration::ZERO;
    let mut ended = None;
    while results.is_empty() || began.elapsed() + longest <= time {
        let run_began = Instant::now();
        let plan = null::plan(time, measure::any_seed())?;
        let number = results.len() + 1;
        let output = PathBuf::from(format!("{}-{number}", base.display()));
        printer.stage(&format!("run {number} of identical arms"));
        let servers = BTreeMap::new();
        let site = Site {
            servers: &servers,
            installation: &installation,
            guard,
            interrupt,
            output: &output,
            name: None,
            calibration: calibration::twins(&pgtoll_measure::host(&guard.base)?).calibration(),
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
    let misses = null::misses(results.iter().flat_map(|result| &result.comparisons));
    let runs = NullRuns { records, interrupted, misses };
    Ok(Outcome { runs, ended })
}

fn one_run(plan: &Plan, site: &Site<'_>, printer: &mut Printer) -> anyhow::Result<RunResult> {
    measure::make_output(site.output)?;
    let outcome = measure::record(plan, site, printer);
    let result = measure::write_result(site.output);
    outcome?;
    let result = result?;
    calibration::remember(&result);
    Ok(result)
}

/// The command that makes a run again.
fn command(plan: &Plan, arguments: &DoctorArguments) -> Vec<String> {
    let mut command = null::command(plan.seed);
    if let Some(postgres) = &arguments.postgres {
        command.extend(["--postgres".to_owned(), shell_quoted(postgres)]);
    }
    if arguments.work_dir != Path::new(crate::arguments::WORK_DIR) {
        let directory = arguments.work_dir.to_string_lossy();
        command.extend(["--work-dir".to_owned(), shell_quoted(&directory)]);
    }
    command
}
