//! Arms on servers of their own: the clusters that they are copied from.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use pgtoll_cluster::{Cluster, Installation, StopMode};
use pgtoll_format::ControlFile;

use crate::names::{DATABASE, ORIGIN, ORIGINS};
use crate::run::Run;
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
