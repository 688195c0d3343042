//! `pgtoll checkup`: what each safety of a server buys and costs.

use std::time::Duration;

use anyhow::Context as _;
use pgtoll_checkup::CheckupPlan;
use pgtoll_estimate::CheckupThreshold;
use pgtoll_record::{CheckupRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;

use crate::again;
use crate::arguments::CheckupArguments;
use crate::commands::server_waits::ServerWaits;
use crate::commands::{output, thresholds};
use crate::printer::Printer;

pub(crate) fn run(arguments: &CheckupArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<CheckupRecord>().formats(),
    )?;
    let thresholds: Vec<CheckupThreshold> = thresholds::of_checkup(&arguments.fail_if)?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let waits = ServerWaits::until(&interrupt)?;
    let plan = CheckupPlan { time: arguments.r#for.0, gentle: arguments.gentle };
    let mut on_progress = |elapsed: Duration| {
        let all = plan.time.as_secs();
        printer.progress("watch", elapsed.as_secs().min(all), all);
    };
    let dsn = waits.limit_waits(&arguments.dsn);
    let record =
        pgtoll_checkup::checkup(again::provenance(), &dsn, plan, &interrupt, &mut on_progress)?;
    if let Some(ended) = &record.watch.ended {
        printer.warn(&format!("pgtoll: watching ended early: {ended}"));
    }
    let output = arguments.output.output.as_ref();
    let status = output::finish(record.clone(), format, &TableOptions::default(), output, printer)?;
    Ok(Status::worst([status, thresholds::judge_checkup(&thresholds, &record, printer)]))
}
