//! Mean and standard deviation.

/// The arithmetic mean.
///
/// `None` if there are no values, or the mean is not a finite number.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / as_float(values.len());
    mean.is_finite().then_some(mean)
}

/// The standard deviation of a sample, with n − 1 in the denominator.
///
/// `None` if there are fewer than two values, or the result is not a finite
/// number.
pub fn sample_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    // Two passes: the textbook sum of squares loses everything when the
    // spread is small beside the mean, which is what repeated timings are.
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let sd = (squares / as_float(values.len() - 1)).sqrt();
    sd.is_finite().then_some(sd)
}

#[expect(clippy::cast_precision_loss, reason = "counts of samples stay far below 2^53")]
pub(crate) fn as_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(sample_sd(&[1.0, 2.0, 6.0]), Some(7.0_f64.sqrt()));
        assert_eq!(sample_sd(&[4.0, 4.0]), Some(0.0));
    }

    #[test]
    fn a_small_spread_survives_a_large_mean() {
        let sd = sample_sd(&[1e9, 1e9 + 1.0, 1e9 + 2.0]).unwrap();
        assert!((sd - 1.0).abs() < 1e-9, "{sd}");
    }

    #[test]
    fn nothing_to_say() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[f64::NAN]), None);
        assert_eq!(mean(&[f64::MAX, f64::MAX]), None);
        assert_eq!(sample_sd(&[1.0]), None);
        assert_eq!(sample_sd(&[1.0, f64::INFINITY]), None);
    }
}
