//! `pgtoll lab balance`: a primary and two standbys behind Pgpool-II.

use std::time::Duration;

use anyhow::Context as _;
use pgtoll_cluster::{Guard, GuardOptions, Pgpool, ServerUser};
use pgtoll_format::shell_quoted;
use pgtoll_interrupt::Interrupt;
use pgtoll_lab::{BALANCE_PARTS, BalancePlan, BalanceSite, balance};
use pgtoll_record::{BalanceRecord, Provenance};
use pgtoll_report::{FinishedRecord, RecordKind, TableOptions};

use super::record_file::{refuse_existing, write_record};
use crate::arguments::LabBalanceArguments;
use crate::commands::measure::{installation, tell_leftovers};
use crate::commands::{absolute, output};
use crate::exit::Status;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &LabBalanceArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(&arguments.output, RecordKind::Balance.formats())?;
    if let Some(file) = arguments.record.as_deref() {
        refuse_existing(file)?;
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let (work_dir, user) = (absolute(&arguments.work_dir)?, ServerUser::choose()?);
    let pgpool = Pgpool::find()?;
    let installation = installation(arguments.postgres.as_deref(), &interrupt, printer)?;
    tell_leftovers(&work_dir, &user, printer);
    printer.say(INTRODUCTION);
    let options = GuardOptions::of_this_program(work_dir.clone(), user);
    let site = BalanceSite {
        installation: &installation,
        pgpool: &pgpool,
        guard: Guard::begin(&options, &interrupt)?,
        host: pgtoll_bench::host(&work_dir)?,
        interrupt: &interrupt,
    };
    let (mut written, mut parts) = (Ok(()), 0);
    let record = balance(&plan(arguments), site, &provenance(arguments), &mut |record, part| {
        if let (Some(file), Ok(())) = (&arguments.record, &written) {
            written = write_record(file, record);
        }
        parts += 1;
        printer.progress(part, parts, BALANCE_PARTS as u64);
        printer.milestone(part);
    })?;
    written?;
    if let Some(file) = &arguments.record {
        write_record(file, &record)?;
    }
    if let Some(ended) = &record.ended {
        printer.warn(&format!("pgtoll: ended early: {ended}"));
    }
    let status = status(&record);
    let record = FinishedRecord::Balance(Box::new(record));
    let table = TableOptions::default();
    output::show(&record, format, &table, arguments.output.output.as_ref(), printer)?;
    Ok(status)
}

const INTRODUCTION: &str = "a primary and two standbys behind Pgpool-II; a minute or two, about 300 MB \
                            of disk";

fn plan(arguments: &LabBalanceArguments) -> BalancePlan {
    let quick = arguments.quick;
    let of = |short: u32, long: u32| if quick { short } else { long };
    BalancePlan {
        route_sessions: of(8, 20),
        split_sessions: of(60, 400),
        writes: arguments.writes.unwrap_or_else(|| of(200, 1000)),
        clients: arguments.clients,
        slice: Duration::from_secs(1),
        slices: of(4, 16),
    }
}

/// A finding is one, however it ended.
fn status(record: &BalanceRecord) -> Status {
    if !pgtoll_report::balance_findings(record).is_empty() {
        Status::Finding
    } else if record.complete {
        Status::Done
    } else {
        Status::CouldNotTell
    }
}

fn provenance(arguments: &LabBalanceArguments) -> Provenance {
    let mut command = ["pgtoll", "lab", "balance"].map(str::to_owned).to_vec();
    if arguments.quick {
        command.push("--quick".to_owned());
    }
    if let Some(writes) = arguments.writes {
        command.extend(["--writes".to_owned(), writes.to_string()]);
    }
    command.extend(["--clients".to_owned(), arguments.clients.to_string()]);
    if let Some(postgres) = &arguments.postgres {
        command.extend(["--postgres".to_owned(), shell_quoted(postgres)]);
    }
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        made: jiff::Timestamp::now().to_string(),
    }
}
