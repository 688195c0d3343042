//! `pgtoll measure --against`: servers compared on the same work.

use std::fs;

use pgtoll_cluster::Installation;
use pgtoll_record::{Line, Run, ShippedValues};

use crate::support::{Scratch, pgtoll, run, servers, small_measure};

/// The oldest and the newest of the tests' servers.
fn two_servers() -> (Installation, Installation) {
    let mut servers = servers();
    servers.sort_by_key(|server| server.version.major());
    let new = servers.pop().unwrap();
    assert!(
        !servers.is_empty(),
        "one server is there, two are needed; hint: run `cargo xtask test`"
    );
    (servers.swap_remove(0), new)
}

#[test]
fn two_versions_are_compared_on_the_same_rows() {
    let (old, new) = two_servers();
    let scratch = Scratch::new();
    let mut command = small_measure(&scratch);
    command.arg("--postgres").arg(&old.bin).arg("--against").arg(&new.bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let versions = format!("PostgreSQL {} and {}", old.version, new.version);
    assert!(ran.stdout.contains(&versions), "{}", ran.stdout);
    let text = fs::read_to_string(scratch.path("result").join("run.jsonl")).unwrap();
    let record = Run::parse(&text).unwrap();
    let arms = &record.header.arms;
    assert_eq!(arms.len(), 3, "{arms:?}");
    let version = |arm: usize| arms[arm].server.as_ref().unwrap().version.clone();
    assert_eq!(
        (version(0), version(1), version(2)),
        (old.version.clone(), new.version, old.version)
    );
    assert_eq!(arms[2].twin_of.as_ref(), Some(&arms[0].name));
    let lines = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
    let prepared = lines.filter_map(|line| match line {
        Line::Prepared(prepared) => Some(prepared),
        _ => None,
    });
    let prepared: Vec<_> = prepared.collect();
    let builds = &prepared[0].builds;
    assert_eq!(builds.len(), 2, "{builds:?}");
    assert!(builds.iter().all(|build| build.postgres_sha256.len() == 64 && build.cflags.is_some()));
    assert!(builds[0].differing.is_empty(), "the baseline differs from nothing");
    let is_gone = |values: &ShippedValues| values.arm.is_none();
    assert!(builds[1].differing.values().any(is_gone), "{:?}", builds[1].differing);
    assert!(ran.stdout.contains("as shipped"), "{}", ran.stdout);
    scratch.assert_empty();
}

#[test]
fn rows_that_a_setup_makes_otherwise_each_time_are_an_error() {
    let (old, new) = two_servers();
    let scratch = Scratch::new();
    let setup = scratch.path("setup.sql");
    fs::write(&setup, "CREATE TABLE stamped AS SELECT clock_timestamp() AS at;").unwrap();
    let mut command = small_measure(&scratch);
    command.arg("--setup").arg(&setup);
    command.arg("--postgres").arg(&old.bin).arg("--against").arg(&new.bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("table public.stamped does not hold the same rows"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("hint: let the set-up make the same rows"), "{}", ran.stderr);
    scratch.assert_empty();
}

#[test]
fn servers_that_cannot_be_compared_are_refused_before_anything_is_made() {
    let server = servers().remove(0);
    let scratch = Scratch::new();
    let empty = scratch.path("empty");
    fs::create_dir(&empty).unwrap();
    let bin = server.bin.to_string_lossy().into_owned();
    let cases = [
        (empty.to_string_lossy().into_owned(), "holds no PostgreSQL server"),
        ("12".to_owned(), "PostgreSQL 12 is not supported"),
        (bin, "are the same server"),
    ];
    for (against, message) in cases {
        let mut command = pgtoll();
        command.args(["measure", "--postgres"]).arg(&server.bin);
        command.arg("--against").arg(&against).arg("--work-dir").arg(scratch.work());
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message) && ran.stderr.contains("hint: "), "{}", ran.stderr);
        scratch.assert_empty();
    }
}
