//! `pgtoll lab bridge`: one server with foreign tables of others, a CSV file and Redis.

use anyhow::Context as _;
use pgtoll_cluster::{Guard, GuardOptions, Redis, ServerUser};
use pgtoll_format::shell_quoted;
use pgtoll_interrupt::Interrupt;
use pgtoll_lab::{BRIDGE_STEPS, BridgeSite, bridge};
use pgtoll_record::{BridgeRecord, Provenance};
use pgtoll_report::{FinishedRecord, RecordKind, TableOptions};

use super::record_file::{refuse_existing, write_record};
use crate::arguments::LabBridgeArguments;
use crate::commands::measure::{installation, tell_leftovers};
use crate::commands::{absolute, output};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(arguments: &LabBridgeArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(&arguments.output, RecordKind::Bridge.formats())?;
    if let Some(file) = arguments.record.as_deref() {
        refuse_existing(file)?;
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let (work_dir, user) = (absolute(&arguments.work_dir)?, ServerUser::choose()?);
    let redis = Redis::find()?;
    let installation = installation(arguments.postgres.as_deref(), &interrupt, printer)?;
    tell_leftovers(&work_dir, &user, printer);
    printer.say(INTRODUCTION);
    let options = GuardOptions::of_this_program(work_dir.clone(), user);
    let site = BridgeSite {
        installation: &installation,
        redis: &redis,
        guard: Guard::begin(&options, &interrupt)?,
        host: pgtoll_bench::host(&work_dir)?,
        interrupt: &interrupt,
    };
    let mut written = Ok(());
    let record = bridge(site, &provenance(arguments), &mut |record| {
        if let (Some(file), Ok(())) = (&arguments.record, &written) {
            written = write_record(file, record);
        }
        if let Some(step) = record.steps.last().filter(|_| !record.complete) {
            let words = format!("{}: {}", step.name, step.title);
            printer.progress(&words, record.steps.len() as u64, BRIDGE_STEPS as u64);
            printer.milestone(&words);
        }
    })?;
    written?;
    if let Some(file) = &arguments.record {
        write_record(file, &record)?;
    }
    if let Some(ended) = &record.ended {
        printer.warn(&format!("pgtoll: ended early: {ended}"));
    }
    let status = status(&record);
    let record = FinishedRecord::Bridge(Box::new(record));
    let table = TableOptions::default();
    output::show(&record, format, &table, arguments.output.output.as_ref(), printer)?;
    Ok(status)
}

const INTRODUCTION: &str = "a hub with foreign tables of two servers, a CSV file and Redis; well \
                            under a minute, about 200 MB of disk";

/// A finding is one, however the steps ended.
fn status(record: &BridgeRecord) -> Status {
    if !pgtoll_report::bridge_findings(record).is_empty() {
        Status::Finding
    } else if record.complete {
        Status::Done
    } else {
        Status::CouldNotTell
    }
}

fn provenance(arguments: &LabBridgeArguments) -> Provenance {
    let mut command = ["pgtoll", "lab", "bridge"].map(str::to_owned).to_vec();
    if let Some(postgres) = &arguments.postgres {
        command.extend(["--postgres".to_owned(), shell_quoted(postgres)]);
    }
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        made: jiff::Timestamp::now().to_string(),
    }
}
