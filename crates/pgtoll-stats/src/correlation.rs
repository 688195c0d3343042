//! Rank correlation.

use crate::moments::as_float;

/// Spearman's rank correlation, with the mean rank for ties. Against the time
/// of each pair it shows a drift that pairing did not cancel.
///
/// `None` if the lengths differ, there are fewer than two values, one is not
/// finite, or one side is constant.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<f64> {
    let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    if x.len() != y.len() || x.len() < 2 || !finite(x) || !finite(y) {
        return None;
    }
    correlation_of_ranks(&ranks(x), &ranks(y))
}

fn correlation_of_ranks(x: &[f64], y: &[f64]) -> Option<f64> {
    // Tied or not, the ranks 1 to n have the same mean.
    let center = f64::midpoint(1.0, as_float(x.len()));
    let products = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - center) * (b - center)).sum()
    };
    let scale = products(x, x).sqrt() * products(y, y).sqrt();
    (scale > 0.0).then(|| (products(x, y) / scale).clamp(-1.0, 1.0))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    #[expect(clippy::float_cmp, reason = "ties are equal values; zero ties with minus zero")]
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = f64::midpoint(as_float(below + 1), as_float(below + tied.len()));
        for &index in tied {
            ranks[index] = rank;
        }
        below += tied.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(x: &[f64], y: &[f64], expected: f64) {
        let actual = spearman(x, y).unwrap();
        assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
    }

    #[test]
    fn known_values() {
        check(&[1.0, 2.0, 3.0], &[10.0, 100.0, 101.0], 1.0);
        check(&[1.0, 2.0, 3.0], &[5.0, 4.0, -1.0], -1.0);
        // Without ties: 1 - 6 * 4 / (4 * 15).
        check(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 4.0, 3.0], 0.6);
        // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
        check(&[1.0, 2.0, 2.0, 3.0], &[1.0, 2.0, 3.0, 4.0], 4.5 / 22.5_f64.sqrt());
        check(&[0.0, -0.0, 1.0], &[5.0, 5.0, 6.0], 1.0);
    }

    #[test]
    fn nothing_to_say() {
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0, f64::NAN], &[1.0, 2.0]), None);
    }

    proptest! {
        #[test]
        fn bounded_symmetric_and_odd(
            pairs in prop::collection::vec((-3_i8..3, -100_i8..100), 0..40),
        ) {
            let (x, y): (Vec<f64>, Vec<f64>) =
                pairs.iter().map(|&(a, b)| (f64::from(a), f64::from(b))).unzip();
            let negated: Vec<f64> = y.iter().map(|value| -value).collect();
            let forward = spearman(&x, &y);
            prop_assert_eq!(forward, spearman(&y, &x));
            prop_assert_eq!(forward.map(|value| -value), spearman(&x, &negated));
            prop_assert!(forward.is_none_or(|value| value.abs() <= 1.0));
        }
    }
}
