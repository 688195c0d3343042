//! Thirty of the random drills, with fixed seeds: all that can be found is found, and nothing is repaired
//! wrong.

use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
#[expect(clippy::disallowed_methods, reason = "a trial is started as a developer starts it")]
fn thirty_drills_find_all_and_repair_nothing_wrong() {
    let work_dir = std::env::var_os("PGTOLL_TEST_DIR").map_or("/var/tmp".into(), PathBuf::from);
    let majors = std::env::var("PGTOLL_TEST_MAJORS").unwrap_or_default();
    let major = majors.split(',').find(|major| !major.is_empty()).unwrap_or("15");
    let run = |seed: &str, drills: &str, state: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drills"));
        command.args(["--seed", seed, "--drills", drills, "--state", state, "--postgres", major]);
        let output =
            command.arg("--work-dir").arg(&work_dir).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    };
    // Among them a range map of BRIN, which redo cannot make alone.
    run("1062", "1", "stopped");
    run("1", "19", "stopped");
    run("1", "10", "running");
}
