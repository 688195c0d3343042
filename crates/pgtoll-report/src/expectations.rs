//! What was expected, beside what came out.

use pgtoll_record::{
    Comparison, Expectation, Expected, ExpectedFigure, Header, Interval, MetricValue, Outcome,
};

use crate::terminal::signed_percent;

/// Each of the header's expectations with what the run says of it.
pub(crate) fn expected(
    header: &Header,
    comparisons: &[Comparison],
    values: &[MetricValue],
) -> Vec<Expected> {
    let judged = header.expect.iter().map(|expectation| {
        let found = match ExpectedFigure::named(&expectation.metric) {
            Some(ExpectedFigure::Compared(metric)) => comparisons
                .iter()
                .find(|of| {
                    of.workload == expectation.workload
                        && of.arm == expectation.arm
                        && of.metric == metric
                })
                .map(|of| less_one(of.ratio)),
            Some(ExpectedFigure::Counted(name)) => counted(header, expectation, name, values),
            None => None,
        };
        let outcome = found.map_or(Outcome::NotMeasured, |found| outcome(expectation, found));
        Expected { expectation: expectation.clone(), found, outcome }
    });
    judged.collect()
}

/// A ratio as a difference.
fn less_one(of: Interval) -> Interval {
    let Interval { estimate, lower, upper } = of;
    Interval { estimate: estimate - 1.0, lower: lower - 1.0, upper: upper - 1.0 }
}

fn counted(
    header: &Header,
    of: &Expectation,
    metric: &str,
    values: &[MetricValue],
) -> Option<Interval> {
    let value = |arm: &str| {
        let mut values = values.iter().filter(|of| of.metric == metric && of.arm == arm);
        values.find(|value| value.workload == of.workload).map(|of| of.value)
    };
    let value_of_arm = value(&of.arm)?;
    let found =
        if of.relative { value_of_arm / value(&header.baseline)? - 1.0 } else { value_of_arm };
    // Nothing differs from zero by a percentage.
    found.is_finite().then_some(Interval { estimate: found, lower: found, upper: found })
}

fn outcome(of: &Expectation, found: Interval) -> Outcome {
    let lower = of.lower.unwrap_or(f64::NEG_INFINITY);
    let upper = of.upper.unwrap_or(f64::INFINITY);
    if found.lower >= lower && found.upper <= upper {
        Outcome::AsExpected
    } else if found.upper < lower || found.lower > upper {
        Outcome::NotAsExpected
    } else {
        Outcome::NotResolved
    }
}

/// In a sentence.
pub(crate) fn sentence(of: &Expected) -> String {
    let Expected { expectation, found, outcome } = of;
    let Expectation { workload, arm, metric, relative, source, .. } = expectation;
    let shown = |number: f64| {
        if *relative {
            return signed_percent(number + 1.0, 1);
        }
        format!("{number:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let unit = if *relative { " %" } else { "" };
    let bounds = match (expectation.lower, expectation.upper) {
        (Some(lower), Some(upper)) => format!("{} to {}{unit}", shown(lower), shown(upper)),
        (Some(lower), None) => format!("at least {}{unit}", shown(lower)),
        (None, Some(upper)) => format!("at most {}{unit}", shown(upper)),
        (None, None) => "anything".to_owned(),
    };
    let found = found.map(|Interval { estimate, lower, upper }| {
        // A counted figure has no interval.
        let interval = (lower < upper).then(|| format!(" [{}, {}]", shown(lower), shown(upper)));
        format!("{}{unit}{}: ", shown(estimate), interval.unwrap_or_default())
    });
    let outcome = match outcome {
        Outcome::AsExpected => "as expected",
        Outcome::NotAsExpected => "not as expected",
        Outcome::NotResolved => "not resolved",
        Outcome::NotMeasured => "not measured",
    };
    let found = found.unwrap_or_default();
    format!("{workload}, {arm}, {metric}: expected {bounds} ({source}): {found}{outcome}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(relative: bool, bounds: (Option<f64>, Option<f64>), found: [f64; 3], expected: &str) {
        let expectation = Expectation {
            workload: "work".into(),
            arm: "on".into(),
            metric: "cpu_per_transaction".into(),
            relative,
            lower: bounds.0,
            upper: bounds.1,
            source: "S".into(),
        };
        let found = Interval { estimate: found[0], lower: found[1], upper: found[2] };
        let outcome = outcome(&expectation, found);
        let text = sentence(&Expected { expectation, found: Some(found), outcome });
        assert_eq!(text, format!("work, on, cpu_per_transaction: expected {expected}"));
    }

    #[test]
    fn an_interval_within_outside_and_across_the_bounds() {
        let bounds = (Some(0.0), Some(0.08));
        let found = [0.059, 0.044, 0.074];
        check(true, bounds, found, "0.0 to +8.0 % (S): +5.9 % [+4.4, +7.4]: as expected");
        let found = [0.1, 0.09, 0.11];
        check(true, bounds, found, "0.0 to +8.0 % (S): +10.0 % [+9.0, +11.0]: not as expected");
        let found = [0.07, 0.05, 0.09];
        check(true, bounds, found, "0.0 to +8.0 % (S): +7.0 % [+5.0, +9.0]: not resolved");
        let found = [-0.05, -0.06, -0.04];
        check(
            true,
            (None, Some(0.0)),
            found,
            "at most 0.0 % (S): -5.0 % [-6.0, -4.0]: as expected",
        );
        check(false, (Some(0.9), None), [0.98; 3], "at least 0.9 (S): 0.98: as expected");
        check(false, (Some(0.9), None), [0.5; 3], "at least 0.9 (S): 0.5: not as expected");
    }
}
