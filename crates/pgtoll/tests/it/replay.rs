//! `pgtoll replay` of real logs: what a server logged of pgbench goes the same way on another database.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::{LogExamination, ReplayRecord};

use crate::support::{PATIENCE, Ran, Scratch, ends_within, pgtoll, pid_of, run, servers};

const PREFIX: &str = "%m|%u|%d|%c|%l|%i|%v|%x|%e|%Q|";
const FORMATS: [&str; 3] = ["log", "csv", "json"];

/// A server that logs what happens in its database `captured` in all formats.
pub(crate) struct Captured {
    pub(crate) cluster: Cluster,
    /// Where the logs of the next work begin, by format.
    begins: [usize; 3],
    markers: u32,
}

impl Captured {
    pub(crate) fn start(guard: &mut Guard, server: &Installation) -> Self {
        Self::start_with(guard, server, PREFIX)
    }

    pub(crate) fn start_with(guard: &mut Guard, server: &Installation, prefix: &str) -> Self {
        let name = format!("pg{}", server.version.major());
        let cluster = Cluster::init(guard, server, &name, false).unwrap();
        let settings = [
            ("logging_collector", "on"),
            ("log_destination", "stderr,csvlog,jsonlog"),
            ("log_directory", "log"),
            ("log_filename", "server.log"),
            ("log_file_mode", "0644"),
            ("log_rotation_age", "0"),
            ("log_rotation_size", "0"),
            ("log_line_prefix", prefix),
            ("log_connections", "on"),
            ("log_disconnections", "on"),
            ("lc_messages", "C"),
            ("autovacuum", "off"),
            ("max_connections", "60"),
            ("max_prepared_transactions", "20"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.configure(guard, &settings.into()).unwrap();
        cluster.start(guard).unwrap();
        let mut captured = Self { cluster, begins: [0; 3], markers: 0 };
        captured.psql(guard, "postgres", "CREATE DATABASE captured");
        captured
    }

    pub(crate) fn psql(&mut self, guard: &mut Guard, database: &str, script: &str) {
        self.cluster.run_psql(guard, database, script).unwrap();
    }

    /// Both databases as `setup` makes them, `captured` logged from now on by these settings.
    pub(crate) fn prepare(&mut self, guard: &mut Guard, setup: &str, logging: &[&str]) {
        for database in ["captured", "copied"] {
            let again = format!("DROP DATABASE IF EXISTS {database}");
            self.psql(guard, "postgres", &again);
            self.psql(guard, "postgres", &format!("CREATE DATABASE {database}"));
            match setup {
                "pgbench" => self.pgbench(guard, &["-i", "-q", "-s", "1", database]),
                script => self.psql(guard, database, script),
            }
        }
        self.psql(guard, "postgres", "ALTER DATABASE copied SET pgtoll.disposable = on");
        for setting in logging {
            self.psql(guard, "postgres", &format!("ALTER DATABASE captured SET {setting}"));
        }
        self.begins = self.await_marker(guard);
    }

    pub(crate) fn pgbench(&mut self, guard: &mut Guard, arguments: &[&str]) {
        self.cluster.run_client(guard, "pgbench", arguments).unwrap();
    }

    /// Waits until the collector has written what was logged until now; where the logs end then.
    fn await_marker(&mut self, guard: &mut Guard) -> [usize; 3] {
        self.markers += 1;
        let marker = format!("marker {} is here", self.markers);
        let script = format!("SET log_statement = 'all'; SELECT '{marker}'");
        self.psql(guard, "captured", &script);
        let since = Instant::now();
        let mut ends = [0; 3];
        for (format, end) in FORMATS.iter().zip(&mut ends) {
            loop {
                let text = self.log(format);
                if let Some(at) = text.rfind(&marker) {
                    let newline = text[at..].find('\n');
                    if let Some(newline) = newline {
                        *end = at + newline + 1;
                        break;
                    }
                }
                assert!(since.elapsed() < PATIENCE, "no {marker} in the {format} log");
            }
        }
        ends
    }

    fn log(&self, format: &str) -> String {
        let path = self.cluster.data().join("log").join(format!("server.{format}"));
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The logs since [`Self::prepare`], a file of each format.
    pub(crate) fn logs(&mut self, guard: &mut Guard, scratch: &Scratch) -> [PathBuf; 3] {
        let ends = self.await_marker(guard);
        let mut paths = [PathBuf::new(), PathBuf::new(), PathBuf::new()];
        for (index, format) in FORMATS.iter().enumerate() {
            paths[index] = scratch.path(&format!("captured.{format}"));
            fs::write(&paths[index], &self.log(format)[self.begins[index]..ends[index]]).unwrap();
        }
        paths
    }

    pub(crate) fn value(&self, database: &str, sql: &str) -> String {
        let mut connection = self.cluster.connect(database).unwrap();
        let row = connection.query_one(sql).unwrap();
        let value = row.text("state").unwrap().to_owned();
        connection.close();
        value
    }

    pub(crate) fn dsn(&self) -> String {
        let environment = self.cluster.environment();
        format!(
            "host={} port={} user={} dbname=postgres",
            environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
        )
    }

    pub(crate) fn replay(&self, work: &str, more: &[&str]) -> (Ran, ReplayRecord) {
        let order: &[&str] = if more.contains(&"--order") { &[] } else { &["--order", "key"] };
        let ran = run(pgtoll()
            .args([
                "replay",
                "run",
                work,
                "--dsn",
                &self.dsn(),
                "--map",
                "captured=copied",
                "--json",
            ])
            .args(order)
            .args(more));
        let record = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        (ran, record)
    }

    pub(crate) fn end(self, guard: &mut Guard) {
        self.cluster.stop(guard, StopMode::Fast).unwrap();
        self.cluster.remove(guard).unwrap();
    }
}

/// Servers with all three formats.
pub(crate) fn logging_servers() -> Vec<Installation> {
    let mut servers = servers();
    servers.retain(|server| matches!(server.version.major(), 15 | 18));
    servers
}

fn examine(log: &str) -> LogExamination {
    let ran = run(pgtoll().args(["replay", "doctor", "--json", log]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// All but the time of history's rows.
pub(crate) const PGBENCH_STATE: &str = "SELECT md5(string_agg(t, '|' ORDER BY t)) AS state FROM (\
    SELECT 'a' || aid || ' ' || abalance AS t FROM pgbench_accounts WHERE abalance <> 0 \
    UNION ALL SELECT 't' || tid || ' ' || tbalance FROM pgbench_tellers \
    UNION ALL SELECT 'b' || bid || ' ' || bbalance FROM pgbench_branches \
    UNION ALL SELECT 'h' || tid || ' ' || bid || ' ' || aid || ' ' || delta FROM pgbench_history) s";

const LOG_ALL: [&str; 2] = ["log_statement = 'all'", "log_duration = on"];

pub(crate) fn check_clean(ran: &Ran, record: &ReplayRecord) {
    let done = record.done.as_ref().unwrap();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(record.complete, "{ran:?}");
    let wrong =
        [done.order_breaks, done.unexpected_errors, done.missing_errors, done.broken_sessions];
    assert_eq!(wrong, [0; 4], "{ran:?}");
}

#[test]
fn pgbench_goes_the_same_way_again_in_every_protocol_and_from_every_format() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in logging_servers() {
        let mut captured = Captured::start(&mut guard, &server);
        for (index, protocol) in ["simple", "extended", "prepared"].into_iter().enumerate() {
            captured.prepare(&mut guard, "pgbench", &LOG_ALL);
            let work = ["-n", "-c", "16", "-j", "2", "-t", "60", "-M", protocol, "captured"];
            captured.pgbench(&mut guard, &work);
            let logs = captured.logs(&mut guard, &scratch);
            let counts = logs.each_ref().map(|log| examine(log.to_str().unwrap()).counts);
            assert_eq!(counts[0], counts[1], "stderr and csvlog of {protocol}");
            assert_eq!(counts[1], counts[2], "csvlog and jsonlog of {protocol}");
            assert!(counts[0].statements >= 16 * 60 * 7, "{:?}", counts[0]);
            let extended = if protocol == "simple" { 0 } else { 16 * 60 * 7 };
            assert_eq!(counts[0].extended, extended, "{protocol}");
            let log = logs[index].to_str().unwrap();
            let (ran, record) = captured.replay(log, &["--speed", "max"]);
            check_clean(&ran, &record);
            let states = ["captured", "copied"].map(|item| captured.value(item, PGBENCH_STATE));
            assert_eq!(states[0], states[1], "{protocol}");
        }
        captured.end(&mut guard);
    }
}

/// Updates whose order shows in the result, of rows in ascending order, so that no deadlock comes about.
const CHAIN: &str = "\\set a random(1, 10)\n\\set b random(11, 20)\n\\set x random(1, 1000000)\nBEGIN;\n\
    SELECT v FROM chain WHERE id = :a;\n\
    UPDATE chain SET v = (v * 31 + :x) % 1000000007 WHERE id = :a;\n\
    UPDATE chain SET v = (v * 37 + :x) % 1000000007 WHERE id = :b;\nEND;\n";
const CHAIN_SETUP: &str = "CREATE TABLE chain AS SELECT i AS id, 0::bigint AS v FROM \
    generate_series(1, 20) i; ALTER TABLE chain ADD PRIMARY KEY (id)";
const CHAIN_STATE: &str = "SELECT string_agg(id || ' ' || v, '|' ORDER BY id) AS state FROM chain";

#[test]
fn work_whose_order_matters_ends_in_the_same_data() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().swap_remove(0);
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
    let script = scratch.path("chain.sql");
    fs::write(&script, CHAIN).unwrap();
    let work = ["-n", "-c", "8", "-j", "2", "-t", "50", "-f", script.to_str().unwrap(), "captured"];
    captured.pgbench(&mut guard, &work);
    let [_, csv, _] = captured.logs(&mut guard, &scratch);
    let plan = scratch.path("chain.plan");
    let csv = csv.to_str().unwrap();
    let plan = plan.to_str().unwrap();
    let made = run(pgtoll().args(["replay", "plan", csv, "--plan", plan]));
    assert_eq!(made.status, Some(0), "{made:?}");
    let expected = captured.value("captured", CHAIN_STATE);
    for more in [
        ["--order", "key", "--speed", "max"],
        ["--order", "table", "--speed", "max"],
        ["--order", "key", "--speed", "10"],
    ] {
        captured.psql(&mut guard, "copied", "UPDATE chain SET v = 0");
        let (ran, record) = captured.replay(plan, &more);
        check_clean(&ran, &record);
        assert_eq!(captured.value("copied", CHAIN_STATE), expected, "{more:?}");
    }
    captured.psql(&mut guard, "copied", "UPDATE chain SET v = 0");
    let kept = scratch.path("kept.json");
    let page = scratch.path("kept.html");
    let kept = kept.to_str().unwrap();
    let page = page.to_str().unwrap();
    let (ran, record) = captured.replay(plan, &["--speed", "max", "--record", kept]);
    check_clean(&ran, &record);
    let done = record.done.unwrap();
    assert!(done.sessions_s > 0.0 && done.bottleneck.is_some(), "{done:?}");
    let counted: u64 = done.histogram.iter().map(|histogram| histogram.statements).sum();
    assert_eq!(counted, done.statements, "{done:?}");
    let shown = run(pgtoll().args(["report", kept, "-o", page]));
    assert_eq!(shown.status, Some(0), "{shown:?}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("How did the replay go?") && page.contains("Bottleneck: "), "{page}");
    let dry = run(pgtoll().args(["replay", "run", plan, "--order", "key", "--dry-run", "--json"]));
    assert_eq!(dry.status, Some(0), "{dry:?}");
    let planned = serde_json::from_str::<ReplayRecord>(&dry.stdout).unwrap().planned;
    assert!(planned.transactions >= 400 && planned.edges > 400, "{planned:?}");
    captured.end(&mut guard);
}

/// A function that locks a row of which no text says so: its name is that of a function that writes nothing.
const HIDDEN_SETUP: &str = "CREATE TABLE hidden AS SELECT 0 AS v; \
    CREATE FUNCTION public.log(i integer) RETURNS integer LANGUAGE sql AS \
    'UPDATE public.hidden SET v = v + i RETURNING v'; \
    CREATE TABLE chain AS SELECT i AS id, 0::bigint AS v FROM generate_series(1, 20) i; \
    ALTER TABLE chain ADD PRIMARY KEY (id)";
const HIDDEN: &str = "BEGIN;\nSELECT log(1);\n\
    UPDATE chain SET v = v + 1 WHERE id = 1;\nEND;\n";

#[test]
fn a_circle_of_waits_that_no_text_foretells_is_broken_and_named() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().swap_remove(0);
    // Without transaction ids, which would show that the function writes.
    let mut captured = Captured::start_with(&mut guard, &server, "%m [%p] %q%u@%d ");
    captured.prepare(&mut guard, HIDDEN_SETUP, &LOG_ALL);
    let script = scratch.path("hidden.sql");
    fs::write(&script, HIDDEN).unwrap();
    let work = ["-n", "-c", "8", "-j", "2", "-t", "10", "-f", script.to_str().unwrap(), "captured"];
    captured.pgbench(&mut guard, &work);
    let [stderr, csv, _] = captured.logs(&mut guard, &scratch);
    let (ran, record) = captured.replay(stderr.to_str().unwrap(), &["--speed", "max"]);
    let done = record.done.as_ref().unwrap();
    assert!(record.complete && done.order_breaks > 0, "{ran:?}");
    assert_eq!((ran.status, done.unexpected_errors), (Some(1), 0), "{ran:?}");
    let first = &done.breaks[0];
    assert_eq!(first.statement, "update chain set v = v + ? where id = ? ;", "{ran:?}");
    assert!(first.reason.starts_with("a circle of waits of the sessions"), "{ran:?}");
    let state =
        "SELECT (SELECT v FROM chain WHERE id = 1) || ' ' || (SELECT v FROM hidden) AS state";
    assert_eq!(captured.value("copied", state), "80 80");
    // With them nothing is hidden.
    let (ran, record) = captured.replay(csv.to_str().unwrap(), &["--speed", "max"]);
    check_clean(&ran, &record);
    captured.end(&mut guard);
}

#[test]
fn a_database_that_is_not_confirmed_is_not_touched() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().swap_remove(0);
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
    captured.psql(&mut guard, "captured", "UPDATE chain SET v = 1 WHERE id = 1");
    let [stderr, ..] = captured.logs(&mut guard, &scratch);
    let stderr = stderr.to_str().unwrap();
    let refused =
        run(pgtoll().args(["replay", "run", stderr, "--order", "key", "--dsn", &captured.dsn()]));
    assert_eq!((refused.status, &*refused.stdout), (Some(2), ""), "{refused:?}");
    assert!(
        refused.stderr.contains("database \"captured\" is not confirmed as disposable"),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("ALTER DATABASE captured SET pgtoll.disposable = on"),
        "{refused:?}"
    );
    let missing = run(pgtoll().args([
        "replay",
        "run",
        stderr,
        "--order",
        "key",
        "--dsn",
        &captured.dsn(),
        "--map",
        "captured=nowhere",
    ]));
    assert_eq!(missing.status, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("hint: send a database's work"), "{missing:?}");
    captured.end(&mut guard);
}

/// Errors, a cancel by timeout, and a savepoint.
const ERRORS: &str = "\\set ON_ERROR_STOP off\nSELECT 1/0;\nSELEC 1;\nBEGIN;\nSAVEPOINT s;\n\
    INSERT INTO chain VALUES (1, 1);\nROLLBACK TO s;\nUPDATE chain SET v = 7 WHERE id = 2;\nCOMMIT;\n\
    SET statement_timeout = 1000;\nBEGIN;\nUPDATE chain SET v = 9 WHERE id = 3;\nSELECT pg_sleep(10);\n\
    UPDATE chain SET v = 8 WHERE id = 3;\nCOMMIT;\nSET statement_timeout = 0;\n\
    INSERT INTO chain VALUES (1, 2);\nCOPY chain FROM stdin;\n99\t1\n\\.\n";

#[test]
fn what_failed_fails_again_and_what_was_cancelled_is_left_out() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in logging_servers() {
        let mut captured = Captured::start(&mut guard, &server);
        captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
        captured.psql(&mut guard, "captured", ERRORS);
        for log in captured.logs(&mut guard, &scratch) {
            captured.psql(&mut guard, "copied", "UPDATE chain SET v = 0");
            let log = log.to_str().unwrap();
            let counts = examine(log).counts;
            assert_eq!((counts.copy_in, counts.cancelled), (1, 1), "{counts:?}");
            let (ran, record) = captured.replay(log, &["--speed", "max"]);
            let done = record.done.unwrap();
            // The rows of COPY are missing.
            assert_eq!((ran.status, done.missing()), (Some(1), 1), "{ran:?}");
            let wrong = [done.order_breaks, done.unexpected_errors, done.missing_errors];
            assert_eq!(wrong, [0; 3], "{ran:?}");
            // Division by zero, syntax, and twice a duplicate key.
            assert_eq!(done.expected_errors, 4, "{ran:?}");
            assert_eq!(done.skipped["failed for a lock, serialization or cancel"], 1, "{ran:?}");
            assert_eq!(done.skipped["its transaction had failed"], 2, "{ran:?}");
            assert_eq!(done.skipped["not all of it is in the log"], 1, "{ran:?}");
            let of_chain = "SELECT string_agg(v::text, ' ' ORDER BY id) AS state FROM chain \
                            WHERE id < 4";
            assert_eq!(captured.value("copied", of_chain), "0 7 0", "{ran:?}");
        }
        captured.end(&mut guard);
    }
}

#[test]
fn a_prepared_transaction_holds_its_rows_until_it_is_finished() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().pop().unwrap();
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
    let mut sessions: Vec<_> =
        (0..3).map(|_| captured.cluster.connect("captured").unwrap()).collect();
    let update = |v: i32| format!("UPDATE chain SET v = v * 10 + {v} WHERE id = 1");
    for (session, sql) in [
        (0, "BEGIN".to_owned()),
        (0, update(1)),
        (0, "PREPARE TRANSACTION 'one'".to_owned()),
        // Its session goes on to a statement that waits for all before it.
        (0, "CREATE TABLE between_phases ()".to_owned()),
        (1, "UPDATE chain SET v = 5 WHERE id = 2".to_owned()),
        // Finished by another session.
        (2, "COMMIT PREPARED 'one'".to_owned()),
        (1, update(2)),
        (1, "BEGIN".to_owned()),
        (1, update(3)),
        (1, "PREPARE TRANSACTION 'one'".to_owned()),
        (1, "ROLLBACK PREPARED 'one'".to_owned()),
        (0, update(4)),
    ] {
        sessions[session].execute(&sql).unwrap();
    }
    sessions.into_iter().for_each(pgtoll_wire::Connection::close);
    let of_row = "SELECT v::text AS state FROM chain WHERE id = 1";
    assert_eq!(captured.value("captured", of_row), "124");
    for log in captured.logs(&mut guard, &scratch) {
        captured.psql(&mut guard, "copied", "UPDATE chain SET v = 0");
        captured.psql(&mut guard, "copied", "DROP TABLE IF EXISTS between_phases");
        let (ran, record) = captured.replay(log.to_str().unwrap(), &["--speed", "max"]);
        check_clean(&ran, &record);
        assert_eq!(captured.value("copied", of_row), "124", "{ran:?}");
    }
    captured.end(&mut guard);
}

#[test]
fn no_lock_of_others_is_waited_for_for_ever() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().pop().unwrap();
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
    let log = hand_written(&scratch, &["UPDATE chain SET v = 1 WHERE id = 1"]);
    let mut other = captured.cluster.connect("copied").unwrap();
    other.execute("BEGIN").unwrap();
    other.execute("LOCK TABLE chain").unwrap();
    let (ran, record) =
        captured.replay(&log, &["--speed", "max", "--patience", "1s", "--user", "postgres"]);
    let done = record.done.unwrap();
    assert_eq!((ran.status, done.unexpected_errors), (Some(1), 1), "{ran:?}");
    assert!(done.order_breaks >= 1, "{ran:?}");
    assert!(done.breaks[0].reason.starts_with("cancelled: "), "{ran:?}");
    other.close();
    captured.end(&mut guard);
}

/// A log of one session in `captured`, as a server with this prefix would write it.
fn hand_written(scratch: &Scratch, statements: &[&str]) -> String {
    let mut log = String::new();
    for (number, sql) in statements.iter().enumerate() {
        let at = format!("2026-11-21 19:46:17.{number:03} UTC [7] captured@captured ");
        log.extend([format!("{at}LOG:  statement: {sql}\n{at}LOG:  duration: 0.100 ms\n")]);
    }
    let path = scratch.path("written.log");
    fs::write(&path, log).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_interrupted_replay_leaves_a_record_of_what_was_replayed() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().swap_remove(0);
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &LOG_ALL);
    let statements = [
        "UPDATE chain SET v = 1 WHERE id = 1",
        "SELECT pg_sleep(3600)",
        "UPDATE chain SET v = 1 WHERE id = 2",
    ];
    let log = hand_written(&scratch, &statements);
    let kept = scratch.path("kept.json");
    let user = captured.cluster.environment()["PGUSER"].clone();
    let mut command = pgtoll();
    command.args(["replay", "run", &log, "--order", "key", "--speed", "max", "--json"]);
    command.args(["--dsn", &captured.dsn(), "--map", "captured=copied", "--user", &user]);
    command.args(["--compare-tables", "chain", "--record", kept.to_str().unwrap()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut connection = captured.cluster.connect("copied").unwrap();
    let sleeping = "SELECT FROM pg_stat_activity WHERE datname = 'copied' AND state = 'active' \
                    AND query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()";
    let since = Instant::now();
    while connection.query(sleeping).unwrap().is_empty() {
        assert!(since.elapsed() < PATIENCE, "the replay does not come to the second statement");
    }
    kill(Pid::from_raw(pid_of(&child)), Signal::SIGINT).unwrap();
    assert!(ends_within(pid_of(&child), PATIENCE), "the replay goes on");
    // The statement was cancelled: its server would not notice that nobody waits for it any more.
    let since = Instant::now();
    while !connection.query(sleeping).unwrap().is_empty() {
        assert!(since.elapsed() < PATIENCE, "the statement goes on");
    }
    connection.close();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let record: ReplayRecord = serde_json::from_slice(&output.stdout).unwrap();
    let kept: ReplayRecord = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert_eq!(record, kept);
    assert_eq!((record.ended.as_deref(), record.complete), (Some("SIGINT"), false), "{record:?}");
    let done = record.done.unwrap();
    // The first one was done, the second one was sent, and the third one never was.
    assert_eq!((done.connections, done.broken_sessions), (1, 0), "{done:?}");
    assert!((1..=2).contains(&done.statements), "{done:?}");
    assert_eq!((done.unexpected_errors, done.tables.len()), (0, 0), "{done:?}");
    let state = "SELECT string_agg(v::text, ' ' ORDER BY id) AS state FROM chain WHERE id < 3";
    assert_eq!(captured.value("copied", state), "1 0");
    captured.end(&mut guard);
}

#[test]
fn more_sessions_than_the_server_has_room_for_are_refused_before_anything_is_changed() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().swap_remove(0);
    let mut captured = Captured::start(&mut guard, &server);
    captured.prepare(&mut guard, CHAIN_SETUP, &[]);
    let log = scratch.path("many.log");
    let mut text = String::new();
    for second in [10, 20] {
        for session in 1..=70 {
            let at = format!("2026-11-21 19:46:{second}.000 UTC [{session}] app@captured ");
            let sql = format!("UPDATE chain SET v = v + 1 WHERE id = {}", 1 + session % 20);
            let _ = write!(text, "{at}LOG:  statement: {sql}\n{at}LOG:  duration: 0.100 ms\n");
        }
    }
    fs::write(&log, text).unwrap();
    let user = captured.cluster.environment()["PGUSER"].clone();
    let ran = run(pgtoll()
        .args(["replay", "run", log.to_str().unwrap(), "--order", "key", "--speed", "max"])
        .args(["--dsn", &captured.dsn(), "--map", "captured=copied", "--user", &user]));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("the work has 70 sessions at a time"), "{ran:?}");
    assert!(ran.stderr.contains("hint: raise max_connections of the target to "), "{ran:?}");
    let state = "SELECT sum(v)::text AS state FROM chain";
    assert_eq!(captured.value("copied", state), "0");
    captured.end(&mut guard);
}

/// A column that no replay repeats, and one that is the order's.
const STAMPED_SETUP: &str = "CREATE TABLE stamped (id integer PRIMARY KEY, v numeric, made timestamptz, \
    more text, big bytea); INSERT INTO stamped SELECT i, 0, now(), 'x' || i, '\\x00ff' FROM \
    generate_series(1, 100) i; CREATE TABLE \"Other one\" (made timestamptz, id integer)";
const STAMPED: [&str; 3] = [
    "UPDATE stamped SET v = v + 1.50, made = clock_timestamp() WHERE id = 7",
    "INSERT INTO stamped VALUES (101, 2, clock_timestamp(), NULL, NULL)",
    "INSERT INTO \"Other one\" VALUES (clock_timestamp(), 1), (clock_timestamp(), 1)",
];

#[test]
fn tables_of_two_servers_are_compared_but_for_columns_that_are_left_out() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let mut both = logging_servers().into_iter().map(|server| {
        let mut captured = Captured::start(&mut guard, &server);
        captured.prepare(&mut guard, STAMPED_SETUP, &[]);
        captured
    });
    let mut source = both.next().unwrap();
    let mut target = both.next().unwrap();
    drop(both);
    source.psql(&mut guard, "captured", &STAMPED.join("; "));
    // The columns come in another order.
    let moved = "ALTER TABLE stamped DROP more; ALTER TABLE stamped ADD more text; \
                 UPDATE stamped SET more = 'x' || id";
    target.psql(&mut guard, "copied", moved);
    let log = hand_written(&scratch, &STAMPED[..2]);
    let environment = target.cluster.environment();
    let user = environment["PGUSER"].clone();
    let expected = source.dsn().replace("dbname=postgres", "dbname=captured");
    let compare = |target: &Captured, tables: &str, with: &[&str]| {
        let more = ["--speed", "max", "--user", &user, "--compare-tables", tables];
        target.replay(&log, &[&more[..], with].concat())
    };
    let refused = run(pgtoll()
        .args(["replay", "run", &log, "--order", "key", "--map", "captured=copied"])
        .args(["--dsn", &target.dsn(), "--user", &user, "--compare-with", &expected])
        .args(["--compare-tables", "stamped(-mode)"]));
    assert_eq!((refused.status, &*refused.stdout), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("has no column \"mode\""), "{refused:?}");
    let tables = "stamped(-made),\"Other one\"(-made)";
    let with = ["--compare-with", expected.as_str()];
    let (ran, record) = compare(&target, tables, &with);
    let done = record.done.unwrap();
    // The insert of the row that the log lacks is missing.
    assert_eq!((ran.status, done.unexpected_errors), (Some(1), 0), "{ran:?}");
    let found: Vec<_> =
        done.tables.iter().map(|table| (table.rows, table.expected_rows, table.same)).collect();
    let expected_tables = [(101, Some(101), Some(true)), (0, Some(2), Some(false))];
    assert_eq!(found, expected_tables, "{ran:?}");
    let again = "DELETE FROM stamped WHERE id = 101; UPDATE stamped SET v = v - 1.50 WHERE id = 7; \
                 INSERT INTO \"Other one\" VALUES (now(), 1), (now(), 1)";
    target.psql(&mut guard, "copied", again);
    let (ran, record) = compare(&target, tables, &with);
    check_clean(&ran, &record);
    assert!(record.done.unwrap().tables.iter().all(|table| table.same == Some(true)), "{ran:?}");
    // Times differ, and without a database to compare with nothing is different.
    target.psql(&mut guard, "copied", &again[..again.find("; INSERT").unwrap()]);
    let (ran, record) = compare(&target, "stamped", &[]);
    check_clean(&ran, &record);
    assert_eq!(record.done.unwrap().tables[0].same, None, "{ran:?}");
    target.psql(&mut guard, "copied", &again[..again.find("; INSERT").unwrap()]);
    let (ran, record) = compare(&target, "stamped", &with);
    assert_eq!(
        (ran.status, record.done.unwrap().tables[0].same),
        (Some(1), Some(false)),
        "{ran:?}"
    );
    source.end(&mut guard);
    target.end(&mut guard);
}

#[test]
fn a_plan_without_values_has_timing_and_order_and_executes_what_had_none() {
    let scratch = Scratch::new();
    let statements =
        ["BEGIN", "UPDATE chain SET v = 424242 WHERE id = 1", "COMMIT", "SELECT now()"];
    let log = hand_written(&scratch, &statements);
    let full = scratch.path("full.plan");
    let redacted = scratch.path("redacted.plan");
    let full = full.to_str().unwrap();
    let redacted = redacted.to_str().unwrap();
    let made = run(pgtoll().args(["replay", "plan", &log, "--plan", full]));
    assert_eq!(made.status, Some(0), "{made:?}");
    let made = run(pgtoll().args(["replay", "plan", full, "--redact", "--plan", redacted]));
    assert_eq!(made.status, Some(0), "{made:?}");
    let words: Vec<&str> = made.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("statements without their values"), "{made:?}");
    let begin = fs::read(redacted).unwrap();
    assert!(begin.starts_with(b"pgtoll-replay-plan/1 confidential: "), "it is not marked");
    let planned = |plan: &str| {
        let dry = ["replay", "run", plan, "--order", "key", "--dry-run", "--json"];
        let ran = run(pgtoll().args(dry));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        serde_json::from_str::<ReplayRecord>(&ran.stdout).unwrap().planned
    };
    let full = planned(full);
    let mut redacted = planned(redacted);
    assert_eq!(redacted.skipped.remove("its values are not in the plan"), Some(1), "{redacted:?}");
    assert_eq!(redacted, full);
}

#[test]
fn what_is_no_log_is_refused_with_its_line() {
    let scratch = Scratch::new();
    let check = |content: &[u8], message: &str, hint: &str| {
        let path = scratch.path("wrong.log");
        fs::write(&path, content).unwrap();
        let ran = run(pgtoll().args(["replay", "doctor", path.to_str().unwrap()]));
        assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(message), "{message}: {ran:?}");
        assert!(ran.stderr.contains(hint), "{hint}: {ran:?}");
    };
    check(b"", "wrong.log is empty", "hint: name the log files");
    check(b"hello\nworld\n", "line 1: not a server log", "hint: of stderr or syslog, name");
    check(b"a\nb\0c", "line 2: binary data", "hint: name log files");
    let german = "2026-11-21 19:46:17.796 UTC [4711] LOG:  Anweisung: select 1\n";
    check(german.as_bytes(), "line 1: the log's language is not English", "lc_messages = 'C'");
    let silent = "2026-11-21 19:46:17.796 UTC [4711] LOG:  database system is ready\n";
    check(silent.as_bytes(), "no statement to replay in 1 log entries", "log_statement = 'all'");
    let csv = "2026-11-21 19:46:14.776 UTC,,,2,,6b01f506.5bc9,1,,2026-11-21 19:46:14 UTC,,0,LOG\n";
    check(csv.as_bytes(), "line 1: fewer than 23 columns", "hint: is the file complete");
}
