//! `pgtoll lab judge` against servers of each version: what is planted is found, what is not is not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_record::JudgeRecord;

use crate::support::{PATIENCE, Ran, Scratch, children, ends_within, pgtoll, run, server, servers};

fn started(guard: &mut Guard, server: &Installation) -> (Cluster, i32) {
    let name = format!("pg{}", server.version.major());
    let cluster = Cluster::init(guard, server, &name, false).unwrap();
    let pid = cluster.start(guard).unwrap();
    (cluster, pid)
}

fn dsn(cluster: &Cluster) -> String {
    let environment = cluster.environment();
    format!(
        "host={} port={} user={} dbname=postgres",
        environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]
    )
}

/// A run of two seconds, with more arguments.
fn judge(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = pgtoll();
    command.args(["lab", "judge", "--dsn", &dsn(cluster), "--yes", "--json"]);
    command.args(["--for", "2s", "--clients", "4", "--rate", "200", "--heal", "30s"]);
    command.args(arguments);
    command
}

fn record(ran: &Ran) -> JudgeRecord {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// A command line that lets psql run this.
fn psql(cluster: &Cluster, sql: &str) -> String {
    let mut words = Vec::new();
    for (name, value) in cluster.environment() {
        words.push(format!("{name}='{value}'"));
    }
    let program = cluster.client("psql").unwrap();
    format!(
        "{} '{}' -XqAt -v ON_ERROR_STOP=1 <<'SQL'\n{sql}\nSQL",
        words.join(" "),
        program.display()
    )
}

/// Schemas of the judge's that are there.
fn schemas(cluster: &Cluster) -> Vec<String> {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pgtoll%'";
    let rows = session.query(sql).unwrap();
    rows.iter().map(|row| row.text("nspname").unwrap().to_owned()).collect()
}

fn check_nothing_lost(judge: &JudgeRecord) {
    let verdict = judge.verdict.as_ref().unwrap();
    let counts = &judge.transactions;
    assert_eq!((verdict.lost.count, verdict.ghosts.count), (0, 0), "{judge:?}");
    assert_eq!((verdict.phantoms.count, verdict.duplicates.count), (0, 0), "{judge:?}");
    assert_eq!(verdict.rows, counts.acknowledged + verdict.recovered.count, "{judge:?}");
    assert_eq!(counts.begun, counts.acknowledged + counts.failed + counts.unknown, "{judge:?}");
    assert_eq!(counts.due, counts.begun + counts.unsent, "{judge:?}");
    assert!(verdict.recovered.count <= counts.unknown, "{judge:?}");
}

#[test]
fn an_undisturbed_server_loses_nothing_and_keeps_nothing() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (cluster, _) = started(&mut guard, &server);
        let history = scratch.path("history.edn");
        let ran = run(&mut judge(&cluster, &["--history", history.to_str().unwrap()]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let record = record(&ran);
        check_nothing_lost(&record);
        assert_eq!((record.transactions.failed, record.transactions.unknown), (0, 0), "{record:?}");
        assert!(
            record.findings.is_empty() && record.ended.is_none() && record.journal.is_none(),
            "{record:?}"
        );
        let [node] = &record.nodes[..] else { panic!("{record:?}") };
        assert_eq!((node.identity.timeline, node.deposed), (Some(1), false), "{record:?}");
        assert_eq!(node.acknowledged, record.transactions.acknowledged, "{record:?}");
        assert_eq!(record.verdict.as_ref().unwrap().read_on, node.identity, "{record:?}");
        assert!(record.clients.iter().all(|client| client.healed_s.is_some()), "{record:?}");
        assert!(!record.outage.as_ref().unwrap().open, "{record:?}");
        let reads = record.reads.as_ref().unwrap();
        assert!(reads.reads > 0 && reads.stale == 0 && reads.backwards == 0, "{record:?}");
        assert_eq!(schemas(&cluster), [""; 0]);
        check_history(&history, &record);
        fs::remove_file(&history).unwrap();
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

/// An operation for each begin and each end, then the read.
fn check_history(path: &Path, judge: &JudgeRecord) {
    let text = fs::read_to_string(path).unwrap();
    let counts = &judge.transactions;
    let lines = |label: &str| text.lines().filter(|line| line.contains(label)).count() as u64;
    assert_eq!(lines(":type :invoke, :process"), counts.begun + 1);
    assert_eq!(lines(":type :ok"), counts.acknowledged + 1);
    let read = text.lines().last().unwrap();
    let (_, values) = read.split_once(":value [").unwrap();
    let values: Vec<u64> = values
        .trim_end_matches("]}")
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!(values.len() as u64, judge.verdict.as_ref().unwrap().rows);
}

const PLANT: &str = "
SELECT nspname AS schema FROM pg_namespace WHERE nspname LIKE 'pgtoll_judge_%' \\gset
WITH gone AS (
  DELETE FROM :schema.transactions WHERE client = 1 AND sequence % 3 = 0 RETURNING 1)
SELECT 'lost', count(*) FROM gone;
WITH twice AS (
  INSERT INTO :schema.transactions SELECT * FROM :schema.transactions
  WHERE client = 2 AND sequence < 7 RETURNING 1)
SELECT 'duplicates', count(*) FROM twice;
WITH foreign_rows AS (
  INSERT INTO :schema.transactions VALUES (77, 1, 2), (0, 1000000, 3), (-1, -1, 4) RETURNING 1)
SELECT 'phantoms', count(*) FROM foreign_rows;
WITH changed AS (
  UPDATE :schema.transactions SET payload = 5 WHERE client = 3 AND sequence < 2 RETURNING 1)
SELECT 'changed', count(*) FROM changed;
";

#[test]
fn planted_losses_duplicates_and_strangers_are_found_exactly() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (cluster, _) = started(&mut guard, &server);
        let fault = psql(&cluster, PLANT);
        let ran = run(&mut judge(&cluster, &["--fault", &fault, "--fault-at", "1s"]));
        assert_eq!(ran.status, Some(1), "{ran:?}");
        let record = record(&ran);
        let fault = record.fault.as_ref().unwrap();
        assert!(fault.success && fault.ended_s > Some(fault.began_s), "{record:?}");
        let planted: BTreeMap<&str, u64> = fault
            .output
            .lines()
            .filter_map(|line| line.split_once('|'))
            .map(|(name, count)| (name, count.parse().unwrap()))
            .collect();
        let verdict = record.verdict.as_ref().unwrap();
        // A row with another payload is not the transaction's.
        assert_eq!(planted["changed"], 2, "{record:?}");
        assert!(planted["lost"] > 0, "{record:?}");
        assert_eq!(verdict.lost.count, planted["lost"] + 2, "{record:?}");
        assert_eq!(verdict.phantoms.count, planted["phantoms"] + 2, "{record:?}");
        assert_eq!((verdict.duplicates.count, planted["duplicates"]), (7, 7), "{record:?}");
        assert_eq!(verdict.ghosts.count, 0, "{record:?}");
        let lost = &verdict.lost;
        assert_eq!((lost.by_deposed, lost.before_fault + lost.by_survivor), (0, lost.count));
        assert!(lost.examples.iter().all(|example| example.node == Some(0)), "{lost:?}");
        assert_eq!(schemas(&cluster), [""; 0]);
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_crash_leaves_unknowns_that_are_told_apart_and_loses_nothing() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (cluster, postmaster) = started(&mut guard, &server);
        // As pg_ctl stop -m immediate.
        let crash = format!("kill -QUIT {postmaster}");
        let mut command = judge(&cluster, &["--fault", &crash, "--rate", "400"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(ends_within(postmaster, PATIENCE));
        cluster.start(&mut guard).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stdout = text(output.stdout);
        let stderr = text(output.stderr);
        let ran = Ran { status: output.status.code(), stdout, stderr };
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let record = record(&ran);
        check_nothing_lost(&record);
        assert!(record.transactions.failed > 0, "{record:?}");
        assert!(!record.errors.is_empty(), "{record:?}");
        let [before, after] = &record.nodes[..] else { panic!("{record:?}") };
        assert_ne!(before.identity.started, after.identity.started);
        assert!(!before.deposed && before.last_s < after.first_s, "{record:?}");
        assert!(record.clients.iter().all(|client| client.line.contains('e')), "{record:?}");
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn terminated_sessions_are_errors_and_no_losses() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = started(&mut guard, &server());
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE application_name = 'pgtoll';";
    let fault = psql(&cluster, &terminate.repeat(5));
    // Readers have a place of their own, so that the probe for Long Fork runs too.
    let there = dsn(&cluster);
    let ran = run(&mut judge(&cluster, &["--fault", &fault, "--read-dsn", &there]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record = record(&ran);
    check_nothing_lost(&record);
    assert!(record.transactions.failed + record.transactions.unknown > 0, "{record:?}");
    assert!(record.errors.iter().any(|error| error.code == "57P01"), "{record:?}");
    let probe = record.reads.as_ref().unwrap().long_fork.as_ref().unwrap();
    assert!(probe.pairs > 0 && probe.forks == 0, "{record:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
}

const CANCEL_SYNC_WAITS: &str = "
ALTER SYSTEM SET synchronous_standby_names = 'nobody';
SELECT pg_reload_conf();
DO $$ BEGIN LOOP
  PERFORM pg_stat_clear_snapshot();
  EXIT WHEN (SELECT count(*) FROM pg_stat_activity
             WHERE wait_event = 'SyncRep' AND application_name = 'pgtoll') >= 4;
  PERFORM pg_sleep(0.01);
END LOOP; END $$;
DO $$ DECLARE
  began timestamptz := clock_timestamp();
  waiting int[] := ARRAY(SELECT pid FROM pg_stat_activity
                         WHERE wait_event = 'SyncRep' AND application_name = 'pgtoll');
BEGIN
  PERFORM pg_cancel_backend(pid) FROM unnest(waiting) pid;
  -- Without names all waits end, and whoever has not seen the cancel has none.
  LOOP
    PERFORM pg_stat_clear_snapshot();
    EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity
                          WHERE pid = ANY (waiting) AND state_change < began);
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
ALTER SYSTEM RESET synchronous_standby_names;
SELECT pg_reload_conf();
";

#[test]
fn a_cancelled_wait_for_standbys_is_a_class_of_its_own() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (cluster, _) = started(&mut guard, &server);
        let fault = psql(&cluster, CANCEL_SYNC_WAITS);
        let ran = run(&mut judge(&cluster, &["--fault", &fault]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let record = record(&ran);
        check_nothing_lost(&record);
        assert!(record.transactions.unreplicated >= 4, "{record:?}");
        assert!(
            record.notes.iter().any(|note| note.contains("standbys were not awaited")),
            "{record:?}"
        );
        cluster.stop(&mut guard, StopMode::Fast).unwrap();
        cluster.remove(&mut guard).unwrap();
    }
}

#[test]
fn a_run_that_is_killed_is_judged_from_its_journals() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = started(&mut guard, &server());
    let journal = scratch.path("journal");
    let journal = journal.to_str().unwrap();
    // The shell's parent is pgtoll.
    let ran = run(&mut judge(&cluster, &["--fault", "kill -KILL $PPID", "--journal", journal]));
    assert_eq!(ran.status, None, "{ran:?}");
    let left = schemas(&cluster);
    assert_eq!(left.len(), 1);
    // The next run names what is left, and leaves it alone.
    let ran = run(&mut judge(&cluster, &[]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(&format!("DROP SCHEMA {} CASCADE", left[0])), "{ran:?}");
    assert_eq!(schemas(&cluster), left);
    let conclude = || {
        run(pgtoll().args(["lab", "judge", "--dsn", &dsn(&cluster), "--from", journal, "--json"]))
    };
    let ran = conclude();
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let record = record(&ran);
    check_nothing_lost(&record);
    assert_eq!(record.ended.as_deref(), Some("pgtoll itself was killed"));
    assert!(record.transactions.acknowledged > 0, "{record:?}");
    assert_eq!(schemas(&cluster), [""; 0]);
    let ran = conclude();
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains(&format!("schema {} of these journals is not there", left[0])));
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
}

#[test]
fn a_signal_ends_the_run_with_a_verdict_and_without_leftovers() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = started(&mut guard, &server());
    let ran = run(&mut judge(
        &cluster,
        &["--fault", "kill -INT $PPID", "--for", "1h", "--fault-at", "1s"],
    ));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let record = record(&ran);
    check_nothing_lost(&record);
    assert_eq!(record.ended.as_deref(), Some("interrupted by SIGINT"));
    assert_eq!(schemas(&cluster), [""; 0]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
}

#[test]
fn nothing_is_written_unasked_or_to_a_standby() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = started(&mut guard, &server());
    let ran = run(pgtoll().args(["lab", "judge", "--dsn", &dsn(&cluster)]));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("pgtoll: lab judge writes to database postgres: "), "{ran:?}");
    assert!(ran.stderr.ends_with("\nhint: say --yes if you mean that database\n"), "{ran:?}");
    assert_eq!(schemas(&cluster), [""; 0]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    fs::write(cluster.data().join("standby.signal"), "").unwrap();
    cluster.start(&mut guard).unwrap();
    let ran = run(&mut judge(&cluster, &[]));
    assert_eq!((ran.status, &*ran.stdout), (Some(2), ""), "{ran:?}");
    let expected = "pgtoll: the server is a standby: nothing can be written to it\n\
                    hint: name the primary, or several hosts with target_session_attrs=primary; \
                    readers may use standbys (--read-dsn)\n";
    assert_eq!(ran.stderr, expected);
    cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}

#[test]
fn a_server_that_stays_away_cannot_be_judged_yet() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, postmaster) = started(&mut guard, &server());
    let journal = scratch.path("journal");
    let journal = journal.to_str().unwrap();
    let stop = format!("kill -QUIT {postmaster}");
    let ran = run(&mut judge(&cluster, &["--fault", &stop, "--heal", "1s", "--journal", journal]));
    // That no client was served again is a finding, whatever became of the transactions.
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let item = record(&ran);
    assert!(item.verdict.is_none() && item.outage.as_ref().unwrap().open, "{item:?}");
    assert_eq!(item.findings, ["4 clients were not served again within 1 s"]);
    assert!(item.notes.iter().any(|note| note.contains("could not be read")), "{item:?}");
    cluster.start(&mut guard).unwrap();
    let ran =
        run(pgtoll().args(["lab", "judge", "--dsn", &dsn(&cluster), "--from", journal, "--json"]));
    let record = record(&ran);
    check_nothing_lost(&record);
    assert_eq!(schemas(&cluster), [""; 0]);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
}

/// A server whose processes are frozen, and go on when this is dropped.
struct Frozen(i32);

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in children(self.0).into_iter().chain([self.0]) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    }
}

#[test]
fn clients_of_a_frozen_server_hang_and_are_not_awaited_for_ever() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, postmaster) = started(&mut guard, &server());
    let journal = scratch.path("journal");
    let journal = journal.to_str().unwrap();
    let freeze = format!("kill -STOP {postmaster} $(ps -o pid= --ppid {postmaster})");
    let frozen = Frozen(postmaster);
    let ran =
        run(&mut judge(&cluster, &["--fault", &freeze, "--heal", "1s", "--journal", journal]));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let item = record(&ran);
    assert_eq!(item.findings, ["4 clients were not served again within 1 s"]);
    // A client that connects again instead is refused after a time-out.
    assert!(item.transactions.hung > 0, "{item:?}");
    assert!(item.clients.iter().filter(|client| client.hung).all(|client| client.unknown > 0));
    assert!(item.clients.iter().all(|client| client.outage.as_ref().unwrap().open), "{item:?}");
    drop(frozen);
    let ran =
        run(pgtoll().args(["lab", "judge", "--dsn", &dsn(&cluster), "--from", journal, "--json"]));
    check_nothing_lost(&record(&ran));
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
}
