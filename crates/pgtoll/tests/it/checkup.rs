//! `pgtoll checkup`: each safety that is planted wrong on each version is the one finding, and roles see
//! what they may.

use std::thread;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{CheckupRecord, RecoveryBasis, Safety, SafetyState};
use serde_json::Value;

use crate::predict::dsn;
use crate::support::{Ran, Scratch, all_servers, pgtoll, run, servers};

/// A second, as JSON.
fn checkup(cluster: &Cluster, user: &str) -> Ran {
    run(pgtoll().args(["checkup", "--dsn", &dsn(cluster, user), "--for", "1s", "--json"]))
}

fn record(ran: &Ran) -> CheckupRecord {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// The codes of the findings.
fn codes(ran: &Ran) -> Vec<String> {
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = json["conclusion"]["findings"].as_array().unwrap();
    let codes = findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned());
    let mut codes: Vec<String> = codes.collect();
    codes.sort();
    codes
}

/// A cluster with checksums whose WAL is archived.
fn sound(guard: &mut Guard, server: &Installation) -> Cluster {
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, true).unwrap();
    let settings = [("archive_mode", "on"), ("archive_command", "test -f %p")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into_iter().collect()).unwrap();
    cluster.start(guard).unwrap();
    archive_segment(&cluster);
    cluster
}

/// Switches to another segment and waits until one more was archived, or has failed.
fn archive_segment(cluster: &Cluster) {
    let mut connection = cluster.connect("postgres").unwrap();
    let count = "SELECT archived_count + failed_count AS n FROM pg_stat_archiver";
    let count = |connection: &mut pgtoll_wire::Connection| {
        connection.query_one(count).unwrap().parse::<u64>("n").unwrap()
    };
    let before = count(&mut connection);
    connection.execute("SELECT txid_current(); SELECT pg_switch_wal()").unwrap();
    while count(&mut connection) == before {
        thread::yield_now();
    }
    connection.close();
}

/// Settings that are planted wrong, and what undoes them; the one finding that each makes.
const PLANTED: [(&str, &str, &str); 6] = [
    ("fsync", "off", "durability.fsync"),
    ("full_page_writes", "off", "durability.torn-pages"),
    ("synchronous_commit", "off", "durability.synchronous-commit"),
    ("autovacuum", "off", "writes.autovacuum"),
    ("archive_command", "true", "backup.archive"),
    ("synchronous_standby_names", "nobody", "durability.loss-window"),
];

#[test]
fn each_safety_that_is_planted_wrong_is_the_one_finding() {
    let scratch = Scratch::new();
    thread::scope(|scope| {
        for server in all_servers() {
            let scratch = &scratch;
            scope.spawn(move || each_planted(scratch, &server));
        }
    });
}

fn each_planted(scratch: &Scratch, server: &Installation) {
    let mut guard = scratch.guard();
    let cluster = sound(&mut guard, server);
    let version = server.version.to_string();
    let ran = checkup(&cluster, "");
    assert_eq!((ran.status, codes(&ran)), (Some(0), vec![]), "{version}: {ran:?}");
    for (name, value, code) in PLANTED {
        // Commits of this session would wait for the standby that there is not.
        let plant = |change: &str| {
            let mut connection = cluster.connect("postgres").unwrap();
            connection.execute("SET synchronous_commit = local").unwrap();
            connection.execute(change).unwrap();
            connection.execute("SELECT pg_reload_conf()").unwrap();
            connection.close();
        };
        plant(&format!("ALTER SYSTEM SET {name} = '{value}'"));
        await_setting(&cluster, name, value);
        let ran = checkup(&cluster, "");
        assert_eq!(
            (ran.status, codes(&ran)),
            (Some(1), vec![code.to_owned()]),
            "{version}: {name}"
        );
        plant(&format!("ALTER SYSTEM RESET {name}"));
    }
    failing_archive(&cluster, &version);
    let mut connection = cluster.connect("postgres").unwrap();
    connection.execute("SELECT pg_create_physical_replication_slot('dead', true)").unwrap();
    connection.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off").unwrap();
    connection.close();
    let ran = checkup(&cluster, "");
    // The role's own sessions have the setting of the role.
    let expected = ["durability.synchronous-commit", "space.slots"];
    assert_eq!(codes(&ran), expected, "{version}: {ran:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
}

/// The setting as new sessions have it.
fn await_setting(cluster: &Cluster, name: &str, value: &str) {
    loop {
        let mut connection = cluster.connect("postgres").unwrap();
        let row = connection.query_one(&format!("SELECT current_setting('{name}') AS value"));
        let is_set = row.unwrap().text("value").unwrap() == value;
        connection.close();
        if is_set {
            return;
        }
    }
}

fn failing_archive(cluster: &Cluster, version: &str) {
    let change = |change: &str| {
        let mut connection = cluster.connect("postgres").unwrap();
        connection.execute(change).unwrap();
        connection.execute("SELECT pg_reload_conf()").unwrap();
        connection.close();
    };
    change("ALTER SYSTEM SET archive_command = 'false'");
    await_setting(cluster, "archive_command", "false");
    archive_segment(cluster);
    let ran = checkup(cluster, "");
    assert_eq!(codes(&ran), ["backup.archive"], "{version}: {ran:?}");
    change("ALTER SYSTEM RESET archive_command");
    await_setting(cluster, "archive_command", "test -f %p");
    archive_segment(cluster);
    let ran = checkup(cluster, "");
    assert_eq!(codes(&ran), Vec::<String>::new(), "{version}: {ran:?}");
}

#[test]
fn a_server_without_checksums_and_copies_lacks_both() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = crate::predict::started(&mut guard, &server, &[("autovacuum", "on")]);
        let ran = checkup(&cluster, "");
        let expected = ["durability.loss-window", "integrity.checksums-off"];
        assert_eq!(codes(&ran), expected, "{ran:?}");
        let record = record(&ran);
        assert!(record.watch.looks >= 5 && record.watch.ended.is_none(), "{:?}", record.watch);
        assert!(record.prediction.is_some_and(|prediction| prediction.answers.len() == 2));
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_role_with_nothing_but_connect_sees_settings_and_is_told_the_grants() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = sound(&mut guard, &server);
        cluster.run_psql(&mut guard, "postgres", "CREATE ROLE \"Pass er by\" LOGIN").unwrap();
        let ran = checkup(&cluster, "'Pass er by'");
        assert_eq!((ran.status, codes(&ran)), (Some(2), vec![]), "{ran:?}");
        let record = record(&ran);
        let unknown = record.rows.iter().filter(|row| row.state == SafetyState::Unknown);
        assert!(
            unknown.map(|row| row.safety.title()).any(|title| title == "standbys"),
            "{record:?}"
        );
        let remedies: Vec<&str> =
            record.sources.iter().filter_map(|source| source.remedy.as_deref()).collect();
        assert!(remedies.contains(&"GRANT pg_monitor TO \"Pass er by\";"), "{remedies:?}");
        let grant = "GRANT pg_monitor TO \"Pass er by\"";
        cluster.run_psql(&mut guard, "postgres", grant).unwrap();
        let ran = checkup(&cluster, "'Pass er by'");
        assert_eq!((ran.status, codes(&ran)), (Some(0), vec![]), "{ran:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_pair_says_what_the_standby_lacks_and_a_standby_is_refused() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = sound(&mut guard, &server);
        let name = format!("{}b", cluster.environment()["PGPORT"]);
        let standby = cluster.standby(&mut guard, &name, cluster.directory()).unwrap();
        standby.start(&mut guard).unwrap();
        await_streaming(&cluster);
        let loss = record(&checkup(&cluster, "")).loss.unwrap();
        assert_eq!(loss.standbys.len(), 1, "{loss:?}");
        // Nothing is written: the standby has all of it.
        assert_eq!(loss.host.unwrap().range, (0.0, 0.0), "{loss:?}");
        let refused = checkup(&standby, "");
        assert_eq!((refused.status, &*refused.stdout), (Some(2), ""), "{refused:?}");
        assert!(refused.stderr.contains("\nhint: name the primary in --dsn"), "{refused:?}");
        standby.stop(&mut guard, StopMode::Fast).unwrap();
        standby.remove(&mut guard).unwrap();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_server_that_dies_ends_the_watch_and_nothing_is_called_complete() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = sound(&mut guard, &server);
        let watched = dsn(&cluster, "");
        let watching = thread::spawn(move || {
            run(pgtoll().args(["checkup", "--dsn", &watched, "--for", "10min", "--json"]))
        });
        await_session(&cluster);
        cluster.stop(&mut guard, StopMode::Immediate).unwrap();
        let ran = watching.join().unwrap();
        assert_eq!((ran.status, codes(&ran)), (Some(2), vec![]), "{ran:?}");
        assert!(ran.stderr.contains("watching ended early: "), "{ran:?}");
        assert!(record(&ran).watch.looks > 0, "{ran:?}");
        cluster.remove(&mut guard).unwrap();
    }
}

/// Waits until a look was answered.
fn await_session(cluster: &Cluster) {
    let mut connection = cluster.connect("postgres").unwrap();
    let looks = "SELECT count(*) AS n FROM pg_stat_activity \
                 WHERE application_name = 'pgtoll checkup' AND query = 'EXECUTE look' AND state = 'idle'";
    while connection.query_one(looks).unwrap().text("n").unwrap() == "0" {
        thread::yield_now();
    }
    connection.close();
}

fn await_streaming(primary: &Cluster) {
    let mut connection = primary.connect("postgres").unwrap();
    let caught_up = "SELECT count(*) AS n FROM pg_stat_replication \
                     WHERE state = 'streaming' AND flush_lsn >= pg_current_wal_lsn()";
    while connection.query_one(caught_up).unwrap().text("n").unwrap() == "0" {
        thread::yield_now();
    }
    connection.close();
}

#[test]
fn a_crash_in_the_log_and_a_verification_are_counted() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = sound(&mut guard, &server);
        let settings = [("logging_collector", "on"), ("log_line_prefix", "%m [%p] ")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.append_settings(&mut guard, &settings.into_iter().collect()).unwrap();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        let verified = scratch.path("verified.json");
        let data = cluster.data();
        let ran =
            run(pgtoll().arg("verify").arg(&data).args(["--format", "json", "-o"]).arg(&verified));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        cluster.start(&mut guard).unwrap();
        let mut connection = cluster.connect("postgres").unwrap();
        connection
            .execute(
                "CREATE TABLE crashed AS SELECT repeat('x', 1000) FROM generate_series(1, 30000)",
            )
            .unwrap();
        connection.close();
        cluster.kill(&mut guard).unwrap();
        cluster.start(&mut guard).unwrap();

        let before = scratch.path("before.json");
        let checkup = |output: &std::path::Path, more: &[&str]| {
            let watched = dsn(&cluster, "");
            let ran = run(pgtoll()
                .args(["checkup", "--dsn", &watched, "--for", "1s", "--format", "json", "--record"])
                .arg(&verified)
                .args(more)
                .arg("-o")
                .arg(output));
            let json = std::fs::read_to_string(output).unwrap_or_else(|_| panic!("{ran:?}"));
            let record: CheckupRecord = serde_json::from_str(&json).unwrap();
            let open = record.rows.iter().filter(|row| row.state == SafetyState::Missing);
            assert_eq!(ran.status, Some(0), "{:?}", open.collect::<Vec<_>>());
            record
        };
        let record = checkup(&before, &[]);
        let RecoveryBasis::Log(seen) = record.recovery.as_ref().unwrap().basis.clone() else {
            panic!("{:?}", record.recovery)
        };
        assert!(seen.wal_bytes > 30_000_000 && seen.seconds > 0.0, "{seen:?}");
        let failures = record.row(Safety::ChecksumFailures).unwrap();
        assert!(failures.now.ends_with("ago: sound"), "{failures:?}");

        let log =
            std::fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path()).max();
        let after = scratch.path("after.json");
        let log = log.unwrap().display().to_string();
        let record = checkup(&after, &["--log", &log]);
        assert_eq!(record.recovery.unwrap().basis, RecoveryBasis::Log(seen));
        let ran = run(pgtoll().arg("report").args([&before, &after]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("No safety changed its state."), "{ran:?}");
        for output in [before, after, verified] {
            std::fs::remove_file(output).unwrap();
        }
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn records_that_say_nothing_of_this_server_are_refused_or_not_counted() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = servers().remove(0);
    let cluster = sound(&mut guard, &server);
    let other = Cluster::init(&mut guard, &server, "other", true).unwrap();
    let verified = scratch.path("verified.json");
    let output = ["--format", "json", "-o"];
    let ran = run(pgtoll().arg("verify").arg(other.data()).args(output).arg(&verified));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let watched = dsn(&cluster, "");
    let checkup = |option: &str, file: &std::path::Path| {
        run(pgtoll().args(["checkup", "--dsn", &watched, "--for", "1s", option]).arg(file))
    };
    let ran = checkup("--record", &verified);
    assert!(ran.stdout.contains("verified.json is of another cluster: not counted"), "{ran:?}");
    let refused = checkup("--log", &verified);
    assert!(
        refused.stderr.contains(": no recovery from a crash, of 16 MB of WAL or more\nhint: "),
        "{refused:?}"
    );
    let run_record = scratch.path("checkup.json");
    let ran = run(pgtoll()
        .args(["checkup", "--dsn", &watched, "--for", "1s"])
        .args(output)
        .arg(&run_record));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let refused = checkup("--record", &run_record);
    assert!(refused.stderr.contains("checkup.json is no record of verify\nhint: "), "{refused:?}");
    let refused = run(pgtoll().arg("report").args([&run_record, &verified]));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot be shown beside these\nhint: "), "{refused:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    cluster.remove(&mut guard).unwrap();
    other.remove(&mut guard).unwrap();
}

#[test]
fn mistakes_are_told_before_anything_is_watched() {
    let check = |arguments: &[&str], message: &str| {
        let ran = run(pgtoll().args(["checkup", "--dsn", "host=/nowhere"]).args(arguments));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(message) && ran.stderr.contains("\nhint: "), "{ran:?}");
    };
    check(&["--fail-if", "loss > 1"], "names no known figure");
    check(&["-o", "checkup.pdf"], "unknown ending .pdf");
    check(&["--for", "1s"], "could not connect to");
}
