//! The data directory and the plan that all comparisons share.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_stats::median;
use pgtoll_trials::{beside, program, settings};
use pgtoll_wire::Connection;
use serde::{Deserialize, Serialize};

/// The database of the work.
const DATABASE: &str = "shop";
/// One: several at full speed wait for the processors, and for each other, most of the time, and what a
/// statement takes is then mostly what others take.
const CLIENTS: &str = "1";
/// Transactions of each client: more than a second of work.
const TRANSACTIONS: &str = "500";
/// Rows that the statement reads which is made slower by a fifth: then most of its time is theirs.
const ROWS: u32 = 1500;
/// What is planted.
pub(crate) const FIFTH: f64 = 0.2;
/// Executions of a statement that are timed.
const TIMED: usize = 400;

/// What is the same in all comparisons: it is kept beside their records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plant {
    /// Rows on the baseline.
    pub(crate) rows: u32,
    /// Rows on the arm that is slower by a fifth.
    pub(crate) planted_rows: u32,
    /// The statement's median latency with these over that without.
    pub(crate) ratio: f64,
}

/// A stopped cluster as it was before the work, and the plan.
pub(crate) struct CompareSite {
    cluster: Cluster,
    pub(crate) plan: PathBuf,
    pub(crate) plant: Plant,
    pub(crate) statements: u64,
}

impl CompareSite {
    /// Makes the data, which are the same each time, and captures the work, unless an earlier call left
    /// its plan in `records`.
    pub(crate) fn make(
        guard: &mut Guard,
        installation: &Installation,
        records: &Path,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(records).with_context(|| format!("make {}", records.display()))?;
        let cluster = Cluster::init(guard, installation, "data", false)?;
        cluster.start(guard)?;
        cluster.run_psql(guard, "postgres", &format!("CREATE DATABASE {DATABASE};"))?;
        cluster.run_psql(guard, "postgres", &rows_setting(ROWS))?;
        cluster.run_psql(guard, DATABASE, include_str!("setup.sql"))?;
        cluster.stop(guard, StopMode::Fast)?;
        let plan = records.join("work.plan");
        let kept = records.join("plant.json");
        if !kept.is_file() {
            let _ = fs::remove_file(&plan);
            capture(guard, &cluster, &plan)?;
            let plant = serde_json::to_string(&calibrate(guard, &cluster)?)?;
            fs::write(&kept, plant).context("keep what is planted")?;
        }
        let text = fs::read_to_string(&kept).context("read what is planted")?;
        let plant = serde_json::from_str(&text).context("read what is planted")?;
        let statements = statements(&plan)?;
        Ok(Self { cluster, plan, plant, statements })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.cluster.data()
    }
}

/// How many rows the statement reads. It is the database's, since copies go without settings of included
/// files.
pub(crate) fn rows_setting(rows: u32) -> String {
    format!("ALTER DATABASE {DATABASE} SET bench.rows = {rows};\n")
}

const LOGGING: [(&str, &str); 9] = [
    ("logging_collector", "on"),
    ("log_destination", "csvlog"),
    ("log_filename", "server.log"),
    ("log_rotation_size", "0"),
    ("log_connections", "on"),
    ("log_disconnections", "on"),
    ("log_statement", "all"),
    ("log_duration", "on"),
    ("log_timezone", "UTC"),
];

/// pgbench on a copy that logs its statements, and the plan of them.
fn capture(guard: &mut Guard, cluster: &Cluster, plan: &Path) -> anyhow::Result<()> {
    let script = guard.directory().join("transaction.sql");
    fs::write(&script, include_str!("transaction.sql")).context("write the script")?;
    let source = cluster.copy(guard, "source")?;
    let logs = source.directory().join("logs");
    let directory = logs.to_string_lossy().into_owned();
    let mut logging = settings(LOGGING);
    logging.extend(settings([("log_directory", &*directory)]));
    source.configure(guard, &logging)?;
    source.start(guard)?;
    let script = script.to_string_lossy().into_owned();
    let work =
        ["-n", "-c", CLIENTS, "-t", TRANSACTIONS, "--random-seed=1", "-f", &script, DATABASE];
    source.run_client(guard, "pgbench", &work)?;
    // The log is complete when the collector has ended.
    source.stop(guard, StopMode::Fast)?;
    let log = logs.join("server.csv");
    let made = program(beside("pgtoll")?)
        .args(["--quiet", "replay", "plan", "--plan"])
        .args([plan, &log])
        .output()
        .context("run pgtoll replay plan")?;
    if !made.status.success() {
        bail!("pgtoll replay plan: {}", String::from_utf8_lossy(&made.stderr));
    }
    source.remove(guard)?;
    Ok(())
}

/// How many rows make the statement slower by a fifth: by a line through two medians, then measured.
fn calibrate(guard: &mut Guard, cluster: &Cluster) -> anyhow::Result<Plant> {
    let copy = cluster.copy(guard, "calibrated")?;
    copy.start(guard)?;
    let mut connection = copy.connect(DATABASE)?;
    let [few, many] = medians(&mut connection, [ROWS, 2 * ROWS])?;
    let rows = f64::from(ROWS);
    let added = many / few - 1.0;
    let planted = rows * (1.0 + FIFTH / added);
    if !(planted > rows && planted < 2.0 * rows) {
        bail!("twice the rows took {:.2} times as long: nothing can be planted", many / few);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is below 2 ROWS"
    )]
    let planted_rows = planted.round() as u32;
    let [without, with] = medians(&mut connection, [ROWS, planted_rows])?;
    connection.close();
    copy.stop(guard, StopMode::Immediate)?;
    copy.remove(guard)?;
    Ok(Plant { rows: ROWS, planted_rows, ratio: with / without })
}

/// The median seconds of the statement with these numbers of rows, in turn.
fn medians(connection: &mut Connection, rows: [u32; 2]) -> anyhow::Result<[f64; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..TIMED {
        for (rows, times) in rows.iter().zip(&mut times) {
            connection.execute(&format!("SET bench.rows = {rows}"))?;
            let first = 1 + number * 37 % 20_000;
            let sql = format!(
                "SELECT sum(v) FROM events WHERE id BETWEEN {first} AND {first} \
                 + current_setting('bench.rows')::integer"
            );
            let began = Instant::now();
            connection.execute(&sql)?;
            times.push(began.elapsed().as_secs_f64());
        }
    }
    let [few, many] = times.map(|times| median(&times));
    few.zip(many).map(|(few, many)| [few, many]).context("the statement was not timed")
}

/// Statements of the plan, as `replay run --dry-run` counts them.
fn statements(plan: &Path) -> anyhow::Result<u64> {
    let dry = program(beside("pgtoll")?)
        .args(["--quiet", "replay", "run", "--order", "key", "--dry-run", "--json"])
        .arg(plan)
        .output()
        .context("run pgtoll replay run --dry-run")?;
    let record: pgtoll_record::ReplayRecord =
        serde_json::from_slice(&dry.stdout).context("read the plan's record")?;
    Ok(record.planned.steps)
}
