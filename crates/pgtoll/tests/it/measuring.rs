//! `pgtoll measure`, run to its end.

use std::fs;

use pgtoll_record::{CounterReading, EndStatus, Metric, Operation, Run, RunResult};

/// The experiment of the small runs.
const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/small.toml");

use crate::support::{
    Scratch, as_ordinary_user, pgtoll_for_all, program, run, server, servers, set_mode,
    small_measure,
};

#[test]
fn every_server_is_measured_and_nothing_stays() {
    for server in servers() {
        let scratch = Scratch::new();
        let mut command = small_measure(&scratch);
        command.args(["--json", "--seed", "7", "--postgres"]).arg(&server.bin);
        let ran = run(command.args(["--repetitions", "2"]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        scratch.assert_empty();
        let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
        assert!(result.complete, "{ran:?}");
        assert_eq!(result.rounds.values().copied().collect::<Vec<_>>(), [2, 2]);
        assert_eq!(result.header.server.version, server.version);
        let compared: Vec<(&str, Metric, &str)> = result
            .comparisons
            .iter()
            .map(|comparison| {
                (comparison.workload.as_str(), comparison.metric, comparison.arm.as_str())
            })
            // Latencies hang on how fast the machine is just now.
            .filter(|(_, metric, _)| !Metric::OF_ROUNDS.contains(metric))
            .collect();
        // Two scripts and three steps, two metrics, two arms beside the baseline.
        assert_eq!(compared.len(), 5 * 2 * 2, "{compared:?}");
        assert!(compared.contains(&("misses", Metric::CpuPerTransaction, "checksums")));
        assert!(compared.contains(&("first-select", Metric::OperationTime, "twin")));
        let file = fs::read_to_string(scratch.path("result/result.json")).unwrap();
        assert_eq!(file, ran.stdout);
        let record = Run::parse(&record(&scratch)).unwrap();
        check_design(&record);
        check_rounds(&record);
        check_samples(&record);
        check_counters(&record, &result);
    }
}

fn record(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.path("result/run.jsonl")).unwrap()
}

/// Slices and operations lie as planned.
fn check_design(run: &Run) {
    let design = &run.header.design;
    let arms = run.header.arms.len();
    let slicings = run.header.workloads.iter().filter_map(|workload| workload.slicing.as_ref());
    let blocks: u32 = slicings.map(|slicing| design.rounds * slicing.blocks_per_round).sum();
    assert_eq!(run.slices.len(), blocks as usize * arms);
    for block in run.slices.chunks(arms) {
        let positions: Vec<u32> = block.iter().map(|slice| slice.position).collect();
        assert_eq!(positions, [1, 2, 3]);
        let mut names: Vec<&str> = block.iter().map(|slice| slice.arm.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["checksums", "off", "twin"]);
    }
    assert!(run.slices.is_sorted_by_key(|slice| slice.start_ns));
    assert_eq!(run.end.as_ref().unwrap().status, EndStatus::Complete);
    let firsts: Vec<&Operation> =
        run.operations.iter().filter(|operation| operation.workload == "first-select").collect();
    // Two repetitions, each twice in turns, and then once in one piece.
    assert_eq!(firsts.len(), (2 * 2 + 1) * arms);
    for (start, of_start) in (0..).zip(firsts.chunks(arms)) {
        let mut names: Vec<&str> = of_start.iter().map(|item| item.arm.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["checksums", "off", "twin"]);
        assert!(of_start.iter().all(|item| item.turns.is_some() == (start < 4)), "{start}");
        assert!(of_start.iter().all(|item| item.turns != Some(0)), "{start}");
    }
    // Writers' slices have equally many transactions, readers' are equally long.
    let writes = run.slices.iter().filter(|slice| slice.workload == "writes");
    let counts: std::collections::BTreeSet<u64> = writes.map(|write| write.transactions).collect();
    assert_eq!(counts.len(), 1);
}

/// Slices' sums and rounds' totals fit each other.
fn check_rounds(run: &Run) {
    for round in &run.rounds {
        for arm in &round.arms {
            let slices = run.slices.iter();
            let slices = slices
                .filter(|slice| slice.workload == round.workload && slice.round == round.round);
            let own = slices.filter(|slice| slice.arm == arm.arm);
            let (transactions, cpu_ns) = own.fold((0, 0), |(transactions, cpu_ns), slice| {
                (transactions + slice.transactions, cpu_ns + slice.server_cpu_ns)
            });
            assert!(transactions > 0 && arm.transactions > transactions, "{arm:?}");
            assert!(cpu_ns > 0 && arm.cpu_observed_ns > cpu_ns, "{arm:?}");
            assert!(arm.cpu_reaped_ns + 20_000_000 > arm.cpu_observed_ns, "{arm:?}");
        }
    }
}

/// What samples show grows within a round, up to what its end shows.
fn check_samples(run: &Run) {
    for round in &run.rounds {
        for arm in &round.arms {
            let samples = run.samples.iter();
            let of_round = samples
                .filter(|sample| sample.workload == round.workload && sample.round == round.round);
            let own: Vec<&CounterReading> =
                of_round.filter(|sample| sample.arm == arm.arm).collect();
            assert!(!own.is_empty(), "a round has a sample at its end");
            assert!(own.is_sorted_by_key(|reading| (
                reading.at_ns,
                reading.worked_ns,
                reading.transactions
            )));
            let io = |reading: &CounterReading| {
                reading.io.map(|io| (io.read, io.written, io.read_calls))
            };
            assert!(own.is_sorted_by_key(|reading| (reading.wal_bytes, io(reading))));
            let last = own[own.len() - 1];
            assert!(last.worked_ns > 0 && last.transactions > 0, "{last:?}");
            assert!(last.transactions <= arm.transactions, "{last:?} {arm:?}");
            assert!(last.wal_bytes <= arm.wal_to.bytes_since(arm.wal_from).unwrap(), "{last:?}");
            assert!(last.io.unwrap().read_calls <= arm.io.unwrap().read_calls, "{last:?} {arm:?}");
        }
    }
    let read = |workload: &str| {
        let mut own = run.samples.iter().filter(|sample| sample.workload == workload).rev();
        own.next().unwrap().clone()
    };
    assert!(read("misses").io.unwrap().read_calls > Some(8192 * read("misses").transactions / 2));
    assert!(read("writes").wal_bytes > 0);
}

/// What PostgreSQL documents: a first read after a checkpoint logs each page whose hint bits it
/// sets, with checksums, once; without them nothing.
fn check_counters(run: &Run, result: &RunResult) {
    let first = |arm: &str| {
        let mut all =
            run.operations.iter().filter(|operation| operation.workload == "first-select");
        let own = all.find(|operation| operation.arm == arm).unwrap();
        (own.counters.hint_images(), own.pages.unwrap(), own.counters.wal_bytes)
    };
    let (images, pages, wal_bytes) = first("checksums");
    assert!(pages > 90 && images == pages, "{images} images of {pages} pages");
    assert!(wal_bytes > pages * 8000 && wal_bytes < pages * 8300, "{wal_bytes}");
    assert_eq!(first("off").0, 0);
    let second = run.operations.iter().filter(|operation| operation.workload == "second-select");
    for operation in second {
        assert_eq!(operation.counters.hint_images(), 0, "{operation:?}");
    }
    // Equal work on equal data: the baseline's twin counts the same, but for standby snapshots.
    let value = |arm: &str| {
        let mut all = result.values.iter().filter(|value| value.workload == "writes");
        all.find(|value| value.arm == arm && value.metric == "wal_per_transaction").unwrap().value
    };
    assert!(value("off") > 100.0);
    assert!((value("off") - value("twin")).abs() < 1e-9, "{} {}", value("off"), value("twin"));
}

#[test]
fn a_seed_decides_every_order() {
    let orders = || {
        let scratch = Scratch::new();
        assert_eq!(run(small_measure(&scratch).args(["--seed", "11"])).status, Some(0));
        let run = Run::parse(&record(&scratch)).unwrap();
        run.slices.into_iter().map(|slice| slice.arm).collect::<Vec<_>>()
    };
    let [one, other] = [orders(), orders()];
    // On a busy machine the last round is a shorter one.
    let both = one.len().min(other.len());
    assert!(both >= 30, "{one:?}, {other:?}");
    assert_eq!(one[..both], other[..both]);
}

#[test]
fn the_table_goes_to_stdout_and_everything_else_to_stderr() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).args(["--seed", "7", "--postgres"]).arg(server().bin));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    for (pattern, replacement) in [
        // Chance decides the words, too.
        (r"(?s)\n\nData checksums: .*?\n\nevery server", "\n\n[ANSWER]\n\nevery server"),
        (r"(?s)\n\n(note: .*?\n)?± is", "\n\n[NOTES]\n± is"),
        (r"(/\w+)+/test-\w+", "[SCRATCH]"),
        (r"in /\S*/bin \(named\)", "in [BIN] (named)"),
        (r"run as user .*", "run as user [USER]"),
        (r"PostgreSQL [\d.]+", "PostgreSQL [VERSION]"),
        (r"--postgres \S+", "--postgres [BIN]"),
        (r"measure \S+small.toml", "measure [EXPERIMENT]"),
        // A row that is zero in every arm is left out, and a zero can be chance.
        (r"(?s)\nsteadiness.*?\n\n", "\n[STEADINESS]\n\n"),
        (r"~ ±>999 %", "~ ±99 %"),
        (r"\n (WAL|hint|blocks|disk|file|latency p9\d) [^\n]*", ""),
        (r" \([^()]* left\)", ""),
        (r"(~ )?[+-]?\d[\d.]*( %)?( ±\d[\d.]*)?( %)?", "[N]"),
        (r"~ ±\[N\]", "[N]"),
        (r"[ \t]+", " "),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| {
        insta::assert_snapshot!("measure_stdout", ran.stdout);
        insta::assert_snapshot!("measure_stderr", ran.stderr);
    });
}

#[test]
fn quiet_says_nothing_but_the_result() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).arg("--quiet"));
    assert_eq!(ran.status, Some(0));
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.contains("server CPU us/tx"), "{ran:?}");
}

#[test]
fn an_ordinary_user_measures_too() {
    let scratch = Scratch::new();
    let mut command = program(pgtoll_for_all(&scratch));
    let result = scratch.work().join("result");
    as_ordinary_user(&mut command, &scratch);
    fs::copy(SMALL, scratch.path("small.toml")).unwrap();
    set_mode(&scratch.path("small.toml"), 0o644);
    command.arg("measure").arg(scratch.path("small.toml"));
    command.args(["--rounds", "1", "--round-time", "300ms", "--repetitions", "1"]);
    let clusters = scratch.path("clusters");
    fs::create_dir(&clusters).unwrap();
    set_mode(&clusters, 0o777);
    command.arg("--work-dir").arg(&clusters).arg("--output").arg(&result);
    command.arg("--postgres").arg(server().bin);
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    // One round has no interval; two starts of operations have one.
    let row = |name: &str| ran.stdout.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(!row("server CPU us/tx").contains('%'), "{ran:?}");
    assert!(row("server CPU ms").contains('%'), "{ran:?}");
    assert_eq!(fs::read_dir(clusters).unwrap().count(), 0);
}

#[test]
fn kept_clusters_are_named() {
    let scratch = Scratch::new();
    let ran = run(small_measure(&scratch).args(["--rounds", "1", "--keep"]));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let kept = fs::read_dir(scratch.work()).unwrap().next().unwrap().unwrap().path();
    assert!(ran.stderr.contains(&format!("clusters stay in {}", kept.display())), "{ran:?}");
    for arm in ["off", "checksums", "twin"] {
        assert!(kept.join(arm).join("data/PG_VERSION").is_file());
    }
}

#[test]
fn an_experiment_of_ones_own() {
    let scratch = Scratch::new();
    let file = scratch.path("own.toml");
    let text = r#"
        name = "own"
        question = "Does work_mem matter to a lookup?"
        baseline = "small"
        [[arms]]
        name = "small"
        settings = { work_mem = "64kB" }
        [[arms]]
        name = "large"
        settings = { work_mem = "64MB" }
        [[workloads]]
        name = "lookup"
        title = "lookups"
        script = "select-only"
    "#;
    fs::write(&file, text).unwrap();
    let mut command = crate::support::pgtoll();
    command.arg("measure").arg(&file).args(["--rounds", "2", "--round-time", "300ms", "--json"]);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
    assert!(result.comparisons.iter().all(|comparison| comparison.arm == "large"));
    assert!(result.comparisons.len() >= 3, "{:?}", result.comparisons);
    assert!(result.answers[0].contains("against small, "), "{:?}", result.answers);
}

#[test]
fn the_built_in_experiment_has_a_quick_form() {
    let scratch = Scratch::new();
    let mut command = crate::support::pgtoll();
    command.args(["measure", "--quick", "--scale", "1", "--round-time", "300ms", "--json"]);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    let ran = run(&mut command);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("warning: read-only-misses: shared_buffers of 16MB"), "{ran:?}");
    let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
    assert!(result.complete);
    assert!(result.header.command.iter().any(|word| word == "--quick"));
    scratch.assert_empty();
}

/// Twins of earlier runs widen the intervals of later ones; a run's own twin does not.
#[test]
fn precision_stops_a_run_and_twins_calibrate_the_next() {
    let scratch = Scratch::new();
    let state = scratch.path("state");
    let measure = |name: &str, arguments: &[&str]| -> RunResult {
        let mut command = crate::support::pgtoll();
        command.args(["measure", SMALL, "--repetitions", "0", "--json"]).args(arguments);
        command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path(name));
        let ran = run(command.env("XDG_STATE_HOME", &state));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let first = measure("1", &["--precision", "100%", "--budget", "3m", "--round-time", "100ms"]);
    let planned = first.header.design.rounds;
    assert!(first.complete && planned > 20, "{planned}");
    // Such slices have no precision at all, but 100 % is not much to ask for.
    let enough = first.rounds.values().all(|rounds| (6..planned).contains(rounds));
    assert!(enough, "{:?} of {planned}", first.rounds);
    assert!(first.header.calibration.is_empty());
    assert!(first.comparisons.iter().all(|comparison| comparison.widening.is_none()));
    let file = state.join("pgtoll/twins.jsonl");
    let lines = fs::read_to_string(&file).unwrap();
    let nulls = first.comparisons.iter().filter(|comparison| comparison.null).count();
    assert!(nulls >= 6, "two workloads; CPU, rate, latency: {lines}");
    assert_eq!(lines.lines().count(), nulls, "{lines}");
    // As of five runs; the same run over again would count once.
    let of_run = |run: u32| lines.replace("\"started\":\"", &format!("\"started\":\"{run}-"));
    let of_runs: String = (1..=5).map(of_run).collect();
    fs::write(&file, format!("not json\n{of_runs}")).unwrap();

    let second = measure("2", &["--rounds", "2", "--round-time", "100ms"]);
    let calibration = &second.header.calibration;
    for metric in Metric::OF_SLICES {
        let of_metric =
            calibration.iter().find(|calibration| calibration.metric == metric).unwrap();
        assert!(of_metric.widening >= 1.0 && of_metric.comparisons == 10, "{calibration:?}");
        let mut compared =
            second.comparisons.iter().filter(|comparison| comparison.metric == metric);
        assert!(compared.all(|compared| compared.widening.is_some()));
    }
    let again = fs::read_to_string(&file).unwrap();
    // Two rounds calibrate nothing, but say how wide the intervals of a quick look are.
    let of_second = second.comparisons.iter().filter(|comparison| comparison.null).count();
    assert_eq!(again.lines().count(), nulls * 5 + 1 + of_second, "{again}");
    let third = measure("3", &["--rounds", "2", "--round-time", "100ms"]);
    assert_eq!(third.header.calibration, second.header.calibration);
    let table = run(crate::support::pgtoll().arg("report").arg(scratch.path("2"))).stdout;
    let words: Vec<&str> = table.split_whitespace().collect();
    let legend = "Widened by what earlier runs here showed of twins: server CPU us/tx 1.";
    assert!(words.join(" ").contains(&legend[..legend.len() - 2]), "{table}");
}

/// The same seed does the same work on a cluster that another initdb made: to the byte.
#[test]
fn counters_are_the_same_in_two_fresh_clusters() {
    let counted = || {
        let scratch = Scratch::new();
        let mut command = small_measure(&scratch);
        let ran = run(command.args(["--seed", "3", "--rounds", "1", "--repetitions", "0"]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        Run::parse(&record(&scratch)).unwrap().counted
    };
    let one = counted();
    let other = counted();
    assert_eq!(one.len(), 6);
    for (one, other) in one.iter().zip(&other) {
        assert_eq!((&one.workload, &one.arm), (&other.workload, &other.arm));
        let of_work = |counters: &pgtoll_record::Counters| {
            let mut types = counters.wal_by_type.clone();
            // A timer writes them.
            types.remove("Standby/RUNNING_XACTS");
            (types, counters.wal_images, counters.blocks_read)
        };
        assert_eq!(of_work(&one.counters), of_work(&other.counters), "{}", one.arm);
    }
}
