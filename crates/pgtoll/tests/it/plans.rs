//! What is said before anything is measured: plans, names, settings of a user's own server.

use std::fs;
use std::process::Command;

use pgtoll_record::PlanRecord;

use crate::support::{Ran, Scratch, pgtoll, run, running, server};

fn dry_run(scratch: &Scratch, arguments: &[&str]) -> Ran {
    let mut command: Command = pgtoll();
    command.args(["measure", "--dry-run", "--seed", "1", "--scale", "1"]).args(arguments);
    command.arg("--work-dir").arg(scratch.work()).arg("--postgres").arg(server().bin);
    run(&mut command)
}

fn plan(ran: &Ran) -> PlanRecord {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_plan_is_a_record() {
    let scratch = Scratch::new();
    let ran = dry_run(&scratch, &["--json"]);
    let found = plan(&ran);
    assert_eq!(found.experiments[0].arms, ["off", "hints", "checksums", "twin"]);
    assert!(found.seconds > 0 && found.disk_bytes > 0);
    let file = scratch.path("plan.json");
    fs::write(&file, &ran.stdout).unwrap();
    let shown = run(pgtoll().arg("report").arg(&file));
    assert_eq!(shown.stdout, dry_run(&scratch, &[]).stdout);
    let several = dry_run(&scratch, &["first-select", "insert-update", "--json"]);
    assert_eq!(plan(&several).experiments.len(), 2);
    let mut checked = pgtoll();
    let checked = run(checked.args(["measure", "--check", "--format", "json", "dump"]));
    let checked = plan(&checked);
    assert!(checked.server.is_none() && checked.experiments[0].lines[0].contains("valid"));
}

#[test]
fn a_budget_that_is_too_short_is_said() {
    let scratch = Scratch::new();
    let ran = dry_run(&scratch, &["--budget", "1s"]);
    let first = ran.stderr.lines().find(|line| line.contains("budget")).unwrap();
    let expected = "pgtoll: warning: the budget of 1 s is too short: the least that checksums takes is \
                    about ";
    assert!(first.starts_with(expected), "{ran:?}");
    assert!(!dry_run(&scratch, &["--budget", "20m"]).stderr.contains("budget"));
    assert!(!dry_run(&scratch, &["--quick"]).stderr.contains("budget"));
}

#[test]
fn a_dry_run_refuses_the_output_that_the_run_would_refuse() {
    let scratch = Scratch::new();
    let output = scratch.path("result");
    fs::create_dir(&output).unwrap();
    let there = output.to_str().unwrap();
    assert_eq!(dry_run(&scratch, &["--output", there]).status, Some(0));
    fs::write(output.join("run.jsonl"), "what was there").unwrap();
    let refused = dry_run(&scratch, &["--output", there]);
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains(" holds a record already\nhint: "), "{refused:?}");
    let within = output.join("run.jsonl/x");
    let refused = dry_run(&scratch, &["--output", within.to_str().unwrap()]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(!scratch.path("new").exists());
    let new = scratch.path("new");
    assert_eq!(dry_run(&scratch, &["--output", new.to_str().unwrap()]).status, Some(0));
    assert!(!new.exists());
}

#[test]
fn a_name_is_that_of_the_run_and_of_its_own_work() {
    let scratch = Scratch::new();
    let script = scratch.path("one.sql");
    fs::write(&script, "SELECT 1;\n").unwrap();
    let script = script.to_str().unwrap();
    let ran = dry_run(&scratch, &["--workload", script, "--name", "orders", "--json"]);
    let planned = &plan(&ran).experiments[0];
    let names = (planned.name.as_deref(), planned.workloads[0].name.as_str());
    assert_eq!(names, (Some("orders"), "orders"));
    for name in ["", "a b", "a/b", "ä", "0123456789012345678901234"] {
        let refused = dry_run(&scratch, &["--name", name]);
        assert!(refused.stderr.contains("is not 1 to 24 letters, digits, - and _"), "{refused:?}");
    }
}

#[test]
fn settings_come_from_a_server_of_ones_own() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "own");
    let mut connection = cluster.connect("postgres").unwrap();
    for sql in [
        "ALTER SYSTEM SET work_mem = '9MB'",
        "ALTER SYSTEM SET wal_log_hints = on",
        "ALTER SYSTEM SET log_min_messages = error",
        "ALTER SYSTEM SET synchronous_commit = off",
        "SELECT pg_reload_conf()",
    ] {
        connection.execute(sql).unwrap();
    }
    connection.close();
    let environment = cluster.environment();
    let dsn =
        format!("host={} dbname=postgres user={}", environment["PGHOST"], environment["PGUSER"]);
    let ran = dry_run(&scratch, &["--like", &dsn, "--set", "synchronous_commit=local", "--json"]);
    let settings = &plan(&ran).experiments[0].settings;
    assert_eq!(settings["work_mem"], "9MB");
    assert_eq!(settings["synchronous_commit"], "local");
    assert!(!settings.contains_key("wal_log_hints") && !settings.contains_key("log_min_messages"));
    assert!(ran.stderr.contains("work_mem = 9MB"), "{ran:?}");
    assert!(ran.stderr.contains("log_min_messages"), "{ran:?}");
    guard.finish().unwrap();
    scratch.assert_empty();
}

#[test]
fn shells_complete_names_of_experiments() {
    let ran = run(pgtoll().args(["completions", "bash"]));
    assert!(ran.stdout.contains("checkpoint-distance"));
    let help = run(pgtoll().args(["measure", "--help"]));
    assert!(!help.stdout.contains("possible values: checksums"));
}
