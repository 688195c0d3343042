//! Each mistake gets one clear line, a hint, and status 2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::posix_fallocate;
use nix::unistd::geteuid;
use pgtoll_record::Run;

use crate::support::{
    Scratch, all_servers, pgtoll, pgtoll_for_all, pid_of, program, run, server, set_mode,
    small_measure, trusted_directory, write_program,
};

fn check(command: &mut Command, expected: &str) {
    let ran = run(command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert_eq!(ran.stdout, "", "{ran:?}");
    let output: Vec<&str> =
        ran.stderr.lines().filter(|line| !line.starts_with("pgtoll: warning: ")).collect();
    assert_eq!(output.join("\n"), expected);
}

#[test]
fn wrong_servers() {
    let measure = |postgres: &str| {
        let mut command = pgtoll();
        command.args(["--quiet", "measure", "--postgres", postgres]);
        command
    };
    check(
        &mut measure("/usr"),
        "pgtoll: /usr holds no PostgreSQL server: postgres is missing\n\
         hint: --postgres takes the directory that holds bin/postgres, or bin itself; \
         `pgtoll postgres list` shows what is installed",
    );
    check(
        &mut measure("/does/not/exist"),
        "pgtoll: /does/not/exist holds no PostgreSQL server: postgres is missing\n\
         hint: --postgres takes the directory that holds bin/postgres, or bin itself; \
         `pgtoll postgres list` shows what is installed",
    );
    check(
        &mut measure("9"),
        "pgtoll: PostgreSQL 9 is not supported (supported: 13 to 19)\n\
         hint: name another server with --postgres DIR|MAJOR",
    );
    let installed: Vec<u32> = all_servers().iter().map(|server| server.version.major()).collect();
    // No package of these is known.
    let other = [19, 15].into_iter().find(|major| !installed.contains(major)).unwrap();
    let missing = format!(
        "pgtoll: no PostgreSQL {other} found\nhint: `pgtoll postgres list` shows what is installed"
    );
    check(&mut measure(&other.to_string()), &missing);
}

#[test]
fn an_unsupported_version_and_a_program_that_is_none() {
    let scratch = Scratch::new();
    let fake = |says: &str| {
        let bin = scratch.path("bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["postgres", "initdb"] {
            write_program(&bin.join(name), &format!("#!/bin/sh\necho '{says}'\n"));
        }
        let mut command = pgtoll();
        command.args(["--quiet", "measure", "--postgres"]).arg(bin);
        command
    };
    check(
        &mut fake("postgres (PostgreSQL) 12.4"),
        &format!(
            "pgtoll: {}: PostgreSQL 12 is not supported (supported: 13 to 19)\n\
             hint: name another server with --postgres DIR|MAJOR",
            scratch.path("bin").display()
        ),
    );
    let bin = scratch.path("bin/postgres").display().to_string();
    check(
        &mut fake("hello"),
        &format!(
            "pgtoll: ask {bin} for its version: \"hello \" names no PostgreSQL version\n\
             hint: name another server with --postgres DIR|MAJOR"
        ),
    );
}

#[test]
fn wrong_experiments() {
    let scratch = Scratch::new();
    check(
        pgtoll().args(["measure", "checksum"]),
        "pgtoll: no experiment \"checksum\"\n\
         hint: built in: checksums, checksums-disk, init-matrix, first-select, \
         second-select, insert-update, big-insert, dump, cached-reads, web-oltp, append-log, \
         etl-scatter, unlogged-ingest, cpu-bound-checksum, durability-ladder, \
         checkpoint-distance, wal-compression, torn-page-protection, aio-scan, parallel-dump, \
         verify-load, null; or give the path of a TOML file",
    );
    check(
        pgtoll().args(["measure", "./none.toml"]),
        "pgtoll: read ./none.toml: No such file or directory (os error 2)",
    );
    let file = scratch.path("bad.toml");
    fs::write(&file, "name = 1\n").unwrap();
    let ran = run(pgtoll().arg("measure").arg(&file));
    assert_eq!(ran.status, Some(2));
    let first = ran.stderr.lines().next().unwrap();
    let expected =
        format!("{}:1:8: \"name\" is an integer, where a string belongs", file.display());
    assert_eq!(ran.stderr.lines().filter(|line| line.ends_with(" is missing")).count(), 4);
    assert!(ran.stderr.contains(&expected), "{first}");
}

#[test]
fn wrong_flags() {
    for (arguments, expected) in [
        (vec!["measure", "--rounds", "0"], "0 is not in 1..=1000"),
        (vec!["measure", "--slice", "1us"], "not between 5ms and 10s"),
        (vec!["measure", "--slice", "50"], "not a time like 90s"),
        (vec!["measure", "--scale", "many"], "invalid digit"),
        (vec!["measuer"], "a similar subcommand exists: 'measure'"),
        (vec!["measure", "--postgre", "18"], "a similar argument exists: '--postgres'"),
        (vec!["report"], "<RECORD>"),
    ] {
        let ran = run(pgtoll().args(&arguments));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
}

#[test]
fn closed_and_impossible_directories() {
    let scratch = Scratch::new();
    check(
        pgtoll().args(["--quiet", "measure", "--work-dir", "/does/not/exist"]),
        "pgtoll: find /does/not/exist: No such file or directory (os error 2)\n\
         hint: name a directory that exists with --work-dir",
    );
    let deep = scratch.work().join("d".repeat(60));
    fs::create_dir(&deep).unwrap();
    set_mode(&deep, 0o777);
    let ran = run(small_measure(&scratch).arg("--quiet").arg("--work-dir").arg(&deep));
    assert!(ran.stderr.contains("is too long a path for Unix sockets"), "{ran:?}");
    assert!(ran.stderr.contains("hint: name a shorter directory with --work-dir"), "{ran:?}");
    let existing = scratch.path("result");
    fs::create_dir_all(&existing).unwrap();
    fs::write(existing.join("run.jsonl"), "what was there").unwrap();
    check(
        small_measure(&scratch).arg("--quiet").arg("--output").arg(&existing),
        &format!(
            "pgtoll: {} holds a record already\nhint: name another directory with --output",
            existing.display()
        ),
    );
    assert_eq!(fs::read_to_string(existing.join("run.jsonl")).unwrap(), "what was there");
    fs::remove_dir(deep).unwrap();
    scratch.assert_empty();
}

#[test]
fn a_directory_that_the_servers_user_cannot_reach() {
    if !geteuid().is_root() {
        // An ordinary user's servers run as itself: its own closed directories are as closed.
        return check(
            pgtoll().args(["--quiet", "measure", "--work-dir", "/root"]),
            "pgtoll: find /root: Permission denied (os error 13)\n\
             hint: name a directory that exists with --work-dir",
        );
    }
    let scratch = Scratch::new();
    let closed = scratch.path("closed");
    fs::create_dir_all(closed.join("inside")).unwrap();
    set_mode(&closed, 0o700);
    check(
        small_measure(&scratch).arg("--quiet").arg("--work-dir").arg(closed.join("inside")),
        &format!(
            "pgtoll: user postgres cannot enter {0}\n\
             hint: chmod a+x {0}, or use a directory outside it (--work-dir for data, \
             --postgres for programs)",
            closed.display()
        ),
    );
    set_mode(&closed, 0o755);
    let inside = closed.join("inside").display().to_string();
    check(
        small_measure(&scratch)
            .args(["--quiet", "--output"])
            .arg(scratch.path("other"))
            .args(["--work-dir", &inside]),
        &format!(
            "pgtoll: user postgres cannot write to {inside}\n\
             hint: name another directory with --work-dir, or let that user write to {inside}"
        ),
    );
}

#[test]
fn too_much_data_is_refused_before_anything_starts() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).args(["--quiet", "--scale", "100000"]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("are needed\nhint: name another disk with --work-dir"), "{ran:?}");
    scratch.assert_empty();
}

/// A command in which `directory` is a small file system of its own.
fn on_small_disk(directory: &Path, size: &str, command: &Command) -> Command {
    let mut inside = unshared();
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    inside.arg(format!(
        "mount -t tmpfs -o size={size},mode=1777 tmpfs {} && exec {}",
        directory.display(),
        words.join(" ")
    ));
    inside
}

/// `sh -c` in a mount namespace of its own.
pub(crate) fn unshared() -> Command {
    let mut command = program("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "sh", "-c"]);
    command
}

#[test]
fn a_disk_that_is_too_small() {
    let scratch = Scratch::new();
    let ran = run(&mut on_small_disk(&scratch.work(), "100m", &small_measure(&scratch)));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("has 100 MB free, and 517 MB are needed"), "{ran:?}");
    let ran =
        run(on_small_disk(&scratch.path("work"), "0", &small_measure(&scratch))
            .stdout(Stdio::null()));
    assert_eq!(ran.status, Some(0), "size=0 is no limit: {ran:?}");
}

/// Takes all that is free on a disk, at once: while bytes are written one after the other, a server
/// fails first, and the space that its end sets free is written full too.
fn fill(path: &Path) {
    let file = fs::File::create(path).unwrap();
    let mut length = 0;
    for size in (12..30).rev().map(|exponent| 1 << exponent) {
        while posix_fallocate(&file, length, size).is_ok() {
            length += size;
        }
    }
    assert!(length > 0, "nothing was free");
}

#[test]
fn a_disk_that_fills_up_in_the_middle() {
    let scratch = Scratch::new();
    let mut command = on_small_disk(&scratch.work(), "640m", &small_measure(&scratch));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = Vec::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "pgtoll: pgbench --initialize --scale 1" {
            // The disk is the run's own, seen through its process.
            let disk = format!("/proc/{}/root{}", pid_of(&child), scratch.work().display());
            fill(&Path::new(&disk).join("full"));
        }
        output.push(line);
    }
    assert_eq!(child.wait().unwrap().code(), Some(2), "{output:#?}");
    let last = &output[output.len() - 2..];
    // The program that failed reports it, or pgtoll does, or the check of the space that the next
    // step needs: it depends on how far pgbench came before the disk was full.
    let error = &last[0];
    let hint = &last[1];
    let is_full = [" is full: ", "No space left on device"].iter().any(|text| error.contains(text));
    let is_short = error.contains(" free, and ") && error.ends_with(" are needed");
    assert!(error.starts_with("pgtoll: ") && (is_full || is_short), "{output:#?}");
    let expected = if is_full { "hint: free some space" } else { "hint: name another disk" };
    assert!(hint.starts_with(expected), "{output:#?}");
}

#[test]
fn a_server_without_its_companions() {
    let scratch = Scratch::new();
    let bin = scratch.path("bin");
    fs::create_dir(&bin).unwrap();
    // Not links: initdb looks for postgres beside its real place.
    for name in ["postgres", "initdb"] {
        fs::copy(server().bin.join(name), bin.join(name)).unwrap();
    }
    let ran = run(small_measure(&scratch).args(["--quiet", "--postgres"]).arg(&bin));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let output: Vec<&str> = ran.stderr.lines().collect();
    assert!(output[0].starts_with("pgtoll: initdb failed (exit status 1): "), "{ran:?}");
    assert!(output[1].starts_with("hint: is that a whole installation?"), "{ran:?}");
    assert_eq!(output.len(), 2);
    scratch.assert_empty();
}

/// As some packages have it: `postgres` and `initdb` with their libraries, and no client programs.
fn server_alone(scratch: &Scratch) -> PathBuf {
    let from = server().bin;
    let to = scratch.path("alone");
    fs::create_dir_all(to.join("bin")).unwrap();
    for name in ["postgres", "initdb"] {
        fs::copy(from.join(name), to.join("bin").join(name)).unwrap();
    }
    for name in ["lib", "share"] {
        let companions = from.parent().unwrap().join(name);
        if companions.exists() {
            symlink(companions, to.join(name)).unwrap();
        }
    }
    to
}

#[test]
fn a_server_without_client_programs_is_measured() {
    let scratch = Scratch::new();
    let alone = server_alone(&scratch);
    // The servers' user runs `pgtoll enable` here.
    let mut command = program(pgtoll_for_all(&scratch));
    command.args([
        "measure",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small.toml"),
        "--json",
    ]);
    command.args(["--rounds", "2", "--round-time", "400ms", "--repetitions", "1", "--postgres"]);
    command.arg(&alone).arg("--work-dir").arg(scratch.work()).arg("-o").arg(scratch.path("result"));
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record = fs::read_to_string(scratch.path("result/run.jsonl")).unwrap();
    let record = Run::parse(&record).unwrap();
    let images = |arm: &str| {
        let counted = record
            .counted
            .iter()
            .find(|counted| counted.workload == "writes" && counted.arm == arm);
        counted.unwrap().counters.wal_by_type["XLOG/FPI_FOR_HINT"].records
    };
    assert!(images("checksums") > 0, "{:?}", record.counted);
    scratch.assert_empty();
}

#[test]
fn programs_that_are_needed_are_missed_before_anything_is_made() {
    let scratch = Scratch::new();
    let alone = server_alone(&scratch);
    // A path of which nothing is left would be the system's.
    let nothing = trusted_directory();
    let check = |work: &mut dyn FnMut(&mut Command), missing: &str| {
        let mut command = pgtoll();
        command.args(["measure", "--postgres"]).arg(&alone).env("PATH", nothing.path());
        command.arg("--work-dir").arg(scratch.work()).arg("-o").arg(scratch.path("result"));
        work(&mut command);
        let ran = run(&mut command);
        let expected = format!("\npgtoll: {}/bin has no {missing}\nhint: ", alone.display());
        assert!(ran.stderr.contains(&expected), "{ran:?}");
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(!scratch.path("result/run.jsonl").exists(), "a record was begun");
    };
    let [script, own] = ["own.sql", "own.toml"].map(|name| scratch.path(name));
    fs::write(&script, "SELECT 1;\n").unwrap();
    let with_setup = &mut |command: &mut Command| {
        command.arg("--workload").arg(&script).arg("--setup").arg(&script);
    };
    check(with_setup, "psql");
    let text = "name = \"own\"\nquestion = \"?\"\nbaseline = \"a\"\nscale = 1\n\
                [[arms]]\nname = \"a\"\n[[arms]]\nname = \"b\"\nchecksums = true\n\
                [[workloads]]\nname = \"w\"\ntitle = \"w\"\ntable = \"pgbench_accounts\"\n\
                steps = [{ pgbench = \"dtg\", measure = \"load\", title = \"load\" }]\n";
    fs::write(&own, text).unwrap();
    let with_step = &mut |command: &mut Command| {
        command.arg(&own);
    };
    check(with_step, "pgbench");
}
