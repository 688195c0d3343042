//! Checkpoint cycles and pieces of WAL, of a server that runs and of one that was killed.

use pgtoll_cluster::{Cluster, Guard, Installation};
use pgtoll_format::Lsn;
use pgtoll_record::CycleBegin;
use pgtoll_wal::{End, segments};

use super::oracle::Dump;
use super::{ACCESS_METHODS, scanned};
use crate::support::{PATIENCE, Ran, Scratch, pgtoll, run, servers};

/// How much the load writes until the server is killed.
const LOAD_BYTES: u64 = 16 << 20;

#[test]
fn cycles_and_pieces_of_a_killed_server_are_what_pg_waldump_tells() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let options = ["--wal-segsize=1"];
        let cluster = Cluster::init_with(&mut guard, &server, &name, true, &options).unwrap();
        start(&cluster, &server, &mut guard);
        read_while_it_runs(&cluster, &mut guard, &name);
        load_until_killed(&cluster, &mut guard);

        let (summary, end) = scanned(&segments(&[cluster.data()]).unwrap());
        let dump = Dump::new(&server, &cluster.data().join("pg_wal"));
        dump.check(&summary, &name);
        let online =
            summary.collected.cycles.iter().filter(|cycle| cycle.begin == CycleBegin::Online);
        assert!(online.count() > 5, "{name}");
        assert!(summary.collected.pieces.len() > 100, "{name}");
        check_end(&cluster, &dump, &end, &name);
        cluster.remove(&mut guard).unwrap();
    }
}

/// Checkpoints come often, and take their time.
fn start(cluster: &Cluster, server: &Installation, guard: &mut Guard) {
    let settings = [
        ("max_wal_size", "4MB"),
        ("min_wal_size", "2MB"),
        ("checkpoint_timeout", "30s"),
        ("autovacuum_naptime", "1s"),
        ("shared_buffers", "16MB"),
        ("fsync", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    cluster.run_client(guard, "pgbench", &["-i", "-q", "postgres"]).unwrap();
    let pgbench = server.bin.join("pgbench");
    let load = ["-n", "-c", "3", "-T", "600", "postgres"];
    guard.spawn("load", &pgbench, &load, &cluster.environment()).unwrap();
}

/// Segments are removed and used again meanwhile.
fn read_while_it_runs(cluster: &Cluster, guard: &mut Guard, name: &str) {
    let mut connection = cluster.connect("postgres").unwrap();
    let mut ends = Vec::new();
    for round in 0..10 {
        if round % 3 == 0 {
            connection.execute("CHECKPOINT").unwrap();
        }
        connection.execute("SELECT pg_sleep(0.05)").unwrap();
        let record = json(cluster);
        // Where the server has just filled a segment it is read to its end.
        let is_whole = record["end"]["kind"] == "own" || record["end"]["kind"] == "complete";
        assert!(is_whole, "{name}: {}", record["end"]);
        ends.push(record["source"]["to"].as_str().unwrap().parse::<Lsn>().unwrap());
    }
    assert!(ends.is_sorted() && ends.first() < ends.last(), "{name}: {ends:?}");
    assert_eq!(guard.has_ended("load").unwrap(), None, "{name}");
}

fn load_until_killed(cluster: &Cluster, guard: &mut Guard) {
    let mut connection = cluster.connect("postgres").unwrap();
    // From here on all of it stays.
    connection.execute("ALTER SYSTEM SET wal_keep_size = '4GB'").unwrap();
    connection.execute("SELECT pg_reload_conf()").unwrap();
    let mut written = || -> u64 {
        let row =
            connection.query_one("SELECT pg_current_wal_lsn() AS lsn, pg_sleep(0.1)").unwrap();
        row.parse::<Lsn>("lsn").unwrap().0
    };
    let begin = written();
    for work in ACCESS_METHODS {
        cluster.run_psql(guard, "postgres", work).unwrap();
    }
    while written() < begin + LOAD_BYTES {}
    cluster.kill(guard).unwrap();
    guard.reap("load", PATIENCE).unwrap();
}

/// A killed server's WAL ends by itself, where `pg_waldump` says that it does; or with its last file,
/// where the server had just filled a segment.
fn check_end(cluster: &Cluster, dump: &Dump, end: &End, name: &str) {
    assert!(matches!(end, End::Own(_) | End::Complete), "{name}: {end:?}");
    if let Some(expected) = dump.end() {
        assert_eq!(end.at(), Some(expected), "{name}: {end:?}, {}", dump.error);
    }
    let record = json(cluster);
    assert_eq!(record["total"]["records"], dump.lines.len(), "{name}");
    let kind = if matches!(end, End::Complete) { "complete" } else { "own" };
    assert_eq!(record["end"]["kind"], kind, "{name}");
    let ran = stats(cluster, &["--by", "type"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{name}");
    assert!(ran.stdout.contains("Heap/HOT_UPDATE"), "{name}: {}", ran.stdout);
}

fn stats(cluster: &Cluster, arguments: &[&str]) -> Ran {
    run(pgtoll().args(["wal", "stats"]).arg(cluster.data()).args(arguments))
}

fn json(cluster: &Cluster) -> serde_json::Value {
    let ran = stats(cluster, &["--json"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    serde_json::from_str(&ran.stdout).unwrap()
}
