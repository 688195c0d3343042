//! A data directory that a server elsewhere uses: another PID namespace, another host.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, chown, geteuid, mkfifo};
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_datadir::{control_file, relation_files};

use crate::support::{
    PATIENCE, Ran, Scratch, ends_within, ordinary_user, pgtoll, pid_of, program, run, server,
};

/// A cluster that was stopped.
fn stopped(guard: &mut Guard, server: &Installation, name: &str, checksums: bool) -> Cluster {
    let cluster = Cluster::init(guard, server, name, checksums).unwrap();
    cluster.start(guard).unwrap();
    let table = "CREATE TABLE t AS SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i";
    cluster.run_psql(guard, "postgres", table).unwrap();
    cluster.stop(guard, StopMode::Fast).unwrap();
    cluster
}

/// What PostgreSQL's own program says of every page.
fn assert_checked(guard: &mut Guard, server: &Installation, data: &Path) {
    let arguments = ["--check", "-D", &data.to_string_lossy()];
    let output = guard.run(&server.bin.join("pg_checksums"), &arguments).unwrap().tail;
    assert!(output.contains("Bad checksums:  0"), "{output}");
}

/// The program where no process of this host can be seen, itself as process 1.
fn elsewhere() -> Command {
    let mut command = program("unshare");
    command.args(["--pid", "--ipc", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_pgtoll")]);
    command
}

/// Runs what must not wait for ever; its status is `None` where it does.
fn bounded(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    if !ends_within(pid_of(&child), PATIENCE) {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn lock_of(cluster: &Cluster) -> PathBuf {
    cluster.data().join("postmaster.pid")
}

/// Which file it is, and what is in it.
fn identity(path: &Path) -> (u64, u64, Vec<u8>) {
    let found = fs::metadata(path).unwrap();
    (found.dev(), found.ino(), fs::read(path).unwrap())
}

/// `corrupt` of a block of `pg_class`, with an undo file beside.
fn damage<'c>(command: &'c mut Command, data: &Path, undo: &Path, kind: &str) -> &'c mut Command {
    command.args(["corrupt", "--file", "base/1/1259", "--block", "1", "--kind", kind, "--yes"]);
    command.arg("--undo-file").arg(undo).arg(data)
}

#[test]
fn a_refusal_leaves_the_lock_of_a_server_in_another_pid_namespace() {
    // Only root makes namespaces everywhere.
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", true);
    let pid = cluster.start(&mut guard).unwrap();
    let data = cluster.data();
    let lock = lock_of(&cluster);
    let undo = scratch.path("undo");
    let file = data.join("base/1/1259");
    let before = (identity(&lock), fs::read(&file).unwrap());
    for verb in ["enable", "disable"] {
        let ran = run(elsewhere().arg(verb).arg(&data));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("\"in production\""), "{ran:?}");
        assert!(ran.stderr.contains("another container or on another host"), "{ran:?}");
        assert!((identity(&lock), fs::read(&file).unwrap()) == before, "{verb}");
    }
    let ran = run(damage(&mut elsewhere(), &data, &undo, "zero"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("a server may run on"), "{ran:?}");
    assert!(ran.stderr.contains(&format!("process {pid}, ")), "{ran:?}");
    assert!((identity(&lock), fs::read(&file).unwrap()) == before);
    assert!(!undo.exists());
    // The server accepts its lock, and answers.
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("SELECT count(*) FROM t").unwrap();
    connection.close();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    assert_checked(&mut guard, &server, &data);
}

#[test]
fn a_crashed_server_is_damaged_only_by_those_who_say_so() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", true);
    cluster.start(&mut guard).unwrap();
    cluster.kill(&mut guard).unwrap();
    let data = cluster.data();
    let lock = lock_of(&cluster);
    let undo = scratch.path("undo");
    let file = data.join("base/1/1259");
    let before = (identity(&lock), fs::read(&file).unwrap());
    for verb in ["enable", "disable"] {
        let ran = run(pgtoll().arg(verb).arg(&data));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(identity(&lock) == before.0, "{verb}");
    }
    let ran = run(damage(&mut pgtoll(), &data, &undo, "zero"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("add --crashed"), "{ran:?}");
    assert!((identity(&lock), fs::read(&file).unwrap()) == before);
    assert!(!undo.exists());
    let ran = run(damage(&mut pgtoll(), &data, &undo, "zero").arg("--crashed"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(fs::read(&file).unwrap() != before.1 && !lock.exists());
    let ran = run(pgtoll().arg("corrupt").arg(&data).arg("--undo").arg(&undo));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(fs::read(&file).unwrap() == before.1);
    cluster.start(&mut guard).unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    assert_checked(&mut guard, &server, &data);
}

#[test]
fn a_lock_with_the_own_pid_is_another_servers() {
    // Only root makes namespaces everywhere.
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", false);
    let data = cluster.data();
    let lock = lock_of(&cluster);
    let undo = scratch.path("undo");
    let owner = fs::metadata(&data).unwrap();
    let write = |text: &str| {
        let _ = fs::remove_file(&lock);
        fs::write(&lock, text).unwrap();
        chown(&lock, Some(Uid::from_raw(owner.uid())), None).unwrap();
    };
    // In the file of a server that stops, or starts, in another container.
    write("1\n/data\n1763800000\n5432\n/tmp\n*\n");
    let before = identity(&lock);
    let ran = run(elsewhere().arg("enable").arg(&data));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("names process 1, which is pgtoll itself here"), "{ran:?}");
    assert!(identity(&lock) == before);
    // What a pgtoll leaves that is killed: the next one in a container has its pid again.
    write("-1\n/data\n1763800000\n0\n\n\n\npgtoll\n");
    let ran = run(elsewhere().arg("enable").arg(&data));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!lock.exists());
    assert_checked(&mut guard, &server, &data);
    // A server runs, as process 1 of its container.
    cluster.start(&mut guard).unwrap();
    let real = fs::read_to_string(&lock).unwrap();
    let as_first = format!("1\n{}", real.split_once('\n').unwrap().1);
    fs::write(&lock, &as_first).unwrap();
    let before = identity(&lock);
    let refused = [
        run(elsewhere().arg("enable").arg(&data)),
        run(elsewhere().arg("disable").arg(&data)),
        run(damage(&mut elsewhere(), &data, &undo, "zero")),
    ];
    assert!(refused.iter().all(|ran| ran.status == Some(2)), "{refused:?}");
    assert!(identity(&lock) == before && !undo.exists());
    fs::write(&lock, real).unwrap();
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    assert_checked(&mut guard, &server, &data);
}

#[test]
fn another_pgtoll_is_not_called_a_server() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", false);
    let data = cluster.data();
    let lock = lock_of(&cluster);
    // As a pgtoll in another PID namespace has it: locked, by a process that is not seen.
    let text = format!("-{}\n/data\n1763800000\n0\n\n\n\npgtoll\n", 1 << 30);
    fs::write(&lock, text).unwrap();
    chown(&lock, Some(Uid::from_raw(fs::metadata(&data).unwrap().uid())), None).unwrap();
    let file = fs::File::open(&lock).unwrap();
    file.lock().unwrap();
    let before = identity(&lock);
    let ran = run(pgtoll().arg("enable").arg(&data));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("another pgtoll works on"), "{ran:?}");
    assert!(!ran.stderr.contains("server"), "{ran:?}");
    assert!(identity(&lock) == before);
    // When it was killed.
    // Dropping it is not enough: a program that another test is starting may have it open for a moment.
    file.unlock().unwrap();
    let ran = run(pgtoll().arg("enable").arg(&data));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!lock.exists());
}

#[test]
fn a_fifo_a_link_or_an_empty_file_in_place_of_the_lock_is_an_error_at_once() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", true);
    let data = cluster.data();
    let lock = lock_of(&cluster);
    let undo = scratch.path("undo");
    let check = |make: &dyn Fn(), expected: &str| {
        make();
        let verified = bounded(pgtoll().arg("verify").arg(&data));
        let refused = [
            bounded(pgtoll().arg("enable").arg(&data)),
            bounded(pgtoll().arg("disable").arg(&data)),
            bounded(damage(&mut pgtoll(), &data, &undo, "zero")),
        ];
        fs::remove_file(&lock).unwrap();
        assert!(verified.status.is_some(), "{verified:?}");
        for ran in refused {
            assert_eq!(ran.status, Some(2), "{ran:?}");
            assert!(ran.stderr.contains(expected) && ran.stderr.contains("hint: "), "{ran:?}");
        }
        assert!(!undo.exists());
    };
    let owner = Uid::from_raw(fs::metadata(&data).unwrap().uid());
    let fifo = || {
        mkfifo(&lock, Mode::S_IRWXU).unwrap();
        chown(&lock, Some(owner), None).unwrap();
    };
    check(&fifo, "is not a regular file");
    check(&|| std::os::unix::fs::symlink("/dev/zero", &lock).unwrap(), "is not a regular file");
    let empty = || {
        fs::write(&lock, "").unwrap();
        chown(&lock, Some(owner), None).unwrap();
    };
    check(&empty, "it names no process");
}

#[test]
fn the_lock_comes_into_being_complete() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", false);
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let watched = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY;
    inotify.add_watch(&cluster.data(), watched).unwrap();
    let ran = run(pgtoll().arg("enable").arg(cluster.data()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let events = inotify.read_events().unwrap();
    let is_lock = |name: &OsString| name == "postmaster.pid";
    let events = events.iter().filter(|event| event.name.as_ref().is_some_and(is_lock));
    // Killed at any moment, pgtoll leaves no lock or a whole one.
    let masks: Vec<_> = events.map(|event| event.mask).collect();
    assert_eq!(masks, [AddWatchFlags::IN_CREATE]);
}

/// A user that nothing runs as: limits of processes count what a user has.
const NO_USER: u32 = 54_321;

#[test]
fn few_threads_are_enough() {
    // Only root gives files away.
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", false);
    let servers_user = ordinary_user().unwrap().uid.as_raw();
    let give = |data: &Path, user: u32| {
        let owner = format!("{user}:{user}");
        assert_eq!(run(program("chown").args(["-R", &owner]).arg(data)).status, Some(0));
    };
    // The main thread is one.
    for limit in [1, 2, 6] {
        let data = scratch.path(&format!("data{limit}"));
        assert_eq!(run(program("cp").arg("-a").arg(cluster.data()).arg(&data)).status, Some(0));
        give(&data, NO_USER);
        let mut command = program("prlimit");
        command.args([&format!("--nproc={limit}"), env!("CARGO_BIN_EXE_pgtoll")]);
        let ran = bounded(command.args(["enable", "--jobs", "64", "--verify-after"]).arg(&data));
        assert_eq!(ran.status, Some(0), "{limit}: {ran:?}");
        assert!(ran.stderr.contains("of 64 threads could be started"), "{limit}: {ran:?}");
        assert!(!data.join("postmaster.pid").exists());
        give(&data, servers_user);
        assert_checked(&mut guard, &server, &data);
    }
}

#[test]
fn few_open_files_are_enough_or_named() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", false);
    let limited = |files: u32, jobs: &str| {
        let shell = format!("ulimit -n {files}; exec \"$@\"");
        let mut command = program("bash");
        command.args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_pgtoll"), "enable", "--jobs", jobs]);
        bounded(command.arg(cluster.data()))
    };
    let ran = limited(24, "64");
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("Too many open files"), "{ran:?}");
    assert!(ran.stderr.contains("(ulimit -n), or lower --jobs"), "{ran:?}");
    assert_eq!(control_file(&cluster.data()).unwrap().checksum_version, 0);
    let ran = limited(64, "4");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_checked(&mut guard, &server, &cluster.data());
}

#[test]
fn what_is_no_data_directory_is_named_so() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing");
    let empty = scratch.work();
    let undo = scratch.path("undo");
    let refused = [
        run(pgtoll().arg("enable").arg(&missing)),
        run(pgtoll().args(["enable", "--dry-run"]).arg(&missing)),
        run(pgtoll().arg("disable").arg(&empty)),
        run(damage(&mut pgtoll(), &empty, &undo, "zero")),
    ];
    for ran in refused {
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("is not a data directory"), "{ran:?}");
        assert!(ran.stderr.contains("hint: name the server's data directory"), "{ran:?}");
    }
    fs::create_dir(empty.join("global")).unwrap();
    fs::write(empty.join("global/pg_control"), "").unwrap();
    let ran = run(pgtoll().arg("enable").arg(&empty));
    assert_eq!(ran.stderr.matches("it is only 0 bytes long").count(), 1, "{ran:?}");
}

#[test]
fn a_refused_or_failed_damage_leaves_no_undo_file() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", true);
    let data = cluster.data();
    let undo = scratch.path("undo");
    let before = fs::read(data.join("base/1/1259")).unwrap();
    cluster.start(&mut guard).unwrap();
    let ran = run(damage(&mut pgtoll(), &data, &undo, "zero"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("a server runs on") && !undo.exists(), "{ran:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let relation = ["corrupt", "--relation", "postgres.public.none", "--kind", "zero", "--yes"];
    let ran = run(pgtoll().args(relation).arg("--undo-file").arg(&undo).arg(&data));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("holds no relation") && !undo.exists(), "{ran:?}");
    // The disk of the undo file is full.
    let shell = "trap '' XFSZ; ulimit -f 4; exec \"$@\"";
    let mut command = program("bash");
    command.args(["-c", shell, "sh", env!("CARGO_BIN_EXE_pgtoll")]);
    let ran = run(damage(&mut command, &data, &undo, "zero"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("hint: nothing was damaged"), "{ran:?}");
    assert!(!undo.exists());
    assert!(fs::read(data.join("base/1/1259")).unwrap() == before);
    // The next try is not in its own way.
    let ran = run(damage(&mut pgtoll(), &data, &undo, "zero"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn a_full_disk_leaves_no_undo_file_and_no_damage() {
    // Only root mounts file systems everywhere.
    if !geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", true);
    let data = cluster.data();
    let small = scratch.path("small");
    let before = fs::read(data.join("base/1/1259")).unwrap();
    fs::create_dir(&small).unwrap();
    let shell = "small=$1; shift; mount -t tmpfs -o size=4k tmpfs $small; \"$@\"; status=$?; \
                 ls -A $small; exit $status";
    let mut command = program("unshare");
    command.args(["--mount", "sh", "-c", shell, "sh"]).arg(&small);
    command.arg(env!("CARGO_BIN_EXE_pgtoll"));
    let ran = run(damage(&mut command, &data, &small.join("undo"), "zero"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("No space left on device"), "{ran:?}");
    assert!(ran.stderr.contains("hint: nothing was damaged; free some space"), "{ran:?}");
    assert_eq!(ran.stdout, "", "what is left in the directory");
    assert!(fs::read(data.join("base/1/1259")).unwrap() == before);
}

#[test]
fn a_damage_that_was_killed_in_the_middle_is_undone() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = stopped(&mut guard, &server, "one", true);
    let data = cluster.data();
    let undo = scratch.path("undo");
    let file = data.join("base/1/1259");
    let before = fs::read(&file).unwrap();
    let ran = run(damage(&mut pgtoll(), &data, &undo, "transposed").args(["--with", "0"]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let after = fs::read(&file).unwrap();
    let heal = || run(pgtoll().arg("corrupt").arg(&data).arg("--undo").arg(&undo));
    // Only the first of its two writes was done.
    fs::write(&file, [&after[..8192], &before[8192..]].concat()).unwrap();
    let ran = heal();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(fs::read(&file).unwrap() == before);
    // Nothing is left to undo.
    let ran = heal();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("nothing to undo: ") && ran.stdout.contains("is as it was"));
    assert!(fs::read(&file).unwrap() == before);
    // Somebody else wrote there.
    fs::write(&file, [&after[..100], &before[100..]].concat()).unwrap();
    let ran = heal();
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("was written to since"), "{ran:?}");
    fs::write(&file, &before).unwrap();
    assert_checked(&mut guard, &server, &data);
}

#[test]
fn an_undo_file_moves_nothing_out_of_the_data_directory() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = stopped(&mut guard, &server(), "one", true);
    let data = cluster.data();
    let undo = scratch.path("undo");
    let list = relation_files(&data, &control_file(&data).unwrap());
    let relation =
        list.files.into_iter().find(|file| file.path.ends_with("base/1/1259")).unwrap().path;
    let user = fs::metadata(&data).unwrap();
    let owned = |path: PathBuf| {
        let (user, group) = (Uid::from_raw(user.uid()), nix::unistd::Gid::from_raw(user.gid()));
        chown(&path, Some(user), Some(group)).unwrap();
        path
    };
    let outside = scratch.path("outside");
    fs::create_dir(&outside).unwrap();
    owned(outside.clone());
    let foreign = data.join("base/1/16384.rum");
    fs::write(&foreign, "ssh-ed25519 of somebody\n").unwrap();
    owned(foreign.clone());
    let check = |file: &Path, moved_to: &Path| {
        let length = fs::metadata(moved_to).map_or(0, |metadata| metadata.len());
        let text = format!(
            r#"{{"schema":"pgtoll.undo/1","file":{file:?},"length":{length},"length_after":null,"changes":[],"moved_to":{moved_to:?}}}"#
        );
        fs::write(&undo, text).unwrap();
        let ran = run(pgtoll().arg("corrupt").arg(&data).arg("--undo").arg(&undo));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(!file.exists() || file == relation, "{file:?}");
    };
    check(&outside.join("authorized_keys"), &foreign);
    check(&data.join("base/1/authorized_keys"), &foreign);
    check(&data.join("base/1/99999"), &foreign);
    // Named as it should be, but elsewhere.
    let moved = outside.join("16384.pgtoll-moved");
    fs::write(&moved, "x").unwrap();
    owned(moved.clone());
    check(&outside.join("16384"), &moved);
    check(&relation, &foreign);
    assert!(foreign.exists() && moved.exists());
    fs::remove_file(foreign).unwrap();
}
