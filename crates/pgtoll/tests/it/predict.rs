//! `pgtoll predict` of running servers of each version: what is counted is what is there.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, StopMode};
use pgtoll_record::{PredictionBasis, PredictionRecord, WalWhatIfRecord, WatchWindow, WatchedWal};

use crate::support::{Ran, Scratch, pgtoll, run, servers, servers_in_turn};

/// A cluster without checksums in which nothing happens by itself.
pub(crate) fn started(
    guard: &mut Guard,
    server: &pgtoll_cluster::Installation,
    settings: &[(&str, &str)],
) -> Cluster {
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, false).unwrap();
    let quiet = [("autovacuum", "off"), ("checkpoint_timeout", "1h")];
    let settings = quiet.iter().chain(settings);
    let settings = settings.map(|(name, value)| (String::from(*name), String::from(*value)));
    cluster.configure(guard, &settings.collect()).unwrap();
    cluster.start(guard).unwrap();
    cluster
}

pub(crate) fn dsn(cluster: &Cluster, user: &str) -> String {
    let environment = cluster.environment();
    let host = &environment["PGHOST"];
    let port = &environment["PGPORT"];
    let user = if user.is_empty() { environment["PGUSER"].as_str() } else { user };
    format!("host={host} port={port} user={user} dbname=postgres")
}

pub(crate) fn predict(cluster: &Cluster, user: &str, arguments: &[&str]) -> Ran {
    run(pgtoll().args(["predict", "--dsn", &dsn(cluster, user)]).args(arguments))
}

pub(crate) fn record(ran: &Ran) -> PredictionRecord {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

pub(crate) const EXTENSIONS: &str =
    "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_buffercache;";
pub(crate) const LOAD: &str = "CREATE TABLE loaded AS SELECT i, repeat('x', 500) AS t FROM \
                    generate_series(1, 12000) i; CHECKPOINT; SELECT count(*) FROM loaded;";

#[test]
fn pages_that_only_hints_changed_are_counted() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        cluster.run_psql(&mut guard, "postgres", LOAD).unwrap();
        let item = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
        let census = item.watch.windows[0].census.as_ref().unwrap();
        assert!(!item.watch.windows[0].is_cycle && item.watch.discarded.is_empty(), "{item:?}");
        let counted =
            census.relations.iter().find(|relation| relation.relation == "public.loaded").unwrap();
        // The first SELECT hints every page of the table, and nothing else has changed them. So say
        // the rows: 15 of 500 bytes on a page.
        assert_eq!((counted.pages, &*counted.database), (800, "postgres"), "{name}: {census:?}");
        assert!(census.hint_only <= 800 + 20, "{name}: {census:?}");
        assert_eq!((census.covered, census.sampled), (census.dirty, census.dirty), "{name}");
        assert!((7_500.0..=8192.0).contains(&census.image_bytes.unwrap()), "{name}: {census:?}");
        let answer = &item.answers[0];
        assert_eq!((&*answer.today, &*answer.value), ("off", "on"), "{name}");
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::CensusAndEvictions, "{name}");
        // A part of a cycle of an hour: the stock is what the cycle has at least.
        let stock = f64::from(u32::try_from(census.hint_only).unwrap());
        assert!((wal.estimators["E2"] * 3600.0 - stock).abs() < 1.0, "{name}: {wal:?}");
        assert!(wal.images_per_second.unwrap().estimate > 0.0, "{name}: {wal:?}");
        assert!(
            item.server.local && item.page_costs.timed && item.watch.cost.is_cpu,
            "{name}: {item:?}"
        );
        // Another CHECKPOINT writes them; then nothing is left to log.
        cluster.run_psql(&mut guard, "postgres", "CHECKPOINT").unwrap();
        let record = record(&predict(&cluster, "", &["--for", "1s", "--json"]));
        let census = record.watch.windows[0].census.as_ref().unwrap();
        assert!(census.hint_only < 20, "{name}: {census:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn hints_logged_already_cost_no_wal_again() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[("wal_log_hints", "on")]);
        let kept = scratch.path("kept.json");
        let ran = predict(&cluster, "", &["--for", "1s", "--record", kept.to_str().unwrap()]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("WAL no more"), "{ran:?}");
        assert!(ran.stdout.contains("hints are logged already (wal_log_hints = on)"), "{ran:?}");
        check_record(&kept);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
        fs::remove_file(kept).unwrap();
    }
}

/// What was kept is shown as it was, and asked about something else.
fn check_record(kept: &Path) {
    let kept = kept.to_str().unwrap();
    let shown = run(pgtoll().args(["report", kept]));
    assert!(shown.stdout.contains("WAL no more"), "{shown:?}");
    let record = record(&run(pgtoll()
        .args(["predict", "--from", kept, "--json"])
        .args(["--setting", "wal_log_hints=off,wal_log_hints=on"])));
    let values: Vec<&str> = record.answers.iter().map(|answer| answer.value.as_str()).collect();
    assert_eq!(values, ["off", "on"]);
    assert!(record.answers[0].wal.is_none() && record.answers[0].reason.is_some(), "{record:?}");
    assert!(record.answers[1].reason.as_ref().unwrap().contains("already"), "{record:?}");
    let mistake = run(pgtoll().args(["predict", "--from", kept, "--setting", "fsync=off"]));
    assert_eq!(mistake.status, Some(2), "{mistake:?}");
    assert!(mistake.stderr.contains("--setting does not accept \"fsync=off\""), "{mistake:?}");
    assert!(mistake.stderr.contains("\nhint: like data_checksums=on"), "{mistake:?}");
}

#[test]
fn roles_without_pg_monitor_get_the_grant_and_those_with_it_an_answer() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        cluster.run_psql(&mut guard, "postgres", "CREATE ROLE \"Watch er\" LOGIN").unwrap();
        let ran = predict(&cluster, "'Watch er'", &["--for", "1s"]);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        let expected = "pgtoll: role \"Watch er\" may not read other sessions' statistics\n\
                        hint: GRANT pg_monitor TO \"Watch er\";\n";
        assert!(ran.stderr.ends_with(expected), "{ran:?}");
        // What the former is made of serves, too.
        for role in ["pg_read_all_stats", "pg_monitor"] {
            let grant = format!("GRANT {role} TO \"Watch er\"");
            cluster.run_psql(&mut guard, "postgres", &grant).unwrap();
            let record = record(&predict(&cluster, "'Watch er'", &["--for", "1s", "--json"]));
            let window = &record.watch.windows[0];
            assert!(
                window.census.is_none() && record.answers[0].cpu.is_some(),
                "{role}: {record:?}"
            );
        }
        let record = record(&predict(&cluster, "'Watch er'", &["--for", "1s", "--json"]));
        let missing =
            record.watch.sources.iter().find(|source| source.name == "pageinspect").unwrap();
        assert!(!missing.available && missing.remedy.is_some(), "{missing:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn cycles_last_from_one_checkpoint_to_the_next() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        cluster.run_psql(&mut guard, "postgres", "CREATE TABLE written (i int)").unwrap();
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--cycles", "1", "--json"]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Until it has seen two checkpoints end.
        while watching.try_wait().unwrap().is_none() {
            let script = "INSERT INTO written SELECT generate_series(1, 1000); CHECKPOINT";
            cluster.run_psql(&mut guard, "postgres", script).unwrap();
        }
        let output = watching.wait_with_output().unwrap();
        let prediction: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), prediction.watch.complete),
            (Some(0), true),
            "{prediction:?}"
        );
        assert_eq!(prediction.watch.windows.len(), 1, "{prediction:?}");
        let window = &prediction.watch.windows[0];
        assert!(
            window.is_cycle && window.wal_bytes > 1000 && window.seconds > 0.0,
            "{prediction:?}"
        );
        assert!(window.blocks_checkpointed > 0, "{window:?}");
        assert!(prediction.notes.iter().any(|note| note.contains("came sooner")), "{prediction:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// Where volume begins checkpoints that are spread over the WAL to the next: they run nearly always.
#[test]
fn pages_of_the_cycle_before_are_not_taken_for_hints_while_a_checkpoint_runs() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers_in_turn(0) {
        let name = server.version.to_string();
        let settings = [("max_wal_size", "128MB"), ("checkpoint_completion_target", "0.9")];
        let cluster = started(&mut guard, &server, &settings);
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        let load = "CREATE TABLE changed (i int PRIMARY KEY, n int, t text) WITH (fillfactor = 50); \
                    INSERT INTO changed SELECT i, 0, repeat('x', 200) FROM generate_series(1, 100000) i; \
                    VACUUM (FREEZE) changed; CHECKPOINT";
        cluster.run_psql(&mut guard, "postgres", load).unwrap();
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--cycles", "2", "--json"]);
        let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // Each page is changed by what is logged, in random order.
        let change = "UPDATE changed SET n = n + 1 WHERE i IN \
                      (SELECT (random() * 100000)::int FROM generate_series(1, 1000))";
        while watching.try_wait().unwrap().is_none() {
            cluster.run_psql(&mut guard, "postgres", change).unwrap();
        }
        let output = watching.wait_with_output().unwrap();
        let prediction: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (output.status.code(), prediction.watch.complete),
            (Some(0), true),
            "{name}: {prediction:?}"
        );
        let last = prediction.watch.windows.last().unwrap();
        let cycle = last.census.as_ref().unwrap().cycle_s.unwrap();
        let censuses = prediction.watch.windows.iter().flat_map(WatchWindow::censuses);
        let early: Vec<_> = censuses.filter(|census| census.age_s < 0.6 * cycle).collect();
        assert!(!early.is_empty(), "{name}: {prediction:?}");
        let sampled: u64 = early.iter().map(|census| census.sampled).sum();
        let hint_only: u64 = early.iter().map(|census| census.hint_only).sum();
        assert!(sampled > 200 && hint_only * 10 < sampled, "{name}: {early:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// A checkpoint that is spread over nearly an hour, unless it is told not to wait.
fn begin_spread_checkpoint(cluster: &Cluster) -> JoinHandle<()> {
    let mut connection = cluster.connect("postgres").unwrap();
    let function = if cluster.version().major() < 15 {
        "pg_start_backup('spread', false, false)"
    } else {
        "pg_backup_start('spread', false)"
    };
    // It returns at the checkpoint's end, and the session's end ends the backup.
    let statement = format!("SELECT {function}");
    thread::spawn(move || connection.execute(&statement).unwrap())
}

/// Until more checkpoints have begun than `before`.
fn checkpoint_begun(cluster: &Cluster, before: u64) -> String {
    format!(
        "DO $$ BEGIN FOR again IN 1 .. 2000 LOOP PERFORM pg_stat_clear_snapshot(); \
         EXIT WHEN ({}) > {before}; PERFORM pg_sleep(0.01); END LOOP; END $$;",
        checkpoints_sql(cluster)
    )
}

fn checkpoints_sql(cluster: &Cluster) -> &'static str {
    if cluster.version().major() < 17 {
        "SELECT checkpoints_req AS count FROM pg_stat_bgwriter"
    } else {
        "SELECT num_requested AS count FROM pg_stat_checkpointer"
    }
}

/// Until a session watches, and has looked.
const WATCHED: &str = "DO $$ BEGIN FOR again IN 1 .. 2000 LOOP PERFORM pg_stat_clear_snapshot(); \
     EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pgtoll predict' \
     AND query = 'EXECUTE look'); PERFORM pg_sleep(0.01); END LOOP; END $$;";

#[test]
fn marks_on_pages_that_a_running_checkpoint_has_to_write_are_counted() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers_in_turn(1) {
        let settings = [("checkpoint_completion_target", "0.9"), ("bgwriter_lru_maxpages", "0")];
        let cluster = started(&mut guard, &server, &settings);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", EXTENSIONS).unwrap();
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--json", "--cycles", "2"]);
        let watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut sql = |statements: &str| {
            cluster.run_psql(&mut guard, "postgres", statements).unwrap();
            cluster.run_psql(&mut guard, "postgres", LOOKED).unwrap();
        };
        sql(WATCHED);
        sql("CHECKPOINT");
        // 200 pages, of which nobody has set the hints.
        sql(
            "CREATE TABLE marked AS SELECT i, repeat('x', 500) AS t FROM generate_series(1, 3000) i",
        );
        let mut asking = cluster.connect("postgres").unwrap();
        let before = asking.query_one(checkpoints_sql(&cluster)).unwrap().parse("count").unwrap();
        let spread = begin_spread_checkpoint(&cluster);
        sql(&checkpoint_begun(&cluster, before));
        sql("VACUUM marked");
        // It need not wait any more.
        sql("ALTER SYSTEM SET checkpoint_completion_target = 0");
        sql("SELECT pg_reload_conf()");
        spread.join().unwrap();
        sql("SELECT 1");
        sql("CHECKPOINT");
        let output = watching.wait_with_output().unwrap();
        let prediction: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {prediction:?}");
        let marks = prediction.watch.windows.iter().find_map(|window| window.carried_marks);
        let marks = marks.unwrap_or_else(|| panic!("{name}: {:?}", prediction.watch));
        // It had begun to write when they were listed.
        assert!((150..=200).contains(&marks.marked), "{name}: {marks:?}");
        assert!(marks.sampled >= marks.marked && marks.unknown == 0, "{name}: {marks:?}");
        let windows: f64 = prediction.watch.windows.iter().map(|window| window.seconds).sum();
        let images = prediction.answers[0].wal.as_ref().unwrap().images_per_second.unwrap();
        assert!(images.estimate * windows >= 150.0, "{name}: {images:?} {:?}", prediction.watch);
        assert!(
            !prediction.notes.iter().any(|note| note.contains("seen by no census")),
            "{name}: {prediction:?}"
        );
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// Until the session that watches has looked twice after this began, whatever else it asks
/// meanwhile, or is gone.
const LOOKED: &str = "DO $$ DECLARE began timestamptz := clock_timestamp(); seen timestamptz; \
     watches boolean; BEGIN FOR look IN 1 .. 2 LOOP FOR again IN 1 .. 1000 LOOP \
     PERFORM pg_stat_clear_snapshot(); SELECT count(*) > 0, max(query_start) FILTER \
     (WHERE query = 'EXECUTE look') INTO watches, seen \
     FROM pg_stat_activity WHERE application_name = 'pgtoll predict' \
     AND backend_type = 'client backend'; \
     EXIT WHEN NOT watches OR seen > began; PERFORM pg_sleep(0.01); END LOOP; \
     began := coalesce(seen, began); END LOOP; END $$;";
/// Until WAL is sent and the session that watches has looked.
const BEGUN: &str = "DO $$ BEGIN FOR again IN 1 .. 2000 LOOP PERFORM pg_stat_clear_snapshot(); \
     EXIT WHEN EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming') AND EXISTS \
     (SELECT FROM pg_stat_activity WHERE query = 'EXECUTE look' AND \
     application_name = 'pgtoll predict'); PERFORM pg_sleep(0.01); END LOOP; END $$;";
/// Hints for what the cycle before inserted, changes, and 15 rows a page: 200 pages.
const CYCLE: &str = "SELECT count(*) FROM storm; UPDATE changed SET i = i + 1; \
     INSERT INTO storm SELECT i, repeat('x', 500) FROM generate_series(1, 3000) i; CHECKPOINT;";
const CYCLE_PAGES: f64 = 200.0;
/// A checkpoint that is seen before its counters are published counts with the next window, and
/// sessions publish what they wrote at their end.
const LATE_BLOCKS: f64 = 600.0;
const STORM: &str = "CREATE TABLE storm (i int, t text); CREATE TABLE changed AS SELECT i, \
     repeat('y', 500) AS t FROM generate_series(1, 600) i; \
     CREATE ROLE monitor LOGIN REPLICATION; GRANT pg_monitor TO monitor; CHECKPOINT;";

/// Predicts while cycles follow each other.
fn predict_storm(
    guard: &mut Guard,
    cluster: &Cluster,
    user: &str,
    arguments: &[&str],
) -> PredictionRecord {
    let mut command = pgtoll();
    command.args(["predict", "--dsn", &dsn(cluster, user), "--json", "--cycles", "6"]);
    command.args(["--wal", "stream"]).args(arguments);
    let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while watching.try_wait().unwrap().is_none() {
        cluster.run_psql(guard, "postgres", CYCLE).unwrap();
        cluster.run_psql(guard, "postgres", LOOKED).unwrap();
    }
    let output = watching.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn wal_that_is_read_says_what_hints_take() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let settings = [("wal_log_hints", "on"), ("wal_keep_size", "1GB")];
        let cluster = started(&mut guard, &server, &settings);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", STORM).unwrap();
        let requested = ["--setting", "wal_log_hints=off,wal_log_hints=on"];
        let predict_storm = predict_storm(&mut guard, &cluster, "monitor", &requested);
        let read = predict_storm.watch.wal.as_ref().unwrap();
        assert!(read.cycles.len() >= 3 && read.ended.is_none(), "{name}: {read:?}");
        assert_eq!(read.check.absent, 0, "{name}: {read:?}");
        assert!(read.sender_cpu_seconds.is_some(), "{name}: {read:?}");
        assert_eq!(predict_storm.server.standbys, 0, "{name}: its own reading is no standby");
        let source = predict_storm
            .watch
            .sources
            .iter()
            .find(|source| source.name == "WAL by replication")
            .unwrap();
        assert!(source.available && source.remedy.is_none(), "{name}: {source:?}");
        let wal = predict_storm.answers[0].wal.as_ref().unwrap();
        let share = wal.extra_share.unwrap();
        assert_eq!(wal.basis, PredictionBasis::WhatIf, "{name}");
        assert!(share.lower < share.estimate && share.estimate < -0.2, "{name}: {wal:?}");
        assert!(wal.images_per_second.unwrap().estimate < 0.0, "{name}: {wal:?}");
        assert!(predict_storm.answers[0].cpu.as_ref().unwrap().image_cores < 0.0, "{name}");
        assert!(predict_storm.answers[0].io_bytes_per_second.unwrap().estimate < 0.0, "{name}");
        check_blind(&predict_storm, &name);
        check_files(&cluster, &predict_storm, &name);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// Written and changed pages alone come near to what the WAL really has.
fn check_blind(prediction: &PredictionRecord, name: &str) {
    let blind = prediction.checks.blind.as_ref().unwrap();
    let windows = &prediction.watch.windows;
    let cycles = float(blind.cycles);
    let found = float(blind.found_images);
    assert!(cycles >= 6.0, "{name}: {blind:?}");
    assert!((found / cycles - CYCLE_PAGES).abs() < 20.0, "{name}: {blind:?}");
    let error = blind.predicted_images.estimate - found;
    assert!(error.abs() < LATE_BLOCKS, "{name}: {blind:?} {windows:?}");
    assert!(
        prediction.checks.next_cycle.is_some() && prediction.checks.own_settings_error.is_some(),
        "{name}"
    );
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// `wal whatif` says the same of the same WAL. While a server is watched it is read in other parts than
/// segments, and what a part does not say of an image is a mean of it: that may differ by a few bytes.
fn check_files(cluster: &Cluster, prediction: &PredictionRecord, name: &str) {
    let read = prediction.watch.wal.as_ref().unwrap();
    let ran = run(pgtoll()
        .args(["wal", "whatif", cluster.data().to_str().unwrap(), "--hints", "off", "--json"])
        .args(["--from", &read.from.to_string(), "--to", &read.to.to_string()]));
    assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
    let whatif: WalWhatIfRecord = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((whatif.source.from, whatif.source.to), (Some(read.from), Some(read.to)), "{name}");
    for (of_files, of_stream) in [(&whatif.today, &read.today), (&whatif.rows[0], &read.rows[2])] {
        assert_eq!(of_files.images, of_stream.images, "{name}");
        let difference = of_files.bytes.abs_diff(of_stream.bytes);
        assert!(difference <= of_files.bytes / 10_000, "{name}: {of_files:?} {of_stream:?}");
    }
}

#[test]
fn wal_without_hints_bounds_what_they_would_add() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", STORM).unwrap();
        let predict_storm =
            predict_storm(&mut guard, &cluster, "monitor", &["--setting", "wal_log_hints=on"]);
        let wal = predict_storm.answers[0].wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::PagesWritten, "{name}: {wal:?}");
        let windows = &predict_storm.watch.windows;
        let from = windows[0].redo.unwrap().0;
        let to = windows[windows.len() - 1].redo.unwrap().1;
        let read = predict_storm.watch.wal.as_ref().unwrap();
        let cycles = read.cycles.iter().filter(|cycle| cycle.from >= from && cycle.to <= to);
        let expected = CYCLE_PAGES * float(cycles.count() as u64);
        let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
        let error = wal.images_per_second.unwrap().estimate * seconds - expected;
        assert!(expected >= 6.0 * CYCLE_PAGES, "{name}: {read:?}");
        assert!(error.abs() < LATE_BLOCKS, "{name}: {error} {wal:?} {windows:?}");
        assert!(wal.estimators.contains_key("E3") && wal.estimators.contains_key("E4"), "{name}");
        assert!(predict_storm.checks.blind.is_none(), "{name}: hints are not logged");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn roles_without_replication_are_told_what_it_takes() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        let grant = "CREATE ROLE \"Watch er\" LOGIN; GRANT pg_monitor TO \"Watch er\"";
        cluster.run_psql(&mut guard, "postgres", grant).unwrap();
        let stream = ["--wal", "stream", "--for", "1s", "--json"];
        let ran = predict(&cluster, "'Watch er'", &stream);
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("pgtoll: role \"Watch er\" may not stream WAL\n"), "{ran:?}");
        let expected = "hint: ALTER ROLE \"Watch er\" REPLICATION; and in pg_hba.conf the line ";
        assert!(ran.stderr.contains(expected), "{ran:?}");
        let item = record(&predict(&cluster, "'Watch er'", &["--for", "1s", "--json"]));
        let source =
            item.watch.sources.iter().find(|source| source.name == "WAL by replication").unwrap();
        let remedy = source.remedy.as_ref().unwrap();
        assert!(remedy.starts_with("ALTER ROLE \"Watch er\" REPLICATION; "), "{remedy}");
        assert!(!source.available && remedy.ends_with("; then --wal stream"), "{remedy}");
        let alter = "ALTER ROLE \"Watch er\" REPLICATION";
        cluster.run_psql(&mut guard, "postgres", alter).unwrap();
        let record = record(&predict(&cluster, "'Watch er'", &stream));
        assert!(record.watch.wal.is_some(), "{record:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn wal_that_was_read_until_a_signal_or_the_servers_end_is_kept() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        let cluster = started(&mut guard, &server, &[]);
        for is_signal in [true, false] {
            let mut command = pgtoll();
            command.args(["predict", "--dsn", &dsn(&cluster, ""), "--json", "--for", "5s"]);
            command.args(["--wal", "stream"]);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::null());
            let watching = piped.spawn().unwrap();
            cluster.run_psql(&mut guard, "postgres", BEGUN).unwrap();
            cluster.run_psql(&mut guard, "postgres", LOOKED).unwrap();
            if is_signal {
                let pid = Pid::from_raw(watching.id().cast_signed());
                kill(pid, Signal::SIGINT).unwrap();
            } else {
                cluster.stop(&mut guard, StopMode::Fast).unwrap();
            }
            let output = watching.wait_with_output().unwrap();
            let prediction: PredictionRecord = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(2), "{prediction:?}");
            let wal = prediction.watch.wal.as_ref().unwrap();
            assert!(wal.bytes > 0 && wal.ended.is_some() != is_signal, "{prediction:?}");
        }
        cluster.remove(&mut guard).unwrap();
    }
}

/// The record of a watch that goes on, once there is one.
fn record_so_far(path: &Path) -> Option<PredictionRecord> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[test]
fn a_watch_that_is_killed_leaves_the_wal_it_read_through_a_lost_connection() {
    let scratch = Scratch::on_disk();
    let mut guard = scratch.guard();
    for server in servers() {
        // What is missed while the connection is down has to be there still.
        let settings = [("wal_log_hints", "on"), ("wal_keep_size", "1GB")];
        let cluster = started(&mut guard, &server, &settings);
        let name = server.version.to_string();
        cluster.run_psql(&mut guard, "postgres", STORM).unwrap();
        let path = scratch.path(&format!("{name}.json"));
        let mut command = pgtoll();
        command.args(["predict", "--dsn", &dsn(&cluster, ""), "--for", "60s", "--wal", "stream"]);
        command.args(["--record", path.to_str().unwrap()]);
        let mut watching = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut until = |is_so: &dyn Fn(&WatchedWal) -> bool| loop {
            cluster.run_psql(&mut guard, "postgres", CYCLE).unwrap();
            cluster.run_psql(&mut guard, "postgres", LOOKED).unwrap();
            let wal = record_so_far(&path).and_then(|record_so_far| record_so_far.watch.wal);
            if let Some(wal) = wal.filter(|wal| is_so(wal)) {
                return wal;
            }
            assert!(watching.try_wait().unwrap().is_none(), "{name}: it ended before");
        };
        let before = until(&|wal| !wal.cycles.is_empty());
        let lose = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication";
        cluster.connect("postgres").unwrap().execute(lose).unwrap();
        let after = until(&|wal| wal.resumed == 1 && wal.cycles.len() > before.cycles.len() + 2);
        watching.kill().unwrap();
        watching.wait().unwrap();
        assert_eq!((after.from, after.ended.as_ref()), (before.from, None), "{name}: {after:?}");
        assert_eq!(after.check.absent, 0, "{name}: a piece is missing: {after:?}");
        let together = after.cycles.windows(2).all(|pair| pair[0].to == pair[1].from);
        assert!(together && after.cycles.starts_with(&before.cycles), "{name}: {after:?}");
        let from = ["predict", "--json", "--from", path.to_str().unwrap()];
        let again = run(pgtoll().args(from).args(["--setting", "wal_log_hints=off"]));
        // Watching did not come to its end.
        assert_eq!(again.status, Some(2), "{name}: {again:?}");
        let prediction: PredictionRecord = serde_json::from_str(&again.stdout).unwrap();
        let wal = prediction.answers[0].wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::WhatIf, "{name}: {wal:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}
