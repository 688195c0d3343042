//! Expectations beside results, in words.

use std::fmt::Write as _;

use pgtoll_estimate::signed_percent;
use pgtoll_record::{Expectation, Expected, ExpectedFigure, Interval, Outcome};

use crate::text::{aligned, wrapped};

/// As a table for a terminal, each below the name of what it is about where that has one: the
/// outcome, what was expected and what was found, then the claim and its source.
pub(crate) fn claims_text<'a>(
    claims: impl Iterator<Item = (Option<&'a str>, &'a Expected)> + Clone,
) -> String {
    let cells = claims.clone().map(|(_, claim)| {
        let found = found(claim).unwrap_or_else(|| "-".to_owned());
        vec![describe(claim.outcome).to_owned(), bounds(&claim.expectation), found]
    });
    let head = ["claims", "expected", "found"].map(str::to_owned).to_vec();
    let rows = aligned(vec![head], vec![(String::new(), cells.collect())]);
    let mut lines = rows.lines();
    let mut text = lines.next().map(|head| format!("{head}\n")).unwrap_or_default();
    // The title of the only block is empty.
    for (row, (name, item)) in lines.skip(1).zip(claims) {
        let _ = writeln!(text, "{row}");
        let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
        text.push_str(&wrapped("    ", &format!("{name}{}", about(item))));
    }
    text
}

/// The claim, where it was made, and why it came out otherwise.
fn about(expected: &Expected) -> String {
    let expectation = &expected.expectation;
    let claim = expectation.claim.as_ref().map(|claim| format!("{claim}: ")).unwrap_or_default();
    let url = expectation.url.as_ref().map(|url| format!(", {url}")).unwrap_or_default();
    let explained = explained(expected).map(|why| format!(". {why}")).unwrap_or_default();
    format!("{claim}{} ({}{url}){explained}", figure(expectation), expectation.source)
}

/// Returns the claim in words.
pub(crate) fn claim(expectation: &Expectation) -> String {
    expectation.claim.clone().unwrap_or_else(|| figure(expectation))
}

/// Returns the figure of the bounds.
pub(crate) fn figure(expectation: &Expectation) -> String {
    let against =
        expectation.against.as_ref().map(|other| format!(" against {other}")).unwrap_or_default();
    format!("{}, {}{against}, {}", expectation.workload, expectation.arm, expectation.metric)
}

/// Returns the expected bounds.
pub(crate) fn bounds(expectation: &Expectation) -> String {
    let shown = |number| shown(expectation, number);
    let unit = unit(expectation);
    match (expectation.lower, expectation.upper) {
        (Some(lower), Some(upper)) => format!("{} to {}{unit}", shown(lower), shown(upper)),
        (Some(lower), None) => format!("at least {}{unit}", shown(lower)),
        (None, Some(upper)) => format!("at most {}{unit}", shown(upper)),
        (None, None) => "anything".to_owned(),
    }
}

/// Returns the result with its interval; counted figures have none.
pub(crate) fn found(expected: &Expected) -> Option<String> {
    let Interval { estimate, lower, upper } = expected.found?;
    let expectation = &expected.expectation;
    let shown = |number| shown(expectation, number);
    let how = match ExpectedFigure::named(&expectation.metric) {
        Some(ExpectedFigure::Counted(_)) if expected.exact => ", exact".to_owned(),
        Some(ExpectedFigure::Counted(_)) => ", not exact".to_owned(),
        _ => format!(" [{}, {}]", shown(lower), shown(upper)),
    };
    Some(format!("{}{}{how}", shown(estimate), unit(expectation)))
}

fn shown(expectation: &Expectation, number: f64) -> String {
    if expectation.relative {
        return signed_percent(number + 1.0, 1);
    }
    format!("{number:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn unit(expectation: &Expectation) -> &'static str {
    if expectation.relative { " %" } else { "" }
}

/// Why it came out otherwise, where it did.
pub(crate) fn explained(expected: &Expected) -> Option<&str> {
    expected.expectation.explained.as_deref().filter(|_| expected.outcome != Outcome::Holds)
}

/// Returns the link to the publication, if it is the address of a page.
pub(crate) fn link(expectation: &Expectation) -> Option<&str> {
    let url = expectation.url.as_deref()?;
    ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)).then_some(url)
}

pub(crate) fn describe(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Holds => "holds",
        Outcome::DoesNotHold => "does not hold",
        Outcome::NotResolved => "not resolved here",
        Outcome::NotMeasured => "not measured",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation(
        metric: &str,
        relative: bool,
        bounds: (Option<f64>, Option<f64>),
    ) -> Expectation {
        Expectation {
            workload: "work".into(),
            arm: "on".into(),
            metric: metric.into(),
            relative,
            against: None,
            lower: bounds.0,
            upper: bounds.1,
            source: "S".into(),
            claim: None,
            url: None,
            explained: None,
        }
    }

    fn text(expectation: Expectation, found: [f64; 3], outcome: Outcome) -> String {
        let found = Interval { estimate: found[0], lower: found[1], upper: found[2] };
        let expected = Expected { expectation, found: Some(found), exact: true, outcome };
        claims_text(std::iter::once((None, &expected)))
    }

    #[track_caller]
    fn check(expectation: Expectation, found: [f64; 3], outcome: Outcome, expected: [&str; 3]) {
        let text = text(expectation, found, outcome);
        let row = text.lines().nth(1).unwrap();
        let cells: Vec<&str> =
            row.split("  ").map(str::trim).filter(|item| !item.is_empty()).collect();
        assert_eq!(cells, expected, "{text}");
        assert!(text.lines().nth(2).unwrap().starts_with("    work, on, "), "{text}");
    }

    #[test]
    fn a_row_has_outcome_bounds_and_interval() {
        let pick = |bounds| expectation("cpu_per_transaction", true, bounds);
        let bounds = (Some(0.0), Some(0.08));
        let expected = ["holds", "0.0 to +8.0 %", "+5.9 % [+4.4, +7.4]"];
        check(pick(bounds), [0.059, 0.044, 0.074], Outcome::Holds, expected);
        let expected = ["does not hold", "0.0 to +8.0 %", "+10.0 % [+9.0, +11.0]"];
        check(pick(bounds), [0.1, 0.09, 0.11], Outcome::DoesNotHold, expected);
        let expected = ["not resolved here", "0.0 to +8.0 %", "+7.0 % [+5.0, +9.0]"];
        check(pick(bounds), [0.07, 0.05, 0.09], Outcome::NotResolved, expected);
        let expected = ["holds", "at most 0.0 %", "-5.0 % [-6.0, -4.0]"];
        check(pick((None, Some(0.0))), [-0.05, -0.06, -0.04], Outcome::Holds, expected);
    }

    #[test]
    fn what_was_counted_has_no_interval() {
        let pick = || expectation("wal_per_page", false, (Some(0.9), None));
        check(pick(), [0.98; 3], Outcome::Holds, ["holds", "at least 0.9", "0.98, exact"]);
        let expected = ["does not hold", "at least 0.9", "0.5, exact"];
        check(pick(), [0.5; 3], Outcome::DoesNotHold, expected);
    }

    #[test]
    fn a_claim_that_does_not_hold_is_explained() {
        let claim = |upper| Expectation {
            against: Some("hints".into()),
            claim: Some("No cost".into()),
            url: Some("https://example.org/".into()),
            explained: Some("Pages come from the page cache.".into()),
            ..expectation("cpu_per_transaction", true, (None, Some(upper)))
        };
        let found = [0.05, 0.04, 0.06];
        let output = |upper, outcome| {
            let text = text(claim(upper), found, outcome);
            let about: Vec<&str> = text.lines().skip(2).map(str::trim).collect();
            about.join(" ")
        };
        let about =
            "No cost: work, on against hints, cpu_per_transaction (S, https://example.org/)";
        assert_eq!(output(0.1, Outcome::Holds), about);
        let explained = format!("{about}. Pages come from the page cache.");
        assert_eq!(output(0.01, Outcome::DoesNotHold), explained);
    }
}
