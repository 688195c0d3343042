//! Whether to turn data checksums on.

use pgtoll_model::{CHECKSUMS_RULE, CostDecision};
use pgtoll_record::{AdvisedAction, Arm, Interval};

/// An interval whose half-width is a larger part of the baseline than this never shows that a cost is
/// small enough to turn checksums on.
pub const DECIDED_WITHIN: f64 = CHECKSUMS_RULE.cpu.turn_on_at_most;

/// A decision as records have it.
pub fn advised_action(decision: CostDecision) -> AdvisedAction {
    match decision {
        CostDecision::TurnOn => AdvisedAction::TurnOn,
        CostDecision::MeasureFirst => AdvisedAction::MeasureFirst,
        CostDecision::Leave => AdvisedAction::Leave,
    }
}

/// Judges the ratios of server CPU of all timed workloads of transactions; `None` where
/// there are none.
pub(super) fn judge_cpu(ratios: &[Interval]) -> Option<CostDecision> {
    let judge = |ratio: &Interval| CHECKSUMS_RULE.cpu.judge(ratio.lower - 1.0, ratio.upper - 1.0);
    ratios.iter().map(judge).max()
}

/// Judges a ratio of WAL, which is counted, not estimated.
pub(super) fn judge_wal(ratio: f64) -> CostDecision {
    CHECKSUMS_RULE.wal.judge(ratio - 1.0, ratio - 1.0)
}

/// Whether this arm turns checksums on.
pub(super) fn turns_checksums_on(arm: &Arm, baseline: &Arm) -> bool {
    arm.checksums && !baseline.checksums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bounds: &[(f64, f64)], expected: Option<CostDecision>) {
        let ratio = |(lower, upper): &(f64, f64)| Interval {
            estimate: f64::midpoint(*lower, *upper),
            lower: *lower,
            upper: *upper,
        };
        let ratios: Vec<Interval> = bounds.iter().map(ratio).collect();
        assert_eq!(judge_cpu(&ratios), expected, "{bounds:?}");
    }

    #[test]
    fn the_worst_workload_decides() {
        check(&[], None);
        check(&[(0.97, 1.04), (1.0, 1.03)], Some(CostDecision::TurnOn));
        check(&[(0.97, 1.04), (1.0, 1.06)], Some(CostDecision::MeasureFirst));
        check(&[(0.97, 1.04), (1.3, 1.4)], Some(CostDecision::Leave));
        check(&[(f64::NAN, f64::NAN)], Some(CostDecision::MeasureFirst));
        assert_eq!(judge_wal(1.09), CostDecision::TurnOn);
        assert_eq!(judge_wal(1.25), CostDecision::MeasureFirst);
        assert_eq!(judge_wal(2.5), CostDecision::Leave);
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
            server: None,
        };
        assert!(turns_checksums_on(&arm(true), &arm(false)));
        for (own, baseline) in [(false, false), (true, true), (false, true)] {
            assert!(!turns_checksums_on(&arm(own), &arm(baseline)));
        }
    }
}
