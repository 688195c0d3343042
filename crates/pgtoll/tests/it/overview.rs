//! Several experiments in one call, and their overview.

use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_record::{EndStatus, ExperimentList, Outcome, Overview};

use crate::support::{Scratch, pgtoll, run};

const SMALL: &str = include_str!("small.toml");

/// The small experiment under another name, with one text in another's place.
fn experiment(scratch: &Scratch, name: &str, change: (&str, &str)) -> PathBuf {
    let text = SMALL.replacen("name = \"small\"", &format!("name = \"{name}\""), 1);
    let changed = text.replacen(change.0, change.1, 1);
    assert!(changed != text && text != SMALL);
    let file = scratch.path(&format!("{name}.toml"));
    fs::write(&file, changed).unwrap();
    file
}

const CLAIMS: &str = r#"
[[expect]]
workload = "first-select"
arm = "checksums"
metric = "wal_images_per_page"
between = [0.9, 1.1]
claim = "Each page is logged once"
source = "how hint bits work"
url = "https://example.org/hints"

[[expect]]
workload = "insert"
arm = "checksums"
against = "twin"
metric = "operation_time"
at_most = "-99.9%"
claim = "Checksums make inserts a thousand times as fast"
source = "nobody"
explained = "They do not."

[[workloads]]
name = "writes""#;

#[test]
fn one_that_fails_does_not_stop_the_others() {
    let scratch = Scratch::new();
    let first = experiment(&scratch, "first", ("scale = 1", "scale = 1 # changed"));
    let broken = experiment(&scratch, "broken", ("\"1d\"", "\"nonsense\""));
    let rung = "checksums = true\nagainst = \"twin\"";
    let last = experiment(&scratch, "last", ("\n[[workloads]]\nname = \"writes\"", CLAIMS));
    let text = fs::read_to_string(&last).unwrap().replace("checksums = true", rung);
    fs::write(&last, text).unwrap();
    let mut command = pgtoll();
    command.arg("measure").args([first, broken, last]);
    command.args(["--rounds", "2", "--round-time", "200ms", "--repetitions", "2"]);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("all"));
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    scratch.assert_empty();
    check_said(&ran.stderr);
    let directory = scratch.path("all");
    let overview = check_overview(&directory);
    check_page(&directory, &overview);
    // What is shown again is what was shown.
    let report = |arguments: &[&str], path: &Path| {
        let ran = run(pgtoll().arg("report").args(arguments).arg(path));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.stdout
    };
    assert_eq!(report(&[], &directory), ran.stdout);
    assert_eq!(report(&[], &directory.join("overview.json")), ran.stdout);
    let file = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(report(&["--format", "html"], &directory), file("index.html"));
    assert_eq!(report(&["--json"], &directory), file("overview.json"));
    // An overview outlives its records.
    fs::remove_dir_all(directory.join("first")).unwrap();
    assert_eq!(report(&[], &directory), ran.stdout);
    // A second run does not overwrite it.
    let again = run(&mut command);
    assert_eq!(again.status, Some(2), "{again:?}");
    assert!(
        again.stderr.contains("all holds an overview already\nhint: name another"),
        "{again:?}"
    );
}

fn check_said(stderr: &str) {
    let lines: Vec<&str> = stderr.lines().collect();
    let failed = "pgtoll: broken: the server of cluster \"off\" ended at its start";
    let at = lines.iter().position(|line| line.starts_with(failed)).unwrap();
    assert!(lines[at + 1].starts_with("hint: "), "{stderr}");
    assert_eq!(lines[at + 2], "experiment 3 of 3: last");
    assert!(lines.contains(&"pgtoll: 1 of 3 not completed: broken"), "{stderr}");
    let sum = "3 experiments, one after the other: about ";
    assert!(lines.iter().any(|line| line.starts_with(sum)), "{stderr}");
}

fn check_overview(directory: &Path) -> Overview {
    let text = fs::read_to_string(directory.join("overview.json")).unwrap();
    let overview: Overview = serde_json::from_str(&text).unwrap();
    let ended: Vec<(&str, EndStatus)> = overview
        .experiments
        .iter()
        .map(|experiment| (experiment.name.as_str(), experiment.status))
        .collect();
    let complete = EndStatus::Complete;
    let failed = EndStatus::Failed;
    assert_eq!(ended, [("first", complete), ("broken", failed), ("last", complete)]);
    let [first, broken, last] = overview.experiments.as_slice() else { unreachable!() };
    assert!(broken.reason.as_ref().unwrap().contains("nonsense"), "{broken:?}");
    assert!(broken.comparisons.is_empty());
    // Five workloads, of each the arm and the twin, in one metric.
    assert_eq!(first.comparisons.len(), 5 * 2);
    let outcomes: Vec<Outcome> = last.claims.iter().map(|claim| claim.outcome).collect();
    assert_eq!(outcomes, [Outcome::Holds, Outcome::DoesNotHold]);
    assert!(last.claims[0].exact && last.claims[1].found.is_some());
    overview
}

/// It links to what is there, and to nothing else.
fn check_page(directory: &Path, overview: &Overview) {
    let page = fs::read_to_string(directory.join("index.html")).unwrap();
    for name in ["first", "last"] {
        assert!(page.contains(&format!("href=\"./{name}/report.html\"")), "{name}");
        for file in ["run.jsonl", "result.json", "report.html"] {
            assert!(directory.join(name).join(file).exists(), "{name}/{file}");
        }
    }
    assert!(!page.contains("href=\"./broken/"));
    assert!(page.contains("They do not."));
    for item in overview.experiments.iter().flat_map(|experiment| &experiment.comparisons) {
        assert!(page.contains(&format!("{}: server CPU", item.workload)), "{item:?}");
    }
}

#[test]
fn every_built_in_experiment_has_a_quick_look() {
    let list = run(pgtoll().args(["measure", "--list", "--quick", "--json"]));
    assert_eq!(list.status, Some(0), "{list:?}");
    let list: ExperimentList = serde_json::from_str(&list.stdout).unwrap();
    for experiment in &list.experiments {
        assert!(experiment.seconds > 0 && experiment.seconds <= 110, "{experiment:?}");
    }
    // All of them in less than half an hour, with some to spare.
    let seconds: u64 = list.experiments.iter().map(|experiment| experiment.seconds).sum();
    assert!(seconds <= 1500, "{seconds} s");
    let all = run(pgtoll().args(["measure", "--all", "--quick", "--check"]));
    assert_eq!((all.status, all.stderr.as_str()), (Some(0), ""), "{all:?}");
    let count = list.experiments.len() - 1;
    let last = all.stdout.lines().last().unwrap();
    assert!(last.starts_with(&format!("{count} experiments, one after the other: ")), "{last}");
    for experiment in list.experiments {
        let is_in = all.stdout.contains(&format!("\nexperiment {}: ", experiment.name));
        assert_eq!(is_in, experiment.name != "null", "{}", experiment.name);
    }
}

#[test]
fn the_list_is_aligned() {
    let list = run(pgtoll().args(["measure", "--list"]));
    let question = |line: &str| line.find(|c: char| c.is_ascii_uppercase());
    let begins: Vec<Option<usize>> = list.stdout.lines().map(question).collect();
    assert!(begins.len() > 4 && begins.iter().all(|at| *at == begins[0]), "{}", list.stdout);
}

#[test]
fn several_are_checked_before_any_runs() {
    let scratch = Scratch::new();
    let good = experiment(&scratch, "good", ("scale = 1", "scale = 1 # changed"));
    let bad = experiment(&scratch, "bad", ("scale = 1", "scales = 1"));
    let check = |arguments: &[&str], experiments: &[&Path], expected: &str| {
        let mut command = pgtoll();
        command.arg("measure").args(experiments).args(arguments);
        let ran = run(command.arg("--work-dir").arg(scratch.work()));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        let output = ran.stderr.replace(&scratch.path("").display().to_string(), "");
        assert_eq!(output.lines().next(), Some(expected), "{ran:?}");
        assert!(output.lines().last().unwrap().starts_with("hint: "), "{ran:?}");
    };
    check(&[], &[&good, &bad], "pgtoll: bad.toml:5:1: unknown key \"scales\"");
    check(&[], &[&good, &good], "pgtoll: two of the experiments are called \"good\"");
    let work = ["--workload", "select-only"];
    check(&work, &[&good, Path::new("null")], "pgtoll: --workload is for one experiment");
    // One of them can decide it: that is enough.
    let fail_if = |arm: &str| format!("{arm}.cpu_per_tx > 5%");
    let checksums = fail_if("checksums");
    let arguments = ["measure", "null", "--check", "--fail-if", checksums.as_str()];
    let ran = run(pgtoll().args(arguments).arg(&good));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let unknown = fail_if("unknown");
    let ran = run(pgtoll().args(["measure", "null", "--check", "--fail-if", &unknown]).arg(&good));
    assert_eq!(ran.status, Some(2), "{ran:?}");
}

#[test]
fn other_runs_records_stay_as_they_are() {
    let scratch = Scratch::new();
    let names = ["one", "two"];
    let files = names.map(|name| experiment(&scratch, name, ("scale = 1", "scale = 1 # changed")));
    for name in names {
        fs::create_dir_all(scratch.path("all").join(name)).unwrap();
        fs::write(scratch.path("all").join(name).join("run.jsonl"), "precious").unwrap();
    }
    let mut command = pgtoll();
    command.arg("measure").args(files).arg("--work-dir").arg(scratch.work());
    let ran = run(command.arg("--json").arg("--output").arg(scratch.path("all")));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("\npgtoll: 2 of 2 not completed: one, two\n"), "{ran:?}");
    let overview: Overview = serde_json::from_str(&ran.stdout).unwrap();
    for (item, name) in overview.experiments.iter().zip(names) {
        assert_eq!(item.status, EndStatus::Failed);
        assert!(item.reason.as_ref().unwrap().ends_with("holds a record already"), "{item:?}");
        let directory = scratch.path("all").join(name);
        assert_eq!(fs::read_to_string(directory.join("run.jsonl")).unwrap(), "precious");
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
    }
}

#[test]
fn an_overview_that_cannot_be_shown_is_told_in_one_line() {
    let scratch = Scratch::new();
    let file = scratch.path("overview.json");
    let check = |arguments: &[&str], text: &str, expected: &str| {
        fs::write(&file, text).unwrap();
        let ran = run(pgtoll().arg("report").args(arguments).arg(&file));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.lines().next().unwrap().contains(expected), "{ran:?}");
    };
    let host = r#"{"kernel":"","cpu":"","cores":1,"memory_bytes":1,"file_system":"",
        "hypervisor":false,"transparent_huge_pages":null,"governor":null}"#;
    let empty = |schema: &str| {
        format!(
            r#"{{"schema":"{schema}","pgtoll":"1","started":"","host":{host},"version":"15.1",
                "experiments":[]}}"#
        )
    };
    check(&[], "", "overview.json: EOF while parsing");
    check(&[], &empty("pgtoll.overview/9"), "overview.json is of schema \"pgtoll.overview/9\"");
    let right = empty("pgtoll.overview/1");
    check(&["--format", "csv"], &right, "an overview has no format csv");
    check(&["--fail-if", "a.tps > 1%"], &right, "an overview has no thresholds");
    fs::write(&file, right).unwrap();
    let ran = run(pgtoll().arg("report").arg(scratch.path("")));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("0 experiments: PostgreSQL 15.1"), "{ran:?}");
}
