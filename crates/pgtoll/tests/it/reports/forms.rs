//! Each form against the rules of those who read it.

use pgtoll_report::ReportedRecord as _;
use std::collections::BTreeSet;

use pgtoll_estimate::NamedRun;

use super::{small_text, summarised};

/// Every form of these records, each as strictly read as its readers would.
pub(super) fn check_all(records: &[NamedRun<'_>]) {
    check_csv(&pgtoll_report::csv(records));
    check_openmetrics(&pgtoll_report::openmetrics(records));
    check_gobench(&pgtoll_report::gobench(records));
    for record in records {
        check_markdown(&pgtoll_report::markdown(record.result));
    }
    if let (true, Ok(together)) = (records.len() > 1, pgtoll_estimate::side_by_side(records)) {
        check_markdown(&together.markdown());
        assert!(!together.text(&pgtoll_report::TableOptions::default()).is_empty());
    }
}

/// RFC 4180: as many fields in each row, and lines end in CR LF.
fn check_csv(text: &str) {
    assert!(text.ends_with("\r\n"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let value = reader.headers().unwrap().iter().position(|header| header == "value").unwrap();
    for row in reader.records() {
        row.unwrap()[value].parse::<f64>().unwrap();
    }
}

/// Families are not interleaved, metadata precede samples, no series comes twice, the end is
/// marked.
pub(crate) fn check_openmetrics(text: &str) {
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    let mut families = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut family = "";
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let words: Vec<&str> = rest.splitn(3, ' ').collect();
            let [kind, name, text] = words[..] else { panic!("{line}") };
            match kind {
                "TYPE" => {
                    assert!(families.insert(name), "interleaved: {line}");
                    assert_eq!(text, "gauge");
                    family = name;
                }
                "UNIT" => assert!(name.ends_with(&format!("_{text}")), "{line}"),
                "HELP" => assert!(!text.contains(['\\', '"'])),
                _ => panic!("{line}"),
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').expect(line);
        assert_eq!(name, family, "{line}");
        let value = after_labels(rest).expect(line);
        value.strip_prefix(' ').expect(line).parse::<f64>().expect(line);
        let labels = &rest[..rest.len() - value.len()];
        assert!(series.insert((name, labels)), "twice: {line}");
    }
}

/// What follows `name="value",…}`, if that is well formed.
fn after_labels(mut text: &str) -> Option<&str> {
    let mut names = BTreeSet::new();
    loop {
        let (name, rest) = text.split_once("=\"")?;
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if !plain || !names.insert(name) {
            return None;
        }
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => drop(characters.next().filter(|(_, c)| "\\\"n".contains(*c))?),
                (at, '"') => break at,
                _ => {}
            }
        };
        text = &rest[end + 1..];
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None => return text.strip_prefix('}'),
        }
    }
}

/// Go's form of benchmarks: configuration, units, results and remarks, and nothing else.
fn check_gobench(text: &str) {
    for line in text.lines() {
        if line.starts_with("# ") {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.iter().all(|word| !word.is_empty()), "{line:?}");
        if let ["Unit", _, facts @ ..] = words.as_slice() {
            assert!(!facts.is_empty() && facts.iter().all(|fact| fact.split_once('=').is_some()));
        } else if let Some(name) = words[0].strip_prefix("Benchmark") {
            assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{line}");
            let parts: Vec<&str> = name.split('/').collect();
            assert!(parts.len() == 2 && parts[1].starts_with("arm="), "{line}");
            let (_, processors) = name.rsplit_once('-').expect(line);
            processors.parse::<u32>().expect(line);
            assert!(words[1].parse::<u64>().expect(line) > 0);
            let mut units = BTreeSet::new();
            for pair in words[2..].chunks(2) {
                assert!(pair[0].parse::<f64>().expect(line).is_finite());
                assert!(units.insert(pair[1]), "{line}");
            }
            assert!(!units.is_empty(), "{line}");
        } else {
            let key = words[0].strip_suffix(':').expect(line);
            assert!(key.chars().all(|c| c.is_ascii_lowercase()), "{line}");
        }
    }
}

/// Each row of a table has as many cells as its head.
fn check_markdown(text: &str) {
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let mut columns = None;
    for line in text.lines() {
        if line.starts_with('|') {
            assert_eq!(*columns.get_or_insert(cells(line)), cells(line), "{line}");
        } else {
            columns = None;
        }
    }
}

#[test]
fn forms_are_what_their_readers_expect() {
    let text = small_text();
    let (run, result) = summarised(&text).unwrap();
    let small = NamedRun { name: "small", run: &run, result: &result };
    check_all(&[small]);
    check_all(&[small, NamedRun { name: "a, \"b\"\nc\\", ..small }]);
}

#[test]
fn names_that_mean_something_in_a_form_are_quoted_there() {
    // As JSON says them: a record may come from anywhere.
    for hostile in
        [r"a\n# EOF\nb", r#"a\",arm=\"b"#, r"| a | <b> \\", " a  b=/c\\t", "=SUM(1)", "", "1"]
    {
        let text = small_text().replace(":\"checksums\"", &format!(":\"{hostile}\""));
        let text = text.replace(":\"misses\"", &format!(":\"{hostile}\""));
        let (run, result) = summarised(&text).unwrap();
        assert!(!result.comparisons.is_empty());
        check_all(&[NamedRun { name: "hostile", run: &run, result: &result }]);
    }
}

#[test]
fn a_round_is_a_line_for_benchstat() {
    let (run, result) = summarised(&small_text()).unwrap();
    let text = pgtoll_report::gobench(&[NamedRun { name: "small", run: &run, result: &result }]);
    let lines = |begin: &str, unit: &str| {
        text.lines().filter(|line| line.starts_with(begin) && line.ends_with(unit)).count()
    };
    assert_eq!(lines("BenchmarkMisses/arm=checksums-2 ", " p99-ns"), 3);
    assert_eq!(lines("BenchmarkFirstSelect/arm=checksums-2 ", " ns/op"), 2);
    assert!(text.contains("Unit WAL-B/page better=lower assume=exact\n"));
}
