//! `pgtoll replay`: a server's logged work on another server.

mod compare;
mod record;

use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::Path;

use anyhow::Context as _;
use pgtoll_record::{LogExamination, ReplayRecord, Status};
use pgtoll_replay::{
    CapturedPart, CapturedWorkload, LogInput, LogReading, PlanHeader, PlanWriter, Redactor,
    ReplayError, ReplaySettings, check, examination, read_logs, read_logs_in_parts, replay,
    replay_record,
};
use pgtoll_report::{RecordKind, ReportedRecord as _, TableOptions};
use pgtoll_system::Draft;
use pgtoll_system::Interrupt;
use pgtoll_wal::Packing;

use crate::again;
use crate::arguments::{
    LogOptions, ReplayArguments, ReplayCommand, ReplayDoctorArguments, ReplayPlanArguments,
    ReplayRunArguments,
};
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;
use crate::printer::Printer;

pub(crate) fn run(arguments: &ReplayArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        ReplayCommand::Compare(arguments) => compare::run(arguments, printer),
        ReplayCommand::Doctor(arguments) => doctor(arguments, printer),
        ReplayCommand::Plan(arguments) => plan(arguments, printer),
        ReplayCommand::Record(arguments) => record::run(arguments, printer),
        ReplayCommand::Run(arguments) => run_plan(arguments, printer),
    }
}

fn doctor(arguments: &ReplayDoctorArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let formats = RecordKind::for_record::<LogExamination>().formats();
    let format = output::format_of_output(&arguments.output, formats)?;
    let header = read_parts(&arguments.logs, printer, |_| Ok(()))?;
    let findings = check(&header)?;
    let record = examination(again::provenance(), &header, findings);
    let into = arguments.output.output.as_ref();
    output::finish(record, format, &TableOptions::default(), into, printer)
}

fn plan(arguments: &ReplayPlanArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let formats = RecordKind::for_record::<LogExamination>().formats();
    let format = output::format_of_output(&arguments.output, formats)?;
    let provenance = again::provenance();
    let path = &arguments.plan;
    let write = || format!("write {}", path.display());
    let mut draft = Draft::from_path(path).with_context(write)?;
    let redactor = arguments.redact.then(Redactor::new);
    let mut writer = PlanWriter::new(BufWriter::new(&mut draft), redactor.is_some())?;
    let mut header = read_parts(&arguments.logs, printer, |mut part| {
        if let Some(redactor) = &redactor {
            redactor.redact(&mut part);
        }
        Ok(writer.add(part)?)
    })?;
    let findings = check(&header)?;
    header.redacted |= redactor.is_some();
    header.version.clone_from(&provenance.version);
    header.made.clone_from(&provenance.made);
    writer.finish(&header).with_context(write)?;
    draft.replace().with_context(write)?;
    let mut record = examination(provenance, &header, findings);
    record.plan = Some(path.to_string_lossy().into_owned());
    let into = arguments.output.output.as_ref();
    output::finish(record, format, &TableOptions::default(), into, printer)
}

fn run_plan(arguments: &ReplayRunArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<ReplayRecord>().formats(),
    )?;
    let workload = workload(&arguments.logs, printer)?;
    check(&workload.header)?;
    let mut settings = settings(arguments);
    let replayed = match &arguments.dsn {
        Some(dsn) if !arguments.dry_run => {
            let interrupt = Interrupt::new();
            interrupt.catch_signals().context("catch signals")?;
            let waits = ServerWaits::until(&interrupt)?;
            settings.expected = settings.expected.map(|dsn| waits.limit_waits(&dsn));
            let mut show = |done: pgtoll_replay::ReplayProgress| {
                printer.progress("replay", done.done, done.all);
            };
            Some(replay(&workload, &waits.limit_waits(dsn), &settings, &interrupt, &mut show)?)
        }
        _ => None,
    };
    for line in replayed.iter().flat_map(|replayed| &replayed.broken).take(BROKEN_MAX) {
        printer.warn(&format!("pgtoll: {line}"));
    }
    if let Some(reason) = replayed.as_ref().and_then(|replayed| replayed.tables_failed.as_ref()) {
        printer.warn(&format!("pgtoll: tables were not compared: {reason}"));
    }
    let record = replay_record(again::provenance(), &workload, &settings, replayed);
    if let Some(path) = &arguments.record {
        output::write(path, &record.json())?;
    }
    let into = arguments.output.output.as_ref();
    output::finish(record, format, &TableOptions::default(), into, printer)
}

fn settings(arguments: &ReplayRunArguments) -> ReplaySettings {
    ReplaySettings {
        order: arguments.order,
        speed: arguments.speed.0,
        map: arguments.map.iter().cloned().collect(),
        user: arguments.user.clone(),
        tables: arguments
            .compare_tables
            .iter()
            .flat_map(|compare_table| compare_table.0.iter().cloned())
            .collect(),
        expected: arguments.compare_with.clone(),
        keeps_times: false,
        patience: arguments.patience.0,
    }
}

/// Broken sessions that are named.
const BROKEN_MAX: usize = 10;

/// Reads the workload of a plan or logs.
fn workload(options: &LogOptions, printer: &mut Printer) -> anyhow::Result<CapturedWorkload> {
    if let Some(plan) = plan_of(options)? {
        return Ok(plan);
    }
    let (inputs, all) = log_inputs(options)?;
    let read = read_logs(inputs, &reading(options), |bytes| {
        printer.progress("read logs", bytes.min(all), all);
    });
    read.map_err(|error: ReplayError| error.into())
}

/// Reads a plan or logs in parts, with flat memory.
fn read_parts(
    options: &LogOptions,
    printer: &mut Printer,
    mut take: impl FnMut(CapturedPart) -> Result<(), ReplayError>,
) -> anyhow::Result<PlanHeader> {
    if let Some(CapturedWorkload { header, sessions, steps }) = plan_of(options)? {
        take(CapturedPart { sessions: (0..).zip(sessions).collect(), steps })?;
        return Ok(header);
    }
    let (inputs, all) = log_inputs(options)?;
    let read = read_logs_in_parts(inputs, &reading(options), take, |bytes| {
        printer.progress("read logs", bytes.min(all), all);
    });
    read.map_err(|error: ReplayError| error.into())
}

/// The plan, if the only file is one.
fn plan_of(options: &LogOptions) -> anyhow::Result<Option<CapturedWorkload>> {
    let [only] = options.logs.as_slice() else { return Ok(None) };
    let mut begin = Vec::new();
    open_log(only)?.take(64).read_to_end(&mut begin).with_context(|| read_words(only))?;
    if !CapturedWorkload::is_plan(&begin) {
        return Ok(None);
    }
    let file = File::open(only).with_context(|| read_words(only))?;
    CapturedWorkload::read(file).map(Some).with_context(|| read_words(only))
}

fn reading(options: &LogOptions) -> LogReading<'_> {
    LogReading {
        prefix: options.prefix.as_ref(),
        server: options.server.as_deref(),
        field: options.field.as_deref(),
        read_us: jiff::Timestamp::now().as_microsecond(),
    }
}

/// The logs, and how many bytes they have together.
fn log_inputs(options: &LogOptions) -> anyhow::Result<(Vec<LogInput<'static>>, u64)> {
    let all: u64 =
        options.logs.iter().filter_map(|path| path.metadata().ok()).map(|item| item.len()).sum();
    let mut inputs = Vec::new();
    for path in &options.logs {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        inputs.push(LogInput { name, content: open_log(path)? });
    }
    Ok((inputs, all))
}

fn read_words(path: &Path) -> String {
    format!("read {}", path.display())
}

/// A log's content, unpacked.
pub(crate) fn open_log(path: &Path) -> anyhow::Result<Box<dyn Read + Send>> {
    let file = File::open(path).with_context(|| read_words(path))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        let hint = "name its log files";
        return Err(crate::mistakes::Usage::error(
            format!("{} is a directory", path.display()),
            hint,
        ));
    }
    Packing::Plain.open(Box::new(file)).with_context(|| read_words(path))
}
