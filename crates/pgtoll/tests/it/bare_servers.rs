//! Servers of all majors, those among them that came without client programs: what needs none of these.

use std::fs;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::VerificationRecord;

use crate::support::{Ran, Scratch, all_servers, flip, pgtoll, run, small_measure};

const PAGE_BYTES: u64 = 8192;

#[test]
fn measuring_takes_a_server_without_client_programs() {
    let mut majors = Vec::new();
    for server in all_servers() {
        if server.program("pgbench").is_ok() && server.program("pg_checksums").is_ok() {
            continue;
        }
        majors.push(server.version.major());
        let scratch = Scratch::new();
        let ran = run(small_measure(&scratch).arg("--postgres").arg(&server.bin));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains(&format!("PostgreSQL {}", server.version)), "{ran:?}");
        let record = fs::read_to_string(scratch.path("result/run.jsonl")).unwrap();
        assert!(record.contains("\"wal_images\":"), "{record}");
        assert!(!record.contains("\"wal_images\":null"), "{record}");
        scratch.assert_empty();
    }
    println!("measured with {majors:?}");
}

/// The server itself is the judge: it reads its tables with checksums that it did not write, and refuses
/// the page that pgtoll calls damaged.
#[test]
fn every_major_takes_checksums_from_pgtoll_and_agrees_on_damage() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in all_servers() {
        let (cluster, table) = filled(&mut guard, &server);
        let name = server.version.to_string();
        let data = cluster.data();
        let change = |word: &str| run(pgtoll().args([word, "--no-sync"]).arg(&data));
        let enabled = change("enable");
        assert_eq!(enabled.status, Some(0), "{name}: {enabled:?}");
        let (status, sound) = verified(&cluster);
        assert_eq!(status, Some(0), "{name}: {sound:?}");
        assert_eq!(read_all(&cluster, &mut guard), Ok(()), "{name}");

        flip(&data.join(&table), 3 * PAGE_BYTES + 5000);
        let (status, damaged) = verified(&cluster);
        assert_eq!(status, Some(1), "{name}: {damaged:?}");
        let text = serde_json::to_string(&damaged).unwrap();
        assert!(text.contains(&table) && text.contains("\"block\":3"), "{name}: {text}");
        let refused = read_all(&cluster, &mut guard).unwrap_err();
        assert!(refused.contains("invalid page in block 3"), "{name}: {refused}");

        let disabled = change("disable");
        assert_eq!(disabled.status, Some(0), "{name}: {disabled:?}");
        assert_eq!(read_all(&cluster, &mut guard), Ok(()), "{name}");
        cluster.remove(&mut guard).unwrap();
    }
}

/// A stopped cluster without checksums, and the path of a table's file in it.
fn filled(guard: &mut Guard, server: &Installation) -> (Cluster, String) {
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, false).unwrap();
    cluster.start(guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    let fill = "CREATE TABLE t AS SELECT i, repeat(md5(i::text), 20) AS s FROM generate_series(1, 2000) i; \
                ALTER TABLE t ADD PRIMARY KEY (i); DELETE FROM t WHERE i % 7 = 0; VACUUM t";
    for statement in fill.split(';') {
        connection.execute(statement).unwrap();
    }
    let row = connection.query_one("SELECT pg_relation_filepath('t') AS path").unwrap();
    let path = row.text("path").unwrap().to_owned();
    connection.close();
    cluster.stop(guard, StopMode::Fast).unwrap();
    (cluster, path)
}

fn verified(cluster: &Cluster) -> (Option<i32>, VerificationRecord) {
    let ran: Ran = run(pgtoll().args(["verify", "--json"]).arg(cluster.data()));
    let record = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran.status, record)
}

/// What the server says to reading all of the table and its index.
fn read_all(cluster: &Cluster, guard: &mut Guard) -> Result<(), String> {
    cluster.start(guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    let outcome =
        connection.execute("SELECT sum(length(s)) FROM t; SELECT count(i) FROM t WHERE i > 0");
    connection.close();
    cluster.stop(guard, StopMode::Fast).unwrap();
    outcome.map(drop).map_err(|error| error.to_string())
}
