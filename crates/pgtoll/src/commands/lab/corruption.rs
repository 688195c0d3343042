//! `pgtoll lab corruption`: what becomes of a damaged page, and what a failover away from it costs.

use std::time::Duration;

use pgtoll_cluster::Pgbouncer;
use pgtoll_lab::{CorruptionError, CorruptionPlan, CorruptionProgress, ExchangeSite, corruption};
use pgtoll_record::{CorruptionRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};

use super::ground::{LabGround, tell_early_end};
use super::record_file::{RecordFile, earlier_record};
use crate::again;
use crate::arguments::{LabCorruptionArguments, LabEntry};
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &LabCorruptionArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<CorruptionRecord>().formats(),
    )?;
    let ground = LabGround::begin(&arguments.work_dir)?;
    let installation = ground.installation(arguments.postgres.as_deref(), printer)?;
    ground.tell_leftovers(printer);
    let plan = plan(arguments)?;
    let earlier = earlier_record(
        arguments.record.as_deref(),
        "lab corruption",
        |corruption: &CorruptionRecord| corruption.complete,
    )?;
    let continues = earlier.is_some();
    printer.say(&introduction(&plan));
    let (guard, host) = ground.guard()?;
    let site =
        ExchangeSite { installation: &installation, guard, host, interrupt: &ground.interrupt };
    let all = u64::from(plan.runs) + 2;
    let mut file = RecordFile::new(arguments.record.as_deref());
    let provenance = again::provenance();
    let outcome = corruption(&plan, site, &provenance, earlier, &mut |progress, record| {
        let done = record.spread.len() + record.failovers.len();
        let words = describe(progress);
        printer.progress(&words, done as u64, all);
        printer.milestone(&words);
        file.write(record);
    });
    let record = outcome.map_err(|error| match error {
        CorruptionError::AnotherRecord { .. } if continues => {
            Usage::error(error.to_string(), "name a new file, or repeat the options of that record")
        }
        error => error.into(),
    })?;
    if record.spread.is_empty() {
        ground.interrupt.check()?;
    }
    file.finish(&record)?;
    tell_early_end(record.ended.as_deref(), printer);
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

fn plan(arguments: &LabCorruptionArguments) -> anyhow::Result<CorruptionPlan> {
    let pooler = match arguments.entry {
        LabEntry::Pgbouncer => Some(Pgbouncer::find("pgbouncer")?),
        LabEntry::Hosts => None,
    };
    Ok(CorruptionPlan {
        runs: if arguments.quick { 3 } else { arguments.runs },
        clients: arguments.clients,
        rate_per_second: arguments.rate,
        duration: LOAD,
        pooler,
    })
}

/// How long transactions fall due, in each run.
const LOAD: Duration = Duration::from_secs(3);
/// Copying, starting and removing the servers of a run.
const OVERHEAD: Duration = Duration::from_secs(5);

/// Returns the plan in words, with its time.
fn introduction(plan: &CorruptionPlan) -> String {
    let seconds = (plan.duration + OVERHEAD).as_secs_f64() * f64::from(plan.runs + 2);
    format!(
        "a page of a primary is damaged, without checksums and with them; failovers away from it: {}; \
         clients: {}; about {:.0} min",
        plan.runs,
        plan.clients,
        (seconds / 60.0).max(1.0)
    )
}

fn describe(progress: CorruptionProgress<'_>) -> String {
    match progress {
        CorruptionProgress::Spread(progress) if progress.checksums => {
            "damage with checksums".to_owned()
        }
        CorruptionProgress::Spread(_) => "damage without checksums".to_owned(),
        CorruptionProgress::Failover(progress) => {
            format!("failover {}: readable after {:.2} s", progress.run, progress.readable_s)
        }
    }
}
