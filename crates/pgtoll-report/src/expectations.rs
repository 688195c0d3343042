//! What was expected, beside what came out, in words.

use pgtoll_estimate::signed_percent;
use pgtoll_record::{Expectation, Expected, ExpectedFigure, Interval, Outcome};

/// In a sentence.
pub(crate) fn sentence(of: &Expected) -> String {
    let expectation = &of.expectation;
    let claim = expectation.claim.as_ref().map(|claim| format!("{claim}: ")).unwrap_or_default();
    let url = expectation.url.as_ref().map(|url| format!(", {url}")).unwrap_or_default();
    let found = found(of).map(|found| format!("{found}: ")).unwrap_or_default();
    let explained = explained(of).map(|why| format!(". {why}")).unwrap_or_default();
    format!(
        "{claim}{}: expected {} ({}{url}): {found}{}{explained}",
        figure(expectation),
        bounds(expectation),
        expectation.source,
        words(of.outcome)
    )
}

/// What is claimed, in words.
pub(crate) fn claim(of: &Expectation) -> String {
    of.claim.clone().unwrap_or_else(|| figure(of))
}

/// What the bounds are of.
pub(crate) fn figure(of: &Expectation) -> String {
    let against = of.against.as_ref().map(|other| format!(" against {other}")).unwrap_or_default();
    format!("{}, {}{against}, {}", of.workload, of.arm, of.metric)
}

/// What is expected.
pub(crate) fn bounds(of: &Expectation) -> String {
    let shown = |number| shown(of, number);
    let unit = unit(of);
    match (of.lower, of.upper) {
        (Some(lower), Some(upper)) => format!("{} to {}{unit}", shown(lower), shown(upper)),
        (Some(lower), None) => format!("at least {}{unit}", shown(lower)),
        (None, Some(upper)) => format!("at most {}{unit}", shown(upper)),
        (None, None) => "anything".to_owned(),
    }
}

/// What came out, with its interval; what was counted has none.
pub(crate) fn found(of: &Expected) -> Option<String> {
    let Interval { estimate, lower, upper } = of.found?;
    let expectation = &of.expectation;
    let shown = |number| shown(expectation, number);
    let how = match ExpectedFigure::named(&expectation.metric) {
        Some(ExpectedFigure::Counted(_)) if of.exact => ", exact".to_owned(),
        Some(ExpectedFigure::Counted(_)) => ", not exact".to_owned(),
        _ => format!(" [{}, {}]", shown(lower), shown(upper)),
    };
    Some(format!("{}{}{how}", shown(estimate), unit(expectation)))
}

fn shown(of: &Expectation, number: f64) -> String {
    if of.relative {
        return signed_percent(number + 1.0, 1);
    }
    format!("{number:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn unit(of: &Expectation) -> &'static str {
    if of.relative { " %" } else { "" }
}

/// Why it came out otherwise, where it did.
pub(crate) fn explained(of: &Expected) -> Option<&str> {
    of.expectation.explained.as_deref().filter(|_| of.outcome != Outcome::Holds)
}

/// Where it was published; a record may say anything, so only what is an address of a page.
pub(crate) fn link(of: &Expectation) -> Option<&str> {
    let url = of.url.as_deref()?;
    ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)).then_some(url)
}

pub(crate) fn words(of: Outcome) -> &'static str {
    match of {
        Outcome::Holds => "holds",
        Outcome::DoesNotHold => "does not hold",
        Outcome::NotResolved => "could not be resolved here",
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

    #[track_caller]
    fn check(expectation: Expectation, found: [f64; 3], outcome: Outcome, expected: &str) {
        let found = Interval { estimate: found[0], lower: found[1], upper: found[2] };
        let text = sentence(&Expected { expectation, found: Some(found), exact: true, outcome });
        assert_eq!(text, expected);
    }

    #[test]
    fn a_sentence_has_bounds_interval_and_outcome() {
        let of = |bounds| expectation("cpu_per_transaction", true, bounds);
        let head = "work, on, cpu_per_transaction: expected";
        let bounds = (Some(0.0), Some(0.08));
        check(
            of(bounds),
            [0.059, 0.044, 0.074],
            Outcome::Holds,
            &format!("{head} 0.0 to +8.0 % (S): +5.9 % [+4.4, +7.4]: holds"),
        );
        check(
            of(bounds),
            [0.1, 0.09, 0.11],
            Outcome::DoesNotHold,
            &format!("{head} 0.0 to +8.0 % (S): +10.0 % [+9.0, +11.0]: does not hold"),
        );
        check(
            of(bounds),
            [0.07, 0.05, 0.09],
            Outcome::NotResolved,
            &format!("{head} 0.0 to +8.0 % (S): +7.0 % [+5.0, +9.0]: could not be resolved here"),
        );
        check(
            of((None, Some(0.0))),
            [-0.05, -0.06, -0.04],
            Outcome::Holds,
            &format!("{head} at most 0.0 % (S): -5.0 % [-6.0, -4.0]: holds"),
        );
    }

    #[test]
    fn what_was_counted_has_no_interval() {
        let of = || expectation("wal_per_page", false, (Some(0.9), None));
        let head = "work, on, wal_per_page: expected at least 0.9 (S):";
        check(of(), [0.98; 3], Outcome::Holds, &format!("{head} 0.98, exact: holds"));
        check(of(), [0.5; 3], Outcome::DoesNotHold, &format!("{head} 0.5, exact: does not hold"));
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
        let text = |upper, rest| {
            format!(
                "No cost: work, on against hints, cpu_per_transaction: expected at most {upper} % \
                 (S, https://example.org/): +5.0 % [+4.0, +6.0]: {rest}"
            )
        };
        let found = [0.05, 0.04, 0.06];
        check(claim(0.1), found, Outcome::Holds, &text("+10.0", "holds"));
        let explained = "does not hold. Pages come from the page cache.";
        check(claim(0.01), found, Outcome::DoesNotHold, &text("+1.0", explained));
    }
}
