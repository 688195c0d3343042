//! Experiments of one's own: `--check`, `--list`, mistakes with their places, expectations.

use std::fs;

use pgtoll_record::{Outcome, RunResult};

use crate::support::{Scratch, pgtoll, run};

const SMALL: &str = include_str!("small.toml");

#[test]
fn an_experiment_in_which_nothing_is_wrong() {
    let scratch = Scratch::new();
    let file = scratch.path("my.toml");
    fs::write(&file, SMALL).unwrap();
    let ran = run(pgtoll().args(["measure", "--check", "--seed", "1"]).arg(&file));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let mut lines = ran.stdout.lines();
    let expected = format!("{}: 3 arms, 3 workloads: valid", file.display());
    assert_eq!(lines.next(), Some(expected.as_str()));
    assert_eq!(lines.next(), Some("experiment small: Does all of it run?"));
}

#[test]
fn the_built_in_experiments_are_listed() {
    let ran = run(pgtoll().args(["measure", "--list"]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let names: Vec<&str> = ran.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "checksums",
            "checksums-disk",
            "init-matrix",
            "first-select",
            "second-select",
            "insert-update",
            "big-insert",
            "dump",
            "cached-reads",
            "web-oltp",
            "append-log",
            "etl-scatter",
            "unlogged-ingest",
            "cpu-bound-checksum",
            "durability-ladder",
            "checkpoint-distance",
            "wal-compression",
            "torn-page-protection",
            "aio-scan",
            "parallel-dump",
            "verify-load",
            "null"
        ]
    );
    assert!(ran.stdout.contains("What do data checksums cost? ("), "{ran:?}");
}

/// The small experiment with one text in another's place; `--check` and `measure` say the same.
#[track_caller]
fn check(scratch: &Scratch, change: (&str, &str), expected: &str) {
    let text = SMALL.replacen(change.0, change.1, 1);
    assert_ne!(text, SMALL);
    let file = scratch.path("my.toml");
    fs::write(&file, text).unwrap();
    let checked = run(pgtoll().args(["measure", "--check"]).arg(&file));
    assert_eq!((checked.status, checked.stdout.as_str()), (Some(2), ""), "{checked:?}");
    let output = checked.stderr.replace(&file.display().to_string(), "my.toml");
    assert_eq!(output.trim_end(), expected);
    let measured = run(pgtoll().arg("measure").arg(&file));
    assert_eq!((measured.status, measured.stderr), (Some(2), checked.stderr));
}

#[test]
fn mistakes_have_a_place_a_mark_and_a_hint() {
    let scratch = Scratch::new();
    check(
        &scratch,
        ("scale = 1\n", "scales = 1\n"),
        "pgtoll: my.toml:5:1: unknown key \"scales\"\n\
         \u{20} 5 | scales = 1\n\
         \u{20}   | ^^^^^^\n\
         hint: did you mean \"scale\"?",
    );
    check(
        &scratch,
        ("checksums = true", "checksums = 1"),
        "pgtoll: my.toml:16:13: \"checksums\" is an integer, where true or false belongs\n\
         \u{20} 16 | checksums = 1\n\
         \u{20}    |             ^",
    );
    check(
        &scratch,
        ("baseline = \"off\"", "baseline = \"on\""),
        "pgtoll: my.toml:4:12: baseline \"on\" is not an arm\n\
         \u{20} 4 | baseline = \"on\"\n\
         \u{20}   |            ^^^^\n\
         hint: there are off, checksums, twin",
    );
    check(
        &scratch,
        ("twin_of = \"off\"", "checksums = true\ntwin_of = \"off\""),
        "pgtoll: my.toml:21:11: arm \"twin\" is not a copy of \"off\": they must not differ\n\
         \u{20} 21 | twin_of = \"off\"\n\
         \u{20}    |           ^^^^^\n\
         hint: a twin has the same server, checksums, settings and values as the arm that it copies",
    );
    check(
        &scratch,
        ("checkpoint_timeout", "unix_socket_directories"),
        "pgtoll: my.toml:9:1: setting unix_socket_directories is pgtoll's own\n\
         \u{20} 9 | unix_socket_directories = \"1d\"\n\
         \u{20}   | ^^^^^^^^^^^^^^^^^^^^^^^\n\
         hint: leave it out: pgtoll's servers depend on it",
    );
    check(
        &scratch,
        ("scale = 1", "scale ="),
        "pgtoll: my.toml:5:8: string values must be quoted, expected literal string\n\
         \u{20} 5 | scale =\n\
         \u{20}   |        ^",
    );
}

#[test]
fn bad_scripts_are_told_at_their_entry() {
    let scratch = Scratch::new();
    fs::write(scratch.path("bad.sql"), "SELECT 1;\n\\sett x 1\n").unwrap();
    let read = scratch.path("bad.sql").display().to_string();
    check(
        &scratch,
        ("\"select-only\"", "[\"select-only\", \"bad.sql@2\", \"none.sql\"]"),
        &format!(
            "pgtoll: my.toml:25:26: read {read}: bad.sql, line 2, column 1: unknown command \\sett\n\
             \u{20} 25 | script = [\"select-only\", \"bad.sql@2\", \"none.sql\"]\n\
             \u{20}    |                          ^^^^^^^^^^^\n\
             pgtoll: my.toml:25:39: no script \"none.sql\" (there are: select-only, simple-update, \
             tpcb-like, append-log, etl-scatter, unlogged-ingest, web-oltp; or the path of a file \
             in pgbench's language; a command has its own workload)\n\
             \u{20} 25 | script = [\"select-only\", \"bad.sql@2\", \"none.sql\"]\n\
             \u{20}    |                                       ^^^^^^^^^^"
        ),
    );
}

/// The book's worked example, and its mistakes.
#[test]
fn the_example_of_the_book_is_right() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/experiments.md");
    let book = fs::read_to_string(book).unwrap();
    let (_, tail) = book.split_once("```toml\n").unwrap();
    let (example, rest) = tail.split_once("```").unwrap();
    let scratch = Scratch::new();
    let file = scratch.path("commit.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let ran = run(pgtoll().args(["measure", "--check", "--seed", "1"]).arg(&file));
        let message = ran.stdout + &ran.stderr;
        let output = message.replace(&file.display().to_string(), "./commit.toml");
        assert!(rest.contains(&format!("./commit.toml\n{output}```")), "{output}");
    };
    check(example);
    check(&example.replace("twin_of", "twinof").replacen("arm = \"hasty", "arm = \"hastey", 1));
}

const EXPECT: &str = r#"
[[expect]]
workload = "first-select"
arm = "checksums"
metric = "wal_images_per_page"
between = [0.9, 1.1]
source = "hint bits"

[[expect]]
workload = "second-select"
arm = "checksums"
metric = "wal_per_page"
at_least = 1
source = "a mistake"

[[expect]]
workload = "misses"
arm = "checksums"
metric = "cpu_per_transaction"
at_most = "50%"
source = "once is not enough"
"#;

#[test]
fn expectations_stand_beside_what_came_out() {
    let scratch = Scratch::new();
    let file = scratch.path("expect.toml");
    fs::write(&file, format!("{SMALL}{EXPECT}")).unwrap();
    let mut command = pgtoll();
    command.args(["--quiet", "measure", "--rounds", "1", "--round-time", "400ms"]).arg(&file);
    command.args(["--repetitions", "1", "--work-dir"]).arg(scratch.work());
    let ran = run(command.arg("--output").arg(scratch.path("result")));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let table = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "holds 0.9 to 1.1 1, exact first-select, checksums, wal_images_per_page (hint bits)",
        "does not hold at least 1 0, exact second-select, checksums, wal_per_page (a mistake)",
        "not measured at most +50.0 %",
        "misses, checksums, cpu_per_transaction (once is not enough)",
    ] {
        assert!(table.contains(line), "{table}");
    }
    let text = fs::read_to_string(scratch.path("result/result.json")).unwrap();
    let result: RunResult = serde_json::from_str(&text).unwrap();
    let outcomes: Vec<Outcome> = result.expected.iter().map(|expected| expected.outcome).collect();
    assert_eq!(outcomes, [Outcome::Holds, Outcome::DoesNotHold, Outcome::NotMeasured]);
}
