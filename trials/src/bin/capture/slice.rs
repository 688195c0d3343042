//! A slice: the load for a while, by direct connections or through the capture.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, ProgramSignal};
use pgtoll_record::trials::BenchLoad;
use pgtoll_trials::beside;
use pgtoll_wire::{Connection, Dsn};
use pgtoll_workload::{Crowd, Mix, Script, Until};

pub(crate) const DATABASE: &str = "postgres";
/// The capture's name among the guard's programs.
const CAPTURE: &str = "capture";
/// The program starts, or ends, in less.
const PATIENCE: Duration = Duration::from_secs(30);

/// By which way clients reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureArm {
    Direct,
    /// Direct, too: what two arms differ by that do not differ.
    Twin,
    Captured,
}

impl CaptureArm {
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Twin, Self::Captured];

    /// Its name in records.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Twin => "twin",
            Self::Captured => "captured",
        }
    }
}

/// The server under load, with the connections of all arms.
pub(crate) struct Site {
    crowds: Vec<(CaptureArm, Crowd)>,
    monitor: Connection,
}

impl Site {
    /// Starts the capture, and connects the clients of each arm.
    pub(crate) fn begin(
        guard: &mut Guard,
        cluster: &Cluster,
        clients: u32,
        (script, scale, seed): (&str, u32, u64),
    ) -> anyhow::Result<Self> {
        let listen = guard.directory().join("capture");
        guard.run(Path::new("mkdir"), &[&listen.to_string_lossy()])?;
        let direct = dsn(cluster.directory());
        let captured = dsn(&listen);
        let plan = listen.join("work.plan");
        let arguments = [
            "replay",
            "record",
            "--listen",
            &*listen.to_string_lossy(),
            "--to",
            &direct,
            "-o",
            &plan.to_string_lossy(),
        ];
        guard.spawn(CAPTURE, &beside("pgtoll")?, &arguments, &BTreeMap::new())?;
        await_listener(guard, &captured)?;
        let mut crowds = Vec::new();
        for arm in CaptureArm::ALL {
            let dsn = if arm == CaptureArm::Captured { &captured } else { &direct };
            let dsn = Dsn::parse(dsn)?;
            let connections = (0..clients).map(|_| dsn.connect());
            let connections = connections.collect::<Result<Vec<_>, _>>()?;
            let script = Script::built_in(script).context("find the script")?;
            let mut crowd = Crowd::new(connections, &Mix::from(script), scale)?;
            crowd.reseed(seed);
            crowds.push((arm, crowd));
        }
        Ok(Self { crowds, monitor: cluster.connect(DATABASE)? })
    }

    /// The load of an arm for this long, after a checkpoint.
    pub(crate) fn run(
        &mut self,
        arm: CaptureArm,
        time: Duration,
        rate: Option<f64>,
    ) -> anyhow::Result<BenchLoad> {
        self.monitor.execute("CHECKPOINT")?;
        let crowd = self.crowds.iter_mut().find(|(crowd, _)| *crowd == arm);
        let (_, crowd) = crowd.context("find the arm's clients")?;
        drop(crowd.take_latencies());
        let tally = crowd.run(Until::Time(time), rate)?;
        let latencies = crowd.take_latencies();
        let quantile = |share: f64| {
            let found = latencies.quantile(share).context("no transaction was completed")?;
            u64::try_from(found.as_nanos()).context("a latency of centuries")
        };
        Ok(BenchLoad {
            seconds: tally.elapsed.as_secs_f64(),
            transactions: tally.transactions,
            median_ns: quantile(0.5)?,
            p99_ns: quantile(0.99)?,
            watch_cpu_s: None,
            watch_statements: None,
            watch_censuses: None,
        })
    }

    /// Ends clients and capture. A plan that is not complete is an error: then it was not captured.
    pub(crate) fn end(self, guard: &mut Guard) -> anyhow::Result<()> {
        for (_, crowd) in self.crowds {
            crowd.close();
        }
        self.monitor.close();
        guard.signal(CAPTURE, ProgramSignal::Interrupt)?;
        let output = guard.reap(CAPTURE, PATIENCE)?;
        if !output.success {
            bail!("pgtoll replay record: {}: {}", output.status, output.tail);
        }
        Ok(())
    }
}

fn dsn(directory: &Path) -> String {
    format!("host='{}' port=5432 user=postgres dbname={DATABASE}", directory.display())
}

/// Until a client gets through.
fn await_listener(guard: &mut Guard, dsn: &str) -> anyhow::Result<()> {
    let dsn = Dsn::parse(dsn)?;
    let began = Instant::now();
    loop {
        match dsn.connect() {
            Ok(connection) => {
                connection.close();
                return Ok(());
            }
            Err(error) if began.elapsed() > PATIENCE => {
                return Err(error).context("connect through the capture");
            }
            Err(_) => {}
        }
        if let Some(output) = guard.has_ended(CAPTURE)? {
            bail!("pgtoll replay record: {}: {}", output.status, output.tail);
        }
    }
}
