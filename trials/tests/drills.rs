//! Thirty of the random drills, with fixed seeds: all that can be found is found, and nothing is repaired
//! wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
#[expect(clippy::disallowed_methods, reason = "a trial is started as a developer starts it")]
fn thirty_drills_find_all_and_repair_nothing_wrong() {
    let work_dir = std::env::var_os("PGTOLL_TEST_DIR").map_or("/var/tmp".into(), PathBuf::from);
    let majors = std::env::var("PGTOLL_TEST_MAJORS").unwrap_or_default();
    // Drills take base backups: servers of the other majors come without client programs.
    let major = majors.split(',').find(|major| ["15", "17", "18"].contains(major)).unwrap_or("15");
    let run = |seed: &str, drills: &str, state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drills"));
        command.args(["--seed", seed, "--drills", drills, "--state", state, "--postgres", major]);
        let output =
            command.arg("--work-dir").arg(&work_dir).stdin(Stdio::null()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{message}{}", String::from_utf8_lossy(&output.stderr));
    };
    // Among them a range map of BRIN, which redo cannot make alone.
    run("1062", "1", "stopped");
    run("1", "19", "stopped");
    run("1", "10", "running");
}

/// The record that the book shows: no damage was missed, and no page repaired wrong.
#[test]
fn the_committed_drills_missed_nothing() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
    let text = fs::read_to_string(records.join("2026-11-28-drills.jsonl")).unwrap();
    let mut lines = 0;
    for line in text.lines() {
        let drill: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(drill["seed"].is_u64() && drill["damage"].is_string(), "{line}");
        assert_ne!(drill["found"], "missed", "{line}");
        assert_ne!(drill["repair"]["result"], "wrong", "{line}");
        lines += 1;
    }
    assert!(lines >= 1000, "{lines}");
}
