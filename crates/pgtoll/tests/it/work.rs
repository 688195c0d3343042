//! Work of every kind: scripts of one's own, programs, open loops, crossovers, limits of memory.

use std::fs;

use pgtoll_cluster::MemoryGroup;
use pgtoll_record::{Metric, Run, RunResult, Verdict, Work};

use crate::support::{Ran, Scratch, pgtoll, run, server};

/// A run with these arguments, and what it printed.
fn measure(scratch: &Scratch, arguments: &[&str]) -> Ran {
    let mut command = pgtoll();
    command.arg("measure").args(arguments).arg("--json");
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    command.arg("--postgres").arg(server().bin);
    run(&mut command)
}

fn result(ran: &Ran) -> RunResult {
    assert_eq!(ran.status, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn recorded(scratch: &Scratch) -> Run {
    let text = fs::read_to_string(scratch.path("result").join("run.jsonl")).unwrap();
    Run::parse(&text).unwrap()
}

/// Two arms without a difference, and one workload.
fn experiment(scratch: &Scratch, head: &str, arms: &str, workload: &str) -> String {
    let path = scratch.path("own.toml");
    let text = format!(
        "name = \"own\"\nquestion = \"Does it work?\"\nbaseline = \"one\"\n{head}\n{arms}\n\
         [[workloads]]\nname = \"work\"\ntitle = \"work\"\n{workload}\n"
    );
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

const TWINS: &str = "[[arms]]\nname = \"one\"\n[[arms]]\nname = \"other\"\ntwin_of = \"one\"";

const SHORT: [&str; 4] = ["--rounds", "2", "--round-time", "400ms"];

fn with<'a>(texts: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [texts, more].concat()
}

#[test]
fn scripts_of_ones_own_run_on_tables_of_ones_own() {
    let scratch = Scratch::on_disk();
    let write = |name: &str, text: &str| {
        fs::write(scratch.path(name), text).unwrap();
        scratch.path(name).to_string_lossy().into_owned()
    };
    let setup =
        write("schema.sql", "CREATE TABLE item AS SELECT i FROM generate_series(1, 500) i;");
    let often = write(
        "often.sql",
        "\\set id random(1, 500)\nSELECT i AS found FROM item WHERE i = :id \\gset\n\
         \\if :found > 250\nSELECT 1;\n\\endif\n",
    ) + "@3";
    let rarely = write("rarely.sql", "INSERT INTO item VALUES (0);");
    let arguments = ["--workload", &often, "--workload", &rarely, "--setup", &setup];
    let file = experiment(&scratch, "", TWINS, "script = \"select-only\"");
    let ran = measure(&scratch, &with(&with(&[&file], &arguments), &SHORT));
    let result = result(&ran);
    let Work::Script { scripts, .. } = &result.header.workloads[0].work else { panic!() };
    let weights: Vec<u32> = scripts.iter().map(|script| script.weight).collect();
    assert_eq!(weights, [3, 1]);
    assert!(
        scripts.iter().all(|script| script.text.as_ref().is_some_and(|text| text.contains("item")))
    );
    // A quarter of 1000 transactions insert, give or take five standard deviations.
    let run = recorded(&scratch);
    let inserts: Vec<u64> = run
        .counted
        .iter()
        .map(|counted| counted.counters.wal_by_type["Heap/INSERT"].records)
        .collect();
    assert!((180..320).contains(&inserts[0]), "{inserts:?}");
    assert_eq!(inserts[0], inserts[1], "the same seed");
    let again = result.header.command.join(" ");
    assert!(again.contains("rarely.sql") && again.contains("--setup"), "{again}");
}

#[test]
fn a_mistake_in_a_script_is_told_with_its_place() {
    let scratch = Scratch::on_disk();
    let script = scratch.path("wrong.sql");
    fs::write(&script, "SELECT 1;\n\\set x 1 +\n").unwrap();
    let path = script.to_string_lossy();
    let ran = measure(&scratch, &["checksums", "--workload", &path]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("wrong.sql") && ran.stderr.contains("line 2"), "{ran:?}");
    let ran = measure(&scratch, &["checksums", "--workload", "no-such-script"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("no script \"no-such-script\""), "{ran:?}");
    // The server's opinion of a statement, and in which script.
    fs::write(&script, "SELECT nothing FROM nowhere;").unwrap();
    let file = experiment(&scratch, "", TWINS, "script = \"select-only\"");
    let ran = measure(&scratch, &with(&[&file, "--workload", &path], &SHORT));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("\"nowhere\" does not exist"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn a_program_makes_the_load() {
    let scratch = Scratch::on_disk();
    let pgbench = server().program("pgbench").unwrap();
    let command = format!("{} -n -S -c 2 -T 9999", pgbench.display());
    let file = experiment(&scratch, "", TWINS, "script = \"select-only\"");
    let arguments = ["--rounds", "3", "--round-time", "1s", "--slice", "100ms"];
    let result = result(&measure(&scratch, &with(&[&file, "--workload", &command], &arguments)));
    let metrics: Vec<Metric> =
        result.comparisons.iter().map(|comparison| comparison.metric).collect();
    assert_eq!(metrics, Metric::OF_SLICES);
    assert!(
        result.comparisons.iter().all(|comparison| comparison.rounds == 3 && comparison.pairs == 3)
    );
    let run = recorded(&scratch);
    assert_eq!(run.slices.len(), 3 * 2 * 5);
    for round in &run.rounds {
        assert!(round.arms.iter().all(|arm| arm.transactions > 100), "{round:?}");
    }
    scratch.assert_empty();
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a short run's numbers are far below 2^53")]
fn clients_work_at_the_same_time() {
    let scratch = Scratch::on_disk();
    // Three and pgtoll's own session: whoever comes without the others, or has no number of its own, divides by zero.
    let text = "SELECT 1 / (count(*) >= 4)::int FROM pg_stat_activity \
                WHERE backend_type = 'client backend';\n\
                SELECT 1 / (:client_id IN (0, 1, 2))::int;\n";
    fs::write(scratch.path("read.sql"), text).unwrap();
    fs::write(scratch.path("write.sql"), "INSERT INTO sold VALUES (:client_id);\n").unwrap();
    let workloads = "script = \"read.sql\"\nclients = 3\n[[workloads]]\nname = \"writes\"\n\
                     title = \"writes\"\nscript = \"write.sql\"\nclients = 3\n";
    let setup = "setup = \"CREATE TABLE sold (client int)\"";
    let file = experiment(&scratch, setup, TWINS, workloads);
    let result = result(&measure(&scratch, &with(&[&file], &SHORT)));
    let workload = &result.header.workloads[0];
    let Work::Script { clients, .. } = workload.work else { panic!("{workload:?}") };
    assert_eq!((clients, workload.slicing.as_ref().unwrap().one_cpu), (3, Some(false)));
    let run = recorded(&scratch);
    // In a second three clients wait for their answers nearly three seconds.
    for round in run.rounds.iter().filter(|round| round.workload == "work") {
        for latency in &round.latencies {
            let slices = run.slices.iter().filter(|slice| {
                (&*slice.workload, slice.round, &slice.arm) == ("work", round.round, &latency.arm)
            });
            let mut transactions = 0;
            let mut duration_ns = 0;
            for slice in slices {
                transactions += slice.transactions;
                duration_ns += slice.duration_ns;
            }
            let waited_ns = latency.mean_ns.unwrap() * transactions as f64;
            assert!(waited_ns > 1.5 * duration_ns as f64, "{waited_ns} of {duration_ns}");
        }
    }
    // Where they write, slices have equally many transactions of all clients together.
    let mut counts: Vec<u64> = run
        .slices
        .iter()
        .filter(|slice| slice.workload == "writes")
        .map(|slice| slice.transactions)
        .collect();
    counts.dedup();
    assert!(matches!(counts[..], [count] if count >= 3), "{counts:?}");
}

#[test]
fn a_program_that_ends_too_early_is_told() {
    let scratch = Scratch::on_disk();
    let file = experiment(&scratch, "", TWINS, "script = \"select-only\"");
    let command = "echo no load today; exit 3";
    let ran = measure(&scratch, &with(&[&file, "--workload", command], &SHORT));
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("ended by itself (exit status 3)"), "{ran:?}");
    assert!(ran.stderr.contains("no load today"), "{ran:?}");
    scratch.assert_empty();
}

#[test]
fn an_open_loop_shows_latencies_at_its_rate() {
    let scratch = Scratch::on_disk();
    let file = experiment(&scratch, "", TWINS, "script = \"select-only\"");
    let arguments = ["--workload", "select-only", "--rate", "400", "--slice", "500ms"];
    let rounds = ["--rounds", "2", "--round-time", "2100ms"];
    let result = result(&measure(&scratch, &with(&with(&[&file], &arguments), &rounds)));
    let metrics: Vec<Metric> =
        result.comparisons.iter().map(|comparison| comparison.metric).collect();
    assert!(!metrics.contains(&Metric::TransactionsPerSecond), "{metrics:?}");
    assert!(metrics.contains(&Metric::LatencyMedian), "{metrics:?}");
    let run = recorded(&scratch);
    // Two rounds of two slices of 200 transactions each on average; Poisson's spread is 28.
    for arm in ["one", "other"] {
        let own = run.slices.iter().filter(|slice| slice.arm == arm);
        let transactions: u64 = own.map(|slice| slice.transactions).sum();
        assert!((650..950).contains(&transactions), "{transactions}");
    }
    assert!(run.rounds.iter().all(|round| round.latencies.len() == 2));
}

#[test]
fn a_crossover_changes_settings_of_one_cluster() {
    let scratch = Scratch::on_disk();
    let arms = "[[arms]]\nname = \"one\"\nsettings = { wal_compression = \"off\" }\n\
                [[arms]]\nname = \"other\"\nsettings = { wal_compression = \"on\" }";
    let work = "script = \"simple-update\"\ncounted = 300";
    let file = experiment(&scratch, "crossover = true", arms, work);
    let result = result(&measure(&scratch, &with(&[&file], &SHORT)));
    assert!(result.header.design.crossover);
    let wal = |arm: &str| {
        let mut all = result.values.iter().filter(|value| value.metric == "wal_per_transaction");
        all.find(|value| value.arm == arm).unwrap().value
    };
    assert!(wal("other") < wal("one") / 2.0, "{} {}", wal("one"), wal("other"));
    let run = recorded(&scratch);
    // Both arms worked in every block, and one server is behind them.
    assert!(run.rounds.iter().all(|round| round.arms.len() == 1));
    assert!(run.slices.chunks(2).all(|block| block[0].arm != block[1].arm));
    scratch.assert_empty();
}

#[test]
fn what_cannot_be_crossed_over_is_refused() {
    let scratch = Scratch::on_disk();
    let refuse = |setting: &str, values: (&str, &str), expected: &str| {
        let (one, other) = values;
        let arms = format!(
            "[[arms]]\nname = \"one\"\nsettings = {{ {setting} = \"{one}\" }}\n\
             [[arms]]\nname = \"other\"\nsettings = {{ {setting} = \"{other}\" }}"
        );
        let file = experiment(&scratch, "crossover = true", &arms, "script = \"select-only\"");
        let ran = measure(&scratch, &with(&[&file], &SHORT));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    };
    refuse("full_page_writes", ("on", "off"), "has an effect on the next arm's: no crossover");
    refuse("max_connections", ("20", "30"), "takes effect at a restart only");
    scratch.assert_empty();
}

#[test]
fn servers_with_less_memory_than_data_read_from_the_disk() {
    let scratch = Scratch::on_disk();
    let head = "scale = 12\n[settings]\nshared_buffers = \"8MB\"\nmax_connections = \"20\"";
    let work = "script = \"select-only\"\nmemory = \"64MB\"";
    let file = experiment(&scratch, head, TWINS, work);
    let ran = measure(&scratch, &with(&[&file], &["--rounds", "2", "--round-time", "2s"]));
    // Where no group can be made the run has to say so.
    if MemoryGroup::create("work", 64 << 20).and_then(MemoryGroup::remove).is_ok() {
        let result = result(&ran);
        let run = recorded(&scratch);
        for arm in run.rounds.iter().flat_map(|round| &round.arms) {
            let memory = arm.memory.unwrap();
            assert!(memory.limit_hits > 0 && memory.peak_bytes.unwrap() <= 64 << 20, "{memory:?}");
            assert!(arm.io.unwrap().read > 1 << 20, "{:?}", arm.io);
        }
        let reads = result.values.iter().find(|value| value.metric == "disk_read_per_transaction");
        assert!(reads.unwrap().value > 1000.0);
        let table = run_report(&scratch);
        assert!(table.contains("work, 64MB of memory a server: 2 rounds"), "{table}");
    } else {
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("memory"), "{ran:?}");
    }
    scratch.assert_empty();
}

fn run_report(scratch: &Scratch) -> String {
    run(pgtoll().arg("report").arg(scratch.path("result"))).stdout
}

#[test]
fn the_steps_of_a_load_add_up() {
    let scratch = Scratch::on_disk();
    let work = "table = \"pgbench_accounts\"\ntotal = \"all\"\nsteps = [\n\
        { pgbench = \"dt\" },\n\
        { pgbench = \"g\", measure = \"rows\" },\n\
        { pgbench = \"vp\", measure = \"keys\" },\n]";
    let arms = "[[arms]]\nname = \"one\"\n[[arms]]\nname = \"other\"\nchecksums = true";
    let file = experiment(&scratch, "", arms, work);
    let result = result(&measure(&scratch, &[&file, "--repetitions", "1"]));
    let names: Vec<&str> =
        result.header.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["rows", "keys", "all"]);
    let run = recorded(&scratch);
    let sum = |name: &str, operation: fn(&pgtoll_record::Operation) -> u64| -> u64 {
        run.operations.iter().filter(|one| one.workload == name).map(operation).sum()
    };
    let amounts: [fn(&pgtoll_record::Operation) -> u64; 2] =
        [|one| one.duration_ns, |one| one.counters.wal_bytes];
    for amount in amounts {
        assert_eq!(sum("rows", amount) + sum("keys", amount), sum("all", amount));
    }
    // COPY of 100,000 rows, which have 84 bytes of filler each, twice in each of two arms.
    assert!(sum("rows", |one| one.counters.wal_bytes) > 4 * 8_400_000);
    assert!(run.operations.iter().all(|one| one.server_cpu_ns > 0));
}

/// A handicap that is known to be there is found: every other transaction of one arm does more.
#[test]
fn a_planted_handicap_is_found() {
    let scratch = Scratch::on_disk();
    let script = scratch.path("handicap.sql");
    let text = "\\set odd random(0, 1)\n\
        SELECT current_setting('pgtoll.handicap')::int AS handicap \\gset\n\
        \\if :handicap = 1 and :odd = 1\n\
        SELECT count(*) FROM generate_series(1, 2000);\n\\endif\n";
    fs::write(&script, text).unwrap();
    let arms = "[[arms]]\nname = \"one\"\nsettings = { \"pgtoll.handicap\" = \"0\" }\n\
        [[arms]]\nname = \"handicap\"\nsettings = { \"pgtoll.handicap\" = \"1\" }\n\
        [[arms]]\nname = \"twin\"\ntwin_of = \"one\"\nsettings = { \"pgtoll.handicap\" = \"0\" }";
    let work = format!("script = \"{}\"", script.display());
    let file = experiment(&scratch, "", arms, &work);
    let result = result(&measure(&scratch, &[&file, "--rounds", "6", "--round-time", "1s"]));
    let handicap = result.comparisons.iter().find(|comparison| {
        comparison.arm == "handicap" && comparison.metric == Metric::CpuPerTransaction
    });
    let handicap = handicap.unwrap();
    assert_eq!(handicap.verdict, Verdict::Costs, "{handicap:?}");
    assert!(handicap.ratio.lower > 1.2, "{handicap:?}");
}
