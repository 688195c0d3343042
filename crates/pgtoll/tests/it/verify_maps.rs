//! Visibility maps beside their tables: what servers and backups leave, and what PostgreSQL says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use serde_json::Value;

use crate::repair_standby::await_replay;
use crate::support::{Scratch, pgtoll, program, run, servers};
use crate::verify::{PAGE_BYTES, check_program, execute, path_of, relation};

fn cluster(guard: &mut Guard, server: &Installation, name: &str) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("shared_buffers", "16MB"),
        ("wal_keep_size", "1GB"),
        ("hot_standby", "on"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    cluster
}

fn query(cluster: &Cluster, database: &str, sql: &str) -> Vec<String> {
    let mut session = cluster.connect(database).unwrap();
    let rows = session.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.iter().map(|row| row.values()[0].clone().unwrap_or_default()).collect()
}

/// What verify says of a running or stopped server, without a look at the table's width.
fn verified(data: &Path, arguments: &[&str], status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(data).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Blocks of a table that are found, by what of them is said.
fn blocks(output: &Value, table: &str) -> BTreeMap<String, BTreeSet<u32>> {
    let mut blocks: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let relations = output["relations"].as_array().unwrap().iter();
    for found in relations.filter(|relation| relation["name"]["relation"] == table) {
        for finding in found["findings"].as_array().unwrap() {
            let number = |key: &str| u32::try_from(finding[key].as_u64().unwrap()).unwrap();
            let words = finding["words"].as_str().unwrap();
            let words = words.split(';').next().unwrap().to_owned();
            let range = number("block")..number("block") + number("blocks");
            blocks.entry(words).or_default().extend(range);
        }
    }
    blocks
}

const VISIBLE: &str = "the visibility map says all visible";
const FROZEN: &str = "the visibility map says all frozen";
const BOTH: &str = "the visibility map says all visible and frozen";

/// Blocks of which it is said that they are not visible, and not frozen.
fn stale(output: &Value, table: &str) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let block = blocks(output, table);
    let all = |words: &[&str]| -> BTreeSet<u32> {
        words.iter().filter_map(|words| block.get(*words)).flatten().copied().collect()
    };
    (all(&[VISIBLE, BOTH]), all(&[FROZEN, BOTH]))
}

fn map_of(cluster: &Cluster, table: &str) -> PathBuf {
    let path = cluster.data().join(path_of(cluster, table));
    PathBuf::from(format!("{}_vm", path.display()))
}

fn numbers(cluster: &Cluster, sql: &str) -> BTreeSet<u32> {
    query(cluster, "postgres", sql).iter().map(|row| row.parse().unwrap()).collect()
}

/// A map that is older than its table, as an incremental backup of 17.10 leaves it.
#[test]
fn a_stale_map_is_found_as_the_server_sees_it() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_stale(&server, &mut guard);
    }
}

fn check_stale(server: &Installation, guard: &mut Guard) {
    let cluster = cluster(guard, server, "stale");
    let rows = "SELECT i AS a, repeat('x', 200) AS b FROM generate_series(1, 5000) i";
    execute(
        &cluster,
        &[
            "CREATE EXTENSION pg_visibility",
            &format!("CREATE TABLE t AS {rows}; CREATE INDEX ON t (a)"),
            &format!("CREATE TABLE cut AS {rows}; VACUUM cut"),
            "VACUUM (FREEZE) t",
        ],
    );
    let map = map_of(&cluster, "t");
    let cut = map_of(&cluster, "cut");
    cluster.stop(guard, StopMode::Fast).unwrap();
    check_program(&[], &cluster.data(), 0);
    let old = fs::read(&map).unwrap();
    let old_cut = fs::read(&cut).unwrap();
    cluster.start(guard).unwrap();
    // Deleted rows, and rows that are only locked.
    execute(
        &cluster,
        &[
            "DELETE FROM t WHERE a BETWEEN 400 AND 700; SELECT * FROM t WHERE a = 2000 FOR UPDATE",
            "DELETE FROM cut WHERE a > 3000; VACUUM cut",
        ],
    );
    cluster.stop(guard, StopMode::Fast).unwrap();
    check_program(&[], &cluster.data(), 0);
    let new = fs::read(&map).unwrap();
    let new_cut = fs::read(&cut).unwrap();
    check_other_maps(&cluster, &map, &new);

    fs::write(&map, &old).unwrap();
    fs::write(&cut, &old_cut).unwrap();
    let output = check_program(&[], &cluster.data(), 1);
    let found = stale(&output, "t");
    assert_eq!(relation(&output, "t")["severity"], "data");
    // A map that has bits of blocks that VACUUM cut off: the table is whole.
    let of_cut = relation(&output, "cut")["findings"].as_array().unwrap();
    assert_eq!((of_cut.len(), &of_cut[0]["kind"]), (1, &Value::from("map_stale")), "{of_cut:?}");
    let without_rows = check_program(&["--no-rows"], &cluster.data(), 1);
    let (visible, frozen) = stale(&without_rows, "t");
    assert_eq!((&visible, frozen), (&found.0, BTreeSet::new()));
    fs::write(&cut, &new_cut).unwrap();

    cluster.start(guard).unwrap();
    let contradict =
        "SELECT blkno FROM pg_visibility('t') WHERE all_visible AND NOT pd_all_visible";
    let thawed =
        "SELECT DISTINCT (t_ctid::text::point)[0]::int FROM pg_check_frozen('t') AS c(t_ctid)";
    assert_eq!(
        found,
        (numbers(&cluster, contradict), numbers(&cluster, thawed)),
        "{}",
        server.version
    );
    assert!(found.0.len() > 5 && found.1.len() > found.0.len(), "{found:?}");
    check_wrong_answer(&cluster, 5000);
    check_running(&cluster, &output);
    for step in relation(&output, "t")["advice"].as_array().unwrap() {
        if let Some(sql) = step["command"].as_str() {
            cluster.connect("postgres").unwrap().execute(sql).unwrap();
        }
    }
    check_wrong_answer(&cluster, 4699);
    cluster.stop(guard, StopMode::Fast).unwrap();
    check_program(&[], &cluster.data(), 0);
    cluster.remove(guard).unwrap();
}

/// An index-only scan counts what the map says.
fn check_wrong_answer(cluster: &Cluster, expected: u32) {
    let mut session = cluster.connect("postgres").unwrap();
    session.execute("SET enable_seqscan = off; SET enable_bitmapscan = off").unwrap();
    let row = session.query_one("SELECT count(*) AS n FROM t WHERE a > 0").unwrap();
    assert_eq!(row.parse::<u32>("n").unwrap(), expected);
}

/// Of a running server, and of a backup, the same is found once a checkpoint has both pages behind it.
fn check_running(cluster: &Cluster, stopped: &Value) {
    execute(cluster, &["CHECKPOINT"]);
    let message = verified(&cluster.data(), &[], 1);
    assert_eq!(stale(&message, "t"), stale(stopped, "t"), "{message:#}");
    let words = message["relations"].to_string();
    assert!(words.contains("both unchanged since 0/"), "{words}");
    let place = tempfile::tempdir().unwrap();
    let backup = place.path().join("backup");
    fs::create_dir(&backup).unwrap();
    let copied = run(program("cp").arg("-a").arg(cluster.data()).arg(&backup));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    let copy = backup.join("data");
    let redo = &query(cluster, "postgres", "SELECT redo_lsn FROM pg_control_checkpoint()")[0];
    let _ = fs::remove_file(copy.join("postmaster.pid"));
    fs::write(copy.join("backup_label"), format!("START WAL LOCATION: {redo} (file 0)\n")).unwrap();
    let output = verified(&copy, &[], 1);
    assert_eq!(stale(&output, "t"), stale(stopped, "t"), "{output:#}");
    assert!(output["relations"].to_string().contains("take a new full backup"), "{output:#}");
}

/// A map that is missing, empty or zero says nothing; a damaged page is one failure and no witness.
fn check_other_maps(cluster: &Cluster, map: &Path, whole: &[u8]) {
    let data = cluster.data();
    fs::write(map, vec![0; whole.len()]).unwrap();
    check_program(&[], &data, 0);
    fs::write(map, []).unwrap();
    check_program(&[], &data, 0);
    fs::write(map, whole).unwrap();
    let file = File::options().write(true).open(map).unwrap();
    file.write_all_at(&[0xFF; 100], 30).unwrap();
    let output = check_program(&[], &data, 1);
    assert_eq!((&output["failures"], &output["suspicions"]), (&1.into(), &0.into()), "{output:#}");
    assert!(output["relations"].to_string().contains("pg_truncate_visibility_map"), "{output:#}");
    fs::write(map, whole).unwrap();
    assert_eq!(whole.len() % PAGE_BYTES, 0);
}

/// `CREATE DATABASE` copies maps into WAL without their bits.
#[test]
fn maps_that_replay_empties_are_noted_and_harm_when_roles_change() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        check_emptied(&server, &mut guard);
    }
}

fn check_emptied(server: &Installation, guard: &mut Guard) {
    let old = cluster(guard, server, "primary");
    let name = format!("standby{}", server.version.major());
    let new = old.standby(guard, &name, old.directory()).unwrap();
    new.start(guard).unwrap();
    execute(&old, &["CREATE DATABASE tmpl STRATEGY file_copy"]);
    let mut session = old.connect("tmpl").unwrap();
    session.execute("CREATE TABLE t AS SELECT i a FROM generate_series(1, 1000) i").unwrap();
    session.execute("VACUUM (FREEZE)").unwrap();
    drop(session);
    execute(
        &old,
        &[
            "CREATE DATABASE logged TEMPLATE tmpl STRATEGY wal_log",
            "CREATE DATABASE copied TEMPLATE tmpl STRATEGY file_copy",
            "CHECKPOINT; CREATE TABLE awaited (a int); CHECKPOINT",
        ],
    );
    await_replay(&old, &new);
    // A standby's checkpoint is a restartpoint at the last one of the primary.
    execute(&new, &["CHECKPOINT"]);
    let message = verified(&new.data(), &[], 0);
    let notes = message["notes"].to_string();
    assert!(notes.contains("database \\\"logged\\\": ") && !notes.contains("copied"), "{notes}");
    let output = verified(&old.data(), &[], 0);
    assert!(!output["notes"].to_string().contains("without a bit"), "{output:#}");
    let wal = run(pgtoll().args(["wal", "stats", "--json"]).arg(old.data().join("pg_wal")));
    let notes = serde_json::from_str::<Value>(&wal.stdout).unwrap()["notes"].to_string();
    assert!(notes.contains("\\\"logged\\\": CREATE DATABASE logged"), "{notes}");
    assert!(!notes.contains("copied"), "{notes}");

    // Switched over, a row is locked where no bit has to be cleared for it; the old primary, which
    // has its bits, replays that.
    old.stop(guard, StopMode::Fast).unwrap();
    new.promote().unwrap();
    let mut session = new.connect("logged").unwrap();
    session.execute("BEGIN; SELECT * FROM t WHERE a = 500 FOR UPDATE; COMMIT; CHECKPOINT").unwrap();
    drop(session);
    guard.write(&old.data().join("standby.signal"), String::new()).unwrap();
    old.follow(guard, new.directory()).unwrap();
    old.start(guard).unwrap();
    execute(&new, &["CHECKPOINT"]);
    await_replay(&new, &old);
    execute(&old, &["CHECKPOINT"]);
    let expected = (BTreeSet::new(), BTreeSet::from([2]));
    assert_eq!(stale(&verified(&old.data(), &[], 1), "t"), expected, "{}", server.version);
    new.stop(guard, StopMode::Fast).unwrap();
    old.promote().unwrap();
    execute(&old, &["CHECKPOINT"]);
    assert_eq!(stale(&verified(&old.data(), &[], 1), "t"), expected, "{}", server.version);
    old.stop(guard, StopMode::Fast).unwrap();
    assert_eq!(stale(&verified(&old.data(), &[], 1), "t"), expected, "{}", server.version);
    for cluster in [old, new] {
        cluster.remove(guard).unwrap();
    }
}

/// Whatever sets and clears bits, while they are compared.
#[test]
fn maps_of_servers_at_work_are_no_finding() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server, "work");
        cluster.run_client(&mut guard, "pgbench", &["-i", "-q", "-s", "1", "postgres"]).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let load = threads.spawn(|| {
                let options = ["-n", "-c", "4", "-t", "2000", "postgres"];
                let output = cluster.run_client(&mut guard, "pgbench", &options);
                is_over.store(true, Ordering::Relaxed);
                output
            });
            let vacuums = threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    execute(&cluster, &WORK);
                }
            });
            let mut passes = 0;
            while !is_over.load(Ordering::Relaxed) || passes < 3 {
                let output = verified(&cluster.data(), &["--settle", "60s"], 0);
                assert_eq!(output["suspicions"], 0, "{}: {output:#}", server.version);
                passes += 1;
            }
            load.join().unwrap().unwrap();
            vacuums.join().unwrap();
        });
        cluster.kill(&mut guard).unwrap();
        let output = verified(&cluster.data(), &[], 0);
        assert_eq!(output["suspicions"], 0, "{}: {output:#}", server.version);
        cluster.remove(&mut guard).unwrap();
    }
}

const WORK: [&str; 7] = [
    "VACUUM pgbench_history",
    "VACUUM (FREEZE) pgbench_accounts",
    "SELECT count(*) FROM (SELECT 1 FROM pgbench_accounts WHERE aid % 1000 = 1 FOR UPDATE) l",
    "DELETE FROM pgbench_history WHERE random() < 0.05",
    "CHECKPOINT",
    "VACUUM pgbench_accounts",
    "CHECKPOINT",
];
