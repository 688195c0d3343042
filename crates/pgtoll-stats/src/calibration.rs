//! Calibration: the factor by which intervals have to be wider than they claim, by comparisons of
//! arms that do not differ.
//! differ.

use crate::quantiles::quantile;

/// A comparison of an arm with its own copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NullComparison {
    /// The estimate, which should be 0: a log-ratio.
    pub log_ratio: f64,
    /// Half of its interval's width, before any widening.
    pub half_width: f64,
}

/// κ: the factor by which intervals must be widened so that they would have covered zero in
/// `confidence` of these comparisons; at least 1.
///
/// `None` if there are no comparisons, if one has no width, or if one is not finite.
pub fn widening(comparisons: &[NullComparison], confidence: f64) -> Option<f64> {
    let misses: Vec<f64> = comparisons
        .iter()
        .map(|comparison| comparison.log_ratio.abs() / comparison.half_width)
        .collect();
    quantile(&misses, confidence).map(|kappa| kappa.max(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comparison(log_ratio: f64, half_width: f64) -> NullComparison {
        NullComparison { log_ratio, half_width }
    }

    #[test]
    fn intervals_that_cover_need_no_widening() {
        let good: Vec<NullComparison> =
            (0..20).map(|index| comparison(0.001 * f64::from(index % 5), 0.01)).collect();
        assert_eq!(widening(&good, 0.95), Some(1.0));
    }

    #[test]
    fn intervals_that_miss_are_widened_until_they_cover() {
        let bad: Vec<NullComparison> =
            (1..=100).map(|index| comparison(f64::from(index) * 0.01 - 0.505, 0.1)).collect();
        let kappa = widening(&bad, 0.95).unwrap();
        let covered =
            bad.iter().filter(|bad| bad.log_ratio.abs() <= bad.half_width * kappa).count();
        assert!((94..=96).contains(&covered), "{covered}");
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(widening(&[], 0.95), None);
        assert_eq!(widening(&[comparison(0.1, 0.0)], 0.95), None);
        assert_eq!(widening(&[comparison(f64::NAN, 0.1)], 0.95), None);
    }

    proptest! {
        #[test]
        fn any_numbers_are_a_factor_or_none(
            pairs in prop::collection::vec((any::<f64>(), any::<f64>()), 0..30),
            confidence: f64,
        ) {
            let all: Vec<NullComparison> = pairs.into_iter().map(|(a, b)| comparison(a, b)).collect();
            if let Some(kappa) = widening(&all, confidence) {
                prop_assert!(kappa >= 1.0 && kappa.is_finite());
            }
        }
    }
}
