//! `pgtoll lab judge` on many transactions: what is planted is found, in memory that does not grow with
//! their number. `PGTOLL_TEST_TRANSACTIONS=1000000` makes it a million; by default it is some thousands.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_record::JudgeRecord;
use procfs::process::Process;

use crate::support::{Scratch, ends_within, pgtoll, pid_of, server};

/// Of the process's memory, whatever the number of transactions.
const PEAK_KIB: u64 = 64 << 10;
/// A transaction has two entries in a journal.
const JOURNAL_BYTES: u64 = 64;

fn transactions() -> u64 {
    let requested = std::env::var("PGTOLL_TEST_TRANSACTIONS").ok();
    requested.map_or(20_000, |number| number.parse().expect("a number of transactions"))
}

#[test]
fn a_million_transactions_take_no_more_memory_than_some_thousands() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "many", false).unwrap();
    let settings = [("synchronous_commit", "off"), ("max_wal_size", "4GB"), ("fsync", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    cluster.configure(&mut guard, &settings.into()).unwrap();
    cluster.start(&mut guard).unwrap();
    let journal = scratch.path("journal");
    let (item, load_peak) = written(&cluster, &journal);
    plant(&cluster);
    let mut command = pgtoll();
    command.args(["lab", "judge", "--json", "--dsn", &dsn(&cluster), "--from"]).arg(&journal);
    let (record, peak) = judged(&mut command, &scratch.path("record.json"));
    println!(
        "{item} transactions: peak {load_peak} KiB while they were written, {peak} KiB while they were \
         judged"
    );
    let verdict = record.verdict.as_ref().unwrap();
    assert!(verdict.rows >= item - 64, "{verdict:?}");
    assert_eq!((verdict.lost.count, verdict.ghosts.count), (7, 0), "{verdict:?}");
    assert_eq!((verdict.duplicates.count, verdict.phantoms.count), (3, 2), "{verdict:?}");
    assert!(load_peak < PEAK_KIB && peak < PEAK_KIB, "{load_peak} {peak}");
    cluster.stop(&mut guard, StopMode::Immediate).unwrap();
}

fn dsn(cluster: &Cluster) -> String {
    format!("host={} user=postgres dbname=postgres", cluster.directory().display())
}

/// Lets clients write until so many transactions are in the journals, and kills the judge. Returns their
/// number, and the most memory that it had.
#[expect(clippy::zombie_processes, reason = "the loop ends when it was waited for")]
fn written(cluster: &Cluster, journal: &Path) -> (u64, u64) {
    let mut child = pgtoll()
        .args(["lab", "judge", "--yes", "--for", "1h", "--clients", "32", "--rate", "10000"])
        .args(["--readers", "0", "--dsn", &dsn(cluster), "--journal"])
        .arg(journal)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = 0;
    loop {
        peak = peak.max(peak_kib(&child));
        let in_journals = journal_bytes(journal) / JOURNAL_BYTES;
        if in_journals >= transactions() {
            kill(Pid::from_raw(pid_of(&child)), Signal::SIGKILL).unwrap();
            child.wait().unwrap();
            return (in_journals, peak);
        }
        assert!(!ends_within(pid_of(&child), Duration::from_millis(100)), "it ended by itself");
    }
}

fn journal_bytes(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let journals = files.filter(|file| file.file_name().to_string_lossy().ends_with(".journal"));
    journals.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// `VmHWM`: the most resident memory so far.
fn peak_kib(child: &Child) -> u64 {
    let status = Process::new(pid_of(child)).and_then(|process| process.status());
    status.ok().and_then(|status| status.vmhwm).unwrap_or_default()
}

/// Losses, duplicates and strangers among rows that are surely acknowledged.
fn plant(cluster: &Cluster) {
    let mut session = cluster.connect("postgres").unwrap();
    let sql = "SELECT nspname AS name FROM pg_namespace WHERE nspname LIKE 'pgtoll_judge_%'";
    let schema = session.query_one(sql).unwrap().text("name").unwrap().to_owned();
    for sql in [
        "DELETE FROM {}.transactions WHERE client = 1 AND sequence BETWEEN 100 AND 106",
        "INSERT INTO {0}.transactions SELECT * FROM {0}.transactions WHERE client = 2 AND sequence < 3",
        "INSERT INTO {}.transactions VALUES (77, 1, 2), (0, 1000000000, 3)",
    ] {
        let sql = sql.replace("{}", &schema).replace("{0}", &schema);
        session.execute(&sql).unwrap();
    }
    session.close();
}

/// The record of a judgement, and the most memory that it took.
#[expect(clippy::zombie_processes, reason = "the loop ends when it was waited for")]
fn judged(command: &mut Command, output: &Path) -> (JudgeRecord, u64) {
    let stdout = File::create(output).unwrap();
    let mut child = command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    loop {
        peak = peak.max(peak_kib(&child));
        if ends_within(pid_of(&child), Duration::from_millis(10)) {
            // A run that was killed was not ended by its plan.
            assert_eq!(child.wait().unwrap().code(), Some(1));
            let text = fs::read_to_string(output).unwrap();
            return (serde_json::from_str(&text).unwrap(), peak);
        }
    }
}
