//! The builds of compared servers: what was compiled, and how the settings that they ship differ.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_format::hex;
use pgtoll_record::{ArmBuild, ShippedValues};
use sha2::{Digest as _, Sha256};

use crate::names::DATABASE;
use crate::pinned::{Shipped, pin_settings};
use crate::prepare::Arms;
use crate::run::Run;
use crate::shown::Shown;
use crate::{ArmSpec, BenchError};

/// The builds of the arms' servers, where arms have servers of their own, and the settings in which
/// they differ from the baseline's as shipped, which are noted too.
pub(crate) fn builds(arms: &Arms, run: &mut Run<'_>) -> Result<Vec<ArmBuild>, BenchError> {
    let experiment = &run.plan.experiment;
    if !experiment.has_servers() {
        return Ok(Vec::new());
    }
    run.stage("ask the servers for their builds");
    let mut found = Vec::new();
    for (arm, cluster) in experiment.arms.iter().zip(arms.any()) {
        if arm.twin_of.is_none() {
            found.push(build(arm, cluster, run)?);
        }
    }
    let shipped: Shipped =
        found.iter().map(|(build, shown)| (build.arm.clone(), shown.shipped())).collect();
    let Some(baseline) = shipped.get(&experiment.baseline) else { return Ok(Vec::new()) };
    let mut builds: Vec<ArmBuild> = found.into_iter().map(|(build, _)| build).collect();
    let compiled = builds.iter().find(|build| build.arm == experiment.baseline).cloned();
    for build in builds.iter_mut().filter(|build| build.arm != experiment.baseline) {
        build.differing = differing(baseline, &shipped[&build.arm]);
        run.note(differing_words(build, &experiment.baseline))?;
        if let Some(words) = compiled.as_ref().and_then(|compiled| compiler_words(build, compiled))
        {
            run.note(words)?;
        }
    }
    pin_settings(&mut builds, &shipped, arms, run)?;
    Ok(builds)
}

fn build(
    arm: &ArmSpec,
    cluster: &Cluster,
    run: &mut Run<'_>,
) -> Result<(ArmBuild, Shown), BenchError> {
    const CONFIGURATION: &str = "SELECT version() AS version, \
        coalesce((SELECT setting FROM pg_config WHERE name = 'CONFIGURE'), '') AS configure, \
        coalesce((SELECT setting FROM pg_config WHERE name = 'CFLAGS'), '') AS cflags";
    let program = cluster.client("postgres")?;
    let bytes = pgtoll_system::read(&program, 1 << 30)
        .map_err(|source| BenchError::Read { path: program, source })?;
    cluster.configure(run.guard, &run.plan.experiment.settings)?;
    cluster.start(run.guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    let shown = Shown::by(arm, cluster, &mut connection)?;
    let query = |source| BenchError::query(cluster, source);
    let row = connection.query_one(CONFIGURATION).map_err(query)?;
    let text = |name| row.text(name).map(str::to_owned).map_err(query);
    let known = |text: String| Some(text).filter(|text| !text.is_empty());
    let build = ArmBuild {
        arm: arm.name.clone(),
        version_text: text("version")?,
        configure: known(text("configure")?),
        cflags: known(text("cflags")?),
        postgres_bytes: bytes.len() as u64,
        postgres_sha256: hex(&Sha256::digest(&bytes)),
        differing: BTreeMap::new(),
        pinned: BTreeMap::new(),
    };
    connection.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok((build, shown))
}

/// Settings that differ, by name.
fn differing(
    baseline: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, ShippedValues> {
    let names: BTreeSet<&String> = baseline.keys().chain(own.keys()).collect();
    let pairs = names.into_iter().map(|name| (name, baseline.get(name), own.get(name)));
    let differing = pairs.filter(|(_, baseline, own)| baseline != own);
    differing
        .map(|(name, baseline, own)| {
            let values = ShippedValues { baseline: baseline.cloned(), arm: own.cloned() };
            (name.clone(), values)
        })
        .collect()
}

/// Settings that are named: more are counted.
const NAMED: usize = 12;
/// The same of settings that one server alone has.
const NAMED_OF_ONE: usize = 3;

fn differing_words(build: &ArmBuild, baseline: &str) -> String {
    let arm = &build.arm;
    let both = build.differing.iter().filter_map(|(name, values)| {
        let own = shown(values.arm.as_ref()?);
        Some(format!("{name} {own} (not {})", shown(values.baseline.as_ref()?)))
    });
    let both: Vec<String> = both.collect();
    let only = |lacks: fn(&ShippedValues) -> bool| -> Vec<&str> {
        let found = build.differing.iter().filter(|(_, values)| lacks(values));
        found.map(|(name, _)| name.as_str()).collect()
    };
    let new = only(|values| values.baseline.is_none());
    let gone = only(|values| values.arm.is_none());
    let mut parts = Vec::new();
    if !both.is_empty() {
        let rest = both.len().saturating_sub(NAMED);
        let named = both[..both.len() - rest].join(", ");
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        parts.push(format!("{named}{rest}"));
    }
    for (server, names) in [(arm.as_str(), new), (baseline, gone)] {
        match names.len() {
            0 => {}
            1..=NAMED_OF_ONE => parts.push(format!("only {server} has {}", names.join(", "))),
            count => parts.push(format!("{count} settings that only {server} has")),
        }
    }
    if parts.is_empty() {
        return format!("{arm} and {baseline} have the same settings as shipped");
    }
    format!("as shipped {arm} has other settings than {baseline}: {}", parts.join("; "))
}

/// That two builds were not compiled alike, which has a price of its own.
fn compiler_words(build: &ArmBuild, baseline: &ArmBuild) -> Option<String> {
    let compiler = |build: &ArmBuild| {
        let (_, compiler) = build.version_text.split_once("compiled by ")?;
        Some(compiler.trim_end_matches(", 64-bit").to_owned())
    };
    let (own, other) = (compiler(build)?, compiler(baseline)?);
    let difference = if own != other {
        format!("{} by {own}, {} by {other}", build.arm, baseline.arm)
    } else if build.cflags != baseline.cflags {
        format!("{} and {} with other CFLAGS, which the record has", build.arm, baseline.arm)
    } else {
        return None;
    };
    Some(format!("not compiled alike, which may be part of the difference: {difference}"))
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "''" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_named_and_those_of_one_server_counted() {
        let settings = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let old =
            settings(&[("jit", "on"), ("old_snapshot_threshold", "-1"), ("work_mem", "4096")]);
        let new = settings(&[("io_method", "worker"), ("jit", "off"), ("work_mem", "4096")]);
        let build = ArmBuild {
            arm: "18".into(),
            version_text: String::new(),
            configure: None,
            cflags: None,
            postgres_bytes: 0,
            postgres_sha256: String::new(),
            differing: differing(&old, &new),
            pinned: BTreeMap::new(),
        };
        assert_eq!(
            differing_words(&build, "16"),
            "as shipped 18 has other settings than 16: jit off (not on); only 18 has io_method; only 16 \
             has old_snapshot_threshold"
        );
        let alike = ArmBuild { differing: differing(&old, &old), ..build };
        assert_eq!(differing_words(&alike, "16"), "18 and 16 have the same settings as shipped");
    }
}
