//! `pgtoll repair`: damaged pages replaced by those of another copy, with proof.

mod blocks;
mod ledger;
mod redo;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_alter::{
    BlockAnswer, Hold, HoldPolicy, PageOrigin, RedoPlan, RepairDirectory, RepairError, RepairHelp,
    RepairOptions, RepairPlan, RepairStep, RepairUndo, RunningTarget, plan_repair,
};
use pgtoll_datadir::{Attached, DataDirectory, Names};
use pgtoll_format::RelationFork;
use pgtoll_record::{Provenance, REPAIR_SCHEMA, RepairOutcome, RepairRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_verify::{RunningServer, ServerAnswer, Witness as _};
use pgtoll_wire::Dsn;

use crate::again;
use crate::arguments::{LAST_REPAIR, RepairArguments};
use crate::commands::output;
use crate::commands::server_waits::ServerWaits;
use crate::commands::verify::online::attach;
use crate::mistakes::Usage;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;
use blocks::FoundDamage;
use ledger::Ledger;
use redo::Redo;

/// The cluster that is repaired.
struct Target {
    data: DataDirectory,
    names: Names,
    /// The server that runs on it.
    running: Option<Running>,
}

/// A server that runs on the data directory.
struct Running {
    attached: Attached,
    dsn: Dsn,
    server: RunningServer,
}

impl Target {
    fn open(arguments: &RepairArguments, waits: &ServerWaits) -> anyhow::Result<Self> {
        let data = DataDirectory::open(&arguments.data)?;
        let dsn = arguments.dsn.as_ref().map(|dsn| waits.limit_waits(dsn));
        let Some(mut attached) = attach(&data, dsn.as_ref(), waits)? else {
            Hold::check_left(&arguments.data, HoldPolicy::ShutDown)?;
            let names = Names::of_data_directory(&data.path)?;
            return Ok(Self { data, names, running: None });
        };
        let Some(dsn) = attached.server().cloned() else {
            let path = data.path.display();
            let why = attached.unasked().unwrap_or_default();
            let message = format!("a server runs on {path}, and could not be asked: {why}");
            let hint =
                "name a connection of a superuser with --dsn, or stop the server in good order";
            return Err(Usage::error(message, hint));
        };
        let names = attached.names(&data)?;
        let threads = blocks::jobs(arguments).get();
        let server = RunningServer::attached(&mut attached, &data, threads)?;
        Ok(Self { data, names, running: Some(Running { attached, dsn, server }) })
    }
}

/// Returns the server's answer about a block.
fn answer(server: &mut RunningServer, fork: RelationFork, block: u32) -> BlockAnswer {
    match server.ask(fork, block) {
        ServerAnswer::Refuses => BlockAnswer::Refuses,
        ServerAnswer::Takes { .. } => BlockAnswer::Takes,
        ServerAnswer::Nothing(why) => BlockAnswer::Unknown(why.to_string()),
    }
}

pub(crate) fn run(arguments: &RepairArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if let Some(undo) = &arguments.undo {
        return revert(undo, arguments, printer);
    }
    output::format(arguments.format, RecordKind::for_record::<Vec<RepairRecord>>())?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let mut target = Target::open(arguments, &waits)?;
    let damage = FoundDamage::new(&mut target, arguments, &interrupt, printer)?;
    let options = options(arguments, &waits);
    let interrupted = &mut || match interrupt.signal() {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    let Target { data, names, running } = target;
    let mut server = running.map(|running| (running.dsn, running.server));
    let mut ask;
    let mut target = match &mut server {
        Some((dsn, server)) => {
            ask = |fork, block| answer(server, fork, block);
            Some(RunningTarget::open(&data, dsn, &mut ask)?)
        }
        None => None,
    };
    let redo = Redo {
        work_dir: arguments.work_dir.clone(),
        postgres: arguments.postgres.as_deref(),
        interrupt: &interrupt,
    };
    let mut rebuild = |plan: &RedoPlan| redo.rebuild(plan);
    let help = RepairHelp {
        running: target.as_mut(),
        rebuild: (!arguments.no_redo).then_some(&mut rebuild),
        interrupt: interrupted,
    };
    let mut plan = plan_repair(&data, &names, &damage.blocks, &options, again::provenance(), help)?;
    plan.record.notes.extend(damage.notes.iter().cloned());
    plan.record.has_other_damage = damage.has_other_findings;
    plan.record.is_partial = !damage.is_whole;
    if arguments.yes {
        write(&mut plan, &data, target.as_mut(), arguments)?;
    }
    deliver(plan.record, arguments, printer)
}

fn options(arguments: &RepairArguments, waits: &ServerWaits) -> RepairOptions {
    let backups = arguments.from_backup.iter().cloned().map(PageOrigin::Backup);
    let stopped = arguments.from_stopped.iter().cloned().map(PageOrigin::Stopped);
    let standbys =
        arguments.from_standby.iter().map(|dsn| PageOrigin::Standby(waits.limit_waits(dsn)));
    RepairOptions {
        sources: backups.chain(stopped).chain(standbys).collect(),
        wal: arguments.wal.clone(),
        accept_plausible: arguments.accept.is_some(),
        threads: blocks::jobs(arguments).get(),
    }
}

/// Writes the pages of the plan. What was done is in its record.
fn write(
    plan: &mut RepairPlan,
    data: &DataDirectory,
    running: Option<&mut RunningTarget<'_>>,
    arguments: &RepairArguments,
) -> anyhow::Result<()> {
    let undo = RepairUndo::new(plan, &data.control);
    let (mut ledger, undo_path) = journals(plan, &undo, data, arguments)?;
    if plan.pages.is_empty() {
        plan.record.outcome = RepairOutcome::Finished;
        return ledger.add(&plan.record);
    }
    plan.record.undo_file = Some(undo_path.display().to_string());
    plan.record.outcome = RepairOutcome::Begun;
    ledger.add(&plan.record)?;
    let mut written = Vec::new();
    let mut is_checked = false;
    let mut step = |step| match step {
        RepairStep::Checked => {
            is_checked = true;
            pause_if_told("repair-checked");
        }
        RepairStep::Written(number) => {
            written.push(number);
            pause_if_told(&format!("repair-written-{number}"));
        }
    };
    let applied = match running {
        Some(target) => undo.apply_running(target, &mut step),
        None => Hold::take(&data.path).map_err(RepairError::from).and_then(|hold| {
            pause_if_told("repair-held");
            undo.apply(&hold, &mut step).map(|()| Vec::new())
        }),
    };
    plan.mark_installed(&written);
    plan.mark_not_written(applied.as_deref().unwrap_or_default());
    plan.record.outcome = match &applied {
        Ok(_) => RepairOutcome::Finished,
        Err(_) => RepairOutcome::Failed,
    };
    ledger.add(&plan.record)?;
    applied.map(drop).map_err(|error| {
        let error = anyhow::Error::new(error);
        let undo = undo_path.display();
        if is_checked {
            let done = written.len();
            let all = plan.pages.len();
            error.context(format!(
                "{done} of {all} pages were written; --undo {undo} takes them back"
            ))
        } else if fs::remove_file(&undo_path).is_ok() {
            error.context("no page was written")
        } else {
            // Made by root, who is the directory's owner by now.
            error.context(format!("no page was written; {undo} stays and undoes nothing"))
        }
    })
}

/// The ledger, and the undo file, written where there are pages to write. Files that the user named
/// are opened before pgtoll becomes the data directory's owner, the others as that owner.
fn journals(
    plan: &mut RepairPlan,
    undo: &RepairUndo,
    data: &DataDirectory,
    arguments: &RepairArguments,
) -> anyhow::Result<(Ledger, PathBuf)> {
    let save = |path: &Path| -> anyhow::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(undo_error(path, &io::ErrorKind::AlreadyExists.into()));
        }
        if plan.pages.is_empty() {
            return Ok(());
        }
        undo.save(path).map_err(|error| undo_error(path, &error))
    };
    let named = |path: &Option<PathBuf>| {
        path.as_ref().map(std::path::absolute).transpose().context("find the current directory")
    };
    let undo_file = named(&arguments.undo_file)?;
    let ledger_file = named(&arguments.ledger)?;
    let ledger = ledger_file.as_deref().map(Ledger::open).transpose()?;
    if let Some(path) = &undo_file {
        save(path)?;
    }
    let directory = RepairDirectory::beside(&data.path)?;
    if ledger.is_none() || undo_file.is_none() {
        directory.make().map_err(|error| not_made(&error, undo_file.as_deref()))?;
    }
    let undo_file = if let Some(path) = undo_file {
        path
    } else {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%6fZ").to_string();
        let path = directory.undo_file(&time);
        save(&path)?;
        path
    };
    let ledger_path = ledger_file.unwrap_or_else(|| directory.ledger());
    let ledger = ledger.map_or_else(|| Ledger::open(&ledger_path), Ok)?;
    plan.record.ledger = Some(ledger_path.display().to_string());
    Ok((ledger, undo_file))
}

/// Why there is no directory for undo file and ledger: no page was written.
fn not_made(error: &RepairError, undo_file: Option<&Path>) -> anyhow::Error {
    if let Some(path) = undo_file {
        // It would undo nothing.
        let _ = fs::remove_file(path);
    }
    let message = pgtoll_system::error_chain(error);
    Usage::error(message, "no page was written; name files elsewhere with --undo-file and --ledger")
}

fn undo_error(undo: &Path, error: &io::Error) -> anyhow::Error {
    let hint = "no page was written; name a new file with --undo-file";
    Usage::error(format!("write {}: {error}", undo.display()), hint)
}

fn revert(
    undo_path: &Path,
    arguments: &RepairArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    output::format(arguments.format, RecordKind::for_record::<Vec<RepairRecord>>())?;
    let directory = RepairDirectory::beside(&arguments.data)?;
    let undo_path = if undo_path == Path::new(LAST_REPAIR) {
        directory.last_undo_file()?.ok_or_else(|| no_repair(&directory))?
    } else {
        std::path::absolute(undo_path).context("find the current directory")?
    };
    let undo = RepairUndo::load(&undo_path)?;
    Hold::check_left(&arguments.data, HoldPolicy::ShutDown)?;
    let data = DataDirectory::open(&arguments.data)?;
    let named = arguments.ledger.as_ref().map(std::path::absolute).transpose();
    let named = named.context("find the current directory")?;
    let ledger = named.as_deref().map(Ledger::open).transpose()?;
    if ledger.is_none() {
        directory.make().map_err(|error| not_made(&error, None))?;
    }
    let ledger_path = named.unwrap_or_else(|| directory.ledger());
    let mut ledger = ledger.map_or_else(|| Ledger::open(&ledger_path), Ok)?;
    let hold = Hold::take(&data.path)?;
    let count = undo.revert(&hold)?;
    directory.retire(&undo_path)?;
    drop(hold);
    let mut record = undone(&undo, &data);
    record.notes.push(format!("{count} pages were put back as they were"));
    record.undo_file = Some(undo_path.display().to_string());
    record.ledger = Some(ledger_path.display().to_string());
    ledger.add(&record)?;
    deliver(record, arguments, printer)
}

fn no_repair(directory: &RepairDirectory) -> anyhow::Error {
    Usage::error(
        format!("{} has no repair to undo", directory.path().display()),
        "name the undo file: --undo FILE",
    )
}

/// The record of a repair that was undone.
fn undone(undo: &RepairUndo, data: &DataDirectory) -> RepairRecord {
    let Provenance { version, command, made } = again::provenance();
    RepairRecord {
        schema: REPAIR_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        data: data.path.display().to_string(),
        system_identifier: data.control.system_identifier.to_string(),
        major: data.major,
        outcome: RepairOutcome::Undone,
        running: false,
        wal: None,
        sources: Vec::new(),
        remaining: undo.pages.len() as u64,
        blocks: undo.pages.iter().map(|page| page.proof().clone()).collect(),
        has_other_damage: false,
        is_partial: false,
        undo_file: None,
        ledger: None,
        notes: Vec::new(),
    }
}

fn deliver(
    record: RepairRecord,
    arguments: &RepairArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format(arguments.format, RecordKind::for_record::<Vec<RepairRecord>>())?;
    let table = TableOptions::default();
    output::finish(vec![record], format, &table, None, printer)
}
