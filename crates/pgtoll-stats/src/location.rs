//! The Hodges–Lehmann estimate of location.
//!
//! It is the median of all Walsh averages `(x_i + x_j) / 2`, `i <= j`: nearly
//! as precise as the mean for normal noise, and like the median unmoved by a
//! minority of wild values. There are n (n + 1) / 2 averages, but they need
//! not be listed. In sorted data the averages grow along every row and every
//! column of the matrix (i, j), so one walk of n steps counts those up to any
//! limit. Bisection by value with that count narrows the middle down to a few
//! averages per row; those are listed and selected from, so the result is
//! exact.

/// The median of all Walsh averages `(x_i + x_j) / 2` with `i <= j`; the
/// average of the two middle ones when their number is even.
///
/// `None` if there are no values or one is not finite.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut halves: Vec<f64> = values.iter().map(|value| value / 2.0).collect();
    halves.sort_unstable_by(f64::total_cmp);
    Some(median_of_sums(&halves, &mut Vec::new()))
}

/// The median of all sums `halves[i] + halves[j]`, `i <= j`.
///
/// The halves are finite, sorted and at least one. Halves, because the sum of
/// two of them cannot overflow. `scratch` is only there to be reused.
pub(crate) fn median_of_sums(halves: &[f64], scratch: &mut Vec<f64>) -> f64 {
    let sums = halves.len() * (halves.len() + 1) / 2;
    // Ranks from zero; equal when the number of sums is odd.
    let lower_rank = (sums - 1) / 2;
    let upper_rank = sums / 2;
    let few = 2 * halves.len() + 16;

    // Both middle sums lie in the half-open interval (low, high].
    let first = halves[0];
    let last = halves[halves.len() - 1];
    let mut low = f64::NEG_INFINITY;
    let mut below_low = 0;
    let mut high = last + last;
    let mut below_high = sums;
    let mut pivot = first + first;
    while below_high - below_low > few {
        if !(low < pivot && pivot < high) {
            // No number is left between the bounds: all that remains is ties.
            return high;
        }
        let below = count_up_to(halves, pivot);
        if below <= lower_rank {
            (low, below_low) = (pivot, below);
        } else if below > upper_rank {
            (high, below_high) = (pivot, below);
        } else {
            return between_neighbours(halves, pivot);
        }
        pivot = f64::midpoint(low, high);
    }

    list_between(halves, low, high, scratch);
    let (_, &mut lower, above) =
        scratch.select_nth_unstable_by(lower_rank - below_low, f64::total_cmp);
    if lower_rank == upper_rank {
        return lower;
    }
    f64::midpoint(lower, above.iter().copied().fold(high, f64::min))
}

fn count_up_to(halves: &[f64], limit: f64) -> usize {
    let mut count = 0;
    // As i grows, the partners that stay within the limit become fewer.
    let mut end = halves.len();
    for (i, &half) in halves.iter().enumerate() {
        while end > i && half + halves[end - 1] > limit {
            end -= 1;
        }
        if end <= i {
            break;
        }
        count += end - i;
    }
    count
}

/// The point halfway between the largest sum up to `pivot` and the smallest
/// above it. Both exist, because `pivot` parts the two middle ranks.
fn between_neighbours(halves: &[f64], pivot: f64) -> f64 {
    let mut below = f64::NEG_INFINITY;
    let mut above = f64::INFINITY;
    let mut end = halves.len();
    for (i, &half) in halves.iter().enumerate() {
        while end > i && half + halves[end - 1] > pivot {
            end -= 1;
        }
        if end > i {
            below = below.max(half + halves[end - 1]);
        }
        if let Some(next) = halves.get(end.max(i)) {
            above = above.min(half + next);
        }
    }
    f64::midpoint(below, above)
}

fn list_between(halves: &[f64], low: f64, high: f64, sums: &mut Vec<f64>) {
    sums.clear();
    let mut start = halves.len();
    let mut end = halves.len();
    for (i, &half) in halves.iter().enumerate() {
        while end > i && half + halves[end - 1] > high {
            end -= 1;
        }
        while start > i && half + halves[start - 1] > low {
            start -= 1;
        }
        if end <= i {
            break;
        }
        sums.extend(halves[start.max(i)..end].iter().map(|other| half + other));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quantiles::median;

    fn brute_force(values: &[f64]) -> Option<f64> {
        let averages: Vec<f64> = values
            .iter()
            .enumerate()
            .flat_map(|(i, x)| values[i..].iter().map(move |y| x / 2.0 + y / 2.0))
            .collect();
        median(&averages)
    }

    fn check(values: &[f64]) {
        let actual = hodges_lehmann(values);
        let expected = brute_force(values);
        let actual = actual.unwrap();
        let expected = expected.unwrap();
        // The two halve the middle in different ways: equal but for one rounding.
        let tolerance = 2.0 * f64::EPSILON * expected.abs();
        assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected}: {values:?}");
    }

    #[test]
    fn known_values() {
        assert_eq!(hodges_lehmann(&[7.0]), Some(7.0));
        assert_eq!(hodges_lehmann(&[1.0, 2.0]), Some(1.5));
        // Averages 1, 1.5, 2, 5.5, 6, 10: the middle is between 2 and 5.5.
        assert_eq!(hodges_lehmann(&[10.0, 1.0, 2.0]), Some(3.75));
    }

    #[test]
    fn ties_and_extremes() {
        check(&[0.1; 300]);
        check(&[f64::MAX; 50]);
        check(&[f64::MAX, -f64::MAX]);
        check(&[1e300, 1e-300, -1e300, 5.0, 5.0, 5.0]);
        let mut mostly_tied = vec![3.0; 200];
        mostly_tied.extend((0..50).map(f64::from));
        check(&mostly_tied);
        let mut far_apart = vec![0.0; 150];
        far_apart.extend([1.0; 150]);
        check(&far_apart);
        // Most of the range is empty: bisection has to find a needle in it.
        let mut needle: Vec<f64> = (0..200).map(|n| f64::from(n) * 1e-9).collect();
        needle.push(1e300);
        check(&needle);
    }

    #[test]
    fn nothing_to_say() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[1.0, f64::NAN]), None);
        assert_eq!(hodges_lehmann(&[1.0, f64::NEG_INFINITY]), None);
    }

    #[test]
    fn a_minority_of_wild_values_hardly_moves_it() {
        let mut values: Vec<f64> = (-50..=50).map(f64::from).collect();
        values.extend([1e12; 10]);
        assert!(hodges_lehmann(&values).unwrap().abs() < 10.0);
    }

    proptest! {
        #[test]
        fn equals_brute_force(values in prop::collection::vec(-1e3..1e3_f64, 1..150)) {
            check(&values);
        }

        #[test]
        fn equals_brute_force_with_ties(values in prop::collection::vec(-4_i8..4, 1..150)) {
            check(&values.into_iter().map(f64::from).collect::<Vec<f64>>());
        }

        #[test]
        fn never_panics(values in prop::collection::vec(any::<f64>(), 0..120)) {
            let finite = !values.is_empty() && values.iter().all(|value| value.is_finite());
            prop_assert_eq!(hodges_lehmann(&values).is_some(), finite);
        }

        #[test]
        fn shift_and_scale(
            values in prop::collection::vec(-1e3..1e3_f64, 1..100),
            shift in -1e3..1e3_f64,
            scale in 0.01..100.0_f64,
        ) {
            let moved: Vec<f64> = values.iter().map(|value| value * scale + shift).collect();
            let expected = hodges_lehmann(&values).unwrap() * scale + shift;
            prop_assert!((hodges_lehmann(&moved).unwrap() - expected).abs() < 1e-8);
        }

        #[test]
        fn negation_is_exact(values in prop::collection::vec(-1e3..1e3_f64, 1..150)) {
            let negated: Vec<f64> = values.iter().map(|value| -value).collect();
            let expected = hodges_lehmann(&values).map(|value| -value);
            prop_assert_eq!(hodges_lehmann(&negated), expected);
        }
    }
}
