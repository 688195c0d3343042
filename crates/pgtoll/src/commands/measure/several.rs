//! Several experiments in one call: each has a directory of its own below a common one, which holds
//! their overview.

use std::path::Path;

use pgtoll_estimate::{overview_experiment, overview_headline};
use pgtoll_measure::{BenchError, RECORD_FILE};
use pgtoll_record::{EndStatus, OVERVIEW_SCHEMA, Overview, OverviewExperiment, Status};
use pgtoll_report::{Format, ReportedRecord as _, overview_text};

use super::{
    PlannedExperiment, Workplace, make_output as make_result, refuse_if_there, results_directory,
    write_result,
};
use crate::calibration;
use crate::commands::{output as outputs, thresholds};
use crate::printer::Printer;

/// The overview for programs, in the common directory.
pub(crate) const OVERVIEW_FILE: &str = "overview.json";
/// The overview for people.
const INDEX_FILE: &str = "index.html";

/// Runs them one after the other. One that fails is reported, and the others continue; a signal ends all.
pub(super) fn run(
    requested: &[PlannedExperiment],
    workplace: &Workplace<'_>,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let arguments = workplace.arguments;
    let output = arguments.output.clone().unwrap_or_else(|| results_directory("overview"));
    make_output(&output)?;
    let mut overview = Overview {
        schema: OVERVIEW_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        name: arguments.name.clone(),
        started: jiff::Timestamp::now().to_string(),
        host: pgtoll_measure::host(&workplace.guard.base)?,
        version: workplace.installation.version.clone(),
        headline: None,
        experiments: requested.iter().map(not_begun).collect(),
    };
    let mut statuses = Vec::new();
    for (index, item) in requested.iter().enumerate() {
        let entry = &mut overview.experiments[index];
        printer.say(&format!("experiment {} of {}: {}", index + 1, requested.len(), entry.name));
        statuses.push(one(item, workplace, &output.join(&entry.name), entry, printer)?);
        overview.headline = overview_headline(&overview.experiments);
        // Whatever ends this program, what there is can be read.
        write(&output, &overview)?;
        if workplace.interrupt.check().is_err() {
            break;
        }
    }
    show(&overview, &output, workplace.format, printer);
    workplace.interrupt.check()?;
    Ok(Status::worst(statuses))
}

/// Runs one of them, and notes in its entry what came out.
fn one(
    requested: &PlannedExperiment,
    workplace: &Workplace<'_>,
    directory: &Path,
    entry: &mut OverviewExperiment,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let room = workplace
        .check_version(requested)
        .and_then(|()| requested.plan.check_room(&workplace.guard.base))
        .map_err(anyhow::Error::new);
    let ready = room.and_then(|()| make_result(directory));
    // Another run's record is none of this one's.
    let is_ready = ready.is_ok();
    let outcome = ready.and_then(|()| {
        workplace.record(requested, directory, printer)?.map_err(anyhow::Error::new)
    });
    (entry.status, entry.reason) = ended(outcome.as_ref().err());
    entry.skipped = skipped(outcome.as_ref().err()).is_some();
    let has_record = is_ready && directory.join(RECORD_FILE).exists();
    let result = has_record.then(|| write_result(directory)).transpose()?;
    if let Some(result) = &result {
        *entry = overview_experiment(entry, result);
    }
    match (outcome, result) {
        (Ok(()), Some(result)) => {
            calibration::remember(&result);
            Ok(thresholds::judge(&requested.thresholds, &result, Some(&entry.name), printer))
        }
        (Err(error), _) if entry.skipped => {
            printer.warn(&format!("pgtoll: {}: {error}", entry.name));
            // A threshold of what was not measured is not kept.
            let is_judged = !requested.thresholds.is_empty();
            Ok(if is_judged { Status::CouldNotTell } else { Status::Done })
        }
        (Err(error), _) if entry.status == EndStatus::Failed => {
            printer.error(&error.context(entry.name.clone()));
            Ok(Status::CouldNotTell)
        }
        // The signal is told once, when all have ended.
        _ => Ok(Status::CouldNotTell),
    }
}

fn make_output(output: &Path) -> anyhow::Result<()> {
    refuse_if_there(output, OVERVIEW_FILE, "an overview")?;
    let made = std::fs::create_dir_all(output);
    made.map_err(|source| BenchError::Record { path: output.to_owned(), source })?;
    Ok(())
}

fn not_begun(planned_experiment: &PlannedExperiment) -> OverviewExperiment {
    let experiment = &planned_experiment.plan.experiment;
    OverviewExperiment {
        name: experiment.name.clone(),
        question: experiment.question.clone(),
        baseline: experiment.baseline.clone(),
        status: EndStatus::Interrupted,
        reason: Some("not begun".to_owned()),
        skipped: false,
        answer: None,
        answers: Vec::new(),
        comparisons: Vec::new(),
        counted: Vec::new(),
        claims: Vec::new(),
    }
}

/// How an experiment ended, and why where it did not end well.
fn ended(error: Option<&anyhow::Error>) -> (EndStatus, Option<String>) {
    let Some(error) = error else { return (EndStatus::Complete, None) };
    let message = format!("{error:#}");
    let reason = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let interrupted = error.downcast_ref().is_some_and(BenchError::is_interruption);
    let is_open = interrupted || skipped(Some(error)).is_some();
    (if is_open { EndStatus::Interrupted } else { EndStatus::Failed }, Some(reason))
}

/// Why it was skipped; `None`: it was not.
fn skipped(error: Option<&anyhow::Error>) -> Option<&str> {
    error?.downcast_ref().and_then(BenchError::skipped)
}

fn write(output: &Path, overview: &Overview) -> anyhow::Result<()> {
    for (name, text) in [(OVERVIEW_FILE, overview.json()), (INDEX_FILE, overview.html())] {
        outputs::write(&output.join(name), &text)?;
    }
    Ok(())
}

fn show(overview: &Overview, output: &Path, format: Format, printer: &mut Printer) {
    if format == Format::Json {
        printer.data(&overview.json());
    } else {
        let directory = output.display().to_string();
        printer.data(&overview_text(overview, &directory, printer.style()));
    }
    let is_open = |experiment: &&OverviewExperiment| {
        experiment.status != EndStatus::Complete && !experiment.skipped
    };
    let open: Vec<&str> = overview
        .experiments
        .iter()
        .filter(is_open)
        .map(|experiment| experiment.name.as_str())
        .collect();
    if !open.is_empty() {
        let count = open.len();
        let all = overview.experiments.len();
        printer.warn(&format!("pgtoll: {count} of {all} not completed: {}", open.join(", ")));
    }
    printer.say(&format!("records: {}", output.display()));
    printer.say(&format!("overview: {}", output.join(INDEX_FILE).display()));
}
