//! What is said of arms beside what they did: their WAL, predicted from that of the baseline, and
//! the functions in which a step's server was found.

use std::fs;

use pgtoll_record::{Run, RunResult};

use crate::support::{Scratch, pgtoll, run, server, servers_in_turn};

/// All work fits between two checkpoints of the baseline, and half of it of another.
const DISTANCES: &str = r#"
name = "distances"
question = "How much WAL?"
baseline = "far"
scale = 1

[settings]
autovacuum = "off"
bgwriter_lru_maxpages = "0"
checkpoint_timeout = "1d"
max_connections = "20"
min_wal_size = "32MB"
shared_buffers = "64MB"
wal_keep_size = "1GB"

[[arms]]
name = "near"
settings = { max_wal_size = "32MB" }

[[arms]]
name = "far"
settings = { max_wal_size = "1GB" }

[[arms]]
name = "async"
settings = { max_wal_size = "1GB", synchronous_commit = "off" }

[[arms]]
name = "torn"
settings = { max_wal_size = "1GB", full_page_writes = "off" }

[[workloads]]
name = "work"
title = "work"
script = "tpcb-like"
counted = 12000
"#;

#[test]
fn arms_write_what_is_predicted() {
    for server in servers_in_turn(2) {
        let scratch = Scratch::on_disk();
        let file = scratch.path("distances.toml");
        fs::write(&file, DISTANCES).unwrap();
        let mut command = pgtoll();
        command.args([
            "measure",
            "--json",
            "--rounds",
            "2",
            "--round-time",
            "300ms",
            "--seed",
            "1",
        ]);
        command.arg(&file).arg("--work-dir").arg(scratch.work());
        command.arg("--output").arg(scratch.path("result"));
        let ran = run(command.arg("--postgres").arg(&server.bin));
        assert_eq!(ran.status, Some(0), "{} {ran:?}", server.version);
        let result: RunResult = serde_json::from_str(&ran.stdout).unwrap();
        let value = |arm: &str, metric: &str| {
            let mut all = result.values.iter();
            all.find(|value| value.arm == arm && value.metric == metric).map(|value| value.value)
        };
        let wal = |arm: &str| value(arm, "wal_per_transaction").unwrap();
        let predicted = |arm: &str| value(arm, "predicted_wal_per_transaction");
        assert!(wal("near") > wal("far") * 1.3, "{} {}", wal("near"), wal("far"));
        for arm in ["near", "torn"] {
            let error = predicted(arm).unwrap() / wal(arm) - 1.0;
            // A tenth of what the distance does: when checkpoints follow each other without a pause, it
            // is chance where the next one begins.
            assert!(error.abs() < 0.15, "{} {arm}: off by {error}", server.version);
        }
        // The baseline itself, and what differs in something that the model does not know.
        assert_eq!((predicted("far"), predicted("async")), (None, None));
        assert!(result.notes.iter().any(|note| note.starts_with("predicted WAL is")), "{result:?}");
        scratch.assert_empty();
    }
}

#[test]
fn a_step_of_scripts_is_sampled() {
    let text = r#"
name = "sampled"
question = "Where is the time?"
baseline = "one"

[settings]
shared_buffers = "1MB"

[[arms]]
name = "one"

[[arms]]
name = "two"
checksums = true

[[workloads]]
name = "work"
title = "work"
loaded = true
profile = "pg_checksum"
steps = [
    { sql = "CHECKPOINT" },
    { script = "select-only", clients = 2, transactions = 4000, measure = "reads" },
]
"#;
    let scratch = Scratch::on_disk();
    let file = scratch.path("sampled.toml");
    fs::write(&file, text).unwrap();
    let mut command = pgtoll();
    command.args(["measure", "--json", "--repetitions", "1"]).arg(&file);
    command.arg("--work-dir").arg(scratch.work()).arg("--output").arg(scratch.path("result"));
    let ran = run(command.arg("--postgres").arg(&server().bin));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let record = fs::read_to_string(scratch.path("result/run.jsonl")).unwrap();
    let record = Run::parse(&record).unwrap();
    match record.profiles.as_slice() {
        [profile] => {
            assert_eq!((profile.workload.as_str(), profile.arm.as_str()), ("reads", "two"));
            assert!(profile.samples > 0 && profile.samples < profile.of, "{profile:?}");
        }
        // Without `perf`, or where it may not, the record says so.
        [] => assert!(
            record.notes.iter().any(|note| note.contains("was not sampled")),
            "{:?}",
            record.notes
        ),
        more => panic!("{more:?}"),
    }
    scratch.assert_empty();
}
