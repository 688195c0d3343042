//! Whether what was expected before a run came out.

use pgtoll_record::{
    Comparison, Expectation, Expected, ExpectedFigure, Header, Interval, MetricValue, Outcome,
};

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
                let item = all.find(|comparison| {
                    comparison.workload == expectation.workload
                        && comparison.arm == expectation.arm
                        && comparison.against == expectation.against
                        && comparison.metric == metric
                });
                (item.map(|comparison| less_one(comparison.ratio)), false)
            }
            Some(ExpectedFigure::Counted(name)) => {
                let counted = counted(&header.baseline, expectation, name, values);
                (counted.map(|(found, _)| found), counted.is_some_and(|(_, exact)| exact))
            }
            None => (None, false),
        };
        let outcome = found.map_or(Outcome::NotMeasured, |found| outcome(expectation, found));
        Expected { expectation: expectation.clone(), found, exact, outcome }
    });
    judged.collect()
}

/// A ratio as a difference.
fn less_one(interval: Interval) -> Interval {
    let Interval { estimate, lower, upper } = interval;
    Interval { estimate: estimate - 1.0, lower: lower - 1.0, upper: upper - 1.0 }
}

/// Returns the count, and whether every repetition gave the same.
fn counted(
    baseline: &str,
    expectation: &Expectation,
    metric: &str,
    values: &[MetricValue],
) -> Option<(Interval, bool)> {
    let value = |arm: &str| {
        let mut values = values.iter().filter(|value| value.metric == metric && value.arm == arm);
        values.find(|value| value.workload == expectation.workload)
    };
    let own = value(&expectation.arm)?;
    let (found, exact) = if expectation.relative {
        let other = value(expectation.against.as_deref().unwrap_or(baseline))?;
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

fn outcome(expectation: &Expectation, found: Interval) -> Outcome {
    let lower = expectation.lower.unwrap_or(f64::NEG_INFINITY);
    let upper = expectation.upper.unwrap_or(f64::INFINITY);
    if found.lower >= lower && found.upper <= upper {
        Outcome::Holds
    } else if found.upper < lower || found.lower > upper {
        Outcome::DoesNotHold
    } else {
        Outcome::NotResolved
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

    #[test]
    fn an_interval_within_outside_and_across_the_bounds() {
        let check = |bounds, [estimate, lower, upper]: [f64; 3], expected| {
            let expectation = expectation("cpu_per_transaction", true, bounds);
            assert_eq!(outcome(&expectation, Interval { estimate, lower, upper }), expected);
        };
        let bounds = (Some(0.0), Some(0.08));
        check(bounds, [0.059, 0.044, 0.074], Outcome::Holds);
        check(bounds, [0.1, 0.09, 0.11], Outcome::DoesNotHold);
        check(bounds, [-0.1, -0.11, -0.09], Outcome::DoesNotHold);
        check(bounds, [0.07, 0.05, 0.09], Outcome::NotResolved);
        check((None, Some(0.0)), [-0.05, -0.06, -0.04], Outcome::Holds);
        check((Some(0.9), None), [0.98; 3], Outcome::Holds);
        check((Some(0.9), None), [0.5; 3], Outcome::DoesNotHold);
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
                of_transactions: None,
            };
            let expectation = expectation("wal_per_page", true, (Some(0.3), None));
            let values = [value("off", off), value("on", on)];
            counted("off", &expectation, "wal_per_page", &values).map(|(found, _)| found.estimate)
        };
        assert_eq!(difference(2.0, 3.0), Some(0.5));
        assert_eq!(difference(0.0, 0.0), Some(0.0));
        assert_eq!(difference(0.0, 3.0), None, "no percentage says how much more that is");
    }
}
