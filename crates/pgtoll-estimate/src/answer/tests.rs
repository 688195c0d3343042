use pgtoll_record::{AdvisedAction, Metric, Run, RunResult};

use super::*;
use crate::summarise;

const RECORD: &str = include_str!("../../../../records/2026-11-22-pg15/run.jsonl");

fn run() -> Run {
    Run::parse(RECORD).unwrap()
}

#[test]
fn the_sentence_is_about_checksums() {
    let answer = summarise(&run()).answer.unwrap();
    assert_eq!(
        answer.headline,
        "Data checksums: +5.9 % [+4.3, +7.4] server CPU per transaction (read-only, all misses); single \
         operations: up to +135 % [+108, +166] server CPU (first SELECT of new rows)."
    );
    let advice = answer.advice.unwrap();
    assert_eq!((advice.arm.as_str(), advice.action), ("checksums", AdvisedAction::MeasureFirst));
    assert!(advice.rule.starts_with("turn on when the upper bounds are at most 5 % of server CPU"));
    let decides = "server CPU per transaction of read-only, all misses: upper bound +7.4 %";
    assert_eq!(answer.decides.as_deref(), Some(decides));
}

/// A cost of CPU that is small enough does not outweigh much more WAL.
#[test]
fn wal_decides_where_cpu_is_cheap() {
    let action = |extra_wal: f64| {
        let run = run();
        let RunResult { mut comparisons, mut values, .. } = summarise(&run);
        let header = &run.header;
        for compared in comparisons.iter_mut().filter(|compared| compared.arm == "checksums") {
            compared.ratio = Interval { estimate: 1.01, lower: 1.0, upper: 1.02 };
        }
        let workload = &comparisons
            .iter()
            .find(|comparison| comparison.metric == Metric::CpuPerTransaction)
            .unwrap()
            .workload;
        let first = values[0].clone();
        let wal = |arm: &str, value| MetricValue {
            workload: workload.clone(),
            arm: arm.to_owned(),
            metric: "wal_per_transaction".to_owned(),
            value,
            ..first.clone()
        };
        let both = [wal(&header.baseline, 400.0), wal("checksums", 400.0 * extra_wal)];
        values.retain(|value| value.metric != both[0].metric);
        values.extend(both);
        let answer = answer(header, &comparisons, &values, &[]).unwrap();
        (answer.advice.unwrap().action, answer.decides.unwrap())
    };
    assert_eq!(action(1.0).0, AdvisedAction::TurnOn);
    let (advised, decides) = action(1.25);
    assert_eq!(advised, AdvisedAction::MeasureFirst);
    assert!(decides.starts_with("WAL +25 % of "), "{decides}");
    assert_eq!(action(2.5).0, AdvisedAction::Leave);
}

#[test]
fn each_arm_has_a_line_for_each_workload() {
    let answer = summarise(&run()).answer.unwrap();
    let figures = |arm: &str, workload: &str| {
        let item = answer.lines.iter().filter(|line| line.arm == arm && line.workload == workload);
        item.map(|line| line.figure.as_str()).collect::<Vec<_>>()
    };
    let hints = figures("hints", "read-only-misses");
    assert_eq!(hints, ["no difference seen, at most 1.0 % more"]);
    let checksums = figures("checksums", "read-only-misses");
    assert_eq!(checksums.len(), 2, "{checksums:?}");
    assert_eq!(checksums[1], "8.2 % [6.8, 9.9] of user CPU");
    let first = figures("checksums", "first-select");
    assert_eq!(first, ["+135 % [+108, +166]", "WAL 8224 bytes a page"]);
    let vacuum = figures("checksums", "load-vacuum");
    assert_eq!(vacuum, ["WAL +135 %"]);
    let causes: Vec<&str> = answer.lines.iter().filter_map(|line| line.cause.as_deref()).collect();
    let expected = [
        "function pg_checksum*",
        "hint bits, an image of each page, once",
        "from none",
        "from 7.51 to 17.7 bytes a page",
    ];
    assert_eq!(causes[..4], expected);
    let noisy: Vec<_> = answer.lines.iter().filter(|line| line.too_noisy).collect();
    assert!(noisy.iter().all(|noisy| noisy.figure.starts_with("too noisy to decide")), "{noisy:?}");
    assert!(answer.lines.iter().all(|line| line.arm != "twin"));
}

/// With a precision of its user's, what is that narrow is resolved.
#[test]
fn precision_says_what_is_resolved() {
    let mut run = run();
    let open = |run: &Run| {
        let result = summarise(run);
        let comparison = result
            .comparisons
            .iter()
            .filter(|comparison| comparison.verdict == Verdict::NotResolved);
        comparison.count()
    };
    let before = open(&run);
    run.header.design.precision = Some(0.5);
    assert!(open(&run) < before && before > 0);
    let answer = summarise(&run).answer.unwrap();
    assert!(answer.lines.iter().all(|line| !line.too_noisy), "{answer:?}");
    assert_eq!(answer.surer, None);
    run.header.design.precision = Some(0.001);
    let surer = summarise(&run).answer.unwrap().surer.unwrap();
    assert!(surer.contains(" to ±0.1 %"), "{surer}");
}

#[test]
fn what_would_make_it_surer_has_a_time() {
    let surer = summarise(&run()).answer.unwrap().surer.unwrap();
    let first = "2 more minutes would narrow read-only, all misses to ±1 %; ";
    assert!(surer.starts_with(first), "{surer}");
    assert_eq!(longer(30.0), "1 more minute");
    assert_eq!(longer(7200.0), "120 more minutes");
    assert_eq!(longer(7300.0), "3 more hours");
    assert_eq!(longer(f64::INFINITY), "more than 24 hours");
}

#[test]
fn without_rounds_there_is_what_was_counted_or_nothing() {
    let mut run = run();
    run.rounds.clear();
    run.slices.clear();
    run.operations.retain(|operation| operation.repetition == 1);
    let answer = summarise(&run).answer.unwrap();
    assert_eq!(answer.advice, None);
    assert!(answer.headline.contains("WAL"), "{answer:?}");
    run.operations.clear();
    run.counted.clear();
    run.profiles.clear();
    assert_eq!(summarise(&run).answer, None);
}

#[test]
fn an_answer_is_read_back() {
    let answer = summarise(&run()).answer.unwrap();
    let read: RunAnswer = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
    let output = |answer: &RunAnswer| {
        answer.lines.iter().map(|line| line.figure.clone()).collect::<Vec<_>>()
    };
    assert_eq!((&read.headline, output(&read)), (&answer.headline, output(&answer)));
}

#[test]
fn thousands_are_parted() {
    for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(thousands(number), expected);
    }
}
