//! `pgtoll measure`, run to its end.

use std::fs;

use pgtoll_record::{EndStatus, Metric, Run, RunResult};

use crate::support::{
    Scratch, as_ordinary_user, pgtoll_for_all, program, run, server, servers, set_mode,
    small_measure,
};

#[test]
fn every_server_is_measured_and_nothing_stays() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut command = small_measure(&scratch);
        command.args(["--json", "--seed", "7", "--postgres"]).arg(&server.bin);
        let ran = run(&mut command);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        scratch.assert_empty();
        let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
        assert!(result.complete && result.rounds == 2, "{ran:?}");
        assert_eq!(result.header.server.version, server.version);
        let compared: Vec<&str> = result
            .comparisons
            .iter()
            .filter(|of| of.metric == Metric::CpuPerTransaction)
            .map(|of| of.arm.as_str())
            .collect();
        assert_eq!(compared, ["hints", "checksums", "twin"]);
        let file = fs::read_to_string(scratch.path("result/result.json")).unwrap();
        assert_eq!(file, ran.stdout);
        check_record(&Run::parse(&record(&scratch)).unwrap());
    }
}

fn record(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.path("result/run.jsonl")).unwrap()
}

/// The design is what was planned, and the counters fit each other.
fn check_record(run: &Run) {
    let design = &run.header.design;
    let arms = run.header.arms.len();
    let blocks = (design.rounds * design.blocks_per_round) as usize;
    assert_eq!(run.slices.len(), blocks * arms);
    for block in run.slices.chunks(arms) {
        let positions: Vec<u32> = block.iter().map(|slice| slice.position).collect();
        assert_eq!(positions, [1, 2, 3, 4]);
        let mut names: Vec<&str> = block.iter().map(|slice| slice.arm.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["checksums", "hints", "off", "twin"]);
    }
    assert!(run.slices.is_sorted_by_key(|slice| slice.start_ns));
    assert_eq!(run.end.as_ref().unwrap().status, EndStatus::Complete);
    for round in &run.rounds {
        for arm in &round.arms {
            let slices = run.slices.iter().filter(|of| of.round == round.round);
            let own = slices.filter(|slice| slice.arm == arm.arm);
            let (transactions, cpu_ns) = own.fold((0, 0), |(transactions, cpu_ns), slice| {
                (transactions + slice.transactions, cpu_ns + slice.server_cpu_ns)
            });
            assert!(transactions > 0 && arm.transactions > transactions, "{arm:?}");
            assert!(cpu_ns > 0 && arm.cpu_observed_ns > cpu_ns, "{arm:?}");
            assert!(arm.cpu_reaped_ns + 20_000_000 > arm.cpu_observed_ns, "{arm:?}");
            // Hint bits of a few catalog pages at most.
            assert!(arm.blocks_written < 20, "{arm:?}");
        }
    }
}

#[test]
fn a_seed_decides_every_order() {
    let orders = || {
        let scratch = Scratch::new();
        assert_eq!(run(small_measure(&scratch).args(["--seed", "11"])).status, Some(0));
        let run = Run::parse(&record(&scratch)).unwrap();
        run.slices.into_iter().map(|slice| slice.arm).collect::<Vec<_>>()
    };
    assert_eq!(orders(), orders());
}

#[test]
fn the_table_goes_to_stdout_and_everything_else_to_stderr() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).args(["--seed", "7", "--postgres"]).arg(server().bin));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    for (pattern, replacement) in [
        // Chance decides the words, too.
        (r"(?s)\n\nPostgreSQL .*?\n± is", "\n\n[ANSWER AND NOTES]\n± is"),
        (r"/var/tmp/test-\w+", "[SCRATCH]"),
        (r"in /\S*/bin \(named\)", "in [BIN] (named)"),
        (r"run as user .*", "run as user [USER]"),
        (r"PostgreSQL [\d.]+", "PostgreSQL [VERSION]"),
        (r"--postgres \S+", "--postgres [BIN]"),
        (r"(~ )?[+-]?\d[\d.]*( %)?( ±\d[\d.]*)?( %)?", "[N]"),
        (r"~ ±\[N\]", "[N]"),
        (r"[ \t]+", " "),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| {
        insta::assert_snapshot!("measure_stdout", ran.stdout);
        insta::assert_snapshot!("measure_stderr", ran.stderr);
    });
}

#[test]
fn quiet_says_nothing_but_the_result() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).arg("--quiet"));
    assert_eq!(ran.status, Some(0));
    assert_eq!(ran.stderr, SMALL_DATA);
    assert!(ran.stdout.contains("server CPU us/tx"), "{ran:?}");
}

/// A warning is no chatter.
const SMALL_DATA: &str = "pgtoll: warning: shared_buffers of 16MB hold much of the data of \
                          14.8 MB: few pages are read from outside\n";

#[test]
fn an_ordinary_user_measures_too() {
    let scratch = Scratch::new();
    let mut command = program(pgtoll_for_all(&scratch));
    let result = scratch.work().join("result");
    as_ordinary_user(&mut command, &scratch);
    command.args(["measure", "--scale", "1", "--rounds", "1", "--round-time", "300ms"]);
    let clusters = scratch.path("clusters");
    fs::create_dir(&clusters).unwrap();
    set_mode(&clusters, 0o777);
    command.arg("--work-dir").arg(&clusters).arg("--output").arg(&result);
    command.arg("--postgres").arg(server().bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("No answer: 1 of the at least 2 rounds"), "{ran:?}");
    assert_eq!(fs::read_dir(clusters).unwrap().count(), 0);
}

#[test]
fn kept_clusters_are_named() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).args(["--rounds", "1", "--keep"]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let kept = fs::read_dir(scratch.work()).unwrap().next().unwrap().unwrap().path();
    assert!(ran.stderr.contains(&format!("clusters stay in {}", kept.display())), "{ran:?}");
    for arm in ["off", "hints", "checksums", "twin"] {
        assert!(kept.join(arm).join("data/PG_VERSION").is_file());
    }
}

#[test]
fn an_experiment_of_ones_own() {
    let scratch = Scratch::new();
    let file = scratch.path("own.toml");
    let text = r#"
        name = "own"
        question = "Does work_mem matter to a lookup?"
        baseline = "small"
        [[arms]]
        name = "small"
        settings = { work_mem = "64kB" }
        [[arms]]
        name = "large"
        settings = { work_mem = "64MB" }
        [[workloads]]
        name = "lookup"
        title = "lookups"
        script = "select-only"
        scale = 1
    "#;
    fs::write(&file, text).unwrap();
    let mut command = crate::support::pgtoll();
    command.arg("measure").arg(&file).args(["--rounds", "2", "--round-time", "300ms", "--json"]);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result.comparisons.len(), 2);
    assert!(result.answer.contains("against small, large "), "{}", result.answer);
}
