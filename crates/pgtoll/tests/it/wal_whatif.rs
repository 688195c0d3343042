//! `pgtoll wal whatif`: the source explained by its own redo points, and what a user sees.

use pgtoll_report::ReportedRecord as _;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::Lsn;
use pgtoll_record::{WalEndKind, WalStatisticsRecord, WalWhatIfRecord, WhatIfClass, WhatIfRow};

use crate::support::{Ran, Scratch, pgtoll, pid_of, run, server, servers};

fn whatif(arguments: &[&str]) -> WalWhatIfRecord {
    let ran = run(pgtoll().args(["wal", "whatif", "--json"]).args(arguments));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A server with small segments, many checkpoints, and pgbench's work done.
fn worked(guard: &mut Guard, server: &Installation, checksums: bool, compression: &str) -> Cluster {
    let name = format!("pg{}-{checksums}-{compression}", server.version.major());
    let cluster =
        Cluster::init_with(guard, server, &name, checksums, &["--wal-segsize=1"]).unwrap();
    let settings = [
        ("max_wal_size", "8MB"),
        ("min_wal_size", "2MB"),
        ("checkpoint_timeout", "1h"),
        ("wal_keep_size", "10GB"),
        ("autovacuum", "off"),
        ("fsync", "off"),
        ("wal_compression", compression),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    cluster.run_client(guard, "pgbench", &["-i", "-q", "-s", "2", "postgres"]).unwrap();
    let load = ["-n", "-c", "2", "-t", "1500", "--random-seed=42", "postgres"];
    cluster.run_client(guard, "pgbench", &load).unwrap();
    cluster
}

/// How far a row's bytes are from what is really there.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn error(row: &WhatIfRow, record: &WalWhatIfRecord) -> f64 {
    (row.bytes as f64 / record.bytes as f64 - 1.0).abs()
}

#[test]
fn the_sources_own_redo_points_explain_its_images() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        for (checksums, compression) in [(true, "off"), (false, "pglz")] {
            let cluster = worked(&mut guard, &server, checksums, compression);
            cluster.stop(&mut guard, StopMode::Fast).unwrap();
            let whatif = whatif(&[cluster.data().to_str().unwrap()]);
            let name = cluster.name();
            assert!(whatif.check.references > 5000, "{name}: {:?}", whatif.check);
            assert_eq!(whatif.check.absent, 0, "{name}: {:?}", whatif.check);
            // Two sessions may log the same page twice.
            assert!(whatif.check.unpredicted <= 3, "{name}: {:?}", whatif.check);
            assert!(whatif.redo_points.len() > 5, "{name}: {:?}", whatif.redo_points);
            assert!(whatif.check.bytes_error.abs() < 0.001, "{name}: {:?}", whatif.check);
            let settings = &whatif.source_settings;
            assert_eq!((settings.max_wal_size_bytes, settings.hints), (8 << 20, checksums));
            // The same settings as a rule. The load's checkpoints follow each other so fast that the
            // checkpointer cannot keep to it: one more or less is a tenth of all.
            let own = &whatif.rows[0];
            assert_ne!(own.class, WhatIfClass::Extrapolated, "{name}: {own:?}");
            assert!(error(own, &whatif) < 0.15, "{name}: {own:?} {}", whatif.bytes);
            check_directions(&whatif, compression == "off");
            cluster.remove(&mut guard).unwrap();
        }
    }
}

/// What is known beforehand.
fn check_directions(record: &WalWhatIfRecord, is_plain: bool) {
    let without_images = record.rows.iter().find(|row| !row.full_page_writes).unwrap();
    let mut as_stored = record.rows.iter().filter(|row| row.wal_compression == "as stored");
    assert!(as_stored.all(|row| row.bytes >= without_images.bytes), "{record:?}");
    let last = record.curve.last().unwrap();
    assert_eq!(last.checkpoints_by_volume, 0, "{last:?}");
    assert!(
        record.curve[0].bytes > last.bytes && record.curve[0].checkpoints() > last.checkpoints()
    );
    let compressed =
        record.rows.iter().filter(|row| is_plain && row.wal_compression != "as stored");
    for row in compressed {
        // A sample of them is compressed.
        assert!(row.image_bytes <= record.rows[0].image_bytes / 10 * 11, "{row:?}");
    }
}

#[test]
fn a_running_servers_wal_is_answered_by_its_directory_and_by_its_stream() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = worked(&mut guard, &server(), true, "off");
    // The first command of a new user.
    let wal = cluster.data().join("pg_wal");
    let ran = run(pgtoll().args(["wal", "whatif"]).arg(&wal));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for words in ["self-check:", "predicted but absent: 0;", "max_wal_size = 16MB", "recommended:"]
    {
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "{words}: {}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(ran.stdout.contains("made with max_wal_size = 8MB,"), "{}", ran.stdout);
    check_archive(&scratch, &wal);
    let page = run(pgtoll().args(["wal", "whatif", "--format", "html"]).arg(&wal));
    assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    let environment = cluster.environment();
    let host = &environment["PGHOST"];
    let port = &environment["PGPORT"];
    let user = &environment["PGUSER"];
    let dsn = format!("host={host} port={port} user={user} dbname=postgres");
    let streamed = whatif(&["--dsn", &dsn, "--max-wal-size", "16MB,64MB", "--hints", "on,off"]);
    assert_eq!(streamed.rows.len(), 4, "{streamed:?}");
    assert_eq!(streamed.check.absent, 0, "{streamed:?}");
    assert_eq!(streamed.source_settings.max_wal_size_bytes, 8 << 20);
    assert!(streamed.source_settings.by.starts_with("the server"), "{streamed:?}");
    check_report(&scratch, &streamed);
    check_short_stream(&cluster, &dsn);
    check_interrupt(&cluster, &dsn);
    cluster.remove(&mut guard).unwrap();
}

/// Where nothing but the WAL says what it was made with, that is a guess.
fn check_archive(scratch: &Scratch, wal: &Path) {
    let archive = scratch.path("archive");
    fs::create_dir(&archive).unwrap();
    for entry in fs::read_dir(wal).unwrap().map(Result::unwrap) {
        if entry.file_name().len() == 24 {
            fs::copy(entry.path(), archive.join(entry.file_name())).unwrap();
        }
    }
    let ran = run(pgtoll().args(["wal", "whatif"]).arg(&archive));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("made with hints logged; looks like max_wal_size = "), "{}", ran.stdout);
    check_gap(&archive);
    check_times(archive.to_str().unwrap());
}

/// Of WAL with a gap the longest stretch is replayed, as if only that had been named.
fn check_gap(archive: &Path) {
    let mut paths: Vec<String> = fs::read_dir(archive)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    paths.sort();
    let missing = paths.remove(5);
    let without: Vec<&str> = paths.iter().map(String::as_str).collect();
    let ran = run(pgtoll()
        .args(["wal", "whatif", "--json", "--today", "max_wal_size=8MB"])
        .args(["--today", "checkpoint_timeout=1h"])
        .args(&without));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let record: WalWhatIfRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((record.end.kind, record.source.gaps.len()), (WalEndKind::Missing, 1), "{record:?}");
    assert!(missing.contains(record.source.gaps[0].words.split(' ').nth(1).unwrap()), "{record:?}");
    assert!(
        record.notes[0].starts_with("All figures are of the longest stretch"),
        "{:?}",
        record.notes
    );
    let today = ["--today", "max_wal_size=8MB", "--today", "checkpoint_timeout=1h"];
    let longest = whatif(&[&without[5..], &today].concat());
    assert_eq!((record.source.from, record.source.to), (longest.source.from, longest.source.to));
    assert_eq!(
        (&record.rows, &record.curve, &record.check),
        (&longest.rows, &longest.curve, &longest.check)
    );
    assert_eq!((record.bytes, &record.redo_points), (longest.bytes, &longest.redo_points));
}

/// A time is where the first commit or checkpoint then or later is: parts up to and from a time are
/// the whole.
fn check_times(archive: &str) {
    let stats = |arguments: &[&str]| -> WalStatisticsRecord {
        let ran = run(pgtoll().args(["wal", "stats", "--json", archive]).args(arguments));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let all = stats(&[]);
    let pieces = &all.pieces;
    let middle = pieces[pieces.len() / 2].until_us.unwrap();
    let time = jiff::Timestamp::from_microsecond(middle).unwrap().to_string();
    let before = stats(&["--to", &time]);
    let behind = stats(&["--from", &time]);
    assert_eq!(before.total.records + behind.total.records, all.total.records);
    assert!(before.total.records > 1000 && behind.total.records > 1000, "{time}");
    // The commit of that time is the first record.
    assert_eq!(behind.source.first_time.as_deref(), Some(time.as_str()));
    let last: jiff::Timestamp = before.source.last_time.as_ref().unwrap().parse().unwrap();
    assert!(last.as_microsecond() < middle, "{:?}", before.source);
}

/// From a checkpoint on there is one redo point: no setting is recommended, and it is said how there
/// is more.
fn check_short_stream(cluster: &Cluster, dsn: &str) {
    let mut connection = cluster.connect("postgres").unwrap();
    // The stream begins with a segment, which may hold the redo point before. The first checkpoint is
    // there so that the switch does not begin one by its volume.
    for sql in ["CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT"] {
        connection.execute(sql).unwrap();
    }
    let ran = run(pgtoll().args(["wal", "whatif", "--dsn", dsn]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let not_enough = "Not enough WAL to recommend anything: 1 redo point seen, and it takes two.";
    assert!(text.contains(not_enough), "{}", ran.stdout);
    // Three times `checkpoint_timeout`.
    assert!(text.contains("Stream longer: --for 3h."), "{}", ran.stdout);
    for words in ["recommended:", "Nothing to recommend", "looks like"] {
        assert!(!text.contains(words), "{words}: {}", ran.stdout);
    }
}

/// What was printed as JSON is shown again, with each answer and the range of those that have one.
fn check_report(scratch: &Scratch, record: &WalWhatIfRecord) {
    let file = scratch.path("whatif.json");
    fs::write(&file, serde_json::to_vec(record).unwrap()).unwrap();
    let ran = run(pgtoll().arg("report").arg(&file));
    assert_eq!(
        (ran.status, &ran.stdout),
        (Some(0), &record.text(&pgtoll_report::TableOptions::default())),
        "{ran:?}"
    );
    let page = run(pgtoll().args(["report", "--format", "html"]).arg(&file));
    assert_eq!(page.stdout, record.html());
    let refused = run(pgtoll().args(["report", "--format", "csv"]).arg(&file));
    assert_eq!(refused.status, Some(2), "{refused:?}");
}

/// Ctrl-C ends the reading; what was read is shown.
fn check_interrupt(cluster: &Cluster, dsn: &str) {
    let mut connection = cluster.connect("postgres").unwrap();
    let mut command = pgtoll();
    command.args(["wal", "whatif", "--json", "--for", "1h", "--dsn", dsn]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // All that there was has been sent, and more is waited for.
    let sent = "SELECT FROM pg_stat_replication WHERE sent_lsn >= pg_current_wal_flush_lsn()";
    while connection.query(sent).unwrap().is_empty() {}
    kill(Pid::from_raw(pid_of(&child)), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let record: WalWhatIfRecord = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record.end.kind, WalEndKind::Interrupted);
    assert!(record.redo_points.len() < 3, "it is from the last checkpoint on: {record:?}");
}

fn refused(arguments: &[&str]) -> Ran {
    let ran = run(pgtoll().args(["wal", "whatif"]).args(arguments));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    ran
}

#[test]
fn what_cannot_be_answered_is_one_clear_line() {
    let scratch = Scratch::new();
    let nothing = scratch.work().to_string_lossy().into_owned();
    let ran = refused(&[&nothing]);
    assert!(ran.stderr.contains("holds no WAL segment") && ran.stderr.contains("hint:"), "{ran:?}");
    let ran = refused(&[&nothing, "--today", "work_mem=4MB"]);
    assert!(ran.stderr.contains("--today does not accept \"work_mem=4MB\""), "{ran:?}");
    let ran = refused(&[&nothing, "--max-wal-size", "1GB,much"]);
    assert!(ran.stderr.contains("much"), "{ran:?}");
    let ran = refused(&[&nothing, "--checkpoint-completion-target", "2"]);
    assert!(ran.stderr.contains("\"2\" is not between 0 and 1"), "{ran:?}");
    let sizes: Vec<String> = (1..=501).map(|number| format!("{number}GB")).collect();
    let ran = refused(&[&nothing, "--max-wal-size", &sizes.join(","), "--hints", "on,off"]);
    assert!(ran.stderr.contains("1002 combinations of settings are asked for"), "{ran:?}");
    assert!(ran.stderr.contains("hint: name fewer values"), "{ran:?}");
    let segment = scratch.path("000000010000000000000001");
    fs::write(&segment, vec![0; 1 << 20]).unwrap();
    let ran = refused(&[segment.to_str().unwrap()]);
    assert!(ran.stderr.contains("nothing but zeros"), "{ran:?}");
}

/// A table is loaded with these statements, and vacuumed after a checkpoint: where the `VACUUM`'s WAL begins
/// and ends.
fn load_and_vacuum(
    guard: &mut Guard,
    server: &Installation,
    checksums: bool,
    (load, vacuum): (&[&str], &str),
) -> (Cluster, Range<Lsn>) {
    let word = vacuum.len();
    let name = format!("pg{}-{checksums}-{word}", server.version.major());
    let cluster =
        Cluster::init_with(guard, server, &name, checksums, &["--wal-segsize=1"]).unwrap();
    let settings = [
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "1h"),
        ("wal_keep_size", "10GB"),
        ("autovacuum", "off"),
        ("fsync", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(guard, &settings.into()).unwrap();
    cluster.start(guard).unwrap();
    let mut session = cluster.connect("postgres").unwrap();
    for statement in load.iter().chain(&["CHECKPOINT"]) {
        session.execute(statement).unwrap();
    }
    let mut insert_lsn = || -> Lsn {
        let row = session.query_one("SELECT pg_current_wal_insert_lsn() AS lsn").unwrap();
        row.parse("lsn").unwrap()
    };
    let from = insert_lsn();
    cluster.connect("postgres").unwrap().execute(vacuum).unwrap();
    let to = insert_lsn();
    cluster.stop(guard, StopMode::Fast).unwrap();
    (cluster, from..to)
}

const LOAD: [&str; 2] = [
    "CREATE TABLE loaded (number int, filler text)",
    "INSERT INTO loaded SELECT n, repeat('x', 60) FROM generate_series(1, 80000) n",
];

/// What the same work writes without checksums, as predicted and in truth.
fn without_checksums(guard: &mut Guard, server: &Installation, vacuum: &str) -> (WhatIfRow, u64) {
    let (cluster, on) = load_and_vacuum(guard, server, true, (&LOAD, vacuum));
    let data = cluster.data();
    let from = on.start.to_string();
    let to = on.end.to_string();
    let whatif = whatif(&["--from", &from, "--to", &to, "--hints", "off", data.to_str().unwrap()]);
    assert_eq!(whatif.check.absent, 0, "{whatif:?}");
    let depends = whatif.notes.iter().any(|note| note.starts_with("VACUUM froze rows"));
    let freezes_early = server.version.facts().unwrap().wal.freezes_after_hint;
    assert_eq!(depends, freezes_early, "{:?}", whatif.notes);
    let (twin, off) = load_and_vacuum(guard, server, false, (&LOAD, vacuum));
    cluster.remove(guard).unwrap();
    twin.remove(guard).unwrap();
    (whatif.rows[0].clone(), off.end.bytes_since(off.start).unwrap())
}

/// Since 16 `VACUUM` freezes pages because it has logged an image of them for a hint: without hints
/// it would not.
#[test]
fn a_vacuum_without_hints_is_as_its_twin() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (predicted, truth) = without_checksums(&mut guard, &server, "VACUUM loaded");
        let off_by = predicted.bytes.abs_diff(truth);
        assert!(off_by < truth / 20 + 4096, "{}: {predicted:?} {truth}", server.version);
    }
}

/// WAL does not show whether it had to freeze them: the figure is the least that it may be.
#[test]
fn a_vacuum_that_had_to_freeze_is_in_the_range() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let newest = servers().pop().unwrap();
    let (predicted, truth) = without_checksums(&mut guard, &newest, "VACUUM (FREEZE) loaded");
    let high = predicted.high_bytes.unwrap_or(u64::MAX);
    assert!((predicted.low_bytes..=high).contains(&truth), "{predicted:?} {truth}");
    assert!([WhatIfClass::LowerBound, WhatIfClass::Extrapolated].contains(&predicted.class));
}

/// Where hints are logged, a page that `VACUUM` prunes has its image with the dead rows, else without them.
#[test]
fn a_vacuum_that_prunes_is_as_its_twin_both_ways() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let delete = "DELETE FROM loaded WHERE number % 10 < 7";
    let load = [&LOAD[..], &[delete]].concat();
    for server in servers() {
        let vacuumed = |guard: &mut Guard, checksums| {
            load_and_vacuum(guard, &server, checksums, (&load, "VACUUM loaded"))
        };
        let on = vacuumed(&mut guard, true);
        let off = vacuumed(&mut guard, false);
        let bytes = |range: &Range<Lsn>| range.end.bytes_since(range.start).unwrap();
        assert!(bytes(&on.1) > 2 * bytes(&off.1), "{:?} {:?}", on.1, off.1);
        for ((cluster, range), hints, truth) in [(&on, "off", &off.1), (&off, "on", &on.1)] {
            let from = range.start.to_string();
            let to = range.end.to_string();
            let data = cluster.data();
            let data = data.to_str().unwrap();
            let record = whatif(&["--from", &from, "--to", &to, "--hints", hints, data]);
            let predicted = record.rows[0].bytes;
            let truth = bytes(truth);
            let off_by = predicted.abs_diff(truth);
            let version = &server.version;
            assert!(off_by < truth / 10, "{version}, {hints}: {predicted} for {truth}");
        }
        for cluster in [on.0, off.0] {
            cluster.remove(&mut guard).unwrap();
        }
    }
}
