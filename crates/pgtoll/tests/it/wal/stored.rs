//! WAL in an object store: the answers are those of the same archive in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_testing::{ObjectFault, ObjectServer};
use serde_json::Value;

use super::{ACCESS_METHODS, segment_names};
use crate::fleet::{gzipped, json, run_fleet};
use crate::support::{Scratch, pgtoll, run, servers};

/// An archive of a cluster's segments, laid out and packed as barman-cloud, pgBackRest and WAL-G do, in
/// a directory and in a store.
fn archive(scratch: &Scratch, store: &ObjectServer, wal: &Path, name: &str) -> PathBuf {
    let directory = scratch.path(name);
    for (number, segment) in segment_names(wal).iter().enumerate() {
        let bytes = fs::read(wal.join(segment)).unwrap();
        let sum = "0123456789abcdef0123456789abcdef01234567";
        let (file, packed) = match number % 4 {
            0 => (segment.clone(), bytes),
            1 => (format!("{segment}.gz"), gzipped(&bytes)),
            2 => (format!("{segment}-{sum}.zst"), zstd::encode_all(&*bytes, 1).unwrap()),
            // Barman keeps the name of what it packs.
            _ => (segment.clone(), gzipped(&bytes)),
        };
        let key = format!("{}/{file}", &segment[..16]);
        let path = directory.join(&key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &packed).unwrap();
        store.put(&format!("archive/{name}/wals/{key}"), &packed);
    }
    store.put(&format!("archive/{name}/wals/00000002.history"), b"1\t0/3000000\tno reason\n");
    store.put(&format!("archive/{name}/base/data.tar"), &[0; 1024]);
    directory
}

/// What does not say where the WAL lies, and when it was read.
fn contents(mut record: Value) -> Value {
    let object = record.as_object_mut().unwrap();
    for name in ["command", "made", "source", "sources"] {
        object.remove(name);
    }
    record
}

#[test]
fn wal_in_a_store_is_what_it_is_in_a_directory() {
    let scratch = Scratch::new();
    let store = ObjectServer::start();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let options = ["--wal-segsize=1"];
        let cluster =
            pgtoll_cluster::Cluster::init_with(&mut guard, &server, &name, true, &options).unwrap();
        cluster.start(&mut guard).unwrap();
        for script in ACCESS_METHODS {
            cluster.run_psql(&mut guard, "postgres", script).unwrap();
        }
        cluster.stop(&mut guard, pgtoll_cluster::StopMode::Fast).unwrap();
        let directory = archive(&scratch, &store, &cluster.data().join("pg_wal"), &name);
        let local = directory.to_string_lossy();
        let url = format!("s3://archive/{name}");
        for words in [&["stats"][..], &["whatif", "--max-wal-size", "64MB,1GB"]] {
            let command = |place: &str| {
                let mut all = vec!["wal", words[0], place, "--json"];
                all.extend(&words[1..]);
                json(&run_fleet(&store, &all, 0))
            };
            let expected = contents(command(&local));
            assert_eq!(contents(command(&url)), expected, "{name} {words:?}");
            assert_eq!(contents(command(&format!("file://{local}"))), expected, "{name} {words:?}");
        }
        cluster.remove(&mut guard).unwrap();
    }
    guard.finish().unwrap();
}

#[test]
fn what_a_store_does_not_give_is_told_and_the_rest_is_shown() {
    let scratch = Scratch::new();
    let store = ObjectServer::start();
    let mut guard = scratch.guard();
    let server = crate::support::server();
    let cluster =
        pgtoll_cluster::Cluster::init_with(&mut guard, &server, "one", true, &["--wal-segsize=1"])
            .unwrap();
    // All that was written, and no file for later.
    let settings = [("wal_keep_size", "1GB"), ("wal_recycle", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(&mut guard, &settings.into()).unwrap();
    cluster.start(&mut guard).unwrap();
    cluster.run_psql(&mut guard, "postgres", ACCESS_METHODS[0]).unwrap();
    cluster.stop(&mut guard, pgtoll_cluster::StopMode::Fast).unwrap();
    let wal = cluster.data().join("pg_wal");
    archive(&scratch, &store, &wal, "one");
    let stats = ["wal", "stats", "s3://archive/one", "--threads", "1"];

    let check = |words: &[&str], expected: &[&str]| {
        let ran = run_fleet(&store, words, 2);
        for part in expected {
            assert!(ran.stderr.contains(part), "{part}: {ran:?}");
        }
    };
    store.fail(ObjectFault::Cut, 1);
    run_fleet(&store, &stats, 0);
    store.fail(ObjectFault::Deny, 1000);
    check(&stats, &["access denied", "hint: the credentials need s3:GetObject"]);
    store.fail(ObjectFault::Expire, 1000);
    check(&stats, &["credentials are missing, wrong or expired", "hint: set AWS_ACCESS_KEY_ID"]);
    store.fail(ObjectFault::Cut, 0);
    check(&["wal", "stats", "s3://archive/two"], &["holds no WAL segment", "hint: "]);
    let names: Vec<String> = segment_names(&wal).into_iter().collect();
    assert!(names.len() > 6, "{names:?}");
    store.remove(&format!("archive/one/wals/{}/{}", &names[4][..16], names[4]));
    check(&stats, &[&format!("segment {} is missing", names[4]), "hint: "]);
    let without = run(pgtoll().args(["wal", "stats", "ftp://archive/one"]));
    assert_eq!(without.status, Some(2), "{without:?}");
    guard.finish().unwrap();
}
