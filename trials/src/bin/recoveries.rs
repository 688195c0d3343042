//! Crashes of servers, and how long they then take to accept connections, beside what a checkup forecast.
//!
//! `cargo xtask bench recoveries` runs it. Status 0: at least 90 % of the times lie in the range that was forecast;
//! 1: not so.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use pgtoll_checkup::{CheckupPlan, checkup};
use pgtoll_cluster::{Cluster, Guard, Installation, LaunchState};
use pgtoll_record::trials::{
    BENCH_RECOVERIES_SCHEMA, RecoveriesHeader, RecoveriesLine, RecoveriesSummary, RecoveryRun,
};
use pgtoll_record::{Provenance, RecoveryBasis, RecoveryForecast};
use pgtoll_system::Interrupt;
use pgtoll_trials::{Recorder, TrialSite, dsn, installation, print, say, server_name, settings};
use pgtoll_workload::{Crowd, Mix, Script, Until};

/// How right is the forecast of a recovery's time?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench recoveries")]
struct Arguments {
    /// The server: a directory or a major version
    #[arg(long, value_name = "WHICH", default_value = "17")]
    postgres: String,
    /// How often each workload's server crashes at each distance
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Keep the record in this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The least share of forecasts that must hold.
const HITS_LEAST: f64 = 0.9;
/// WAL since the redo point at a crash.
const DISTANCES_MB: [u64; 3] = [64, 256, 640];
/// Once all pages have an image, some workloads write little WAL: no more is waited for.
const LOAD_MOST: Duration = Duration::from_secs(15);
const CLIENTS: u32 = 4;
const DATABASE: &str = "postgres";

/// Tables of all workloads: 1,000,000 rows of about 230 bytes, and two that are empty.
const TABLES: &str = "CREATE TABLE wide AS SELECT i AS id, 0 AS n, repeat('y', 200) AS padding \
     FROM generate_series(1, 1000000) AS i; ALTER TABLE wide ADD PRIMARY KEY (id); \
     CREATE TABLE log (padding text); \
     CREATE TABLE keyed (id bigserial PRIMARY KEY, key text, padding text); CREATE INDEX ON keyed (key)";

/// Workloads, each of another kind of WAL.
const WORKLOADS: [(&str, &str); 5] = [
    (
        "single-row updates",
        "\\set id random(1, 1000000)\nUPDATE wide SET n = n + 1 WHERE id = :id;\n",
    ),
    (
        "updates of ranges",
        "\\set id 20 * (4 * random(1, 12000) + :client_id)\nUPDATE wide SET n = n + 1 WHERE id BETWEEN :id AND :id + 19;\n",
    ),
    ("bulk insert", "INSERT INTO log SELECT repeat('x', 400) FROM generate_series(1, 50);\n"),
    (
        "indexed insert",
        "INSERT INTO keyed (key, padding) SELECT md5(random()::text), repeat('x', 100) FROM generate_series(1, 5);\n",
    ),
    (
        "mixed",
        "\\set id random(1, 1000000)\nBEGIN;\nUPDATE wide SET n = n + 1 WHERE id = :id;\nSELECT n FROM wide \
         WHERE id = :id;\nINSERT INTO log VALUES (repeat('x', 100));\nCOMMIT;\n",
    ),
];

fn main() -> ExitCode {
    pgtoll_trials::run("bench recoveries", || bench(&Arguments::parse()))
}

fn bench(arguments: &Arguments) -> anyhow::Result<bool> {
    let started = jiff::Timestamp::now();
    let site = TrialSite::prepare(Path::new("/var/tmp"))?;
    let installation = installation(&arguments.postgres)?;
    let mut recorder = Recorder::create(&arguments.output)?;
    let Arguments { postgres, repetitions, .. } = arguments;
    recorder.write(&RecoveriesLine::Header(Box::new(RecoveriesHeader {
        schema: BENCH_RECOVERIES_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask bench recoveries --postgres {postgres} --repetitions {repetitions}"
        ),
        started: started.to_string(),
        host: site.host()?,
        server: server_name(&installation),
        settings: server_settings(),
    })))?;
    let mut runs = Vec::new();
    for (workload, script) in WORKLOADS {
        let mut guard = site.begin_guard()?;
        let server = CrashingServer::start(&mut guard, &installation)?;
        let mix = Mix::from(Script::parse(workload, script)?);
        for repetition in 1..=*repetitions {
            for megabytes in DISTANCES_MB {
                let distance_bytes = megabytes << 20;
                let (seconds, forecast) =
                    server.crash(&mut guard, &mix, distance_bytes, &site.interrupt)?;
                let workload = workload.to_owned();
                let run = RecoveryRun { workload, repetition, distance_bytes, seconds, forecast };
                print(&(describe(&run) + "\n"));
                recorder.write(&RecoveriesLine::Run(Box::new(run.clone())))?;
                runs.push(run);
            }
        }
        guard.finish()?;
    }
    let summary = summary(&runs);
    recorder.write(&RecoveriesLine::Summary(summary))?;
    let RecoveriesSummary { runs, hits, seen, seen_hits } = summary;
    say(&format!(
        "{hits} of {runs} in the forecast range; where the rate came from the log: {seen_hits} of {seen}"
    ));
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let share = hits as f64 / runs.max(1) as f64;
    Ok(share >= HITS_LEAST)
}

fn server_settings() -> std::collections::BTreeMap<String, String> {
    settings([
        ("checkpoint_timeout", "1h"),
        ("max_wal_size", "16GB"),
        ("shared_buffers", "256MB"),
        ("synchronous_commit", "off"),
        ("logging_collector", "on"),
        ("log_line_prefix", "%m [%p] "),
    ])
}

/// A server that is made to crash again and again.
struct CrashingServer(Cluster);

impl CrashingServer {
    fn start(guard: &mut Guard, installation: &Installation) -> anyhow::Result<Self> {
        let cluster = Cluster::init(guard, installation, "crashing", true)?;
        cluster.configure(guard, &server_settings())?;
        cluster.start(guard)?;
        let mut connection = cluster.connect(DATABASE)?;
        connection.execute(TABLES)?;
        connection.close();
        Ok(Self(cluster))
    }

    /// Writes WAL, lets a checkup look, kills the server and times its return, in seconds.
    fn crash(
        &self,
        guard: &mut Guard,
        mix: &Mix,
        distance_bytes: u64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(f64, RecoveryForecast)> {
        self.0.checkpoint()?;
        self.write_wal(mix, distance_bytes, interrupt)?;
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        let plan = CheckupPlan { time: Duration::from_secs(1), ..CheckupPlan::default() };
        let record =
            checkup(provenance, &dsn(&self.0, DATABASE).parse()?, plan, interrupt, &mut |_| {})?;
        let forecast = record.recovery.context("a checkup saw no redo point")?;
        self.0.kill(guard)?;
        Ok((self.restart(guard, interrupt)?, forecast))
    }

    fn write_wal(&self, mix: &Mix, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
        let connections = (0..CLIENTS).map(|_| self.0.connect(DATABASE));
        let mut crowd = Crowd::new(connections.collect::<Result<_, _>>()?, mix, 1)?;
        let mut connection = self.0.connect(DATABASE)?;
        let began = Instant::now();
        while began.elapsed() < LOAD_MOST {
            crowd.run(Until::Time(Duration::from_millis(100)), None)?;
            interrupt.check()?;
            let row = connection.query_one(
                "SELECT pg_current_wal_insert_lsn() - redo_lsn AS bytes FROM pg_control_checkpoint()",
            )?;
            if row.parse::<u64>("bytes")? >= bytes {
                break;
            }
        }
        crowd.close();
        connection.close();
        Ok(())
    }

    /// Seconds from the start of the server until it serves.
    fn restart(&self, guard: &mut Guard, interrupt: &Interrupt) -> anyhow::Result<f64> {
        let began = Instant::now();
        self.0.launch(guard)?;
        loop {
            match self.0.launch_state(guard)? {
                LaunchState::Ready => return Ok(began.elapsed().as_secs_f64()),
                LaunchState::Ended { status, last_words } => {
                    anyhow::bail!("the server did not return: {status}: {last_words}")
                }
                LaunchState::Starting => interrupt.wait(Duration::from_millis(5))?,
            }
        }
    }
}

fn describe(run: &RecoveryRun) -> String {
    let range = run.forecast.median_s;
    let basis = match &run.forecast.basis {
        RecoveryBasis::Log(seen) => {
            format!("{} MB took {:.1} s before", seen.wal_bytes >> 20, seen.seconds)
        }
        _ => "assumed".to_owned(),
    };
    format!(
        "{:<20}{:>5.0} MB {:6.2} s, forecast {:.2} to {:.2} ({basis})",
        run.workload,
        run.forecast.wal_bytes.median / 1_048_576.0,
        run.seconds,
        range.lower,
        range.upper
    )
}

fn summary(runs: &[RecoveryRun]) -> RecoveriesSummary {
    let seen = || runs.iter().filter(|run| matches!(run.forecast.basis, RecoveryBasis::Log(_)));
    RecoveriesSummary {
        runs: runs.len() as u64,
        hits: runs.iter().filter(|run| run.is_in_range()).count() as u64,
        seen: seen().count() as u64,
        seen_hits: seen().filter(|run| run.is_in_range()).count() as u64,
    }
}
