//! Arms on servers of their own: the clusters that they are copied from, and how their builds differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;

use pgtoll_cluster::{Cluster, Installation, StopMode};
use pgtoll_format::ControlFile;
use pgtoll_record::{ArmBuild, ShippedValues};
use sha2::{Digest as _, Sha256};

use crate::names::{DATABASE, ORIGIN, ORIGINS};
use crate::pinned::{Shipped, pin_settings};
use crate::prepare::Arms;
use crate::run::Run;
use crate::shown::Shown;
use crate::{ArmSpec, BenchError, Site};

/// The clusters that arms are copied from: one for each format of data, since servers of one format
/// share byte-identical copies.
pub(crate) struct Origins<'a> {
    /// The baseline's first.
    clusters: Vec<Cluster>,
    /// Each arm's origin, by its place, and its server.
    arms: BTreeMap<String, (usize, &'a Installation)>,
}

impl<'a> Origins<'a> {
    /// Makes them with `initdb`, stopped.
    pub(crate) fn make(site: &Site<'a>, run: &mut Run<'_>) -> Result<Self, BenchError> {
        let experiment = &run.plan.experiment;
        let is_baseline = |arm: &&ArmSpec| arm.name == experiment.baseline;
        let baseline = experiment.arms.iter().filter(is_baseline);
        let others = experiment.arms.iter().filter(|arm| !is_baseline(arm));
        let mut origins = Self { clusters: Vec::new(), arms: BTreeMap::new() };
        for arm in baseline.chain(others) {
            let server = site.server(arm);
            let place = match origins.arms.values().find(|(_, other)| *other == server) {
                Some((place, _)) => *place,
                None => origins.place(server, run)?,
            };
            origins.arms.insert(arm.name.clone(), (place, server));
        }
        Ok(origins)
    }

    /// The place of a cluster with the server's format of data, which is made if there is none.
    fn place(&mut self, server: &Installation, run: &mut Run<'_>) -> Result<usize, BenchError> {
        if run.plan.experiment.has_servers() {
            run.stage(&format!("initdb of PostgreSQL {}", server.version));
        } else {
            run.stage("initdb");
        }
        let made = self.clusters.len();
        let name = if made == 0 { ORIGIN.to_owned() } else { format!("{ORIGINS}{made}") };
        let cluster = Cluster::init(run.guard, server, &name, false)?;
        let format = data_format(&cluster)?;
        for (place, other) in self.clusters.iter().enumerate() {
            if data_format(other)? == format {
                cluster.remove(run.guard)?;
                return Ok(place);
            }
        }
        self.clusters.push(cluster);
        Ok(made)
    }

    /// The one that the baseline is copied from.
    pub(crate) fn baseline(&self) -> &Cluster {
        &self.clusters[0]
    }

    pub(crate) fn all(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The one that an arm is copied from.
    pub(crate) fn origin(&self, arm: &str) -> &Cluster {
        &self.clusters[self.arms.get(arm).map_or(0, |(place, _)| *place)]
    }

    /// Copies an arm's origin, for the arm's server.
    pub(crate) fn copy(
        &self,
        arm: &str,
        name: &str,
        run: &mut Run<'_>,
    ) -> Result<Cluster, BenchError> {
        let origin = self.origin(arm);
        let server = self.arms.get(arm).filter(|_| run.plan.experiment.has_servers());
        let Some((_, server)) = server else { return Ok(origin.copy(run.guard, name)?) };
        // Arms that run one file share its pages in the processor's caches, also while they take
        // turns: a twin beside its original would be faster than an equal build in a file of its own.
        let own = server.with_own_program(run.guard, name)?;
        Ok(origin.copy_for(run.guard, name, &own)?)
    }

    /// An error when clusters that were loaded apart do not hold the same rows.
    pub(crate) fn check_contents(&self, run: &mut Run<'_>) -> Result<(), BenchError> {
        let [first, others @ ..] = self.clusters.as_slice() else { return Ok(()) };
        if others.is_empty() {
            return Ok(());
        }
        run.stage("compare the rows of the servers' tables");
        let expected = contents(first, run)?;
        for cluster in others {
            let found = contents(cluster, run)?;
            let tables: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            let differing =
                tables.into_iter().find(|table| found.get(*table) != expected.get(*table));
            if let Some(table) = differing {
                return Err(BenchError::ContentsDiffer {
                    table: table.clone(),
                    version: cluster.version().to_string(),
                    baseline: first.version().to_string(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn remove(self, run: &mut Run<'_>) -> Result<(), BenchError> {
        for cluster in self.clusters {
            cluster.remove(run.guard)?;
        }
        Ok(())
    }
}

/// The facts of a data directory that a server has to agree with to start on it, as `pg_control` has
/// them.
fn data_format(cluster: &Cluster) -> Result<[u32; 8], BenchError> {
    let path = cluster.data().join("global/pg_control");
    let read = pgtoll_system::read(&path, 1 << 16).and_then(|bytes| {
        ControlFile::read(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    let control = read.map_err(|source| BenchError::Read { path, source })?;
    Ok([
        control.control_version,
        control.catalog_version,
        control.alignment_max,
        control.block_bytes,
        control.file_blocks,
        control.wal_block_bytes,
        control.wal_segment_bytes,
        control.name_bytes,
    ])
}

/// The number of rows of each table of the users' schemas, with a sum over them that does not depend
/// on their order.
fn contents(cluster: &Cluster, run: &mut Run<'_>) -> Result<BTreeMap<String, String>, BenchError> {
    const TABLES: &str = "SELECT format('%I.%I', nspname, relname) AS name \
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
        WHERE relkind = 'r' AND relpersistence <> 't' \
        AND nspname NOT IN ('pg_catalog', 'information_schema')";
    cluster.start(run.guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    let query = |source| BenchError::query(cluster, source);
    let mut found = BTreeMap::new();
    for row in connection.query(TABLES).map_err(query)? {
        let table = row.text("name").map_err(query)?.to_owned();
        let sql = format!(
            "SELECT count(*) || ' rows, ' || \
             coalesce(sum(('x' || left(md5(t::text), 15))::bit(60)::bigint), 0) AS content \
             FROM {table} AS t"
        );
        let row = connection.query_one(&sql).map_err(query)?;
        found.insert(table, row.text("content").map_err(query)?.to_owned());
    }
    connection.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok(found)
}

/// Reads the programs of servers that are compared from the disk again, all in the same way, before
/// they start. Where a file's pages lie in memory, and in pieces of which size, is luck that lasts as
/// long as they stay there: two copies of one build, one just written and one read page by page as it
/// ran, differed by 4 % in server CPU. Drawn again for each start, it is in the spread between rounds.
pub(crate) fn programs_read_again(clusters: &[Cluster], run: &Run<'_>) -> Result<(), BenchError> {
    if run.plan.experiment.has_servers() {
        for cluster in clusters {
            cluster.read_program_again()?;
        }
    }
    Ok(())
}

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
        postgres_sha256: hexadecimal(&Sha256::digest(&bytes)),
        differing: BTreeMap::new(),
        pinned: BTreeMap::new(),
    };
    connection.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok((build, shown))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
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
            count => parts.push(format!("only {server} has {count} more")),
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
    Some(format!("not compiled alike, which is part of the difference: {difference}"))
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
