//! Exact counters: what the server counts over a fixed amount of work.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_format::{Lsn, MajorFacts};
use pgtoll_observe::{ClusterIo, IoSample, ServerCounters};
use pgtoll_record::{Counted, Counters, Line, Predicted, WalAmount};
use pgtoll_wal::{End, WalReadError, WalStatistics, scan_range_with, segments};
use pgtoll_wire::Connection;
use pgtoll_workload::{Client, Mix, Script};

use crate::names::{COUNTED, DATABASE};
use crate::predicting::{of_stretch, predictions};
use crate::prepare::settings;
use crate::readings::io_bytes;
use crate::run::Run;
use crate::shown::{Shown, check_shown};
use crate::{ArmSpec, BenchError, WorkloadSpec};

/// Counts every workload of a script that says how many transactions, arm after arm: one client,
/// the run's seed, a server that was just started, a checkpoint before and after. A script that
/// writes does so on copies, so that what is timed later finds the data as they were loaded.
pub(crate) fn count_all(clusters: &[Cluster], run: &mut Run<'_>) -> Result<(), BenchError> {
    let experiment = &run.plan.experiment;
    for (workload, mix) in experiment.scripts().filter(|(workload, _)| workload.counted > 0) {
        let counted = match clusters.first() {
            Some(cluster) if !mix.is_built_in() => affordable(workload, mix, cluster, run)?,
            _ => workload.counted,
        };
        let workload = &WorkloadSpec { counted, ..workload.clone() };
        run.stage(&format!("count {} over {counted} transactions", workload.name));
        let mut all_shown = Vec::new();
        // Of a crossover there is one cluster, which is every arm in turn.
        for (arm, cluster) in experiment.arms.iter().zip(clusters.iter().cycle()) {
            run.interrupt.check()?;
            all_shown.push(count_arm(arm, workload, mix, cluster, run)?);
        }
        check_shown(experiment, &all_shown)?;
        run.recorder.sync()?;
    }
    Ok(())
}

/// Counts an arm and records it. What its server has shown.
fn count_arm(
    arm: &ArmSpec,
    workload: &WorkloadSpec,
    mix: &Mix,
    cluster: &Cluster,
    run: &mut Run<'_>,
) -> Result<Shown, BenchError> {
    let copy = mix.writes().then(|| cluster.copy(run.guard, COUNTED)).transpose()?;
    let counted_on = copy.as_ref().unwrap_or(cluster);
    counted_on.configure(run.guard, &settings(&run.plan.experiment, workload, arm))?;
    let CountedArm { counters, shown, predicted } = count(arm, workload, mix, counted_on, run)?;
    run.write(&Line::Counted(Counted {
        workload: workload.name.clone(),
        arm: arm.name.clone(),
        transactions: workload.counted,
        counters,
    }))?;
    write_predicted(&workload.name, predicted, run)?;
    if let Some(copy) = copy {
        copy.remove(run.guard)?;
    }
    Ok(shown)
}

/// A prediction that fails says nothing against what was counted.
fn write_predicted(
    workload: &str,
    predicted: Result<Vec<Predicted>, WalReadError>,
    run: &mut Run<'_>,
) -> Result<(), BenchError> {
    match predicted {
        Ok(all) => all.into_iter().try_for_each(|arm| run.write(&Line::Predicted(arm))),
        Err(error) => {
            run.note(format!("{workload}: the arms' WAL could not be predicted: {error}"))
        }
    }
}

/// The longest time that an arm is counted with scripts of unknown speed.
const COUNTED_AT_MOST: Duration = Duration::from_secs(5);

/// How many transactions of a user's scripts fit into that time; tried on a copy.
fn affordable(
    workload: &WorkloadSpec,
    mix: &Mix,
    cluster: &Cluster,
    run: &mut Run<'_>,
) -> Result<u64, BenchError> {
    let load = |source| BenchError::load(cluster, source);
    let plan = run.plan;
    let experiment = &run.plan.experiment;
    let copy = cluster.copy(run.guard, COUNTED)?;
    copy.configure(run.guard, &settings(experiment, workload, &experiment.arms[0]))?;
    copy.start(run.guard)?;
    let mut client = Client::new(copy.connect(DATABASE)?, mix, experiment.scale).map_err(load)?;
    client.reseed(plan.seed);
    client.run_count(1).map_err(load)?;
    let tally = client.run_for(COUNTED_AT_MOST / 10).map_err(load)?;
    client.close();
    copy.stop(run.guard, StopMode::Immediate)?;
    copy.remove(run.guard)?;
    let times = COUNTED_AT_MOST.as_nanos() / tally.elapsed.as_nanos().max(1);
    let fitting = u64::try_from(times).unwrap_or(u64::MAX).saturating_mul(tally.transactions);
    Ok(workload.counted.min(fitting.max(1)))
}

/// The counts of an arm over its transactions.
struct CountedArm {
    counters: Counters,
    shown: Shown,
    /// For the baseline: predictions of the other arms' WAL.
    predicted: Result<Vec<Predicted>, WalReadError>,
}

fn count(
    arm: &ArmSpec,
    workload: &WorkloadSpec,
    mix: &Mix,
    cluster: &Cluster,
    run: &mut Run<'_>,
) -> Result<CountedArm, BenchError> {
    let plan = run.plan;
    let facts = cluster.facts()?;
    let load = |source| BenchError::load(cluster, source);
    let postmaster = cluster.start(run.guard)?;
    let mut io = ClusterIo::attach(postmaster)?;
    let mut monitor = cluster.connect(DATABASE)?;
    let shown = Shown::by(arm, cluster, &mut monitor)?;
    let session = |mix: &Mix| -> Result<Client, BenchError> {
        let connection = cluster.connect(DATABASE)?;
        let mut client = Client::new(connection, mix, plan.experiment.scale).map_err(load)?;
        client.reseed(plan.seed);
        Ok(client)
    };
    // What fits into shared buffers is there before anything is counted.
    if let Some(mix) = warm_up(mix) {
        let mut client = session(&mix)?;
        client.run_count(workload.counted).map_err(load)?;
        client.close();
    }
    let mut client = session(mix)?;
    let query = |source| BenchError::query(cluster, source);
    if mix.writes() {
        // Checkpoints come at segments' ends: so they come at the same places in all arms.
        monitor.execute("SELECT pg_switch_wal()").map_err(query)?;
    }
    monitor.execute("CHECKPOINT").map_err(query)?;
    let counting = Counting::begin(cluster, facts, &mut monitor, client.connection(), &mut io)?;
    client.run_count(workload.counted).map_err(load)?;
    // Before the checkpoint that ends the counting removes the WAL.
    let predicted = if arm.name == plan.experiment.baseline && mix.writes() {
        predictions(&plan.experiment, workload, facts, cluster, counting.before.wal_insert)
    } else {
        Ok(Vec::new())
    };
    let counters = counting.end(&mut monitor, client.connection(), &mut io)?;
    client.close();
    monitor.close();
    cluster.stop(run.guard, StopMode::Fast)?;
    Ok(CountedArm { counters, shown, predicted })
}

/// Returns a read-only load on the pages that `mix` will need: itself, or, since pgbench's scripts
/// all ask for the same accounts with the same seed, the one of them that only reads. `None` for
/// scripts of a user that write.
fn warm_up(mix: &Mix) -> Option<Mix> {
    if !mix.writes() {
        return Some(mix.clone());
    }
    Script::built_in("select-only").filter(|_| mix.is_built_in()).map(Mix::from)
}

/// Counters around some work that one session does.
pub(crate) struct Counting<'a> {
    cluster: &'a Cluster,
    facts: &'static MajorFacts,
    before: ServerCounters,
    io_before: Option<IoSample>,
}

impl<'a> Counting<'a> {
    pub(crate) fn begin(
        cluster: &'a Cluster,
        facts: &'static MajorFacts,
        monitor: &mut Connection,
        worker: &mut Connection,
        io: &mut ClusterIo,
    ) -> Result<Self, BenchError> {
        ServerCounters::publish(worker, facts)?;
        let before = ServerCounters::read(monitor, facts, DATABASE)?;
        Ok(Self { cluster, facts, before, io_before: io.sample()? })
    }

    /// Returns the counts since the start. Ends with a checkpoint, so that every block that the work changed
    /// is written.
    pub(crate) fn end(
        self,
        monitor: &mut Connection,
        worker: &mut Connection,
        io: &mut ClusterIo,
    ) -> Result<Counters, BenchError> {
        let Self { cluster, facts, before, io_before } = self;
        ServerCounters::publish(worker, facts)?;
        let after = ServerCounters::read(monitor, facts, DATABASE)?;
        // The commit of a transaction that wrote WAL flushes all before it; the checkpoint below
        // removes the WAL's files.
        let query = |source| BenchError::query(cluster, source);
        monitor.execute("SET synchronous_commit = on").map_err(query)?;
        monitor.execute("SELECT pg_logical_emit_message(true, 'pgtoll', '')").map_err(query)?;
        let wal = counted_wal(cluster, before.wal_insert, after.wal_insert)?;
        // The checkpointer publishes its counters when it turns to the next checkpoint.
        for _ in 0..2 {
            monitor.execute("CHECKPOINT").map_err(query)?;
        }
        let written = ServerCounters::read(monitor, facts, DATABASE)?.blocks_written;
        let io = io_bytes(io_before, io.sample()?);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let both = |now: Option<u64>, then: Option<u64>| Some(since(now?, then?));
        Ok(Counters {
            wal_bytes: after.wal_insert.bytes_since(before.wal_insert).unwrap_or(0),
            wal_records: both(after.wal_records, before.wal_records),
            wal_images: both(after.wal_full_page_images, before.wal_full_page_images)
                .or(Some(wal.images)),
            wal_by_type: wal.by_type,
            blocks_read: both(after.blocks_read, before.blocks_read),
            blocks_written: both(written, before.blocks_written),
            io,
        })
    }
}

/// Records and images of a stretch of WAL.
#[derive(Default)]
struct CountedWal {
    /// As `pg_waldump --stats=record` counts it.
    by_type: BTreeMap<String, WalAmount>,
    images: u64,
}

/// The WAL between two positions, all of which was flushed.
fn counted_wal(cluster: &Cluster, from: Lsn, to: Lsn) -> Result<CountedWal, BenchError> {
    if from == to {
        return Ok(CountedWal::default());
    }
    let unread = |source| BenchError::Wal { arm: cluster.name().to_owned(), source };
    let files = segments(&[cluster.data()]).map_err(unread)?;
    let files = of_stretch(files, from).map_err(unread)?;
    let watch = &mut |_| ControlFlow::Continue(());
    let (summary, end) =
        scan_range_with(&files, &(from..to), 1, WalStatistics::default, watch).map_err(unread)?;
    if !summary.gaps.is_empty() || !matches!(end, End::RangeEnd(_)) {
        return Err(BenchError::WalIncomplete { arm: cluster.name().to_owned(), from, to });
    }
    let types = summary.collected.types();
    let by_type = types.map(|(kind, amount)| (kind.name(summary.major), amount)).collect();
    let images = summary.collected.causes().map(|(_, images)| images.images).sum();
    Ok(CountedWal { by_type, images })
}
