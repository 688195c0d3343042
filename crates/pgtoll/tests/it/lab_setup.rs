//! `pgtoll lab setup`: what is there, and what is installed when something is missing.

use std::fs;
use std::process::Command;

use nix::unistd::geteuid;

use crate::balance::pgpool;
use crate::bridge::redis;
use crate::failover::engines;
use crate::support::{
    Ran, Scratch, as_ordinary_user, pgtoll, pgtoll_for_all, program, run, trusted_directory,
    write_program,
};

#[test]
fn engines_that_are_there_are_named_with_their_versions() {
    if !engines() || !redis() || !pgpool() {
        return;
    }
    let ran = run(pgtoll().args(["lab", "setup"]));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let names = [
        "PostgreSQL ",
        "repmgr ",
        "PgBouncer ",
        "Pgpool-II ",
        "Redis ",
        "Patroni ",
        "etcd ",
        "HAProxy ",
    ];
    let names = [&names[..], &["pg_auto_failover "]].concat();
    assert_eq!(lines.len(), names.len(), "{ran:?}");
    for (line, name) in lines.iter().zip(names) {
        assert!(line.starts_with(name), "{ran:?}");
    }
}

#[test]
fn a_missing_engine_is_installed_when_root_agrees() {
    if !geteuid().is_root() {
        eprintln!("not tested: only root can hide an engine");
        return;
    }
    if !engines() || !redis() || !pgpool() {
        return;
    }
    let scratch = Scratch::new();
    let hidden = |line: &str| -> Ran {
        // Only for what runs here.
        let script = format!("mount --bind /dev/null /usr/sbin/pgbouncer && {line}");
        let mut command: Command = program("unshare");
        run(command.args(["--mount", "--propagation", "private", "sh", "-c", &script]))
    };
    let own = pgtoll_for_all(&scratch);
    let own = own.display();
    let refused = hidden(&format!("{own} lab setup"));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("missing: pgbouncer"), "{refused:?}");
    assert!(refused.stderr.contains("hint: say --yes"), "{refused:?}");
    let user = hidden(&format!("setpriv --reuid nobody --clear-groups {own} lab setup"));
    assert_eq!(user.status, Some(2), "{user:?}");
    assert!(user.stderr.contains("apt install pgbouncer"), "{user:?}");

    // In the place of the real one, which would fetch packages: this one brings the engine back.
    let directory = trusted_directory();
    let apt = directory.path().join("apt-get");
    let arguments = directory.path().join("arguments");
    let script = format!(
        "#!/bin/sh\necho $* >> {}\numount --lazy /usr/sbin/pgbouncer\n",
        arguments.display()
    );
    write_program(&apt, &script);
    let path = format!("PATH={}:$PATH", directory.path().display());
    let installed = hidden(&format!("{path} {own} lab setup --yes"));
    assert_eq!(installed.status, Some(0), "{installed:?}");
    assert!(installed.stdout.contains("PgBouncer "), "{installed:?}");
    let requested = fs::read_to_string(&arguments).unwrap();
    assert_eq!(requested, "install -y --no-install-recommends pgbouncer\n");
    // One that does nothing, and one that fails.
    write_program(&apt, "#!/bin/sh\n");
    let nothing = hidden(&format!("{path} {own} lab setup --yes"));
    assert_eq!(nothing.status, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("still missing"), "{nothing:?}");
    write_program(&apt, "#!/bin/sh\necho E: no such package; exit 100\n");
    let failed = hidden(&format!("{path} {own} lab setup --yes"));
    assert_eq!(failed.status, Some(2), "{failed:?}");
    assert!(failed.stderr.contains("E: no such package"), "{failed:?}");
}

#[test]
fn an_ordinary_user_sees_what_is_there() {
    if !engines() || !redis() || !pgpool() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = program(pgtoll_for_all(&scratch));
    as_ordinary_user(command.args(["lab", "setup"]), &scratch);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
}
