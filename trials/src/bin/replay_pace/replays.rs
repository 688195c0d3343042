//! pgbench's logged work, and its replays.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::ReplayRecord;
use pgtoll_record::trials::{ReplayPaceCase, ReplayPaceRun};
use pgtoll_trials::{beside, settings};

/// The database of pgbench. The guard's own connections go to another one, which is not logged.
const DATABASE: &str = "bench";

/// The stopped cluster as it was before pgbench.
pub(crate) struct PaceSite {
    before: Cluster,
    /// `max_connections`.
    connections: String,
}

/// pgbench's options.
#[derive(Clone)]
pub(crate) struct Work {
    /// `-M`.
    pub(crate) protocol: &'static str,
    pub(crate) options: Vec<String>,
}

/// A plan of work, and how it was made.
pub(crate) struct Captured {
    plan: PathBuf,
    work: Work,
}

impl PaceSite {
    pub(crate) fn make(
        guard: &mut Guard,
        installation: &Installation,
        connections: u32,
    ) -> anyhow::Result<Self> {
        let before = Cluster::init(guard, installation, "before", false)?;
        let connections = connections.to_string();
        before.configure(guard, &settings([("max_connections", &*connections)]))?;
        before.start(guard)?;
        let script = format!(
            "CREATE DATABASE {DATABASE}; ALTER DATABASE {DATABASE} SET pgtoll.disposable = on;"
        );
        before.run_psql(guard, "postgres", &script)?;
        before.run_client(guard, "pgbench", &["-i", "-q", "-s", "5", DATABASE])?;
        before.stop(guard, StopMode::Fast)?;
        Ok(Self { before, connections })
    }

    /// pgbench on a copy that logs all of its statements, and the plan of them.
    pub(crate) fn capture(&self, guard: &mut Guard, work: &Work) -> anyhow::Result<Captured> {
        let logs = guard.directory().join("logs");
        let directory = logs.to_string_lossy().into_owned();
        let source = self.before.copy(guard, "source")?;
        let mut logging = settings(LOGGING);
        let more = [("log_directory", &*directory), ("max_connections", &*self.connections)];
        logging.extend(settings(more));
        source.configure(guard, &logging)?;
        source.start(guard)?;
        work.run(guard, &source)?;
        // The log is complete when the collector has ended.
        source.stop(guard, StopMode::Fast)?;
        source.remove(guard)?;
        let plan = guard.directory().join("work.plan");
        let [log, path] = [logs.join("server.csv"), plan.clone()];
        let [log, path] = [log, path].map(|path| path.to_string_lossy().into_owned());
        guard.run(&beside("pgtoll")?, &["replay", "plan", &log, "--plan", &path])?;
        guard.run(Path::new("rm"), &["-r", &directory])?;
        Ok(Captured { plan, work: work.clone() })
    }

    /// A replay on a fresh copy; at full speed pgbench's own work on another one before.
    pub(crate) fn replay(
        &self,
        guard: &mut Guard,
        captured: &Captured,
        case: ReplayPaceCase,
        speed: Option<f64>,
    ) -> anyhow::Result<ReplayPaceRun> {
        let mut pgbench_tps = None;
        if speed.is_none() {
            let copy = self.start_copy(guard)?;
            pgbench_tps = Some(captured.work.run(guard, &copy)?);
            copy.stop(guard, StopMode::Immediate)?;
            copy.remove(guard)?;
        }
        let copy = self.start_copy(guard)?;
        let record = replay(guard, &copy, captured, speed)?;
        copy.stop(guard, StopMode::Immediate)?;
        copy.remove(guard)?;
        let done = record.done.context("the replay's record has no run")?;
        Ok(ReplayPaceRun {
            case,
            protocol: captured.work.protocol.to_owned(),
            repetition: 0,
            speed,
            recorded_s: record.planned.length_s,
            run_s: done.run_s,
            lateness_p99_ms: done.lateness_ms.map(|lateness_ms| lateness_ms.p99),
            lateness_max_ms: done.lateness_ms.map(|lateness_ms| lateness_ms.max),
            sessions: record.planned.sessions_open_max,
            connections: done.connections,
            broken_sessions: done.broken_sessions,
            statements: done.statements,
            errors: done.unexpected_errors + done.missing_errors,
            client_cpu_s: done.client_cpu_s,
            pgbench_tps,
        })
    }

    fn start_copy(&self, guard: &mut Guard) -> anyhow::Result<Cluster> {
        let copy = self.before.copy(guard, "copy")?;
        copy.start(guard)?;
        Ok(copy)
    }
}

const LOGGING: [(&str, &str); 10] = [
    ("logging_collector", "on"),
    ("log_destination", "csvlog"),
    ("log_filename", "server.log"),
    ("log_rotation_age", "0"),
    ("log_rotation_size", "0"),
    ("log_connections", "on"),
    ("log_disconnections", "on"),
    ("log_statement", "all"),
    ("log_duration", "on"),
    ("lc_messages", "C"),
];

impl Work {
    /// Runs it; transactions a second, without the time of connecting.
    fn run(&self, guard: &mut Guard, cluster: &Cluster) -> anyhow::Result<f64> {
        let options = self.options.iter().map(String::as_str);
        let arguments: Vec<&str> = ["-n", "-j", "2", "-M", self.protocol, "--random-seed=1"]
            .into_iter()
            .chain(options)
            .chain([DATABASE])
            .collect();
        let printed = cluster.run_client(guard, "pgbench", &arguments)?;
        tps(&printed).with_context(|| format!("read what pgbench printed: {printed}"))
    }
}

/// pgbench's `tps = 1234.5 (without initial connection time)`.
fn tps(printed: &str) -> Option<f64> {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

fn replay(
    guard: &mut Guard,
    copy: &Cluster,
    captured: &Captured,
    speed: Option<f64>,
) -> anyhow::Result<ReplayRecord> {
    let program = beside("pgtoll")?;
    let record = copy.directory().join("record.json");
    let environment = copy.environment();
    let dsn = format!(
        "host={} port={} user={}",
        environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
    );
    let speed = speed.map_or("max".to_owned(), |speed| speed.to_string());
    let [plan, path] = [&captured.plan, &record].map(|path| path.to_string_lossy().into_owned());
    let arguments = ["replay", "run", &plan, "--order", "key", "--speed", &speed, "--dsn", &dsn];
    let arguments = [&arguments[..], &["--record", &path]].concat();
    guard.spawn("replay", &program, &arguments, &BTreeMap::new())?;
    let output = guard.reap("replay", LIMIT)?;
    let Ok(text) = fs::read_to_string(&record) else {
        bail!("pgtoll replay run: {}: {}", output.status, output.tail);
    };
    serde_json::from_str(&text).context("read the replay's record")
}

/// Longer than any replay takes.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_pgbench_prints() {
        let printed = "latency average = 0.2 ms\ninitial connection time = 5 ms\n\
            tps = 12345.678901 (without initial connection time)\n";
        assert_eq!(tps(printed), Some(12_345.678_901));
        assert_eq!(tps("pgbench: error"), None);
    }
}
