//! WAL and B-trees as evidence against pages of a server that runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use serde_json::Value;

use crate::support::{Scratch, pgtoll, run, servers};
use crate::verify::{PAGE, PAGE_BYTES, execute, path_of};

const TABLES: [&str; 5] = ["stale", "zero", "zero_index", "cut", "visible"];

fn cluster(guard: &mut Guard, server: &Installation, name: &str, wal_keep_size: &str) -> Cluster {
    let name = format!("{name}{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("checkpoint_timeout", "1h"),
        ("max_wal_size", "64MB"),
        ("min_wal_size", "32MB"),
        ("wal_keep_size", wal_keep_size),
        ("wal_recycle", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    for table in TABLES {
        let rows = "SELECT i, repeat('x', 100) AS b FROM generate_series(1, 6000) i";
        execute(&cluster, &[&format!("CREATE TABLE {table} AS {rows}")]);
        execute(&cluster, &[&format!("CREATE INDEX {table}_i ON {table} (i)")]);
    }
    execute(&cluster, &["DROP INDEX visible_i", "VACUUM visible"]);
    cluster
}

/// Nothing of the tables is in the server's memory afterwards.
fn restart(guard: &mut Guard, cluster: &Cluster) {
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster.start(guard).unwrap();
}

fn check(arguments: &[&str], data: &Path, status: i32) -> Value {
    let ran = run(pgtoll().arg("verify").arg(data).arg("--json").args(arguments));
    assert_eq!(ran.status, Some(status), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn kinds(output: &Value, name: &str) -> Vec<(u64, String)> {
    let relations = output["relations"].as_array().unwrap();
    let found = relations.iter().find(|relation| relation["name"]["relation"] == name);
    let found = found.unwrap_or_else(|| panic!("{name}: {output:#}"));
    let findings = found["findings"].as_array().unwrap();
    let kind = |finding: &Value| {
        let kind = finding["kind"].as_str().unwrap().to_owned();
        (finding["block"].as_u64().unwrap(), kind)
    };
    findings.iter().map(kind).collect()
}

fn file(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn zero_block(path: &Path, block: u64) {
    file(path).write_all_at(&[0; PAGE_BYTES], block * PAGE).unwrap();
}

#[test]
fn lost_writes_zeros_and_cut_files_are_found_beside_a_server() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server, "wal", "1GB");
        let data = cluster.data();
        let path = |relation: &str| -> PathBuf { data.join(path_of(&cluster, relation)) };
        restart(&mut guard, &cluster);
        let mut old = [0; PAGE_BYTES];
        file(&path("stale")).read_exact_at(&mut old, 3 * PAGE).unwrap();
        execute(&cluster, &["UPDATE stale SET b = 'y'"]);
        restart(&mut guard, &cluster);
        let message = check(&[], &data, 0);
        assert_eq!(message["outcome"], "no_damage_seen");
        file(&path("stale")).write_all_at(&old, 3 * PAGE).unwrap();
        zero_block(&path("zero"), 7);
        zero_block(&path("zero_index_i"), 4);
        file(&path("cut")).set_len(20 * PAGE).unwrap();
        let output = check(&[], &data, 1);
        assert_eq!(kinds(&output, "stale"), [(3, "lost_write".to_owned())]);
        assert_eq!(kinds(&output, "zero"), [(7, "zero_but_logged".to_owned())]);
        assert_eq!(kinds(&output, "zero_index_i"), [(4, "zero_but_logged".to_owned())]);
        assert_eq!(kinds(&output, "cut"), [(20, "missing_but_logged".to_owned())]);
        assert_eq!(output["relations"].as_array().unwrap().len(), 4, "{output:#}");
        assert_eq!(check(&["--quick"], &data, 0)["outcome"], "no_damage_seen");
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn zeros_are_found_beside_a_server_that_has_no_old_wal() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = cluster(&mut guard, &server, "trees", "0");
        let data = cluster.data();
        let path = |relation: &str| -> PathBuf { data.join(path_of(&cluster, relation)) };
        for _ in 0..4 {
            execute(&cluster, &["CREATE TABLE filler (i int)", "DROP TABLE filler"]);
            execute(&cluster, &["SELECT pg_switch_wal()", "CHECKPOINT"]);
        }
        restart(&mut guard, &cluster);
        check(&[], &data, 0);
        zero_block(&path("zero"), 7);
        zero_block(&path("zero_index_i"), 4);
        zero_block(&path("visible"), 9);
        let message = check(&[], &data, 1);
        assert_eq!(kinds(&message, "zero"), [(7, "zero_but_indexed".to_owned())]);
        assert_eq!(kinds(&message, "zero_index_i"), [(4, "zero_but_linked".to_owned())]);
        assert_eq!(kinds(&message, "visible"), [(9, "zero_but_visible".to_owned())]);
        // A table that is emptied and filled again leads to nothing that was there before.
        execute(&cluster, &["TRUNCATE zero, zero_index, visible"]);
        let output = check(&[], &data, 0);
        assert_eq!(output["relations"].as_array().unwrap().len(), 0, "{output:#}");
        cluster.remove(&mut guard).unwrap();
    }
}
