//! `pgtoll replay`: a server's logged work on another server.

mod record;

use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::Path;

use anyhow::Context as _;
use pgtoll_files::Draft;
use pgtoll_format::shell_quoted;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{LogExamination, Provenance, ReplayRecord};
use pgtoll_replay::{
    CapturedWorkload, LogInput, ReplayError, ReplaySettings, check, examination, read_logs, replay,
    replay_record,
};
use pgtoll_report::{FinishedRecord, RecordKind, TableOptions};
use pgtoll_wal::Packing;

use crate::arguments::{
    LogOptions, ReplayArguments, ReplayCommand, ReplayDoctorArguments, ReplayPlanArguments,
    ReplayRunArguments,
};
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &ReplayArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    match &arguments.command {
        ReplayCommand::Doctor(arguments) => doctor(arguments, printer),
        ReplayCommand::Plan(arguments) => plan(arguments, printer),
        ReplayCommand::Record(arguments) => record::run(arguments, printer),
        ReplayCommand::Run(arguments) => run_plan(arguments, printer),
    }
}

fn doctor(arguments: &ReplayDoctorArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let formats = RecordKind::LogExamination.formats();
    let format = output::format_of_output(&arguments.output, formats)?;
    let (_, record) = examined(&arguments.logs, "doctor", printer)?;
    let record = FinishedRecord::LogExamination(Box::new(record));
    let into = arguments.output.output.as_ref();
    output::show(&record, format, &TableOptions::default(), into, printer)?;
    Ok(Status::Done)
}

fn plan(arguments: &ReplayPlanArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let formats = RecordKind::LogExamination.formats();
    let format = output::format_of_output(&arguments.output, formats)?;
    let (mut workload, mut record) = examined(&arguments.logs, "plan", printer)?;
    workload.header.version.clone_from(&record.pgtoll);
    workload.header.made.clone_from(&record.made);
    let path = &arguments.plan;
    let write = || format!("write {}", path.display());
    let mut draft = Draft::of(path).with_context(write)?;
    workload.write(BufWriter::new(&mut draft)).with_context(write)?;
    draft.replace().with_context(write)?;
    record.plan = Some(path.to_string_lossy().into_owned());
    let record = FinishedRecord::LogExamination(Box::new(record));
    let into = arguments.output.output.as_ref();
    output::show(&record, format, &TableOptions::default(), into, printer)?;
    Ok(Status::Done)
}

fn run_plan(arguments: &ReplayRunArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(&arguments.output, RecordKind::Replay.formats())?;
    let workload = workload(&arguments.logs, printer)?;
    check(&workload)?;
    let settings = ReplaySettings {
        order: arguments.order,
        speed: arguments.speed.0,
        map: arguments.map.iter().cloned().collect(),
        user: arguments.user.clone(),
    };
    let replayed = match &arguments.dsn {
        Some(dsn) if !arguments.dry_run => {
            let interrupt = Interrupt::new();
            interrupt.catch_signals().context("catch signals")?;
            let waits = ServerWaits::until(&interrupt)?;
            let mut show = |done: pgtoll_replay::ReplayProgress| {
                printer.progress("replay", done.done, done.all);
            };
            Some(replay(&workload, &waits.of(dsn), &settings, &interrupt, &mut show)?)
        }
        _ => None,
    };
    for line in replayed.iter().flat_map(|of| &of.broken).take(BROKEN_MAX) {
        printer.warn(&format!("pgtoll: {line}"));
    }
    let record = replay_record(provenance_of_run(arguments), &workload, &settings, replayed);
    if let Some(path) = &arguments.record {
        output::write(path, &pgtoll_report::json(&record))?;
    }
    let status = status(&record, arguments.dry_run);
    let record = FinishedRecord::Replay(Box::new(record));
    let into = arguments.output.output.as_ref();
    output::show(&record, format, &TableOptions::default(), into, printer)?;
    Ok(status)
}

/// Broken sessions that are named.
const BROKEN_MAX: usize = 10;

fn status(record: &ReplayRecord, is_dry_run: bool) -> Status {
    let Some(done) = &record.done else {
        return if is_dry_run { Status::Done } else { Status::CouldNotTell };
    };
    let diverged = done.unexpected_errors + done.missing_errors + done.order_breaks > 0;
    let found = if diverged { Status::Finding } else { Status::Done };
    let end = if record.complete { Status::Done } else { Status::CouldNotTell };
    Status::worst([found, end])
}

fn examined(
    logs: &LogOptions,
    command: &str,
    printer: &mut Printer,
) -> anyhow::Result<(CapturedWorkload, LogExamination)> {
    let workload = workload(logs, printer)?;
    let findings = check(&workload)?;
    let record = examination(provenance(command, logs), &workload, findings);
    Ok((workload, record))
}

/// What a plan or logs have.
fn workload(options: &LogOptions, printer: &mut Printer) -> anyhow::Result<CapturedWorkload> {
    if let [only] = options.logs.as_slice() {
        let mut begin = Vec::new();
        open(only)?.take(64).read_to_end(&mut begin).with_context(|| reading(only))?;
        if CapturedWorkload::is_plan(&begin) {
            let file = File::open(only).with_context(|| reading(only))?;
            return CapturedWorkload::read(file).with_context(|| reading(only));
        }
    }
    let all: u64 =
        options.logs.iter().filter_map(|path| path.metadata().ok()).map(|of| of.len()).sum();
    let mut inputs = Vec::new();
    for path in &options.logs {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        inputs.push(LogInput { name, content: open(path)? });
    }
    let read = read_logs(inputs, options.prefix.as_ref(), |bytes| {
        printer.progress("read logs", bytes.min(all), all);
    });
    read.map_err(|error: ReplayError| error.into())
}

fn reading(path: &Path) -> String {
    format!("read {}", path.display())
}

/// The file's content, unpacked.
fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| reading(path))?;
    if file.metadata().is_ok_and(|of| of.is_dir()) {
        let hint = "name its log files";
        return Err(crate::commands::Usage::error(
            format!("{} is a directory", path.display()),
            hint,
        ));
    }
    Packing::Plain.open(Box::new(file)).with_context(|| reading(path))
}

fn provenance(command: &str, logs: &LogOptions) -> Provenance {
    let mut words = vec!["pgtoll".to_owned(), "replay".to_owned(), command.to_owned()];
    words.extend(logs.logs.iter().map(|path| shell_quoted(&path.to_string_lossy())));
    if let Some(prefix) = &logs.prefix {
        words.extend(["--prefix".to_owned(), shell_quoted(prefix.text())]);
    }
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: words,
        made: jiff::Timestamp::now().to_string(),
    }
}

fn provenance_of_run(arguments: &ReplayRunArguments) -> Provenance {
    let mut provenance = provenance("run", &arguments.logs);
    let mut option = |name: &str, value: &str| {
        provenance.command.extend([name.to_owned(), shell_quoted(value)]);
    };
    if let Some(dsn) = &arguments.dsn {
        option("--dsn", &dsn.redacted());
    }
    option("--order", arguments.order.name());
    option("--speed", &arguments.speed.0.map_or("max".to_owned(), |speed| speed.to_string()));
    for (name, other) in &arguments.map {
        option("--map", &format!("{name}={other}"));
    }
    if let Some(user) = &arguments.user {
        option("--user", user);
    }
    provenance
}
