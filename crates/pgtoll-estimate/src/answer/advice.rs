//! Whether to turn data checksums on.

use pgtoll_record::{AdvisedAction, Arm, Interval};

/// A rule for what costs server CPU under transactions. Costs are parts of the baseline's: 0.05 is
/// 5 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceRule {
    /// Turn on when the upper bound is at most this in every timed workload of transactions.
    pub turn_on_at_most: f64,
    /// Leave when the lower bound is above this in one of them.
    pub leave_above: f64,
}

/// Of data checksums.
pub const CHECKSUMS_RULE: AdviceRule = AdviceRule { turn_on_at_most: 0.05, leave_above: 0.25 };

/// An interval whose half-width is a larger part of the baseline than this never shows that a cost is
/// small enough to turn checksums on.
pub const DECIDED_WITHIN: f64 = CHECKSUMS_RULE.turn_on_at_most;

impl AdviceRule {
    /// What follows from the ratios of server CPU of all timed workloads of transactions; `None`
    /// where there are none. What is too noisy has a bound that is too high.
    pub fn action(&self, ratios: &[Interval]) -> Option<AdvisedAction> {
        let is_much = |ratio: &Interval| ratio.lower > 1.0 + self.leave_above;
        let is_little = |ratio: &Interval| ratio.upper <= 1.0 + self.turn_on_at_most;
        if ratios.is_empty() {
            None
        } else if ratios.iter().any(is_much) {
            Some(AdvisedAction::Leave)
        } else if ratios.iter().all(is_little) {
            Some(AdvisedAction::TurnOn)
        } else {
            Some(AdvisedAction::MeasureFirst)
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        format!(
            "turn on when the upper bound of server CPU is at most {:.0} % in every timed workload \
             of transactions, leave when a lower bound is above {:.0} %, else measure first with \
             your own workload",
            self.turn_on_at_most * 100.0,
            self.leave_above * 100.0
        )
    }
}

/// The rule of what this arm changes.
pub(crate) fn rule(arm: &Arm, baseline: &Arm) -> Option<AdviceRule> {
    (arm.checksums && !baseline.checksums).then_some(CHECKSUMS_RULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bounds: &[(f64, f64)], expected: Option<AdvisedAction>) {
        let ratio = |(lower, upper): &(f64, f64)| Interval {
            estimate: f64::midpoint(*lower, *upper),
            lower: *lower,
            upper: *upper,
        };
        let ratios: Vec<Interval> = bounds.iter().map(ratio).collect();
        assert_eq!(CHECKSUMS_RULE.action(&ratios), expected, "{bounds:?}");
    }

    #[test]
    fn the_rule_at_its_borders() {
        check(&[], None);
        check(&[(0.97, 1.05)], Some(AdvisedAction::TurnOn));
        check(&[(0.97, 1.0501)], Some(AdvisedAction::MeasureFirst));
        check(&[(0.97, 1.05), (1.0, 1.06)], Some(AdvisedAction::MeasureFirst));
        check(&[(1.25, 1.4)], Some(AdvisedAction::MeasureFirst));
        check(&[(1.2501, 1.4)], Some(AdvisedAction::Leave));
        check(&[(0.97, 1.05), (1.3, 1.4)], Some(AdvisedAction::Leave));
        // Too noisy.
        check(&[(0.6, 2.0)], Some(AdvisedAction::MeasureFirst));
        check(&[(f64::NAN, f64::NAN)], Some(AdvisedAction::MeasureFirst));
    }

    #[test]
    fn it_is_about_checksums_that_the_baseline_does_not_have() {
        let arm = |checksums| Arm {
            name: "arm".into(),
            checksums,
            settings: std::collections::BTreeMap::new(),
            values: std::collections::BTreeMap::new(),
            twin_of: None,
            against: None,
        };
        assert_eq!(rule(&arm(true), &arm(false)), Some(CHECKSUMS_RULE));
        for (of, baseline) in [(false, false), (true, true), (false, true)] {
            assert_eq!(rule(&arm(of), &arm(baseline)), None);
        }
    }
}
