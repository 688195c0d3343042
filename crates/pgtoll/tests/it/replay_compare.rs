//! `pgtoll replay compare` with real servers: what was made slower on one arm is named.

use std::fs;
use std::path::Path;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{ReplayArmRole, ReplayComparison, ShapeVerdict};

use crate::support::{Ran, Scratch, pgtoll, run, server, servers};

/// A stopped cluster with a database of two tables.
fn source(guard: &mut Guard) -> Cluster {
    source_of(guard, &server(), "shop")
}

fn source_of(guard: &mut Guard, installation: &Installation, name: &str) -> Cluster {
    let cluster = Cluster::init(guard, installation, name, false).unwrap();
    let settings = [("archive_mode", "on"), ("archive_command", "false"), ("work_mem", "5MB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    cluster.run_psql(guard, "postgres", "CREATE DATABASE shop").unwrap();
    let setup = "CREATE TABLE items AS SELECT i AS id, i AS v FROM generate_series(1, 50000) i; \
        ALTER TABLE items ADD PRIMARY KEY (id); CREATE TABLE notes (id integer, text text); \
        VACUUM ANALYZE";
    cluster.run_psql(guard, "shop", &setup.replace("; ", ";\n")).unwrap();
    cluster
}

/// A log of reads and writes, one after the other.
fn log(path: &Path, times: u32) {
    let mut log = String::new();
    for number in 1..=times {
        for sql in [
            format!("SELECT v FROM items WHERE id = {}", number * 100),
            format!("INSERT INTO notes VALUES ({number}, 'text of {number}')"),
        ] {
            let at = format!(
                "2026-11-21 19:46:{:02}.{:03} UTC [7] app@shop ",
                number / 1000,
                number % 1000
            );
            log.extend([format!("{at}LOG:  statement: {sql}\n{at}LOG:  duration: 0.100 ms\n")]);
        }
    }
    fs::write(path, log).unwrap();
}

fn compare(scratch: &Scratch, cluster: &Cluster, more: &[&str]) -> Ran {
    let data = cluster.data();
    compare_with(scratch, &[&["--data", data.to_str().unwrap()], more].concat())
}

fn compare_with(scratch: &Scratch, more: &[&str]) -> Ran {
    let log = scratch.path("shop.log");
    let mut command = pgtoll();
    command.args(["replay", "compare", log.to_str().unwrap(), "--order", "key", "--json"]);
    command.arg("--work-dir").arg(scratch.work());
    run(command.args(["--user", "postgres"]).args(more))
}

#[test]
fn two_servers_are_compared_on_data_directories_with_the_same_rows() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let all = servers();
    let oldest = &all[0];
    let newest = all.last().unwrap();
    let before = source_of(&mut guard, oldest, "before");
    let after = source_of(&mut guard, newest, "after");
    before.stop(&mut guard, StopMode::Fast).unwrap();
    log(&scratch.path("shop.log"), 20);
    let data = |arm: &str, cluster: &Cluster| format!("{arm}:{}", cluster.data().display());
    let old = data("old", &before);
    let new = data("new", &after);
    let arms = ["--arms", "old,new", "--rounds", "2", "--data", &old];
    let compared = |more: &[&str]| compare_with(&scratch, &[&arms[..], more].concat());

    let missing = compared(&[]);
    assert_eq!(missing.status, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("arm \"new\" has no data directory"), "{missing:?}");
    let unknown = compared(&["--data", "newer:/nowhere"]);
    assert!(unknown.stderr.contains("no arm is called \"newer\""), "{unknown:?}");

    let change = "UPDATE items SET v = v + 1 WHERE id = 17;\n";
    after.run_psql(&mut guard, "shop", change).unwrap();
    after.stop(&mut guard, StopMode::Fast).unwrap();
    let other = compared(&["--data", &new]);
    assert_eq!((other.status, &*other.stdout), (Some(2), ""), "{other:?}");
    let reason = "table public.items has other values in its 50000 rows";
    assert!(other.stderr.contains(reason), "{other:?}");
    assert!(other.stderr.contains("hint: "), "{other:?}");

    after.start(&mut guard).unwrap();
    let change = "UPDATE items SET v = v - 1 WHERE id = 17;\nCREATE INDEX items_v ON items (v);\n";
    after.run_psql(&mut guard, "shop", change).unwrap();
    after.stop(&mut guard, StopMode::Fast).unwrap();
    let ran = compared(&["--data", &new]);
    let record: ReplayComparison = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| {
        panic!("{ran:?}");
    });
    assert!(record.complete, "{record:?}");
    let servers: Vec<(&str, String)> =
        record.arms.iter().map(|arm| (&*arm.name, arm.server.clone().unwrap())).collect();
    let version = |installation: &Installation| installation.version.to_string();
    let first = version(oldest);
    let second = version(newest);
    assert_eq!(servers[0].0, "old");
    for ((_, server), expected) in servers.iter().zip([&first, &second, &first]) {
        assert!(server.starts_with(expected.as_str()), "{servers:?}");
    }
    assert_eq!(record.shapes.len(), 2, "{record:?}");
    let notes = record.notes.join("\n");
    assert!(notes.contains("holds the same rows"), "{notes}");
    assert!(notes.contains("CREATE INDEX items_v"), "{notes}");
    for cluster in [before, after] {
        cluster.remove(&mut guard).unwrap();
    }
}

/// The arms' `server_version`s.
fn versions(ran: &Ran) -> Vec<String> {
    let record: ReplayComparison =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert!(record.complete, "{record:?}");
    record.arms.iter().map(|arm| arm.server.clone().unwrap_or_default()).collect()
}

#[test]
fn arms_have_servers_of_their_own_on_copies_of_one_data_directory() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let has_upgrade = |server: &&Installation| server.program("pg_upgrade").is_ok();
    let all = servers();
    let whole: Vec<&Installation> = all.iter().filter(has_upgrade).collect();
    let [old, .., new] = whole[..] else {
        panic!("two servers with pg_upgrade are needed; hint: run `cargo xtask test`");
    };
    let cluster = source_of(&mut guard, old, "shop");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    log(&scratch.path("shop.log"), 20);
    let before = fs::read(cluster.data().join("global/pg_control")).unwrap();
    let second = format!("later:{}", new.bin.display());
    let more = ["--arms", "now,later", "--rounds", "2", "--postgres", &second];
    let ran = compare(&scratch, &cluster, &more);
    let found = versions(&ran);
    for (found, server) in found.iter().zip([old, new, old]) {
        assert!(found.starts_with(&server.version.to_string()), "{found:?}");
    }
    assert!(ran.stdout.contains("with pg_upgrade; ANALYZE made its statistics"), "{ran:?}");
    assert!(ran.stdout.contains("holds the same rows"), "{ran:?}");
    assert_eq!(fs::read(cluster.data().join("global/pg_control")).unwrap(), before);
    cluster.remove(&mut guard).unwrap();

    let cluster = source_of(&mut guard, new, "shop");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let first = format!("now:{}", old.bin.display());
    let more = ["--arms", "now,later", "--postgres", &first];
    let ran = compare(&scratch, &cluster, &more);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("pg_upgrade only goes forward"), "{ran:?}");
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn a_statement_that_lost_its_index_is_named_with_both_plans() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = source(&mut guard);
    log(&scratch.path("shop.log"), 60);
    let script = scratch.path("drop.sql");
    fs::write(&script, "ALTER TABLE items DROP CONSTRAINT items_pkey;\n").unwrap();
    let setup = format!("noindex:{}", script.display());
    let more = ["--arms", "base,noindex", "--setup", &setup, "--rounds", "3"];

    let running = compare(&scratch, &cluster, &more);
    assert_eq!((running.status, &*running.stdout), (Some(2), ""), "{running:?}");
    assert!(running.stderr.contains("a server runs on it"), "{running:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();

    let ran = compare(&scratch, &cluster, &more);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let record: ReplayComparison = serde_json::from_str(&ran.stdout).unwrap();
    assert!(record.complete, "{record:?}");
    let arms: Vec<(&str, ReplayArmRole, usize)> =
        record.arms.iter().map(|arm| (&*arm.name, arm.role, arm.runs.len())).collect();
    let base = ReplayArmRole::Baseline;
    let twin = ReplayArmRole::Twin;
    let expected = [("base", base, 3), ("noindex", ReplayArmRole::Treatment, 3), ("twin", twin, 3)];
    assert_eq!(arms, expected);
    let runs = || record.arms.iter().flat_map(|arm| &arm.runs);
    assert!(runs().all(|run| run.statements == 120 && run.unexpected_errors == 0), "{record:?}");
    assert!(runs().all(|run| run.wal_bytes > 0 && run.cpu_s > 0.0), "{record:?}");

    let slower = record.by_verdict(ShapeVerdict::Slower);
    let lost = "select v from items where id = ?";
    let found = slower.into_iter().find(|(shape, _)| shape.statement == lost);
    let (shape, difference) = found.unwrap_or_else(|| panic!("{record:?}"));
    assert_eq!((shape.executions, &*difference.arm), (60, "noindex"));
    let plans = difference.plans.as_ref().unwrap();
    assert!(plans.baseline[0].contains("items_pkey"), "{plans:?}");
    assert!(plans.arm[0].contains("Seq Scan on items"), "{plans:?}");
    assert!(plans.arm.iter().any(|line| line.ends_with("(id = ?)")), "{plans:?}");
    // The copies archive nothing.
    let notes = record.notes.join("\n");
    assert!(notes.contains("include 'pgtoll-settings.conf'"), "{notes}");
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn checksums_are_an_arm_and_the_data_directory_stays_as_it_was() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = source(&mut guard);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let before = cluster.copy(&mut guard, "before").unwrap();
    log(&scratch.path("shop.log"), 20);
    let more = ["--arms", "off,checksums", "--rounds", "2", "--set", "checksums:work_mem=6MB"];
    let ran = compare(&scratch, &cluster, &more);
    let record: ReplayComparison = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| {
        panic!("{ran:?}");
    });
    assert!(record.complete, "{record:?}");
    let checksums: Vec<(&str, bool)> =
        record.arms.iter().map(|arm| (&*arm.name, arm.checksums)).collect();
    assert_eq!(checksums, [("off", false), ("checksums", true), ("twin", false)]);
    assert_eq!(record.arms[1].settings["work_mem"], "6MB");
    assert_eq!(record.shapes.len(), 2, "{record:?}");
    assert_eq!(cluster.differing_file(&before, false).unwrap(), None);
    let unknown = compare(&scratch, &cluster, &["--arms", "a,b", "--set", "c:work_mem=6MB"]);
    assert_eq!(unknown.status, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("no arm is called \"c\""), "{unknown:?}");
    for cluster in [before, cluster] {
        cluster.remove(&mut guard).unwrap();
    }
}
