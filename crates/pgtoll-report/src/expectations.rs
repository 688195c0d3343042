//! What was expected, beside what came out.

use pgtoll_record::{
    Comparison, Expectation, Expected, ExpectedFigure, Header, Interval, MetricValue, Outcome,
};

use crate::terminal::signed_percent;

/// Each of the header's expectations with what the run says of it.
pub(crate) fn expected(
    header: &Header,
    comparisons: &[Comparison],
    against_others: &[Comparison],
    values: &[MetricValue],
) -> Vec<Expected> {
    let judged = header.expect.iter().map(|expectation| {
        let (found, exact) = match ExpectedFigure::named(&expectation.metric) {
            Some(ExpectedFigure::Compared(metric)) => {
                let mut all = comparisons.iter().chain(against_others);
                let of = all.find(|of| {
                    of.workload == expectation.workload
                        && of.arm == expectation.arm
                        && of.against == expectation.against
                        && of.metric == metric
                });
                (of.map(|of| less_one(of.ratio)), false)
            }
            Some(ExpectedFigure::Counted(name)) => {
                let of = counted(&header.baseline, expectation, name, values);
                (of.map(|(found, _)| found), of.is_some_and(|(_, exact)| exact))
            }
            None => (None, false),
        };
        let outcome = found.map_or(Outcome::NotMeasured, |found| outcome(expectation, found));
        Expected { expectation: expectation.clone(), found, exact, outcome }
    });
    judged.collect()
}

/// A ratio as a difference.
fn less_one(of: Interval) -> Interval {
    let Interval { estimate, lower, upper } = of;
    Interval { estimate: estimate - 1.0, lower: lower - 1.0, upper: upper - 1.0 }
}

/// What was counted, and whether every repetition gave the same.
fn counted(
    baseline: &str,
    of: &Expectation,
    metric: &str,
    values: &[MetricValue],
) -> Option<(Interval, bool)> {
    let value = |arm: &str| {
        let mut values = values.iter().filter(|of| of.metric == metric && of.arm == arm);
        values.find(|value| value.workload == of.workload)
    };
    let own = value(&of.arm)?;
    let (found, exact) = if of.relative {
        let other = value(of.against.as_deref().unwrap_or(baseline))?;
        // Of the same there is no difference, of nothing neither.
        let is_same = own.value.to_bits() == other.value.to_bits();
        let found = if is_same { 0.0 } else { own.value / other.value - 1.0 };
        (found, own.exact && other.exact)
    } else {
        (own.value, own.exact)
    };
    // Nothing differs from zero by a percentage.
    let interval = Interval { estimate: found, lower: found, upper: found };
    found.is_finite().then_some((interval, exact))
}

fn outcome(of: &Expectation, found: Interval) -> Outcome {
    let lower = of.lower.unwrap_or(f64::NEG_INFINITY);
    let upper = of.upper.unwrap_or(f64::INFINITY);
    if found.lower >= lower && found.upper <= upper {
        Outcome::Holds
    } else if found.upper < lower || found.lower > upper {
        Outcome::DoesNotHold
    } else {
        Outcome::NotResolved
    }
}

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
    fn check(expectation: Expectation, found: [f64; 3], expected: &str) {
        let found = Interval { estimate: found[0], lower: found[1], upper: found[2] };
        let outcome = outcome(&expectation, found);
        let text = sentence(&Expected { expectation, found: Some(found), exact: true, outcome });
        assert_eq!(text, expected);
    }

    #[test]
    fn an_interval_within_outside_and_across_the_bounds() {
        let of = |bounds| expectation("cpu_per_transaction", true, bounds);
        let head = "work, on, cpu_per_transaction: expected";
        let bounds = (Some(0.0), Some(0.08));
        check(
            of(bounds),
            [0.059, 0.044, 0.074],
            &format!("{head} 0.0 to +8.0 % (S): +5.9 % [+4.4, +7.4]: holds"),
        );
        check(
            of(bounds),
            [0.1, 0.09, 0.11],
            &format!("{head} 0.0 to +8.0 % (S): +10.0 % [+9.0, +11.0]: does not hold"),
        );
        check(
            of(bounds),
            [0.07, 0.05, 0.09],
            &format!("{head} 0.0 to +8.0 % (S): +7.0 % [+5.0, +9.0]: could not be resolved here"),
        );
        check(
            of((None, Some(0.0))),
            [-0.05, -0.06, -0.04],
            &format!("{head} at most 0.0 % (S): -5.0 % [-6.0, -4.0]: holds"),
        );
    }

    #[test]
    fn what_was_counted_has_no_interval() {
        let of = || expectation("wal_per_page", false, (Some(0.9), None));
        let head = "work, on, wal_per_page: expected at least 0.9 (S):";
        check(of(), [0.98; 3], &format!("{head} 0.98, exact: holds"));
        check(of(), [0.5; 3], &format!("{head} 0.5, exact: does not hold"));
    }

    #[test]
    fn of_the_same_there_is_no_difference() {
        let difference = |off, on| {
            let value = |arm: &str, value| MetricValue {
                workload: "work".into(),
                arm: arm.into(),
                metric: "wal_per_page".into(),
                value,
                unit: "bytes".into(),
                exact: true,
            };
            let of = expectation("wal_per_page", true, (Some(0.3), None));
            let values = [value("off", off), value("on", on)];
            counted("off", &of, "wal_per_page", &values).map(|(found, _)| found.estimate)
        };
        assert_eq!(difference(2.0, 3.0), Some(0.5));
        assert_eq!(difference(0.0, 0.0), Some(0.0));
        assert_eq!(difference(0.0, 3.0), None, "no percentage says how much more that is");
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
        check(claim(0.1), found, &text("+10.0", "holds"));
        let explained = "does not hold. Pages come from the page cache.";
        check(claim(0.01), found, &text("+1.0", explained));
    }
}
