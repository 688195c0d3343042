//! `pgtoll wal stats`: what WAL consists of, and who makes it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use pgtoll_cluster::Interrupt;
use pgtoll_record::WalStatisticsRecord;
use pgtoll_scan::{
    Contents, End, Names, ScanError, SegmentFile, ServerError, ServerNames, WalSummary,
    control_file, names_of_server, scan, segments, stream,
};
use pgtoll_wire::Dsn;

use crate::arguments::{WalBy, WalFormat, WalStatsArguments};
use crate::commands::output::{deliver, ending};
use crate::commands::wal::record::{self, Called};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &WalStatsArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let asked = asked(arguments)?;
    let (summary, end) = match (&arguments.dsn, arguments.paths.is_empty()) {
        (Some(dsn), true) => streamed(dsn, arguments, &interrupt, printer)?,
        _ => read(arguments, &interrupt, printer)?,
    };
    let called = called(arguments, asked, &summary);
    let record = record::of(arguments, &summary, &end, &called);
    let text = shown(&record, arguments)?;
    deliver(&text, arguments.output.as_ref(), printer)?;
    if end.is_whole() {
        return Ok(Status::Done);
    }
    printer.warn(&format!("pgtoll: {end}; what is before it is shown"));
    if let Some(hint) = end.hint() {
        printer.warn(&format!("hint: {hint}"));
    }
    Ok(Status::CouldNotTell)
}

fn streamed(
    dsn: &Dsn,
    arguments: &WalStatsArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> Result<(WalSummary<Contents>, End), ServerError> {
    let (time, began) = (arguments.r#for.map(|span| span.0), Instant::now());
    let mut first = None;
    stream(dsn, time, &mut |at, until| {
        let first = *first.get_or_insert(at);
        let done = at.bytes_since(first).unwrap_or(0);
        match (time, until.and_then(|until| until.bytes_since(first))) {
            (Some(time), _) => {
                let (passed, all) = (began.elapsed().as_secs(), time.as_secs());
                printer.progress(&format!("stream, at {at}"), passed.min(all), all);
            }
            (None, Some(all)) => printer.progress(&format!("stream, at {at}"), done, all),
            (None, None) => {}
        }
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })
}

/// Names that are asked for apart from the WAL, and of which cluster they are. They are had before
/// the WAL is read, so that what is wrong with them is told at once.
fn asked(arguments: &WalStatsArguments) -> anyhow::Result<Option<(u64, Called)>> {
    if let (Some(dsn), false) = (&arguments.dsn, arguments.paths.is_empty()) {
        let found = names_of_server(dsn)?;
        return Ok(Some((found.system_identifier, by_server(dsn, found))));
    }
    let Some(named) = &arguments.names else { return Ok(None) };
    let names = Names::of_data_directory(named)?;
    Ok(Some((control_file(named)?.system_identifier, by_files(named, names))))
}

/// What relations of this WAL are called. Names that are missing are no reason to show nothing.
fn called(
    arguments: &WalStatsArguments,
    asked: Option<(u64, Called)>,
    summary: &WalSummary<Contents>,
) -> Called {
    match (asked, &arguments.dsn) {
        (Some((cluster, called)), _) if cluster == summary.system_identifier => called,
        (Some((_, called)), _) => {
            let by = called.by.unwrap_or_default();
            Called::without(format!("relations have no names: {by} is of another cluster"))
        }
        (None, Some(dsn)) => match names_of_server(dsn) {
            Ok(found) => by_server(dsn, found),
            Err(error) => Called::without(format!("relations have no names: {error}")),
        },
        (None, None) => own_names(arguments, summary),
    }
}

/// Names from the data directory whose WAL it is.
fn own_names(arguments: &WalStatsArguments, summary: &WalSummary<Contents>) -> Called {
    let paths = arguments.paths.iter().flat_map(|path| [Some(path.clone()), above(path)]);
    let is_its = |path: &PathBuf| {
        control_file(path).is_ok_and(|of| of.system_identifier == summary.system_identifier)
    };
    let Some(data) = paths.flatten().find(is_its) else { return Called::default() };
    match Names::of_data_directory(&data) {
        Ok(names) => by_files(&data, names),
        Err(error) => Called::without(format!("relations have no names: {error}")),
    }
}

fn by_server(dsn: &Dsn, found: ServerNames) -> Called {
    Called { names: found.names, by: Some(format!("the server {dsn}")), notes: found.missing }
}

fn by_files(data: &Path, names: Names) -> Called {
    let unread = names.unread();
    let notes = (!unread.is_empty()).then(|| format!("some names are missing: {unread}"));
    let by = Some(format!("the data directory {}", data.display()));
    Called { names, by, notes: notes.into_iter().collect() }
}

/// A server that runs removes and renames segments while they are read: what looks damaged there is
/// read again, since a busy one may do so each time.
fn read(
    arguments: &WalStatsArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<(WalSummary<Contents>, End)> {
    let mut read = read_once(arguments, interrupt, printer);
    for _ in 0..READ_AGAIN {
        let is_sound = read.as_ref().is_ok_and(|(_, end)| end.is_whole());
        let is_used = || arguments.paths.iter().any(|path| is_used(path));
        if is_sound || interrupt.signal().is_some() || !is_used() {
            break;
        }
        read = read_once(arguments, interrupt, printer);
    }
    Ok(read?)
}

/// How often what a running server has is read again.
const READ_AGAIN: u32 = 3;

fn read_once(
    arguments: &WalStatsArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> Result<(WalSummary<Contents>, End), ScanError> {
    let files = segments(&arguments.paths)?;
    let threads = arguments.threads.map_or_else(cores, usize::from);
    let all = files.len() as u64;
    scan(&files, threads, &mut |done| {
        printer.progress(&what(&files, done), done as u64, all);
        match interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })
}

fn what(files: &[SegmentFile], done: usize) -> String {
    let name = files.get(done.saturating_sub(1)).and_then(|file| file.path.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A server may be running on the directory, or on the one that it is the `pg_wal` of.
fn is_used(path: &Path) -> bool {
    [Some(path.to_owned()), above(path)]
        .iter()
        .flatten()
        .any(|of| of.join("postmaster.pid").exists())
}

/// The directory that this one, or the one behind this link, is in.
fn above(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()?.parent().map(Path::to_owned)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn shown(record: &WalStatisticsRecord, arguments: &WalStatsArguments) -> anyhow::Result<String> {
    let by_name = ending(arguments.output.as_ref()).and_then(|ending| match ending.as_str() {
        "html" | "htm" => Some(WalFormat::Html),
        "json" => Some(WalFormat::Json),
        _ => None,
    });
    let json = arguments.json.then_some(WalFormat::Json);
    Ok(match arguments.format.or(json).or(by_name).unwrap_or(WalFormat::Table) {
        WalFormat::Table => {
            let by_type = arguments.by == WalBy::Type;
            pgtoll_report::wal_statistics_text(record, by_type, arguments.top)
        }
        WalFormat::Json => serde_json::to_string_pretty(record)? + "\n",
        WalFormat::Html => pgtoll_report::wal_statistics_html(record),
    })
}
