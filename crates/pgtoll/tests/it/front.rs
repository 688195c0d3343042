//! `pgtoll` without arguments: the clusters of this machine.

use pgtoll_cluster::{Cluster, StopMode};

use crate::support::{Scratch, as_ordinary_user, pgtoll, run, server};

#[test]
fn clusters_are_named_with_the_command_that_fits() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let plain = Cluster::init(&mut guard, &server, "plain", false).unwrap();
    let sound = Cluster::init(&mut guard, &server, "sound", true).unwrap();
    let data = |cluster: &Cluster| cluster.data().display().to_string();
    let major = server.version.major();
    let front = |cluster: &Cluster| {
        let ran = run(pgtoll().env("PGDATA", cluster.data()));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.stdout
    };

    let text = front(&sound);
    let expected = format!(
        "  PostgreSQL {major}, {}: stopped, with checksums\n      pgtoll verify ",
        data(&sound)
    );
    assert!(text.contains(&expected), "{text}");
    assert!(front(&plain).contains(&format!("pgtoll enable --dry-run {}", data(&plain))));

    plain.start(&mut guard).unwrap();
    let text = run(&mut pgtoll()).stdout;
    let expected = format!(
        "  PostgreSQL {major}, {}: running, without checksums\n      pgtoll predict --dsn 'host=",
        data(&plain)
    );
    assert!(text.contains(&expected), "a running server is found by its process: {text}");
    let line = text.lines().find(|line| line.contains("pgtoll predict --dsn 'host=")).unwrap();
    assert!(line.contains(" port="), "{line}");
    plain.stop(&mut guard, StopMode::Fast).unwrap();

    let mut other = pgtoll();
    as_ordinary_user(other.env("PGDATA", "/root"), &scratch);
    let ran = run(&mut other);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("pgtoll measure"), "{ran:?}");
    plain.remove(&mut guard).unwrap();
    sound.remove(&mut guard).unwrap();
}
