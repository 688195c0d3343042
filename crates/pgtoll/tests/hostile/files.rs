//! Planted links and files where pgtoll writes its own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use pgtoll_cluster::Cluster;

use crate::support::{Scratch, ordinary_user, pgtoll, run, server, set_mode};

/// A command that writes a report to `path`, in a moment.
fn report_to(path: &Path) -> Command {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../records/2026-11-22-pg15");
    let mut command = pgtoll();
    command.args(["report", record, "--format", "csv", "-o"]).arg(path);
    command
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn an_output_keeps_mode_and_owner_of_the_file_that_it_replaces() {
    let scratch = Scratch::new();
    let path = scratch.path("report.csv");
    fs::write(&path, "old").unwrap();
    set_mode(&path, 0o600);
    let owner = ordinary_user();
    if let Some(user) = &owner {
        chown(&path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }
    let ran = run(&mut report_to(&path));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_ne!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(mode(&path), 0o600);
    if let Some(user) = owner {
        assert_eq!(fs::metadata(&path).unwrap().uid(), user.uid.as_raw());
    }
}

#[test]
fn an_output_is_not_written_through_a_link_that_another_user_planted() {
    // Only root can make a link of another user.
    let Some(user) = ordinary_user() else { return };
    let scratch = Scratch::new();
    let precious = scratch.path("precious");
    fs::write(&precious, "precious").unwrap();
    set_mode(&precious, 0o600);
    // In a shared directory, and in one of the link's owner.
    let own = scratch.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    for directory in [scratch.work(), own] {
        let planted = directory.join("report.csv");
        symlink(&precious, &planted).unwrap();
        lchown(&planted, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        let ran = run(&mut report_to(&planted));
        assert_eq!(ran.status, Some(2), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("another user") && ran.stderr.contains("hint: "),
            "{}",
            ran.stderr
        );
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}

#[test]
fn an_output_is_not_written_into_a_file_that_another_user_planted_in_a_shared_directory() {
    let Some(user) = ordinary_user() else { return };
    let scratch = Scratch::new();
    let planted = scratch.work().join("report.csv");
    fs::write(&planted, "").unwrap();
    set_mode(&planted, 0o666);
    chown(&planted, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    let ran = run(&mut report_to(&planted));
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("belongs to another user"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(&planted).unwrap(), "");
}

#[test]
fn a_pipe_is_written_to_as_it_is() {
    let ran = run(&mut report_to(Path::new("/dev/stdout")));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains(','), "{}", ran.stdout);
}

/// Links of another user are followed for root only.
#[test]
fn a_resume_file_overwrites_nothing_of_roots() {
    let Some(owner) = ordinary_user() else { return };
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "resume", true).unwrap();
    let owned = |name: &str| {
        let directory = scratch.path(name);
        fs::create_dir(&directory).unwrap();
        directory
    };
    let hand_over = |path: &Path| {
        lchown(path, Some(owner.uid.as_raw()), Some(owner.gid.as_raw())).unwrap();
    };
    let precious = scratch.path("precious");
    fs::write(&precious, "root's").unwrap();
    set_mode(&precious, 0o600);
    let is_as_it_was = || {
        assert_eq!(fs::read_to_string(&precious).unwrap(), "root's");
        assert_eq!(fs::metadata(&precious).unwrap().mode() & 0o7777, 0o600);
    };
    for (name, planted, status) in
        [("beside", "verify.resume.new", 0), ("itself", "verify.resume", 2)]
    {
        let directory = owned(name);
        symlink(&precious, directory.join(planted)).unwrap();
        hand_over(&directory.join(planted));
        hand_over(&directory);
        let resume = directory.join("verify.resume");
        let ran = run(pgtoll().arg("verify").arg(cluster.data()).arg("--resume").arg(&resume));
        assert_eq!(ran.status, Some(status), "{name}: {ran:?}");
        is_as_it_was();
        assert!(!ran.stderr.contains("root's"), "{ran:?}");
        assert!(directory.join(planted).is_symlink(), "{name}");
    }
    cluster.remove(&mut guard).unwrap();
}

/// A patrol's state is neither read nor written through what another user planted.
#[test]
fn a_patrols_state_is_not_what_another_user_planted() {
    let Some(owner) = ordinary_user() else { return };
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "patrol", true).unwrap();
    let hand_over = |path: &Path| {
        lchown(path, Some(owner.uid.as_raw()), Some(owner.gid.as_raw())).unwrap();
    };
    let precious = scratch.path("precious");
    fs::write(&precious, "root's").unwrap();
    set_mode(&precious, 0o600);
    let own = scratch.path("own");
    fs::create_dir(&own).unwrap();
    symlink(&precious, own.join("link")).unwrap();
    fs::write(own.join("file"), "{}").unwrap();
    symlink(scratch.work(), own.join("directory")).unwrap();
    for planted in ["link", "file", "directory", "."] {
        hand_over(&own.join(planted));
    }
    for (state, expected) in [
        ("link", "is a symbolic link"),
        ("file", "is another user's"),
        ("directory/state", "is a symbolic link of another user"),
    ] {
        let mut command = pgtoll();
        command.arg("verify").arg(cluster.data()).arg("--patrol").arg(own.join(state));
        let ran = run(command.args(["--rate", "100MB/s", "--for", "1s"]));
        assert_eq!(ran.status, Some(2), "{state}: {ran:?}");
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("root's"), "{ran:?}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "root's");
    }
    let names: Vec<_> = fs::read_dir(scratch.work()).unwrap().flatten().collect();
    assert!(names.iter().all(|entry| entry.file_name() != "state"), "{names:?}");
    cluster.remove(&mut guard).unwrap();
}
