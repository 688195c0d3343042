//! Experiments and arms that a server cannot be measured with, and I/O workers, which not all have.

use std::fs;
use std::path::PathBuf;

use pgtoll_cluster::Installation;
use pgtoll_record::{Operation, Overview, Run, RunResult};

use crate::support::{Ran, Scratch, pgtoll, run, server, servers};

/// An experiment with these arms besides `plain` and its twin.
fn experiment(scratch: &Scratch, name: &str, head: &str, arms: &str) -> PathBuf {
    let text = format!(
        "name = \"{name}\"\nquestion = \"q\"\nbaseline = \"plain\"\n{head}\n\
         [settings]\nshared_buffers = \"1MB\"\nmax_parallel_workers_per_gather = \"0\"\n\
         [[arms]]\nname = \"plain\"\n{arms}\n\
         [[arms]]\nname = \"twin\"\ntwin_of = \"plain\"\n\
         [[workloads]]\nname = \"scan\"\ntitle = \"scan\"\ntable = \"filler\"\nsteps = [\n\
         {{ sql = \"CREATE TABLE filler (number int, payload text)\" }},\n\
         {{ sql = \"INSERT INTO filler SELECT i, repeat('x', 100) FROM generate_series(1, 60000) i\" }},\n\
         {{ sql = \"SELECT count(*) FROM filler\", measure = \"table-scan\" }},\n]\n"
    );
    let file = scratch.path(&format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    file
}

fn arm(name: &str, keys: &str) -> String {
    format!("[[arms]]\nname = \"{name}\"\n{keys}\n")
}

fn measure(scratch: &Scratch, server: &Installation, files: &[PathBuf], options: &[&str]) -> Ran {
    let mut command = pgtoll();
    command.args(["measure", "--repetitions", "2", "--seed", "1"]).args(options).args(files);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    run(command.arg("--postgres").arg(&server.bin))
}

#[test]
fn arms_that_a_server_cannot_have_are_skipped_with_their_reason() {
    for server in servers() {
        let scratch = Scratch::new();
        let arms = [
            arm("hints", "settings = { wal_log_hints = \"on\" }\nagainst = \"unknown-word\""),
            arm("unknown-word", "settings = { wal_level = \"verbose\" }"),
            arm("no-start", "settings = { wal_level = \"minimal\" }"),
            arm("no-start-twin", "settings = { wal_level = \"minimal\" }\ntwin_of = \"no-start\""),
            // Another spelling of a word that the server has.
            arm("other-word", "settings = { wal_level = \"LOGICAL\" }"),
        ];
        let file = experiment(&scratch, "skips", "", &arms.concat());
        let ran = measure(&scratch, &server, &[file], &[]);
        assert_eq!(ran.status, Some(0), "{} {ran:?}", server.version);
        scratch.assert_empty();
        let word = "this server has no wal_level = verbose, only minimal, replica, logical";
        let output = format!("pgtoll: arm unknown-word is skipped: {word}\n");
        assert!(ran.stderr.contains(&output), "{ran:?}");
        let record = fs::read_to_string(scratch.path("result/run.jsonl")).unwrap();
        let run = Run::parse(&record).unwrap();
        let skipped: Vec<&str> = run.skipped.iter().map(|skipped| skipped.arm.as_str()).collect();
        assert_eq!(skipped, ["unknown-word", "no-start", "no-start-twin"]);
        assert_eq!(run.skipped[2].reason, "it is a twin of no-start");
        // In the words of the server's log.
        assert!(run.skipped[1].reason.starts_with("WAL streaming ("), "{run:?}");
        let arms: Vec<&str> = run.header.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(arms, ["plain", "hints", "other-word", "twin"]);
        assert_eq!(run.header.arms[1].against, None);
        assert!(run.operations.iter().all(|operation| arms.contains(&operation.arm.as_str())));
        assert!(run.unreadable_lines.is_empty() && run.is_complete());
        // Where it is read, too.
        let page = fs::read_to_string(scratch.path("result/report.html")).unwrap();
        for shown in [&ran.stdout.replace("\n      ", " "), &page] {
            assert!(shown.contains(&format!("arm unknown-word was skipped: {word}")), "{shown}");
        }
    }
}

#[test]
fn a_run_without_an_arm_to_compare_ends_with_the_reason() {
    let scratch = Scratch::new();
    let arms = arm("verbose", "settings = { wal_level = \"verbose\" }");
    let file = experiment(&scratch, "nothing", "", &arms);
    let ran = measure(&scratch, &server(), &[file], &[]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let line = "pgtoll: skipped: no arm is left to compare (arm verbose: this server has no \
                wal_level = verbose, only minimal, replica, logical)\nhint: ";
    assert!(ran.stderr.contains(line), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn an_experiment_for_later_versions_is_skipped_and_the_others_go_on() {
    let old = server();
    let newer = old.version.major() + 1;
    let scratch = Scratch::new();
    let hints = arm("hints", "settings = { wal_log_hints = \"on\" }");
    let later = experiment(&scratch, "later", &format!("since = {newer}"), &hints);
    let of_now = experiment(&scratch, "now", "", &hints);
    let reason = format!("skipped: it needs PostgreSQL {newer}, and this is {}", old.version);
    let alone = measure(&scratch, &old, std::slice::from_ref(&later), &[]);
    assert_eq!(alone.status, Some(2), "{alone:?}");
    assert!(alone.stderr.contains(&format!("pgtoll: {reason}\nhint: ")), "{alone:?}");
    assert!(!scratch.path("result").exists());
    let both = measure(&scratch, &old, &[later, of_now], &["--json"]);
    assert_eq!(both.status, Some(0), "{both:?}");
    assert!(both.stderr.contains(&format!("pgtoll: later: {reason}\n")), "{both:?}");
    assert!(!both.stderr.contains("not completed"), "{both:?}");
    let overview: Overview = serde_json::from_str(&both.stdout).unwrap();
    let [skipped, done] = overview.experiments.as_slice() else { panic!("{overview:?}") };
    assert!(skipped.skipped && skipped.reason.as_deref() == Some(&reason), "{skipped:?}");
    assert!(!done.skipped && !done.comparisons.is_empty(), "{done:?}");
    let shown = run(pgtoll().arg("report").arg(scratch.path("result")));
    assert!(shown.stdout.starts_with("2 experiments, 1 skipped: "), "{shown:?}");
    assert!(shown.stdout.contains(&format!("  {reason}\n")), "{shown:?}");
    // A threshold on what was not measured cannot be told.
    fs::remove_dir_all(scratch.path("result")).unwrap();
    let files = ["later", "now"].map(|name| scratch.path(&format!("{name}.toml")));
    let fail_if = ["--fail-if", "hints.cpu > 900%"];
    let judged = measure(&scratch, &old, &files, &fail_if);
    assert_eq!(judged.status, Some(2), "{judged:?}");
    scratch.assert_empty();
}

#[test]
fn io_workers_have_a_part_of_the_cpu_where_there_are_any() {
    for server in servers() {
        let scratch = Scratch::new();
        let has_workers = server.version.facts().unwrap().has_setting("io_method");
        let arms = if has_workers {
            arm("sync", "settings = { io_method = \"sync\" }")
        } else {
            arm("hints", "settings = { wal_log_hints = \"on\" }")
        };
        let file = experiment(&scratch, "workers", "", &arms);
        let ran = measure(&scratch, &server, &[file], &[]);
        assert_eq!(ran.status, Some(0), "{} {ran:?}", server.version);
        let record = fs::read_to_string(scratch.path("result/run.jsonl")).unwrap();
        let run = Run::parse(&record).unwrap();
        let of_arm = |name: &str| -> Vec<&Operation> {
            run.operations.iter().filter(|operation| operation.arm == name).collect()
        };
        assert!(of_arm("sync").iter().all(|arm| arm.io_workers_cpu_ns.is_none()));
        for arm in of_arm("plain") {
            assert_eq!(arm.io_workers_cpu_ns.is_some(), has_workers, "{arm:?}");
            let part = arm.io_workers_cpu_ns.unwrap_or(0);
            assert!((part > 0) == has_workers && part < arm.server_cpu_ns, "{arm:?}");
        }
        assert_eq!(ran.stdout.contains("I/O workers CPU %"), has_workers, "{ran:?}");
        assert_eq!(record.contains("io_workers_cpu_ns"), has_workers);
        let result = fs::read_to_string(scratch.path("result/result.json")).unwrap();
        let result: RunResult = serde_json::from_str(&result).unwrap();
        let shares = result.values.iter().filter(|value| value.metric == "io_workers_cpu_share");
        let arms: Vec<&str> = shares.map(|share| share.arm.as_str()).collect();
        assert_eq!(arms, if has_workers { vec!["plain", "twin"] } else { vec![] });
    }
}
