//! A server that runs is verified: nothing that it does is damage, and damage is found.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::Lsn;
use serde_json::Value;

use crate::support::{Scratch, pgtoll, program, run, servers};

const PAGE: u64 = 8192;
const PAGE_BYTES: usize = 8192;

fn execute(cluster: &Cluster, statements: &[&str]) {
    let mut session = cluster.connect("postgres").unwrap();
    for sql in statements.iter().flat_map(|sql| sql.split(';')) {
        session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Runs the program with this result, and what it says as JSON.
fn check(arguments: &[&str], data: &Path, status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(data).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// `pgbench` for as long as it is wanted.
struct Load(Child);

impl Load {
    fn begin(server: &Installation, cluster: &Cluster) -> Self {
        let mut command = program(server.bin.join("pgbench"));
        command.envs(cluster.environment()).args(["-n", "-c", "4", "-j", "1", "-T", "600"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// It has not broken off by itself.
    fn end(mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "pgbench ended");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cluster(guard: &mut Guard, server: &Installation) -> Cluster {
    let name = format!("online{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("shared_buffers", "4MB"),
        ("checkpoint_timeout", "1h"),
        ("bgwriter_lru_maxpages", "0"),
        ("max_wal_size", "256MB"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    for table in TABLES {
        let rows = "SELECT i, repeat('x', 100) b FROM generate_series(1, 3000) i";
        let kind = if table.starts_with("unlogged") { "UNLOGGED" } else { "" };
        execute(&cluster, &[&format!("CREATE {kind} TABLE {table} AS {rows}")]);
        execute(&cluster, &[&format!("CREATE INDEX {table}_i ON {table} (i); VACUUM {table}")]);
    }
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "2", "postgres"]).unwrap();
    // Nothing of the tables is in memory afterwards.
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster.start(guard).unwrap();
    cluster
}

const TABLES: [&str; 10] = [
    "bit",
    "garbage",
    "ones",
    "upper",
    "sector",
    "transposed",
    "ahead",
    "flight",
    "unlogged",
    "unlogged_read",
];

fn path_of(cluster: &Cluster, relation: &str) -> PathBuf {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = format!("SELECT pg_relation_filepath('{relation}') AS path");
    cluster.data().join(session.query_one(&sql).unwrap().text("path").unwrap())
}

fn insert_lsn(cluster: &Cluster) -> Lsn {
    let mut session = cluster.connect("postgres").unwrap();
    let row = session.query_one("SELECT pg_current_wal_insert_lsn() AS lsn").unwrap();
    row.parse("lsn").unwrap()
}

fn overwrite(path: &Path, block: u64, change: impl FnOnce(&mut [u8])) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, block * PAGE).unwrap();
    change(&mut page);
    file.write_all_at(&page, block * PAGE).unwrap();
}

/// A block that was there before the damage.
fn block(path: &Path, block: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    File::open(path).unwrap().read_exact_at(&mut page, block * PAGE).unwrap();
    page
}

fn garbage(page: &mut [u8]) {
    let mut state = 88_172_645_463_325_252_u64;
    for byte in page {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state.to_le_bytes()[0];
    }
}

/// Two numbers, the higher half first.
fn set_lsn(page: &mut [u8], lsn: Lsn) {
    let number = lsn.0.to_le_bytes();
    page[..4].copy_from_slice(&number[4..]);
    page[4..8].copy_from_slice(&number[..4]);
}

/// Relation, block and class of each finding.
fn found(output: &Value) -> Vec<(String, u64, String)> {
    let relations = output["relations"].as_array().unwrap().iter();
    let mut found: Vec<_> = relations
        .flat_map(|relation| {
            let name = relation["name"]["relation"].as_str().unwrap_or("?").to_owned();
            relation["findings"].as_array().unwrap().iter().map(move |finding| {
                let class = finding["class"].as_str().unwrap().to_owned();
                (name.clone(), finding["block"].as_u64().unwrap(), class)
            })
        })
        .collect();
    found.sort();
    found
}

fn expected(texts: &[(&str, u64, &str)]) -> Vec<(String, u64, String)> {
    let mut expected: Vec<_> = texts
        .iter()
        .map(|(name, block, class)| ((*name).to_owned(), *block, (*class).to_owned()))
        .collect();
    expected.sort();
    expected
}

#[test]
fn running_servers_are_verified() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let servers = servers();
    for (number, server) in servers.iter().enumerate() {
        // What takes long is tried on the oldest and on the newest one.
        let is_first = number == 0;
        let is_last = number + 1 == servers.len();
        let cluster = cluster(&mut guard, server);
        let load = Load::begin(server, &cluster);
        check_sound(&cluster);
        check_damage(&cluster);
        load.end();
        if is_first || is_last {
            check_in_flight(&cluster);
            check_resident(&cluster, server);
        }
        if is_first {
            check_connections(&cluster);
        }
        check_stopped(&mut guard, &cluster);
        if is_last {
            check_standby(&mut guard, &cluster);
        }
        cluster.remove(&mut guard).unwrap();
    }
}

/// Sets it when the test ends, be it by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever is made, cut off and dropped meanwhile.
fn check_sound(cluster: &Cluster) {
    let data = cluster.data();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                execute(cluster, &["CREATE TABLE come AS SELECT generate_series(1, 20000) i"]);
                execute(cluster, &["CREATE INDEX ON come (i); DELETE FROM come WHERE i > 10"]);
                execute(cluster, &["VACUUM come; TRUNCATE come; DROP TABLE come; CHECKPOINT"]);
            }
        });
        let _over = Over(&is_over);
        for _ in 0..3 {
            let output = check(&["--settle", "0s"], &data, 0);
            assert_eq!(output["outcome"], "no_damage_seen");
            assert_eq!(output["source"]["state"], "in production");
            assert!(output["running"]["server"].as_str().unwrap().contains("host="), "{output}");
            assert!(output["read"]["blocks"].as_u64().unwrap() > 5000, "{output}");
        }
    });
}

/// Damage of blocks that are not in memory is found, under load, and nothing else.
fn check_damage(cluster: &Cluster) {
    let file = |table: &str| path_of(cluster, table);
    let third = block(&file("transposed"), 3);
    let ahead = insert_lsn(cluster);
    let undo: Vec<(PathBuf, u64, Vec<u8>)> = [
        ("bit", 7),
        ("garbage", 7),
        ("ones", 7),
        ("upper", 7),
        ("sector", 7),
        ("transposed", 7),
        ("ahead", 7),
        ("unlogged", 7),
        ("bit_i", 2),
        ("sector_i", 2),
    ]
    .map(|(table, at)| (file(table), at, block(&file(table), at)))
    .into();
    overwrite(&file("bit"), 7, |page| page[5000] ^= 4);
    overwrite(&file("garbage"), 7, garbage);
    overwrite(&file("ones"), 7, |page| page.fill(0xFF));
    overwrite(&file("upper"), 7, |page| page[14..16].fill(0));
    overwrite(&file("sector"), 7, |page| page[..4096].fill(0));
    overwrite(&file("transposed"), 7, |page| page.copy_from_slice(&third));
    // It says that it was changed just now, and no WAL says so.
    overwrite(&file("ahead"), 7, |page| set_lsn(page, ahead));
    overwrite(&file("unlogged"), 7, |page| page[5000] ^= 4);
    overwrite(&file("bit_i"), 2, |page| page[5000] ^= 4);
    overwrite(&file("sector_i"), 2, |page| page[..4096].fill(0));
    let output = check(&["--settle", "0s"], &cluster.data(), 1);
    let failures = [
        ("bit", 7, "failure"),
        ("garbage", 7, "failure"),
        ("ones", 7, "failure"),
        ("upper", 7, "failure"),
        ("sector", 7, "failure"),
        ("transposed", 7, "failure"),
        ("ahead", 7, "failure"),
        ("unlogged", 7, "failure"),
        ("bit_i", 2, "failure"),
        ("sector_i", 2, "failure"),
    ];
    assert_eq!(found(&output), expected(&failures), "{output:#}");
    for (path, at, page) in undo {
        overwrite(&path, at, |now| now.copy_from_slice(&page));
    }
}

/// A block that is bad on the disk, that the server has better in memory, and of which the WAL has
/// an image: as after a write that was torn.
fn check_in_flight(cluster: &Cluster) {
    let path = path_of(cluster, "flight");
    execute(cluster, &["CHECKPOINT; UPDATE flight SET b = 'y' WHERE ctid = '(4,1)'"]);
    // The server may evict, and so write, the page at any time but while somebody is reading it.
    let mut reader = cluster.connect("postgres").unwrap();
    for sql in [
        "BEGIN",
        "DECLARE reader CURSOR FOR SELECT * FROM flight WHERE ctid = '(4,2)'",
        "FETCH reader",
    ] {
        reader.execute(sql).unwrap();
    }
    let lsn = insert_lsn(cluster);
    overwrite(&path, 4, |page| {
        set_lsn(page, lsn);
        page[5000] ^= 4;
    });
    let only = ["--only", "flight", "--settle"];
    let output = check(&[&only[..], &["0s"]].concat(), &cluster.data(), 2);
    assert_eq!(found(&output), expected(&[("flight", 4, "unverified")]), "{output:#}");
    assert_eq!(output["running"]["in_flight"], 1, "{output:#}");
    assert!(output["notes"].to_string().contains("after the next checkpoint"), "{output:#}");
    // It is waited for.
    let waits = std::thread::scope(|threads| {
        let waits = threads.spawn(|| check(&[&only[..], &["60s"]].concat(), &cluster.data(), 0));
        while !waits.is_finished() {
            execute(cluster, &["SELECT pg_sleep(1); CHECKPOINT"]);
        }
        waits.join().unwrap()
    });
    assert_eq!(found(&waits), []);
    assert_eq!(waits["running"]["suspects"], waits["running"]["healed"], "{waits:#}");
    reader.close();
}

/// What the server has in memory it has to be made to forget.
fn check_resident(cluster: &Cluster, server: &Installation) {
    let path = path_of(cluster, "unlogged_read");
    execute(cluster, &["CHECKPOINT; SELECT * FROM unlogged_read WHERE ctid = '(7,1)'"]);
    overwrite(&path, 7, |page| page[5000] ^= 4);
    let only = ["--only", "unlogged_read"];
    let result = check(&only, &cluster.data(), 2);
    assert_eq!(found(&result), expected(&[("unlogged_read", 7, "unverified")]), "{result:#}");
    execute(cluster, &["CREATE EXTENSION pg_buffercache"]);
    let can_evict = server.version.major() >= 17;
    let (status, class) = if can_evict { (1, "failure") } else { (2, "unverified") };
    let printed = check(&only, &cluster.data(), status);
    assert_eq!(found(&printed), expected(&[("unlogged_read", 7, class)]), "{printed:#}");
    if !can_evict {
        overwrite(&path, 7, |page| page[5000] ^= 4);
        return;
    }
    // A map, which SQL alone does not read.
    let map = path.with_file_name(format!("{}_fsm", path.file_name().unwrap().to_str().unwrap()));
    overwrite(&path, 7, |page| page[5000] ^= 4);
    overwrite(&map, 0, |page| page[5000] ^= 4);
    let message = check(&only, &cluster.data(), 2);
    assert_eq!(found(&message), expected(&[("unlogged_read", 0, "unverified")]), "{message:#}");
    assert!(message["notes"].to_string().contains("pageinspect"), "{message:#}");
    execute(cluster, &["CREATE EXTENSION pageinspect"]);
    let output = check(&only, &cluster.data(), 1);
    assert_eq!(found(&output), expected(&[("unlogged_read", 0, "failure")]), "{output:#}");
    assert_eq!(output["relations"][0]["severity"], "map", "{output:#}");
    overwrite(&map, 0, |page| page[5000] ^= 4);
}

/// With a connection string, without any connection, and with one to something else.
fn check_connections(cluster: &Cluster) {
    let host = cluster.data().parent().unwrap().display().to_string();
    let port = &cluster.environment()["PGPORT"];
    let user = &cluster.environment()["PGUSER"];
    let dsn = format!("host={host} port={port} user={user} dbname=postgres");
    let ran = run(pgtoll().args(["verify", "--json", "--dsn", &dsn]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed["source"]["path"], cluster.data().display().to_string());

    // Without one, what the WAL and the pages prove is told all the same.
    let path = path_of(cluster, "ones");
    let before = block(&path, 7);
    overwrite(&path, 7, |page| page.fill(0xFF));
    let map = path_of(cluster, "unlogged");
    overwrite(&map, 7, |page| page[5000] ^= 4);
    let socket = cluster.data().parent().unwrap().join(format!(".s.PGSQL.{port}"));
    let moved = socket.with_extension("moved");
    std::fs::rename(&socket, &moved).unwrap();
    let message = check(&[], &cluster.data(), 1);
    std::fs::rename(&moved, &socket).unwrap();
    let both = expected(&[("ones", 7, "failure"), ("unlogged", 7, "unverified")]);
    assert_eq!(found(&message), both, "{message:#}");
    assert!(message["notes"].to_string().contains("--dsn"), "{message:#}");
    // A socket that is found has nothing to do with the environment.
    let mut command = pgtoll();
    command.env("PGOPTIONS", "-c nonsense=1").env("PGUSER", "nonsense").env("PGSERVICE", "none");
    let ran = run(command.arg("verify").arg(cluster.data()).arg("--json"));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(output["running"]["server"].as_str().unwrap().contains(&host), "{output:#}");
    overwrite(&path, 7, |page| page.copy_from_slice(&before));
    overwrite(&map, 7, |page| page[5000] ^= 4);
}

/// A server that was stopped is none, and another one's connection is none to it.
fn check_stopped(guard: &mut Guard, cluster: &Cluster) {
    let host = cluster.data().parent().unwrap().display().to_string();
    cluster.stop(guard, StopMode::Fast).unwrap();
    let dsn = format!("host={host} user=postgres");
    let ran = run(pgtoll().arg("verify").arg(cluster.data()).args(["--dsn", &dsn]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no server runs on"), "{ran:?}");
    check(&[], &cluster.data(), 0);
}

/// A standby replays what its primary does.
fn check_standby(guard: &mut Guard, primary: &Cluster) {
    let standby = primary.copy(guard, &format!("{}-standby", primary.name())).unwrap();
    std::fs::write(standby.data().join("standby.signal"), "").unwrap();
    let environment = primary.environment();
    let [host, port, user] = ["PGHOST", "PGPORT", "PGUSER"].map(|name| &environment[name]);
    let from = format!("host={host} port={port} user={user}");
    let settings = [("primary_conninfo", &*from), ("fsync", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    standby.configure(guard, &settings.into()).unwrap();
    primary.start(guard).unwrap();
    standby.start(guard).unwrap();
    execute(primary, &["CHECKPOINT; UPDATE flight SET b = 'z' WHERE i < 500"]);
    let message = check(&["--settle", "0s"], &standby.data(), 0);
    assert_eq!(message["source"]["state"], "in archive recovery");
    let path = standby.data().join(path_of(primary, "bit").strip_prefix(primary.data()).unwrap());
    overwrite(&path, 7, |page| page[5000] ^= 4);
    let output = check(&["--settle", "0s"], &standby.data(), 1);
    assert_eq!(found(&output), expected(&[("bit", 7, "failure")]), "{output:#}");
    standby.stop(guard, StopMode::Fast).unwrap();
    primary.stop(guard, StopMode::Fast).unwrap();
    standby.remove(guard).unwrap();
}
