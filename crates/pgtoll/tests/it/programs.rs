//! Programs in the background, and what waits for them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{ClusterError, Guard, ProgramSignal, ServerUser, leftovers};
use procfs::process::Process;

use crate::support::{PATIENCE, Scratch, ends_within, program, run, running, server};

const ENDLESS: [&str; 2] = ["-c", "while :; do :; done"];

fn shell(guard: &mut Guard, name: &str, script: &str) -> i32 {
    guard.spawn(name, "sh".as_ref(), &["-c", script], &BTreeMap::new()).unwrap()
}

fn state(pid: i32) -> char {
    Process::new(pid).unwrap().stat().unwrap().state
}

fn cpu_ticks(pid: i32) -> u64 {
    let stat = Process::new(pid).unwrap().stat().unwrap();
    stat.utime + stat.stime
}

#[test]
fn a_program_runs_until_it_is_told_to_end() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let pid = shell(&mut guard, "load", "echo said; id -un; echo also >&2; while :; do :; done");
    let stat = Process::new(pid).unwrap().stat().unwrap();
    assert_eq!(stat.pgrp, pid, "a group of its own");
    assert!(guard.has_ended("load").unwrap().is_none());
    while cpu_ticks(pid) < 10 {}
    guard.signal("load", ProgramSignal::Terminate).unwrap();
    let output = guard.reap("load", PATIENCE).unwrap();
    let user = ServerUser::choose().unwrap().name;
    assert_eq!(output.tail, format!("said\n{user}\nalso\n"));
    assert_eq!((output.success, output.status.as_str()), (false, "killed by SIGTERM"));
    assert!(output.usage.cpu() >= Duration::from_millis(50), "{output:?}");
    // The name is free again.
    shell(&mut guard, "load", "exit 3");
    assert_eq!(guard.reap("load", PATIENCE).unwrap().status, "exit status 3");
    guard.finish().unwrap();
    scratch.assert_empty();
}

#[test]
fn a_frozen_program_rests_and_goes_on() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let pid = guard.spawn("load", "sh".as_ref(), &ENDLESS, &BTreeMap::new()).unwrap();
    // A busy machine delays some signals; a guard that waits for anything delays all of them.
    let round_trips = (0..100).flat_map(|_| [ProgramSignal::Stop, ProgramSignal::Continue]);
    let shortest = round_trips
        .map(|signal| {
            let began = Instant::now();
            guard.signal("load", signal).unwrap();
            began.elapsed()
        })
        .min();
    assert!(shortest < Some(Duration::from_millis(5)), "{shortest:?}");
    guard.signal("load", ProgramSignal::Stop).unwrap();
    while state(pid) != 'T' {}
    let before = cpu_ticks(pid);
    assert!(!ends_within(pid, Duration::from_millis(200)));
    assert_eq!(cpu_ticks(pid), before);
    guard.signal("load", ProgramSignal::Continue).unwrap();
    while cpu_ticks(pid) == before {}
    // Frozen, it hears all the same that it is to end.
    guard.signal("load", ProgramSignal::Stop).unwrap();
    guard.signal("load", ProgramSignal::Interrupt).unwrap();
    assert_eq!(guard.reap("load", PATIENCE).unwrap().status, "killed by SIGINT");
}

#[test]
fn an_end_is_seen_without_waiting_and_kept() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let pid = shell(&mut guard, "short", "echo done");
    assert!(ends_within(pid, PATIENCE));
    let seen = loop {
        if let Some(output) = guard.has_ended("short").unwrap() {
            break output;
        }
    };
    assert!(seen.success);
    assert_eq!(seen.tail, "done\n");
    let refused = guard.signal("short", ProgramSignal::Stop).unwrap_err();
    assert_eq!(refused.to_string(), "signal program short: it has ended (exit status 0)");
    let taken = guard.spawn("short", "true".as_ref(), &[], &BTreeMap::new()).unwrap_err();
    assert!(taken.to_string().ends_with("a program of this name was not reaped yet"), "{taken}");
    assert_eq!(guard.reap("short", PATIENCE).unwrap(), seen);
    let unknown = guard.reap("short", PATIENCE).unwrap_err();
    assert_eq!(unknown.to_string(), "wait for program short: no such program was started");
    let missing = guard.spawn("none", "/no/such".as_ref(), &[], &BTreeMap::new()).unwrap_err();
    assert!(matches!(&missing, ClusterError::Guard { .. }), "{missing:?}");
    assert!(missing.to_string().contains("start /no/such: No such file"), "{missing}");
}

#[test]
fn a_program_that_does_not_end_is_killed_with_all_that_it_started() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    shell(&mut guard, "deaf", "trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1000; done");
    let child: i32 = loop {
        let log = std::fs::read_to_string(guard.program_log("deaf")).unwrap();
        if let Ok(pid) = log.trim().parse() {
            break pid;
        }
    };
    guard.signal("deaf", ProgramSignal::Terminate).unwrap();
    let begin = Instant::now();
    let output = guard.reap("deaf", Duration::from_millis(300)).unwrap();
    assert_eq!(output.status, "killed by SIGKILL");
    assert!((300..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    assert!(ends_within(child, PATIENCE));
    // One whose leader ends by itself leaves nothing either.
    shell(&mut guard, "parent", "sleep 1000 & echo $!");
    let output = guard.reap("parent", PATIENCE).unwrap();
    assert!(output.success);
    assert!(ends_within(output.tail.trim().parse().unwrap(), PATIENCE));
}

#[test]
fn programs_end_with_the_guard_frozen_or_not() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let lively = guard.spawn("lively", "sh".as_ref(), &ENDLESS, &BTreeMap::new()).unwrap();
    let frozen = guard.spawn("frozen", "sh".as_ref(), &ENDLESS, &BTreeMap::new()).unwrap();
    guard.signal("frozen", ProgramSignal::Stop).unwrap();
    drop(guard);
    for pid in [lively, frozen] {
        assert!(ends_within(pid, Duration::ZERO), "{pid} lives");
    }
    scratch.assert_empty();
}

#[test]
fn programs_of_a_killed_guard_are_told_and_their_removal_works() {
    let scratch = Scratch::new();
    let user = ServerUser::choose().unwrap();
    let mut guard = scratch.guard();
    let (_, postmaster) = running(&mut guard, &server(), "one");
    // Not frozen: the kernel ends what is frozen when its group is orphaned, sooner or later.
    let pid = guard.spawn("endless", "sh".as_ref(), &ENDLESS, &BTreeMap::new()).unwrap();
    let parent = Process::new(pid).unwrap().stat().unwrap().ppid;
    kill(Pid::from_raw(parent), Signal::SIGKILL).unwrap();
    drop(guard);
    let found = leftovers(&scratch.work(), &user);
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].postmasters, &*found[0].programs), (&[postmaster][..], &[pid][..]));
    let removal = run(program("sh").arg("-c").arg(found[0].removal()));
    assert_eq!(removal.status, Some(0), "{removal:?}");
    assert!(ends_within(pid, PATIENCE) && ends_within(postmaster, PATIENCE));
    assert_eq!(leftovers(&scratch.work(), &user), []);
}

#[test]
fn a_clusters_environment_leads_a_client_to_it() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let (cluster, _) = running(&mut guard, &server, "one");
    let requested = "SELECT current_user, current_database(), current_setting('data_directory')";
    let psql = program_of(&server, "psql");
    guard.spawn("psql", &psql, &["-XAtc", requested], &cluster.environment()).unwrap();
    let output = guard.reap("psql", PATIENCE).unwrap();
    let data = cluster.data();
    assert_eq!(output.tail, format!("postgres|postgres|{}\n", data.display()));
}

/// Wheels bring no psql; any other is as good.
fn program_of(server: &pgtoll_cluster::Installation, name: &str) -> std::path::PathBuf {
    server.program(name).unwrap_or_else(|_| name.into())
}
