//! The interval of a proportion.

/// The 95 % confidence interval of hits among all, by Wilson (1927): unlike the usual one it stays
/// between 0 and 1, and is good for few hits too. It takes the trials as independent.
///
/// `None` without trials, or with more hits than trials.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
pub fn proportion_interval(hits: u64, all: u64) -> Option<(f64, f64)> {
    if all == 0 || hits > all {
        return None;
    }
    let share = hits as f64 / all as f64;
    let number = all as f64;
    let squared = QUANTILE * QUANTILE;
    let centre = (hits as f64 + squared / 2.0) / (number + squared);
    let spread = share * (1.0 - share) * number + squared / 4.0;
    let half_width = QUANTILE / (number + squared) * spread.sqrt();
    // The ends meet 0 and 1 exactly but for rounding.
    let lower = if hits == 0 { 0.0 } else { (centre - half_width).clamp(0.0, share) };
    let upper = if hits == all { 1.0 } else { (centre + half_width).clamp(share, 1.0) };
    Some((lower, upper))
}

/// The quantile of the normal distribution for 95 %.
const QUANTILE: f64 = 1.959_963_984_540_054;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_wilsons() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        let published = [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)];
        let at_the_edge = [(0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)];
        for (hits, all, lower, upper) in published.into_iter().chain(at_the_edge) {
            let interval = proportion_interval(hits, all).unwrap();
            assert!((interval.0 - lower).abs() < 5e-5, "{interval:?}");
            assert!((interval.1 - upper).abs() < 5e-5, "{interval:?}");
        }
        assert_eq!(proportion_interval(0, 0), None);
        assert_eq!(proportion_interval(2, 1), None);
    }

    proptest! {
        #[test]
        fn it_holds_the_share(all in 1..u64::MAX, hits: u64) {
            let hits = hits % (all + 1);
            let (lower, upper) = proportion_interval(hits, all).unwrap();
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = hits as f64 / all as f64;
            prop_assert!(0.0 <= lower && lower <= share && share <= upper && upper <= 1.0);
        }
    }
}
