//! `pgtoll verify --drill`: a backup restored into a server of pgtoll's own.

use std::num::NonZero;
use std::path::Path;

use pgtoll_cluster::{GuardOptions, ServerUser};
use pgtoll_drill::{DrillError, DrillOptions, DrillPlan, DrillSource, DrillStep, SourceSearch};
use pgtoll_fleet::{BackupChoice, FleetError, stored_backup};
use pgtoll_format::shell_quoted;
use pgtoll_record::{DrillRecord, FleetLayout, Status};
use pgtoll_report::{RecordKind, TableOptions, printable};
use pgtoll_system::Interrupt;

use super::cores;
use crate::again;
use crate::arguments::VerifyArguments;
use crate::commands::{absolute, location, output, url};
use crate::mistakes::Usage;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;

pub(super) fn run(
    arguments: &VerifyArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<DrillRecord>().formats(),
    )?;
    let format = output::offered(format, RecordKind::for_record::<DrillRecord>())?;
    if let Some(stored) =
        arguments.paths.iter().chain(&arguments.wal).find(|path| url(path).is_some())
    {
        let message =
            format!("--drill reads files of this machine, and {} is a URL", stored.display());
        return Err(Usage::error(message, "copy the backup, or its WAL, to this machine"));
    }
    let drill = &arguments.drill;
    let work_dir = absolute(&drill.work_dir)?;
    let mut watch = |step: DrillStep<'_>| show(step, printer);
    let mut search = SourceSearch { work_dir: &work_dir, interrupt, watch: &mut watch };
    let is_named = arguments.backup.is_some() || arguments.stanza.is_some();
    let source = match arguments.paths.as_slice() {
        [path] if is_named || is_repository(path) => of_repository(path, arguments, &mut search)?,
        [path] => DrillSource::open(path, &mut search)?,
        _ if is_named => {
            let message =
                "--backup and --stanza name a backup in one repository, and here are several";
            return Err(Usage::error(message.to_owned(), "drill one after the other"));
        }
        paths => DrillSource::open_chain(paths, &mut search)?,
    };
    let installation = source.installation(drill.postgres.as_deref(), interrupt)?;
    let guard = GuardOptions::of_this_program(work_dir, ServerUser::choose()?);
    let options = DrillOptions {
        wal: arguments.wal.clone(),
        target: drill.until,
        jobs: arguments.jobs.map_or_else(cores, NonZero::from),
        patience: drill.patience.0,
        installation,
        guard,
        unconfined: drill.unconfined,
    };
    let plan = DrillPlan::new(source, options, interrupt)?;
    for sentence in plan.sentences() {
        printer.say(&printable(&sentence));
    }
    let record = plan.run(&again::provenance(), interrupt, &mut |step| show(step, printer))?;
    let table = TableOptions { most: arguments.top, ..TableOptions::default() };
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

/// Whether a path is a repository, or one of its directories, though no backup in it is named.
fn is_repository(path: &Path) -> bool {
    let is_root = path.join("backup").is_dir() && path.join("archive").is_dir();
    is_root || ["backup.info", "backup.manifest"].iter().any(|name| path.join(name).is_file())
}

/// The backup that is meant in a repository of another tool.
fn of_repository(
    path: &Path,
    arguments: &VerifyArguments,
    search: &mut SourceSearch<'_>,
) -> anyhow::Result<DrillSource> {
    let url = location(&path.to_string_lossy())?;
    let choice = BackupChoice::from_text(arguments.backup.as_deref());
    let backup = match stored_backup(&url, &choice, arguments.stanza.as_deref(), search.interrupt) {
        Err(FleetError::Unread { url, reason }) => {
            return Err(DrillError::Unread { path: url.path().unwrap_or_default(), reason }.into());
        }
        found => found?,
    };
    let place = backup.url.path().unwrap_or_default();
    Ok(match backup.layout {
        FleetLayout::PgBackRest => DrillSource::open_pgbackrest(&place)?,
        FleetLayout::BarmanCloud => DrillSource::open_barman(&place, search)?,
        FleetLayout::Files if place.with_file_name("backup.info").is_file() => {
            return Err(files_of_barman(&place));
        }
        FleetLayout::Tars | FleetLayout::Files => DrillSource::open(&place, search)?,
        FleetLayout::WalG => {
            let reason = "a backup of WAL-G, which pgtoll verifies and does not restore".to_owned();
            return Err(DrillError::Unread { path: place, reason }.into());
        }
    })
}

/// Returns the files of a backup in barman's directory, with the WAL beside.
fn files_of_barman(data: &Path) -> anyhow::Error {
    let quoted = |path: &Path| shell_quoted(&path.to_string_lossy());
    let wals = data.ancestors().nth(3).unwrap_or(data).join("wals");
    let message = format!("{} is a directory of barman's, with its WAL beside", data.display());
    let hint = format!("pgtoll verify --drill {} --wal {}", quoted(data), quoted(&wals));
    Usage::error(message, hint)
}

fn show(step: DrillStep<'_>, printer: &mut Printer) {
    match step {
        DrillStep::Sentence(sentence) => printer.say(&printable(sentence)),
        DrillStep::Stage(name) => {
            printer.stage(name);
            pause_if_told(&format!("drill-{}", name.split(' ').next().unwrap_or_default()));
        }
        DrillStep::Bytes { what: label, done, all } => printer.progress(label, done, all),
    }
}
