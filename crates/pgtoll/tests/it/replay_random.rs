//! Random workloads, each of a seed: a replay ends in the same data or says what went otherwise, and it
//! always ends.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pgtoll_cluster::Guard;
use pgtoll_record::{OrderBreak, ReplayRecord};

use crate::replay::{Captured, logging_servers};
use crate::replay_record::Recording;
use crate::support::{PATIENCE, Scratch, ends_within, pgtoll, pid_of};

/// How many workloads there are, where it is not the suite's few.
const WORKLOADS: &str = "PGTOLL_TEST_WORKLOADS";
const FEW: u64 = 12;

/// Rows of few keys, foreign keys, a trigger that writes another table, and one that counts.
const SETUP: &str = "\
CREATE TABLE accounts AS SELECT i AS id, 0::bigint AS v FROM generate_series(1, 12) i;
ALTER TABLE accounts ADD PRIMARY KEY (id);
CREATE TABLE parents AS SELECT i AS id, 0::bigint AS n FROM generate_series(1, 6) i;
ALTER TABLE parents ADD PRIMARY KEY (id);
CREATE TABLE children (id bigint PRIMARY KEY, parent integer REFERENCES parents, v bigint);
CREATE TABLE audit (account integer, v bigint);
CREATE TABLE notes (id bigint, v bigint);
CREATE TABLE late (id bigint PRIMARY KEY, parent integer REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
CREATE SEQUENCE numbers;
CREATE TABLE numbered (id bigint, v bigint);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN INSERT INTO audit VALUES (NEW.id, NEW.v); RETURN NEW; END';
CREATE TRIGGER audited AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION audited();
CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN UPDATE parents SET n = (n * 7 + NEW.v) % 1000000007 WHERE id = NEW.parent; RETURN NEW; END';
CREATE TRIGGER counted AFTER INSERT ON children FOR EACH ROW EXECUTE FUNCTION counted();
";

const STATE: &str = "SELECT md5(string_agg(t, '|' ORDER BY t)) AS state FROM (\
    SELECT 'a' || id || ' ' || v AS t FROM accounts UNION ALL SELECT 'p' || id || ' ' || n FROM parents \
    UNION ALL SELECT 'c' || id || ' ' || parent || ' ' || v FROM children \
    UNION ALL SELECT 'u' || account || ' ' || v FROM audit \
    UNION ALL SELECT 'n' || id || ' ' || v FROM notes \
    UNION ALL SELECT 'l' || id || ' ' || parent FROM late \
    UNION ALL SELECT 'm' || id || ' ' || v FROM numbered) s";

/// Parts of transactions, as pgbench's scripts have them.
const PARTS: [&str; 16] = [
    "UPDATE accounts SET v = (v * 31 + :x) % 1000000007 WHERE id = :a;\n",
    "UPDATE accounts SET v = (v * 37 + :x) % 1000000007 WHERE id = :b;\n",
    "SELECT v FROM accounts WHERE id = :b FOR UPDATE;\n",
    // A key of its own each time, since a transaction may do this twice.
    "\\set k random(1, 1000000000)\nINSERT INTO children VALUES (:k, :p, :x);\n",
    "DELETE FROM children WHERE parent = :p AND v < :x;\n",
    "UPDATE parents SET n = (n * 3 + :x) % 1000000007 WHERE id = :p;\n",
    "SAVEPOINT s;\nUPDATE accounts SET v = (v * 41 + :x) % 1000000007 WHERE id = :a;\nROLLBACK TO s;\n",
    "LOCK TABLE notes IN SHARE ROW EXCLUSIVE MODE;\nINSERT INTO notes VALUES (:k, :x);\n",
    "SELECT pg_advisory_xact_lock(:p);\n",
    "SELECT sum(v) FROM accounts;\n",
    "UPDATE accounts SET v = (v + :x) % 1000000007 WHERE v > :x;\n",
    "SELECT v FROM accounts WHERE id = :a FOR SHARE;\n",
    "UPDATE accounts SET v = (v * 43 + :x) % 1000000007 WHERE id = (SELECT id FROM accounts \
     WHERE id >= :a ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);\n",
    "\\set k random(1, 1000000000)\nINSERT INTO late VALUES (:k, :p);\n",
    "INSERT INTO numbered VALUES (nextval('numbers'), :x);\n",
    "SELECT pg_try_advisory_xact_lock(:p);\n",
];
/// How a transaction ends: mostly committed, in one phase or in two.
const ENDS: [&str; 8] = [
    "COMMIT;\n",
    "COMMIT;\n",
    "COMMIT;\n",
    "COMMIT;\n",
    "ROLLBACK;\n",
    "PREPARE TRANSACTION 'g:client_id';\nCOMMIT PREPARED 'g:client_id';\n",
    "PREPARE TRANSACTION 'g:client_id';\nSELECT sum(v) FROM accounts;\nCOMMIT PREPARED 'g:client_id';\n",
    "PREPARE TRANSACTION 'g:client_id';\nROLLBACK PREPARED 'g:client_id';\n",
];
const LEVELS: [&str; 4] = ["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const LOGGING: [&str; 3] =
    ["log_statement = 'all'", "log_duration = on", "deadlock_timeout = '20ms'"];

/// How a workload is captured; each takes its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Stderr,
    Csvlog,
    Jsonlog,
    Record,
}

impl Source {
    const ALL: [Self; 4] = [Self::Csvlog, Self::Record, Self::Jsonlog, Self::Stderr];
}

/// The generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

/// A script of a transaction.
fn script(random: &mut Random) -> String {
    let mut script = String::from(
        "\\set a random(1, 12)\n\\set b random(1, 12)\n\\set p random(1, 6)\n\\set s random(101, 106)\n\
         \\set k random(1, 1000000000)\n\\set x random(1, 1000000)\n",
    );
    let _ = writeln!(script, "BEGIN ISOLATION LEVEL {};", LEVELS[random.below(LEVELS.len())]);
    for _ in 0..=random.below(4) {
        script.push_str(PARTS[random.below(PARTS.len())]);
    }
    script.push_str(ENDS[random.below(ENDS.len())]);
    if random.below(6) == 0 {
        // A lock of the session's, held over its transaction.
        script = script.replacen("BEGIN", "SELECT pg_advisory_lock(:s);\nBEGIN", 1);
        script.push_str("SELECT pg_advisory_unlock(:s);\n");
    }
    script
}

/// What became of a workload's replay.
#[derive(Debug, PartialEq)]
enum Outcome {
    Same,
    /// What the report names.
    Named {
        breaks: u64,
        errors: u64,
        uncertain: u64,
        same: bool,
    },
}

#[test]
fn random_workloads_end_in_the_same_data_or_say_why_not() {
    let workloads = std::env::var(WORKLOADS).map_or(FEW, |text| text.parse().unwrap());
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().pop().unwrap();
    let mut captured = Captured::start(&mut guard, &server);
    let mut outcomes = Vec::new();
    let mut longest = Duration::ZERO;
    for seed in 0..workloads {
        let mut random = Random(seed);
        captured.prepare(&mut guard, SETUP, &LOGGING);
        let mut files = Vec::new();
        let mut is_two_phase = false;
        for number in 0..=random.below(4) {
            let path = scratch.path(&format!("random{number}.sql"));
            let script = script(&mut random);
            is_two_phase |= script.contains("PREPARE");
            fs::write(&path, script).unwrap();
            files.push(path.to_str().unwrap().to_owned());
        }
        let clients = (2 + random.below(7)).to_string();
        // Names of prepared transactions are no parameters.
        let protocols = if is_two_phase { 1 } else { 3 };
        let protocol = ["simple", "extended", "prepared"][random.below(protocols)];
        let seed_text = format!("--random-seed={seed}");
        let mut work = vec!["-n", "-c", &clients, "-t", "15", "-M", protocol, "--max-tries=3"];
        work.push(&seed_text);
        for file in &files {
            work.extend(["-f", file]);
        }
        let source = Source::ALL[usize::try_from(seed).unwrap() % Source::ALL.len()];
        let path = capture(source, &mut captured, &work, (&mut guard, &scratch));
        let (record, time) = replay(&scratch, &captured, path.to_str().unwrap());
        longest = longest.max(time);
        let done = record.done.as_ref().unwrap();
        assert!(
            record.complete && done.broken_sessions == 0,
            "seed {seed}, {source:?}: {record:?}"
        );
        let same = captured.value("captured", STATE) == captured.value("copied", STATE);
        let errors = done.unexpected_errors + done.missing_errors;
        let planned = &record.planned;
        let uncertain = planned.uncertain_pairs + planned.unrepeatable.values().sum::<u64>();
        let is_named = |order_break: &OrderBreak| {
            !order_break.statement.is_empty() && !order_break.reason.is_empty()
        };
        assert!(done.breaks.iter().all(is_named), "seed {seed}: {done:?}");
        let breaks = done.order_breaks;
        assert!(
            same || breaks + errors + uncertain > 0,
            "seed {seed}, {source:?}: other data, and nothing says so: {record:?}"
        );
        let outcome = if same && breaks + errors == 0 {
            Outcome::Same
        } else {
            Outcome::Named { breaks, errors, uncertain, same }
        };
        outcomes.push((source, outcome));
    }
    for source in Source::ALL {
        let own: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| outcome.0 == source)
            .map(|(_, outcome)| outcome)
            .collect();
        let same = own.iter().filter(|outcome| ***outcome == Outcome::Same).count();
        eprintln!("{source:?}: {same} of {} the same", own.len());
    }
    eprintln!("longest replay {longest:?}");
    for (seed, (source, outcome)) in outcomes.iter().enumerate() {
        if *outcome != Outcome::Same {
            eprintln!("seed {seed}, {source:?}: {outcome:?}");
        }
    }
    captured.end(&mut guard);
}

/// Runs pgbench with these arguments; where its work was captured.
fn capture(
    source: Source,
    captured: &mut Captured,
    work: &[&str],
    (guard, scratch): (&mut Guard, &Scratch),
) -> PathBuf {
    let plan = scratch.path("random.plan");
    let _ = fs::remove_file(&plan);
    let recording =
        (source == Source::Record).then(|| Recording::start_to(scratch, &captured.dsn(), &plan));
    let address = recording
        .as_ref()
        .map(|recording| recording.address.rsplit_once('/').unwrap().0.to_owned());
    let through = address.iter().flat_map(|directory| ["-h", directory, "-p", "5432"]);
    let work: Vec<&str> = work.iter().copied().chain(through).chain(["captured"]).collect();
    captured.pgbench(guard, &work);
    let [stderr, csv, json] = captured.logs(guard, scratch);
    match source {
        Source::Stderr => stderr,
        Source::Csvlog => csv,
        Source::Jsonlog => json,
        Source::Record => {
            let recorded = recording.unwrap().end();
            assert_eq!(recorded.status, Some(0), "{recorded:?}");
            plan
        }
    }
}

/// Rows are read and others written, so that transactions fail that others' commits made impossible; pgbench
/// begins them anew, and so does the replay where it comes into such a situation.
const ONE_SNAPSHOT: [&str; 2] = [
    "BEGIN ISOLATION LEVEL SERIALIZABLE;\nSELECT n FROM parents WHERE id = :a;\n\
     UPDATE parents SET n = (n * 31 + :x) % 1000000007 WHERE id = :b;\n\
     INSERT INTO notes VALUES (:k, :x);\nCOMMIT;\n",
    "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT n FROM parents WHERE id = :a;\n\
     UPDATE parents SET n = (n * 37 + :x) % 1000000007 WHERE id = :a;\nCOMMIT;\n",
];

#[test]
fn transactions_of_one_snapshot_are_begun_anew_and_none_is_lost() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = logging_servers().pop().unwrap();
    let mut captured = Captured::start(&mut guard, &server);
    // Without the foreign key, whose tables count as one.
    let setup = format!("{SETUP}DROP TABLE children, late");
    captured.prepare(&mut guard, &setup, &LOGGING);
    let mut work = vec!["-n", "-c", "8", "-j", "2", "-t", "40", "--max-tries=20"];
    let mut files = Vec::new();
    for (number, text) in ONE_SNAPSHOT.iter().enumerate() {
        let path = scratch.path(&format!("snapshot{number}.sql"));
        let variables = "\\set a random(1, 6)\n\\set b random(1, 6)\n\\set k random(1, 1000000000)\n\
                         \\set x random(1, 1000000)\n";
        fs::write(&path, format!("{variables}{text}")).unwrap();
        files.push(path.to_str().unwrap().to_owned());
    }
    work.extend(files.iter().flat_map(|file| ["-f", file]));
    work.push("captured");
    captured.pgbench(&mut guard, &work);
    let [_, csv, _] = captured.logs(&mut guard, &scratch);
    let (record, _) = replay(&scratch, &captured, csv.to_str().unwrap());
    let planned = &record.planned;
    assert!(planned.failed.contains_key("40001") && planned.barriers == 0, "{planned:?}");
    let done = record.done.as_ref().unwrap();
    assert_eq!((done.unexpected_errors, done.missing_errors), (0, 0), "{done:?}");
    let state = "SELECT md5(string_agg(t, '|' ORDER BY t)) AS state FROM (\
                 SELECT 'p' || id || ' ' || n AS t FROM parents UNION ALL \
                 SELECT 'n' || id || ' ' || v FROM notes) s";
    let same = captured.value("captured", state) == captured.value("copied", state);
    eprintln!("{} begun anew, {same}; when they were logged {:?}", done.retried, planned.failed);
    // Between the failure and the new begin others may write the same row first.
    assert!((same && done.order_breaks == 0) || done.retried > 0, "{same}: {done:?}");
    let notes = "SELECT count(*)::text AS state FROM notes";
    assert_eq!(captured.value("captured", notes), captured.value("copied", notes));
    captured.end(&mut guard);
}

/// The replay at full speed, which has to end.
fn replay(scratch: &Scratch, captured: &Captured, log: &str) -> (ReplayRecord, Duration) {
    let output = scratch.path("random.json");
    let began = Instant::now();
    let mut command = pgtoll();
    command.args(["replay", "run", log, "--order", "key", "--speed", "max", "--json", "--quiet"]);
    command.args(["--dsn", &captured.dsn(), "--map", "captured=copied"]);
    command.stdout(File::create(&output).unwrap()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let ended = ends_within(pid_of(&child), PATIENCE);
    if !ended {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    assert!(ended, "the replay of {log} hangs");
    let text = fs::read_to_string(&output).unwrap();
    (serde_json::from_str(&text).unwrap(), began.elapsed())
}
