//! A slice: the load for a while, alone or with `pgtoll predict` or `pgtoll checkup` beside it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use pgtoll_checkup::{CheckupPlan, checkup};
use pgtoll_cluster::Cluster;
use pgtoll_predict::{WatchPlan, watch};
use pgtoll_record::Provenance;
use pgtoll_record::trials::BenchLoad;
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Dsn};
use pgtoll_workload::{BUILT_IN, Crowd, Mix, Script, Until};

pub(crate) const DATABASE: &str = "postgres";
const SCRIPT: &str = "tpcb-like";

/// Work beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    Alone,
    Watched,
    Gentle,
    Checkup,
}

impl Arm {
    /// With `--gentle` and `--checkup`, or without.
    pub(crate) fn all(gentle: bool, checkup: bool) -> &'static [Self] {
        match (gentle, checkup) {
            (true, true) => &[Self::Alone, Self::Watched, Self::Gentle, Self::Checkup],
            (true, false) => &[Self::Alone, Self::Watched, Self::Gentle],
            (false, true) => &[Self::Alone, Self::Watched, Self::Checkup],
            (false, false) => &[Self::Alone, Self::Watched],
        }
    }

    /// Its name in records.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Watched => "watched",
            Self::Gentle => "watched-gently",
            Self::Checkup => "checked",
        }
    }
}

/// The server under load.
pub(crate) struct Site {
    crowd: Crowd,
    monitor: Connection,
    dsn: Dsn,
}

impl Site {
    pub(crate) fn begin(
        cluster: &Cluster,
        clients: u32,
        scale: u32,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let text = BUILT_IN.iter().find(|(name, _)| *name == SCRIPT).context("find the script")?.1;
        let connections = (0..clients).map(|_| cluster.connect(DATABASE));
        let connections = connections.collect::<Result<Vec<_>, _>>()?;
        let mut crowd = Crowd::new(connections, &Mix::from(Script::parse(SCRIPT, text)?), scale)?;
        crowd.reseed(seed);
        let environment = cluster.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        let dsn = Dsn::parse(&format!(
            "host='{}' port={} user={} dbname={DATABASE}",
            value("PGHOST"),
            value("PGPORT"),
            value("PGUSER")
        ))?;
        Ok(Self { crowd, monitor: cluster.connect(DATABASE)?, dsn })
    }

    /// The load for this long, after a checkpoint. What watching costs until it has connected, and
    /// after its time, is in it.
    pub(crate) fn run(
        &mut self,
        arm: Arm,
        time: Duration,
        rate: Option<f64>,
    ) -> anyhow::Result<BenchLoad> {
        self.monitor.execute("CHECKPOINT")?;
        drop(self.crowd.take_latencies());
        let crowd = &mut self.crowd;
        let dsn = &self.dsn;
        let (tally, watched) = std::thread::scope(|scope| {
            let watching = (arm != Arm::Alone).then(|| scope.spawn(|| beside(arm, dsn, time)));
            let tally = crowd.run(Until::Time(time), rate);
            let watched = watching.map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (tally, watched)
        });
        let tally = tally?;
        let watched = watched.transpose()?;
        let latencies = self.crowd.take_latencies();
        let quantile = |share: f64| {
            let found = latencies.quantile(share).context("no transaction was completed")?;
            u64::try_from(found.as_nanos()).context("a latency of centuries")
        };
        Ok(BenchLoad {
            seconds: tally.elapsed.as_secs_f64(),
            transactions: tally.transactions,
            median_ns: quantile(0.5)?,
            p99_ns: quantile(0.99)?,
            watch_cpu_s: watched.as_ref().map(|watched| watched.cpu_s),
            watch_statements: watched.as_ref().map(|watched| watched.statements),
            watch_censuses: watched.map(|watched| watched.censuses),
        })
    }

    pub(crate) fn close(self) {
        self.crowd.close();
        self.monitor.close();
    }
}

/// The cost of watching.
struct Beside {
    cpu_s: f64,
    statements: u64,
    censuses: u64,
}

fn beside(arm: Arm, dsn: &Dsn, time: Duration) -> anyhow::Result<Beside> {
    let interrupt = Interrupt::new();
    let (own, watched) = if arm == Arm::Checkup {
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        let plan = CheckupPlan { time, ..CheckupPlan::default() };
        let record = checkup(provenance, dsn, plan, &interrupt, &mut |_| {})?;
        let prediction = record.prediction.context("the checkup predicted nothing")?;
        (Some(record.watch.cost), prediction.watch)
    } else {
        let plan = WatchPlan { time, gentle: arm == Arm::Gentle, ..WatchPlan::default() };
        (None, watch(dsn, &plan, &interrupt, &mut |_| {})?.1)
    };
    if let Some(ended) = watched.ended {
        bail!("watching ended early: {ended}");
    }
    let costs = || own.iter().chain([&watched.cost]);
    if costs().any(|cost| !cost.is_cpu) {
        bail!("the CPU of the server's processes cannot be seen");
    }
    Ok(Beside {
        cpu_s: costs().map(|cost| cost.seconds).sum(),
        statements: costs().map(|cost| cost.statements).sum(),
        censuses: watched.windows.iter().map(|window| window.censuses().count() as u64).sum(),
    })
}
