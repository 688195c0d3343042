//! `pgtoll checkup`: what each safety of a server buys and costs.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_checkup::{CheckupPlan, last_recovery};
use pgtoll_estimate::CheckupThreshold;
use pgtoll_record::{
    CheckedRecord, CheckupRecord, DrillRecord, PatrolRecord, SeenRecovery, Status,
    VerificationRecord,
};
use pgtoll_report::{FinishedRecord, RecordKind, TableOptions};
use pgtoll_system::Interrupt;

use crate::again;
use crate::arguments::CheckupArguments;
use crate::commands::replay::open_log;
use crate::commands::server_waits::ServerWaits;
use crate::commands::{output, record_text, thresholds};
use crate::mistakes::Usage;
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
    let recovery = arguments.log.as_deref().map(recovery_in).transpose()?;
    let records: Vec<Vec<CheckedRecord>> =
        arguments.record.iter().map(|path| checked_records(path)).collect::<Result<_, _>>()?;
    let records = records.concat();
    let plan = CheckupPlan { time: arguments.r#for.0, gentle: arguments.gentle, recovery, records };
    let time = plan.time;
    let mut on_progress = |elapsed: Duration| {
        let all = time.as_secs();
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

/// The verifications, or the patrol or drill, of a record that is named.
fn checked_records(path: &Path) -> anyhow::Result<Vec<CheckedRecord>> {
    let read = || format!("read {}", path.display());
    let found = FinishedRecord::parse(&record_text(path)?).with_context(read)?;
    let records = found.and_then(read_of_record).ok_or_else(|| {
        let message = format!("{} is no record of verify", path.display());
        Usage::error(message, "name what pgtoll verify, or verify --drill, wrote with --json")
    })?;
    if records.iter().any(|record| record.made.parse::<jiff::Timestamp>().is_err()) {
        let message = format!("{} does not say when it was made", path.display());
        return Err(Usage::error(message, "name a record as pgtoll wrote it"));
    }
    let named = |record| CheckedRecord { path: path.display().to_string(), ..record };
    Ok(records.into_iter().map(named).collect())
}

fn read_of_record(record: FinishedRecord) -> Option<Vec<CheckedRecord>> {
    Some(match record.kind().name() {
        "verification" => {
            record.downcast::<Vec<VerificationRecord>>()?.iter().map(CheckedRecord::from).collect()
        }
        "patrol" => vec![CheckedRecord::from(&record.downcast::<PatrolRecord>()?)],
        "drill" => vec![CheckedRecord::from(&record.downcast::<DrillRecord>()?)],
        _ => return None,
    })
}

/// The last recovery in a log that is named.
fn recovery_in(log: &Path) -> anyhow::Result<SeenRecovery> {
    let seen = last_recovery(open_log(log)?);
    seen.with_context(|| format!("read {}", log.display()))?.ok_or_else(|| {
        Usage::error(
            format!("{}: no recovery from a crash, of 16 MB of WAL or more", log.display()),
            "leave --log out, or name the log of the server's last crash",
        )
    })
}
