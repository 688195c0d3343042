//! The usual design: stock `pgbench`, a few runs of the one cluster, then a few of the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_record::trials::DesignSequential;

use crate::estimate::ratio_by_welch;
use crate::site::{DATABASE, Site};
use crate::tps;

/// Runs of each cluster.
pub(crate) const RUNS: u32 = 3;
/// The longest run that warms up and is not counted.
const WARM_UP: Duration = Duration::from_secs(2);

/// Runs of `run_seconds` each.
pub(crate) fn measure(
    site: &Site,
    run_seconds: u64,
    trial_seed: u64,
) -> anyhow::Result<DesignSequential> {
    let mut guard = Guard::begin(&site.guard, &site.interrupt)?;
    let clusters = load(site, &mut guard)?;
    let mut neighbours = site.neighbours(trial_seed)?;
    let mut wall = Duration::ZERO;
    let mut rates = Vec::new();
    for (index, cluster) in clusters.iter().enumerate() {
        cluster.start(&mut guard)?;
        pgbench(cluster, run_seconds.min(WARM_UP.as_secs()), &mut guard)?;
        if index == 0 {
            neighbours.go()?;
        }
        let began = Instant::now();
        let runs = (0..RUNS).map(|_| pgbench(cluster, run_seconds, &mut guard));
        rates.push(runs.collect::<anyhow::Result<Vec<f64>>>()?);
        wall += began.elapsed();
        cluster.stop(&mut guard, StopMode::Fast)?;
    }
    let neighbours = neighbours.stop()?;
    guard.finish()?;
    let [tps_a, tps_b] = <[Vec<f64>; 2]>::try_from(rates).unwrap_or_default();
    let tps = ratio_by_welch(&tps_a, &tps_b).context("estimate the ratio of the runs' rates")?;
    Ok(DesignSequential { wall_seconds: wall.as_secs_f64(), tps_a, tps_b, tps, neighbours })
}

/// Two copies of one cluster with pgbench's tables, their servers stopped.
fn load(site: &Site, guard: &mut Guard) -> anyhow::Result<[Cluster; 2]> {
    let origin = Cluster::init(guard, &site.installation, "origin", false)?;
    origin.configure(guard, &settings(site))?;
    origin.start(guard)?;
    let scale = site.experiment.scale.to_string();
    let arguments = ["--initialize", "--quiet", "--scale", &scale, DATABASE];
    origin.run_client(guard, "pgbench", &arguments)?;
    let mut connection = origin.connect(DATABASE)?;
    for statement in ["VACUUM (FREEZE, ANALYZE)", "CHECKPOINT"] {
        connection.execute(statement).context("prepare the tables")?;
    }
    connection.close();
    origin.stop(guard, StopMode::Fast)?;
    let copies = [origin.copy(guard, "a")?, origin.copy(guard, "b")?];
    origin.remove(guard)?;
    Ok(copies)
}

/// Those that the sliced design has.
fn settings(site: &Site) -> BTreeMap<String, String> {
    let workloads = site.experiment.workloads.iter().map(|workload| &workload.settings);
    let layers = std::iter::once(&site.experiment.settings).chain(workloads);
    layers.flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A run's transactions per second.
fn pgbench(cluster: &Cluster, seconds: u64, guard: &mut Guard) -> anyhow::Result<f64> {
    let seconds = seconds.to_string();
    let arguments = ["-n", "-S", "-M", "prepared", "-c", "1", "-T", &seconds, DATABASE];
    let output = cluster.run_client(guard, "pgbench", &arguments)?;
    let Some(rate) = tps::without_connecting(&output) else {
        bail!("pgbench did not report its rate: {}", output.trim_end());
    };
    Ok(rate)
}
