//! Lines for Nagios, read by Perl's `Monitoring::Plugin`; rules and gauges, read by Prometheus's `promtool`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use pgtoll_cluster::Cluster;

use crate::support::{Ran, Scratch, flip, pgtoll, program, run, server};

/// A plugin's line: its status and words, and its performance data as the parser reads them.
fn parsed(ran: &Ran) -> (String, Vec<String>) {
    let line = ran.stdout.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{ran:?}");
    let (words, data) = line.split_once(" | ").unwrap_or((line, ""));
    let script = "for (Monitoring::Plugin::Performance->parse_perfstring($ARGV[0])) \
                  { print $_->label, '=', $_->value, $_->uom // '', qq(\\n) }";
    let read = run(program("perl").args(["-MMonitoring::Plugin::Performance", "-e", script, data]));
    assert_eq!(read.status, Some(0), "{read:?}");
    // It leaves out what it cannot read.
    let figures: Vec<String> = read.stdout.lines().map(str::to_owned).collect();
    assert_eq!(figures.len(), data.split_whitespace().count(), "{line}");
    (words.to_owned(), figures)
}

/// Flips a bit in the middle of the first page of `pg_class`.
fn damage(data: &Path) {
    let mut paths: Vec<_> =
        fs::read_dir(data.join("base/1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let has_pages = |path: &&std::path::PathBuf| fs::metadata(path).unwrap().len() >= 8192;
    let is_relation = |path: &&std::path::PathBuf| {
        path.file_name().unwrap().to_str().unwrap().bytes().all(|byte| byte.is_ascii_digit())
    };
    let path = paths.iter().filter(is_relation).find(has_pages).unwrap();
    flip(path, 8000);
}

#[test]
fn a_line_for_nagios_says_what_the_record_says() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "checked", true).unwrap();
    let data = cluster.data();
    let check = || run(pgtoll().args(["--quiet", "verify", "--format", "nagios"]).arg(&data));
    let ran = check();
    let (words, figures) = parsed(&ran);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(words.starts_with("PGTOLL OK: "), "{words}");
    assert_eq!(figures[..2], ["failures=0", "suspicions=0"]);
    assert!(figures.last().unwrap().ends_with('B'), "{figures:?}");

    let record = scratch.path("verify.json");
    let kept = run(pgtoll().args(["--quiet", "verify", "-o"]).arg(&record).arg(&data));
    assert_eq!(kept.status, Some(0), "{kept:?}");
    let report =
        |age: &[&str]| run(pgtoll().args(["report", "--format", "nagios"]).args(age).arg(&record));
    assert_eq!(report(&[]).stdout, ran.stdout);
    assert_eq!(report(&["--max-age", "1d"]).stdout, ran.stdout);
    let text = fs::read_to_string(&record).unwrap();
    let (before, behind) = text.split_once("\"made\": \"20").unwrap();
    for other in ["19", "21"] {
        fs::write(&record, format!("{before}\"made\": \"{other}{behind}")).unwrap();
        let ran = report(&["--max-age", "1d"]);
        let (words, _) = parsed(&ran);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(words.starts_with("PGTOLL CRITICAL: the record is of "), "{words}");
        assert_eq!(report(&[]).status, Some(0));
    }

    damage(&data);
    let ran = check();
    let (words, figures) = parsed(&ran);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(words.starts_with("PGTOLL CRITICAL: "), "{words}");
    assert_eq!(figures[0], "failures=1");
    cluster.remove(&mut guard).unwrap();
}

#[test]
fn nagios_hears_of_every_failure() {
    let check = |words: &[&str]| {
        let ran = run(pgtoll().args(words));
        let (line, figures) = parsed(&ran);
        assert_eq!((ran.status, figures.is_empty()), (Some(3), true), "{ran:?}");
        assert!(!ran.stderr.is_empty());
        line
    };
    let line = check(&["verify", "--format", "nagios", "/nowhere"]);
    assert!(line.starts_with("PGTOLL UNKNOWN: ") && line.contains("/nowhere"), "{line}");
    let line = check(&["verify", "--format=nagios", "--unheard-of", "/nowhere"]);
    assert!(line.contains("--unheard-of"), "{line}");
    let line = check(&["checkup", "--format", "nagios", "--dsn", "host=/nowhere password=geheim"]);
    assert!(line.contains("/nowhere") && !line.contains("geheim"), "{line}");
    let line = check(&["verify", "--format", "nagios", "--output", "/nowhere/a", "/nowhere"]);
    assert!(line.contains("is for stdout"), "{line}");
    let ran = run(pgtoll().args(["report", "--max-age", "1d", "/nowhere"]));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("--format nagios"), "{ran:?}");
}

/// The rules as a server of Prometheus decides them.
const RULE_TESTS: &str = r#"
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'pgtoll_verify_failures{path="/d"}', values: '0x9 1x300'}
      - {series: 'pgtoll_verify_suspicions{path="/d"}', values: '0x400'}
      - {series: 'pgtoll_verify_unverified_blocks{path="/d"}', values: '2x400'}
      - {series: 'pgtoll_verify_unlisted{path="/d"}', values: '0x400'}
      - {series: 'pgtoll_patrol_oldest_page_time_seconds{path="/d"}', values: '0x400'}
      - {series: 'pgtoll_patrol_within_seconds{path="/d"}', values: '7200x400'}
    alert_rule_test:
      - {eval_time: 9m, alertname: PgtollDamagedPages}
      - eval_time: 11m
        alertname: PgtollDamagedPages
        exp_alerts:
          - exp_labels: {severity: critical, path: /d}
            exp_annotations: {summary: "1 damaged pages in /d", description: DAMAGED}
      - {eval_time: 170m, alertname: PgtollUnverifiedPages}
      - eval_time: 185m
        alertname: PgtollUnverifiedPages
        exp_alerts:
          - exp_labels: {severity: warning, path: /d}
            exp_annotations:
              {summary: "2 blocks or directories in /d could not be verified", description: UNVERIFIED}
      - {eval_time: 170m, alertname: PgtollPatrolLate}
      - eval_time: 190m
        alertname: PgtollPatrolLate
        exp_alerts:
          - exp_labels: {severity: warning, path: /d}
            exp_annotations:
              {summary: "A page in /d was not read for 3h 10m 0s", description: LATE}
"#;

#[test]
fn prometheus_takes_the_rules_and_they_fire_when_they_should() {
    let scratch = Scratch::new();
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    let rules = fs::canonicalize(deployed.join("pgtoll-patrol.rules.yml")).unwrap();
    let checked = run(program("promtool").args(["check", "rules"]).arg(&rules));
    assert_eq!(checked.status, Some(0), "{checked:?}");
    let text: serde_json::Value =
        serde_saphyr::from_str(&fs::read_to_string(&rules).unwrap()).unwrap();
    let mut tests = RULE_TESTS.replace("RULES", rules.to_str().unwrap());
    for (number, place) in ["DAMAGED", "UNVERIFIED", "LATE"].into_iter().enumerate() {
        let words = &text["groups"][0]["rules"][number]["annotations"]["description"];
        tests = tests.replace(place, &words.to_string());
    }
    let path = scratch.path("rules.test.yml");
    fs::write(&path, tests).unwrap();
    let tested = run(program("promtool").args(["test", "rules"]).arg(&path));
    assert_eq!(tested.status, Some(0), "{tested:?}");
}

#[test]
fn prometheus_takes_the_gauges() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let cluster = Cluster::init(&mut guard, &server(), "gauges", true).unwrap();
    let ran =
        run(pgtoll().args(["--quiet", "verify", "--format", "openmetrics"]).arg(cluster.data()));
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let report = |record: &str| {
        run(pgtoll().args(["report", "--format", "openmetrics"]).arg(records.join(record))).stdout
    };
    for gauges in [ran.stdout, report("2026-11-23-pg18"), report("2026-11-29-checkup.json")] {
        let mut child = program("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(gauges.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    cluster.remove(&mut guard).unwrap();
}
