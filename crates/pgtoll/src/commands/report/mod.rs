//! `pgtoll report`: a record, shown again; or several, side by side.

mod finished;
mod overview;

use std::path::PathBuf;

use pgtoll_estimate::{NamedRun, side_by_side};
use pgtoll_record::{Run, RunResult};
use pgtoll_report::Style;

use crate::arguments::{Format, ReportArguments};
use crate::commands::output::{deliver, ending, json, style};
use crate::commands::{Usage, parse_run, read_run, record_text, thresholds, to_json};
use crate::exit::Status;
use crate::printer::Printer;
use finished::Finished;

pub(crate) fn run(arguments: &ReportArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if let [path] = arguments.records.as_slice()
        && let Some(directory) = overview::directory(path)
    {
        let text = overview::shown(&directory, arguments)?;
        deliver(&text, arguments.output.as_ref(), printer)?;
        return Ok(Status::Done);
    }
    let records: Vec<Record> = if let [path] = arguments.records.as_slice()
        && !path.is_dir()
    {
        // Read once: it may be a pipe.
        let text = record_text(path)?;
        if let Some(finished) = Finished::parse(&text) {
            let text = finished.shown(arguments)?;
            deliver(&text, arguments.output.as_ref(), printer)?;
            return Ok(Status::Done);
        }
        vec![record(0, parse_run(path, &text)?, arguments)?]
    } else {
        let read = |(index, path): (usize, &PathBuf)| record(index, read_run(path)?, arguments);
        arguments.records.iter().enumerate().map(read).collect::<Result<_, _>>()?
    };
    let style = style(arguments.output.as_ref(), printer);
    let text = shown(&records, format(arguments), style)?;
    deliver(&text, arguments.output.as_ref(), printer)?;
    let statuses: Vec<Status> = records
        .iter()
        .map(|of| {
            let name = (records.len() > 1).then_some(of.name.as_str());
            thresholds::judge(&of.thresholds, &of.result, name, printer)
        })
        .collect();
    Ok(Status::worst(statuses))
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
    let before = paths[..index].iter().filter(|of| *of == path).count();
    let again = if before > 0 { format!(" ({})", before + 1) } else { String::new() };
    format!("{}{again}", path.display())
}

/// The form that was asked for, or that the name of the output asks for.
fn format(arguments: &ReportArguments) -> Format {
    let by_name = ending(arguments.output.as_ref()).and_then(|ending| match ending.as_str() {
        "html" | "htm" => Some(Format::Html),
        "md" => Some(Format::Md),
        "json" => Some(Format::Json),
        "csv" => Some(Format::Csv),
        _ => None,
    });
    let json = arguments.json.then_some(Format::Json);
    arguments.format.or(json).or(by_name).unwrap_or(Format::Table)
}

fn shown(records: &[Record], format: Format, style: Style) -> anyhow::Result<String> {
    let named: Vec<NamedRun<'_>> = records
        .iter()
        .map(|Record { name, run, result, .. }| NamedRun { name, run, result })
        .collect();
    if let [one] = named.as_slice() {
        return one_shown(one, format, style);
    }
    let together = side_by_side(&named).map_err(|error| {
        Usage::error(error.to_string(), "show each by itself, or records of the same experiment")
    })?;
    Ok(match format {
        Format::Table => pgtoll_report::side_by_side_text(&together),
        Format::Md => pgtoll_report::side_by_side_markdown(&together),
        Format::Json => json(&together)?,
        Format::Html => pgtoll_report::html_side_by_side(&together),
        Format::Gobench => pgtoll_report::gobench(&named),
        Format::Csv => pgtoll_report::csv(&named),
        Format::Openmetrics => pgtoll_report::openmetrics(&named),
    })
}

fn one_shown(one: &NamedRun<'_>, format: Format, style: Style) -> anyhow::Result<String> {
    Ok(match format {
        Format::Table => pgtoll_report::terminal_table(one.result, style),
        Format::Md => pgtoll_report::markdown(one.result),
        Format::Json => to_json(one.result)?,
        Format::Html => pgtoll_report::html_report(one.run, one.result),
        Format::Gobench => pgtoll_report::gobench(&[*one]),
        Format::Csv => pgtoll_report::csv(&[*one]),
        Format::Openmetrics => pgtoll_report::openmetrics(&[*one]),
    })
}
