//! Whatever a record says: no form of it panics, and none of them has a character that a terminal or
//! a spreadsheet would obey.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_estimate::{NamedRun, side_by_side, summarise};
use pgtoll_record::{EndStatus, OVERVIEW_SCHEMA, Overview, OverviewExperiment, Run};
use pgtoll_report::{FinishedRecord, Format, TableOptions, is_unprintable};
use serde_json::{Value, json};

/// A record with every kind of line, a few of each.
const SMALL: &str = include_str!("../src/html/small.jsonl");

/// A record, as a list of JSON values, in each of its forms; `None` where it cannot be read.
type Forms = fn(&[Value]) -> Option<Vec<(&'static str, String)>>;

/// Each kind of record: a sample of it, and its forms.
fn kinds() -> Vec<(&'static str, Vec<Value>, Forms)> {
    let finished = |kind: &'static str, text: &str| {
        (kind, vec![serde_json::from_str(text).unwrap()], of_finished as Forms)
    };
    vec![
        ("run", lines(SMALL), of_run as Forms),
        finished("verification", include_str!("fixtures/verification.json")),
        finished("WAL statistics", include_str!("fixtures/wal-statistics.json")),
        finished("WAL what-if", include_str!("fixtures/wal-whatif.json")),
        finished("fleet", include_str!("fixtures/fleet.json")),
        finished("fleet plan", include_str!("fixtures/fleet-plan.json")),
        finished("patrol", include_str!("fixtures/patrol.json")),
        finished("prediction", include_str!("fixtures/prediction.json")),
        finished("checksums", include_str!("fixtures/checksums.json")),
        finished("page", include_str!("fixtures/page.json")),
        finished("page checksums", include_str!("fixtures/page-checksums.json")),
        finished("page difference", include_str!("fixtures/page-difference.json")),
        finished("examination", include_str!("fixtures/examination.json")),
        finished("judge", include_str!("fixtures/judge.json")),
        finished("balance", include_str!("../../../records/2026-11-26-balance.json")),
        finished("bridge", include_str!("../../../records/2026-11-26-bridge.json")),
        finished("exchange", include_str!("../../../records/2026-11-23-exchange.json")),
        finished("corruption", include_str!("../../../records/2026-11-25-corruption.json")),
    ]
}

/// All forms of a finished record.
fn of_finished(values: &[Value]) -> Option<Vec<(&'static str, String)>> {
    let record = FinishedRecord::parse(&text_of(values)).ok()??;
    let short = TableOptions { most: 3, ..TableOptions::default() };
    let full = TableOptions { most: 100, by_type: true, full: true, ..short };
    let forms = [
        ("table", Format::Table, short),
        ("full table", Format::Table, full),
        ("Markdown", Format::Markdown, short),
        ("JSON", Format::Json, short),
        ("HTML", Format::Html, short),
        ("OpenMetrics", Format::OpenMetrics, short),
    ];
    let shown = forms
        .into_iter()
        .filter_map(|(name, format, options)| Some((name, record.shown(format, &options)?)));
    Some(shown.collect())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_run(values: &[Value]) -> Option<Vec<(&'static str, String)>> {
    let run = Run::parse(&text_of(values)).ok()?;
    let result = summarise(&run);
    let named = NamedRun { name: "a=\u{1b}[31m\n/record", run: &run, result: &result };
    let mut forms = vec![
        ("table", pgtoll_report::terminal_table(&result, pgtoll_report::Style::Plain)),
        ("Markdown", pgtoll_report::markdown(&result)),
        ("HTML", pgtoll_report::html_report(&run, &result)),
        ("gobench", pgtoll_report::gobench(&[named, named])),
        ("CSV", pgtoll_report::csv(&[named, named])),
        ("OpenMetrics", pgtoll_report::openmetrics(&[named, named])),
    ];
    if let Ok(together) = side_by_side(&[named, named]) {
        forms.extend(of_finished(&[serde_json::to_value(together).unwrap()])?);
    }
    let experiment = OverviewExperiment {
        name: result.header.experiment.clone(),
        question: String::new(),
        baseline: String::new(),
        status: EndStatus::Failed,
        reason: Some("\u{1b}]0;title\u{7}".into()),
        skipped: false,
        answer: None,
        answers: Vec::new(),
        comparisons: Vec::new(),
        counted: Vec::new(),
        claims: Vec::new(),
    };
    let overview = Overview {
        schema: OVERVIEW_SCHEMA.into(),
        pgtoll: result.header.pgtoll.clone(),
        name: None,
        started: result.header.started.clone(),
        host: result.header.host.clone(),
        version: result.header.server.version.clone(),
        headline: None,
        experiments: vec![pgtoll_estimate::overview_experiment(&experiment, &result)],
    };
    forms.extend([
        (
            "overview",
            pgtoll_report::overview_text(
                &overview,
                "a\u{202e}directory",
                pgtoll_report::Style::Plain,
            ),
        ),
        ("HTML overview", pgtoll_report::overview_html(&overview)),
    ]);
    Some(forms)
}

/// Nothing of what a terminal obeys, and nothing that begins a line of its own.
const HOSTILE: &str = "=\u{1b}[31m\u{1b}]0;t\u{7}\r\nINJECTED \u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\u{9b}2J\u{e0041}\u{2028}\t|";

#[test]
fn no_form_has_a_character_that_a_terminal_obeys() {
    for (kind, record, forms) in kinds() {
        let hostile = with_hostile_strings(&record, forms);
        assert_ne!(hostile, record, "{kind}");
        for (form, text) in forms(&hostile).unwrap() {
            // Browsers take a tab for a space.
            let is_space = |c| c == '\n' || (c == '\t' && form.starts_with("HTML"));
            let text = text.replace("\r\n", "\n");
            let line =
                text.lines().find(|line| line.contains(|c| is_unprintable(c) && !is_space(c)));
            assert_eq!(line, None, "{kind}, {form}");
            let lined = ["CSV", "gobench", "OpenMetrics", "Markdown"].contains(&form);
            let begins = |line: &str| line.starts_with("INJECTED");
            assert!(!lined || !unfenced(&text).any(begins), "{kind}, {form}:\n{text}");
            assert!(form != "CSV" || !text.contains(",="), "{text}");
        }
    }
}

/// Lines that are not within a fence of Markdown, where nothing has a meaning.
fn unfenced(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// Each string that can be any, and each key of a map, behind hostile text: the same names stay the
/// same.
fn with_hostile_strings(record: &[Value], forms: Forms) -> Vec<Value> {
    let mut strings = BTreeSet::new();
    for record in record {
        collect_strings(record, &mut strings);
    }
    let is_readable = |changed: &[Value]| match record.len() {
        1 => forms(changed).is_some(),
        _ => changed.iter().all(is_line) && Run::parse(&text_of(changed)).is_ok(),
    };
    let mut hostile = record.to_vec();
    for string in strings {
        let changed: Vec<Value> =
            hostile.iter().map(|hostile| replaced(hostile, &string)).collect();
        if is_readable(&changed) {
            hostile = changed;
        }
    }
    hostile
}

/// A line that this version reads.
fn is_line(line: &Value) -> bool {
    serde_json::from_value::<pgtoll_record::Line>(line.clone()).is_ok()
}

fn text_of(record: &[Value]) -> String {
    record.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

fn collect_strings(json: &Value, strings: &mut BTreeSet<String>) {
    match json {
        Value::String(text) => drop(strings.insert(text.clone())),
        Value::Array(all) => all.iter().for_each(|item| collect_strings(item, strings)),
        Value::Object(fields) => {
            for (name, value) in fields {
                strings.insert(name.clone());
                collect_strings(value, strings);
            }
        }
        _ => {}
    }
}

fn replaced(value: &Value, string: &str) -> Value {
    let own =
        |text: &String| if text == string { format!("{HOSTILE}{text}") } else { text.clone() };
    match value {
        Value::String(text) => Value::String(own(text)),
        Value::Array(all) => all.iter().map(|item| replaced(item, string)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (own(name), replaced(field, string))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn no_number_makes_a_form_panic() {
    std::thread::scope(|scope| {
        for (kind, record, forms) in kinds() {
            scope.spawn(move || try_numbers(kind, &record, forms));
        }
    });
}

fn try_numbers(kind: &str, record: &[Value], forms: Forms) {
    let fields = numbers(record);
    assert!(fields.len() > 2, "{kind}");
    let mut all = 0;
    let mut read = 0;
    let mut try_at = |places: &[Place], value: &Value| {
        all += 1;
        read += u32::from(forms(&with_number(record, places, value)).is_some());
    };
    let milder = milder_numbers();
    for (turn, places) in fields.values().enumerate() {
        // All of them together, and one by itself: differences are as bad as sums.
        try_at(&places[..1], &json!(u64::MAX));
        for value in [json!(u64::MAX), json!(-1), json!(1e308)] {
            try_at(places, &value);
        }
        // Each of these at every field takes as long as all else here: the fields share them.
        try_at(places, &milder[turn % milder.len()]);
    }
    assert!(read > all / 8, "{kind}: {read} of {all} were read");
}

#[test]
fn no_number_of_a_whole_record_makes_a_form_panic() {
    let record = include_str!("../../../records/2026-11-22-insert-update/run.jsonl");
    let record = lines(record);
    for places in numbers(&record).values() {
        let changed = with_number(&record, places, &json!(u64::MAX));
        assert!(
            of_run(&changed).is_none_or(|forms| forms.iter().all(|(_, text)| !text.is_empty()))
        );
    }
}

fn milder_numbers() -> [Value; 6] {
    [json!(0), json!(u16::MAX), json!(u32::MAX), json!(i64::MAX), json!(-1e308), Value::Null]
}

/// A line and the way to a value in it.
type Place = (usize, String);

/// Where numbers are, by their field: the kind of line and the way to them without indices.
fn numbers(record: &[Value]) -> BTreeMap<String, Vec<Place>> {
    let mut fields: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for (line, value) in record.iter().enumerate() {
        let tag = value.get("t").and_then(Value::as_str).unwrap_or_default();
        collect_numbers(value, "", &mut |way| {
            let parts = way.split('/').filter(|part| part.parse::<usize>().is_err());
            let field = format!("{tag}{}", parts.collect::<Vec<_>>().join("/"));
            fields.entry(field).or_default().push((line, way.to_owned()));
        });
    }
    fields
}

fn collect_numbers(value: &Value, way: &str, found: &mut dyn FnMut(&str)) {
    match value {
        Value::Number(_) => found(way),
        Value::Array(all) => {
            for (index, item) in all.iter().enumerate() {
                collect_numbers(item, &format!("{way}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect_numbers(field, &format!("{way}/{name}"), found);
            }
        }
        _ => {}
    }
}

fn with_number(record: &[Value], places: &[Place], value: &Value) -> Vec<Value> {
    let mut changed = record.to_vec();
    for (line, way) in places {
        *changed[*line].pointer_mut(way).unwrap() = value.clone();
    }
    changed
}
