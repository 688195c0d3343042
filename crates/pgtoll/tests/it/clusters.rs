//! Clusters and their guard.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{
    Cluster, ClusterError, Guard, ServerProcesses, ServerUser, StopMode, leftovers,
};
use pgtoll_system::Interrupt;

use crate::support::{
    PATIENCE, Scratch, children, ends_within, processes_in, program, run, running, server, servers,
};

fn shown(cluster: &Cluster, setting: &str) -> String {
    let mut connection = cluster.connect("postgres").unwrap();
    let row = connection.query_one(&format!("SHOW {setting}")).unwrap();
    row.values()[0].clone().unwrap()
}

fn map(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_cluster_is_made_with_and_without_checksums() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        for (checksums, expected) in [(false, "off"), (true, "on")] {
            let name = format!("pg{}-{expected}", server.version.major());
            let cluster = Cluster::init(&mut guard, &server, &name, checksums).unwrap();
            cluster.start(&mut guard).unwrap();
            assert_eq!(shown(&cluster, "data_checksums"), expected, "{name}");
            assert_eq!(shown(&cluster, "listen_addresses"), "", "{name}");
            cluster.stop(&mut guard, StopMode::Fast).unwrap();
        }
    }
    guard.finish().unwrap();
    scratch.assert_empty();
}

#[test]
fn settings_are_replaced_and_read_literally() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "one", false).unwrap();
    let odd = "it's a \\ in one";
    cluster.configure(&mut guard, &map(&[("cluster_name", odd), ("work_mem", "5MB")])).unwrap();
    cluster.start(&mut guard).unwrap();
    assert_eq!(shown(&cluster, "cluster_name"), odd);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.configure(&mut guard, &map(&[("work_mem", "6MB")])).unwrap();
    cluster.start(&mut guard).unwrap();
    assert_eq!(shown(&cluster, "work_mem"), "6MB");
    assert_eq!(shown(&cluster, "cluster_name"), "");
    for (name, value) in [("a b", "1"), ("", "1"), ("work_mem", "1\nport = 1")] {
        let refused = cluster.configure(&mut guard, &map(&[(name, value)]));
        assert!(matches!(refused, Err(ClusterError::Setting { .. })), "{refused:?}");
    }
}

#[test]
fn a_copy_is_a_cluster_of_its_own_with_the_same_data() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, _) = running(&mut guard, &server, &name);
        let mut connection = cluster.connect("postgres").unwrap();
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS i").unwrap();
        connection.close();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let copy = cluster.copy(&mut guard, &format!("{name}-copy")).unwrap();
        copy.enable_checksums(&mut guard).unwrap();
        cluster.start(&mut guard).unwrap();
        copy.start(&mut guard).unwrap();
        let mut connection = copy.connect("postgres").unwrap();
        let row = connection.query_one("SELECT sum(i) AS sum FROM t").unwrap();
        assert_eq!(row.parse::<u64>("sum").unwrap(), 500_500);
        assert_eq!(shown(&copy, "data_checksums"), "on");
        assert_eq!(shown(&cluster, "data_checksums"), "off");
    }
}

#[test]
fn a_killed_server_recovers_and_leaves_no_shared_memory() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, pid) = running(&mut guard, &server(), "one");
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("CREATE TABLE t (i int); INSERT INTO t VALUES (1)").unwrap();
    let pids = children(pid);
    assert!(pids.len() >= 4, "{pids:?}");
    let (segment, files) = shared_memory(&cluster, pid);
    let usage = cluster.kill(&mut guard).unwrap();
    assert!(usage.cpu().as_nanos() > 0);
    for pid in pids.into_iter().chain([pid]) {
        assert!(ends_within(pid, PATIENCE), "{pid} lives");
    }
    assert!(files.iter().all(|file| !std::path::Path::new(file).exists()), "{files:?}");
    // The server itself needs the segment to know that nobody else is there: it removes it at its
    // next end.
    cluster.start(&mut guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    assert_eq!(connection.query("SELECT i FROM t").unwrap().len(), 1);
    cluster.kill(&mut guard).unwrap();
    let (last_segment, _) = shared_memory(&cluster, 0);
    guard.finish().unwrap();
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let ids: Vec<&str> =
        segments.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(!ids.contains(&segment.as_str()), "{segments}");
    assert!(!ids.contains(&last_segment.as_str()), "{segments}");
    scratch.assert_empty();
}

/// The System V segment of a server, and its files in /dev/shm.
fn shared_memory(cluster: &Cluster, pid: i32) -> (String, Vec<String>) {
    let file = fs::read_to_string(cluster.data().join("postmaster.pid")).unwrap();
    let segment = file.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let files = files.filter(|file| file.starts_with("/dev/shm/PostgreSQL."));
    (segment, files.map(str::to_owned).collect())
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "one", false).unwrap();
    cluster.configure(&mut guard, &map(&[("shared_buffers", "much")])).unwrap();
    let error = cluster.start(&mut guard).unwrap_err().to_string();
    assert!(error.contains("cluster \"one\" ended at its start (exit status 1)"), "{error}");
    let reason = "invalid value for parameter \"shared_buffers\": \"much\"";
    assert!(error.contains(reason), "{error}");
    // The guard goes on.
    cluster.configure(&mut guard, &BTreeMap::new()).unwrap();
    cluster.start(&mut guard).unwrap();
}

#[test]
fn dropping_the_guard_stops_frozen_servers_too() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (_, pid) = running(&mut guard, &server(), "one");
    for frozen in children(pid).into_iter().chain([pid]) {
        kill(Pid::from_raw(frozen), Signal::SIGSTOP).unwrap();
    }
    drop(guard);
    scratch.assert_empty();
}

#[test]
fn a_panic_stops_everything() {
    let scratch = Scratch::new();
    let guard = scratch.guard();
    let panicked = std::thread::scope(|scope| {
        let run = || {
            let mut guard: Guard = guard;
            running(&mut guard, &server(), "one");
            panic!("as wanted");
        };
        scope.spawn(run).join()
    });
    assert!(panicked.is_err());
    scratch.assert_empty();
}

#[test]
fn a_leftovers_name_is_no_command() {
    let scratch = Scratch::new();
    let user = ServerUser::choose().unwrap();
    for name in ["pgtoll-x; id", "pgtoll-$(id)", "pgtoll-abc", "other-abcdef"] {
        let directory = scratch.work().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("guard.json"), DEAD_GUARD).unwrap();
    }
    assert_eq!(leftovers(&scratch.work(), &user), []);
    // What anybody may put there is not told to a user as this user's own.
    let forged = scratch.work().join("pgtoll-abcdef");
    fs::create_dir(&forged).unwrap();
    fs::write(forged.join("guard.json"), DEAD_GUARD).unwrap();
    assert_eq!(leftovers(&scratch.work(), &user).len(), usize::from(!user.changed));
}

const DEAD_GUARD: &str = r#"{"pid":1,"start_time_ticks":0,"boot_id":"none"}"#;

#[test]
fn what_is_kept_is_no_leftover() {
    let scratch = Scratch::new();
    let user = ServerUser::choose().unwrap();
    let mut options = scratch.guard_options();
    options.keep = true;
    let mut guard = Guard::begin(&options, &Interrupt::new()).unwrap();
    let (cluster, _) = running(&mut guard, &server(), "one");
    let data = cluster.data();
    drop(guard);
    assert!(data.join("PG_VERSION").is_file());
    assert!(processes_in(&scratch.work()).is_empty());
    assert_eq!(leftovers(&scratch.work(), &user), []);
}

#[test]
fn what_a_killed_guard_leaves_is_found_and_its_removal_works() {
    let scratch = Scratch::new();
    let user = ServerUser::choose().unwrap();
    let mut guard = scratch.guard();
    let (_, pid) = running(&mut guard, &server(), "one");
    assert_eq!(leftovers(&scratch.work(), &user), [], "a living guard's directory is no leftover");
    let postmaster = procfs::process::Process::new(pid).unwrap().stat().unwrap();
    kill(Pid::from_raw(postmaster.ppid), Signal::SIGKILL).unwrap();
    let lost = guard.check_executable("/".as_ref()).unwrap_err();
    assert!(matches!(lost, ClusterError::GuardLost(_)), "{lost:?}");
    drop(guard);
    let found = leftovers(&scratch.work(), &user);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].postmasters, [pid]);
    let removal = run(program("sh").arg("-c").arg(found[0].removal()));
    assert_eq!(removal.status, Some(0), "{removal:?}");
    assert!(ends_within(pid, PATIENCE));
    assert_eq!(leftovers(&scratch.work(), &user), []);
}

fn states(postmaster: i32) -> Vec<char> {
    let pids = children(postmaster).into_iter().chain([postmaster]);
    pids.map(|pid| procfs::process::Process::new(pid).unwrap().stat().unwrap().state).collect()
}

#[test]
fn a_suspended_server_stands_still_and_goes_on() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, postmaster) = running(&mut guard, &server, &name);
        let mut connection = cluster.connect("postgres").unwrap();
        let processes = ServerProcesses::from_postmaster(postmaster).unwrap();
        let (sender, answered) = std::sync::mpsc::channel();
        processes.suspend().unwrap();
        assert!(states(postmaster).iter().all(|state| *state == 'T'), "{:?}", states(postmaster));
        let worker = std::thread::spawn(move || {
            sender.send(connection.query_one("SELECT 6 * 7 AS it")).unwrap();
        });
        // While it stands still there is no answer, however long this thread is kept from looking.
        assert!(answered.recv_timeout(std::time::Duration::from_millis(100)).is_err());
        processes.resume().unwrap();
        let row = answered.recv().unwrap().unwrap();
        assert_eq!(row.parse::<u32>("it").unwrap(), 42);
        worker.join().unwrap();
        // What is dropped goes on, too.
        processes.suspend().unwrap();
        drop(processes);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let gone = ServerProcesses::from_postmaster(postmaster);
        assert!(matches!(gone, Err(ClusterError::Suspend { .. })), "{gone:?}");
    }
    guard.finish().unwrap();
    scratch.assert_empty();
}

#[test]
fn the_guard_ends_suspended_servers() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (_, postmaster) = running(&mut guard, &server(), "one");
    let processes = ServerProcesses::from_postmaster(postmaster).unwrap();
    processes.suspend().unwrap();
    drop(guard);
    assert!(ends_within(postmaster, std::time::Duration::ZERO));
    assert!(processes.resume().is_err(), "it has ended");
    scratch.assert_empty();
}

#[test]
fn a_server_is_suspended_whole_while_sessions_begin() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, postmaster) = running(&mut guard, &server(), "one");
    let pgbench = cluster.client("pgbench").unwrap();
    let again = format!("echo 'SELECT 1;' | {} -n -C -t 20 -f /dev/stdin", pgbench.display());
    let endless = format!("while :; do {again}; done");
    guard.spawn("load", "sh".as_ref(), &["-c", &endless], &cluster.environment()).unwrap();
    let processes = ServerProcesses::from_postmaster(postmaster).unwrap();
    for round in 0..200 {
        processes.suspend().unwrap();
        let states = states(postmaster);
        assert!(states.iter().all(|state| "TZ".contains(*state)), "{round}: {states:?}");
        processes.resume().unwrap();
    }
    drop(processes);
    guard.finish().unwrap();
    scratch.assert_empty();
}

#[test]
fn a_standby_follows_and_becomes_a_primary() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let major = server.version.major();
        let (primary, _) = running(&mut guard, &server, &format!("primary{major}"));
        let name = format!("standby{major}");
        let standby = primary.standby(&mut guard, &name, primary.directory()).unwrap();
        standby.start(&mut guard).unwrap();
        assert_eq!(shown(&standby, "transaction_read_only"), "on", "{name}");
        let mut connection = primary.connect("postgres").unwrap();
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS i").unwrap();
        let is_there = format!(
            "SELECT coalesce(bool_or(replay_lsn >= pg_current_wal_lsn()), false) AS is_there \
             FROM pg_stat_replication WHERE application_name = '{name}'"
        );
        while connection.query_one(&is_there).unwrap().text("is_there").unwrap() != "t" {}
        connection.close();
        primary.kill(&mut guard).unwrap();
        standby.promote().unwrap();
        let mut connection = standby.connect("postgres").unwrap();
        let row = connection.query_one("SELECT count(*) AS n FROM t").unwrap();
        assert_eq!(row.parse::<u32>("n").unwrap(), 1000, "{name}");
        connection.close();
        standby.stop(&mut guard, StopMode::Immediate).unwrap();
    }
    guard.finish().unwrap();
    scratch.assert_empty();
}
