use pgtoll_estimate::{overview_experiment, overview_headline, summarise};
use pgtoll_record::{EndStatus, Expectation, Line, OVERVIEW_SCHEMA, Overview, Run};

use super::*;
use crate::html::tests::{assert_well_formed, text_of};
use crate::{Style, overview_html, terminal_table};

/// A record with every kind of line, a few of each.
const SMALL: &str = include_str!("../html/small.jsonl");

/// The small record, with claims, and an arm that is compared with another one.
fn run() -> Run {
    let claim = |workload: &str, metric: &str, against: Option<&str>, most: f64| Expectation {
        workload: workload.into(),
        arm: "checksums".into(),
        metric: metric.into(),
        relative: metric != "wal_per_page",
        against: against.map(str::to_owned),
        lower: None,
        upper: Some(most),
        source: "A. Nybody, a mailing list".into(),
        claim: Some("Nobody will notice".into()),
        url: Some("https://example.org/?a=1&b=2".into()),
        explained: Some("The record is a few seconds long.".into()),
    };
    let mut lines = SMALL.lines();
    let mut header: Line = serde_json::from_str(lines.next().unwrap()).unwrap();
    if let Line::Header(header) = &mut header {
        header.expect = vec![
            claim("read-only-misses", "cpu_per_transaction", Some("hints"), 20.0),
            claim("read-only-misses", "cpu_per_transaction", None, -0.9),
            claim("first-select", "wal_per_page", None, 10.0),
            claim("nowhere", "operation_time", None, 0.0),
        ];
        header.arms[2].against = Some("hints".into());
    }
    let text = [vec![serde_json::to_string(&header).unwrap()], lines.map(str::to_owned).collect()];
    Run::parse(&text.concat().join("\n")).unwrap()
}

fn overview() -> Overview {
    let run = run();
    let experiment = |name: &str, status, reason: Option<&str>| OverviewExperiment {
        name: name.into(),
        question: "What does it cost?".into(),
        baseline: "off".into(),
        status,
        reason: reason.map(str::to_owned),
        skipped: false,
        answer: None,
        answers: Vec::new(),
        comparisons: Vec::new(),
        counted: Vec::new(),
        claims: Vec::new(),
    };
    let complete = experiment("checksums", EndStatus::Complete, None);
    let mut overview = Overview {
        schema: OVERVIEW_SCHEMA.into(),
        pgtoll: "0.1.0".into(),
        name: None,
        started: run.header.started.clone(),
        host: run.header.host.clone(),
        version: run.header.server.version.clone(),
        headline: None,
        experiments: vec![
            overview_experiment(&complete, &summarise(&run)),
            experiment("checksums-disk", EndStatus::Failed, Some("no <group> can be made here")),
            experiment("wal-compression", EndStatus::Interrupted, Some("not begun")),
        ],
    };
    overview.headline = overview_headline(&overview.experiments);
    overview
}

#[test]
fn the_overview_says_what_each_found() {
    let text = overview_text(&overview(), "results", Style::Plain);
    insta::assert_snapshot!("terminal", text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let coloured = overview_text(&overview(), "results", Style::Coloured);
    assert!(coloured.contains("\u{1b}[1m") && coloured.contains("\u{1b}[31m+"), "{coloured}");
    assert_eq!(Style::Coloured.printable(&coloured), coloured);
    let uncoloured = ["0", "1", "2", "31", "32"]
        .iter()
        .fold(coloured, |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(uncoloured, text, "colours take no room");
}

#[test]
fn the_page_says_the_same() {
    let page = overview_html(&overview());
    assert_well_formed(&page);
    insta::assert_snapshot!("page", text_of(&page));
    assert!(page.contains("href=\"./checksums/report.html\""));
    assert!(page.contains("href=\"https://example.org/?a=1&amp;b=2\""));
    assert!(!page.contains("checksums-disk/report.html"), "there is none");
}

#[test]
fn every_row_has_an_interval_or_is_exact() {
    let overview = overview();
    let rows = overview.experiments.iter().flat_map(differences).flat_map(|(_, rows)| rows);
    let rows: Vec<Vec<String>> = rows.collect();
    assert!(rows.len() > 3);
    assert!(rows.iter().all(|row| row[2].contains('[')), "{rows:?}");
    let counted: Vec<_> = overview.experiments.iter().flat_map(counted).collect();
    assert!(counted.len() > 1);
    assert!(counted.iter().all(|(_, words)| words.ends_with("exact")), "{counted:?}");
}

#[test]
fn what_a_record_says_is_text() {
    let mut overview = overview();
    let hostile = "</script><script>alert(1)</script>\"' onload=x &amp;]]>";
    for experiment in &mut overview.experiments {
        for text in [&mut experiment.name, &mut experiment.question, &mut experiment.baseline] {
            hostile.clone_into(text);
        }
        experiment.reason = experiment.reason.as_ref().map(|_| hostile.to_owned());
        experiment.answers.push(hostile.to_owned());
        for comparison in &mut experiment.comparisons {
            hostile.clone_into(&mut comparison.arm);
        }
        for Expectation { claim, url, source, explained, .. } in
            experiment.claims.iter_mut().map(|claim| &mut claim.expectation)
        {
            hostile.clone_into(source);
            *url = Some("javascript:alert(1)".into());
            (*claim, *explained) = (Some(hostile.into()), Some(hostile.into()));
        }
    }
    let page = overview_html(&overview);
    assert_well_formed(&page);
    assert!(!page.contains("href=\"javascript:"));
    overview.experiments.clear();
    assert_well_formed(&overview_html(&overview));
}

/// The difference between two arms is that of their own pairs, not of their differences from the
/// baseline.
#[test]
fn an_arm_is_compared_with_the_one_below() {
    let run = run();
    let result = summarise(&run);
    let pick = |metric| {
        let mut all =
            result.against_others.iter().filter(|item| item.workload == "read-only-misses");
        all.find(|item| item.metric == metric).unwrap()
    };
    let cpu = pick(pgtoll_record::Metric::CpuPerTransaction);
    assert_eq!((cpu.arm.as_str(), cpu.against.as_deref()), ("checksums", Some("hints")));
    // With hints as the baseline it is the same comparison.
    let mut swapped = run.clone();
    swapped.header.baseline = "hints".into();
    let swapped = summarise(&swapped);
    let same = swapped.comparisons.iter().find(|comparison| {
        (comparison.workload.as_str(), comparison.metric, comparison.arm.as_str())
            == ("read-only-misses", cpu.metric, "checksums")
    });
    assert_eq!(same.unwrap().ratio, cpu.ratio);
    // It is the claim's.
    let found = result.expected[0].found.unwrap();
    assert!((found.estimate + 1.0 - cpu.ratio.estimate).abs() < 1e-12);
    let table = terminal_table(&result, Style::Plain);
    let (_, ladder) = table.split_once("each against the one below\n").unwrap();
    assert!(ladder.contains(" checksums against hints "), "{ladder}");
    assert!(crate::markdown(&result).contains("| checksums against hints |"));
    let page = crate::html_report(&run, &result);
    assert_well_formed(&page);
    let text = text_of(&page);
    let rows = text.lines().filter(|line| line.starts_with("checksums against hints |"));
    let intervals: Vec<usize> = rows.map(|row| row.matches(']').count()).collect();
    // Server CPU and transactions a second, or time, under both works.
    assert_eq!(intervals, [2, 2], "{text}");
}
