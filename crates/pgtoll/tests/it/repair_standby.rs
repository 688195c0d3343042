//! `pgtoll repair --from-standby`: pages of a running standby, or the reason why none is taken.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_system::Interrupt;

use crate::repair::{
    HOT, check_checksums, classes, cluster, content, damage, lsn, next_value, open, paths,
    read_page, repair,
};
use crate::support::{Scratch, pgtoll, run, server, servers};
use crate::verify::{check_program, execute, overwrite};

/// How a server's clients reach it.
pub(crate) fn dsn(cluster: &Cluster) -> String {
    let environment = cluster.environment();
    let [host, port, user] = ["PGHOST", "PGPORT", "PGUSER"].map(|name| &environment[name]);
    format!("host={host} port={port} user={user} dbname=postgres")
}

/// A cluster with pageinspect, and a standby that runs.
pub(crate) fn pair(guard: &mut Guard, server: &Installation, name: &str) -> (Cluster, Cluster) {
    let cluster = cluster(guard, server, name);
    execute(&cluster, &["CREATE EXTENSION pageinspect"]);
    let standby = cluster.standby(guard, &format!("{name}2"), cluster.directory()).unwrap();
    standby.start(guard).unwrap();
    (cluster, standby)
}

#[test]
fn a_running_standby_has_the_pages_of_a_stopped_primary() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut guard = scratch.guard();
        let (cluster, standby) = pair(&mut guard, &server, "first");
        execute(&cluster, &[HOT, "CHECKPOINT"]);
        let files = paths(&cluster);
        let expected = content(&cluster);
        // A primary that stops does not wait for a standby that has not come yet.
        await_replay(&cluster, &standby);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let data = cluster.data();
        let before = damage(&data, &files, 40);
        let from = ["--from-standby", &dsn(&standby)];
        let plan = repair(&scratch, &data, &from, 1);
        assert_eq!(plan["running"], false);
        let output = repair(&scratch, &data, &[&from[..], &["--yes"]].concat(), 0);
        assert_eq!(output["blocks"].as_array().unwrap().len(), before.len(), "{output:#}");
        for (class, reason) in classes(&output) {
            assert!(["exact", "proved"].contains(&class), "{class}: {reason}");
        }
        for ((file, number), right) in &before {
            let now = read_page(&data.join(file), *number);
            assert_eq!(lsn(&now), lsn(right), "{} {number}", file.display());
        }
        check_checksums(&mut guard, &server, &cluster);
        check_program(&[], &data, 0);
        cluster.start(&mut guard).unwrap();
        assert_eq!(content(&cluster), expected);
        assert!((3..=35).contains(&next_value(&cluster)));
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        standby.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

/// A stopped cluster with a hot block and a cold one that are damaged, to be repaired from wrong
/// standbys.
struct Wrong<'a> {
    scratch: &'a Scratch,
    data: &'a Path,
    path: &'a Path,
}

impl Wrong<'_> {
    /// Nothing is taken from it, and nothing written; in one line, why.
    fn check(&self, block: u64, standby: &str, words: &str) {
        let whole = fs::read(self.path).unwrap();
        overwrite(&open(self.path), block, |page| page[..64].fill(0xA5));
        let damaged = fs::read(self.path).unwrap();
        let from = ["--from-standby", standby, "--yes", "--no-redo"];
        let output = repair(self.scratch, self.data, &from, 1);
        assert!(fs::read(self.path).unwrap() == damaged, "{output:#}");
        assert_eq!(classes(&output)[0].0, "refused", "{output:#}");
        let reason = output["blocks"][0]["candidates"][0]["reason"].as_str().unwrap();
        assert!(reason.contains(words) && !reason.contains('\n'), "{words}: {output:#}");
        fs::write(self.path, whole).unwrap();
    }
}

#[test]
fn wrong_standbys_are_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "right");
    let bare = cluster.standby(&mut guard, "bare", cluster.directory()).unwrap();
    bare.start(&mut guard).unwrap();
    let paused = cluster.standby(&mut guard, "paused", cluster.directory()).unwrap();
    paused.start(&mut guard).unwrap();
    let [table, ..] = paths(&cluster);
    // What replays nothing more has no extension that is made later.
    execute(&bare, &["SELECT pg_wal_replay_pause()"]);
    execute(&cluster, &["CREATE EXTENSION pageinspect"]);
    await_replay(&cluster, &paused);
    execute(&paused, &["SELECT pg_wal_replay_pause()"]);
    execute(&cluster, &["UPDATE t SET b = 'hot' WHERE a = 1", "CHECKPOINT"]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let path = data.join(&table);
    let wrong = Wrong { scratch: &scratch, data: &data, path: &path };
    wrong.check(0, &dsn(&paused), "older than the last record");
    wrong.check(0, &dsn(&paused), "its replay is paused");
    wrong.check(7, &dsn(&bare), "pageinspect is not in the standby's database postgres");
    check_foreign(&mut guard, &server, &wrong);
    check_past(&mut guard, &cluster, &wrong);
    execute(&paused, &["SELECT pg_wal_replay_resume()"]);
    paused.promote().unwrap();
    wrong.check(7, &dsn(&paused), "it is not a standby");
    let follower = paused.standby(&mut guard, "follower", paused.directory()).unwrap();
    follower.start(&mut guard).unwrap();
    wrong.check(7, &dsn(&follower), "it is on timeline 2");
    follower.stop(&mut guard, StopMode::Fast).unwrap();
    // What cannot be asked at all is an error.
    let dead = dsn(&follower);
    let ran = run(pgtoll().arg("repair").arg(&data).arg("--from-standby").arg(dead));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    for other in [bare, paused] {
        other.stop(&mut guard, StopMode::Fast).unwrap();
    }
}

/// Waits until a standby has replayed what its primary has written.
pub(crate) fn await_replay(primary: &Cluster, standby: &Cluster) {
    let mut session = primary.connect("postgres").unwrap();
    let row = session.query_one("SELECT pg_current_wal_lsn() AS at").unwrap();
    let at = row.text("at").unwrap().to_owned();
    await_replay_of(&format!("'{at}'::pg_lsn"), standby);
}

/// Waits until a standby has replayed all that its primary, which has stopped in good order, has
/// sent it: that is all that it wrote.
pub(crate) fn await_replay_of_all(standby: &Cluster) {
    await_replay_of("pg_last_wal_receive_lsn()", standby);
}

fn await_replay_of(lsn: &str, standby: &Cluster) {
    let mut session = standby.connect("postgres").unwrap();
    let sql = format!("SELECT pg_last_wal_replay_lsn() >= {lsn} AS done");
    while session.query_one(&sql).unwrap().text("done").unwrap() != "t" {
        Interrupt::new().wait(Duration::from_millis(5)).unwrap();
    }
}

/// A standby of another cluster.
fn check_foreign(guard: &mut Guard, server: &Installation, wrong: &Wrong<'_>) {
    let (other, standby) = pair(guard, server, "foreign");
    wrong.check(7, &dsn(&standby), "it is of another cluster");
    wrong.check(7, &dsn(&other), "it is of another cluster");
    standby.stop(guard, StopMode::Fast).unwrap();
    other.stop(guard, StopMode::Fast).unwrap();
    standby.remove(guard).unwrap();
    other.remove(guard).unwrap();
}

/// A standby of a copy that went another way, on the same timeline.
fn check_past(guard: &mut Guard, cluster: &Cluster, wrong: &Wrong<'_>) {
    let other = cluster.copy(guard, "apart").unwrap();
    other.start(guard).unwrap();
    let standby = other.standby(guard, "apart2", other.directory()).unwrap();
    standby.start(guard).unwrap();
    execute(&other, &["UPDATE t SET b = 'other' WHERE a < 2000", "CHECKPOINT"]);
    await_replay(&other, &standby);
    execute(&standby, &["CHECKPOINT"]);
    wrong.check(7, &dsn(&standby), "another past");
    wrong.check(0, &dsn(&standby), "another past");
    standby.stop(guard, StopMode::Fast).unwrap();
    other.stop(guard, StopMode::Fast).unwrap();
    standby.remove(guard).unwrap();
    other.remove(guard).unwrap();
}
