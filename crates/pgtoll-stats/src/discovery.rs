//! Many comparisons at a time, of which some show by luck what is not there.

use crate::moments::as_float;

/// The p-values adjusted by Benjamini and Hochberg, in the order of their comparisons: the one who takes all
/// comparisons with an adjusted value of at most `q` for real is wrong, on average, about a share of at
/// most `q` of these.
///
/// That holds for independent comparisons and for those that depend on each other positively, as parts of
/// one run do. NaN counts as 1: a comparison that could not be made shows nothing.
///
/// ```
/// use pgtoll_stats::adjusted_p_values;
///
/// assert_eq!(adjusted_p_values(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.03]);
/// ```
pub fn adjusted_p_values(p_values: &[f64]) -> Vec<f64> {
    let p = |index: usize| if p_values[index].is_nan() { 1.0 } else { p_values[index].min(1.0) };
    let mut by_size: Vec<usize> = (0..p_values.len()).collect();
    by_size.sort_unstable_by(|one, other| p(*one).total_cmp(&p(*other)));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut least = 1.0_f64;
    let all = as_float(p_values.len());
    for (place, index) in by_size.iter().enumerate().rev() {
        least = least.min(p(*index) * all / as_float(place + 1));
        // A product and a quotient may round below it.
        adjusted[*index] = least.max(p(*index));
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_benjamini_and_hochberg_has_its_four_discoveries() {
        // Section 3.2 of their paper of 1995, at q = 0.05.
        let p_values = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let adjusted = adjusted_p_values(&p_values);
        assert_eq!(adjusted.iter().filter(|p| **p <= 0.05).count(), 4, "{adjusted:?}");
    }

    #[test]
    fn what_was_not_compared_shows_nothing() {
        assert_eq!(adjusted_p_values(&[f64::NAN, 0.01]), [1.0, 0.02]);
        assert!(adjusted_p_values(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn adjusted_values_are_no_smaller_and_keep_their_order(
            p_values in prop::collection::vec(0.0_f64..=1.0, 0..40),
        ) {
            let adjusted = adjusted_p_values(&p_values);
            for (one, p) in p_values.iter().enumerate() {
                prop_assert!(adjusted[one] >= *p && adjusted[one] <= 1.0);
                for (other, q) in p_values.iter().enumerate() {
                    prop_assert!(p > q || adjusted[one] <= adjusted[other]);
                }
            }
        }
    }
}
