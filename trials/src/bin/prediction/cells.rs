//! Rows of tables, and what stands in them.

use std::fmt::Write as _;

use pgtoll_record::trials::PredictionTrialRange as Range;

use crate::trial::Truth;

pub(crate) fn row<S: AsRef<str>>(text: &mut String, cells: &[S]) {
    for cell in cells {
        let _ = write!(text, "| {} ", cell.as_ref());
    }
    text.push_str("|\n");
}

pub(crate) fn percent(value: f64) -> String {
    let text = format!("{:+.1}", value * 100.0);
    // There is no less than none.
    if text == "-0.0" { "0.0".to_owned() } else { text.replace("+0.0", "0.0") }
}

pub(crate) fn range(range: &Range) -> String {
    format!("{} [{}, {}]", percent(range.middle), percent(range.lower), percent(range.upper))
}

pub(crate) fn truth(truth: &Truth) -> String {
    let change = percent(truth.change);
    match truth.interval {
        Some((lower, upper)) => format!("{change} [{}, {}]", percent(lower), percent(upper)),
        None => change,
    }
}
