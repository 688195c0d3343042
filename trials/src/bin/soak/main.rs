//! Is a running server verified without false alarm, and is every damage found? For minutes, under
//! pgbench at full speed, beside tables that come and go.
//!
//! `cargo xtask soak` runs it. Status 0: so it is; 1: it is not; 2: could not tell.

mod plant;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::{Attached, DataDirectory};
use pgtoll_format::RelationFork;
use pgtoll_record::FindingClass;
use pgtoll_record::trials::{SOAK_SCHEMA, SoakOutcome, SoakRecord};
use pgtoll_system::Interrupt;
use pgtoll_trials::{Recorder, TrialSite, dsn, installation, print, say, server_name, settings};
use pgtoll_verify::{Patience, RealPauses, RunningServer, Verification, Verified, VerifySettings};
use pgtoll_wire::{Dsn, Error, Interruption};

use crate::plant::Planted;

/// Is a running server verified without false alarm, and is every damage found?
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak")]
struct Arguments {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Seed of what is damaged
    #[arg(long, value_name = "N", default_value_t = 20_261_122)]
    seed: u64,
    /// The server: a directory or a major version
    #[arg(long, value_name = "WHICH", default_value = "18")]
    postgres: String,
    /// Where the cluster is made; 3 GB are needed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Add the outcome to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    pgtoll_trials::run("soak", || run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let site = TrialSite::prepare(&arguments.work_dir)?;
    let installation = installation(&arguments.postgres)?;
    let mut recorder = Recorder::append(&arguments.record)?;
    let mut guard = site.begin_guard()?;
    let cluster = prepared(&installation, &mut guard)?;
    let started = jiff::Timestamp::now().to_string();
    let outcome = soak(arguments, &cluster, &mut guard, &site.interrupt)?;
    let Arguments { minutes, seed, postgres, .. } = arguments;
    let record = SoakRecord {
        schema: SOAK_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "cargo xtask soak --minutes {minutes} --postgres {postgres} --seed {seed}"
        ),
        started,
        server: server_name(&installation),
        host: site.host()?,
        outcome,
    };
    print(&(serde_json::to_string(&record)? + "\n"));
    recorder.write(&record)?;
    cluster.stop(&mut guard, StopMode::Fast)?;
    guard.finish()?;
    Ok(record.outcome.is_good())
}

/// A cluster much larger than its buffers, so that pages come and go.
fn prepared(installation: &Installation, guard: &mut Guard) -> anyhow::Result<Cluster> {
    let cluster = Cluster::init(guard, installation, "soak", true)?;
    let settings = settings([
        ("shared_buffers", "8MB"),
        ("fsync", "off"),
        ("checkpoint_timeout", "30s"),
        ("max_wal_size", "512MB"),
        ("bgwriter_delay", "10ms"),
        ("wal_keep_size", "256MB"),
        ("allow_in_place_tablespaces", "on"),
    ]);
    cluster.configure(guard, &settings)?;
    cluster.start(guard)?;
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", SCALE, DATABASE])?;
    let mut session = cluster.connect(DATABASE)?;
    for sql in PREPARE {
        session.execute(sql).with_context(|| sql.to_owned())?;
    }
    std::fs::write(script(&cluster), WORK).context("write the script of pgbench")?;
    Ok(cluster)
}

fn script(cluster: &Cluster) -> PathBuf {
    cluster.data().with_file_name("soak.sql")
}

fn soak(
    arguments: &Arguments,
    cluster: &Cluster,
    guard: &mut Guard,
    interrupt: &Interrupt,
) -> anyhow::Result<SoakOutcome> {
    let time = Duration::from_secs(arguments.minutes * 60);
    let file = script(cluster).display().to_string();
    let began = Instant::now();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let load = threads.spawn(|| {
            let mut output = Ok(String::new());
            // A crash ends pgbench.
            while let Some(left) =
                time.checked_sub(began.elapsed()).filter(|left| left.as_secs() > 0)
            {
                let seconds = left.as_secs().to_string();
                let options = ["-n", "-c", "8", "-j", "2", "-T", &seconds, "-f", &file, DATABASE];
                output = cluster.run_client(guard, "pgbench", &options);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            output
        });
        let churn = threads.spawn(|| churn(cluster, &is_over));
        let outcome = scans(arguments, cluster, &is_over, interrupt);
        is_over.store(true, Ordering::Relaxed);
        let message = load.join().map_err(|_| anyhow::anyhow!("pgbench's thread ended"))?;
        churn.join().map_err(|_| anyhow::anyhow!("the other thread ended"))??;
        let mut outcome = outcome?;
        let output = message.context("run pgbench")?;
        let is_wanted =
            |line: &&str| line.starts_with("tps") || line.contains("actually processed");
        outcome.pgbench = output.lines().filter(is_wanted).collect::<Vec<_>>().join("; ");
        Ok(outcome)
    })
}

/// Tables, indexes and files that come and go.
fn churn(cluster: &Cluster, is_over: &AtomicBool) -> anyhow::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        // After a crash the session is gone, and what it had made may be there.
        let Ok(mut session) = cluster.connect(DATABASE) else { continue };
        for sql in CLEAN {
            let _ = session.execute(sql);
        }
        for sql in CHURN {
            match session.execute(sql) {
                Ok(()) => {}
                Err(error) if is_crash(&error) => break,
                Err(error) => return Err(error).context(sql),
            }
        }
    }
    Ok(())
}

/// Whether a session ended since another one's process was killed.
fn is_crash(error: &Error) -> bool {
    match error {
        Error::Server(output) => CRASHED.contains(&&*output.sqlstate),
        _ => true,
    }
}

/// Kills a backend with SIGKILL, so that the server ends all sessions and recovers.
fn crash(cluster: &Cluster) -> anyhow::Result<()> {
    let mut session = cluster.connect(DATABASE)?;
    // The shell that the backend starts kills it.
    if session.execute("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'").is_ok() {
        anyhow::bail!("a backend was not killed");
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        // Unlogged tables are empty now.
        let fill = "INSERT INTO not_logged SELECT * FROM still; CHECKPOINT";
        let filled = cluster.connect(DATABASE).map(|mut session| session.execute(fill));
        if filled.is_ok_and(|filled| filled.is_ok()) {
            return Ok(());
        }
    }
    anyhow::bail!("the server did not recover within a minute")
}

/// One scan after the other, some of them with damage.
fn scans(
    arguments: &Arguments,
    cluster: &Cluster,
    is_over: &AtomicBool,
    interrupt: &Interrupt,
) -> anyhow::Result<SoakOutcome> {
    let mut random = plant::Random(arguments.seed);
    let mut session = cluster.connect(DATABASE)?;
    let began = Instant::now();
    let mut outcome = SoakOutcome::default();
    while !is_over.load(Ordering::Relaxed) {
        interrupt.check()?;
        if outcome.scans % CRASHED_EACH == CRASHED_EACH - 1 {
            crash(cluster)?;
            session = cluster.connect(DATABASE)?;
            *outcome.crashes.get_or_insert_default() += 1;
        }
        let planted = if outcome.scans % DAMAGED_EACH == 0 {
            plant::damage(&mut session, &cluster.data(), &mut random)?
        } else {
            Vec::new()
        };
        let verified = verified(cluster)?;
        for damage in &planted {
            damage.undo()?;
        }
        count(&mut outcome, &verified, &planted);
        say(&format!(
            "{:>4} s: {} scans, {} planted, {} found, {} false alarms, {} unverified, {} healed",
            began.elapsed().as_secs(),
            outcome.scans,
            outcome.planted,
            outcome.found,
            outcome.false_alarms,
            outcome.unverified,
            outcome.healed,
        ));
    }
    outcome.seconds = began.elapsed().as_secs();
    Ok(outcome)
}

fn verified(cluster: &Cluster) -> anyhow::Result<Verified> {
    let data = DataDirectory::open(&cluster.data())?;
    let interruption = Interruption::new()?;
    let dsn = Dsn::parse(&dsn(cluster, DATABASE))?;
    let mut attached =
        Attached::to(&data, Some(&dsn), &interruption)?.context("the server has ended")?;
    let mut server = RunningServer::attached(&mut attached, &data, 1)?;
    let verify =
        VerifySettings { jobs: 2.try_into()?, rate: None, only_below: Vec::new(), rows: true };
    let patience = Patience { checkpoint: Duration::from_secs(60), awaits_checkpoint: false };
    let finished = Verification::new(&data, verify).while_running(
        &mut attached,
        &mut server,
        &RealPauses::default(),
        patience,
        &mut |_, _| ControlFlow::Continue(()),
    );
    Ok(finished.verified)
}

fn count(outcome: &mut SoakOutcome, verified: &Verified, planted: &[Planted]) {
    let of_class = |class: FindingClass| -> BTreeSet<(RelationFork, u32)> {
        let of_it = verified.findings.iter().filter(|finding| finding.defect.class() == class);
        of_it.map(|item| (item.fork, item.block)).collect()
    };
    let unverified = of_class(FindingClass::Unverified);
    let wrong = &of_class(FindingClass::Failure) | &of_class(FindingClass::Suspicion);
    let places: BTreeSet<(RelationFork, u32)> =
        planted.iter().map(|planted| (planted.fork, planted.block)).collect();
    let number = |count: usize| count as u64;
    outcome.scans += 1;
    outcome.pages += verified.pages.blocks;
    outcome.bytes += verified.pages.bytes;
    outcome.suspects += verified.running.suspects.saturating_sub(number(places.len()));
    outcome.healed += verified.running.healed;
    outcome.in_flight += verified.running.in_flight;
    outcome.dropped += verified.running.dropped;
    outcome.planted += number(places.len());
    outcome.found += number(wrong.intersection(&places).count());
    outcome.planted_unverified += number(unverified.intersection(&places).count());
    for (fork, block) in wrong.union(&unverified).filter(|union| !places.contains(union)) {
        say(&format!("not planted: {fork:?}, block {block}"));
    }
    for finding in
        verified.findings.iter().filter(|finding| !places.contains(&(finding.fork, finding.block)))
    {
        say(&format!("{finding:?}"));
    }
    outcome.false_alarms += number(wrong.difference(&places).count());
    let is_compared = verified.evidence.covered.iter().any(|words| words.starts_with("WAL"));
    *outcome.without_evidence.get_or_insert_default() += u64::from(!is_compared);
    outcome.unverified += number(unverified.difference(&places).count());
    for damage in planted {
        *outcome.kinds.entry(damage.kind.to_owned()).or_default() += 1;
    }
}

const DATABASE: &str = "postgres";
/// One scan in this many is with damage, which takes longer.
const DAMAGED_EACH: u64 = 6;
/// The server crashes and recovers before one scan in this many.
const CRASHED_EACH: u64 = 50;
/// The server says that it ends sessions, or that it does not take any yet.
const CRASHED: [&str; 4] = ["57P01", "57P02", "57P03", "08006"];
/// What a crash may have left.
const CLEAN: [&str; 4] = [
    "DROP TABLE IF EXISTS come",
    "DROP TABLE IF EXISTS gone",
    "DROP DATABASE IF EXISTS logged",
    "DROP DATABASE IF EXISTS copied",
];
const SCALE: &str = "20";
/// Nobody but us looks at what is damaged.
const PREPARE: [&str; 8] = [
    "CREATE TABLESPACE space LOCATION ''",
    "CREATE EXTENSION pg_buffercache",
    "CREATE EXTENSION pageinspect",
    "ALTER TABLE pgbench_accounts SET (autovacuum_enabled = off)",
    "CREATE TABLE still WITH (autovacuum_enabled = off)
        AS SELECT i, repeat('x', 100) b FROM generate_series(1, 150000) i",
    "CREATE INDEX still_i ON still (i)",
    "CREATE UNLOGGED TABLE not_logged WITH (autovacuum_enabled = off) AS SELECT * FROM still",
    "CHECKPOINT",
];
/// As pgbench's own, but for the last accounts, which stay as they are.
const WORK: &str = "\
\\set aid random(1, 80000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
";
const CHURN: [&str; 26] = [
    "CREATE TABLE come AS SELECT i, md5(i::text) b FROM generate_series(1, 30000) i",
    "CREATE INDEX ON come USING gin (string_to_array(b, 'a'))",
    "CREATE INDEX ON come (b)",
    "DELETE FROM come WHERE i > 1000",
    "VACUUM come",
    "CREATE UNLOGGED TABLE gone AS SELECT * FROM come",
    "ALTER TABLE come SET TABLESPACE space",
    "VACUUM FULL come",
    "REINDEX TABLE CONCURRENTLY come",
    "CREATE DATABASE logged STRATEGY wal_log",
    "DROP DATABASE logged",
    "CREATE DATABASE copied STRATEGY file_copy",
    "ALTER DATABASE copied SET TABLESPACE space",
    "DROP DATABASE copied",
    "INSERT INTO come SELECT i, md5(i::text) b FROM generate_series(1, 30000) i",
    "DELETE FROM come",
    "VACUUM come",
    "TRUNCATE come",
    "DROP TABLE come, gone",
    // What sets and clears bits of visibility maps.
    "VACUUM pgbench_history",
    // An index is vacuumed whole, and has damaged blocks.
    "VACUUM (FREEZE, INDEX_CLEANUP OFF) pgbench_accounts",
    "BEGIN; SELECT * FROM pgbench_history TABLESAMPLE SYSTEM (5) FOR UPDATE; COMMIT",
    "BEGIN; DELETE FROM pgbench_history WHERE random() < 0.01; ROLLBACK",
    "DELETE FROM pgbench_history WHERE random() < 0.01",
    "VACUUM (FREEZE) pgbench_history",
    "CHECKPOINT",
];
