//! Pages shown, compared and damaged: pageinspect and the servers agree.

use std::fs;
use std::path::Path;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{PageChecksumsRecord, PageDifferenceRecord, PageRecord};

use crate::support::{Ran, Scratch, pgtoll, run, server, servers};

/// A stopped cluster with checksums, and the files of its relations by their names.
fn stopped(
    guard: &mut Guard,
    server: &Installation,
    name: &str,
) -> (Cluster, Vec<(String, String)>) {
    let cluster = Cluster::init(guard, server, name, true).unwrap();
    cluster.start(guard).unwrap();
    let script = "
        CREATE TABLE t AS SELECT i, repeat('x', 100) AS words, ARRAY[i] AS many, point(i, i) AS p
            FROM generate_series(1, 3000) i;
        CREATE INDEX t_btree ON t (i);
        CREATE INDEX t_hash ON t USING hash (i);
        CREATE INDEX t_gin ON t USING gin (many);
        CREATE INDEX t_gist ON t USING gist (p);
        CREATE INDEX t_spgist ON t USING spgist (p);
        CREATE INDEX t_brin ON t USING brin (i);
        CREATE SEQUENCE t_sequence;
        SELECT count(*) FROM t; VACUUM t; CHECKPOINT;";
    cluster.run_psql(guard, "postgres", script).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    let query = "SELECT relname AS name, pg_relation_filepath(oid) AS path FROM pg_class
                 WHERE relname ~ '^t(_|$)' ORDER BY 1";
    let rows = connection.query(query).unwrap();
    let text = |row: &pgtoll_wire::Row, name| row.text(name).unwrap().to_owned();
    let files = rows.iter().map(|row| (text(row, "name"), text(row, "path"))).collect();
    connection.close();
    (cluster, files)
}

fn json<T: serde::de::DeserializeOwned>(ran: &Ran) -> T {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn page(verb: &str, arguments: &[&str]) -> Ran {
    run(pgtoll().args(["page", verb, "--json"]).args(arguments))
}

#[test]
fn pages_are_shown_as_pageinspect_shows_them() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, files) = stopped(&mut guard, &server, &name);
        let mut connection = cluster.connect("postgres").unwrap();
        let has_pageinspect = connection.execute("CREATE EXTENSION pageinspect").is_ok();
        for (name, path) in &files {
            let file = cluster.data().join(path);
            let file = file.to_str().unwrap();
            let ran = page("show", &[file, "0"]);
            assert_eq!(ran.status, Some(0), "{ran:?}");
            let ours: PageRecord = json(&ran);
            let kind = name.strip_prefix("t_").unwrap_or("heap");
            assert_eq!(ours.kind, kind);
            assert_eq!(ours.checksum_computed, Some(ours.header.checksum), "{name}");
            let shown = run(pgtoll().args(["page", "show", file, "0"]));
            assert!(shown.stdout.contains("special"), "{shown:?}");
            let sums: PageChecksumsRecord = json(&page("checksum", &[file]));
            assert!(sums.pages.iter().all(|page| page.accepted), "{name}");
            if !has_pageinspect {
                continue;
            }
            let query = format!(
                "SELECT h.*, page_checksum(p, 0) AS sum FROM get_raw_page('{name}', 0) p, page_header(p) h"
            );
            let theirs = connection.query_one(&query).unwrap();
            let header = &ours.header;
            assert_eq!(theirs.text("lsn").unwrap(), header.lsn, "{name}");
            for (field, value) in [
                ("flags", i64::from(header.flags)),
                ("lower", header.lower.into()),
                ("upper", header.upper.into()),
                ("special", header.special.into()),
                ("pagesize", header.pagesize.into()),
                ("version", header.version.into()),
                ("prune_xid", header.prune_xid.into()),
            ] {
                assert_eq!(theirs.parse::<i64>(field).unwrap(), value, "{name} {field}");
            }
            // It is a smallint there.
            let sum = theirs.parse::<i16>("sum").unwrap().cast_unsigned();
            assert_eq!(Some(sum), ours.checksum_computed, "{name}");
        }
        connection.close();
        let heap = cluster.data().join(&files[0].1);
        for fork in ["fsm", "vm"] {
            let file = format!("{}_{fork}", heap.display());
            assert_eq!(json::<PageRecord>(&page("show", &[&file, "0"])).kind, fork);
        }
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

#[test]
fn what_is_no_page_is_an_error() {
    let scratch = Scratch::new();
    let file = scratch.path("16384");
    fs::write(&file, [7; 8192 + 5]).unwrap();
    let file = file.to_str().unwrap();
    let ran = page("show", &[file, "1"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("has 1 blocks: no block 1"), "{ran:?}");
    assert_eq!(page("show", &[file, "0"]).status, Some(1));
    assert_eq!(page("show", &[scratch.work().to_str().unwrap(), "0"]).status, Some(2));
    let ran = page("checksum", &[file]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_eq!(json::<PageChecksumsRecord>(&ran).bytes_left, 5);
}

fn corrupt(data: &Path, arguments: &[&str]) -> Ran {
    run(pgtoll().arg("corrupt").args(arguments).arg(data))
}

#[test]
fn every_damage_is_done_and_undone() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, files) = stopped(&mut guard, &server(), "one");
    let data = cluster.data();
    let name = &files[0].0;
    let file = &files[0].1;
    assert_eq!(name, "t");
    let file_path = data.join(file);
    let older = scratch.path("older");
    fs::copy(&file_path, &older).unwrap();
    let running =
        corrupt(&data, &["--file", file, "--kind", "zero", "--yes", "--undo-file", "/dev/null/x"]);
    assert_eq!(running.status, Some(2), "{running:?}");
    let undo = scratch.path("undo");
    let undo = undo.to_str().unwrap();
    let older = older.to_str().unwrap();
    let refused = corrupt(&data, &["--file", file, "--kind", "zero", "--yes", "--undo-file", undo]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("a server runs on"), "{refused:?}");
    assert!(!Path::new(undo).exists());
    // Another LSN and other bytes, so that older ones are older.
    cluster.run_psql(&mut guard, "postgres", "UPDATE t SET words = 'y' WHERE i < 200").unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let before = fs::read(&file_path).unwrap();
    let refused = corrupt(&data, &["--file", file, "--kind", "zero", "--undo-file", undo]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    for kind in [
        "bit",
        "garbage",
        "transposed",
        "torn",
        "zero",
        "zero-half",
        "stale",
        "cut",
        "cut-at-block",
        "missing-segment",
    ] {
        let target = ["--relation", "postgres.public.t", "--block", "1", "--kind", kind, "--yes"];
        let mut arguments = [&target[..], &["--undo-file", undo, "--seed", "7"]].concat();
        match kind {
            "transposed" => arguments.extend(["--with", "2"]),
            "torn" | "stale" => arguments.extend(["--older", older]),
            _ => {}
        }
        let ran = corrupt(&data, &arguments);
        assert_eq!(ran.status, Some(0), "{kind}: {ran:?}");
        assert!(fs::read(&file_path).ok().is_none_or(|now| now != before), "{kind}");
        let again = corrupt(&data, &arguments);
        assert_eq!(again.status, Some(2), "an undo file is not written over: {again:?}");
        let ran = corrupt(&data, &["--undo", undo]);
        assert_eq!(ran.status, Some(0), "{kind}: {ran:?}");
        assert!(fs::read(&file_path).unwrap() == before, "{kind}");
        fs::remove_file(undo).unwrap();
    }
    let mut connection = {
        cluster.start(&mut guard).unwrap();
        cluster.connect("postgres").unwrap()
    };
    let count = connection.query_one("SELECT count(*) AS rows FROM t").unwrap();
    assert_eq!(count.parse::<u64>("rows").unwrap(), 3000);
}

#[test]
fn a_page_is_compared_with_an_older_one() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, files) = stopped(&mut guard, &server(), "one");
    let file = cluster.data().join(&files[0].1);
    let older = scratch.path("older");
    let compare = || page("diff", &[older.to_str().unwrap(), file.to_str().unwrap(), "0"]);
    fs::copy(&file, &older).unwrap();
    assert_eq!(compare().status, Some(0));
    let script = "BEGIN; DELETE FROM t WHERE i = 1; ROLLBACK; CHECKPOINT;";
    cluster.run_psql(&mut guard, "postgres", script).unwrap();
    fs::copy(&file, &older).unwrap();
    // Who reads the row notes that its deletion was rolled back.
    cluster.run_psql(&mut guard, "postgres", "SELECT count(*) FROM t; CHECKPOINT").unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let ran = compare();
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let found: PageDifferenceRecord = json(&ran);
    assert_eq!((&*found.hints, &*found.items), (&[1][..], &[][..]), "{}", ran.stdout);
    // With checksums the first hint after a checkpoint takes a record of WAL, and so an LSN.
    let fields: Vec<&str> = found.header.iter().map(|field| field.name.as_str()).collect();
    // That there is nothing to prune may be noted too.
    assert!(fields.starts_with(&["lsn", "checksum"]), "{}", ran.stdout);
}

/// A page that a running server does not have in memory can be damaged; one that it has cannot.
#[test]
fn a_running_server_keeps_what_it_has_in_memory() {
    let scratch = Scratch::new();
    for server in servers() {
        let mut guard = scratch.guard();
        let name = format!("live{}", server.version.major());
        let cluster = Cluster::init(&mut guard, &server, &name, true).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut session = cluster.connect("postgres").unwrap();
        let rows = "SELECT i, repeat('x', 100) b FROM generate_series(1, 3000) i";
        session.execute(&format!("CREATE TABLE t AS {rows}")).unwrap();
        session.execute("CHECKPOINT").unwrap();
        drop(session);
        let undo = scratch.path(&format!("undo{}", server.version.major()));
        let data = cluster.data();
        let damage = |arguments: &[&str]| {
            let block = ["--online", "--relation", "postgres.public.t", "--block", "7"];
            let undo = ["--kind", "bit", "--yes", "--undo-file", undo.to_str().unwrap()];
            let ran = corrupt(&data, &[&block[..], &undo, arguments].concat());
            (ran.status, ran.stderr)
        };
        let (status, message) = damage(&[]);
        assert_eq!(status, Some(2), "{message}");
        assert!(message.contains("CREATE EXTENSION pg_buffercache"), "{message}");
        execute(&cluster, "CREATE EXTENSION pg_buffercache");
        let (status, output) = damage(&[]);
        assert_eq!(status, Some(2), "{output}");
        assert!(output.contains("in memory"), "{output}");
        assert!(!undo.exists(), "nothing was damaged");
        // What a server has in memory it has no more after a restart.
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.start(&mut guard).unwrap();
        assert_eq!(damage(&[]).0, Some(0));
        let verified = run(pgtoll().args(["verify", "--json"]).arg(&data));
        assert_eq!(verified.status, Some(1), "{verified:?}");
        assert!(verified.stdout.contains("\"block\": 7,"), "{verified:?}");
        let healed = corrupt(&data, &["--online", "--undo", undo.to_str().unwrap()]);
        assert_eq!(healed.status, Some(0), "{healed:?}");
        execute(&cluster, "SELECT count(b) FROM t");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let refused = corrupt(&data, &["--online", "--undo", undo.to_str().unwrap()]);
        assert!(refused.stderr.contains("no server runs on"), "{refused:?}");
        guard.finish().unwrap();
    }
    scratch.assert_empty();
}

fn execute(cluster: &Cluster, sql: &str) {
    cluster.connect("postgres").unwrap().execute(sql).unwrap();
}
