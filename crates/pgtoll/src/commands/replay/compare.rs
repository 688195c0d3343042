//! `pgtoll replay compare`: the same work on copies of one data directory that differ.

use std::cmp::Ordering;
use std::path::Path;

use anyhow::Context as _;
use pgtoll_cluster::{Guard, GuardOptions, ServerUser};
use pgtoll_record::{ReplayComparison, Status};
use pgtoll_replay::{
    ArmSetup, ComparedArmPlan, ComparedSource, ComparisonPlan, ComparisonProgress, ComparisonSite,
    ReplaySettings, TWIN, check, compare,
};
use pgtoll_report::{RecordKind, ReportedRecord as _, TableOptions};
use pgtoll_system::Interrupt;

use super::workload;
use crate::again::{self, Resolved};
use crate::arguments::ReplayCompareArguments;
use crate::commands::measure::{installation, tell_leftovers};
use crate::commands::server_waits::ServerWaits;
use crate::commands::{absolute, output};
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(super) fn run(
    arguments: &ReplayCompareArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let formats = RecordKind::for_record::<ReplayComparison>().formats();
    let format = output::format_of_output(&arguments.output, formats)?;
    let mut plan = plan(arguments)?;
    let workload = workload(&arguments.logs, printer)?;
    check(&workload.header)?;
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let work_dir = absolute(&arguments.work_dir)?;
    let user = ServerUser::choose()?;
    let sources = sources(arguments, &mut plan, &interrupt, printer)?;
    tell_leftovers(&work_dir, &user, printer);
    printer.say(&introduction(&plan, &sources));
    let waits = ServerWaits::until(&interrupt)?;
    let options = GuardOptions::of_this_program(work_dir.clone(), user);
    let site = ComparisonSite {
        sources,
        guard: Guard::begin(&options, &interrupt)?,
        host: pgtoll_measure::host(&work_dir)?,
        interrupt: &interrupt,
        interruption: waits.interruption(),
    };
    let seed = [("--seed", arguments.seed.to_string())];
    let provenance = again::provenance_with(Resolved { options: &seed, ..Resolved::default() });
    let record = compare(&workload, &plan, site, provenance, &mut |progress| {
        let words = describe(progress);
        printer.progress(&words, progress.done, progress.all);
        printer.milestone(&words);
    })?;
    if let Some(path) = &arguments.record {
        output::write(path, &record.json())?;
    }
    let into = arguments.output.output.as_ref();
    output::finish(record, format, &TableOptions::default(), into, printer)
}

/// The data directories, the baseline's first, with their servers; arms get the places of theirs.
fn sources(
    arguments: &ReplayCompareArguments,
    plan: &mut ComparisonPlan,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<Vec<ComparedSource>> {
    let mut sources: Vec<ComparedSource> = Vec::new();
    for (arm, directory) in plan.arms.iter_mut().zip(directories(arguments)?) {
        let data = absolute(directory)?;
        let own = version_of(&data);
        let which = server_of(arguments, &arm.name)?.map(str::to_owned).or_else(|| own.clone());
        let server = installation(which.as_deref(), interrupt, printer)?;
        let is_same = |one: &ComparedSource| one.data == data && one.installation == server;
        if let Some(place) = sources.iter().position(is_same) {
            arm.source = place;
            continue;
        }
        let major = own.as_ref().and_then(|version| version.parse::<u32>().ok());
        let before = match major.map(|major| major.cmp(&server.version.major())) {
            Some(Ordering::Greater) => {
                return Err(Usage::error(
                    format!(
                        "arm \"{}\": {} is of a later version than its server",
                        arm.name,
                        data.display()
                    ),
                    "pg_upgrade only goes forward: give --data a directory of the older version",
                ));
            }
            Some(Ordering::Less) => Some(installation(own.as_deref(), interrupt, printer)?),
            _ => None,
        };
        arm.source = sources.len();
        sources.push(ComparedSource { installation: server, before, data });
    }
    Ok(sources)
}

/// The server that `--postgres` names for an arm.
fn server_of<'a>(
    arguments: &'a ReplayCompareArguments,
    arm: &str,
) -> anyhow::Result<Option<&'a str>> {
    let mut named = arguments.postgres.iter().filter_map(|(arm, _)| arm.as_ref());
    if let Some(name) = named.find(|name| !arguments.arms.contains(name)) {
        let known = format!("--arms has {}", arguments.arms.join(", "));
        return Err(Usage::error(format!("no arm is called \"{name}\""), known));
    }
    let pick = |wanted: Option<&str>| {
        let mut found = arguments.postgres.iter().filter(|(arm, _)| arm.as_deref() == wanted);
        found.next_back().map(|(_, server)| server.as_str())
    };
    Ok(pick(Some(arm)).or_else(|| pick(None)))
}

/// Each arm's data directory, in their order.
fn directories(arguments: &ReplayCompareArguments) -> anyhow::Result<Vec<&Path>> {
    let pick = |wanted: Option<&str>| {
        let mut found = arguments.data.iter().filter(|(arm, _)| arm.as_deref() == wanted);
        let first = found.next();
        let more = found.next();
        if more.is_some() {
            let whose =
                wanted.map_or("for all arms".to_owned(), |arm| format!("for arm \"{arm}\""));
            let hint = "--data DIR is for all arms, --data ARM:DIR for one";
            return Err(Usage::error(format!("two data directories {whose}"), hint));
        }
        Ok(first.map(|(_, directory)| directory.as_path()))
    };
    let mut named = arguments.data.iter().filter_map(|(arm, _)| arm.as_ref());
    if let Some(name) = named.find(|name| !arguments.arms.contains(name)) {
        let known = format!("--arms has {}", arguments.arms.join(", "));
        return Err(Usage::error(format!("no arm is called \"{name}\""), known));
    }
    let common = pick(None)?;
    let directory = |arm: &String| {
        pick(Some(arm))?.or(common).ok_or_else(|| {
            let hint = format!("name one with --data {arm}:DIR, or one for all with --data DIR");
            Usage::error(format!("arm \"{arm}\" has no data directory"), hint)
        })
    };
    arguments.arms.iter().map(directory).collect()
}

/// The major version of a data directory, if it is one.
fn version_of(data: &Path) -> Option<String> {
    let version = pgtoll_system::read(&data.join("PG_VERSION"), 64).ok()?;
    Some(String::from_utf8_lossy(&version).trim().to_owned())
}

fn plan(arguments: &ReplayCompareArguments) -> anyhow::Result<ComparisonPlan> {
    let mut arms: Vec<ComparedArmPlan> = arguments.arms.iter().map(|name| arm(name)).collect();
    let unknown = |name: &str| {
        let known = arguments.arms.join(", ");
        Usage::error(format!("no arm is called \"{name}\""), format!("--arms has {known}"))
    };
    for (name, setting, value) in &arguments.set {
        let arm = arms.iter_mut().find(|arm| arm.name == *name).ok_or_else(|| unknown(name))?;
        arm.settings.insert(setting.clone(), value.clone());
    }
    for (name, path) in &arguments.setup {
        let arm = arms.iter_mut().find(|arm| arm.name == *name).ok_or_else(|| unknown(name))?;
        let reading = || format!("read {}", path.display());
        let sql = std::fs::read_to_string(path).with_context(reading)?;
        let file = path.file_name().unwrap_or(path.as_os_str());
        arm.setup = Some(ArmSetup { name: file.to_string_lossy().into_owned(), sql });
    }
    let replay = ReplaySettings {
        order: arguments.order,
        speed: arguments.speed.0,
        map: arguments.map.iter().cloned().collect(),
        user: arguments.user.clone(),
        ..ReplaySettings::default()
    };
    let margin = arguments.margin / 100.0;
    Ok(ComparisonPlan { arms, rounds: arguments.rounds, seed: arguments.seed, margin, replay })
}

fn arm(name: &str) -> ComparedArmPlan {
    let checksums = match name {
        "off" => Some(false),
        "checksums" => Some(true),
        _ => None,
    };
    ComparedArmPlan { name: name.to_owned(), checksums, ..ComparedArmPlan::default() }
}

/// Returns the plan in words.
fn introduction(plan: &ComparisonPlan, sources: &[ComparedSource]) -> String {
    let data: Vec<String> =
        sources.iter().map(|source| source.data.display().to_string()).collect();
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    format!(
        "{} copies of {} at a time; arms: {}, {TWIN}; {} replays in {} rounds",
        plan.arms.len() + 1,
        data.join(" and "),
        names.join(", "),
        (plan.arms.len() as u64 + 1) * u64::from(plan.rounds),
        plan.rounds
    )
}

fn describe(progress: ComparisonProgress<'_>) -> String {
    match progress.round {
        0 => format!("prepare {}", progress.arm),
        round => format!("round {round}: {}", progress.arm),
    }
}
