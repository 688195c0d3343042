//! The work that is replayed: its data before, its logs, and its tables at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::trials::ReplayBenchCapture;
use pgtoll_trials::settings;

/// pgbench's clients.
pub(crate) const CLIENTS: u32 = 16;
/// The database of pgbench. The guard's own connections go to another one, which is not logged.
const DATABASE: &str = "bench";
/// What is compared: a table and the text of its rows.
const TABLES: [(&str, &str); 4] = [
    ("pgbench_accounts", "ROW(t.*)::text"),
    ("pgbench_branches", "ROW(t.*)::text"),
    ("pgbench_tellers", "ROW(t.*)::text"),
    ("pgbench_history", "ROW(tid, bid, aid, delta)::text"),
];

/// The stopped cluster as it was before pgbench.
pub(crate) struct Before(Cluster);

/// Logs of pgbench's work, and its tables at the end.
pub(crate) struct Captured {
    /// The csvlog.
    pub(crate) csv: PathBuf,
    /// The stderr log, with the prefix that pgreplay reads.
    pub(crate) stderr: PathBuf,
    /// The tables at the end.
    pub(crate) tables: Vec<TableState>,
    wall_s: f64,
    csv_bytes: u64,
}

/// A table's rows, whatever their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableState {
    pub(crate) name: &'static str,
    pub(crate) rows: u64,
    /// The hash of the rows' sorted hashes.
    hash: String,
}

impl Before {
    pub(crate) fn make(guard: &mut Guard, installation: &Installation) -> anyhow::Result<Self> {
        let cluster = Cluster::init(guard, installation, "before", false)?;
        cluster.configure(guard, &settings(QUIET))?;
        cluster.start(guard)?;
        let script = format!(
            "CREATE DATABASE {DATABASE}; ALTER DATABASE {DATABASE} SET pgtoll.disposable = on;"
        );
        cluster.run_psql(guard, "postgres", &script)?;
        cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "1", DATABASE])?;
        cluster.stop(guard, StopMode::Fast)?;
        Ok(Self(cluster))
    }

    /// A running copy, which logs nothing of the work.
    pub(crate) fn start_copy(&self, guard: &mut Guard, name: &str) -> anyhow::Result<Cluster> {
        let copy = self.0.copy(guard, name)?;
        copy.start(guard)?;
        Ok(copy)
    }

    /// pgbench on a copy that logs all of its statements.
    pub(crate) fn capture(
        &self,
        guard: &mut Guard,
        protocol: &str,
        transactions: u32,
    ) -> anyhow::Result<Captured> {
        let logs = guard.directory().join(format!("logs-{protocol}"));
        let directory = logs.to_string_lossy().into_owned();
        let source = self.0.copy(guard, "source")?;
        let mut logging = settings(LOGGING);
        logging.extend(settings([("log_directory", &directory)]));
        logging.extend(settings(QUIET));
        source.configure(guard, &logging)?;
        source.start(guard)?;
        let clients = CLIENTS.to_string();
        let transactions = transactions.to_string();
        let work = ["-n", "-c", &clients, "-j", "2", "-t", &transactions, "-M", protocol, DATABASE];
        let began = Instant::now();
        source.run_client(guard, "pgbench", &work)?;
        let wall_s = began.elapsed().as_secs_f64();
        // The logs are complete when the collector has ended.
        source.stop(guard, StopMode::Fast)?;
        source.configure(guard, &settings(QUIET))?;
        source.start(guard)?;
        let tables = tables(&source)?;
        source.stop(guard, StopMode::Fast)?;
        source.remove(guard)?;
        let csv = logs.join("server.csv");
        let stderr = logs.join("server.log");
        let csv_bytes = bytes(&csv)?;
        Ok(Captured { csv, stderr, tables, wall_s, csv_bytes })
    }
}

impl Captured {
    pub(crate) fn line(&self, server: &str, protocol: &str) -> ReplayBenchCapture {
        ReplayBenchCapture {
            server: server.to_owned(),
            protocol: protocol.to_owned(),
            wall_s: self.wall_s,
            csv_bytes: self.csv_bytes,
            transactions: transactions(&self.tables),
        }
    }
}

const QUIET: [(&str, &str); 3] =
    [("autovacuum", "off"), ("fsync", "off"), ("max_connections", "60")];
const LOGGING: [(&str, &str); 12] = [
    ("logging_collector", "on"),
    ("log_destination", "stderr,csvlog"),
    ("log_filename", "server.log"),
    ("log_rotation_age", "0"),
    ("log_rotation_size", "0"),
    // The only prefix that pgreplay reads.
    ("log_line_prefix", "%m|%u|%d|%c|"),
    ("log_connections", "on"),
    ("log_disconnections", "on"),
    ("log_statement", "all"),
    ("log_duration", "on"),
    ("log_timezone", "UTC"),
    ("lc_messages", "C"),
];

/// The tables of pgbench as they are.
pub(crate) fn tables(cluster: &Cluster) -> anyhow::Result<Vec<TableState>> {
    let mut connection = cluster.connect(DATABASE)?;
    let mut states = Vec::new();
    for (name, row) in TABLES {
        let query = format!(
            "SELECT count(*) AS rows, coalesce(md5(string_agg(h, '' ORDER BY h)), '') AS hash \
             FROM (SELECT md5({row}) AS h FROM {name} t) hashes"
        );
        let found = connection.query_one(&query).with_context(|| format!("read {name}"))?;
        let rows = found.text("rows")?.parse().with_context(|| format!("count {name}"))?;
        states.push(TableState { name, rows, hash: found.text("hash")?.to_owned() });
    }
    connection.close();
    Ok(states)
}

/// Transactions that committed: each leaves a row in `pgbench_history`.
pub(crate) fn transactions(tables: &[TableState]) -> u64 {
    tables.iter().filter(|table| table.name == "pgbench_history").map(|table| table.rows).sum()
}

fn bytes(path: &Path) -> anyhow::Result<u64> {
    Ok(path.metadata().with_context(|| format!("find {}", path.display()))?.len())
}
