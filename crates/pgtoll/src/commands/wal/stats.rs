//! `pgtoll wal stats`: what WAL consists of, and who makes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_datadir::{Names, ServerNames, control_file, names_of_server};
use pgtoll_record::{Status, WalStatisticsRecord};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_wal::{
    Contents, RelationNames, ServerError, WalSummary, scan, statistics_record, stream,
};
use pgtoll_wire::{Dsn, Interruption};

use crate::again;
use crate::arguments::{WalBy, WalStatsArguments};
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;
use crate::commands::wal::reading::{
    FilesRead, above, files, source_names, stream_watch, tell_end, threads,
};
use crate::printer::Printer;

pub(crate) fn run(arguments: &WalStatsArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<WalStatisticsRecord>().formats(),
    )?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
    let requested = request_from(arguments, dsn.as_ref())?;
    let FilesRead { summary, end, notes } = match (&dsn, arguments.paths.is_empty()) {
        (Some(dsn), true) => streamed(dsn, arguments, &interrupt, printer)?,
        _ => read(arguments, &interrupt, printer)?,
    };
    // An interruption ended the stream, and not the wish for names.
    let dsn = match &arguments.dsn {
        Some(dsn) if interrupt.signal().is_some() => {
            let last = Interruption::after(NAMES_PATIENCE).context("make a pair of sockets")?;
            Some(dsn.with_interruption(&last))
        }
        _ => dsn,
    };
    let mut called = called(arguments, dsn.as_ref(), requested, &summary);
    called.notes.extend(notes);
    let provenance = again::provenance();
    let source_names = source_names(&arguments.paths, arguments.dsn.as_ref());
    let record = statistics_record(provenance, source_names, &summary, &end, &called);
    let by_type = arguments.by == WalBy::Type;
    let table = TableOptions { most: arguments.top, by_type, ..TableOptions::default() };
    tell_end(&summary.gaps, &end, printer);
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

/// How long a server is asked for names after a signal.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);

fn streamed(
    dsn: &Dsn,
    arguments: &WalStatsArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> Result<FilesRead<Contents>, ServerError> {
    let time = arguments.r#for.map(|span| span.0);
    let (summary, end) = stream(dsn, time, &mut stream_watch(time, interrupt, printer))?;
    Ok(FilesRead { summary, end, notes: Vec::new() })
}

/// Names that are asked for apart from the WAL, and of which cluster they are. They are had before
/// the WAL is read, so that what is wrong with them is reported at once.
fn request_from(
    arguments: &WalStatsArguments,
    dsn: Option<&Dsn>,
) -> anyhow::Result<Option<(u64, RelationNames)>> {
    if let (Some(dsn), false) = (dsn, arguments.paths.is_empty()) {
        let found = names_of_server(dsn)?;
        return Ok(Some((found.system_identifier, by_server(dsn, found))));
    }
    let Some(named) = &arguments.names else { return Ok(None) };
    let names = Names::of_data_directory(named)?;
    Ok(Some((control_file(named)?.system_identifier, by_files(named, names))))
}

/// Returns the names of relations in this WAL. Missing names are not an error.
fn called(
    arguments: &WalStatsArguments,
    dsn: Option<&Dsn>,
    requested: Option<(u64, RelationNames)>,
    summary: &WalSummary<Contents>,
) -> RelationNames {
    match (requested, dsn) {
        (Some((cluster, called)), _) if cluster == summary.system_identifier => called,
        (Some((_, called)), _) => {
            let by = called.by.unwrap_or_default();
            RelationNames::without(format!("relations have no names: {by} is of another cluster"))
        }
        (None, Some(dsn)) => match names_of_server(dsn) {
            Ok(found) => by_server(dsn, found),
            Err(error) => RelationNames::without(format!("relations have no names: {error}")),
        },
        (None, None) => own_names(arguments, summary),
    }
}

/// Names from the data directory whose WAL it is.
fn own_names(arguments: &WalStatsArguments, summary: &WalSummary<Contents>) -> RelationNames {
    let paths = arguments.paths.iter().flat_map(|path| [Some(path.clone()), above(path)]);
    let is_its = |path: &PathBuf| {
        control_file(path)
            .is_ok_and(|control_file| control_file.system_identifier == summary.system_identifier)
    };
    let Some(data) = paths.flatten().find(is_its) else { return RelationNames::default() };
    match Names::of_data_directory(&data) {
        Ok(names) => by_files(&data, names),
        Err(error) => RelationNames::without(format!("relations have no names: {error}")),
    }
}

fn by_server(dsn: &Dsn, found: ServerNames) -> RelationNames {
    RelationNames {
        names: found.names,
        by: Some(format!("the server {dsn}")),
        notes: found.missing,
    }
}

fn by_files(data: &Path, names: Names) -> RelationNames {
    let unread = names.unread();
    let notes = (!unread.is_empty()).then(|| format!("some names are missing: {unread}"));
    let by = Some(format!("the data directory {}", data.display()));
    RelationNames { names, by, notes: notes.into_iter().collect() }
}

fn read(
    arguments: &WalStatsArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<FilesRead<Contents>> {
    let threads = threads(arguments.threads);
    files(&arguments.paths, &arguments.range, interrupt, printer, |files, range, watch| {
        scan(files, range, threads, watch)
    })
}
