//! `pgtoll lab bridge`, with Redis, on servers of each version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use pgtoll_cluster::Origin;
use pgtoll_record::{BridgeRecord, BridgeStep};

use crate::support::{
    PATIENCE, Ran, Scratch, end_at_line, ends_within, pgtoll, pid_of, program, run, servers,
    trusted_directory, write_program,
};

/// Whether Redis is there. Where the tests were set up it must be.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
pub(crate) fn redis() -> bool {
    if ["redis-server", "redis-cli"].iter().all(|name| Path::new(BIN).join(name).is_file()) {
        return true;
    }
    // `cargo xtask test` installs it.
    let is_set_up = std::env::var_os("PGTOLL_TEST_MAJORS").is_some();
    assert!(!is_set_up, "Redis is not installed");
    eprintln!("not tested: Redis is not installed");
    false
}

/// Where Debian has Redis.
const BIN: &str = "/usr/bin";

fn lab(scratch: &Scratch) -> Command {
    let mut command = pgtoll();
    command.args(["lab", "bridge", "--json", "--work-dir"]).arg(scratch.work());
    command
}

/// A lab whose `redis-cli` is this script; `$REAL` in it is the real one.
fn with_client(command: &mut Command, script: &str) -> Ran {
    let directory = trusted_directory();
    let client = directory.path().join("redis-cli");
    write_program(&client, &format!("#!/bin/sh\nREAL={BIN}/redis-cli\n{script}\n"));
    let path = std::env::var("PATH").unwrap();
    run(command.env("PATH", format!("{}:{path}", directory.path().display())))
}

#[test]
fn every_step_shows_what_the_book_says() {
    if !redis() {
        return;
    }
    let scratch = Scratch::new();
    for server in servers() {
        let name = server.version.to_string();
        let file = scratch.path(&format!("bridge-{name}.json"));
        let mut command = lab(&scratch);
        let ran = run(command.arg("--postgres").arg(&server.bin).arg("--record").arg(&file));
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        let record: BridgeRecord = serde_json::from_str(&ran.stdout).unwrap();
        assert!(record.complete && record.steps.iter().all(|step| step.complete), "{name}");
        assert!(record.redis.starts_with("Redis "), "{}", record.redis);
        let checks = record.steps.iter().flat_map(|step| &step.checks);
        let failed: Vec<_> = checks.filter(|check| !check.holds).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        assert!(record.steps.iter().all(|step| !step.checks.is_empty()), "{name}");
        let mut tables: Vec<_> = record.scans.iter().map(|scan| &*scan.table).collect();
        tables.sort_unstable();
        assert_eq!(tables, ["carts", "orders", "regions"], "{name}");
        // Nothing of this run is in it.
        assert!(!ran.stdout.contains(&*scratch.work().to_string_lossy()), "{name}: {}", ran.stdout);
        check_the_book(&record);
        let written: BridgeRecord =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(written.steps.len(), record.steps.len());
        let shown = run(pgtoll().arg("report").arg(&file));
        assert!(shown.stdout.contains("checks hold: one query joins"), "{shown:?}");
        let again = run(lab(&scratch).arg("--record").arg(&file));
        assert_eq!(again.status, Some(2), "{again:?}");
        assert!(again.stderr.contains("hint: name a new file"), "{again:?}");
    }
    scratch.assert_empty();
}

fn step<'a>(record: &'a BridgeRecord, name: &str) -> &'a BridgeStep {
    record.steps.iter().find(|step| step.name == name).unwrap()
}

/// The book's foreign table of Redis is the one that was made; the record has the SQL of the other steps.
fn check_the_book(record: &BridgeRecord) {
    let chapter = fs::read_to_string(root().join("docs/src/lab.md")).unwrap();
    let tables = step(record, "tables").statements.iter();
    let mut carts = tables.filter(|table| table.sql.contains("TABLE carts"));
    let sql = carts.next().unwrap().sql.trim_end();
    assert!(chapter.contains(sql), "not in the book: {sql}");
    for name in ["join", "observatory"] {
        assert!(!step(record, name).statements.is_empty(), "{name}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_observatorys_table_has_the_columns_of_reports_csv() {
    if !redis() {
        return;
    }
    let scratch = Scratch::new();
    let ran = run(&mut lab(&scratch));
    let record: BridgeRecord = serde_json::from_str(&ran.stdout).unwrap();
    let samples = &step(&record, "observatory").statements[0];
    assert!(samples.sql.contains("FOREIGN TABLE samples"), "{samples:?}");
    let (_, columns) = samples.sql.split_once('(').unwrap();
    let (columns, _) = columns.split_once(')').unwrap();
    let names: Vec<&str> =
        columns.split(',').filter_map(|column| column.split_whitespace().next()).collect();
    let csv = run(pgtoll()
        .args(["report", "--format", "csv"])
        .arg(root().join("records/2026-11-22-pg17")));
    let titles = csv.stdout.lines().next().unwrap();
    assert_eq!(names.join(","), titles, "{csv:?}");
}

#[test]
fn a_redis_that_dies_fails_the_query_and_nothing_is_called_passed() {
    if !redis() {
        return;
    }
    let scratch = Scratch::new();
    // The fourth word is the socket.
    let script = "case \"$*\" in *' carts') \"$REAL\" -s \"$4\" shutdown nosave;; esac\n\
                  exec \"$REAL\" \"$@\"";
    let ran = with_client(&mut lab(&scratch), script);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let record: BridgeRecord = serde_json::from_str(&ran.stdout).unwrap();
    let names: Vec<_> = record.steps.iter().map(|step| (&*step.name, step.complete)).collect();
    assert_eq!(names, [("tables", true), ("join", false)], "{ran:?}");
    assert!(!record.complete && record.scans.is_empty(), "{ran:?}");
    let join = &record.steps[1];
    assert!(join.checks.is_empty(), "{join:?}");
    assert!(join.statements[0].result.starts_with("ERROR 38000: program "), "{join:?}");
    assert!(ran.stderr.contains("ended early: step join: "), "{ran:?}");
    let file = scratch.path("bridge.json");
    fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert!(shown.stdout.contains("Step join was not done to its end"), "{shown:?}");
    assert!(!shown.stdout.contains("All "), "{shown:?}");
    scratch.assert_empty();
}

#[test]
fn an_answer_that_is_wrong_is_a_finding() {
    if !redis() {
        return;
    }
    let scratch = Scratch::new();
    // The first of the hash's rows is lost; its titles come before it.
    let script =
        "case \"$*\" in *' carts') \"$REAL\" \"$@\" | sed 2d;; *) exec \"$REAL\" \"$@\";; esac";
    let ran = with_client(&mut lab(&scratch), script);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: BridgeRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert!(
        record.steps.iter().any(|step| step.name == "join" && !step.checks[0].holds),
        "{ran:?}"
    );
    scratch.assert_empty();
}

#[test]
fn a_redis_that_is_missing_or_too_old_is_refused_with_a_hint() {
    let scratch = Scratch::new();
    let ran = run(lab(&scratch).env("PATH", "/nowhere"));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    let expected = "pgtoll: no redis-server found in PATH and /usr/sbin\n\
                    hint: apt install redis-server redis-tools\n";
    assert_eq!(ran.stderr, expected);
    if !redis() {
        return;
    }
    let script = "[ \"$1\" = -e ] && { echo \"Unrecognized option or bad number of args for: '-e'\"; \
                  exit 1; }\nexec \"$REAL\" \"$@\"";
    let ran = with_client(&mut lab(&scratch), script);
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("has no option -e"), "{ran:?}");
    assert!(ran.stderr.ends_with("hint: install Redis 7 or later\n"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn a_server_without_an_extension_is_refused_with_a_hint() {
    if !redis() {
        return;
    }
    // Those that were fetched run wherever they lie.
    let Some(server) = servers().into_iter().find(|server| server.origin == Origin::Embedded)
    else {
        eprintln!("not tested: no server that could be copied");
        return;
    };
    let scratch = Scratch::new();
    let copy = scratch.path("server");
    let copied = run(program("cp").arg("-a").arg(server.bin.parent().unwrap()).arg(&copy));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    fs::remove_file(copy.join("share/extension/file_fdw.control")).unwrap();
    let ran = run(lab(&scratch).arg("--postgres").arg(&copy));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("has no extension file_fdw"), "{ran:?}");
    assert!(ran.stderr.contains("hint: install the server's contrib package"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn however_a_bridge_ends_nothing_stays_behind() {
    if !redis() {
        return;
    }
    // Redis is frozen and killed in the step after the last of these.
    for (signal, reported) in [
        (Signal::SIGINT, "join"),
        (Signal::SIGKILL, "torn-commit"),
        (Signal::SIGINT, "observatory"),
    ] {
        let scratch = Scratch::new();
        let record = scratch.path("record.json");
        let mut command = lab(&scratch);
        command.arg("--record").arg(&record).stdout(Stdio::null());
        end_at_line(&mut command, &format!("pgtoll: {reported}: "), signal);
        scratch.assert_empty();
        let text = fs::read_to_string(&record).unwrap();
        let record: BridgeRecord = serde_json::from_str(&text).unwrap();
        assert!(record.steps.iter().any(|step| step.name == reported), "{record:?}");
    }
}

#[test]
fn two_bridges_stand_side_by_side() {
    if !redis() {
        return;
    }
    let scratch = Scratch::new();
    let start = || {
        let mut command = lab(&scratch);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    for mut lab in [start(), start()] {
        assert!(ends_within(pid_of(&lab), PATIENCE), "a lab does not end beside another");
        assert_eq!(lab.wait().unwrap().code(), Some(0));
    }
    scratch.assert_empty();
}
