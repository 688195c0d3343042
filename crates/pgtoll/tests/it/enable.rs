//! Data checksums on and off: the servers of every major, and their own tools, agree.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::control_file;
use pgtoll_system::Interrupt;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::mistakes::unshared;
use crate::support::{
    PATIENCE, Ran, Scratch, pgtoll, pid_of, program, run, running, server, servers,
};

/// Something of everything: a table in a tablespace, one that is not logged, an index, long values.
const TABLES: &str = "
    CREATE TABLE t AS SELECT i, repeat(md5(i::text), 20) AS words FROM generate_series(1, 4000) i;
    CREATE INDEX ON t (i);
    CREATE UNLOGGED TABLE u AS SELECT * FROM t;
    CREATE TABLE far TABLESPACE far AS SELECT * FROM t;
    CREATE TABLE near TABLESPACE near AS SELECT * FROM t;
    CREATE TABLE long (words text);
    ALTER TABLE long ALTER words SET STORAGE EXTERNAL;
    INSERT INTO long SELECT repeat('x', 100000);
    CREATE TABLE none (i int);
    VACUUM t;";

/// A cluster that was stopped, without checksums.
fn stopped(guard: &mut Guard, server: &Installation, name: &str) -> Cluster {
    let (cluster, _) = running(guard, server, name);
    let far = guard.directory().join(format!("{name}-far"));
    guard.run(Path::new("mkdir"), &[&far.to_string_lossy()]).unwrap();
    let tablespaces = format!(
        "CREATE TABLESPACE far LOCATION '{}';
         SET allow_in_place_tablespaces = on;
         CREATE TABLESPACE near LOCATION '';",
        far.display()
    );
    cluster.run_psql(guard, "postgres", &tablespaces).unwrap();
    cluster.run_psql(guard, "postgres", TABLES).unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster
}

/// What all tables hold, read by a server.
fn rows(guard: &mut Guard, cluster: &Cluster) -> BTreeMap<String, u64> {
    cluster.start(guard).unwrap();
    let mut connection = cluster.connect("postgres").unwrap();
    let tables =
        "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 't', 'm')";
    let tables = connection.query(tables).unwrap();
    let names: Vec<String> = tables.iter().map(|row| row.text("name").unwrap().into()).collect();
    let mut rows = BTreeMap::new();
    for name in names {
        let count = format!("SELECT count(*) AS rows FROM {name}");
        rows.insert(name, connection.query_one(&count).unwrap().parse("rows").unwrap());
    }
    connection.close();
    cluster.stop(guard, StopMode::Fast).unwrap();
    rows
}

/// What PostgreSQL's own program says of every page.
fn assert_checked(guard: &mut Guard, server: &Installation, cluster: &Cluster) {
    let data = cluster.data();
    let arguments = ["--check", "-D", &data.to_string_lossy()];
    let output = guard.run(&server.bin.join("pg_checksums"), &arguments).unwrap().tail;
    assert!(output.contains("Bad checksums:  0"), "{output}");
}

fn controldata(server: &Installation, cluster: &Cluster) -> String {
    let ran =
        run(program(server.bin.join("pg_controldata")).arg(cluster.data()).env("LC_ALL", "C"));
    let line = ran.stdout.lines().find(|line| line.starts_with("Data page checksum version:"));
    line.unwrap().split_whitespace().last().unwrap().to_owned()
}

fn switched(verb: &str, cluster: &Cluster, arguments: &[&str]) -> Ran {
    run(pgtoll().arg(verb).args(arguments).arg(cluster.data()))
}

/// Every file below, with its bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if path.is_file() {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn is_on(cluster: &Cluster) -> bool {
    control_file(&cluster.data()).unwrap().checksum_version == 1
}

#[test]
fn every_server_reads_what_was_enabled_and_disabled() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = stopped(&mut guard, &server, &format!("pg{}", server.version.major()));
        let before = rows(&mut guard, &cluster);
        let foreign = cluster.data().join("base/1/16384.rum");
        fs::write(&foreign, "an extension's").unwrap();
        let ran = switched("enable", &cluster, &["--json", "--verify-after", "--jobs", "3"]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let record: pgtoll_record::ChecksumsRecord = serde_json::from_str(&ran.stdout).unwrap();
        let pages = record.pages.unwrap();
        assert!(record.enabled && pages.written > 1000, "{}", ran.stdout);
        assert_eq!(pages.all, pages.written + pages.new, "{}", ran.stdout);
        assert_eq!(record.foreign, [foreign.display().to_string()]);
        assert_eq!(fs::read(&foreign).unwrap(), b"an extension's");
        // PostgreSQL's own program fails when it sees this file.
        fs::remove_file(&foreign).unwrap();
        assert_checked(&mut guard, &server, &cluster);
        assert_eq!(controldata(&server, &cluster), "1");
        assert_eq!(rows(&mut guard, &cluster), before);
        let ran = switched("enable", &cluster, &[]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("on already; nothing was written"), "{ran:?}");
        let ran = switched("disable", &cluster, &[]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert_eq!(controldata(&server, &cluster), "0");
        assert_eq!(rows(&mut guard, &cluster), before);
        // Nothing belongs to whoever ran pgtoll.
        let data = cluster.data();
        let owner = fs::metadata(&data).unwrap().uid();
        assert!(contents(&data).keys().all(|path| fs::metadata(path).unwrap().uid() == owner));
        assert!(!data.join("postmaster.pid").exists());
    }
}

#[test]
fn segments_of_every_size_have_the_checksums_of_their_blocks() {
    // No package has other sizes, so a later segment is made by hand: a server that was built with
    // 1 GiB takes its blocks' numbers from the name.
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one");
    let base = cluster.data().join("base/1");
    let page = fs::read(base.join("1259")).unwrap();
    guard
        .run(
            Path::new("cp"),
            &[&*base.join("1259").to_string_lossy(), &*base.join("99990.3").to_string_lossy()],
        )
        .unwrap();
    assert_eq!(switched("enable", &cluster, &[]).status, Some(0));
    assert_checked(&mut guard, &server, &cluster);
    let stamped = fs::read(base.join("99990.3")).unwrap();
    assert_eq!(stamped.len(), page.len());
    let expected = pgtoll_checksum::page_checksum(&stamped[..8192], 3 * 131_072);
    assert_eq!(stamped[8..10], expected.to_le_bytes());
}

#[test]
fn a_running_server_is_refused_and_not_a_byte_changes() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one");
    cluster.start(&mut guard).unwrap();
    let places = ["base", "global", "postmaster.pid"];
    let all = || -> Vec<Vec<u8>> {
        let data = cluster.data();
        let below = |place: &str| match data.join(place) {
            path if path.is_dir() => contents(&path).into_values().flatten().collect(),
            path => fs::read(path).unwrap(),
        };
        places.map(below).to_vec()
    };
    let before = all();
    for verb in ["enable", "disable"] {
        let ran = switched(verb, &cluster, &[]);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(": a server runs on "), "{ran:?}");
        assert!(ran.stderr.contains("hint: stop it first"), "{ran:?}");
    }
    assert!(all() == before);
    cluster.kill(&mut guard).unwrap();
    let ran = switched("enable", &cluster, &[]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("was not shut down cleanly"), "{ran:?}");
    assert!(ran.stderr.contains("\"in production\""), "{ran:?}");
}

#[test]
fn a_lock_counts_as_long_as_its_process_lives() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one");
    let lock = cluster.data().join("postmaster.pid");
    let pid = guard.spawn("sleeper", Path::new("sleep"), &["600"], &BTreeMap::new()).unwrap();
    for (text, expected) in [
        (format!("{pid}\n"), "a server runs on"),
        (format!("-{pid}\n"), "a server runs on"),
        (String::new(), "names no process"),
        ("x\n".to_owned(), "names no process"),
    ] {
        fs::write(&lock, &text).unwrap();
        let ran = switched("enable", &cluster, &[]);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{text:?}: {ran:?}");
        assert_eq!(fs::read_to_string(&lock).unwrap(), text);
        assert!(!is_on(&cluster));
    }
    guard.signal("sleeper", pgtoll_cluster::ProgramSignal::Terminate).unwrap();
    guard.reap("sleeper", PATIENCE).unwrap();
    fs::write(&lock, format!("{pid}\n")).unwrap();
    let ran = switched("enable", &cluster, &[]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(is_on(&cluster) && !lock.exists());
}

/// `pgtoll enable`, which stops at each of its reports of progress until it is continued.
struct Paused(Child);

impl Paused {
    /// At its first report: the directory is held, and checksums are off.
    fn begin(cluster: &Cluster, options: &[&str]) -> Self {
        let mut command = pgtoll();
        command.arg("enable").args(options).arg(cluster.data());
        command.env("PGTOLL_TEST_PAUSE_AT", "enable");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let paused = Self(command.spawn().unwrap());
        assert!(paused.is_stopped(), "it ended without a report of progress");
        paused
    }

    /// Waits until it has stopped, or has ended.
    fn is_stopped(&self) -> bool {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let status = waitid(Id::Pid(self.pid()), flags).unwrap();
        matches!(status, WaitStatus::Stopped(..))
    }

    /// Until its next report; false when it has ended.
    fn go_on(&mut self) -> bool {
        kill(self.pid(), Signal::SIGCONT).unwrap();
        self.is_stopped()
    }

    fn finish(mut self) -> ExitStatus {
        while self.go_on() {}
        self.0.wait().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(pid_of(&self.0))
    }
}

/// Kills it, unless it has ended.
impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_server_starts_meanwhile() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one");
    let paused = Paused::begin(&cluster, &[]);
    let refused = cluster.start(&mut guard).unwrap_err().to_string();
    assert!(refused.contains("postmaster.pid"), "{refused}");
    assert!(!is_on(&cluster));
    assert!(paused.finish().success());
    assert!(is_on(&cluster));
    cluster.start(&mut guard).unwrap();
}

/// Checksums off, and on no page: as a server leaves a cluster that never had them.
fn wipe(cluster: &Cluster) {
    assert_eq!(switched("disable", cluster, &["--no-sync"]).status, Some(0));
    wipe_pages_only(cluster);
}

fn wipe_pages_only(cluster: &Cluster) {
    let data = cluster.data();
    for file in pgtoll_datadir::relation_files(&data, &control_file(&data).unwrap()).files {
        let mut bytes = fs::read(&file.path).unwrap();
        bytes.chunks_exact_mut(8192).for_each(|page| page[8..10].fill(0));
        fs::OpenOptions::new().write(true).open(&file.path).unwrap().write_all(&bytes).unwrap();
    }
}

/// Starts `pgtoll enable` and kills it so long after it took hold of the directory.
fn kill_after(cluster: &Cluster, time: Duration) {
    let mut command = pgtoll();
    command.args(["enable", "--jobs", "2"]).arg(cluster.data());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let lock = cluster.data().join("postmaster.pid");
    let began = Instant::now();
    while !lock.exists() && began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    Interrupt::new().wait(time).unwrap();
    let _ = child.kill();
    child.wait().unwrap();
}

/// Killed when some files are in the journal, and not all are done.
fn interrupted(cluster: &Cluster) {
    wipe(cluster);
    let mut paused = Paused::begin(cluster, &["--jobs", "2"]);
    let journal = cluster.data().join(JOURNAL);
    let lines = || fs::read(&journal).unwrap().split(|&byte| byte == b'\n').count();
    while lines() <= 10 {
        assert!(paused.go_on(), "it ended with few files in its journal");
    }
    drop(paused);
    assert!(!is_on(cluster));
}

const JOURNAL: &str = "pgtoll_enable.journal";

/// How long it takes from taking hold to letting go, about.
fn whole(cluster: &Cluster) -> Duration {
    let began = Instant::now();
    assert_eq!(switched("enable", cluster, &[]).status, Some(0));
    began.elapsed()
}

fn enabled(cluster: &Cluster) -> pgtoll_record::ChecksumsRecord {
    let ran = switched("enable", cluster, &["--json"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!cluster.data().join(JOURNAL).exists());
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn killed_at_any_moment_it_is_on_or_off_and_a_second_run_completes() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let servers = servers();
    let mut random = Pcg64::seed_from_u64(1);
    let mut moments = 0;
    let mut resumed = 0;
    for server in &servers {
        let cluster = stopped(&mut guard, server, &format!("pg{}", server.version.major()));
        let before = rows(&mut guard, &cluster);
        let whole = whole(&cluster);
        for moment in 0..50_usize.div_ceil(servers.len()) {
            wipe(&cluster);
            kill_after(&cluster, whole.mul_f64(random.random()));
            moments += 1;
            assert!(["0", "1"].contains(&&*controldata(server, &cluster)));
            if is_on(&cluster) {
                assert_checked(&mut guard, server, &cluster);
                continue;
            }
            // A server reads it as it is, or it goes on at once.
            if moment % 4 == 0 {
                assert_eq!(rows(&mut guard, &cluster), before, "{moment}");
            }
            let record = enabled(&cluster);
            resumed +=
                u32::from(record.earlier.is_some_and(|earlier| earlier.valid && earlier.files > 0));
            assert_checked(&mut guard, server, &cluster);
        }
        assert_eq!(controldata(server, &cluster), "1");
        assert_eq!(rows(&mut guard, &cluster), before);
    }
    assert!(moments >= 50 && resumed > 0, "{moments}, {resumed} of them resumed");
}

#[test]
fn what_a_server_wrote_after_an_interruption_is_read_again() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = stopped(&mut guard, &server, &format!("pg{}", server.version.major()));
        interrupted(&cluster);
        cluster.start(&mut guard).unwrap();
        let work = "UPDATE t SET i = -i; UPDATE far SET i = -i; INSERT INTO none VALUES (1);";
        cluster.run_psql(&mut guard, "postgres", work).unwrap();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let record = enabled(&cluster);
        assert_eq!(record.earlier.map(|earlier| (earlier.valid, earlier.files)), Some((false, 0)));
        assert_checked(&mut guard, &server, &cluster);
        assert_eq!(controldata(&server, &cluster), "1");
        assert_eq!(rows(&mut guard, &cluster)["\"none\""], 1);
        // A server may come and go without writing anything.
        interrupted(&cluster);
        rows(&mut guard, &cluster);
        assert!(!enabled(&cluster).earlier.unwrap().valid);
        assert_checked(&mut guard, &server, &cluster);
        // Somebody writes to files, and no server runs.
        interrupted(&cluster);
        wipe_pages_only(&cluster);
        enabled(&cluster);
        assert_checked(&mut guard, &server, &cluster);
        // The journal's end is torn.
        interrupted(&cluster);
        let journal = cluster.data().join(JOURNAL);
        let mut bytes = fs::read(&journal).unwrap();
        let end = bytes.iter().rposition(|&byte| byte == b'\n').unwrap();
        bytes[end - 20..=end].fill(b'x');
        fs::write(&journal, bytes).unwrap();
        assert!(enabled(&cluster).earlier.unwrap().valid);
        assert_checked(&mut guard, &server, &cluster);
        // Whoever turns them off does not want to go on.
        interrupted(&cluster);
        assert_eq!(switched("disable", &cluster, &[]).status, Some(0));
        assert!(!journal.exists());
    }
}

/// The command in a mount namespace where a small file system is mounted on a directory.
fn mounted(mounts: &str, cluster: &Cluster) -> Ran {
    let mut command = unshared();
    let program = env!("CARGO_BIN_EXE_pgtoll");
    let data = cluster.data();
    command.arg(format!("{mounts} && exec {program} enable {}", data.display()));
    run(&mut command)
}

#[test]
fn a_disk_that_is_full_or_read_only_keeps_every_byte() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one");
    let data = cluster.data();
    let before = contents(&data);
    let place = data.display();
    let read_only = format!("mount --bind {place} {place} && mount -o remount,ro,bind {place}");
    let tablespace = guard.directory().join("one-far");
    let far = tablespace.display();
    let far = format!("mount --bind {far} {far} && mount -o remount,ro,bind {far}");
    // Room for nothing but the lock.
    let full = |room: u32| {
        let copy = scratch.path("copy");
        let copy = copy.display();
        format!(
            "mkdir -p {copy} && mount -t tmpfs -o size=1g tmpfs {copy} && cp -a {place}/. {copy} && \
             chown --reference={place} {copy} && chmod 700 {copy} && mount --bind {copy} {place} && \
             size=$(df -k --output=used {copy} | tail -1) && \
             mount -o remount,size=$((size + {room}))k {copy}"
        )
    };
    for (mounts, expected, hint) in [
        (read_only, "Read-only file system", "hint: mount the file system for writing"),
        (far, "Read-only file system", "hint: mount the file system for writing"),
        (full(0), "No space left on device", "hint: free some space"),
        (full(4), "No space left on device", "hint: free some space"),
    ] {
        let unchanged = format!(
            "{mounts} && find {place} -type f -print0 | sort -z | xargs -0 cat | sha256sum"
        );
        let sum = |command: &str| {
            let mut inside = unshared();
            inside.arg(command);
            run(&mut inside).stdout
        };
        let ran = mounted(&mounts, &cluster);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected) && ran.stderr.contains(hint), "{ran:?}");
        let program = env!("CARGO_BIN_EXE_pgtoll");
        let after = format!(
            "{mounts}; {program} enable {place} 2> /dev/null; find {place} -type f -print0 | sort -z | xargs -0 cat | sha256sum"
        );
        assert_eq!(sum(&unchanged), sum(&after), "{mounts}");
        assert!(contents(&data) == before, "{mounts}");
    }
    assert_eq!(switched("enable", &cluster, &[]).status, Some(0));
    assert_checked(&mut guard, &server, &cluster);
}

#[test]
fn a_dry_run_writes_nothing_and_reads_a_sample() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one");
    let before = contents(&cluster.data());
    let ran = switched("enable", &cluster, &["--dry-run", "--json"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(contents(&cluster.data()) == before);
    let record: pgtoll_record::ChecksumsRecord = serde_json::from_str(&ran.stdout).unwrap();
    let (least, most) = record.predicted_seconds.unwrap();
    assert!(0.0 < least && least <= most, "{}", ran.stdout);
    let sample = record.sample.unwrap();
    assert!(0 < sample.stale && sample.stale <= sample.pages, "{}", ran.stdout);
    assert!(sample.pages * 8192 <= record.bytes && !record.enabled);
}

#[test]
fn what_cannot_be_written_leaves_them_off() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one");
    // A file that its owner may not write.
    let file = cluster.data().join("base/1/1259");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let before = contents(&cluster.data());
    mode(0o400);
    let ran = switched("enable", &cluster, &[]);
    mode(0o600);
    assert!(contents(&cluster.data()) == before);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("data checksums are still off: write /"), "{ran:?}");
    assert!(ran.stderr.contains("base/1/1259: Permission denied"), "{ran:?}");
    assert!(!is_on(&cluster));
    // A write that fails: no file may be longer than 200 kB.
    let shell = "trap '' XFSZ; ulimit -f 200; exec \"$@\"";
    let mut command = program("bash");
    command.args(["-c", shell, "sh", env!("CARGO_BIN_EXE_pgtoll"), "enable"]).arg(cluster.data());
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("data checksums are still off: write /"), "{ran:?}");
    assert!(ran.stderr.contains("File too large"), "{ran:?}");
    assert!(!is_on(&cluster) && !cluster.data().join("postmaster.pid").exists());
    // What is no data directory is not touched.
    let ran = run(pgtoll().arg("enable").arg(scratch.work()));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(!scratch.work().join("postmaster.pid").exists());
    assert_eq!(switched("enable", &cluster, &[]).status, Some(0));
    assert_checked(&mut guard, &server, &cluster);
}

#[test]
fn damaged_pages_are_told_and_not_repaired() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one");
    let file = cluster.data().join("base/1/1259");
    let mut bytes = fs::read(&file).unwrap();
    bytes[8192..8192 + 4096].fill(0);
    bytes.extend([7; 100]);
    fs::write(&file, &bytes).unwrap();
    let ran = switched("enable", &cluster, &["--json"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: pgtoll_record::ChecksumsRecord = serde_json::from_str(&ran.stdout).unwrap();
    let pages = record.pages.unwrap();
    assert_eq!((pages.refused, pages.refused_pages[0].block), (1, 1), "{}", ran.stdout);
    assert!(pages.refused_pages[0].file.ends_with("/base/1/1259"));
    assert_eq!(pages.cut_short.len(), 1, "{}", ran.stdout);
    let now = fs::read(&file).unwrap();
    assert!(now[8192..16384] == bytes[8192..16384]);
    assert!(now[bytes.len() - 100..] == bytes[bytes.len() - 100..]);
    assert!(is_on(&cluster));
}
