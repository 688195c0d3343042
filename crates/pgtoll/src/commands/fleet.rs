//! `pgtoll fleet`: are the backups of many clusters sound?

use std::path::Path;

use anyhow::Context as _;
use pgtoll_estimate::fleet_cpu_times;
use pgtoll_fleet::{
    FleetPlanning, ShardEvent, ShardTask, built_in_cpu_times, merge, plan, read_plan, run_shard,
    shard_of_engine, write_plan,
};
use pgtoll_format::ByteSize;
use pgtoll_record::{
    FleetCpuTimes, FleetPlan, FleetRecord, Status, VerificationOutcome, VerificationRecord,
};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_store::{StoreScheme, StoreUrl};
use pgtoll_system::Interrupt;
use pgtoll_verify::VerifySettings;

use super::verify::cores;
use super::{location, output};
use crate::again;
use crate::arguments::{
    FleetArguments, FleetCommand, FleetMergeArguments, FleetPlanArguments, FleetRunArguments,
};
use crate::printer::Printer;

pub(crate) fn run(arguments: &FleetArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    match &arguments.command {
        FleetCommand::Plan(arguments) => plan_fleet(arguments, &interrupt, printer),
        FleetCommand::Run(arguments) => run_fleet(arguments, &interrupt, printer),
        FleetCommand::Merge(arguments) => merge_fleet(arguments, &interrupt, printer),
    }
}

fn plan_fleet(
    arguments: &FleetPlanArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format(arguments.format, RecordKind::for_record::<FleetPlan>())?;
    let urls = arguments.urls.iter().map(|text| location(text)).collect::<Result<Vec<_>, _>>()?;
    let at = arguments.output.as_deref().map(plan_location).transpose()?;
    let shards = arguments.shards.get();
    let unit_size = arguments.unit_size;
    let cpu_times = cpu_times(arguments.cpu_record.as_deref())?;
    let planning = FleetPlanning { shards, unit_bytes: unit_size.0, cpu_times };
    let mut planned = plan(&urls, planning, interrupt, again::provenance())?;
    if let Some(at) = &at {
        planned = write_plan(planned, at, arguments.replace, interrupt)?;
        printer.say(&format!("pgtoll: the plan is in {at}"));
    }
    output::finish(planned, format, &TableOptions::default(), None, printer)
}

/// Returns the CPU times of the user's record, or of pgtoll's own.
fn cpu_times(record: Option<&Path>) -> anyhow::Result<FleetCpuTimes> {
    let Some(path) = record else {
        return Ok(built_in_cpu_times()?);
    };
    let name = path.display().to_string();
    let text = pgtoll_system::read_to_string(path, CPU_RECORD_BYTES_MAX)
        .with_context(|| format!("read {name}"))?;
    Ok(fleet_cpu_times(&[(&name, &text)])?)
}

fn run_fleet(
    arguments: &FleetRunArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let at = plan_location(&arguments.plan)?;
    let planned = read_plan(&at, interrupt)?;
    let variable = |name: &str| std::env::var(name).ok();
    let shard = match (arguments.shard, arguments.all) {
        (Some(shard), _) => Some(shard),
        (None, true) => None,
        (None, false) => {
            Some(shard_of_engine(&variable, &planned)?.ok_or(pgtoll_fleet::FleetError::NoShard)?)
        }
    };
    let now = jiff::Timestamp::now().as_second();
    let made_before = arguments
        .reverify_after
        .map(|age| u64::try_from(now).unwrap_or_default().saturating_sub(age.0.as_secs()));
    let settings = VerifySettings {
        jobs: arguments.jobs.map_or_else(cores, std::num::NonZero::from),
        rate: arguments.rate.map(|ByteSize(bytes)| bytes),
        only_below: Vec::new(),
        rows: true,
    };
    let task = ShardTask {
        plan: &planned,
        at: &at,
        shard,
        settings,
        made_before,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interrupt: interrupt.clone(),
    };
    let made = || jiff::Timestamp::now().to_string();
    let summary = run_shard(&task, &made, &mut |event| match event {
        ShardEvent::Reading { unit, progress } => {
            printer.progress(&unit.name(), progress.bytes, progress.all_bytes);
        }
        ShardEvent::Verified(unit, record) => {
            printer.milestone(&format!("{}: {}", unit.name(), describe(record)));
        }
        ShardEvent::Failed(unit, reason) => {
            // The store's words mostly begin with the URL.
            let reason = reason.strip_prefix(&format!("{}: ", unit.url)).unwrap_or(reason);
            printer.warn(&format!("pgtoll: {}: not verified: {reason}", unit.name()));
        }
    })?;
    let counts = [
        (summary.verified, "verified"),
        (summary.skipped, "had a result"),
        (summary.failed, "not verified"),
    ];
    let counts: Vec<String> =
        counts.iter().map(|(count, label)| format!("{count} {label}")).collect();
    printer.milestone(&counts.join(", "));
    if let Some(signal) = interrupt.signal() {
        printer.warn(&format!("pgtoll: interrupted by {signal}; run it again to continue"));
    }
    if summary.is_interrupted || summary.failed > 0 {
        return Ok(Status::CouldNotTell);
    }
    Ok(Status::Done)
}

fn merge_fleet(
    arguments: &FleetMergeArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<FleetRecord>().formats(),
    )?;
    let at = plan_location(&arguments.plan)?;
    let planned = read_plan(&at, interrupt)?;
    let merged = merge(&planned, &at, interrupt, again::provenance())?;
    let file = arguments.output.output.as_ref();
    output::finish(merged, format, &TableOptions::default(), file, printer)
}

/// A plan's URL. A directory stands for the plan.json in it.
fn plan_location(text: &str) -> anyhow::Result<StoreUrl> {
    let at = location(text)?;
    let is_directory = match at.scheme() {
        StoreScheme::File => at.path().is_some_and(|path| path.is_dir()),
        StoreScheme::S3 | StoreScheme::Gcs | StoreScheme::Azure => false,
    };
    Ok(if is_directory || text.ends_with('/') { at.join("plan.json") } else { at })
}

fn describe(record: &VerificationRecord) -> &'static str {
    match record.outcome {
        VerificationOutcome::Sound => "sound",
        VerificationOutcome::NoDamageSeen => "no damage seen",
        VerificationOutcome::Findings => "findings",
        VerificationOutcome::Unverified => "not all of it could be verified",
    }
}

/// A line a reading, of which there are some hundreds at most.
const CPU_RECORD_BYTES_MAX: u64 = 16 << 20;
