//! A fleet on a real scheduler: an array of Slurm, with the batch file that is shipped, loses a node, and the
//! answer is that of one machine.

use std::fs;
use std::path::Path;

use nix::unistd::geteuid;
use serde_json::Value;

use crate::fleet::{Backups, comparable, tar};
use crate::support::{Ran, Scratch, pgtoll, program, run};

/// Backups of the fleet: more than there are shards.
const BACKUPS: usize = 24;
/// Those that have a damaged page.
const DAMAGED: [usize; 3] = [2, 11, 23];

/// Whether there can be a Slurm of our own.
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
fn is_possible() -> bool {
    let has = |name: &str| {
        ["/usr/sbin", "/usr/bin"].iter().any(|item| Path::new(item).join(name).exists())
    };
    let missing: Vec<&str> = ["munged", "slurmctld", "slurmd", "sbatch", "unshare", "ip"]
        .into_iter()
        .filter(|name| !has(name))
        .collect();
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root makes a network of its own");
        return false;
    }
    assert!(missing.is_empty(), "{missing:?} missing; hint: run `cargo xtask test`");
    true
}

fn run_fleet(words: &[&str], status: i32) -> Ran {
    let ran = run(pgtoll().args(words));
    assert_eq!(ran.status, Some(status), "{words:?}: {ran:?}");
    ran
}

fn merged(plan: &str) -> Value {
    comparable(&run_fleet(&["fleet", "merge", plan, "--json"], 1))
}

#[test]
fn an_array_of_slurm_that_loses_a_node_has_the_answer_of_one_machine() {
    if !is_possible() {
        return;
    }
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let store = scratch.path("store");
    for (name, root) in [("sound.tar", &backups.sound), ("damaged.tar", &backups.damaged)] {
        fs::write(scratch.path(name), tar(root)).unwrap();
    }
    for number in 0..BACKUPS {
        let directory = store.join(format!("db{number:02}"));
        fs::create_dir_all(&directory).unwrap();
        let name = if DAMAGED.contains(&number) { "damaged.tar" } else { "sound.tar" };
        fs::hard_link(scratch.path(name), directory.join("base.tar")).unwrap();
    }
    let store = store.display().to_string();
    let place = |name: &str| {
        fs::create_dir(scratch.path(name)).unwrap();
        scratch.path(name).join("plan.json").display().to_string()
    };
    let alone = place("alone");
    let array = place("array");
    for plan in [&alone, &array] {
        run_fleet(&["fleet", "plan", &store, "--shards", "20", "-o", plan], 0);
    }
    run_fleet(&["fleet", "run", &alone, "--all"], 0);
    let expected = merged(&alone);
    assert_eq!((&expected["sound"], &expected["unverified"]), (&21.into(), &0.into()));

    let slurm = scratch.path("slurm");
    fs::create_dir(&slurm).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = run(program("timeout")
        .args(["-k", "3", "300", "unshare", "--net", "--pid", "--fork", "--mount-proc"])
        .args(["--kill-child", "sh"])
        .arg(tests.join("tests/it/fleet_slurm.sh"))
        .arg(&slurm)
        .arg(env!("CARGO_BIN_EXE_pgtoll"))
        .arg(tests.join("../../deploy/slurm/pgtoll-fleet.sbatch"))
        .arg(&array));
    let log = |name: &str| fs::read_to_string(slurm.join(name)).unwrap_or_default();
    assert_eq!(ran.status, Some(0), "{ran:?}\n{}", log("slurmctld.log"));
    // The task that was lost ran twice, every other one once.
    let mut tasks: Vec<u32> = log("tasks").lines().map(|line| line.parse().unwrap()).collect();
    tasks.sort_unstable();
    let mut ids: Vec<u32> = (0..20).chain([3]).collect();
    ids.sort_unstable();
    assert_eq!(tasks, ids, "{ran:?}\n{}", log("slurmctld.log"));
    assert!(log("lost").starts_with('n'));
    assert_eq!(merged(&array), expected);
}
