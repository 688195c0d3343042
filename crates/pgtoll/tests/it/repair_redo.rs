//! `pgtoll repair` from WAL alone: blocks of every kind, made anew by the server's own redo.

use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::PageKind;

use crate::repair::{
    are_masked_equal, backup, check_checksums, classes, cluster, content, damage, lsn, next_value,
    open, put_back, read_page, repair, repair_any, shown,
};
use crate::support::{Scratch, server, servers};
use crate::verify::{PAGE, check_program, execute, overwrite, path_of};

/// A table in a tablespace with an index of each kind, changed after a checkpoint so that there are
/// images, and after these.
pub(crate) const KINDS: [&str; 4] = [
    "CREATE TABLE k (a int, b text, c int[], p point, x inet) TABLESPACE elsewhere",
    "CREATE INDEX k_hash ON k USING hash (a); CREATE INDEX k_gin ON k USING gin (c);
     CREATE INDEX k_gist ON k USING gist (p); CREATE INDEX k_spgist ON k USING spgist (x inet_ops);
     CREATE INDEX k_brin ON k USING brin (a) WITH (pages_per_range = 4);
     CREATE INDEX k_btree ON k (b)",
    "INSERT INTO k SELECT i, md5(i::text), ARRAY[i % 50, i % 77], point(i % 100, i / 100),
        ('10.0.' || i % 250 || '.' || i % 199)::inet FROM generate_series(1, 6000) i",
    "CHECKPOINT",
];

const CHANGES: [&str; 3] = [
    "UPDATE k SET b = 'new ' || a, p = point(a % 90, 3) WHERE a % 5 = 0; DELETE FROM k WHERE a % 7 = 0",
    "INSERT INTO k SELECT i, md5(i::text), ARRAY[i % 50], point(i, i), '10.1.2.3'
        FROM generate_series(6001, 7000) i; UPDATE t SET b = 'hot' WHERE a % 11 = 0",
    "INSERT INTO long VALUES (99, repeat('hot', 3000)); SELECT nextval('s')",
];

const NAMES: [&str; 10] =
    ["k", "k_hash", "k_gin", "k_gist", "k_spgist", "k_brin", "k_btree", "t", "t_pkey", "s"];

/// All of it, by index and by scan.
const KINDS_CONTENT: &str =
    "SELECT md5(string_agg(a || b || c::text || p::text || x::text, ',' ORDER BY a))
    AS content FROM k";

fn kinds(guard: &mut Guard, server: &Installation, name: &str) -> Cluster {
    let cluster = cluster(guard, server, name);
    let place = cluster.directory().join("elsewhere");
    guard.run(Path::new("mkdir"), &[shown(&place)]).unwrap();
    execute(&cluster, &[&format!("CREATE TABLESPACE elsewhere LOCATION '{}'", shown(&place))]);
    execute(&cluster, &KINDS);
    cluster
}

fn kinds_content(cluster: &Cluster) -> String {
    let mut session = cluster.connect("postgres").unwrap();
    session.query_one(KINDS_CONTENT).unwrap().text("content").unwrap().to_owned()
}

fn files(cluster: &Cluster) -> Vec<PathBuf> {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT reltoastrelid::regclass::text AS toast FROM pg_class WHERE relname = 'long'";
    let toast = session.query_one(sql).unwrap().text("toast").unwrap().to_owned();
    let names = NAMES.iter().map(|name| (*name).to_owned());
    names.chain([toast]).map(|name| path_of(cluster, &name)).collect()
}

#[test]
fn blocks_of_every_kind_are_made_anew_from_wal_alone() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        check_kinds(&scratch, &mut guard, &server);
    }
}

fn check_kinds(scratch: &Scratch, guard: &mut Guard, server: &Installation) {
    let cluster = kinds(guard, server, "alone");
    execute(&cluster, &CHANGES);
    // Compressed images, from here on.
    execute(&cluster, &["SET wal_compression = pglz", "CHECKPOINT"]);
    execute(&cluster, &["ALTER SYSTEM SET wal_compression = pglz", "SELECT pg_reload_conf()"]);
    execute(&cluster, &["UPDATE k SET b = 'newer ' || a WHERE a % 40 = 0", "VACUUM k"]);
    let files = files(&cluster);
    let expected = content(&cluster);
    let of_kinds = kinds_content(&cluster);
    cluster.stop(guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let before = damage(&data, &files, 90);
    let output = repair_any(scratch, &data, &["--yes"]);
    assert_eq!(output["blocks"].as_array().unwrap().len(), before.len(), "{output:#}");
    assert_eq!(output["sources"][0]["kind"], "wal", "{output:#}");
    put_back(&data, &output, &before);
    for block in
        output["blocks"].as_array().unwrap().iter().filter(|array| array["installed"] == true)
    {
        assert!(["exact", "proved"].contains(&block["class"].as_str().unwrap()), "{block:#}");
    }
    for ((file, number), right) in &before {
        let now = read_page(&data.join(file), *number);
        assert_eq!(lsn(&now), lsn(right), "{} {number}", file.display());
        if PageKind::from_page(right) == PageKind::Heap {
            assert!(are_masked_equal(&now, right), "{} {number}", file.display());
        }
    }
    check_checksums(guard, server, &cluster);
    check_program(&[], &data, 0);
    cluster.start(guard).unwrap();
    execute(&cluster, &["CREATE EXTENSION amcheck"]);
    cluster.run_client(guard, "pg_amcheck", &["--heapallindexed", "-d", "postgres"]).unwrap();
    assert_eq!((content(&cluster), kinds_content(&cluster)), (expected, of_kinds));
    check_indexes(&cluster);
    assert!((3..=35).contains(&next_value(&cluster)));
    cluster.stop(guard, StopMode::Fast).unwrap();
}

/// Each index finds what a scan of the table finds.
pub(crate) fn check_indexes(cluster: &Cluster) {
    let mut session = cluster.connect("postgres").unwrap();
    let conditions = [
        "a = 4444",
        "c @> ARRAY[7]",
        "p <@ box '((0,0),(50,50))'",
        "x << '10.0.17.0/24'",
        "a BETWEEN 100 AND 900",
        "b LIKE 'new%' AND b >= 'new' AND b < 'nex'",
    ];
    let mut found = 0;
    for condition in conditions {
        let mut count = |setting: &str| {
            session.execute(setting).unwrap();
            let row = session.query_one(&format!("SELECT count(*) AS n FROM k WHERE {condition}"));
            row.unwrap().text("n").unwrap().to_owned()
        };
        let by_scan = count("SET enable_indexscan = off; SET enable_bitmapscan = off");
        let by_index = count("RESET ALL; SET enable_seqscan = off");
        assert_eq!(by_scan, by_index, "{condition}");
        found += u32::from(by_scan != "0");
    }
    assert!(found > 2, "rows are there to be found");
}

#[test]
fn redo_passes_a_switch_of_timelines_and_ends_where_wal_does() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "switched");
    let backup = backup(&mut guard, &cluster);
    let table = path_of(&cluster, "t");
    execute(&cluster, &["CHECKPOINT", "UPDATE t SET b = 'first' WHERE a < 100"]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    fs::write(cluster.data().join("standby.signal"), "").unwrap();
    cluster.start(&mut guard).unwrap();
    cluster.promote().unwrap();
    execute(&cluster, &["UPDATE t SET b = 'second' WHERE a < 50", "CHECKPOINT"]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let path = data.join(&table);
    let right = read_page(&path, 0);
    let spoil = || overwrite(&open(&path), 0, |page| page[..64].fill(0xA5));
    spoil();
    // Without the server there is the backup alone, which is too old.
    let from = ["--from-backup", shown(&backup)];
    let printed_text = repair(&scratch, &data, &[&from[..], &["--no-redo"]].concat(), 1);
    assert_eq!(classes(&printed_text)[0].0, "refused", "{printed_text:#}");
    let result = repair(&scratch, &data, &[&from[..], &["--yes"]].concat(), 0);
    assert_eq!(result["wal"]["timeline"], 2, "{result:#}");
    assert_eq!(
        (classes(&result)[0].0, result["blocks"][0]["chosen"].as_u64()),
        ("proved", Some(1))
    );
    let now = read_page(&path, 0);
    assert!(lsn(&now) == lsn(&right) && are_masked_equal(&now, &right));
    check_program(&[], &data, 0);
    // Servers accept a page of zeros, and an old one: WAL shows what they should be.
    overwrite(&open(&path), 0, |page| page.fill(0));
    let printed = repair(&scratch, &data, &["--yes"], 0);
    assert_eq!(classes(&printed)[0].0, "proved", "{printed:#}");
    assert!(are_masked_equal(&read_page(&path, 0), &right));
    let old = read_page(&backup.join(&table), 0);
    overwrite(&open(&path), 0, |page| page.copy_from_slice(&old));
    let message = repair(&scratch, &data, &["--yes"], 0);
    assert_eq!(classes(&message)[0].0, "proved", "{message:#}");
    assert!(message["blocks"][0]["damage"].as_str().unwrap().starts_with("old: "), "{message:#}");
    assert!(are_masked_equal(&read_page(&path, 0), &right));
    check_program(&[], &data, 0);
    overwrite(&open(&path), 0, |page| page.copy_from_slice(&right));
    // With a gap behind the last image nothing is made anew.
    spoil();
    let damaged = fs::read(&path).unwrap();
    let mut segments: Vec<PathBuf> =
        fs::read_dir(data.join("pg_wal")).unwrap().map(|dir| dir.unwrap().path()).collect();
    segments.retain(|segment| segment.file_name().unwrap().len() == 24);
    segments.sort();
    let last = segments.pop().unwrap();
    fs::rename(&last, scratch.path("last")).unwrap();
    let output = repair(&scratch, &data, &["--yes"], 1);
    assert_eq!(classes(&output)[0].0, "refused", "{output:#}");
    assert!(fs::read(&path).unwrap() == damaged);
    assert_eq!(fs::metadata(&path).unwrap().len() % PAGE, 0);
}

#[test]
fn a_backup_in_tars_has_pages_of_tablespaces_too() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = kinds(&mut guard, &server, "tars");
    execute(&cluster, &["SELECT count(*) FROM k", "VACUUM (FREEZE) k", "CHECKPOINT"]);
    let place = cluster.directory().join("backup");
    let arguments = ["-D", shown(&place), "-c", "fast", "--no-sync", "-Ft", "-z"];
    cluster.run_client(&mut guard, "pg_basebackup", &arguments).unwrap();
    execute(&cluster, &["UPDATE t SET b = 'hot' WHERE a = 1", "CHECKPOINT"]);
    let files = files(&cluster);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let mut before = damage(&data, &files, 60);
    // One that WAL changed since is among them.
    let hot = (files[7].clone(), 0);
    let path = data.join(&hot.0);
    before.entry(hot).or_insert_with(|| read_page(&path, 0));
    overwrite(&open(&path), 0, |page| page[..64].fill(0xA5));
    let from = ["--from-backup", shown(&place), "--no-redo", "--yes"];
    let printed = repair(&scratch, &data, &from, 1);
    for block in printed["blocks"].as_array().unwrap() {
        let key =
            (PathBuf::from(block["path"].as_str().unwrap()), block["block"].as_u64().unwrap());
        if block["installed"] == true {
            assert!(read_page(&data.join(&key.0), key.1) == before[&key], "{block:#}");
        } else if !block["last_record"].is_null() {
            let reason = block["reason"].as_str().unwrap();
            assert!(reason.contains("older than the last record"), "{block:#}");
        }
    }
    // What the backup has too old is made from WAL.
    let message = repair_any(&scratch, &data, &["--from-backup", shown(&place), "--yes"]);
    put_back(&data, &message, &before);
    check_checksums(&mut guard, &server, &cluster);
    // A tar that was cut off is no source.
    let base = place.join("base.tar.gz");
    let whole = fs::read(&base).unwrap();
    fs::write(&base, &whole[..whole.len() / 2]).unwrap();
    overwrite(&open(&data.join(&files[0])), 1, |page| page[..64].fill(0xA5));
    let output = repair(&scratch, &data, &from, 1);
    let why = output["sources"][0]["refused"].as_str().unwrap();
    assert!(why.contains("base.tar.gz"), "{why}");
}
