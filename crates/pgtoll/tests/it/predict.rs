//! `pgtoll predict` of running servers of each version: what is counted is what is there.

use std::path::Path;
use std::process::Stdio;

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_record::{PredictionBasis, PredictionRecord};

use crate::support::{Ran, Scratch, pgtoll, run, servers};

/// A cluster without checksums in which nothing happens by itself.
fn started(
    guard: &mut Guard,
    server: &pgtoll_cluster::Installation,
    settings: &[(&str, &str)],
) -> Cluster {
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, false).unwrap();
    let quiet = [("autovacuum", "off"), ("checkpoint_timeout", "1h")];
    let settings = quiet.iter().chain(settings);
    let settings = settings.map(|(name, value)| (String::from(*name), String::from(*value)));
    cluster.configure(guard, &settings.collect()).unwrap();
    cluster.start(guard).unwrap();
    cluster
}

fn dsn(cluster: &Cluster, user: &str) -> String {
    let of = cluster.environment();
    let (host, port) = (&of["PGHOST"], &of["PGPORT"]);
    let user = if user.is_empty() { of["PGUSER"].as_str() } else { user };
    format!("host={host} port={port} user={user} dbname=postgres")
}

fn predict(cluster: &Cluster, user: &str, arguments: &[&str]) -> Ran {
    run(pgtoll().args(["predict", "--dsn", &dsn(cluster, user)]).args(arguments))
}

fn record(ran: &Ran) -> PredictionRecord {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

const EXTENSIONS: &str = "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_buffercache;";
const LOAD: &str = "CREATE TABLE loaded AS SELECT i, repeat('x', 500) AS t FROM \
                    generate_series(1, 12000) i; CHECKPOINT; SELECT count(*) FROM loaded;";

#[test]
fn pages_that_only_hints_changed_are_counted() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        cluster.run_psql(&mut guard, "postgres", LOAD).unwrap();
        let of = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
        let census = of.watch.windows[0].census.as_ref().unwrap();
        assert!(!of.watch.windows[0].is_cycle && of.watch.discarded.is_empty(), "{of:?}");
        let counted = census.relations.iter().find(|of| of.relation == "public.loaded").unwrap();
        // The first SELECT hints every page of the table, and nothing else has changed them. So say
        // the rows: 15 of 500 bytes on a page.
        assert_eq!((counted.pages, &*counted.database), (800, "postgres"), "{name}: {census:?}");
        assert!(census.hint_only <= 800 + 20, "{name}: {census:?}");
        assert_eq!((census.covered, census.sampled), (census.dirty, census.dirty), "{name}");
        assert!((7_500.0..=8192.0).contains(&census.image_bytes.unwrap()), "{name}: {census:?}");
        let answer = &of.answers[0];
        assert_eq!((&*answer.today, &*answer.value), ("off", "on"), "{name}");
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::CensusAndEvictions, "{name}");
        // A part of a cycle of an hour: the stock is what the cycle has at least.
        let stock = f64::from(u32::try_from(census.hint_only).unwrap());
        assert!((wal.estimators["E2"] * 3600.0 - stock).abs() < 1.0, "{name}: {wal:?}");
        assert!(wal.images_per_second.unwrap().estimate > 0.0, "{name}: {wal:?}");
        assert!(of.server.local && of.page_costs.timed && of.watch.cost.is_cpu, "{name}: {of:?}");
        // Another CHECKPOINT writes them; then nothing is left to log.
        cluster.run_psql(&mut guard, "postgres", "CHECKPOINT").unwrap();
        let of = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
        let census = of.watch.windows[0].census.as_ref().unwrap();
        assert!(census.hint_only < 20, "{name}: {census:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn hints_logged_already_cost_no_wal_again() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[("wal_log_hints", "on")]);
        let kept = scratch.path("kept.json");
        let ran = predict(&cluster, "", &["--for", "1s", "--record", kept.to_str().unwrap()]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("WAL no more"), "{ran:?}");
        assert!(ran.stdout.contains("hints are logged already (wal_log_hints = on)"), "{ran:?}");
        check_record(&kept);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
        std::fs::remove_file(kept).unwrap();
    }
}

/// What was kept is shown as it was, and asked about something else.
fn check_record(kept: &Path) {
    let kept = kept.to_str().unwrap();
    let shown = run(pgtoll().args(["report", kept]));
    assert!(shown.stdout.contains("WAL no more"), "{shown:?}");
    let of = record(&run(pgtoll()
        .args(["predict", "--from", kept, "--json"])
        .args(["--setting", "wal_log_hints=off,wal_log_hints=on"])));
    let values: Vec<&str> = of.answers.iter().map(|answer| answer.value.as_str()).collect();
    assert_eq!(values, ["off", "on"]);
    assert!(of.answers[0].wal.is_none() && of.answers[0].reason.is_some(), "{of:?}");
    assert!(of.answers[1].reason.as_ref().unwrap().contains("already"), "{of:?}");
    let mistake = run(pgtoll().args(["predict", "--from", kept, "--setting", "fsync=off"]));
    assert_eq!(mistake.status, Some(2), "{mistake:?}");
    assert!(mistake.stderr.contains("--setting does not accept \"fsync=off\""), "{mistake:?}");
    assert!(mistake.stderr.contains("\nhint: like data_checksums=on"), "{mistake:?}");
}

#[test]
fn roles_without_pg_monitor_get_the_grant_and_those_with_it_an_answer() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        cluster.run_psql(&mut guard, "postgres", "CREATE ROLE \"Watch er\" LOGIN").unwrap();
        let ran = predict(&cluster, "'Watch er'", &["--for", "1s"]);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let expected = "pgtoll: role \"Watch er\" may not read other sessions' statistics\n\
                        hint: GRANT pg_monitor TO \"Watch er\";\n";
        assert!(ran.stderr.ends_with(expected), "{ran:?}");
        let grant = "GRANT pg_monitor TO \"Watch er\"";
        cluster.run_psql(&mut guard, "postgres", grant).unwrap();
        let of = record(&predict(&cluster, "'Watch er'", &["--for", "1s", "--json"]));
        assert!(of.watch.windows[0].census.is_none() && of.answers[0].cpu.is_some(), "{of:?}");
        let missing = of.watch.sources.iter().find(|source| source.name == "pageinspect").unwrap();
        assert!(!missing.available && missing.remedy.is_some(), "{missing:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn cycles_last_from_one_checkpoint_to_the_next() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        cluster.run_psql(&mut guard, "postgres", "CREATE TABLE written (i int)").unwrap();
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--cycles", "1", "--json"]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Until it has seen two checkpoints end.
        while watching.try_wait().unwrap().is_none() {
            let script = "INSERT INTO written SELECT generate_series(1, 1000); CHECKPOINT";
            cluster.run_psql(&mut guard, "postgres", script).unwrap();
        }
        let output = watching.wait_with_output().unwrap();
        let of: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), of.watch.complete), (Some(0), true), "{of:?}");
        assert_eq!(of.watch.windows.len(), 1, "{of:?}");
        let window = &of.watch.windows[0];
        assert!(window.is_cycle && window.wal_bytes > 1000 && window.seconds > 0.0, "{of:?}");
        assert!(window.blocks_checkpointed > 0, "{window:?}");
        assert!(of.notes.iter().any(|note| note.contains("came sooner")), "{of:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// Where volume begins checkpoints that are spread over the WAL to the next: they run nearly always.
#[test]
fn pages_of_the_cycle_before_are_not_taken_for_hints_while_a_checkpoint_runs() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = server.version.to_string();
        let settings = [("max_wal_size", "64MB"), ("checkpoint_completion_target", "0.9")];
        let cluster = started(&mut guard, &server, &settings);
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        let load = "CREATE TABLE changed (i int PRIMARY KEY, n int, t text) WITH (fillfactor = 50); \
                    INSERT INTO changed SELECT i, 0, repeat('x', 200) FROM generate_series(1, 100000) i; \
                    VACUUM (FREEZE) changed; CHECKPOINT";
        cluster.run_psql(&mut guard, "postgres", load).unwrap();
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--cycles", "2", "--json"]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Each page is changed by what is logged, in random order.
        let change = "UPDATE changed SET n = n + 1 WHERE i IN \
                      (SELECT (random() * 100000)::int FROM generate_series(1, 1000))";
        while watching.try_wait().unwrap().is_none() {
            cluster.run_psql(&mut guard, "postgres", change).unwrap();
        }
        let output = watching.wait_with_output().unwrap();
        let of: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), of.watch.complete), (Some(0), true), "{name}: {of:?}");
        let window = of.watch.windows.last().unwrap();
        let cycle = window.census.as_ref().unwrap().cycle_s.unwrap();
        let early: Vec<_> =
            window.censuses().filter(|census| census.age_s < 0.5 * cycle).collect();
        assert!(!early.is_empty(), "{name}: {window:?}");
        let sampled: u64 = early.iter().map(|census| census.sampled).sum();
        let hint_only: u64 = early.iter().map(|census| census.hint_only).sum();
        assert!(sampled > 200 && hint_only * 10 < sampled, "{name}: {early:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}
