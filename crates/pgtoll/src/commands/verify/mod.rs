//! `pgtoll verify`: are the pages sound?

mod backup;
mod directory;
mod drill;
pub(crate) mod online;
mod patrol;
mod targets;

use std::collections::HashSet;
use std::num::{NonZero, NonZeroUsize};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_datadir::Names;
use pgtoll_format::{ByteSize, RelFileLocator, TimeSpan};
use pgtoll_record::{Status, VerificationRecord};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_verify::{VerifyProgress, VerifySettings, WalPlace};

use crate::arguments::VerifyArguments;
use crate::commands::server_waits::ServerWaits;
use crate::commands::{output, url};
use crate::mistakes::Usage;
use crate::printer::Printer;
use targets::{Target, targets};

pub(crate) fn run(arguments: &VerifyArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if let Some(state) = &arguments.patrol {
        return patrol::run(state, arguments, printer);
    }
    let interrupt = Interrupt::new();
    if arguments.drill.drill {
        interrupt.catch_signals().context("catch signals")?;
        return drill::run(arguments, &interrupt, printer);
    }
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<Vec<VerificationRecord>>().formats(),
    )?;
    interrupt.catch_signals().context("catch signals")?;
    let mut records = Vec::new();
    let waits = ServerWaits::until(&interrupt)?;
    let targets = targets(arguments, &waits, &interrupt)?;
    if arguments.resume.is_some() && targets.len() > 1 {
        let message = "--resume keeps the place in one data directory, and here are several";
        return Err(Usage::error(message.to_owned(), "verify one after the other"));
    }
    for mut target in targets {
        if interrupt.signal().is_none() {
            records.push(match &mut target {
                Target::Directory(target) => {
                    directory::verified(target, arguments, &interrupt, printer)?
                }
                Target::Tars(target) => backup::verified(target, arguments, &interrupt, printer)?,
            });
        }
    }
    let table = TableOptions { most: arguments.top, ..TableOptions::default() };
    let output = arguments.output.output.as_ref();
    let status = output::finish(records, format, &table, output, printer)?;
    if let Some(signal) = interrupt.signal() {
        printer.warn(&format!("pgtoll: interrupted by {signal}; findings so far are shown"));
        return Ok(Status::CouldNotTell);
    }
    Ok(status)
}

/// How long a checkpoint is waited for, where a running server's page needs one.
fn settle_time(arguments: &VerifyArguments) -> Duration {
    arguments.settle.map_or(SETTLE, |TimeSpan(time)| time)
}

fn settings(arguments: &VerifyArguments, only_below: Vec<PathBuf>) -> VerifySettings {
    VerifySettings {
        jobs: arguments.jobs.map_or_else(cores, NonZero::from),
        rate: arguments.rate.map(|ByteSize(bytes)| bytes),
        only_below,
        rows: !arguments.no_rows,
    }
}

/// The relations that `--only` means; `None`: all.
fn only(names: &Names, patterns: &[String]) -> anyhow::Result<HashSet<RelFileLocator>> {
    let mut chosen = HashSet::new();
    for pattern in patterns {
        let before = chosen.len();
        chosen.extend(names.meant_by(pattern));
        if chosen.len() == before {
            return Err(Usage::error(
                format!("no relation \"{pattern}\""),
                "name it as database.schema.table, schema.table or table",
            ));
        }
    }
    Ok(chosen)
}

/// Returns the places of a backup's WAL: paths, which are one place, and URLs.
fn wal_places(wal: &[PathBuf], interrupt: &Interrupt) -> anyhow::Result<Vec<WalPlace>> {
    let mut paths = Vec::new();
    let mut places = Vec::new();
    for path in wal {
        match url(path) {
            Some(url) => places.push(pgtoll_fleet::stored_wal(&url?, interrupt)?),
            None => paths.push(path.clone()),
        }
    }
    places.splice(0..0, WalPlace::of_paths(&paths));
    Ok(places)
}

/// Shows how far a reading has come; its `name` ends in a colon and a blank where it has one. A
/// signal ends the reading.
fn report_progress(
    name: &str,
    now: VerifyProgress,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> ControlFlow<()> {
    let text = format!("{name}{} of {}", size(now.bytes), size(now.all_bytes));
    printer.progress(&text, now.bytes, now.all_bytes);
    match interrupt.signal() {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    }
}

pub(crate) fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

const SETTLE: Duration = Duration::from_secs(30);

fn size(bytes: u64) -> String {
    ByteSize(bytes).rounded()
}
