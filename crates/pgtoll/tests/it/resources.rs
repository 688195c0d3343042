//! What a cluster uses: sessions that ended, I/O, memory limits, profiles.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use pgtoll_cluster::{
    Cluster, ClusterError, Installation, MemoryGroup, NoProfile, Profiler, StopMode,
};
use pgtoll_observe::{ClusterCpu, ClusterIo, CpuSplit, IoSample, Profile, cpu_split};
use pgtoll_wire::{Connection, Row};

use crate::support::{PATIENCE, Scratch, children, running, server, servers};

const MB: u64 = 1 << 20;
const WORK: &str = "SELECT count(*) FROM generate_series(1, 2000000)";

fn settings(cluster: &Cluster, guard: &mut pgtoll_cluster::Guard, all: &[(&str, &str)]) {
    let all = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    cluster.configure(guard, &all.collect()).unwrap();
}

/// A table of a row each page.
fn make_table(connection: &mut Connection, megabytes: u64) {
    let rows = megabytes * MB / 8192;
    let sql = "CREATE TABLE t (i int, filler text) WITH (fillfactor = 10); \
               ALTER TABLE t ALTER filler SET STORAGE PLAIN";
    connection.execute(sql).unwrap();
    connection
        .execute(&format!(
            "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, {rows}) i"
        ))
        .unwrap();
    connection.execute("VACUUM FREEZE t").unwrap();
    let sql = "SELECT pg_relation_size('t') AS bytes";
    let bytes: u64 = connection.query_one(sql).unwrap().parse("bytes").unwrap();
    assert!(bytes >= megabytes * MB, "{bytes}");
}

const SCAN: &str = "SET max_parallel_workers_per_gather = 0; SELECT sum(length(filler)) FROM t";

#[test]
fn sessions_that_a_client_left_are_waited_for() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, postmaster) = running(&mut guard, &server, &name);
        let mut cpu = ClusterCpu::attach(postmaster).unwrap();
        // What starts after the server is ready has started when a first session was served.
        let mut connection = cluster.connect("postgres").unwrap();
        connection.execute(WORK).unwrap();
        let rest = cpu.sample().unwrap();
        let times = cpu.times().unwrap();
        let session = children(postmaster).len();
        let mut other = cluster.connect("postgres").unwrap();
        other.execute(WORK).unwrap();
        let stays = cpu.wait_until_back(&rest, Duration::from_millis(100)).unwrap();
        assert_eq!(stays.len(), 1, "{name}: {stays:?}");
        let busy = cpu.sample().unwrap();
        other.close();
        assert_eq!(cpu.wait_until_back(&rest, PATIENCE).unwrap(), Vec::<i32>::new(), "{name}");
        assert_eq!(children(postmaster).len(), session, "{name}");
        let gone = cpu.sample().unwrap();
        let used = busy.since(&rest).nanoseconds;
        let kept = gone.since(&rest);
        assert!(!kept.processes_changed, "{name}");
        assert!(kept.nanoseconds + 20_000_000 > used, "{name}: {kept:?} of {used}");
        let apart = cpu.times().unwrap().since(&times);
        let sum = apart.user_ns + apart.system_ns;
        assert!(apart.user_ns > 0, "{name}: {apart:?}");
        // A tick of 10 ms for each of a handful of processes, twice.
        assert!(sum.abs_diff(kept.nanoseconds) < 200_000_000, "{name}: {apart:?} {kept:?}");
    }
}

#[test]
fn the_kernels_way_of_splitting_cpu_time_is_known() {
    let split = cpu_split();
    // Where the configuration can be read there is an answer with a number.
    if fs::exists("/proc/config.gz").unwrap() {
        assert_ne!(split, CpuSplit::Sampled { hz: None });
    }
}

fn io(io: &ClusterIo) -> IoSample {
    io.sample().unwrap().expect("root and the servers' user may see it")
}

#[test]
fn a_clusters_io_is_counted_with_ended_sessions() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("pg{}", server.version.major());
        let (cluster, postmaster) = running(&mut guard, &server, &name);
        let counter = ClusterIo::attach(postmaster).unwrap();
        let before = io(&counter);
        let mut worker = cluster.connect("postgres").unwrap();
        make_table(&mut worker, 20);
        worker.execute("CHECKPOINT").unwrap();
        let written = io(&counter).since(&before);
        assert!(written.write_bytes >= 20 * MB, "{name}: {written:?}");
        assert!(written.write_call_bytes >= 20 * MB, "{name}: {written:?}");
        let pids = children(postmaster).len();
        worker.close();
        while children(postmaster).len() == pids {}
        let after = io(&counter).since(&before);
        assert!(after.write_bytes >= written.write_bytes, "{name}: {after:?} {written:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.evict().unwrap();
        let counter = ClusterIo::attach(cluster.start(&mut guard).unwrap()).unwrap();
        let before = io(&counter);
        cluster.connect("postgres").unwrap().execute(SCAN).unwrap();
        let read = io(&counter).since(&before);
        assert!(read.read_bytes >= 20 * MB, "{name}: {read:?}");
        assert!(read.read_call_bytes >= 20 * MB, "{name}: {read:?}");
    }
}

#[test]
fn another_users_io_is_not_shown() {
    // In some containers not even root may see that of the first process.
    let may = fs::read("/proc/1/io").is_ok();
    let shown = ClusterIo::attach(1).unwrap().sample().unwrap();
    assert!(may || shown.is_none(), "{shown:?}");
    assert!(geteuid().is_root() || shown.is_none(), "{shown:?}");
}

/// Bytes that a scan read from the disk.
fn scan(cluster: &Cluster, counter: &ClusterIo) -> u64 {
    let mut connection = cluster.connect("postgres").unwrap();
    let before = io(counter);
    connection.execute(SCAN).unwrap();
    io(counter).since(&before).read_bytes
}

#[test]
fn a_memory_limit_makes_data_larger_than_memory() {
    let group = match MemoryGroup::create("test", 96 * MB) {
        Ok(group) => group,
        Err(error) => return assert_refusal(&error),
    };
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "one", false).unwrap();
    settings(&cluster, &mut guard, &[("shared_buffers", "16MB"), ("autovacuum", "off")]);
    cluster.start(&mut guard).unwrap();
    make_table(&mut cluster.connect("postgres").unwrap(), 160);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();

    cluster.evict().unwrap();
    let free = ClusterIo::attach(cluster.start(&mut guard).unwrap()).unwrap();
    let first = scan(&cluster, &free);
    let second = scan(&cluster, &free);
    assert!(first >= 160 * MB, "{first}");
    // The system may have taken some of its cache back, for others.
    assert!(second <= 16 * MB, "{second}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();

    cluster.evict().unwrap();
    let before = fs::read_to_string("/proc/self/cgroup").unwrap();
    let postmaster = cluster.start_within(&mut guard, &group).unwrap();
    let limited = ClusterIo::attach(postmaster).unwrap();
    let first = scan(&cluster, &limited);
    let second = scan(&cluster, &limited);
    assert!(first >= 160 * MB, "{first}");
    // More than what does not fit: the kernel cannot know what comes next.
    assert!(second >= 64 * MB, "{second}");
    let used = group.usage().unwrap();
    println!("with a limit {second} bytes were read again; {used:?}");
    assert_eq!(used.limit_bytes, 96 * MB);
    assert!(used.limit_hits > 0 && used.kills == 0, "{used:?}");
    assert!(used.current_bytes <= used.limit_bytes, "{used:?}");
    assert!(used.cache_bytes > 0 && used.cache_bytes <= used.limit_bytes, "{used:?}");
    assert!(used.peak_bytes.is_none_or(|peak| peak <= used.limit_bytes), "{used:?}");
    // Only the server is in it: the guard is where it was, with us.
    assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
    let guards = procfs::process::Process::new(postmaster).unwrap().stat().unwrap().ppid;
    let of_guard = fs::read_to_string(format!("/proc/{guards}/cgroup")).unwrap();
    assert_eq!(of_guard, before);
    let of_server = fs::read_to_string(format!("/proc/{postmaster}/cgroup")).unwrap();
    let own = format!("/pgtoll-{}-test", std::process::id());
    assert!(of_server.contains(&own), "{of_server}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    group.remove().unwrap();
}

/// What is said where no group can be made, in a container for example.
#[expect(clippy::print_stdout, reason = "tells why there was little to look at")]
fn assert_refusal(error: &ClusterError) {
    println!("no memory group here: {error}");
    let known =
        matches!(error, ClusterError::NoMemoryController | ClusterError::MemoryGroup { .. });
    assert!(known, "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("systemd-run")), "{error}");
}

#[test]
fn groups_of_a_killed_pgtoll_are_removed() {
    let group = match MemoryGroup::create("first", 64 * MB) {
        Ok(group) => group,
        Err(error) => return assert_refusal(&error),
    };
    let parent = own_groups_parent();
    let gone = gone_pid();
    let leftover = parent.join(format!("pgtoll-{gone}-off"));
    fs::create_dir(&leftover).unwrap();
    let kept = parent.join(format!("pgtoll-{}-first", std::process::id()));
    let second = MemoryGroup::create("second", 64 * MB).unwrap();
    assert!(!leftover.exists() && kept.exists());
    let taken = MemoryGroup::create("second", 64 * MB).unwrap_err();
    assert!(taken.to_string().starts_with("limit memory: make "), "{taken}");
    drop((group, second));
    assert!(!kept.exists());
}

/// Where this process's groups are, found by the name of one.
fn own_groups_parent() -> std::path::PathBuf {
    let name = format!("pgtoll-{}-first", std::process::id());
    let mut places = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(place) = places.pop() {
        if place.join(&name).is_dir() {
            return place;
        }
        let entries = fs::read_dir(&place).unwrap().flatten();
        places.extend(
            entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()),
        );
    }
    panic!("no {name} below /sys/fs/cgroup");
}

/// The pid of a process that has ended.
fn gone_pid() -> i32 {
    let mut child = crate::support::program("true").spawn().unwrap();
    child.wait().unwrap();
    crate::support::pid_of(&child)
}

#[test]
fn a_profile_shows_the_checksums_share() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = Cluster::init(&mut guard, &server, "one", true).unwrap();
    settings(&cluster, &mut guard, &[("shared_buffers", "4MB"), ("autovacuum", "off")]);
    let postmaster = cluster.start(&mut guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    make_table(&mut connection, 64);
    let pids: Vec<i32> = [postmaster].into_iter().chain(children(postmaster)).collect();
    let profiler = match Profiler::begin(&mut guard, "profile", &pids).unwrap() {
        Ok(profiler) => profiler,
        Err(reason) => return assert_reason(&reason),
    };
    // In a session that was there and in one that comes.
    for _ in 0..5 {
        connection.execute(SCAN).unwrap();
        cluster.connect("postgres").unwrap().execute(SCAN).unwrap();
    }
    let report = match profiler.finish(&mut guard).unwrap() {
        Ok(report) => report,
        Err(reason) => return assert_reason(&reason),
    };
    let profile = Profile::parse(&report);
    assert!(profile.samples > 50, "{report}");
    let samples = profile.by_symbol["pg_checksum_page"];
    assert!((1..profile.samples).contains(&samples), "{report}");
    // Once more under the same name, and nothing of it stays.
    let with_a_gone_one: Vec<i32> = pids.iter().copied().chain([gone_pid()]).collect();
    let profiler = Profiler::begin(&mut guard, "profile", &with_a_gone_one).unwrap().unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let _ = profiler.finish(&mut guard).unwrap();
    assert!(!guard.directory().join("profile.perf").exists());
}

/// An I/O worker that comes while perf records is the postmaster's child, and so is in the profile.
#[test]
fn a_profile_shows_io_workers_that_come_later() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    let has_workers = |installation: &Installation| {
        installation.version.facts().is_ok_and(|facts| facts.has_setting("io_workers"))
    };
    let Some(server) = servers().into_iter().find(has_workers) else { return };
    let cluster = Cluster::init(&mut guard, &server, "one", true).unwrap();
    let pairs = [("shared_buffers", "4MB"), ("autovacuum", "off"), ("io_workers", "1")];
    settings(&cluster, &mut guard, &pairs);
    let postmaster = cluster.start(&mut guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    make_table(&mut connection, 64);
    // Neither the session nor the worker that is there: all samples are of the one that comes.
    let profiler = match Profiler::begin(&mut guard, "profile", &[postmaster]).unwrap() {
        Ok(profiler) => profiler,
        Err(reason) => return assert_reason(&reason),
    };
    // The postmaster begins another one in its place, to which all reads go.
    let worker = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'";
    let first: i32 = connection.query_one(worker).unwrap().parse("pid").unwrap();
    kill(Pid::from_raw(first), Signal::SIGUSR2).unwrap();
    let is_first = |row: &Row| row.parse::<i32>("pid").unwrap() == first;
    while connection.query(worker).unwrap().iter().all(is_first) {}
    for _ in 0..20 {
        connection.execute(SCAN).unwrap();
    }
    let report = profiler.finish(&mut guard).unwrap().unwrap();
    let profile = Profile::parse(&report);
    assert!(profile.by_symbol.contains_key("pg_checksum_page"), "{report}");
}

#[expect(clippy::print_stdout, reason = "tells why there was little to look at")]
fn assert_reason(reason: &NoProfile) {
    println!("no profile here: {reason}");
    let output = reason.to_string();
    assert!(output.starts_with("perf "), "{output}");
    let installed = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|bin| bin.join("perf").is_file());
    assert_eq!(*reason == NoProfile::Missing, !installed, "{output}");
}

#[test]
fn perf_that_cannot_is_a_reason() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    let reason = Profiler::begin(&mut guard, "profile", &[gone_pid()]).unwrap().unwrap_err();
    assert_reason(&reason);
    assert!(!guard.directory().join("profile.perf").exists());
    guard.finish().unwrap();
    scratch.assert_empty();
}
