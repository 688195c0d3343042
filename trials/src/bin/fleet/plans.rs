//! Fleets that `pgtoll fleet plan` lists and shares out. Their objects have lengths, and no content but
//! what describes them.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_record::FleetPlan;
use pgtoll_record::trials::{FleetBenchCase, FleetBenchPlan};
use pgtoll_testing::{MadeObject, ObjectServer};
use pgtoll_trials::{Measured, beside, measured};

use crate::score::UNIT_BYTES;

/// An object that has only a length.
#[derive(Debug)]
struct Hollow(u64);

impl MadeObject for Hollow {
    fn bytes(&self) -> u64 {
        self.0
    }

    fn write(&self, _range: Range<u64>, _to: &mut dyn Write) -> io::Result<()> {
        Err(io::Error::other("a plan reads no backup"))
    }
}

/// A backup of barman's with tars of these lengths.
fn put(server: &ObjectServer, cluster: usize, id: u32, tars: impl Iterator<Item = u64>) {
    let prefix = format!("backups/db{cluster:04}/base/20261126T{id:06}");
    server.put(&format!("{prefix}/backup.info"), b"version=180001\nstatus=DONE\n");
    for (number, bytes) in tars.enumerate() {
        let name =
            if number == 0 { "data.tar".to_owned() } else { format!("data_{number:04}.tar") };
        server.put_made(&format!("{prefix}/{name}"), Arc::new(Hollow(bytes)));
    }
}

/// This many objects, four a backup.
pub(crate) fn listing(objects: u32, delay: Duration) -> anyhow::Result<FleetBenchPlan> {
    let server = ObjectServer::start();
    for id in 0..objects / 4 {
        put(&server, usize::try_from(id % 100)?, id, std::iter::repeat_n(1 << 30, 3));
    }
    server.delay(delay);
    planned(FleetBenchCase::Listing, &server, delay, UNIT_BYTES, 20)
}

/// Half a petabyte of a thousand clusters, a backup each.
pub(crate) fn shares(unit_bytes: u64, shards: u32) -> anyhow::Result<FleetBenchPlan> {
    let server = ObjectServer::start();
    for (cluster, bytes) in cluster_bytes().into_iter().enumerate() {
        let whole = usize::try_from(bytes / ARCHIVE_BYTES)?;
        let rest = Some(bytes % ARCHIVE_BYTES).filter(|rest| *rest > 0);
        put(&server, cluster, 20_000, std::iter::repeat_n(ARCHIVE_BYTES, whole).chain(rest));
    }
    planned(FleetBenchCase::Shares, &server, Duration::ZERO, unit_bytes, shards)
}

/// Quantiles of a log-normal distribution (σ = 2), which together are half a petabyte: the largest has
/// a tenth of it.
fn cluster_bytes() -> Vec<u64> {
    let normal = |at: u32| {
        let place = (f64::from(at) + 0.5) / f64::from(CLUSTERS);
        let distance = pgtoll_stats::t_quantile((2.0 * place - 1.0).abs(), 1e9);
        if place < 0.5 { -distance } else { distance }
    };
    let sizes: Vec<f64> = (0..CLUSTERS).map(|at| (SIGMA * normal(at)).exp()).collect();
    let all: f64 = sizes.iter().sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    let bytes = sizes.iter().map(|size| (size / all * ALL_BYTES) as u64);
    bytes.collect()
}

const CLUSTERS: u32 = 1000;
const SIGMA: f64 = 2.0;
const ALL_BYTES: f64 = 5e14;
/// Where barman-cloud begins another tar.
const ARCHIVE_BYTES: u64 = 100_000_000_000;

fn planned(
    case: FleetBenchCase,
    server: &ObjectServer,
    delay: Duration,
    unit_bytes: u64,
    shards: u32,
) -> anyhow::Result<FleetBenchPlan> {
    let unit_size = format!("{unit_bytes}B");
    let count = shards.to_string();
    let arguments = ["fleet", "plan", "s3://backups", "--shards", &count, "--json"];
    let arguments = [&arguments[..], &["--unit-size", &unit_size]].concat();
    let Measured { usage, peak_kb, stdout } =
        measured(&beside("pgtoll")?, &arguments, &server.environment())?;
    let plan: FleetPlan = serde_json::from_slice(&stdout).context("read the plan")?;
    Ok(FleetBenchPlan {
        case,
        delay_ms: u64::try_from(delay.as_millis())?,
        objects: plan.objects,
        backups: plan.backups().len() as u64,
        bytes: plan.estimate.bytes,
        unit_bytes,
        units: plan.units.len() as u64,
        largest_unit_bytes: plan.units.iter().map(|unit| unit.bytes).max().unwrap_or_default(),
        shards,
        longest_shard_s: plan.estimate.longest_shard_seconds,
        even_shard_s: plan.estimate.core_hours * 3600.0 / f64::from(shards),
        wall_s: usage.wall_s,
        peak_kb,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_are_half_a_petabyte() {
        let sizes = cluster_bytes();
        let all: u64 = sizes.iter().sum();
        assert!((499_000_000_000_000..=500_000_000_000_000).contains(&all), "{all}");
        let largest = sizes.iter().max().unwrap();
        assert!((30_000_000_000_000..100_000_000_000_000).contains(largest), "{largest}");
    }
}
