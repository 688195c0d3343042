//! Reliability of intervals on this machine.

use pgtoll_record::{Calibration, FitnessCheck, Metric};

use super::group::Group;

/// Calibrations from earlier runs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct IntervalFacts<'a> {
    /// By metric; empty when there are too few comparisons.
    pub calibration: &'a [Calibration],
    /// Comparisons of what does not differ that are on file.
    pub comparisons: usize,
    /// As many are needed for a calibration.
    pub comparisons_needed: usize,
    /// Returns the name of a metric in reports.
    pub metric_title: fn(Metric) -> &'static str,
}

pub(super) fn finding(group: Group, facts: &IntervalFacts<'_>) -> FitnessCheck {
    const NAME: &str = "intervals";
    let IntervalFacts { calibration, comparisons, comparisons_needed, metric_title } = *facts;
    if calibration.is_empty() {
        return group.note(
            NAME,
            format!(
                "not calibrated: {comparisons} comparisons of what does not differ, and \
                 {comparisons_needed} are needed"
            ),
            "pgtoll doctor --null 10m",
        );
    }
    let factors = calibration.iter().map(|factor| {
        let metric = metric_title(factor.metric);
        format!("{metric} x {:.2} ({} comparisons)", factor.widening, factor.comparisons)
    });
    let factors: Vec<String> = factors.collect();
    group.ok(NAME, format!("calibrated: {}", factors.join(", ")))
}

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::*;

    #[test]
    fn intervals_are_calibrated_or_say_what_is_missing() {
        let facts = IntervalFacts {
            calibration: &[],
            comparisons: 3,
            comparisons_needed: 10,
            metric_title: |_| "title",
        };
        let found = finding(Group("calibration"), &facts);
        assert_eq!(found.state, State::Note);
        assert!(found.reading.contains("3 comparisons"), "{found:?}");
        let calibration =
            [Calibration { metric: Metric::CpuPerTransaction, widening: 1.234, comparisons: 12 }];
        let found =
            finding(Group("calibration"), &IntervalFacts { calibration: &calibration, ..facts });
        assert_eq!(
            (found.state, found.reading.as_str()),
            (State::Ok, "calibrated: title x 1.23 (12 comparisons)")
        );
    }
}
