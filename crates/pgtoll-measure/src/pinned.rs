//! Settings that servers get from one of them, so that code is compared with code.

use std::collections::BTreeMap;

use pgtoll_record::ArmBuild;

use crate::prepare::Arms;
use crate::run::Run;
use crate::{ArmSpec, BenchError, Experiment};

/// The settings that each server has as it is shipped, by arm.
pub(crate) type Shipped = BTreeMap<String, BTreeMap<String, String>>;

/// Gives every arm the values of `settings_of`, where the experiment has that, in settings that both
/// know and that the experiment does not set. Values that an arm's server refuses are noted.
pub(crate) fn pin_settings(
    builds: &mut [ArmBuild],
    shipped: &Shipped,
    arms: &Arms,
    run: &mut Run<'_>,
) -> Result<(), BenchError> {
    let experiment = &run.plan.experiment;
    let Some(source) = &experiment.settings_of else { return Ok(()) };
    let Some(given) = shipped.get(source) else { return Ok(()) };
    for build in builds.iter_mut().filter(|build| build.arm != *source) {
        let mut values = values_to_give(&build.arm, given, shipped, experiment);
        let cluster = arms.clusters(&build.arm, experiment).next();
        let mut refused = Vec::new();
        if let Some(cluster) = cluster {
            run.stage(&format!("give {} the settings of {source}", build.arm));
            for (name, value) in &values {
                if !cluster.is_accepted(run.guard, name, value)? {
                    refused.push(name.clone());
                }
            }
        }
        values.retain(|name, _| !refused.contains(name));
        let is_copy = |arm: &&ArmSpec| arm.twin_of.as_ref().unwrap_or(&arm.name) == &build.arm;
        for arm in experiment.arms.iter().filter(is_copy) {
            for cluster in arms.clusters(&arm.name, experiment) {
                cluster.append_settings(run.guard, &values)?;
            }
        }
        run.note(words(build, source, values.len(), &refused))?;
        build.pinned = values;
    }
    Ok(())
}

/// The source's values of settings in which the arm differs as shipped.
fn values_to_give(
    arm: &str,
    given: &BTreeMap<String, String>,
    shipped: &Shipped,
    experiment: &Experiment,
) -> BTreeMap<String, String> {
    let arms = experiment.arms.iter().filter(|one| one.name == arm).map(|one| &one.settings);
    let workloads = experiment.workloads.iter().map(|workload| &workload.settings);
    let set: Vec<&BTreeMap<String, String>> = arms.chain(workloads).collect();
    let Some(own) = shipped.get(arm) else { return BTreeMap::new() };
    let differs = |name: &String, value: &String| {
        own.get(name).is_some_and(|own| own != value)
            && !set.iter().any(|settings| settings.contains_key(name))
    };
    let differing = given.iter().filter(|(name, value)| differs(name, value));
    differing.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn words(build: &ArmBuild, source: &str, count: usize, refused: &[String]) -> String {
    let arm = &build.arm;
    let refused = match refused {
        [] => String::new(),
        names => format!("; it refuses {source}'s value of {}", names.join(", ")),
    };
    match count {
        0 => format!("{arm} needed none of {source}'s settings{refused}"),
        1 => format!("{arm} has {source}'s value of the one setting that differed{refused}"),
        _ => format!("{arm} has {source}'s values of the {count} settings that differed{refused}"),
    }
}
