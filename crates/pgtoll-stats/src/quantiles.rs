//! Quantiles of samples, and of Student's t distribution.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::moments::as_float;

/// The middle value, or the average of the two middle ones.
///
/// `None` if there are no values or one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile at `probability`, linear between order statistics (Hyndman and
/// Fan's type 7, the default of R and `NumPy`). `values` need not be sorted.
///
/// `None` if there are no values, one is not finite, or `probability` is not
/// in 0..=1.
pub fn quantile(values: &[f64], probability: f64) -> Option<f64> {
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted_quantile(&sorted, probability)
}

/// The two-sided quantile of Student's t distribution: the t for which
/// `probability` of the distribution lies between −t and t, as in
/// `t_quantile(0.95, 5.0)`, about 2.571. This is what tables call the 0.975
/// quantile.
///
/// Infinite where t is larger than any float, as it is at probability 1. NaN
/// if `probability` is not in 0..=1 or `degrees_of_freedom` is not positive.
pub fn t_quantile(probability: f64, degrees_of_freedom: f64) -> f64 {
    let positive = degrees_of_freedom > 0.0;
    if !positive || !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    if probability <= 0.0 {
        return 0.0;
    }
    if probability >= 1.0 {
        return f64::INFINITY;
    }
    let tail = (1.0 - probability) / 2.0;
    if degrees_of_freedom > FREEDOM_EXPANDED {
        expanded(tail, degrees_of_freedom)
    } else {
        bisected(tail, degrees_of_freedom)
    }
}

/// The probability that Student's t lies at least as far from zero as `t`, on
/// either side: the two-sided p value of a test.
///
/// NaN if `t` is not a number or `degrees_of_freedom` is not positive.
pub fn t_p_value(t: f64, degrees_of_freedom: f64) -> f64 {
    let positive = degrees_of_freedom > 0.0;
    if !positive || t.is_nan() {
        return f64::NAN;
    }
    if degrees_of_freedom > FREEDOM_EXPANDED {
        // Abramowitz and Stegun, 26.7.8: the normal deviate with the same tail.
        let z = t.abs() * (1.0 - 0.25 / degrees_of_freedom)
            / (1.0 + 0.5 * t / degrees_of_freedom * t).sqrt();
        return if z.is_nan() { 0.0 } else { 2.0 * Normal::standard().sf(z) };
    }
    let freedom = degrees_of_freedom.max(4.0 * f64::MIN_POSITIVE);
    StudentsT::new(0.0, 1.0, freedom)
        .map_or(f64::NAN, |distribution| (2.0 * distribution.sf(t.abs())).clamp(0.0, 1.0))
}

/// Above this the expansion is right to twelve digits, and the continued
/// fraction behind the distribution function begins to need more terms than
/// statrs gives it.
const FREEDOM_EXPANDED: f64 = 1000.0;

/// Cornish and Fisher's expansion of t around the normal quantile.
fn expanded(tail: f64, freedom: f64) -> f64 {
    let z = -Normal::standard().inverse_cdf(tail);
    let square = z * z;
    let first = z * (square + 1.0) / 4.0;
    let second = z * ((5.0 * square + 16.0) * square + 3.0) / 96.0;
    let third = z * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0;
    z + (first + (second + third / freedom) / freedom) / freedom
}

/// Inverts the distribution function. The inverse that statrs has itself is an
/// iteration that never ends for some arguments; this one takes 63 steps.
fn bisected(tail: f64, freedom: f64) -> f64 {
    // The distribution's shape is half of this, and must not round to zero.
    let freedom = freedom.max(4.0 * f64::MIN_POSITIVE);
    let Ok(distribution) = StudentsT::new(0.0, 1.0, freedom) else {
        return f64::NAN;
    };
    // The bits of positive floats are in the order of their values, so halving
    // the bits finds the float itself, be it tiny or huge.
    let mut low = 0.0_f64.to_bits();
    let mut high = f64::INFINITY.to_bits();
    while high - low > 1 {
        let middle = low.midpoint(high);
        if distribution.sf(f64::from_bits(middle)) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::from_bits(high)
}

/// [`quantile`] of finite values that are in order already.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the position lies between zero and the number of values"
)]
pub(crate) fn sorted_quantile(sorted: &[f64], probability: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&probability) {
        return None;
    }
    let last = sorted.len().checked_sub(1)?;
    let position = probability * as_float(last);
    let index = (position.floor() as usize).min(last);
    let low = sorted[index];
    let high = sorted[(index + 1).min(last)];
    let weight = position - position.floor();
    // Not low + weight * (high - low): the difference of two large values of
    // unlike sign overflows.
    Some(low * (1.0 - weight) + high * weight)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn type_7_as_in_r() {
        // quantile(c(1, 2, 4, 8), c(0, .1, .25, .5, .9, 1)) in R.
        let values = [8.0, 1.0, 4.0, 2.0];
        for (probability, expected) in
            [(0.0, 1.0), (0.1, 1.3), (0.25, 1.75), (0.5, 3.0), (0.9, 6.8), (1.0, 8.0)]
        {
            let actual = quantile(&values, probability).unwrap();
            assert!((actual - expected).abs() < 1e-12, "{probability}: {actual}");
        }
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[-f64::MAX, f64::MAX], 0.5), Some(0.0));
    }

    #[test]
    fn quantile_of_nothing() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(quantile(&[1.0], 1.1), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
    }

    #[test]
    fn t_as_in_tables() {
        for (probability, freedom, expected) in [
            (0.95, 1.0, 12.706_205),
            (0.95, 2.0, 4.302_653),
            (0.95, 5.0, 2.570_582),
            (0.95, 9.0, 2.262_157),
            (0.95, 30.0, 2.042_272),
            (0.90, 5.0, 2.015_048),
            (0.99, 10.0, 3.169_273),
            (0.95, 120.0, 1.979_930),
            (0.999, 2.0, 31.599_055),
            (0.95, 1e9, 1.959_964),
            (0.95, f64::INFINITY, 1.959_964),
            (0.0, 3.0, 0.0),
        ] {
            let actual = t_quantile(probability, freedom);
            assert!((actual - expected).abs() < 1e-5, "{probability} {freedom}: {actual}");
        }
        assert!(t_quantile(1.0, 5.0).is_infinite());
    }

    #[test]
    fn t_has_no_step_where_the_method_changes() {
        for probability in [0.01, 0.5, 0.95, 0.999, 0.999_999] {
            let tail = (1.0 - probability) / 2.0;
            let exact = bisected(tail, FREEDOM_EXPANDED);
            let expansion = expanded(tail, FREEDOM_EXPANDED);
            assert!((exact / expansion - 1.0).abs() < 1e-9, "{probability}: {exact} {expansion}");
        }
    }

    #[test]
    fn p_values_invert_quantiles() {
        for freedom in [1.0, 2.0, 5.0, 30.0, 999.0, 1001.0, 2050.0, 1e6, f64::INFINITY] {
            for p in [0.9, 0.5, 0.05, 0.01, 0.0001] {
                let again = t_p_value(-t_quantile(1.0 - p, freedom), freedom);
                assert!((again / p - 1.0).abs() < 1e-3, "{p} {freedom}: {again}");
            }
            assert!((t_p_value(0.0, freedom) - 1.0).abs() < 1e-12);
            assert!(t_p_value(f64::INFINITY, freedom).abs() < 1e-12, "{freedom}");
        }
        // One degree of freedom is Cauchy's: 1 - 2 atan(t) / pi.
        assert!((t_p_value(1.0, 1.0) - 0.5).abs() < 1e-12);
        for (t, freedom) in [(f64::NAN, 1.0), (1.0, 0.0), (1.0, -1.0), (1.0, f64::NAN)] {
            assert!(t_p_value(t, freedom).is_nan());
        }
    }

    #[test]
    fn t_out_of_its_domain_is_nan() {
        for (probability, freedom) in
            [(-0.1, 5.0), (1.1, 5.0), (f64::NAN, 5.0), (0.95, 0.0), (0.95, -1.0), (0.0, f64::NAN)]
        {
            assert!(t_quantile(probability, freedom).is_nan(), "{probability} {freedom}");
        }
    }

    proptest! {
        #[test]
        fn t_never_panics_nor_hangs(
            probability in any::<f64>(),
            inside in 0.0..=1.0_f64,
            freedom in any::<f64>(),
            magnitude in -320.0..308.0_f64,
        ) {
            t_quantile(probability, freedom);
            for freedom in [freedom.abs(), 10_f64.powf(magnitude)] {
                let p = t_p_value(probability, freedom);
                prop_assert!((0.0..=1.0).contains(&p) || p.is_nan(), "{p}");
            }
            for inside in [inside, inside * 1e-300, 1.0 - inside * 1e-12] {
                for freedom in [freedom.abs(), 10_f64.powf(magnitude)] {
                    let t = t_quantile(inside, freedom);
                    prop_assert!(t >= 0.0 || freedom.is_nan() || freedom == 0.0, "{t}");
                }
            }
        }

        #[test]
        fn t_grows_with_probability(
            low in 0.001..0.999_f64,
            step in 0.0001..0.001_f64,
            freedom in 1.0..200.0_f64,
        ) {
            prop_assert!(t_quantile(low, freedom) < t_quantile(low + step, freedom));
        }
    }
}
