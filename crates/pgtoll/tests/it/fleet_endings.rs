//! Shards that are ended, results that grow old, and prefixes without a backup: none of it is called sound,
//! and the next run goes on.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fleet::{Backups, comparable, json, tar};
use crate::support::{Ran, Scratch, pgtoll, pid_of, run};

fn run_fleet(words: &[&str], status: i32) -> Ran {
    let ran = run(pgtoll().args(words));
    assert_eq!(ran.status, Some(status), "{words:?}: {ran:?}");
    ran
}

/// Results beside a plan, by what their names end in.
fn results(scratch: &Scratch, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path("units")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
}

/// Runs a plan's first backup, which is short, and ends it in the second one, which would take a minute.
fn ended(plan: &str, signal: Signal) -> (Option<i32>, String) {
    let mut command = pgtoll();
    command.args(["fleet", "run", plan, "--all", "--rate", "1MB/s"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(first.contains("/a: not all of it could be verified"), "{first}");
    kill(Pid::from_raw(pid_of(&child)), signal).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    (status.code().or(status.signal()), rest)
}

#[test]
fn a_shard_that_is_ended_leaves_no_half_of_a_result_and_the_next_one_goes_on() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let whole = tar(&backups.damaged);
    for (name, bytes) in [("a", &whole[..200 << 10]), ("b", &whole)] {
        fs::create_dir_all(scratch.path("store").join(name)).unwrap();
        fs::write(scratch.path("store").join(name).join("base.tar"), bytes).unwrap();
    }
    let store = scratch.path("store");
    let plan = scratch.path("plan.json").display().to_string();
    run_fleet(&["fleet", "plan", &store.display().to_string(), "-o", &plan], 0);
    for (signal, status) in [(Signal::SIGINT, 2), (Signal::SIGKILL, 9)] {
        let (code, rest) = ended(&plan, signal);
        assert_eq!(code, Some(status), "{rest}");
        let is_said = rest.ends_with("pgtoll: interrupted by SIGINT; run it again to continue\n");
        assert_eq!(is_said, signal == Signal::SIGINT, "{rest}");
        assert_eq!((results(&scratch, "json").len(), results(&scratch, "failed").len()), (1, 0));
        let merged = json(&run_fleet(&["fleet", "merge", &plan, "--json"], 2));
        assert_eq!((&merged["sound"], &merged["unverified"]), (&0.into(), &2.into()));
        for path in results(&scratch, "json") {
            fs::remove_file(path).unwrap();
        }
    }
    ended(&plan, Signal::SIGTERM);
    let again = run_fleet(&["fleet", "run", &plan, "--all"], 0);
    assert!(again.stderr.contains("1 verified, 1 had a result"), "{again:?}");
    let merged = comparable(&run_fleet(&["fleet", "merge", &plan, "--json"], 1));
    assert_eq!((&merged["findings"], &merged["unverified"]), (&1.into(), &1.into()));
}

/// Lets a file have been written so many days ago.
fn age(path: &Path, days: u64) {
    let at = SystemTime::now() - Duration::from_secs(days * 86_400);
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn what_was_verified_long_ago_is_verified_again_where_that_is_asked_for() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let store = scratch.path("store");
    let plan = scratch.path("plan.json").display().to_string();
    fs::create_dir(&store).unwrap();
    let base = store.join("base.tar");
    fs::write(&base, tar(&backups.sound)).unwrap();
    age(&base, 100);
    let written = fs::metadata(&base).unwrap().modified().unwrap();
    run_fleet(&["fleet", "plan", &store.display().to_string(), "-o", &plan], 0);
    run_fleet(&["fleet", "run", &plan, "--all"], 0);
    run_fleet(&["fleet", "merge", &plan], 0);
    // A disk that loses a bit tells nobody.
    let file = File::options().write(true).open(&base).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &tar(&backups.damaged), 0).unwrap();
    file.set_modified(written).unwrap();
    age(&results(&scratch, "json")[0], 35);

    let ran = |days: &str, count: &str| {
        let ran = run_fleet(&["fleet", "run", &plan, "--all", "--reverify-after", days], 0);
        assert!(ran.stderr.contains(count), "{ran:?}");
    };
    ran("40d", "0 verified, 1 had a result");
    run_fleet(&["fleet", "merge", &plan], 0);
    ran("30d", "1 verified, 0 had a result");
    run_fleet(&["fleet", "merge", &plan], 1);
    ran("30d", "0 verified, 1 had a result");
}

#[test]
fn a_prefix_without_a_backup_is_not_sound_by_the_others() {
    let scratch = Scratch::new();
    let backups = Backups::make(&scratch, &mut scratch.guard());
    let path = |name: &str| scratch.path(name).display().to_string();
    fs::create_dir(scratch.path("empty")).unwrap();
    fs::write(scratch.path("monday.tar"), tar(&backups.sound)).unwrap();
    for nothing in ["empty", "nowhere"] {
        let ran = run_fleet(&["fleet", "plan", &path(nothing), "-o", &path("plan.json")], 2);
        assert!(ran.stderr.contains(&format!("/{nothing}: no backup here\nhint: ")), "{ran:?}");
        assert!(!scratch.path("plan.json").exists());
    }
    // A tar that is named itself, whatever it is called.
    let words = ["fleet", "plan", &path("monday.tar"), &path("empty"), "-o", &path("plan.json")];
    let planned = run_fleet(&words, 0).stdout;
    assert!(planned.starts_with("1 backup, "), "{planned}");
    assert!(planned.contains("1 backup cannot be read"), "{planned}");
    run_fleet(&["fleet", "run", &path("plan.json"), "--all"], 0);
    let merged = run_fleet(&["fleet", "merge", &path("plan.json")], 2).stdout;
    assert!(merged.starts_with("1 of 2 backups sound"), "{merged}");
    let words: Vec<&str> = merged.split_whitespace().collect();
    assert!(words.join(" ").contains("/empty: not read; no backup here"), "{merged}");
}
