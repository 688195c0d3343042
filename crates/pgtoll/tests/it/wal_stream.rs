//! `pgtoll wal stats` of a running server: streamed, and named by it.

use std::path::Path;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{WalAmount, WalEndKind, WalStatisticsRecord};

use crate::support::{Scratch, pgtoll, program, run, servers};

fn stats(arguments: &[&str]) -> WalStatisticsRecord {
    let ran = run(pgtoll().args(["wal", "stats", "--json"]).args(arguments));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// `pg_waldump`'s totals from one place to another.
fn theirs(server: &Installation, wal: &Path, statistics: &WalStatisticsRecord) -> WalAmount {
    let mut command = program(server.bin.join("pg_waldump"));
    command.args(["--stats", "--path"]).arg(wal);
    command.arg(format!("--start={}", statistics.source.from.unwrap()));
    command.arg(format!("--end={}", statistics.source.to.unwrap()));
    let ran = run(&mut command);
    let total = ran.stdout.lines().find(|line| line.starts_with("Total")).unwrap();
    // Percentages are in brackets or have a point.
    let numbers: Vec<u64> = total.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    WalAmount { records: numbers[0], record_bytes: numbers[1], image_bytes: numbers[2] }
}

const WORK: &str = "CREATE SCHEMA app; CREATE TABLE app.\"Orders\" (id int PRIMARY KEY, t text);
    INSERT INTO app.\"Orders\" SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i;
    CHECKPOINT; UPDATE app.\"Orders\" SET t = '' WHERE id % 7 = 0";

#[test]
fn a_servers_wal_is_streamed_and_named() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let cluster = Cluster::init(&mut guard, &server, &name, true).unwrap();
        let settings = [("wal_keep_size", "1GB"), ("autovacuum", "off")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.configure(&mut guard, &settings.into()).unwrap();
        cluster.start(&mut guard).unwrap();
        for statement in WORK.split(';') {
            cluster.run_psql(&mut guard, "postgres", statement).unwrap();
        }
        let environment = cluster.environment();
        let host = &environment["PGHOST"];
        let port = &environment["PGPORT"];
        let user = &environment["PGUSER"];
        let dsn = format!("host={host} port={port} user={user} dbname=postgres");
        let streamed = stats(&["--dsn", &dsn]);
        assert_eq!(streamed.end.kind, WalEndKind::Complete, "{name}");
        assert_eq!(streamed.source.major, server.version.major());
        let wal = cluster.data().join("pg_wal");
        assert_eq!(streamed.total, theirs(&server, &wal, &streamed), "{name}");
        assert!(streamed.total.records > 2000, "{name}: {:?}", streamed.total);
        check_names(&streamed);
        let read = stats(&[wal.to_str().unwrap(), "--dsn", &dsn]);
        assert!(read.source.to >= streamed.source.to, "{name}");
        check_names(&read);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let by_files = stats(&[cluster.data().to_str().unwrap()]);
        check_names(&by_files);
        check_other_cluster(&server, &cluster, &mut guard);
        cluster.remove(&mut guard).unwrap();
    }
}

fn check_names(statistics: &WalStatisticsRecord) {
    let names = statistics.relations.iter().filter_map(|relation| relation.name.as_ref());
    let table = names.clone().find(|name| name.relation == "Orders").unwrap();
    assert_eq!((&*table.database, &*table.schema, &*table.kind), ("postgres", "app", "table"));
    let index = names.clone().find(|name| name.relation == "Orders_pkey").unwrap();
    assert_eq!((index.of.as_deref(), &*index.kind), (Some("app.Orders"), "index"));
    assert_eq!(statistics.databases[0].name.as_deref(), Some("postgres"));
    assert!(statistics.names.is_some());
}

/// Names of another cluster name nothing here; what was counted is shown all the same.
fn check_other_cluster(server: &Installation, cluster: &Cluster, guard: &mut Guard) {
    let other = Cluster::init(guard, server, "other", false).unwrap();
    let data = [cluster.data(), other.data()].map(|path| path.to_str().unwrap().to_owned());
    let stat = stats(&[&data[0], "--names", &data[1]]);
    assert!(stat.relations.iter().all(|relation| relation.name.is_none()));
    assert!(stat.total.records > 2000 && stat.notes[0].contains("is of another cluster"));
    other.remove(guard).unwrap();
}

#[test]
fn a_server_that_cannot_be_reached_is_one_clear_line() {
    let scratch = Scratch::new();
    let dsn = format!("host={} user=nobody password=secret", scratch.work().display());
    let ran = run(pgtoll().args(["wal", "stats", "--dsn", &dsn]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("pgtoll: could not connect to "), "{ran:?}");
    assert!(lines[1].starts_with("hint: ") && !ran.stderr.contains("secret"), "{ran:?}");
    let ran = run(pgtoll().args(["wal", "stats", "--dsn", "host=a nonsense=1"]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("nonsense"), "{ran:?}");
}
