//! `pgtoll predict` of servers as people have them: many relations, several databases, statements of
//! others, locks, lost connections, poolers.

use std::process::{Child, Stdio};

use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_record::{PredictionRecord, ServerWatch};
use pgtoll_wire::Connection;

use crate::predict::{EXTENSIONS, LOAD, dsn, predict, record, started};
use crate::support::{Ran, Scratch, pgtoll, run, server, servers};

/// It has ended: its record.
fn ended(watching: Child) -> (Option<i32>, PredictionRecord, String) {
    let output = watching.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let from_slice =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error} {stderr}"));
    (output.status.code(), from_slice, stderr)
}

fn watching(cluster: &Cluster, arguments: &[&str]) -> Child {
    let mut command = pgtoll();
    command.args(["predict", "--json", "--dsn", &dsn(cluster, "")]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Until it looks whether a checkpoint has completed: its process.
fn watcher(connection: &mut Connection) -> i32 {
    loop {
        let rows = connection
            .query(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtoll predict' \
                 AND query = 'EXECUTE look'",
            )
            .unwrap();
        if let Some(row) = rows.first() {
            return row.parse("pid").unwrap();
        }
    }
}

pub(crate) fn finish(cluster: Cluster, guard: &mut Guard) {
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster.remove(guard).unwrap();
}

#[test]
fn statements_that_would_pay_are_ranked() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let library = [("shared_preload_libraries", "pg_stat_statements")];
        let cluster = started(&mut guard, &server, &library);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        cluster.run_psql(&mut guard, "postgres", "CREATE EXTENSION pg_stat_statements").unwrap();
        cluster.run_psql(&mut guard, "postgres", "CREATE TABLE stormed (i int, t text)").unwrap();
        for with_queries in [true, false] {
            let texts: &[&str] = if with_queries { &["--with-queries"] } else { &[] };
            let mut watching = watching(&cluster, &[&["--for", "4s"], texts].concat());
            while watching.try_wait().unwrap().is_none() {
                let storm = "TRUNCATE stormed; INSERT INTO stormed SELECT i, repeat('x', 500) FROM \
                             generate_series(1, 3000) i; CHECKPOINT; SELECT count(*) FROM stormed;";
                cluster.run_psql(&mut guard, "postgres", storm).unwrap();
            }
            let (status, ended, stderr) = ended(watching);
            assert_eq!(status, Some(0), "{name}: {stderr}");
            let seen = ended.watch.statements.as_ref().unwrap();
            assert_eq!((seen.has_text, seen.is_cut), (with_queries, false), "{name}: {seen:?}");
            assert!(seen.seconds > 0.0 && seen.all.select_dirtied >= 200, "{name}: {seen:?}");
            let ranked = &ended.payers.as_ref().unwrap().statements;
            let first = &ranked[0];
            assert_eq!(
                (&*first.database, first.image_share.is_some()),
                ("postgres", true),
                "{name}"
            );
            let selects: Vec<_> = ranked
                .iter()
                .filter(|ranked| ranked.image_share.is_some_and(|share| share > 0.5))
                .collect();
            assert_eq!(selects.len(), 1, "{name}: {ranked:?}");
            let expected = with_queries.then_some("SELECT count(*) FROM stormed");
            assert_eq!(selects[0].text.as_deref(), expected, "{name}");
        }
        finish(cluster, &mut guard);
    }
}

#[test]
fn ten_thousand_relations_are_watched_at_a_bounded_cost() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let settings = [("fsync", "off"), ("synchronous_commit", "off"), ("max_wal_size", "4GB")];
    let cluster = started(&mut guard, &server(), &settings);
    cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
    let tables = "DO $$ BEGIN FOR i IN 1 .. 10000 LOOP \
                  EXECUTE format('CREATE TABLE t%s AS SELECT 1 AS i', i); \
                  IF i % 250 = 0 THEN COMMIT; END IF; END LOOP; END $$";
    cluster.run_psql(&mut guard, "postgres", tables).unwrap();
    let record = record(&predict(&cluster, "", &["--for", "2s", "--json"]));
    let seen = record.watch.visibility.unwrap();
    // Tables that were never analysed count by their size.
    assert!(seen.pages >= 10_000 && seen.not_all_visible >= 10_000, "{seen:?}");
    let census = record.watch.windows[0].census.as_ref().unwrap();
    assert!(census.dirty > 0 && census.sampled <= 2000, "{census:?}");
    assert!(census.relations.len() <= 20, "{census:?}");
    // Each look is a statement, each census a few, however many relations there are.
    assert!(record.watch.cost.statements < 300, "{:?}", record.watch.cost);
    assert!(record.watch.cost.is_cpu && record.watch.cost.seconds > 0.0, "{:?}", record.watch.cost);
    let shown = run(pgtoll().args(["predict", "--dsn", &dsn(&cluster, ""), "--for", "1s"]));
    assert!(shown.stdout.contains("Watching took "), "{shown:?}");
    finish(cluster, &mut guard);
}

#[test]
fn a_census_covers_the_databases_that_have_pageinspect() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        for database in ["seen", "\"not seen\""] {
            let create = format!("CREATE DATABASE {database}");
            cluster.run_psql(&mut guard, "postgres", &create).unwrap();
        }
        cluster.run_psql(&mut guard, "seen", "CREATE EXTENSION pageinspect").unwrap();
        cluster.run_psql(&mut guard, "postgres", "CHECKPOINT").unwrap();
        cluster.run_psql(&mut guard, "seen", LOAD).unwrap();
        cluster
            .run_psql(
                &mut guard,
                "not seen",
                "CREATE TABLE hidden AS SELECT generate_series(1, 9999)",
            )
            .unwrap();
        let record = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
        let census = record.watch.windows[0].census.as_ref().unwrap();
        let loaded =
            census.relations.iter().find(|relation| relation.relation == "public.loaded").unwrap();
        assert_eq!((&*loaded.database, loaded.pages), ("seen", 800), "{name}: {census:?}");
        assert!(census.covered < census.dirty && census.covered >= 800, "{name}: {census:?}");
        let payers = record.payers.unwrap();
        assert_eq!(payers.relations[0].relation, "public.loaded", "{name}: {payers:?}");
        assert!(payers.relations[0].share.estimate > 0.9, "{name}: {payers:?}");
        finish(cluster, &mut guard);
    }
}

/// A census waits for a lock for a second at most, and goes without.
#[test]
fn locked_relations_cost_a_census_and_not_the_record() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
    cluster.run_psql(&mut guard, "postgres", LOAD).unwrap();
    let mut locking = cluster.connect("postgres").unwrap();
    locking.execute("BEGIN").unwrap();
    locking.execute("LOCK TABLE loaded IN ACCESS EXCLUSIVE MODE").unwrap();
    let record = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
    let is_lock = |why: &String| why.contains("a census failed") && why.contains("lock timeout");
    assert!(record.watch.discarded.iter().any(is_lock), "{:?}", record.watch);
    assert!(record.answers[0].cpu.is_some() && !record.watch.windows.is_empty(), "{record:?}");
    locking.close();
    finish(cluster, &mut guard);
}

#[test]
fn a_lost_connection_is_made_anew_and_a_lost_server_leaves_what_was_seen() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    let mut other = cluster.connect("postgres").unwrap();
    let first = watching(&cluster, &["--for", "4s"]);
    let pid = watcher(&mut other);
    other.execute(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    let (status, element, stderr) = ended(first);
    let lost = |watch: &ServerWatch| watch.discarded.iter().any(|why| why.contains("was lost"));
    assert_eq!(
        (status, lost(&element.watch), element.watch.windows.len()),
        (Some(0), true, 1),
        "{stderr} {element:?}"
    );
    let kept = scratch.path("kept.json");
    let second = watching(&cluster, &["--for", "12s", "--record", kept.to_str().unwrap()]);
    watcher(&mut other);
    let has_cycle = || {
        let text = std::fs::read_to_string(&kept).ok();
        let entry = text.map(|text| serde_json::from_str::<PredictionRecord>(&text).unwrap());
        entry.is_some_and(|item| item.watch.windows.iter().any(|window| window.is_cycle))
    };
    // Two checkpoints are a cycle; then the server is gone for good.
    while !has_cycle() {
        other.execute("CREATE TABLE IF NOT EXISTS written (i int)").unwrap();
        other.execute("INSERT INTO written SELECT generate_series(1, 1000)").unwrap();
        other.execute("CHECKPOINT").unwrap();
    }
    other.close();
    cluster.stop(&mut guard, StopMode::Immediate).unwrap();
    let (status, ended, stderr) = ended(second);
    assert_eq!((status, ended.watch.complete), (Some(2), false), "{stderr}");
    assert!(ended.watch.ended.is_some() && ended.watch.windows[0].is_cycle, "{ended:?}");
    let again = run(pgtoll().args(["predict", "--json", "--from", kept.to_str().unwrap()]));
    let prediction: PredictionRecord = serde_json::from_str(&again.stdout).unwrap();
    assert!(
        prediction.answers[0].cpu.is_some() && prediction.watch.ended.is_some(),
        "{prediction:?}"
    );
    cluster.remove(&mut guard).unwrap();
}

fn judged(kept: &str, expression: &str) -> Ran {
    run(pgtoll().args(["predict", "--json", "--from", kept, "--fail-if", expression]))
}

#[test]
fn thresholds_end_with_a_status_by_the_range() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[("wal_log_hints", "on")]);
    let kept = scratch.path("kept.json");
    let kept = kept.to_str().unwrap();
    assert_eq!(predict(&cluster, "", &["--for", "1s", "--record", kept]).status, Some(0));
    let check = |expression: &str, status: i32, line: &str| {
        let ran = judged(kept, expression);
        assert_eq!(ran.status, Some(status), "{expression}: {ran:?}");
        assert!(ran.stderr.contains(line), "{expression}: {ran:?}");
    };
    // Hints are logged already: exactly no more.
    check("wal > 1%", 0, "fail-if: wal > 1%: data_checksums = on: ");
    check("wal < 1%", 1, ": threshold exceeded");
    check("cpu > 1000 cores", 0, ": kept");
    check("cpu < 1000", 1, ": threshold exceeded");
    check("max_wal_size.wal > 1%", 2, "names setting \"max_wal_size\", which is not asked about");
    check("wal > 1", 2, "hint: the form is");
    finish(cluster, &mut guard);
}

/// Of `initdb`'s own files too: the time is by a sample of what is there.
#[test]
fn the_time_to_turn_them_on_is_by_the_files_where_they_are_here() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    let item = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
    let pass = item.watch.pass.unwrap();
    assert!(pass.sample_bytes > 1 << 20 && pass.bytes >= pass.sample_bytes, "{pass:?}");
    let (least, most) = pass.seconds;
    assert!(0.0 < least && least < most, "{pass:?}");
    let bill = item.one_time.unwrap();
    assert_eq!(bill.pass_seconds, Some(pass.seconds));
    assert_eq!(
        bill.routes.iter().filter(|route| route.recommended.is_some()).count(),
        1,
        "{bill:?}"
    );
    assert!(item.answers[0].advice.as_ref().unwrap().sentence.is_some());
    let gentle = record(&predict(&cluster, "", &["--for", "1s", "--gentle", "--json"]));
    assert!(gentle.watch.pass.is_none());
    finish(cluster, &mut guard);
}

/// As libpq's: the same connection strings as every other command has.
#[test]
fn services_name_servers() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = started(&mut guard, &server(), &[]);
    let environment = cluster.environment();
    let service = scratch.path("services");
    let text = format!(
        "[watched]\nhost={}\nport={}\nuser={}\ndbname=postgres\n",
        environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
    );
    std::fs::write(&service, text).unwrap();
    let mut command = pgtoll();
    command.env("PGSERVICEFILE", &service).args(["predict", "--json", "--for", "1s"]);
    let record = record(&run(command.args(["--dsn", "service=watched"])));
    assert!(
        record.server.local && record.command.iter().any(|word| word.contains("service=watched"))
    );
    finish(cluster, &mut guard);
}
