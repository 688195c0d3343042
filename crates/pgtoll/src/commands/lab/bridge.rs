//! `pgtoll lab bridge`: one server with foreign tables of others, a CSV file and Redis.

use pgtoll_cluster::Redis;
use pgtoll_lab::{BRIDGE_STEPS, BridgeSite, bridge};
use pgtoll_record::{BridgeRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};

use super::ground::{LabGround, tell_early_end};
use super::record_file::{RecordFile, refuse_existing};
use crate::again;
use crate::arguments::LabBridgeArguments;
use crate::commands::output;
use crate::printer::Printer;

pub(crate) fn run(arguments: &LabBridgeArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<BridgeRecord>().formats(),
    )?;
    if let Some(file) = arguments.record.as_deref() {
        refuse_existing(file)?;
    }
    let ground = LabGround::begin(&arguments.work_dir)?;
    let redis = Redis::find()?;
    let installation = ground.installation(arguments.postgres.as_deref(), printer)?;
    ground.tell_leftovers(printer);
    printer.say(INTRODUCTION);
    let (guard, host) = ground.guard()?;
    let site = BridgeSite {
        installation: &installation,
        redis: &redis,
        guard,
        host,
        interrupt: &ground.interrupt,
    };
    let mut file = RecordFile::new(arguments.record.as_deref());
    let record = bridge(site, &again::provenance(), &mut |record| {
        file.write(record);
        if let Some(step) = record.steps.last().filter(|_| !record.complete) {
            let words = format!("{}: {}", step.name, step.title);
            printer.progress(&words, record.steps.len() as u64, BRIDGE_STEPS as u64);
            printer.milestone(&words);
        }
    })?;
    file.finish(&record)?;
    tell_early_end(record.ended.as_deref(), printer);
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

const INTRODUCTION: &str = "a hub with foreign tables of two servers, a CSV file and Redis; well \
                            under a minute, about 200 MB of disk";
