//! What the tests share.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{User, geteuid};
use pgtoll_cluster::{Cluster, Finder, Guard, GuardOptions, Installation, ServerUser};
use pgtoll_system::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Long enough for anything that ends at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// All servers that pgtoll finds.
pub(crate) fn installed() -> Vec<Installation> {
    let finder = Finder::with_guard(env!("CARGO_BIN_EXE_pgtoll").into(), &Interrupt::new());
    finder.installed().unwrap().installations
}

/// One server of each major that is installed, with PostgreSQL's client programs. Fails as [`all_servers`]
/// does.
pub(crate) fn servers() -> Vec<Installation> {
    let mut servers = all_servers();
    servers.retain(|server| server.program("pgbench").is_ok());
    assert!(!servers.is_empty(), "no PostgreSQL server has pgbench; hint: run `cargo xtask test`");
    servers
}

/// One server of each major that is installed, with client programs or without. Fails when there is none, or
/// when one is missing that `PGTOLL_TEST_MAJORS` names.
pub(crate) fn all_servers() -> Vec<Installation> {
    let mut by_major = BTreeMap::new();
    for found in installed() {
        if found.version.facts().is_ok() {
            by_major.entry(found.version.major()).or_insert(found);
        }
    }
    assert!(!by_major.is_empty(), "no PostgreSQL server found; hint: run `cargo xtask test`");
    let wanted = std::env::var("PGTOLL_TEST_MAJORS").unwrap_or_default();
    for major in wanted.split(',').filter(|word| !word.is_empty()) {
        let major: u32 = major.parse().expect("PGTOLL_TEST_MAJORS is a list of numbers");
        assert!(by_major.contains_key(&major), "no PostgreSQL {major}; run `cargo xtask test`");
    }
    by_major.into_values().collect()
}

/// The server that most tests use.
pub(crate) fn server() -> Installation {
    servers().swap_remove(0)
}

/// Whether tests that take minutes run with all servers, at more moments, and so on: at night or by hand.
pub(crate) fn is_long() -> bool {
    std::env::var_os("PGTOLL_TEST_LONG").is_some()
}

/// One of the servers for a test that takes a minute with each: such tests share them. All of them where
/// the tests may take long.
pub(crate) fn servers_in_turn(turn: usize) -> Vec<Installation> {
    let mut servers = servers();
    if is_long() {
        return servers;
    }
    let chosen = turn % servers.len();
    vec![servers.swap_remove(chosen)]
}

/// Where tests work, unless they need a disk: `PGTOLL_TEST_DIR`, such as a file system in memory, or
/// [`ON_DISK`].
fn test_directory() -> PathBuf {
    std::env::var_os("PGTOLL_TEST_DIR").map_or_else(|| ON_DISK.into(), PathBuf::from)
}

const ON_DISK: &str = "/var/tmp";

/// A directory that goes with the test, with a part that every user may write to.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::at(&test_directory())
    }

    /// The same, surely on a disk: its cache is emptied, or its traffic counted.
    pub(crate) fn on_disk() -> Self {
        Self::at(Path::new(ON_DISK))
    }

    fn at(base: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("test-").tempdir_in(base).unwrap();
        set_mode(directory.path(), 0o755);
        fs::create_dir(directory.path().join("work")).unwrap();
        set_mode(&directory.path().join("work"), 0o1777);
        Self(directory)
    }

    /// Where clusters are made.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A guard of the real program.
    pub(crate) fn guard(&self) -> Guard {
        Guard::begin(&self.guard_options(), &Interrupt::new()).unwrap()
    }

    pub(crate) fn guard_options(&self) -> GuardOptions {
        GuardOptions {
            executable: env!("CARGO_BIN_EXE_pgtoll").into(),
            base: self.work(),
            user: ServerUser::choose().unwrap(),
            keep: false,
        }
    }

    /// Nothing stays behind: no directory, and no process that works in one.
    pub(crate) fn assert_empty(&self) {
        let entries: Vec<_> = fs::read_dir(self.work()).unwrap().flatten().collect();
        assert!(entries.is_empty(), "left behind: {entries:?}");
        let processes = processes_in(&self.work());
        assert!(processes.is_empty(), "still running: {processes:?}");
    }
}

/// A directory that only root, or else this user, can change, up to the root directory.
pub(crate) fn trusted_directory() -> tempfile::TempDir {
    let home = || std::env::home_dir().unwrap();
    let base = if geteuid().is_root() { "/var/lib".into() } else { home() };
    let directory = tempfile::Builder::new().prefix("pgtoll-test-").tempdir_in(base).unwrap();
    set_mode(directory.path(), 0o755);
    directory
}

/// Flips a bit of the byte at this place of a file.
pub(crate) fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes a script that every user can run. Another program writes it: while this process has it open, so
/// has each child that another test is just starting, and then nobody can run it ("text file busy").
pub(crate) fn write_program(path: &Path, script: &str) {
    let mut install = program("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Copies a program that is then run: by another program, as [`write_program`] says.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(program("install").args(["-m", "755"]).args([from, to]).status().unwrap().success());
}

/// A cluster of this server, running.
pub(crate) fn running(guard: &mut Guard, server: &Installation, name: &str) -> (Cluster, i32) {
    let cluster = Cluster::init(guard, server, name, false).unwrap();
    let pid = cluster.start(guard).unwrap();
    (cluster, pid)
}

/// The processes whose current directory is below `directory`, also if it was removed.
pub(crate) fn processes_in(directory: &Path) -> Vec<i32> {
    let processes = procfs::process::all_processes().unwrap().flatten();
    processes
        .filter(|process| process.cwd().is_ok_and(|cwd| cwd.starts_with(directory)))
        .map(|process| process.pid)
        .collect()
}

/// The program under test, to be run as the tests' user.
pub(crate) fn pgtoll() -> Command {
    program(env!("CARGO_BIN_EXE_pgtoll"))
}

#[expect(clippy::disallowed_methods, reason = "tests start what a user would start")]
pub(crate) fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(path);
    command.stdin(Stdio::null()).env_remove("PGTOLL_TEST_PANIC_AT");
    command.env_remove("PGTOLL_TEST_PAUSE_AT");
    // Tests neither use nor add to what is known of the machine.
    command.env("XDG_STATE_HOME", "/dev/null/none");
    command
}

/// A small run: a few seconds with every stage in it.
pub(crate) fn small_measure(scratch: &Scratch) -> Command {
    let mut command = pgtoll();
    command.arg("measure").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small.toml"));
    command.args(["--rounds", "2", "--round-time", "400ms", "--repetitions", "1"]);
    command.arg("--work-dir").arg(scratch.work());
    command.arg("--output").arg(scratch.path("result"));
    command
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Another user than root, to be run as: `None` when the tests' user is one already.
pub(crate) fn ordinary_user() -> Option<User> {
    geteuid().is_root().then(|| {
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| User::from_name(name).unwrap())
            .expect("there is postgres or nobody")
    })
}

/// `command` as an ordinary user.
pub(crate) fn as_ordinary_user(command: &mut Command, scratch: &Scratch) {
    if let Some(user) = ordinary_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.env("HOME", scratch.work());
}

/// A copy of the program where every user can reach it.
pub(crate) fn pgtoll_for_all(scratch: &Scratch) -> PathBuf {
    let copy = scratch.path("pgtoll");
    // By a program of its own, as `write_program` says.
    let mut install = program("install");
    let ran = run(install.args(["-m", "755", env!("CARGO_BIN_EXE_pgtoll")]).arg(&copy));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    copy
}

/// Whether the process ended before the time was over.
pub(crate) fn ends_within(pid: i32, time: Duration) -> bool {
    let pid = Pid::from_raw(pid).expect("a pid is positive");
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let timeout = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap(),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// The process's direct children.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let processes = procfs::process::all_processes().unwrap().flatten();
    processes
        .filter_map(|process| process.stat().ok())
        .filter(|stat| stat.ppid == pid)
        .map(|stat| stat.pid)
        .collect()
}

pub(crate) fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// Starts pgtoll, sends it this signal once it has written a line that begins so to standard error, and
/// waits until it and its guard have ended.
pub(crate) fn end_at_line(command: &mut Command, begin: &str, signal: Signal) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with(begin));
    assert!(found, "there was no line {begin}");
    let pid = pid_of(&child);
    let guards = children(pid);
    kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    assert!(ends_within(pid, PATIENCE), "pgtoll does not end after {signal}");
    child.wait().unwrap();
    for guard in guards {
        assert!(ends_within(guard, PATIENCE), "its guard lives after {signal}");
    }
}
