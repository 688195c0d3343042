//! `pgtoll lab failover`: what clients see when an engine replaces a primary.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::{Finder, Installation, VolumeMaker};
use pgtoll_datadir::DataDirectory;
use pgtoll_lab::{EnginePrograms, FailoverError, FailoverPlan, FailoverSite, failover};
use pgtoll_record::{
    FailoverDetector, FailoverEngine, FailoverFault, FailoverRecord, FailoverRun, Status,
};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_verify::{Verification, VerifySettings};

use super::ground::{LabGround, tell_early_end};
use super::record_file::{RecordFile, earlier_record};
use crate::again;
use crate::arguments::LabFailoverArguments;
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &LabFailoverArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<FailoverRecord>().formats(),
    )?;
    let ground = LabGround::begin(&arguments.work_dir)?;
    let plan = plan(arguments)?;
    let installation = with_engines(&plan.engines, arguments, &ground, printer)?;
    let programs = EnginePrograms::find(&plan.engines, &installation)?;
    ground.tell_leftovers(printer);
    let earlier = earlier_record(
        arguments.record.as_deref(),
        "lab failover",
        |failover: &FailoverRecord| failover.complete,
    )?;
    let continues = earlier.is_some();
    printer.say(&introduction(&plan));
    // Before the guard, which has to see what is mounted.
    let volumes = if plan.needs_volumes() {
        VolumeMaker::begin(Path::new("/proc/self/exe")).map_err(|error| error.to_string())
    } else {
        Err("not asked for".to_owned())
    };
    let (guard, host) = ground.guard()?;
    let site = FailoverSite {
        installation: &installation,
        programs,
        guard,
        host,
        interrupt: &ground.interrupt,
        verify: verified,
        volumes,
    };
    let mut file = RecordFile::new(arguments.record.as_deref());
    let outcome = failover(&plan, site, &again::provenance(), earlier, &mut |record| {
        if let Some(run) = record.runs.last() {
            printer.progress(&describe(run), record.runs.len() as u64, plan.all_runs() as u64);
            printer.milestone(&describe(run));
        }
        file.write(record);
    });
    let record = outcome.map_err(|error| match error {
        FailoverError::AnotherRecord { .. } if continues => {
            Usage::error(error.to_string(), "name a new file, or repeat the options of that record")
        }
        error => error.into(),
    })?;
    if record.runs.is_empty() {
        ground.interrupt.check()?;
    }
    file.finish(&record)?;
    tell_early_end(record.ended.as_deref(), printer);
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

/// The server that was asked for; else the newest for which all engines are there. Where there is none,
/// the newest, which has an error with a hint.
fn with_engines(
    engines: &[FailoverEngine],
    arguments: &LabFailoverArguments,
    ground: &LabGround,
    printer: &mut Printer,
) -> anyhow::Result<Installation> {
    if arguments.postgres.is_none() {
        let found = Finder::of_this_program(&ground.interrupt).installed()?.installations;
        let is_fit = |installation: &&Installation| {
            installation.version.facts().is_ok()
                && EnginePrograms::find(engines, installation).is_ok()
        };
        if let Some(found) = found.iter().find(is_fit) {
            return Ok(found.clone());
        }
    }
    ground.installation(arguments.postgres.as_deref(), printer)
}

fn plan(arguments: &LabFailoverArguments) -> anyhow::Result<FailoverPlan> {
    let runs = arguments.runs.unwrap_or(if arguments.quick { 1 } else { 3 });
    let detectors =
        if arguments.quick { vec![FailoverDetector::Fast] } else { arguments.settings.clone() };
    let mut engines = arguments.engine.clone();
    engines.sort_by_key(|engine| FailoverEngine::ALL.iter().position(|item| item == engine));
    engines.dedup();
    let plan = FailoverPlan {
        faults: arguments.fault.clone(),
        engines,
        detectors,
        synchronous: arguments.sync,
        runs,
        clients: arguments.clients,
        rate_per_second: arguments.rate,
        lead: Duration::from_secs(if arguments.quick { 1 } else { 2 }),
        fail_back: arguments.fail_back,
        bouncers: arguments.bouncers,
        witness: arguments.witness,
        third_node: arguments.third_node,
    };
    check(&plan)?;
    Ok(plan)
}

/// Whether all engines have what is asked for.
fn check(plan: &FailoverPlan) -> anyhow::Result<()> {
    let others = plan.engines.iter().find(|engine| **engine != FailoverEngine::Repmgr);
    let of_repmgr = [
        ("--bouncers", plan.bouncers > 1),
        ("--witness", plan.witness),
        ("--third-node", plan.third_node),
    ];
    let asked_for = of_repmgr.into_iter().find(|(_, is_set)| *is_set);
    if let (Some((option, _)), Some(other)) = (asked_for, others) {
        let message = format!("{option} is for repmgr, and not for --engine {}", other.name());
        return Err(Usage::error(message, "name --engine repmgr alone"));
    }
    if plan.clients < 2 && plan.faults.contains(&FailoverFault::Partition) {
        let message = "a partition has clients on both sides, and --clients is 1";
        return Err(Usage::error(message.to_owned(), "let there be two or more"));
    }
    if let Some(engine) = plan.engines.iter().find(|engine| plan.detectors_of(**engine).is_empty())
    {
        let names: Vec<&str> = engine.detectors().iter().map(|detector| detector.name()).collect();
        let message = format!("{} has none of these --settings", engine.name());
        return Err(Usage::error(message, format!("it has {}", names.join(" and "))));
    }
    Ok(())
}

/// Returns the plan in words, with its time.
fn introduction(plan: &FailoverPlan) -> String {
    format!(
        "{} of a primary and a standby ({}), {} clients; about {:.0} min, about 500 MB of disk",
        if plan.all_runs() == 1 {
            "1 failover".to_owned()
        } else {
            format!("{} failovers", plan.all_runs())
        },
        plan.engines.iter().map(|engine| engine.title()).collect::<Vec<_>>().join(", "),
        plan.clients,
        (plan.time().as_secs_f64() / 60.0).ceil()
    )
}

/// The pages of a stopped server: how many, and how many of them are unsound.
fn verified(data: &Path) -> Result<(u64, u64), String> {
    let data = DataDirectory::open(data).map_err(|error| error.to_string())?;
    let jobs = NonZeroUsize::MIN;
    let settings = VerifySettings { jobs, rate: None, only_below: Vec::new(), rows: true };
    let go_on = &mut |_: &str, _| ControlFlow::Continue(());
    let found = Verification::new(&data, settings).at_rest(go_on).verified;
    let total = found.total();
    if total.unverified > 0 || !found.is_whole() {
        return Err("not all of them could be read".to_owned());
    }
    Ok((found.pages.blocks, total.failures + total.suspicions))
}

fn describe(run: &FailoverRun) -> String {
    let seconds = |outage: Option<f64>| {
        outage.map_or_else(|| "?".to_owned(), |outage| format!("{outage:.2} s"))
    };
    let bound = if run.ended_by_hand_s.is_some() { "more than " } else { "" };
    let outage = match &run.partition {
        None => format!("no service for {bound}{}", seconds(run.outage_s)),
        Some(partition) => {
            let sides = partition.sides.iter();
            let words = sides.map(|side| {
                format!("no service for {} on the {}", seconds(side.outage_s), side.name)
            });
            words.collect::<Vec<_>>().join(", ")
        }
    };
    let lost = run.lost.map_or_else(|| "?".to_owned(), |lost| lost.to_string());
    let engine = match run.engine {
        FailoverEngine::Repmgr => run.detector.name().to_owned(),
        FailoverEngine::None => "no engine".to_owned(),
        engine => format!("{} {}", engine.name(), run.detector.name()),
    };
    format!("{}, {engine}, run {}: {outage}, {lost} lost", run.fault.name(), run.number)
}
