//! One load, a clean stop, a copy for each arm, and in each copy the one change.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_cluster::{Cluster, StopMode};

use crate::names::{CROSSED, DATABASE, EMPTY, PGBENCH};
use crate::run::Run;
use crate::servers::Origins;
use crate::{ArmSpec, BenchError, Experiment, WorkloadSpec};

/// The arms' clusters, in the order of the experiment. Their servers are stopped.
pub(crate) struct Arms {
    /// With pgbench's tables, when there is a workload that works on them; one for all arms in a
    /// crossover.
    pub(crate) loaded: Vec<Cluster>,
    /// Without data, to be copied, when there is a workload of steps.
    pub(crate) empty: Vec<Cluster>,
}

impl Arms {
    /// A cluster of each arm.
    pub(crate) fn any(&self) -> &[Cluster] {
        if self.loaded.is_empty() { &self.empty } else { &self.loaded }
    }

    /// The clusters of an arm, which is not crossed with others.
    pub(crate) fn clusters(
        &self,
        arm: &str,
        experiment: &Experiment,
    ) -> impl Iterator<Item = &Cluster> {
        let place = experiment.arms.iter().position(|one| one.name == arm);
        let lists = [&self.loaded, &self.empty];
        lists.into_iter().filter_map(move |clusters| clusters.get(place?))
    }
}

/// Makes the arms' clusters, and removes those that they are copies of.
pub(crate) fn prepare(origins: Origins<'_>, run: &mut Run<'_>) -> Result<Arms, BenchError> {
    let experiment = &run.plan.experiment;
    let mut empty = Vec::new();
    if experiment.workloads.iter().any(|work| !work.steps.is_empty() && !work.loaded) {
        empty = copies(&origins, &|arm| format!("{EMPTY}-{}", arm.name), run)?;
        check_files(experiment, &origins, &empty)?;
    }
    let mut loaded = Vec::new();
    if experiment.on_loaded().next().is_some() {
        for origin in origins.all() {
            load(origin, run)?;
        }
        origins.check_contents(run)?;
        run.plan.check_loaded(run.guard.directory(), origins.baseline().bytes()?)?;
        if experiment.crossover {
            loaded.push(origins.baseline().copy(run.guard, CROSSED)?);
        } else {
            loaded = copies(&origins, &|arm| arm.name.clone(), run)?;
            run.stage("compare the arms' files");
            check_files(experiment, &origins, &loaded)?;
        }
    }
    origins.remove(run)?;
    Ok(Arms { loaded, empty })
}

/// The arms' files are those of the origin: byte for byte, but for the checksums in the pages.
fn check_files(
    experiment: &Experiment,
    origins: &Origins<'_>,
    clusters: &[Cluster],
) -> Result<(), BenchError> {
    for (arm, cluster) in experiment.arms.iter().zip(clusters) {
        let origin = origins.origin(&arm.name);
        if let Some(difference) = cluster.differing_file(origin, arm.checksums)? {
            return Err(BenchError::FilesDiffer { arm: arm.name.clone(), difference });
        }
    }
    Ok(())
}

/// Every arm is a copy, so none is the one that was loaded.
fn copies(
    origins: &Origins<'_>,
    name: &dyn Fn(&ArmSpec) -> String,
    run: &mut Run<'_>,
) -> Result<Vec<Cluster>, BenchError> {
    let mut clusters = Vec::new();
    for arm in &run.plan.experiment.arms {
        let name = name(arm);
        run.stage(&format!("copy for arm {name}"));
        let cluster = origins.copy(&arm.name, &name, run)?;
        if arm.checksums {
            run.stage(&format!("pg_checksums --enable in arm {name}"));
            cluster.enable_checksums(run.guard)?;
        }
        clusters.push(cluster);
    }
    Ok(clusters)
}

/// Fills the origin, and stops it.
fn load(origin: &Cluster, run: &mut Run<'_>) -> Result<(), BenchError> {
    let experiment = &run.plan.experiment;
    // Nothing is measured here: with wal_level minimal pgbench's tables are not logged, which
    // saves half of the time and the WAL segments that every copy would carry.
    let settings = [
        ("wal_level", "minimal"),
        ("max_wal_senders", "0"),
        ("autovacuum", "off"),
        ("maintenance_work_mem", "256MB"),
        ("max_wal_size", "256MB"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    origin.configure(run.guard, &settings.into())?;
    origin.start(run.guard)?;
    fill_pgbench_tables(origin, run)?;
    if let Some(setup) = &experiment.setup {
        run.stage("psql runs the setup");
        origin.run_psql(run.guard, DATABASE, setup)?;
    }
    run.stage("VACUUM (FREEZE), CHECKPOINT");
    let mut connection = origin.connect(DATABASE)?;
    // Hint bits are set and rows frozen: no arm has that work in its slices.
    for statement in ["VACUUM (FREEZE, ANALYZE)", "CHECKPOINT"] {
        connection.execute(statement).map_err(|source| BenchError::query(origin, source))?;
    }
    connection.close();
    origin.stop(run.guard, StopMode::Fast)?;
    Ok(())
}

/// Fills pgbench's tables with pgbench; where the server came without it, with the same statements.
fn fill_pgbench_tables(origin: &Cluster, run: &mut Run<'_>) -> Result<(), BenchError> {
    let scale = run.plan.experiment.scale;
    run.stage(&format!("pgbench --initialize --scale {scale}"));
    if origin.client(PGBENCH).is_ok() {
        let arguments = ["--initialize", "--quiet", "--scale", &scale.to_string(), DATABASE];
        origin.run_client(run.guard, PGBENCH, &arguments)?;
        return Ok(());
    }
    let mut connection = origin.connect(DATABASE)?;
    let query = |source| BenchError::query(origin, source);
    connection.execute(&pgbench_tables(scale)).map_err(query)?;
    connection.execute("VACUUM ANALYZE").map_err(query)?;
    connection.close();
    Ok(())
}

/// Returns the tables that `pgbench --initialize` makes, rows and keys included, as its documentation describes it; one
/// transaction.
fn pgbench_tables(scale: u32) -> String {
    let tellers = u64::from(scale) * 10;
    let accounts = u64::from(scale) * 100_000;
    // From this scale on there are more accounts than an int can count.
    let aid = if scale >= 20_000 { "bigint" } else { "int" };
    format!(
        "CREATE TABLE pgbench_history (tid int, bid int, aid {aid}, delta int, mtime timestamp, \
         filler char(22));
         CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84)) \
         WITH (fillfactor = 100);
         CREATE TABLE pgbench_accounts (aid {aid} NOT NULL, bid int, abalance int, filler char(84)) \
         WITH (fillfactor = 100);
         CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88)) \
         WITH (fillfactor = 100);
         INSERT INTO pgbench_branches (bid, bbalance) SELECT bid, 0 FROM generate_series(1, {scale}) AS bid;
         INSERT INTO pgbench_tellers (tid, bid, tbalance) \
         SELECT tid, (tid - 1) / 10 + 1, 0 FROM generate_series(1, {tellers}) AS tid;
         INSERT INTO pgbench_accounts (aid, bid, abalance, filler) \
         SELECT aid, (aid - 1) / 100000 + 1, 0, '' FROM generate_series(1, {accounts}) AS aid;
         ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid);
         ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid);
         ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)"
    )
}

/// The arm's settings: the experiment's, the workload's, its own.
pub(crate) fn settings(
    experiment: &Experiment,
    workload: &WorkloadSpec,
    arm: &ArmSpec,
) -> BTreeMap<String, String> {
    let layers = [&experiment.settings, &workload.settings, &arm.settings];
    layers.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// In a crossover the settings in which arms differ can be changed in a running session.
pub(crate) fn check_reloadable(arms: &Arms, run: &mut Run<'_>) -> Result<(), BenchError> {
    let crossed = arms.loaded.first().filter(|_| run.plan.design.crossover);
    let Some(cluster) = crossed else { return Ok(()) };
    let arms = &run.plan.experiment.arms;
    let names: BTreeSet<&String> = arms.iter().flat_map(|arm| arm.settings.keys()).collect();
    cluster.start(run.guard)?;
    let mut connection = cluster.connect(DATABASE)?;
    let query = |source| BenchError::query(cluster, source);
    for name in names {
        let sql = format!("SELECT context FROM pg_settings WHERE name = '{name}'");
        let rows = connection.query(&sql).map_err(query)?;
        let context = rows.first().and_then(|row| row.values().first().cloned().flatten());
        let context = context.unwrap_or_else(|| "unknown".to_owned());
        if !["sighup", "superuser", "user"].contains(&context.as_str()) {
            return Err(BenchError::NotReloadable { name: name.clone(), context });
        }
    }
    connection.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok(())
}
