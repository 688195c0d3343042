//! Steps of every kind, small, on every server.

use std::fs;

use pgtoll_cluster::{Installation, MemoryGroup};
use pgtoll_record::{Counters, Metric, Operation, OperationOf, Run, RunResult, Work};

use crate::support::{Ran, Scratch, pgtoll, run, server, servers_in_turn};

const STEPS: &str = include_str!("steps.toml");

/// A run of this text, twice in opposite order.
fn measure(scratch: &Scratch, server: &Installation, text: &str) -> Ran {
    let file = scratch.path("steps.toml");
    fs::write(&file, text).unwrap();
    let mut command = pgtoll();
    command.args(["measure", "--json", "--repetitions", "2", "--seed", "1"]).arg(&file);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    run(command.arg("--postgres").arg(&server.bin))
}

fn recorded(scratch: &Scratch) -> Run {
    Run::parse(&fs::read_to_string(scratch.path("result/run.jsonl")).unwrap()).unwrap()
}

fn operations<'a>(run: &'a Run, name: &'a str) -> impl Iterator<Item = &'a Operation> {
    let mut own =
        run.operations.iter().filter(move |operation| operation.workload == name).peekable();
    assert!(own.peek().is_some(), "no operation {name}");
    own
}

#[test]
fn steps_of_every_kind() {
    for server in servers_in_turn(0) {
        // Pages are read from the disk again.
        let scratch = Scratch::on_disk();
        let ran = measure(&scratch, &server, STEPS);
        assert_eq!(ran.status, Some(0), "{} {ran:?}", server.version);
        let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
        let run = recorded(&scratch);
        assert_eq!(run.notes, Vec::<String>::new());
        assert!(run.is_complete());
        // Two repetitions of two halves, in each of two arms; after turns once more in one piece.
        for workload in &result.header.workloads {
            let Work::Operation { turn_ns, .. } = workload.work else { panic!("{workload:?}") };
            let expected = if turn_ns.is_some() { 10 } else { 8 };
            assert_eq!(operations(&run, &workload.name).count(), expected, "{}", workload.name);
        }
        let idle: Vec<_> =
            run.operations.iter().filter(|operation| operation.server_cpu_ns == 0).collect();
        assert!(idle.is_empty(), "{idle:?}");
        caches_are_empty_after_restarts(&run);
        programs_are_run(&run);
        clients_work(&run, &result);
        recovery_replays(&run, &result);
        arms_take_turns(&run, &result);
        scratch.assert_empty();
    }
}

fn caches_are_empty_after_restarts(run: &Run) {
    let sum = |name: &str, counters: &dyn Fn(&Counters) -> u64| -> u64 {
        operations(run, name).map(|one| counters(&one.counters)).min().unwrap()
    };
    let most = operations(run, "warm")
        .map(|operation| operation.counters.blocks_read.unwrap())
        .max()
        .unwrap();
    // 100,000 accounts are 1640 pages.
    assert!(most < 100, "{most} blocks were read again");
    for name in ["restarted", "evicted"] {
        let least = sum(name, &|item| item.blocks_read.unwrap());
        assert!(least >= 1640, "{name}: {least} blocks");
    }
    let from_disk = sum("evicted", &|item| item.io.map_or(u64::MAX, |io| io.read));
    assert!(from_disk >= 1640 * 8192, "{from_disk} bytes from the disk");
}

/// In turns the work is the same as in one piece.
fn arms_take_turns(run: &Run, result: &RunResult) {
    let (in_turns, in_one_piece): (Vec<&Operation>, Vec<&Operation>) =
        ["loaded", "read", "dumped", "parallel", "together"]
            .iter()
            .flat_map(|name| operations(run, name))
            .partition(|item| item.turns.is_some());
    assert_eq!((in_turns.len(), in_one_piece.len()), (5 * 8, 5 * 2));
    for one in in_turns {
        let mut whole = in_one_piece.iter();
        let whole =
            whole.find(|whole| whole.workload == one.workload && whole.arm == one.arm).unwrap();
        assert_eq!(one.pages, whole.pages, "{one:?}");
        assert_eq!(one.client_cpu_ns.is_some(), whole.client_cpu_ns.is_some(), "{one:?}");
        let apart = |counters: fn(&Counters) -> u64| {
            counters(&one.counters).abs_diff(counters(&whole.counters))
        };
        // The table's 1640 pages are read as often; sessions of a dump find more or less of the
        // catalogs in shared buffers.
        assert!(apart(|item| item.blocks_read.unwrap()) < 800, "{one:?} {whole:?}");
        assert!(apart(|item| item.wal_bytes) < 1 << 20, "{one:?} {whole:?}");
        assert!(one.server_cpu_ns > 0 && one.duration_ns > 0, "{one:?}");
    }
    // Reads of a table take more than one turn, and arms begin theirs in the same block of turns.
    assert!(operations(run, "read").any(|operation| operation.turns > Some(1)));
    for start in 1..=4 {
        let of_start =
            || operations(run, "read").filter(move |operation| operation.repetition == start);
        let last_begin = of_start().map(|start| start.start_ns).max().unwrap();
        let last_end = of_start().map(|start| start.start_ns + start.duration_ns).max().unwrap();
        assert!(last_begin < last_end, "start {start}");
    }
    let compared =
        result.comparisons.iter().find(|comparison| comparison.workload == "read").unwrap();
    assert_eq!((compared.rounds, compared.pairs), (4, 4), "{compared:?}");
}

fn programs_are_run(run: &Run) {
    for operation in operations(run, "dump") {
        assert!(operation.client_cpu_ns.is_some_and(|ns| ns > 0), "{operation:?}");
        // The sessions' CPU time is there, although they are gone: COPY of 100,000 rows.
        assert!(operation.server_cpu_ns > 10_000_000, "{operation:?}");
        // The accounts were read before, and nothing is written.
        assert!(operation.counters.blocks_read.unwrap() < 1640, "{operation:?}");
        assert!(operation.counters.wal_bytes < 1 << 20, "{operation:?}");
    }
}

fn clients_work(run: &Run, result: &RunResult) {
    let work = |name: &str| {
        let workload =
            result.header.workloads.iter().find(|workload| workload.name == name).unwrap();
        let Work::Operation { of: Some(OperationOf::Script { clients, .. }), .. } = workload.work
        else {
            panic!("{workload:?}")
        };
        clients
    };
    assert_eq!((work("fixed"), work("timed"), work("ingest")), (3, 2, 1));
    for operation in operations(run, "fixed") {
        assert_eq!(operation.transactions, Some(3 * 40));
        assert!(operation.course.is_empty(), "it has no time");
        let latencies = operation.latencies.as_ref().unwrap();
        assert!(latencies.stddev_ns > Some(0.0) && latencies.mean_ns > Some(0.0));
        assert!(latencies.p50_ns <= latencies.p99_ns);
        assert!(operation.beside_cpu_ns.is_none());
        // Each inserts a row into the history, whatever its other changes do.
        assert_eq!(
            operation.counters.wal_by_type["Transaction/COMMIT"].records, 120,
            "{operation:?}"
        );
    }
    // The same accounts in both arms.
    let images =
        |arm: &str, operation: &Operation| operation.arm == arm && operation.repetition == 1;
    let of_arm = |arm: &str| {
        let first = operations(run, "ingest").find(|operation| images(arm, operation)).unwrap();
        (
            first.transactions,
            first.counters.wal_by_type.get("Heap/INSERT").map(|wal_by_type| wal_by_type.records),
        )
    };
    assert_eq!(of_arm("one"), of_arm("two"));
    for operation in operations(run, "timed") {
        // 200 a second in a quarter of a second; Poisson's spread is 7.
        let transactions = operation.transactions.unwrap();
        assert!((15..100).contains(&transactions), "{transactions}");
        assert!(operation.duration_ns >= 250_000_000, "{operation:?}");
        // It has a time, so it was followed: until its end, and never backwards.
        let last = operation.course.last().unwrap();
        assert!(
            last.after_ns >= 250_000_000 && last.wal_bytes <= operation.counters.wal_bytes,
            "{operation:?}"
        );
        assert!(
            last.server_cpu_ns > 0 && last.server_cpu_ns <= operation.server_cpu_ns,
            "{operation:?}"
        );
        assert!(
            operation.course.is_sorted_by_key(|at| (at.after_ns, at.wal_bytes)),
            "{operation:?}"
        );
        assert_eq!(operation.beside_cpu_ns.is_some(), operation.arm == "two", "{operation:?}");
    }
    let has = |name: &str, metric| {
        result
            .comparisons
            .iter()
            .any(|comparison| comparison.workload == name && comparison.metric == metric)
    };
    for metric in [Metric::CpuPerTransaction, Metric::LatencyMedian, Metric::LatencyStddev] {
        assert!(has("fixed", metric) && has("timed", metric), "{metric:?}");
    }
    assert!(has("fixed", Metric::TransactionsPerSecond), "a closed loop has a rate of its own");
    assert!(!has("timed", Metric::TransactionsPerSecond), "an open loop has not");
    assert!(has("dump", Metric::ClientCpuPerOperation));
    let of_dump = |metric: &str| {
        result.values.iter().any(|value| value.workload == "dump" && value.metric == metric)
    };
    assert!(of_dump("blocks_read_per_operation") && !of_dump("blocks_read_per_page"), "no table");
    let value = |name: &str| {
        let mut all = result.values.iter().filter(|value| value.workload == "fixed");
        all.find(|value| value.metric == name).map(|value| value.exact)
    };
    assert_eq!(value("wal_per_transaction"), Some(false), "clients come in an order of their own");
    assert_eq!(value("wal_per_page"), None);
}

fn recovery_replays(run: &Run, result: &RunResult) {
    for operation in operations(run, "recovery") {
        // New versions of 9,999 rows, and images of the pages that they and the old ones are on.
        assert!((2_500_000..12_000_000).contains(&operation.counters.wal_bytes), "{operation:?}");
    }
    let names: Vec<&str> = result
        .values
        .iter()
        .filter(|value| value.workload == "recovery" && value.arm == "one")
        .map(|value| value.metric.as_str())
        .filter(|name| !name.starts_with("disk_") && !name.starts_with("file_"))
        .collect();
    assert_eq!(names, ["operation_time", "cpu_per_operation", "wal_per_page"]);
}

#[test]
fn steps_under_a_limit_of_memory() {
    let scratch = Scratch::on_disk();
    let text = STEPS.replace("loaded = true", "loaded = true\nmemory = \"96MB\"");
    let ran = measure(&scratch, &server(), &text);
    if MemoryGroup::create("steps", 96 << 20).and_then(MemoryGroup::remove).is_ok() {
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let run = recorded(&scratch);
        for operation in operations(&run, "evicted") {
            let memory = operation.memory.unwrap();
            assert!(memory.peak_bytes.is_none_or(|peak| peak <= 96 << 20), "{memory:?}");
            assert!(operation.counters.io.is_none_or(|io| io.read >= 1640 * 8192), "{operation:?}");
        }
    } else {
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("memory"), "{ran:?}");
    }
    scratch.assert_empty();
}

const ONE_STEP: &str = r#"
name = "own"
question = "Does it work?"
baseline = "one"
[[arms]]
name = "one"
values = { status = "0" }
[[arms]]
name = "two"
values = { status = "3" }
[[workloads]]
name = "work"
title = "work"
"#;

fn one_step(scratch: &Scratch, step: &str) -> Ran {
    measure(scratch, &server(), &format!("{ONE_STEP}steps = [ {step} ]\n"))
}

#[test]
fn a_program_that_fails_is_told_with_its_last_line() {
    let scratch = Scratch::on_disk();
    let step = r#"{ program = "echo first >&2; echo no dump today >&2; exit ${status}", measure = "dump" }"#;
    let ran = one_step(&scratch, step);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("failed in arm \"two\" (exit status 3: no dump today)"), "{ran:?}");
    assert_eq!(ran.stderr.matches("\nhint: ").count(), 1, "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn what_fails_beside_a_script_is_noted_once() {
    let scratch = Scratch::on_disk();
    let script = scratch.path("wait.sql");
    fs::write(&script, "SELECT count(*) FROM generate_series(1, 100000);\n").unwrap();
    let step = format!(
        r#"{{ script = "{}", transactions = 20, beside = "echo gone >&2; exit ${{status}}", measure = "wait" }}"#,
        script.display()
    );
    let ran = one_step(&scratch, &step);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let run = recorded(&scratch);
    let [note] = &run.notes[..] else { panic!("{:?}", run.notes) };
    assert_eq!(
        note,
        "arm two: what ran beside (echo gone >&2; exit 3) failed: exit status 3: gone"
    );
    scratch.assert_empty();
}

/// Mistakes of steps, and where they are.
#[test]
fn wrong_steps_are_told_with_their_place() {
    let scratch = Scratch::on_disk();
    let check = |step: &str, expected: &str| {
        let ran = one_step(&scratch, &format!("{step}, {{ sql = \"SELECT ${{status}}\" }}"));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let first = ran.stderr.lines().next().unwrap();
        let (_, place) = first.split_once("steps.toml:").unwrap();
        assert_eq!(place, expected);
    };
    let kinds = "sql, pgbench, program, script, restart, evict, crash";
    check(
        r#"{ sql = "SELECT 1", measure = "a", restart = true }"#,
        &format!("14:11: workload \"work\" has a step that is not one of {kinds}"),
    );
    check(
        r#"{ restart = true, measure = "a" }"#,
        "14:39: workload \"work\" has measure in a step of restart; it is of sql, pgbench, program, \
         script, crash",
    );
    check(
        r#"{ sql = "SELECT 1", measure = "a", clients = 2 }"#,
        "14:56: workload \"work\" has clients in a step of sql; it is of script",
    );
    check(
        r#"{ script = "tpcb-like", measure = "a" }"#,
        "14:22: workload \"work\" has a script step that is not one of transactions and time",
    );
    check(
        r#"{ script = "tpbc-like", transactions = 1, measure = "a" }"#,
        "14:22: no script \"tpbc-like\" (there are: select-only, simple-update, tpcb-like, \
         append-log, etl-scatter, unlogged-ingest, web-oltp; or the path of a file in pgbench's \
         language; a command has its own workload)",
    );
    check(
        r#"{ program = "true ${none}", measure = "a" }"#,
        "14:23: ${none} has no value in arm \"one\", \"two\"",
    );
    let ran = one_step(&scratch, r#"{ crash = true, measure = "a" }"#);
    assert!(ran.stderr.contains(":7:12: no step uses the value \"status\""), "{ran:?}");
    assert!(ran.stderr.contains("hint: write ${status} in sql, program or beside"), "{ran:?}");
    scratch.assert_empty();
}
