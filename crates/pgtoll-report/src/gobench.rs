//! Results in the form of Go's benchmarks, which `benchstat` reads: a line a round.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pgtoll_estimate::{NamedRun, by_round, is_cut_off, metrics};
use pgtoll_record::{Metric, Run, Work, Workload};

use crate::printable::{is_unprintable, printable};

/// A line for each arm of each round or repetition, and one for what was counted. Only of several
/// records each has a line `record: …`, so that `benchstat` tells the files of single ones apart
/// by itself.
pub fn gobench(records: &[NamedRun<'_>]) -> String {
    let mut text = units(records);
    for record in records {
        text.push_str(&configuration(record, records.len() > 1));
        for note in &record.result.notes {
            let _ = writeln!(text, "# {}", in_one_line(note));
        }
        for workload in &record.run.header.workloads {
            let header = &record.run.header;
            for arm in &header.arms {
                let benchmark = format!(
                    "Benchmark{}/arm={}-{}",
                    title_case(&workload.name),
                    word(&arm.name),
                    header.host.cores
                );
                text.push_str(&rounds(record.run, workload, &arm.name, &benchmark));
                text.push_str(&counted(record, workload, &arm.name, &benchmark));
            }
        }
    }
    text
}

/// Returns the configuration for all lines that follow. What differs between any two runs is not in it: `benchstat`
/// compares only what has the same configuration.
fn configuration(record: &NamedRun<'_>, several: bool) -> String {
    let header = &record.run.header;
    let mut lines = Vec::new();
    if several {
        lines.push(("record", record.name.to_owned()));
    }
    lines.extend([
        ("pgtoll", header.pgtoll.clone()),
        ("postgresql", header.server.version.to_string()),
        ("experiment", header.experiment.clone()),
        ("scale", header.design.scale.to_string()),
        ("cpu", header.host.cpu.clone()),
    ]);
    let mut text = String::new();
    for (key, value) in lines {
        let _ = writeln!(text, "{key}: {}", in_one_line(&value));
    }
    text
}

fn rounds(run: &Run, workload: &Workload, arm: &str, benchmark: &str) -> String {
    let mut lines: BTreeMap<u32, (f64, Vec<String>)> = BTreeMap::new();
    let metrics = metrics(workload).into_iter().filter(|_| workload.timed);
    for metric in metrics.filter(|metric| !is_cut_off(run, workload, *metric)) {
        let (unit, factor) = unit(metric);
        for (round, (numerator, denominator)) in by_round(run, workload, metric, arm) {
            let value = numerator / denominator * factor;
            let (iterations, values) = lines.entry(round).or_default();
            if is_per_work(metric) {
                *iterations = denominator;
            }
            if value.is_finite() {
                values.push(format!("{value} {unit}"));
            }
        }
    }
    let mut text = String::new();
    for (iterations, values) in lines.into_values().filter(|(_, values)| !values.is_empty()) {
        let _ = writeln!(text, "{benchmark} {:.0} {}", iterations.max(1.0), values.join(" "));
    }
    text
}

/// The metric is divided by transactions or operations: by what Go calls iterations.
fn is_per_work(metric: Metric) -> bool {
    matches!(metric, Metric::CpuPerTransaction | Metric::CpuPerOperation)
}

/// A metric's unit, and what a sample's ratio is multiplied by.
fn unit(metric: Metric) -> (&'static str, f64) {
    match metric {
        Metric::CpuPerTransaction => ("cpu-ns/tx", 1.0),
        Metric::TransactionsPerSecond => ("tx/s", 1.0),
        Metric::LatencyMedian => ("p50-ns", 1.0),
        Metric::LatencyP90 => ("p90-ns", 1.0),
        Metric::LatencyP95 => ("p95-ns", 1.0),
        Metric::LatencyP99 => ("p99-ns", 1.0),
        Metric::LatencyStddev => ("stddev-ns", 1.0),
        Metric::CpuPerOperation => ("cpu-ns/op", 1.0),
        Metric::OperationTime => ("ns/op", 1e9),
        Metric::ClientCpuPerOperation => ("client-cpu-ns/op", 1.0),
    }
}

fn counted(record: &NamedRun<'_>, workload: &Workload, arm: &str, benchmark: &str) -> String {
    let values = record.result.values.iter();
    let values = values.filter(|value| value.workload == workload.name && value.arm == arm);
    let values =
        values.filter_map(|value| Some(format!("{} {}", value.value, unit_of(&value.metric)?)));
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        return String::new();
    }
    format!("{benchmark} {} {}\n", iterations(record.run, workload, arm), values.join(" "))
}

fn iterations(run: &Run, workload: &Workload, arm: &str) -> u64 {
    if matches!(workload.work, Work::Operation { .. }) {
        let own = run
            .operations
            .iter()
            .filter(|operation| operation.workload == workload.name && operation.arm == arm);
        return own.count().max(1) as u64;
    }
    let mut counted = run.counted.iter();
    let own = counted.find(|counted| counted.workload == workload.name && counted.arm == arm);
    own.map_or(1, |counted| counted.transactions.max(1))
}

/// Counters of equal work: `per transaction` and `per page`, their unit in each, and whether they
/// come out the same each time.
const COUNTERS: [(&str, &str, bool); 7] = [
    ("wal", "WAL-B", true),
    ("wal_images", "WAL-images", true),
    ("hint_images", "hint-images", true),
    ("blocks_read", "blocks-read", true),
    ("blocks_written", "blocks-written", true),
    ("disk_read", "disk-reads-B", false),
    ("file_writes", "file-writes-B", false),
];

fn unit_of(metric: &str) -> Option<String> {
    if metric == "cpu_system_share" {
        return Some("cpu-in-kernel-%".to_owned());
    }
    if metric == "io_workers_cpu_share" {
        return Some("io-workers-cpu-%".to_owned());
    }
    let (counter, per) = metric.rsplit_once("_per_")?;
    let per = match per {
        "transaction" => "tx",
        "page" => "page",
        _ => return None,
    };
    let (_, unit, _) = COUNTERS.iter().find(|(name, _, _)| *name == counter)?;
    Some(format!("{unit}/{per}"))
}

/// Returns the units for `benchstat`: the better direction, and those that do not vary.
fn units(records: &[NamedRun<'_>]) -> String {
    let mut text = String::new();
    for metric in Metric::ALL {
        let better = if metric.more_is_worse() { "lower" } else { "higher" };
        let _ = writeln!(text, "Unit {} better={better}", unit(metric).0);
    }
    let values = || records.iter().flat_map(|record| &record.result.values);
    let varies: BTreeSet<String> =
        values().filter(|item| !item.exact).filter_map(|item| unit_of(&item.metric)).collect();
    let all: BTreeSet<String> = values().filter_map(|item| unit_of(&item.metric)).collect();
    for unit in all.difference(&varies) {
        let _ = writeln!(text, "Unit {unit} better=lower assume=exact");
    }
    text
}

/// `read-only-misses` as `ReadOnlyMisses`: a benchmark's name begins with a capital letter.
fn title_case(name: &str) -> String {
    let name = word(name);
    let parts = name.split(['-', '_']).map(|part| {
        let mut characters = part.chars();
        let first = characters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(characters).collect::<String>()
    });
    let title: String = parts.collect();
    // A digit is no capital letter.
    if title.starts_with(|c: char| c.is_ascii_uppercase()) { title } else { format!("W{title}") }
}

fn in_one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// In one word, without what separates parts of names or is not printed.
fn word(name: &str) -> String {
    let separates = |c: char| c.is_whitespace() || "/=*".contains(c) || is_unprintable(c);
    name.chars().map(|c| if separates(c) { '_' } else { c }).collect()
}
