//! `pgtoll repair`: damaged pages replaced by those of another copy, with proof.

mod blocks;
mod ledger;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_alter::{
    Hold, HoldPolicy, RepairError, RepairOptions, RepairPlan, RepairStep, RepairUndo, plan_repair,
};
use pgtoll_datadir::{DataDirectory, Names};
use pgtoll_format::shell_quoted;
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{Provenance, REPAIR_SCHEMA, RepairOutcome, RepairRecord, RepairSourceKind};
use pgtoll_report::{FinishedRecord, RecordKind};

use crate::arguments::RepairArguments;
use crate::commands::{Usage, output};
use crate::exit::Status;
use crate::printer::Printer;
use crate::test_hooks::pause_if_told;
use blocks::FoundDamage;
use ledger::Ledger;

pub(crate) fn run(arguments: &RepairArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    if let Some(undo) = &arguments.undo {
        return revert(undo, arguments, printer);
    }
    output::format(arguments.format, RecordKind::Repair)?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    Hold::check_left(&arguments.data, HoldPolicy::ShutDown)?;
    let data = DataDirectory::open(&arguments.data)?;
    let names = Names::of_data_directory(&data.path)?;
    let damage = FoundDamage::of(&data, &names, arguments, &interrupt, printer)?;
    let options = options(arguments);
    let ask = &mut || match interrupt.signal() {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    let mut plan = plan_repair(&data, &names, &damage.blocks, &options, provenance(), ask)?;
    plan.record.notes.extend(damage.notes.iter().cloned());
    if arguments.yes {
        write(&mut plan, &data, arguments)?;
    }
    let status = match (plan.record.remaining, damage.has_other_findings, damage.is_whole) {
        (1.., _, _) | (_, true, _) => Status::Finding,
        (0, false, true) => Status::Done,
        (0, false, false) => Status::CouldNotTell,
    };
    deliver(plan.record, arguments, printer)?;
    Ok(status)
}

fn options(arguments: &RepairArguments) -> RepairOptions {
    let of = |kind: RepairSourceKind, paths: &[PathBuf]| {
        paths.iter().map(|path| (kind, path.clone())).collect::<Vec<_>>()
    };
    let backups = of(RepairSourceKind::Backup, &arguments.from_backup);
    let stopped = of(RepairSourceKind::Stopped, &arguments.from_stopped);
    RepairOptions {
        sources: [backups, stopped].concat(),
        wal: arguments.wal.clone(),
        accept_plausible: arguments.accept.is_some(),
        threads: blocks::jobs(arguments).get(),
    }
}

fn provenance() -> Provenance {
    let words = std::env::args_os().skip(1).map(|word| shell_quoted(&word.to_string_lossy()));
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::iter::once("pgtoll".to_owned()).chain(words).collect(),
        made: jiff::Timestamp::now().to_string(),
    }
}

/// Writes the pages of the plan. What was done is in its record.
fn write(
    plan: &mut RepairPlan,
    data: &DataDirectory,
    arguments: &RepairArguments,
) -> anyhow::Result<()> {
    let undo_path = undo_path(arguments)?;
    let ledger_path = ledger_path(arguments, &undo_path);
    let mut ledger = Ledger::open(&ledger_path)?;
    plan.record.ledger = Some(ledger_path.display().to_string());
    if plan.pages.is_empty() {
        plan.record.outcome = RepairOutcome::Finished;
        return ledger.add(&plan.record);
    }
    // As root all is read, and the undo file written, before pgtoll becomes the owner.
    let undo = RepairUndo::of(plan, &data.control);
    undo.save(&undo_path).map_err(|error| undo_error(&undo_path, &error))?;
    plan.record.undo_file = Some(undo_path.display().to_string());
    plan.record.outcome = RepairOutcome::Begun;
    ledger.add(&plan.record)?;
    let (mut written, mut is_checked) = (Vec::new(), false);
    let applied = Hold::take(&data.path).map_err(RepairError::from).and_then(|hold| {
        pause_if_told("repair-held");
        undo.apply(&hold, &mut |step| match step {
            RepairStep::Checked => {
                is_checked = true;
                pause_if_told("repair-checked");
            }
            RepairStep::Written(number) => {
                written.push(number);
                pause_if_told(&format!("repair-written-{number}"));
            }
        })
    });
    plan.mark_installed(&written);
    plan.record.outcome = match &applied {
        Ok(()) => RepairOutcome::Finished,
        Err(_) => RepairOutcome::Failed,
    };
    ledger.add(&plan.record)?;
    applied.map_err(|error| {
        let error = anyhow::Error::new(error);
        let undo = undo_path.display();
        if is_checked {
            let (done, all) = (written.len(), plan.pages.len());
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

fn undo_path(arguments: &RepairArguments) -> anyhow::Result<PathBuf> {
    let path = arguments.undo_file.clone().unwrap_or_else(|| {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%6fZ");
        format!("pgtoll-repair-{time}.undo.json").into()
    });
    if fs::symlink_metadata(&path).is_ok() {
        return Err(undo_error(&path, &io::ErrorKind::AlreadyExists.into()));
    }
    std::path::absolute(&path).context("find the current directory")
}

fn ledger_path(arguments: &RepairArguments, undo: &Path) -> PathBuf {
    let beside = || undo.with_file_name("pgtoll-repair-ledger.jsonl");
    arguments.ledger.clone().unwrap_or_else(beside)
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
    output::format(arguments.format, RecordKind::Repair)?;
    let undo = RepairUndo::load(undo_path)?;
    Hold::check_left(&arguments.data, HoldPolicy::ShutDown)?;
    let data = DataDirectory::open(&arguments.data)?;
    let absolute = std::path::absolute(undo_path).context("find the current directory")?;
    let ledger_path = ledger_path(arguments, &absolute);
    let mut ledger = Ledger::open(&ledger_path)?;
    let hold = Hold::take(&data.path)?;
    let count = undo.revert(&hold)?;
    drop(hold);
    let mut record = undone(&undo, &data);
    record.notes.push(format!("{count} pages were put back as they were"));
    record.undo_file = Some(absolute.display().to_string());
    record.ledger = Some(ledger_path.display().to_string());
    ledger.add(&record)?;
    deliver(record, arguments, printer)?;
    Ok(Status::Done)
}

/// The record of a repair that was undone.
fn undone(undo: &RepairUndo, data: &DataDirectory) -> RepairRecord {
    let Provenance { version, command, made } = provenance();
    RepairRecord {
        schema: REPAIR_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        data: data.path.display().to_string(),
        system_identifier: data.control.system_identifier.to_string(),
        major: data.major,
        outcome: RepairOutcome::Undone,
        wal: None,
        sources: Vec::new(),
        remaining: undo.pages.len() as u64,
        blocks: undo.pages.iter().map(|page| page.proof().clone()).collect(),
        undo_file: None,
        ledger: None,
        notes: Vec::new(),
    }
}

fn deliver(
    record: RepairRecord,
    arguments: &RepairArguments,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let format = output::format(arguments.format, RecordKind::Repair)?;
    output::print(&FinishedRecord::Repairs(vec![record]), format, printer)
}
