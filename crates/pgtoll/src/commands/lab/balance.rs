//! `pgtoll lab balance`: a primary and two standbys behind Pgpool-II.

use std::time::Duration;

use pgtoll_cluster::Pgpool;
use pgtoll_lab::{BALANCE_PARTS, BalancePlan, BalanceSite, balance};
use pgtoll_record::{BalanceRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};

use super::ground::{LabGround, tell_early_end};
use super::record_file::{RecordFile, refuse_existing};
use crate::again;
use crate::arguments::LabBalanceArguments;
use crate::commands::output;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &LabBalanceArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<BalanceRecord>().formats(),
    )?;
    if let Some(file) = arguments.record.as_deref() {
        refuse_existing(file)?;
    }
    let ground = LabGround::begin(&arguments.work_dir)?;
    let pgpool = Pgpool::find()?;
    let installation = ground.installation(arguments.postgres.as_deref(), printer)?;
    ground.tell_leftovers(printer);
    printer.say(INTRODUCTION);
    let (guard, host) = ground.guard()?;
    let site = BalanceSite {
        installation: &installation,
        pgpool: &pgpool,
        guard,
        host,
        interrupt: &ground.interrupt,
    };
    let mut file = RecordFile::new(arguments.record.as_deref());
    let mut parts = 0;
    let record = balance(&plan(arguments), site, &again::provenance(), &mut |record, part| {
        file.write(record);
        parts += 1;
        printer.progress(part, parts, BALANCE_PARTS as u64);
        printer.milestone(part);
    })?;
    file.finish(&record)?;
    tell_early_end(record.ended.as_deref(), printer);
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

const INTRODUCTION: &str = "a primary and two standbys behind Pgpool-II; a minute or two, about 300 MB \
                            of disk";

fn plan(arguments: &LabBalanceArguments) -> BalancePlan {
    let quick = arguments.quick;
    let pick = |short: u32, long: u32| if quick { short } else { long };
    BalancePlan {
        route_sessions: pick(8, 20),
        split_sessions: pick(60, 400),
        writes: arguments.writes.unwrap_or_else(|| pick(200, 1000)),
        clients: arguments.clients,
        slice: Duration::from_secs(1),
        slices: pick(4, 16),
    }
}
