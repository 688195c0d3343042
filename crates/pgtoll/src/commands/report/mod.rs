//! `pgtoll report`: a record, shown again; or several, side by side.

mod overview;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_estimate::{NamedRun, NotComparable, side_by_side};
use pgtoll_format::TimeSpan;
use pgtoll_record::{CheckupChange, CheckupRecord, Overview, Run, RunResult, Status};
use pgtoll_report::{FinishedRecord, Format, PluginStatus, RecordKind, TableOptions};

use crate::arguments::ReportArguments;
use crate::commands::output::{deliver, format_of_output, offered, show, style};
use crate::commands::{parse_run, read_run, record_text, thresholds};
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(arguments: &ReportArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = format_of_output(&arguments.output, &Format::ALL)?;
    if arguments.max_age.is_some() && format != Format::Nagios {
        let message = "--max-age is for a check".to_owned();
        return Err(Usage::error(message, "say --format nagios, too"));
    }
    let output = arguments.output.output.as_ref();
    let records: Vec<Record> = match arguments.records.as_slice() {
        [path] if overview::directory(path).is_some() => {
            let directory = overview::directory(path).unwrap_or_default();
            refuse_thresholds(arguments, RecordKind::for_record::<Overview>())?;
            let shown = overview::shown(&directory, format, style(output, printer))?;
            deliver(&shown, output, printer)?;
            return Ok(Status::Done);
        }
        [path] if !path.is_dir() => {
            // Read once: it may be a pipe.
            let text = record_text(path)?;
            if let Some(finished) = finished(path, &text)? {
                return again(&finished, format, arguments, printer);
            }
            vec![record(0, parse_run(path, &text)?, arguments)?]
        }
        paths => {
            let named = paths.iter().map(|path| named(path)).collect::<Result<Vec<_>, _>>()?;
            match together(named)? {
                Together::Finished(finished) => {
                    return again(&finished, format, arguments, printer);
                }
                Together::Runs(runs) => {
                    let read = |(index, run)| record(index, run, arguments);
                    runs.into_iter().enumerate().map(read).collect::<Result<_, _>>()?
                }
            }
        }
    };
    let table = TableOptions { style: style(output, printer), ..TableOptions::default() };
    deliver(&shown(&records, format, &table)?, output, printer)?;
    let statuses: Vec<Status> = records
        .iter()
        .map(|record| {
            let name = (records.len() > 1).then_some(record.name.as_str());
            thresholds::judge(&record.thresholds, &record.result, name, printer)
        })
        .collect();
    Ok(Status::worst(statuses))
}

/// Shows a finished record. As a check it has the status that its command had.
fn again(
    finished: &FinishedRecord,
    format: Format,
    arguments: &ReportArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    refuse_thresholds(arguments, finished.kind())?;
    let output = arguments.output.output.as_ref();
    show(finished, format, &TableOptions::default(), output, printer)?;
    let Some(line) = &mut printer.check else { return Ok(Status::Done) };
    let made = finished.check().and_then(|(check, _)| check.made);
    if let Some(TimeSpan(age)) = arguments.max_age {
        let made = made.context("the record does not say when it was made")?;
        // A record of the future is as wrong as an old one.
        if jiff::Timestamp::now().duration_since(made).unsigned_abs() > age {
            line.raise(PluginStatus::Critical, format!("the record is of {made}"));
        }
    }
    Ok(finished.conclusion().status)
}

fn finished(path: &Path, text: &str) -> anyhow::Result<Option<FinishedRecord>> {
    FinishedRecord::parse(text).with_context(|| format!("read {}", path.display()))
}

/// One of several records.
enum Named {
    Run(Box<Run>),
    Finished(FinishedRecord),
}

fn named(path: &Path) -> anyhow::Result<Named> {
    if path.is_dir() {
        return Ok(Named::Run(Box::new(read_run(path)?)));
    }
    let text = record_text(path)?;
    Ok(match finished(path, &text)? {
        Some(finished) => Named::Finished(finished),
        None => Named::Run(Box::new(parse_run(path, &text)?)),
    })
}

/// Records that can be shown side by side.
enum Together {
    Runs(Vec<Run>),
    Finished(FinishedRecord),
}

/// Runs, or two checkups.
fn together(named: Vec<Named>) -> anyhow::Result<Together> {
    let mut runs = Vec::new();
    let mut checkups = Vec::new();
    for record in named {
        match record {
            Named::Run(run) => runs.push(*run),
            Named::Finished(finished) => {
                let title = finished.kind().title();
                checkups.push(finished.downcast::<CheckupRecord>().ok_or_else(|| alone(title))?);
            }
        }
    }
    match (runs.is_empty(), <[CheckupRecord; 2]>::try_from(checkups)) {
        (true, Ok([before, after])) => {
            Ok(Together::Finished(FinishedRecord::new(CheckupChange::new(before, after))))
        }
        (false, Err(none)) if none.is_empty() => Ok(Together::Runs(runs)),
        _ => Err(alone(RecordKind::for_record::<CheckupRecord>().title())),
    }
}

fn alone(title: &str) -> anyhow::Error {
    Usage::error(
        format!("{title} cannot be shown beside these"),
        "name runs of one experiment, or two records of checkup, or each by itself",
    )
}

fn refuse_thresholds(arguments: &ReportArguments, kind: RecordKind) -> anyhow::Result<()> {
    if arguments.fail_if.is_empty() {
        return Ok(());
    }
    let hint = "thresholds are for the records of runs: name a result directory or a run.jsonl";
    Err(Usage::error(format!("{} has no thresholds", kind.title()), hint))
}

/// A record, read.
struct Record {
    name: String,
    run: Run,
    result: RunResult,
    thresholds: Vec<pgtoll_estimate::Threshold>,
}

fn record(index: usize, run: Run, arguments: &ReportArguments) -> anyhow::Result<Record> {
    let thresholds = thresholds::of_record(&arguments.fail_if, &run.header)?;
    let result = pgtoll_estimate::summarise(&run);
    Ok(Record { name: name(&arguments.records, index), run, result, thresholds })
}

/// A record that is named twice has two names: `result`, `result (2)`.
fn name(paths: &[PathBuf], index: usize) -> String {
    let path = &paths[index];
    let before = paths[..index].iter().filter(|item| *item == path).count();
    let again = if before > 0 { format!(" ({})", before + 1) } else { String::new() };
    format!("{}{again}", path.display())
}

fn shown(records: &[Record], format: Format, table: &TableOptions) -> anyhow::Result<String> {
    let named: Vec<NamedRun<'_>> = records
        .iter()
        .map(|Record { name, run, result, .. }| NamedRun { name, run, result })
        .collect();
    // Of several, also those are refused that other formats would only list.
    let together = match named.as_slice() {
        [_] => None,
        several => Some(side_by_side(several).map_err(|error| not_alike(&error))?),
    };
    let finished = match (format, together) {
        (Format::Gobench, _) => return Ok(pgtoll_report::gobench(&named)),
        (Format::Csv, _) => return Ok(pgtoll_report::csv(&named)),
        (Format::OpenMetrics, _) => return Ok(pgtoll_report::openmetrics(&named)),
        (_, Some(together)) => FinishedRecord::new(together),
        (Format::Html, None) => {
            return Ok(pgtoll_report::html_report(named[0].run, named[0].result));
        }
        (_, None) => FinishedRecord::new(named[0].result.clone()),
    };
    let format = offered(format, finished.kind())?;
    finished.shown(format, table).context("a format without a text")
}

fn not_alike(error: &NotComparable) -> anyhow::Error {
    Usage::error(error.to_string(), "show each by itself, or records of the same experiment")
}
