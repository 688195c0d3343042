//! `pgtoll measure --against`: servers compared on the same work.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use pgtoll_cluster::Installation;
use pgtoll_record::{ArmBuild, Line, Run, ShippedValues};

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

fn builds(record: &str) -> Vec<ArmBuild> {
    let lines = record.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
    let mut builds = lines.filter_map(|line| match line {
        Line::Prepared(prepared) => Some(prepared.builds),
        _ => None,
    });
    builds.next().unwrap()
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
    let builds = &builds(&text);
    assert_eq!(builds.len(), 2, "{builds:?}");
    assert!(builds.iter().all(|build| build.postgres_sha256.len() == 64 && build.cflags.is_some()));
    assert!(builds[0].differing.is_empty(), "the baseline differs from nothing");
    let is_gone = |values: &ShippedValues| values.arm.is_none();
    assert!(builds[1].differing.values().any(is_gone), "{:?}", builds[1].differing);
    assert!(ran.stdout.contains("as shipped"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("plans: those of the scripts' statements are alike"),
        "{}",
        ran.stdout
    );
    scratch.assert_empty();
}

#[test]
fn code_is_compared_with_code_on_the_settings_of_one_server() {
    let (old, new) = two_servers();
    let scratch = Scratch::new();
    let script = scratch.path("has-settings-of-the-new.sql");
    // It was 1 before PostgreSQL 18. Divides by zero where a server does not have what it was given.
    fs::write(&script, "SELECT 1 / (current_setting('effective_io_concurrency') = '16')::int;")
        .unwrap();
    let mut command = small_measure(&scratch);
    command.arg("--workload").arg(&script);
    command.arg("--postgres").arg(&old.bin).arg("--against").arg(&new.bin);
    command.arg("--settings-of").arg(&new.bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let text = fs::read_to_string(scratch.path("result").join("run.jsonl")).unwrap();
    let builds = builds(&text);
    assert_eq!(builds[0].pinned["effective_io_concurrency"], "16");
    assert!(builds[1].pinned.is_empty(), "{builds:?}");
    // It was a boolean before PostgreSQL 18.
    assert!(!builds[0].pinned.contains_key("log_connections"));
    let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("; it refuses ") && words.contains(" value of log_connections"),
        "{words}"
    );
    scratch.assert_empty();
}

#[test]
fn a_statement_that_servers_plan_otherwise_is_named_with_both_plans() {
    let (old, new) = two_servers();
    let scratch = Scratch::new();
    let script = scratch.path("distinct.sql");
    // Since PostgreSQL 18 a self-join on a key is one scan.
    let sql = "SELECT count(*) FROM pgbench_tellers a JOIN pgbench_tellers b USING (tid);";
    fs::write(&script, sql).unwrap();
    let mut command = small_measure(&scratch);
    command.arg("--workload").arg(&script);
    command.arg("--postgres").arg(&old.bin).arg("--against").arg(&new.bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("plans: 1 of 1 differ"), "{}", ran.stdout);
    let record = scratch.path("result").join("run.jsonl");
    let page = run(pgtoll().arg("report").arg(&record).args(["--format", "html"]));
    let (_, plans) = page.stdout.split_once("Plans that differ").unwrap();
    assert!(plans.contains("Join") && plans.contains("pgbench_tellers b"), "{plans}");
    assert!(page.stdout.contains("Build of ") && page.stdout.contains("SHA-256"));
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
    let foreign = scratch.path("foreign");
    fs::create_dir(&foreign).unwrap();
    for name in ["postgres", "initdb"] {
        // The head of a program for ARM's 64 bit processors, or Intel's.
        let machine = if cfg!(target_arch = "x86_64") { 0xb7 } else { 0x3e };
        let mut program = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
        program.extend([machine, 0, 1, 0, 0, 0]);
        program.resize(4096, 0);
        fs::write(foreign.join(name), program).unwrap();
        fs::set_permissions(foreign.join(name), Permissions::from_mode(0o755)).unwrap();
    }
    let cases = [
        (foreign.to_string_lossy().into_owned(), "Exec format error"),
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
