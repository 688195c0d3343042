//! The ratio of two arms by sequential runs.

use pgtoll_record::trials::DesignEstimate;
use pgtoll_stats::{mean, sample_sd, t_quantile};

const CONFIDENCE: f64 = 0.95;

/// The ratio of the geometric means, b over a, with Welch's interval of the difference of the
/// logarithms' means. `None` with fewer than two runs of either, or a rate that is not positive.
pub(crate) fn ratio_by_welch(a: &[f64], b: &[f64]) -> Option<DesignEstimate> {
    let logs = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).collect::<Vec<f64>>();
    let (difference, half_width) = welch(&logs(a), &logs(b))?;
    Some(DesignEstimate::new(difference.exp(), half_width))
}

/// mean(b) − mean(a), and the half-width of its interval by Welch and Satterthwaite.
fn welch(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let difference = mean(b)? - mean(a)?;
    let square_a = squared_error(a)?;
    let square_b = squared_error(b)?;
    let sum = square_a + square_b;
    if sum == 0.0 {
        return Some((difference, 0.0));
    }
    let part = |square: f64, values: &[f64]| square * square / (as_float(values.len()) - 1.0);
    let freedom = sum * sum / (part(square_a, a) + part(square_b, b));
    Some((difference, t_quantile(CONFIDENCE, freedom) * sum.sqrt()))
}

/// The square of the mean's standard error.
fn squared_error(values: &[f64]) -> Option<f64> {
    Some(sample_sd(values)?.powi(2) / as_float(values.len()))
}

#[expect(clippy::cast_precision_loss, reason = "runs are few")]
fn as_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &[f64], b: &[f64], difference: f64, half_width: f64) {
        let found = welch(a, b).unwrap();
        assert!((found.0 - difference).abs() < 1e-6, "{found:?}");
        assert!((found.1 - half_width).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn equal_spreads_have_the_closed_form() {
        // Both variances are 1, so there are 2 (n - 1) = 4 degrees of freedom: t = 2.776445.
        check(&[0.0, 1.0, 2.0], &[5.0, 6.0, 7.0], 5.0, 2.776_445_105 * (2.0_f64 / 3.0).sqrt());
        // One arm without spread leaves the other's n - 1 = 2: t = 4.302653.
        check(&[3.0, 3.0, 3.0], &[0.0, 1.0, 2.0], -2.0, 4.302_652_730 / 3.0_f64.sqrt());
        check(&[3.0, 3.0], &[3.0, 3.0], 0.0, 0.0);
    }

    #[test]
    fn unequal_spreads_take_from_the_degrees_of_freedom() {
        // Worked out apart from this code: a standard error of 1.003095 and 11.007143 degrees of
        // freedom; t = 2.200811, by Simpson's rule.
        let a = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8];
        let b = [21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8];
        check(&a, &b, 1.58, 2.207_622_899);
    }

    #[test]
    fn the_ratio_is_of_geometric_means() {
        let estimate = ratio_by_welch(&[100.0, 400.0], &[300.0, 1200.0]).unwrap();
        assert!((estimate.ratio - 3.0).abs() < 1e-12, "{estimate:?}");
        assert!(estimate.covers_one && estimate.lower < 1.0 && estimate.upper > 1.0);
        assert!(!ratio_by_welch(&[10.0, 10.1], &[20.0, 20.1]).unwrap().covers_one);
        assert_eq!(ratio_by_welch(&[10.0], &[20.0, 20.1]), None);
        assert_eq!(ratio_by_welch(&[10.0, 0.0], &[20.0, 20.1]), None);
    }
}
