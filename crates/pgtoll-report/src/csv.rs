//! Results as CSV (RFC 4180), in long form: a row a figure.

use std::borrow::Cow;

use pgtoll_estimate::{NamedRun, key};
use pgtoll_record::{CSV_COLUMNS, Comparison, Interval, MetricValue};
use serde::Serialize;

use crate::printable::printable;

/// A row for each workload, arm and metric of each record, below a row of titles.
pub fn csv(records: &[NamedRun<'_>]) -> String {
    let terminator = csv::Terminator::CRLF;
    let mut writer =
        csv::WriterBuilder::new().terminator(terminator).has_headers(false).from_writer(Vec::new());
    // What goes into memory cannot fail, and every row has the same fields.
    let mut written = writer.write_record(CSV_COLUMNS);
    for record in records {
        for value in &record.result.values {
            written = written.and_then(|()| writer.serialize(row(record, value)));
        }
    }
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}

#[derive(Serialize)]
struct Row<'a> {
    record: Cow<'a, str>,
    workload: Cow<'a, str>,
    arm: Cow<'a, str>,
    metric: Cow<'a, str>,
    value: f64,
    unit: Cow<'a, str>,
    exact: bool,
    ratio: Option<f64>,
    ratio_lower: Option<f64>,
    ratio_upper: Option<f64>,
    verdict: Option<pgtoll_record::Verdict>,
    rounds: Option<u32>,
    widening: Option<f64>,
    complete: bool,
}

fn row<'a>(record: &NamedRun<'a>, value: &'a MetricValue) -> Row<'a> {
    let comparison = comparison(record, value);
    let ratio =
        |interval: fn(&Interval) -> f64| comparison.map(|comparison| interval(&comparison.ratio));
    Row {
        record: cell(record.name),
        workload: cell(&value.workload),
        arm: cell(&value.arm),
        metric: cell(&value.metric),
        value: value.value,
        unit: cell(&value.unit),
        exact: value.exact,
        ratio: ratio(|item| item.estimate),
        ratio_lower: ratio(|item| item.lower),
        ratio_upper: ratio(|item| item.upper),
        verdict: comparison.map(|comparison| comparison.verdict),
        rounds: comparison.map(|comparison| comparison.rounds),
        widening: comparison.and_then(|comparison| comparison.widening),
        complete: record.result.complete,
    }
}

/// A spreadsheet takes a cell that begins like a formula for one; an apostrophe in front makes text of
/// it (OWASP, CSV injection). Numbers stay numbers.
fn cell(text: &str) -> Cow<'_, str> {
    const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    let text = printable(text);
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    if text.starts_with(FORMULA) && !is_number { format!("'{text}").into() } else { text }
}

/// The comparison of which this is the arm's own value.
fn comparison<'a>(record: &NamedRun<'a>, value: &MetricValue) -> Option<&'a Comparison> {
    let mut all = record.result.comparisons.iter();
    all.find(|comparison| {
        comparison.workload == value.workload
            && comparison.arm == value.arm
            && key(comparison.metric).0 == value.metric
    })
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn formulas_become_text() {
        let check = |text: &str, expected: &str| assert_eq!(cell(text), expected);
        check("=HYPERLINK(\"http://example.org\")", "'=HYPERLINK(\"http://example.org\")");
        check("@SUM(A1)", "'@SUM(A1)");
        check("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0");
        check("+1", "+1");
        check("-2.5e3", "-2.5e3");
        check("\t=1+1", "\\t=1+1");
        check("\r=1+1", "\\r=1+1");
        check("checksums", "checksums");
    }
}
