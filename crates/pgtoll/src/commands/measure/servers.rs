//! The servers that arms name: found before anything is made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pgtoll_cluster::{Finder, Installation};
use pgtoll_measure::{ArmSpec, Experiment, ServerChoice};
use pgtoll_system::Interrupt;

use super::{PlannedExperiment, find};
use crate::arguments::MeasureArguments;
use crate::mistakes::Usage;
use crate::printer::Printer;

/// The servers of `--postgres` and `--against`.
#[derive(Default)]
pub(super) struct ComparedServers {
    /// The baseline first; empty without `--against`.
    pub(super) servers: Vec<ServerChoice>,
    /// The label of `--settings-of`.
    pub(super) settings_of: Option<String>,
}

/// The servers that are compared.
pub(super) fn compared(
    arguments: &MeasureArguments,
    interrupt: &Interrupt,
    printer: &Printer,
) -> anyhow::Result<ComparedServers> {
    if arguments.against.is_empty() {
        return Ok(ComparedServers::default());
    }
    let baseline = if let Some(named) = &arguments.postgres {
        named.clone()
    } else {
        let found = find(&Finder::of_this_program(interrupt), None, printer)?;
        let hint = "name the baseline with --postgres";
        let found = found.ok_or_else(|| Usage::error("no PostgreSQL server found", hint))?;
        found.bin.display().to_string()
    };
    let names: Vec<String> = std::iter::once(baseline).chain(arguments.against.clone()).collect();
    let servers = ServerChoice::of_names(&names);
    let named =
        |name: &String| servers.iter().find(|one| one.postgres == *name || one.label == *name);
    let settings_of = match &arguments.settings_of {
        None => None,
        Some(name) => Some(named(name).ok_or_else(|| {
            let hint = format!("name one of them: {}", names.join(", "));
            Usage::error(format!("--settings-of {name} is no compared server"), hint)
        })?),
    };
    let settings_of = settings_of.map(|server| server.label.clone());
    Ok(ComparedServers { servers, settings_of })
}

/// The installations that arms name. An error where two arms that do not differ otherwise name the same
/// one.
pub(super) fn named(
    requested: &[PlannedExperiment],
    interrupt: &Interrupt,
) -> anyhow::Result<BTreeMap<String, Installation>> {
    let finder = Finder::of_this_program(interrupt);
    let mut found = BTreeMap::new();
    let arms = requested.iter().flat_map(|one| &one.plan.experiment.arms);
    for name in arms.filter_map(|arm| arm.postgres.as_ref()) {
        if found.contains_key(name) {
            continue;
        }
        let hint = "`pgtoll postgres list` shows the servers of this machine";
        let missing = || Usage::error(format!("no server {name} was found"), hint);
        found.insert(name.clone(), finder.find(Some(name))?.ok_or_else(missing)?);
    }
    for experiment in requested {
        check_different(&experiment.plan.experiment, &found)?;
    }
    Ok(found)
}

fn check_different(
    experiment: &Experiment,
    servers: &BTreeMap<String, Installation>,
) -> anyhow::Result<()> {
    let place = |arm: &ArmSpec| -> Option<PathBuf> {
        let server = servers.get(arm.postgres.as_ref()?)?;
        Some(std::fs::canonicalize(&server.bin).unwrap_or_else(|_| server.bin.clone()))
    };
    let originals = || experiment.arms.iter().filter(|arm| arm.twin_of.is_none());
    for (index, arm) in originals().enumerate() {
        let is_alike = |other: &&ArmSpec| {
            place(other).is_some_and(|other| Some(other) == place(arm))
                && other.settings == arm.settings
                && other.checksums == arm.checksums
                && other.values == arm.values
        };
        if let Some(other) = originals().take(index).find(is_alike) {
            return Err(Usage::error(
                format!("arms {:?} and {:?} are the same server", other.name, arm.name),
                "name another directory: a copy of a server's directory compares it with itself",
            ));
        }
    }
    Ok(())
}

/// The baseline's server, if its arm names one.
pub(super) fn baseline<'a>(
    experiment: &Experiment,
    servers: &'a BTreeMap<String, Installation>,
) -> Option<&'a Installation> {
    let arm = experiment.arms.iter().find(|arm| arm.name == experiment.baseline)?;
    servers.get(arm.postgres.as_ref()?)
}

/// The named servers in words; `None` where no arm names one.
pub(super) fn words(servers: &BTreeMap<String, Installation>) -> Option<String> {
    let words: Vec<String> = servers.values().map(super::server).collect();
    (!words.is_empty()).then(|| words.join("; "))
}
