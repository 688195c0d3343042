//! `pgtoll enable --rolling` and `disable --rolling` on a primary, its standby and that one's standby.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, Guard, Installation};
use pgtoll_record::trials::{
    ROLLING_SERIES_SCHEMA, RollingSeriesHeader, RollingSeriesLine, RollingSeriesRun,
};
use pgtoll_record::{JudgeRecord, RollingOutcome, RollingRecord};
use pgtoll_system::Interrupt;

use crate::support::{
    PATIENCE, Scratch, is_long, pgtoll_for_all, server, servers, servers_in_turn,
};

/// A primary `n1`, a standby `n2`, and `n3`, which streams from that one. All of them, and the programs
/// that work on them, run below a guard, which ends what tests leave.
struct ReplicaSet {
    guard: Guard,
    program: PathBuf,
    clusters: Vec<Cluster>,
    nodes: PathBuf,
}

/// How a program of the set's user ended.
#[derive(Debug)]
struct Ended {
    success: bool,
    status: String,
    stdout: String,
    stderr: String,
}

impl ReplicaSet {
    fn new(scratch: &Scratch, server: &Installation, settings: &[(&str, &str)]) -> Self {
        let mut guard = scratch.guard();
        let primary = Cluster::init(&mut guard, server, "n1", false).unwrap();
        let own =
            [("max_wal_senders", "10"), ("wal_keep_size", "512MB"), ("shared_buffers", "32MB")];
        let own = own
            .iter()
            .chain(settings)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        primary.configure(&mut guard, &own.collect()).unwrap();
        let mut set = Self {
            program: pgtoll_for_all(scratch),
            clusters: vec![primary],
            nodes: guard.directory().join("nodes.toml"),
            guard,
        };
        set.start("n1");
        // Before the standbys are: without `wal_keep_size` one that lags behind the load has lost
        // the primary's WAL.
        set.load();
        for name in ["n2", "n3"] {
            let upstream = set.clusters.last().unwrap();
            let standby = upstream.standby(&mut set.guard, name, upstream.directory()).unwrap();
            set.clusters.push(standby);
            set.start(name);
        }
        let text = set.nodes_text();
        set.guard.write(&set.nodes.clone(), text).unwrap();
        set.await_streaming();
        set
    }

    /// Something to convert.
    fn load(&self) {
        let mut session = self.cluster("n1").connect("postgres").unwrap();
        session
            .execute(
                "CREATE TABLE pages AS SELECT g AS id, repeat('x', 400) AS text \
                 FROM generate_series(1, 40000) g; CREATE INDEX ON pages (id); CHECKPOINT",
            )
            .unwrap();
        session.close();
    }

    fn nodes_text(&self) -> String {
        let bin = self.clusters[0].bin().display();
        let mut text = format!(
            "[defaults]\nstop = \"{bin}/pg_ctl -D {{pgdata}} -m fast -w stop\"\n\
             start = \"{bin}/pg_ctl -D {{pgdata}} -l {{pgdata}}/../server.log -w start\"\n"
        );
        for cluster in &self.clusters {
            let _ = write!(
                text,
                "\n[[node]]\nname = \"{}\"\ndsn = \"host={} port=5432 user=postgres dbname=postgres\"\n\
                 pgdata = \"{}\"\n",
                cluster.name(),
                cluster.directory().display(),
                cluster.data().display()
            );
        }
        text
    }

    fn cluster(&self, name: &str) -> &Cluster {
        self.clusters.iter().find(|cluster| cluster.name() == name).unwrap()
    }

    fn pg_ctl(&mut self, name: &str, words: &[&str]) {
        let cluster = self.cluster(name);
        let program = cluster.client("pg_ctl").unwrap();
        let data = cluster.data();
        let log = cluster.log();
        let data = data.to_string_lossy().into_owned();
        let log = log.to_string_lossy().into_owned();
        let words = [&["-D", &data, "-l", &log, "-w"], words].concat();
        self.guard.run(&program, &words).unwrap();
    }

    fn start(&mut self, name: &str) {
        self.pg_ctl(name, &["start"]);
    }

    /// The way to whichever node takes writes.
    fn dsn(&self) -> String {
        let hosts: Vec<String> =
            self.clusters.iter().map(|cluster| cluster.directory().display().to_string()).collect();
        format!(
            "host='{}' port=5432 user=postgres dbname=postgres target_session_attrs=read-write \
             connect_timeout=2",
            hosts.join(",")
        )
    }

    /// Nodes whose server takes writes.
    fn primaries(&self) -> Vec<String> {
        let takes_writes = |cluster: &&Cluster| {
            let Ok(mut session) = cluster.connect("postgres") else { return false };
            let row = session.query_one("SELECT pg_is_in_recovery() AS standby");
            row.is_ok_and(|row| row.text("standby").unwrap() == "f")
        };
        self.clusters.iter().filter(takes_writes).map(|cluster| cluster.name().to_owned()).collect()
    }

    fn has_checksums(&self, name: &str) -> bool {
        let mut session = self.cluster(name).connect("postgres").unwrap();
        let row = session.query_one("SHOW data_checksums").unwrap();
        row.text("data_checksums").unwrap() == "on"
    }

    /// Starts pgtoll as the servers' user.
    fn spawn(&mut self, name: &str, words: &[&str], environment: &[(&str, &str)]) -> i32 {
        let program = self.program.to_string_lossy().into_owned();
        let directory = self.guard.directory().to_string_lossy().into_owned();
        let script =
            format!("exec \"$0\" \"$@\" > {directory}/{name}.out 2> {directory}/{name}.err");
        let words = [&["-c", &script, &program], words].concat();
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: BTreeMap<_, _> = environment.collect();
        self.guard.spawn(name, Path::new("/bin/sh"), &words, &environment).unwrap()
    }

    fn reap(&mut self, name: &str) -> Ended {
        let output = self.guard.reap(name, PATIENCE).unwrap();
        let read = |ending| {
            let path = self.guard.directory().join(format!("{name}.{ending}"));
            fs::read_to_string(path).unwrap_or_default()
        };
        Ended {
            success: output.success,
            status: output.status.clone(),
            stdout: read("out"),
            stderr: read("err"),
        }
    }

    /// Runs `pgtoll enable --rolling` or `disable --rolling` to its end.
    fn rolling(&mut self, command: &str, words: &[&str]) -> Ended {
        let nodes = self.nodes.to_string_lossy().into_owned();
        let words = [&[command, "--rolling", &nodes, "--json"], words].concat();
        self.spawn("rolling", &words, &[]);
        self.reap("rolling")
    }

    /// Runs it up to one of its points, and kills it there.
    fn killed_at(&mut self, command: &str, point: &str, words: &[&str]) {
        let nodes = self.nodes.to_string_lossy().into_owned();
        let words = [&[command, "--rolling", &nodes, "--json", "--yes", "--skip-verify"], words];
        let pause = format!("rolling-{point}");
        let pid = self.spawn("rolling", &words.concat(), &[("PGTOLL_TEST_PAUSE_AT", &pause)]);
        let until = Instant::now() + PATIENCE;
        loop {
            let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
            match stat.map(|stat| stat.state) {
                Ok('T') => break,
                Ok('Z') | Err(_) => panic!("{point}: {:?}", self.reap("rolling")),
                Ok(_) => assert!(Instant::now() < until, "{point}"),
            }
            Interrupt::new().wait(Duration::from_millis(5)).unwrap();
        }
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        self.reap("rolling");
    }

    /// Has a judge write while `line` is run by a shell.
    fn judged(&mut self, line: &str, seconds: u32) -> JudgeRecord {
        let dsn = self.dsn();
        let time = format!("{seconds}s");
        let words = [
            "lab",
            "judge",
            "--dsn",
            &dsn,
            "--yes",
            "--json",
            "--for",
            &time,
            "--clients",
            "4",
            "--rate",
            "400",
            "--heal",
            "30s",
            "--fault",
            line,
            "--fault-at",
            "2s",
        ];
        self.spawn("judge", &words, &[]);
        let ended = self.reap("judge");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// All nodes have the same rows, once they have replayed everything.
    fn assert_same_rows(&self) {
        let primary = self.primaries();
        let [primary] = &primary[..] else { panic!("{primary:?}") };
        let mut session = self.cluster(primary).connect("postgres").unwrap();
        let sums = "SELECT count(*) || '/' || sum(hashtext(p::text)) AS sums FROM pages p";
        let row = session.query_one("SELECT pg_current_wal_flush_lsn() AS lsn").unwrap();
        let position = row.text("lsn").unwrap().to_owned();
        let expected = session.query_one(sums).unwrap();
        for cluster in self.clusters.iter().filter(|cluster| cluster.name() != primary) {
            let mut session = cluster.connect("postgres").unwrap();
            let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{position}' AS done");
            let until = Instant::now() + PATIENCE;
            while session.query_one(&sql).unwrap().text("done").unwrap() != "t" {
                assert!(Instant::now() < until, "{}", cluster.name());
                Interrupt::new().wait(Duration::from_millis(20)).unwrap();
            }
            assert_eq!(session.query_one(sums).unwrap(), expected, "{}", cluster.name());
        }
    }

    /// `pg_checksums` finds every page of every node right. The servers are stopped for it, and started
    /// again.
    fn assert_sound(&mut self) {
        let names = self.stop_all();
        for name in &names {
            let cluster = self.cluster(name);
            let program = cluster.client("pg_checksums").unwrap();
            let data = cluster.data();
            let words = ["--check", "-D", &data.to_string_lossy()].map(str::to_owned);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = self.guard.run(&program, &words).unwrap();
            assert!(output.tail.contains("Bad checksums:  0"), "{name}: {}", output.tail);
        }
        for name in &names {
            self.start(name);
        }
        self.await_streaming();
    }

    /// Stops all nodes, the primary first: their names in this order.
    fn stop_all(&mut self) -> Vec<String> {
        let mut names = self.primaries();
        let others = self.clusters.iter().map(|cluster| cluster.name().to_owned());
        let others: Vec<String> = others.filter(|name| !names.contains(name)).collect();
        names.extend(others);
        for name in &names {
            self.pg_ctl(name, &["-m", "fast", "stop"]);
        }
        names
    }

    /// The two standbys stream.
    fn await_streaming(&self) {
        let primary = self.primaries();
        for cluster in
            self.clusters.iter().filter(|cluster| !primary.contains(&cluster.name().to_owned()))
        {
            let mut session = cluster.connect("postgres").unwrap();
            let until = Instant::now() + PATIENCE;
            let sql = "SELECT count(*) AS n FROM pg_stat_wal_receiver WHERE status = 'streaming'";
            while session.query_one(sql).unwrap().text("n").unwrap() != "1" {
                assert!(Instant::now() < until, "{} does not stream", cluster.name());
                Interrupt::new().wait(Duration::from_millis(20)).unwrap();
            }
        }
    }

    fn finish(self) {
        self.guard.finish().unwrap();
    }
}

fn record(ended: &Ended) -> RollingRecord {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn rolling_line(set: &ReplicaSet, command: &str, words: &str) -> String {
    let directory = set.guard.directory().display();
    format!(
        "{} {command} --rolling {} --yes --json {words} > {directory}/rolling.out 2> \
         {directory}/rolling.err",
        set.program.display(),
        set.nodes.display()
    )
}

/// A run under a writing load: nothing is lost, and nodes are as they are to be.
fn check_run(set: &mut ReplicaSet, command: &str, words: &str) -> (RollingRecord, JudgeRecord) {
    let line = rolling_line(set, command, words);
    let judged = set.judged(&line, 15);
    let read = |ending| {
        fs::read_to_string(set.guard.directory().join(format!("rolling.{ending}"))).unwrap()
    };
    let stdout = read("out");
    let stderr = read("err");
    assert!(
        judged.fault.as_ref().is_some_and(|fault| fault.success),
        "{stdout}\n{stderr}\n{judged:?}"
    );
    let record: RollingRecord = serde_json::from_str(&stdout).unwrap();
    assert_eq!(record.outcome, RollingOutcome::Finished, "{record:?}");
    let verdict = judged.verdict.as_ref().unwrap();
    assert_eq!((verdict.lost.count, verdict.ghosts.count), (0, 0), "{judged:?}");
    assert_eq!((verdict.phantoms.count, verdict.duplicates.count), (0, 0), "{judged:?}");
    assert!(judged.outage.as_ref().is_some_and(|outage| !outage.open), "{judged:?}");
    for node in &record.nodes {
        assert_eq!(node.checksums, Some(command == "enable"), "{record:?}");
        assert_eq!(set.has_checksums(&node.name), command == "enable", "{record:?}");
    }
    let primaries = set.primaries();
    assert_eq!(primaries, [record.primary.clone().unwrap()], "{record:?}");
    assert!(!set.nodes.with_file_name("nodes.toml.journal").exists());
    set.assert_same_rows();
    (record, judged)
}

#[test]
fn checksums_go_on_and_off_over_a_set_that_serves_and_nothing_is_lost() {
    for server in servers_in_turn(1) {
        let scratch = Scratch::new();
        let mut set = ReplicaSet::new(&scratch, &server, &[("wal_log_hints", "on")]);
        let plan = record(&set.rolling("enable", &["--dry-run"]));
        assert_eq!(plan.outcome, RollingOutcome::DryRun);
        let order: Vec<&str> = plan.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(order, ["n3", "n2", "n1"], "{plan:?}");
        assert_eq!(plan.candidate.as_deref(), Some("n2"), "{plan:?}");
        assert!(plan.objections.is_empty(), "{plan:?}");

        let (done, _) = check_run(&mut set, "enable", "");
        let [switchover] = &done.switchovers[..] else { panic!("{done:?}") };
        assert_eq!((&*switchover.from, &*switchover.to, switchover.timeline), ("n1", "n2", 2));
        assert!(done.nodes.iter().all(|node| node.verified == Some(true)), "{done:?}");
        set.assert_sound();

        let hooks = set.guard.directory().join("hooks");
        let hook = |when: &str| format!("'echo {when} {{primary}} >> {}'", hooks.display());
        let before = hook("before");
        let after = hook("after");
        let words = format!("--to n1 --before-switch {before} --after-switch {after}");
        let (done, _) = check_run(&mut set, "disable", &words);
        assert_eq!(fs::read_to_string(&hooks).unwrap(), "before n2\nafter n1\n");
        assert_eq!(done.primary.as_deref(), Some("n1"), "{done:?}");
        let nothing = record(&set.rolling("disable", &["--yes"]));
        assert!(nothing.switchovers.is_empty() && nothing.primary.as_deref() == Some("n1"));

        let (done, _) = check_run(&mut set, "enable", "--switch-back");
        assert_eq!(done.primary.as_deref(), Some("n1"), "{done:?}");
        assert_eq!(done.switchovers.len(), 2, "{done:?}");
        set.assert_sound();
        set.finish();
        scratch.assert_empty();
    }
}

/// A switchover by hand, as the floor: stop, signal, promote, start. Both nodes have connection strings
/// of each other by earlier runs.
fn bare_switchover(set: &ReplicaSet, from: &str, to: &str) -> String {
    let old = set.cluster(from);
    let new = set.cluster(to);
    let pg_ctl = old.client("pg_ctl").unwrap();
    let psql = old.client("psql").unwrap();
    let psql = psql.display();
    let old_socket = old.directory().display();
    let new_socket = new.directory().display();
    let pg_ctl = pg_ctl.display();
    let old_data = old.data();
    let new_data = new.data();
    let old_data = old_data.display();
    let new_data = new_data.display();
    let log = old.log();
    format!(
        "{psql} -h {old_socket} -U postgres -qc CHECKPOINT && {psql} -h {new_socket} -U postgres -qc \
         CHECKPOINT && {pg_ctl} -D {old_data} -m fast -w stop && touch {old_data}/standby.signal && \
         {pg_ctl} -D {new_data} -w promote && {pg_ctl} -D {old_data} -l {} -w start",
        log.display()
    )
}

/// A run that the judge saw, or a switchover by hand.
fn series_run(
    server: &Installation,
    label: &str,
    judged: &JudgeRecord,
    run: Option<&RollingRecord>,
) -> RollingSeriesRun {
    let own_gap = run.and_then(|run| run.switchovers.first()?.gap_seconds);
    let nodes = run.map_or(&[][..], |run| &run.nodes).iter();
    RollingSeriesRun {
        server: server.version.to_string(),
        what: label.to_owned(),
        gap_seconds: judged.outage.as_ref().unwrap().seconds,
        own_gap_seconds: own_gap,
        nodes: nodes
            .map(|node| (node.name.clone(), node.convert_seconds, node.down_seconds))
            .collect(),
        acknowledged: judged.transactions.acknowledged,
        unknown: judged.transactions.unknown,
        lost: judged.verdict.as_ref().unwrap().lost.count,
    }
}

/// Many runs of each kind on each version, a line of JSON each on standard output. It takes a minute a
/// run: `PGTOLL_ROLLING_RUNS=10 cargo test -p pgtoll --features manual-tests --test it rolling::a_series -- --nocapture`.
#[cfg_attr(feature = "manual-tests", test)]
#[cfg_attr(not(feature = "manual-tests"), expect(dead_code, reason = "run by hand"))]
fn a_series_of_runs_and_of_switchovers_by_hand() {
    let runs = std::env::var("PGTOLL_ROLLING_RUNS").expect("PGTOLL_ROLLING_RUNS says how many");
    let runs: u32 = runs.parse().expect("PGTOLL_ROLLING_RUNS is a number");
    let show = |line: &RollingSeriesLine| {
        let line = serde_json::to_string(line).unwrap() + "\n";
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    };
    let show_run = |run| show(&RollingSeriesLine::Run(Box::new(run)));
    show(&RollingSeriesLine::Header(Box::new(RollingSeriesHeader {
        schema: ROLLING_SERIES_SCHEMA.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command: format!(
            "PGTOLL_ROLLING_RUNS={runs} cargo test -p pgtoll --features manual-tests --test it rolling::a_series -- --nocapture"
        ),
        host: pgtoll_measure::host(&std::env::temp_dir()).unwrap(),
    })));
    for server in servers() {
        let scratch = Scratch::new();
        let mut set = ReplicaSet::new(&scratch, &server, &[("wal_log_hints", "on")]);
        for _ in 0..runs {
            for (command, words) in [("enable", "--to n2"), ("disable", "--to n1")] {
                let (run, judged) = check_run(&mut set, command, words);
                show_run(series_run(&server, command, &judged, Some(&run)));
            }
            for (from, to) in [("n1", "n2"), ("n2", "n1")] {
                let line = bare_switchover(&set, from, to);
                let judged = set.judged(&line, 8);
                assert!(judged.fault.as_ref().is_some_and(|fault| fault.success), "{judged:?}");
                set.await_streaming();
                show_run(series_run(&server, "by hand", &judged, None));
            }
        }
        set.finish();
        scratch.assert_empty();
    }
}

/// Points at which a run is killed, in their order.
const POINTS: [&str; 13] = [
    "convert-stop",
    "convert-stopped",
    "convert-converted",
    "convert-started",
    "convert-streaming",
    "switch-begun",
    "switch-ready",
    "switch-stopped",
    "switch-fenced",
    "switch-replayed",
    "switch-promoted",
    "switch-rejoined",
    "all-converted",
];

/// What happens after a run was killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Resume,
    Abort,
    /// Somebody starts what is down first, as a service manager would.
    StartAndResume,
    StartAndAbort,
}

#[test]
fn a_run_that_is_killed_anywhere_is_resumed_or_aborted_and_one_node_takes_writes() {
    let all = [After::Resume, After::StartAndAbort, After::Abort, After::StartAndResume];
    // In turn, where there is no time for all of them at each point.
    let afters =
        |number: usize| if is_long() { all.to_vec() } else { vec![all[number % all.len()]] };
    for server in servers_in_turn(0) {
        let scratch = Scratch::new();
        let mut set = ReplicaSet::new(&scratch, &server, &[]);
        let mut enable = true;
        for (number, point) in POINTS.into_iter().enumerate() {
            for after in afters(number) {
                check_kill(&mut set, enable, point, after);
                enable = !enable;
            }
        }
        set.finish();
        scratch.assert_empty();
    }
}

fn check_kill(set: &mut ReplicaSet, enable: bool, point: &str, after: After) {
    let command = if enable { "enable" } else { "disable" };
    let label = format!("{command} {point} {after:?}");
    set.killed_at(command, point, &[]);
    let primaries = set.primaries();
    assert!(primaries.len() <= 1, "{label}: {primaries:?}");
    let refused = set.rolling(command, &["--yes"]);
    assert!(
        !refused.success && refused.stderr.contains("--resume continues"),
        "{label}: {refused:?}"
    );
    if matches!(after, After::StartAndResume | After::StartAndAbort) {
        start_all(set);
        assert!(set.primaries().len() <= 1, "{label}");
    }
    let end =
        if matches!(after, After::Resume | After::StartAndResume) { "--resume" } else { "--abort" };
    let ended = set.rolling(command, &[end, "--yes"]);
    assert!(ended.success, "{label}: {ended:?}");
    assert_eq!(set.primaries().len(), 1, "{label}");
    set.await_streaming();
    if end == "--abort" {
        assert_eq!(record(&ended).outcome, RollingOutcome::Aborted, "{label}");
        let ended = set.rolling(command, &["--yes", "--skip-verify"]);
        assert!(ended.success, "{label}: {ended:?}");
    }
    for name in ["n1", "n2", "n3"] {
        assert_eq!(set.has_checksums(name), enable, "{label}: {name}");
    }
    set.assert_same_rows();
}

/// Starts every node that is down.
fn start_all(set: &mut ReplicaSet) {
    let is_down = |cluster: &&Cluster| !cluster.data().join("postmaster.pid").exists();
    let down = set.clusters.iter().filter(is_down).map(|cluster| cluster.name().to_owned());
    for name in down.collect::<Vec<_>>() {
        set.start(&name);
    }
}

#[test]
fn a_synchronous_set_is_refused_or_asynchronous_meanwhile() {
    let scratch = Scratch::new();
    let mut set = ReplicaSet::new(&scratch, &server(), &[]);
    let names = "ANY 1 (n1, n2)";
    for name in ["n1", "n2"] {
        let mut session = set.cluster(name).connect("postgres").unwrap();
        session
            .execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"))
            .unwrap();
        session.execute("SELECT pg_reload_conf()").unwrap();
    }
    let refused = record(&set.rolling("enable", &["--yes"]));
    assert_eq!(refused.outcome, RollingOutcome::Refused);
    let of_sync =
        |objection: &&pgtoll_record::RollingObjection| objection.hint.contains("--suspend-sync");
    assert_eq!(refused.objections.iter().filter(of_sync).count(), 2, "{refused:?}");
    assert!(!set.has_checksums("n3"));
    let ended = set.rolling("enable", &["--yes", "--suspend-sync", "--skip-verify"]);
    assert!(ended.success, "{ended:?}");
    for name in ["n1", "n2"] {
        let mut session = set.cluster(name).connect("postgres").unwrap();
        let row = session.query_one("SHOW synchronous_standby_names").unwrap();
        assert_eq!(row.text("synchronous_standby_names").unwrap(), names, "{name}");
    }
    // It would wait for ever.
    let mut session = set.cluster("n2").connect("postgres").unwrap();
    session.execute("CREATE TABLE committed ()").unwrap();
    set.finish();
}

#[test]
fn a_receiver_that_hangs_is_named_and_the_primary_goes_on() {
    let scratch = Scratch::new();
    let mut set = ReplicaSet::new(&scratch, &server(), &[]);
    for name in ["n3", "n2"] {
        let ended = set.rolling("enable", &["--yes", "--only", name, "--skip-verify"]);
        assert!(ended.success && set.has_checksums(name), "{ended:?}");
    }
    let mut session = set.cluster("n2").connect("postgres").unwrap();
    let row = session.query_one("SELECT pid FROM pg_stat_wal_receiver").unwrap();
    let receiver = Pid::from_raw(row.parse("pid").unwrap());
    session.close();
    kill(receiver, Signal::SIGSTOP).unwrap();
    let hooks = set.guard.directory().join("hooks");
    let hook = format!("echo {{primary}} >> {}", hooks.display());
    let words = ["--yes", "--before-switch", &hook, "--after-switch", &hook];
    let ended = set.rolling("enable", &words);
    // What clients were told is taken back.
    assert_eq!(fs::read_to_string(&hooks).unwrap(), "n1\nn1\n");
    kill(receiver, Signal::SIGCONT).unwrap();
    assert!(!ended.success && ended.stderr.contains("do not answer: n2"), "{ended:?}");
    assert_eq!(set.primaries(), ["n1"]);
    let ended = set.rolling("enable", &["--yes", "--resume"]);
    assert!(ended.success && set.primaries() == ["n2"], "{ended:?}");
    set.finish();
}

#[test]
fn what_pg_rewind_leaves_is_written_anew() {
    let scratch = Scratch::new();
    for server in servers() {
        let mut set = ReplicaSet::new(&scratch, &server, &[("wal_log_hints", "on")]);
        let ended = set.rolling("enable", &["--yes", "--only", "n2", "--skip-verify"]);
        assert!(ended.success, "{ended:?}");
        set.cluster("n2").promote().unwrap();
        let mut session = set.cluster("n1").connect("postgres").unwrap();
        session.execute("UPDATE pages SET text = 'other'").unwrap();
        session.close();
        set.pg_ctl("n1", &["-m", "fast", "stop"]);
        let old = set.cluster("n1").clone();
        let new = set.cluster("n2").clone();
        old.rewind(&mut set.guard, &new).unwrap();
        let program = set.program.to_string_lossy().into_owned();
        let data = old.data().to_string_lossy().into_owned();
        let checksums = old.client("pg_checksums").unwrap();
        // It says that it has checksums, and has not.
        assert!(set.guard.run(&checksums, &["--check", "-D", &data]).is_err());
        // pg_rewind leaves a state that a server has to recover from.
        set.start("n1");
        set.pg_ctl("n1", &["-m", "fast", "stop"]);
        set.guard.run(Path::new(&program), &["enable", "--rewrite", &data]).unwrap();
        set.guard.run(&checksums, &["--check", "-D", &data]).unwrap();
        set.start("n1");
        assert!(set.has_checksums("n1"));
        set.finish();
    }
}

#[test]
fn mistakes_change_nothing_and_are_named() {
    let scratch = Scratch::new();
    let mut set = ReplicaSet::new(&scratch, &server(), &[("wal_keep_size", "0")]);
    let mut check = |words: &[&str], expected: &str| {
        let ended = set.rolling("enable", words);
        let is_named = ended.stderr.contains(expected) || ended.stdout.contains(expected);
        assert!(!ended.success && is_named, "{expected}: {ended:?}");
        assert!(ended.status.contains('2'), "{ended:?}");
    };
    check(&["--only", "n4", "--yes"], "no node \"n4\"");
    check(&["--resume"], "no unfinished run");
    check(&["--abort"], "no unfinished run");
    check(&["--to", "n3", "--dry-run"], "cannot take over");
    check(&[], "not confirmed: the plan");
    set.cluster("n1").connect("postgres").unwrap();
    let text = set.nodes_text().replace("[[node]]\nname = \"n3\"", "[[node]]\nnmae = \"n3\"");
    let nodes = set.nodes.clone();
    set.guard.write(&nodes, text).unwrap();
    let ended = set.rolling("enable", &["--dry-run"]);
    assert!(ended.stderr.contains("unknown field `nmae`"), "{ended:?}");
    crate::support::set_mode(&nodes, 0o666);
    let ended = set.rolling("enable", &["--dry-run"]);
    assert!(ended.stderr.contains("can be changed by other users"), "{ended:?}");
    for name in ["n1", "n2", "n3"] {
        assert!(!set.has_checksums(name));
    }
    set.finish();
}

/// A repmgrd beside each node would promote somebody while the primary is down.
#[test]
fn repmgr_is_paused_for_a_run_and_learns_the_new_roles() {
    if !crate::failover::engines() {
        return;
    }
    let has_repmgr = |installation: &Installation| {
        pgtoll_cluster::Repmgr::from_installation(installation).is_ok()
    };
    let server = crate::support::installed().into_iter().find(has_repmgr).unwrap();
    let repmgr = pgtoll_cluster::Repmgr::from_installation(&server).unwrap();
    let scratch = Scratch::new();
    let preload = ("shared_preload_libraries", "repmgr");
    let mut set = ReplicaSet::new(&scratch, &server, &[preload]);
    let mut session = set.cluster("n1").connect("postgres").unwrap();
    session.execute("CREATE DATABASE repmgr").unwrap();
    session.close();
    let register: [&[&str]; 3] = [
        &["primary", "register"],
        &["standby", "register", "--upstream-node-id=1"],
        &["standby", "register", "--upstream-node-id=2"],
    ];
    let mut nodes = Vec::new();
    for (number, (name, words)) in (1..).zip(["n1", "n2", "n3"].into_iter().zip(register)) {
        let settings = repmgr_settings(number);
        let cluster = set.cluster(name).clone();
        set.assert_same_rows();
        let node = repmgr.node(&mut set.guard, &cluster, &settings).unwrap();
        node.run(&mut set.guard, words).unwrap();
        nodes.push(node);
    }
    set.assert_same_rows();
    for node in &nodes {
        node.start_daemon(&mut set.guard).unwrap();
    }
    let started = "SELECT count(DISTINCT node_id) = 3 AS done FROM repmgr.events \
                   WHERE event = 'repmgrd_start'";
    await_true(set.cluster("n1"), started);
    let refused = record(&set.rolling("enable", &["--yes"]));
    assert_eq!(refused.outcome, RollingOutcome::Refused, "{refused:?}");
    let managed =
        refused.objections.iter().filter(|objection| objection.text.contains("managed by repmgrd"));
    assert_eq!(managed.count(), 3, "{refused:?}");

    nodes[0].run(&mut set.guard, &["service", "pause"]).unwrap();
    let ended = set.rolling("enable", &["--yes", "--managers-paused", "--skip-verify"]);
    assert!(ended.success, "{ended:?}");
    assert_eq!(set.primaries(), ["n2"]);
    nodes[1].run(&mut set.guard, &["primary", "register", "--force"]).unwrap();
    set.assert_same_rows();
    nodes[0]
        .run(&mut set.guard, &["standby", "register", "--force", "--upstream-node-id=2"])
        .unwrap();
    set.assert_same_rows();
    nodes[1].run(&mut set.guard, &["service", "unpause"]).unwrap();
    let roles = "SELECT string_agg(type || ' ' || active, ', ' ORDER BY node_id) = \
                 'standby true, primary true, standby true' AS done FROM repmgr.nodes";
    await_true(set.cluster("n2"), roles);
    set.finish();
    scratch.assert_empty();
}

fn repmgr_settings(node_id: u32) -> pgtoll_cluster::RepmgrSettings {
    pgtoll_cluster::RepmgrSettings {
        node_id,
        host: None,
        monitor_interval_s: 1,
        reconnect_attempts: 1,
        reconnect_interval_s: 1,
        promotes_by_pg_ctl: false,
        may_be_promoted: true,
        promote_command: "/bin/false".to_owned(),
        event_notification_command: "/bin/true".to_owned(),
    }
}

fn await_true(cluster: &Cluster, sql: &str) {
    let mut session = cluster.connect("repmgr").unwrap();
    let until = Instant::now() + PATIENCE;
    while session.query_one(sql).unwrap().text("done").unwrap() != "t" {
        assert!(Instant::now() < until, "{sql}");
        Interrupt::new().wait(Duration::from_millis(50)).unwrap();
    }
}
