//! A slice: the load for a while, with or without `pgtoll predict` beside it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use pgtoll_cluster::Cluster;
use pgtoll_predict::{WatchPlan, watch};
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
}

impl Arm {
    /// With `--gentle` or without.
    pub(crate) fn all(gentle: bool) -> &'static [Self] {
        if gentle {
            &[Self::Alone, Self::Watched, Self::Gentle]
        } else {
            &[Self::Alone, Self::Watched]
        }
    }

    /// Its name in records.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Watched => "watched",
            Self::Gentle => "watched-gently",
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
        let plan = WatchPlan { time, gentle: arm == Arm::Gentle, ..WatchPlan::default() };
        let crowd = &mut self.crowd;
        let dsn = &self.dsn;
        let (tally, watched) = std::thread::scope(|scope| {
            let watching = (arm != Arm::Alone)
                .then(|| scope.spawn(|| watch(dsn, &plan, &Interrupt::new(), &mut |_| {})));
            let tally = crowd.run(Until::Time(time), rate);
            let watched = watching.map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (tally, watched)
        });
        let tally = tally?;
        let watched = watched.transpose()?.map(|(_, watched)| watched);
        if let Some(ended) = watched.as_ref().and_then(|watched| watched.ended.as_ref()) {
            bail!("watching ended early: {ended}");
        }
        let latencies = self.crowd.take_latencies();
        let quantile = |share: f64| {
            let found = latencies.quantile(share).context("no transaction was completed")?;
            u64::try_from(found.as_nanos()).context("a latency of centuries")
        };
        let censuses = watched.as_ref().map(|watched| {
            watched.windows.iter().map(|window| window.censuses().count() as u64).sum()
        });
        let cost = watched.map(|watched| watched.cost);
        if cost.is_some_and(|cost| !cost.is_cpu) {
            bail!("the CPU of the server's processes cannot be seen");
        }
        Ok(BenchLoad {
            seconds: tally.elapsed.as_secs_f64(),
            transactions: tally.transactions,
            median_ns: quantile(0.5)?,
            p99_ns: quantile(0.99)?,
            watch_cpu_s: cost.map(|cost| cost.seconds),
            watch_statements: cost.map(|cost| cost.statements),
            watch_censuses: censuses,
        })
    }

    pub(crate) fn close(self) {
        self.crowd.close();
        self.monitor.close();
    }
}
