//! `pgtoll report`: its forms, records side by side, thresholds.

mod broken;
pub(crate) mod forms;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pgtoll_record::{Run, RunResult};
use serde_json::{Value, json};

use crate::records::of_checksums;
use crate::support::{Ran, Scratch, pgtoll, run, small_measure};

/// A small record with all kinds of work: of `small.toml`, 3 rounds, PostgreSQL 15.
fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/small.jsonl")
}

fn small_text() -> String {
    fs::read_to_string(small()).unwrap()
}

fn report(arguments: &[&str]) -> Ran {
    run(pgtoll().arg("report").args(arguments).arg(small()))
}

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(env!("CARGO_MANIFEST_DIR"), "[CRATE]");
    // The last digits are the mathematical library's.
    settings.add_filter(r"(\d\.\d{4})\d+", "$1");
    settings
}

#[test]
fn forms_of_a_record() {
    snapshots().bind(|| {
        for form in ["md", "gobench", "csv", "openmetrics"] {
            let ran = report(&["--format", form]);
            assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{form}");
            insta::assert_snapshot!(format!("report_{form}"), ran.stdout);
        }
    });
    assert_eq!(report(&["--format", "json"]).stdout, report(&["--json"]).stdout);
    assert_eq!(report(&["--format", "table"]).stdout, report(&[]).stdout);
    assert!(report(&["--format", "html"]).stdout.starts_with("<!DOCTYPE html>"));
}

#[test]
fn committed_records_side_by_side() {
    let ran = |arguments: &[&str], records: &[PathBuf]| {
        let ran = run(pgtoll().arg("report").args(arguments).args(records));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        ran.stdout
    };
    // As a user would name them; tests run in the crate's directory.
    let names = of_checksums().into_iter().map(|path| path.file_name().unwrap().to_owned());
    let records: Vec<PathBuf> = names.map(|name| Path::new("../../records").join(name)).collect();
    snapshots().bind(|| {
        insta::assert_snapshot!("side_by_side_of_three", ran(&[], &records[..3]));
        insta::assert_snapshot!("side_by_side_md", ran(&["--format", "md"], &records[..2]));
    });
    for count in [2, 3] {
        let table = ran(&[], &records[..count]);
        let rows: Vec<&str> = table.lines().take_while(|line| !line.starts_with("A: ")).collect();
        assert!(rows.len() > 50);
        assert!(rows.iter().all(|line| line.chars().count() <= 80), "{table}");
    }
}

/// The book shows parts of it.
#[test]
fn the_book_shows_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let records = of_checksums().into_iter().map(|path| path.file_name().unwrap().to_owned());
    let records: Vec<PathBuf> = records.map(|record| Path::new("records").join(record)).collect();
    let ran = run(pgtoll().current_dir(&root).arg("report").args(&records[..3]));
    let chapter = fs::read_to_string(root.join("docs/src/report.md")).unwrap();
    let (_, excerpt) = chapter.split_once("```text\nchecksums: 3 records").unwrap();
    let (excerpt, _) = excerpt.split_once("```").unwrap();
    for part in excerpt.split("[...]\n") {
        assert!(ran.stdout.contains(part), "{part}");
    }
}

/// What `pgtoll report --json` says of the small record and another one, whose header is changed.
fn beside_a_changed_one(change: impl Fn(&mut Value)) -> Ran {
    let scratch = Scratch::new();
    let changed = scratch.path("changed.jsonl");
    fs::write(&changed, with_header(&small_text(), change)).unwrap();
    run(pgtoll().args(["report", "--json"]).arg(small()).arg(changed))
}

fn with_header(record: &str, change: impl Fn(&mut Value)) -> String {
    let (header, rest) = record.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(header).unwrap();
    change(&mut header);
    format!("{header}\n{rest}")
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let check = |expected: &str, change: &dyn Fn(&mut Value)| {
        let ran = beside_a_changed_one(change);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let output: Vec<&str> = ran.stderr.lines().collect();
        assert!(
            output[0].contains(" cannot be compared: ") && output[0].ends_with(expected),
            "{ran:?}"
        );
        assert!(output[1].starts_with("hint: show each by itself"), "{ran:?}");
    };
    check("one is of experiment \"small\", the other of \"large\"", &|item| {
        item["experiment"] = json!("large");
    });
    check("the baseline of one is arm \"off\", of the other \"twin\"", &|item| {
        item["baseline"] = json!("twin");
    });
    check("arm \"checksums\" has other settings in one than in the other", &|item| {
        item["arms"][1]["settings"] = json!({"wal_compression": "on"});
    });
    check("arm \"twin\" has other settings in one than in the other", &|item| {
        item["arms"][2]["checksums"] = json!(true);
    });
    check("workload \"misses\" is other work in each", &|item| {
        item["workloads"][0]["work"]["script"]["scripts"][0]["name"] = json!("tpcb-like");
    });
    check("workload \"misses\" is other work in each", &|item| {
        item["workloads"][0]["work"]["script"]["rate"] = json!(100.0);
    });
    check("workload \"insert\" is other work in each", &|item| {
        item["workloads"][1]["work"]["operation"]["action"] = json!("SELECT 1");
    });
    check("they have no workload in common", &|item| {
        for workload in item["workloads"].as_array_mut().unwrap() {
            workload["name"] = json!(format!("other-{}", workload["name"].as_str().unwrap()));
        }
    });
}

#[test]
fn what_differs_is_said() {
    let check = |fields: &[&str], note: &str, change: &dyn Fn(&mut Value)| {
        let ran = beside_a_changed_one(change);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let together: Value = serde_json::from_str(&ran.stdout).unwrap();
        let differences = together["differences"].as_array().unwrap().iter();
        let differing: Vec<&str> =
            differences.map(|difference| difference["field"].as_str().unwrap()).collect();
        assert_eq!(differing, fields);
        let notes = together["notes"].as_array().unwrap().iter();
        let notes: Vec<&str> = notes.map(|note| note.as_str().unwrap()).collect();
        assert!(notes.iter().any(|item| item.contains(note)), "{notes:#?}");
    };
    check(&[], "A and B are the same run", &|_| {});
    check(&["design.scale"], "the scale differ: absolute values are not comparable", &|item| {
        item["design"]["scale"] = json!(2);
    });
    check(
        &["server.settings.fsync", "workloads.misses.settings.shared_buffers"],
        "server.settings.fsync, workloads.misses.settings.shared_buffers differ: absolute",
        &|item| {
            item["server"]["settings"]["fsync"] = json!("off");
            item["workloads"][0]["settings"]["shared_buffers"] = json!("2MB");
        },
    );
    check(&["host.cores", "host.cpu"], "the machines differ", &|item| {
        item["host"]["cpu"] = json!("Abacus");
        item["host"]["cores"] = json!(1);
    });
    check(&["pgtoll"], "the versions of pgtoll differ", &|item| item["pgtoll"] = json!("0.0.1"));
    // With another scale an operation's numbers may follow it.
    check(
        &["design.scale", "workloads.insert.work.operation.action"],
        "the ratios are of different work",
        &|item| {
            item["design"]["scale"] = json!(2);
            let action = &mut item["workloads"][1]["work"]["operation"]["action"];
            *action = json!(action.as_str().unwrap().replace("6000", "12000"));
        },
    );
}

#[test]
fn a_change_combines_both_intervals() {
    let ran = beside_a_changed_one(|_| {});
    let together: Value = serde_json::from_str(&ran.stdout).unwrap();
    let result = RunResult::clone(
        &serde_json::from_value(together["records"][0]["result"].clone()).unwrap(),
    );
    let changes = together["changes"].as_array().unwrap();
    assert_eq!(changes.len(), result.comparisons.len());
    for (change, item) in changes.iter().zip(&result.comparisons) {
        let of_change = |name: &str| change["ratio"][name].as_f64().unwrap().ln();
        assert!(of_change("estimate").abs() < 1e-9);
        let half_width = item.half_width * 2f64.sqrt();
        assert!((of_change("upper") - half_width).abs() < 1e-9, "{change}");
        assert!((of_change("lower") + half_width).abs() < 1e-9, "{change}");
    }
}

#[test]
fn what_only_one_record_has_is_a_dash_in_the_other() {
    let scratch = Scratch::new();
    let other = scratch.path("other.jsonl");
    let without =
        with_header(&small_text(), |item| drop(item["workloads"].as_array_mut().unwrap().pop()));
    fs::write(&other, without).unwrap();
    for records in [[&small(), &other], [&other, &small()]] {
        let ran = run(pgtoll().arg("report").args(records));
        let (_, of_writes) = ran.stdout.split_once("\nread-write\n").unwrap();
        let row = of_writes.lines().next().unwrap();
        assert!(row.starts_with(" server CPU us/tx: off"), "{row}");
        assert_eq!(row.split_whitespace().filter(|word| *word == "-").count(), 1, "{row}");
    }
}

/// The exit status, and what is said, of thresholds on the small record.
fn check_thresholds(thresholds: &[&str], status: i32, expected: &[&str]) {
    let mut command = pgtoll();
    command.arg("report").arg(small()).stdout(Stdio::null());
    for threshold in thresholds {
        command.args(["--fail-if", threshold]);
    }
    let ran = run(&mut command);
    let output: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!((ran.status, output.as_slice()), (Some(status), expected), "{thresholds:?}");
}

#[test]
fn thresholds_decide_the_exit_status() {
    let misses = "misses: +14.2 % [+8.4, +20.2]";
    let line = |text: &str, rest: &str| format!("fail-if: {text}: {rest}");
    let one = |threshold: &str, status: i32, rest: &str| {
        check_thresholds(&[threshold], status, &[&line(threshold, rest)]);
    };
    one("misses/checksums.cpu_per_tx > 5%", 1, &format!("{misses}: threshold exceeded"));
    one("misses/checksums.cpu_per_tx > 10%", 2, &format!("{misses}: not resolved"));
    one("misses/checksums.cpu_per_tx > 30%", 0, &format!("{misses}: kept"));
    one("misses/checksums.cpu_per_tx <= 30%", 1, &format!("{misses}: threshold exceeded"));
    one("misses/checksums.cpu_per_transaction < 5 %", 0, &format!("{misses}: kept"));
    one("first-select/checksums.wal_per_page > 8kB", 0, "first-select: 8181 bytes: kept");
    one(
        "first-select/checksums.wal_per_page > 8000",
        1,
        "first-select: 8181 bytes: threshold exceeded",
    );
    one(
        "first-select/checksums.images_per_page >= 1%",
        1,
        "first-select: from 0.00 to 1.00 images: threshold exceeded",
    );
    // What is surely broken is a finding, whatever else is not resolved.
    let everywhere = "checksums.cpu_per_tx > 5%";
    check_thresholds(
        &[everywhere],
        1,
        &[
            &line(everywhere, &format!("{misses}: threshold exceeded")),
            &line(everywhere, "writes: +8.2 % [-15.1, +37.9]: not resolved"),
        ],
    );
    let kept = "misses/checksums.tps < -90%";
    let not_resolved = "misses/checksums.cpu_per_tx > 10%";
    let ran = run(pgtoll()
        .args(["--quiet", "report", "--fail-if", kept, "--fail-if", not_resolved])
        .arg(small()));
    assert_eq!(ran.status, Some(2));
    assert_eq!(ran.stderr, line(not_resolved, &format!("{misses}: not resolved\n")));
}

#[test]
fn a_workload_that_was_left_out_is_passed_over_unless_it_is_named() {
    let ran = |threshold: &str| {
        let record = "../../records/2026-11-22-pg15";
        let mut command = pgtoll();
        command.args(["report", "--format", "csv", "--fail-if", threshold]).arg(record);
        run(command.stdout(Stdio::null()))
    };
    let expected = "fail-if: checksums.cpu_per_tx > 5%: read-only-misses: +5.9 % [+4.3, +7.4]: \
                    not resolved\n\
                    fail-if: checksums.cpu_per_tx > 5%: read-only-cached: was not timed: passed \
                    over\n";
    let everywhere = ran("checksums.cpu_per_tx > 5%");
    assert_eq!((everywhere.status, everywhere.stderr.as_str()), (Some(2), expected));
    assert_eq!(ran("checksums.cpu_per_tx > 10%").status, Some(0));
    assert_eq!(ran("checksums.cpu_per_tx > 3%").status, Some(1));
    let named = ran("read-only-cached/checksums.cpu_per_tx > 5%");
    assert_eq!(named.status, Some(2));
    assert!(named.stderr.ends_with(": read-only-cached: no figure: not resolved\n"), "{named:?}");
}

#[test]
fn thresholds_that_cannot_be_decided_are_told_at_once() {
    let check = |threshold: &str, expected: &str| {
        let message = format!("pgtoll: --fail-if: \"{threshold}\" {expected}");
        let output: Vec<&str> = message.lines().collect();
        check_thresholds(&[threshold], 2, &output);
    };
    check(
        "cheksums.tps < 5%",
        "names arm \"cheksums\", which is not there\nhint: arms: off, checksums, twin",
    );
    check("off.tps < 5%", "compares the baseline \"off\" with itself\nhint: arms: checksums, twin");
    check(
        "reads/checksums.tps < 5%",
        "names workload \"reads\", which is not there\n\
         hint: workloads: misses, insert, first-select, second-select, writes",
    );
    check(
        "insert/checksums.tps < 5%",
        "cannot be decided: workload \"insert\" has no transactions_per_second, or is not timed\n\
         hint: workloads with it: misses, writes",
    );
    check(
        "checksums.tps < 5",
        "needs a percentage: a timed figure has an interval only as a difference from the baseline\n\
         hint: a number without % applies to counted figures, such as wal_per_tx",
    );
    let ran = report(&["--fail-if", "checksums.nonsense > 5%"]);
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("hint: metrics: cpu_per_tx, tps, latency_p50, "), "{ran:?}");
}

#[test]
fn a_measurement_ends_by_its_thresholds() {
    let scratch = Scratch::new();
    let wrong = run(small_measure(&scratch).args(["--fail-if", "nobody.tps < 1%"]));
    assert_eq!(wrong.status, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("names arm \"nobody\", which is not there\nhint: arms: off,"));
    assert!(!scratch.path("result").exists(), "something had started");
    let threshold = "first-select/checksums.wal_per_page > 1kB";
    let ran = run(small_measure(&scratch).args(["--quiet", "--fail-if", threshold]));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(" bytes: threshold exceeded\n"), "{ran:?}");
    assert!(ran.stdout.contains("server CPU us/tx"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn the_output_is_written_whole_and_by_its_name() {
    let scratch = Scratch::new();
    for (name, begins) in [
        ("a.md", "### small"),
        ("a.json", "{"),
        ("a.html", "<!DOCTYPE"),
        ("a.csv", "record,"),
        ("a", "small: "),
    ] {
        let path = scratch.path(name);
        fs::write(&path, "what was there").unwrap();
        let ran = report(&["-o", path.to_str().unwrap()]);
        assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
        assert!(fs::read_to_string(&path).unwrap().starts_with(begins), "{name}");
    }
    let csv = scratch.path("a.csv");
    let as_json = report(&["--json", "-o", csv.to_str().unwrap()]);
    assert_eq!(as_json.status, Some(0));
    assert!(fs::read_to_string(&csv).unwrap().starts_with('{'));
    assert_eq!(report(&["-o", "-"]).stdout, report(&[]).stdout);
    // A link stays one, and a device a device.
    let link = scratch.path("link.md");
    std::os::unix::fs::symlink("a.md", &link).unwrap();
    assert_eq!(report(&["--format", "table", "-o", link.to_str().unwrap()]).status, Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(scratch.path("a.md")).unwrap().starts_with("small: "));
    assert_eq!(report(&["-o", "/dev/null"]).status, Some(0));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let left: Vec<_> = fs::read_dir(scratch.path("")).unwrap().flatten().collect();
    assert_eq!(
        left.len(),
        "a.md a.json a.html a.csv a link.md work".split(' ').count(),
        "{left:?}"
    );
}

#[test]
fn outputs_that_cannot_be_written() {
    let scratch = Scratch::new();
    let check = |path: &Path, because: &str| {
        let ran = report(&["-o", path.to_str().unwrap()]);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let expected = format!("pgtoll: write {}: {because}", path.display());
        assert!(ran.stderr.starts_with(&expected), "{ran:?}");
    };
    let none = format!("{} is not a directory\nhint: ", scratch.path("none").display());
    check(&scratch.path("none/report.md"), &none);
    check(&scratch.work(), "Is a directory (os error 21)\n");
    check(Path::new("/proc/report.md"), "No such file or directory (os error 2)\n");
}

#[test]
fn outputs_of_no_format_are_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    let path = scratch.path("report.pdf");
    let path = path.to_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["report", "/does/not/exist"],
        &["verify", "/does/not/exist"],
        &["wal", "stats", "/does/not/exist"],
        &["wal", "whatif", "/does/not/exist"],
    ];
    for command in commands {
        let ran = run(pgtoll().args(command).args(["--output", path]));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let expected =
            format!("pgtoll: --output {path}: unknown ending .pdf\nhint: end it in .txt");
        assert!(ran.stderr.starts_with(&expected), "{ran:?}");
        assert!(ran.stderr.ends_with("; or say --format\n"), "{ran:?}");
    }
    // Whoever says the format may call the file as he likes.
    assert_eq!(report(&["--format", "md", "-o", path]).status, Some(0));
    assert!(fs::read_to_string(path).unwrap().starts_with("### small"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = pgtoll()
        .arg("report")
        .arg(small())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn directories_without_a_record() {
    let scratch = Scratch::new();
    let check = |path: &Path, hint: &str| {
        let ran = run(pgtoll().arg("report").arg(path));
        assert_eq!(ran.status, Some(2));
        let path = path.display();
        let expected =
            format!("pgtoll: {path} holds no record: run.jsonl is missing\nhint: {hint}\n");
        assert_eq!(ran.stderr, expected);
    };
    let results = scratch.path("");
    check(&scratch.work(), "name a result directory of pgtoll measure, or a record itself");
    for name in ["2026-01-01", "2026-01-02"] {
        fs::create_dir(scratch.path(name)).unwrap();
        fs::write(scratch.path(name).join("run.jsonl"), small_text()).unwrap();
    }
    let newest = scratch.path("2026-01-02");
    check(&results, &format!("it holds result directories: name one, like {}", newest.display()));
}

#[test]
fn a_page_of_several_records_names_each() {
    let mut command = pgtoll();
    let ran = run(command.args(["report", "--format", "html"]).args(of_checksums()));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.starts_with("<!DOCTYPE html>"));
    for words in ["A: 15.18", "B: 17.10", "C: 18.6", "server.version", "How the costs changed"] {
        assert!(ran.stdout.contains(words), "{words}");
    }
}

/// A run and its result.
fn summarised(text: &str) -> Option<(Run, RunResult)> {
    let run = Run::parse(text).ok()?;
    let result = pgtoll_estimate::summarise(&run);
    Some((run, result))
}

#[test]
fn data_that_cannot_be_written_are_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = pgtoll().arg("report").arg(small()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.starts_with("pgtoll: write to standard output: No space left"), "{output}");
}

#[test]
fn arms_that_do_not_fit_stand_below() {
    let scratch = Scratch::new();
    let names = ["wal_log_hints_and_nothing_else", "data_checksums_and_nothing_else"];
    let text = pgtoll_testing::run_text(Path::new("../../records/2026-11-22-pg15")).unwrap();
    let text = text.replace("\"hints\"", &format!("\"{}\"", names[0]));
    let text = text.replace("\"checksums\",\"che", &format!("\"{}\",\"che", names[1]));
    let text = text.replace("\"arm\":\"checksums\"", &format!("\"arm\":\"{}\"", names[1]));
    fs::write(scratch.path("run.jsonl"), text).unwrap();
    let ran = run(pgtoll().arg("report").arg(scratch.path("run.jsonl")));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    // The table stands below what holds for every server.
    let (_, table) = ran.stdout.split_once("\nevery server: ").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with(' ')).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{}", ran.stdout);
    let heads: Vec<&&str> = rows.iter().filter(|row| row.starts_with("    ")).collect();
    assert_eq!(heads.len(), 2, "{}", ran.stdout);
    assert!(heads.iter().all(|head| head.contains(" off ")), "{heads:?}");
    assert!(names.iter().all(|name| heads.iter().any(|head| head.contains(name))), "{heads:?}");
}
