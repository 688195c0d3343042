//! Scores of predictions: pure functions of predicted and true relative changes (0.1: ten percent
//! more).
//! more).

use pgtoll_record::trials::PredictionTrialRange as Range;

/// A prediction, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scored {
    pub(crate) prediction: Range,
    pub(crate) truth: f64,
}

/// From here on an interval has to be narrow, and a workload counts among those that pay.
pub(crate) const LARGE: f64 = 0.1;
const WIDEST: f64 = 3.0;
/// A relative change.
const USELESS: f64 = 0.3;
/// A mean error of at most this share of the best naive predictor's.
pub(crate) const SKILL: f64 = 0.2;

impl Scored {
    /// The interval holds the truth.
    pub(crate) fn is_covered(&self) -> bool {
        (self.prediction.lower..=self.prediction.upper).contains(&self.truth)
    }

    /// The interval's ends are within a factor of three, where the truth is large.
    pub(crate) fn is_narrow(&self) -> bool {
        let Range { lower, upper, .. } = self.prediction;
        let (near, far) = if upper <= 0.0 { (-upper, -lower) } else { (lower, upper) };
        self.truth.abs() < LARGE || near > 0.0 && far / near <= WIDEST
    }

    /// The interval decides nothing: it is wider than 30 points.
    pub(crate) fn is_useless(&self) -> bool {
        self.prediction.upper - self.prediction.lower > USELESS
    }

    /// Gneiting and Raftery's score of a 95 % interval: its width, and 40 times the distance to a
    /// truth outside. The smaller the better.
    pub(crate) fn interval_score(&self) -> f64 {
        let Range { lower, upper, .. } = self.prediction;
        let outside = (lower - self.truth).max(self.truth - upper).max(0.0);
        upper - lower + 2.0 / 0.05 * outside
    }

    /// Without sign.
    pub(crate) fn error(&self) -> f64 {
        (self.prediction.middle - self.truth).abs()
    }

    /// Off by at most a point or a quarter of the truth.
    pub(crate) fn is_near(&self) -> bool {
        self.error() <= self.tolerance()
    }

    /// A point, or a quarter of the truth.
    pub(crate) fn tolerance(&self) -> f64 {
        (self.truth.abs() / 4.0).max(0.01)
    }
}

/// How many of this many intervals have to hold the truth: 22 of 24.
pub(crate) fn covered_at_least(trials: usize) -> usize {
    (trials * 22).div_ceil(24)
}

/// `None` of nothing.
#[expect(clippy::cast_precision_loss, reason = "trials are few")]
pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// A mean absolute error, as a share of the smallest one of the naive predictors. `None` where one
/// of these made no error at all.
pub(crate) fn skill(error: f64, naive: &[f64]) -> Option<f64> {
    let best = naive.iter().copied().reduce(f64::min)?;
    (best > 0.0).then_some(error / best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(lower: f64, middle: f64, upper: f64, truth: f64) -> Scored {
        Scored { prediction: Range { middle, lower, upper }, truth }
    }

    #[test]
    fn an_interval_holds_the_truth_or_not() {
        let check = |lower, upper, truth, expected| {
            assert_eq!(scored(lower, 0.0, upper, truth).is_covered(), expected);
        };
        check(0.1, 0.3, 0.2, true);
        check(0.1, 0.3, 0.1, true);
        check(0.1, 0.3, 0.09, false);
        check(-0.3, -0.1, -0.31, false);
    }

    #[test]
    fn where_the_truth_is_large_a_wide_interval_does_not_pass() {
        let check = |lower, upper, truth, expected| {
            let scored = scored(lower, 0.0, upper, truth);
            assert_eq!(scored.is_narrow(), expected, "{lower} {upper} {truth}");
        };
        check(0.1, 0.3, 0.2, true);
        check(0.1, 0.31, 0.2, false);
        check(0.0, 0.3, 0.2, false);
        check(0.0, f64::INFINITY, 0.2, false);
        check(0.0, 0.0, 0.2, false);
        check(-0.3, -0.1, -0.2, true);
        check(-0.4, -0.1, -0.2, false);
        check(-0.1, 0.3, 0.2, false);
        check(0.0, 0.5, 0.09, true);
    }

    #[test]
    fn the_interval_score_is_the_width_and_a_fine() {
        let check = |truth: f64, expected: f64| {
            let score = scored(0.1, 0.2, 0.3, truth).interval_score();
            assert!((score - expected).abs() < 1e-12, "{truth}: {score}");
        };
        check(0.25, 0.2);
        check(0.35, 0.2 + 40.0 * 0.05);
        check(0.0, 0.2 + 40.0 * 0.1);
    }

    #[test]
    fn cpu_is_near_within_a_point_or_a_quarter() {
        let check = |middle, truth, expected| {
            assert_eq!(scored(0.0, middle, 0.0, truth).is_near(), expected, "{middle} {truth}");
        };
        check(0.029, 0.02, true);
        check(0.031, 0.02, false);
        check(0.16, 0.2, true);
        check(0.14, 0.2, false);
        check(-0.16, -0.2, true);
    }

    #[test]
    fn skill_is_against_the_best_naive_predictor() {
        assert_eq!(skill(0.5, &[4.0, 2.0, 8.0]), Some(0.25));
        assert_eq!(skill(0.02, &[]), None);
        assert_eq!(skill(0.02, &[0.0]), None);
        assert_eq!(mean([1.0, 3.0].into_iter()), Some(2.0));
        assert_eq!(mean([].into_iter()), None);
        assert_eq!([24, 36, 6].map(covered_at_least), [22, 33, 6]);
    }
}
