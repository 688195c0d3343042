//! Steadiness of a comparison: drift, halves, outliers.

use statrs::function::factorial::ln_binomial;

use crate::correlation::spearman;
use crate::location::hodges_lehmann;
use crate::moments::{as_float, mean, sample_sd};
use crate::pairs::{Pair, Round};
use crate::quantiles::{median, sorted_quantile, t_p_value, t_quantile};

/// The outcome of one comparison's ratio while time passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Over the whole run.
    pub drift: Drift,
    /// Inside the rounds. `None` if there are fewer than two rounds with at
    /// least four usable pairs.
    pub halves: Option<Halves>,
}

/// Whether the ratio went up or down with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Spearman's rank correlation of the pairs' log ratios with their order:
    /// −1 to 1.
    pub correlation: f64,
    /// Two-sided: how probable a correlation at least as far from 0 is if the
    /// order means nothing. By t = ρ √((n − 2) / (1 − ρ²)) with n − 2 degrees
    /// of freedom, the usual approximation, good from about ten pairs on. It takes pairs as
    /// independent; rounds of unlike luck make it too small.
    pub p_value: f64,
    /// How many pairs had a log ratio.
    pub pairs: usize,
}

/// The second half of each round against its first half. What a start's luck
/// gave to the whole round is in both and cancels; what is left is warming up,
/// filling caches, growing tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halves {
    /// The typical ratio in second halves over that in first halves; 1 means no
    /// change. e^D, where D is the mean over the rounds of the difference of
    /// the two Hodges–Lehmann locations.
    pub ratio: f64,
    /// e^(D − `half_width`).
    pub lower: f64,
    /// e^(D + `half_width`).
    pub upper: f64,
    /// The half-width of the 95 % t interval around D, on the log scale, from the spread of
    /// the rounds' differences. Never widened.
    pub half_width: f64,
    /// How many rounds had enough pairs.
    pub rounds: usize,
}

/// Drift and halves of one comparison.
///
/// Pairs in which an amount is zero or not a finite positive number are left
/// out. `None` if fewer than three pairs are left, or all are alike.
pub fn trend(rounds: &[Round]) -> Option<Trend> {
    Some(Trend { drift: drift(rounds)?, halves: halves(rounds) })
}

fn drift(rounds: &[Round]) -> Option<Drift> {
    let log_ratios: Vec<f64> = rounds.iter().flat_map(log_ratios).collect();
    let order: Vec<f64> = (0..log_ratios.len()).map(as_float).collect();
    let freedom = as_float(log_ratios.len().checked_sub(2).filter(|&freedom| freedom > 0)?);
    let correlation = spearman(&order, &log_ratios)?;
    let t = correlation * (freedom / (1.0 - correlation * correlation)).sqrt();
    Some(Drift { correlation, p_value: t_p_value(t, freedom), pairs: log_ratios.len() })
}

fn log_ratios(round: &Round) -> Vec<f64> {
    round.pairs.iter().filter_map(Pair::log_ratio).collect()
}

fn halves(rounds: &[Round]) -> Option<Halves> {
    let differences: Vec<f64> = rounds.iter().filter_map(difference_of_halves).collect();
    let rounds = as_float(differences.len());
    let half_width = t_quantile(0.95, rounds - 1.0) * sample_sd(&differences)? / rounds.sqrt();
    let center = mean(&differences)?;
    Some(Halves {
        ratio: center.exp(),
        lower: (center - half_width).exp(),
        upper: (center + half_width).exp(),
        half_width,
        rounds: differences.len(),
    })
}

/// Halves of the pairs with a log ratio; the middle one of an odd number is in
/// neither.
fn difference_of_halves(round: &Round) -> Option<f64> {
    let log_ratios = log_ratios(round);
    let half = log_ratios.len() / 2;
    let late = hodges_lehmann(&log_ratios[log_ratios.len() - half..])?;
    (half >= 2).then_some(late - hodges_lehmann(&log_ratios[..half])?)
}

/// Slices far off, of the two arms of a comparison. They are counted and never
/// left out of anything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierShares {
    /// Slices of the treatment beyond a fence.
    pub treatment: usize,
    /// Slices of the baseline beyond a fence.
    pub baseline: usize,
    /// Slices of each arm.
    pub slices: usize,
    /// Two-sided: how probable a difference between the arms at least as large
    /// is if slices of both are as often far off. The exact test of
    /// `McNemar`. It
    /// counts the pairs of which one slice alone is beyond a fence: the order
    /// in a block is random, so a neighbour's job hits either with the same
    /// probability, and what hits both says nothing. Fisher's test would take
    /// the slices of a pair for independent, which they are not.
    pub p_value: f64,
}

/// Counts the slices of which numerator / denominator lies beyond Tukey's outer
/// fences: 3 interquartile ranges below the first quartile or above the third
/// (Exploratory Data Analysis, 1977).
///
/// Amounts are compared on the log scale and about the median of their arm in
/// their round, so that neither the cost that is looked for nor the luck of a
/// start makes outliers; the fences are those of both arms together, so that an
/// arm with many outliers does not widen its own. A slice without a rate, one
/// of its amounts being zero, lies beyond any fence.
///
/// `None` if there are fewer than four slices of an arm, if at least half of
/// all are alike so that there is no range, or if a round has too many slices
/// without a rate to have a median.
pub fn outlier_shares(rounds: &[Round]) -> Option<OutlierShares> {
    let mut centered: Vec<[f64; 2]> = Vec::new();
    for round in rounds.iter().filter(|round| !round.pairs.is_empty()) {
        centered.extend(about_medians(round)?);
    }
    let fences = outer_fences(centered.iter().flatten().copied().collect())?;
    // Not a number, which is how a slice without a rate comes here, is in no range.
    let beyond = |value: f64| !fences.contains(&value);
    let count = |flag: fn(bool, bool) -> bool| {
        centered.iter().filter(|pair| flag(beyond(pair[0]), beyond(pair[1]))).count()
    };
    (centered.len() >= 4).then(|| OutlierShares {
        treatment: count(|treatment, _| treatment),
        baseline: count(|_, baseline| baseline),
        slices: centered.len(),
        p_value: sign_test(
            count(|treatment, baseline| treatment && !baseline),
            count(|treatment, baseline| baseline && !treatment),
        ),
    })
}

/// Treatment and baseline of each pair: log rates about their medians, NaN for
/// none.
fn about_medians(round: &Round) -> Option<Vec<[f64; 2]>> {
    let log_rate = |numerator: f64, denominator: f64| {
        let rate = numerator.ln() - denominator.ln();
        if rate.is_finite() { rate } else { f64::NAN }
    };
    let mut rates: Vec<[f64; 2]> = round
        .pairs
        .iter()
        .map(|pair| {
            let [a, b, c, d] = pair.amounts();
            [log_rate(a, b), log_rate(c, d)]
        })
        .collect();
    for arm in 0..2 {
        let known: Vec<f64> =
            rates.iter().map(|pair| pair[arm]).filter(|rate| rate.is_finite()).collect();
        if known.len() * 2 <= rates.len() {
            return None;
        }
        let center = median(&known)?;
        for pair in &mut rates {
            pair[arm] -= center;
        }
    }
    Some(rates)
}

fn outer_fences(mut values: Vec<f64>) -> Option<std::ops::RangeInclusive<f64>> {
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    let first = sorted_quantile(&values, 0.25)?;
    let third = sorted_quantile(&values, 0.75)?;
    let reach = 3.0 * (third - first);
    (reach > 0.0).then_some(first - reach..=third + reach)
}

/// Two-sided: the probability that this many fair coins fall at least as unevenly.
fn sign_test(one: usize, other: usize) -> f64 {
    let few = one.min(other) as u64;
    let all = (one + other) as u64;
    let ln_half = -std::f64::consts::LN_2 * as_float(one + other);
    let tail: f64 = (0..=few).map(|heads| (ln_binomial(all, heads) + ln_half).exp()).sum();
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{Experiment, pair_of_rates};

    fn of_logs(rounds: &[&[f64]]) -> Vec<Round> {
        let pair = |log: &f64| pair_of_rates(log.exp(), 1.0, 3.0);
        rounds.iter().map(|logs| Round { pairs: logs.iter().map(pair).collect() }).collect()
    }

    #[test]
    fn drift_as_by_hand() {
        // Ranks 2 1 4 3 5 against 1 to 5: 1 - 6 * 4 / 120 = 0.8; t = 0.8 sqrt(3 / 0.36).
        let found = trend(&of_logs(&[&[0.2, 0.1], &[0.4, 0.3, 0.5]])).unwrap().drift;
        assert!((found.correlation - 0.8).abs() < 1e-12, "{found:?}");
        // 2 * pt(-2.309401, 3) in R.
        assert!((found.p_value - 0.104_088).abs() < 1e-6, "{found:?}");
        assert_eq!(found.pairs, 5);
    }

    #[test]
    fn a_run_that_only_rises_drifts_for_sure() {
        let found = trend(&of_logs(&[&[0.1, 0.2, 0.3, 0.4]])).unwrap();
        assert!((found.drift.correlation - 1.0).abs() < 1e-12, "{found:?}");
        assert!(found.drift.p_value < 1e-12, "{found:?}");
        assert_eq!(found.halves, None);
        assert_eq!(trend(&of_logs(&[&[0.1, 0.2]])), None);
        assert_eq!(trend(&of_logs(&[&[0.1, 0.1, 0.1]])), None);
        assert_eq!(trend(&[]), None);
    }

    #[test]
    fn halves_as_by_hand() {
        // Differences 0.1 and 0.3: the odd round's middle is left out, and so is the short one.
        let rounds =
            of_logs(&[&[0.0, 0.0, 0.1, 0.1], &[0.5, 0.5, 9.0, 0.8, 0.8], &[0.0, 5.0, 5.0]]);
        let found = trend(&rounds).unwrap().halves.unwrap();
        assert!((found.ratio.ln() - 0.2).abs() < 1e-12, "{found:?}");
        // The standard error of two values is half their difference.
        assert!((found.half_width - 12.706_205 * 0.1).abs() < 1e-6, "{found:?}");
        assert!((found.upper.ln() - 0.2 - found.half_width).abs() < 1e-9, "{found:?}");
        assert_eq!(found.rounds, 2);
    }

    #[test]
    fn where_nothing_changes_there_is_no_trend() {
        let mut drifts = 0;
        let mut changes = 0;
        let experiment = Experiment { round_sd: 0.0, ..Experiment::default() };
        for seed in 0..400 {
            let found = trend(&experiment.rounds(seed)).unwrap();
            drifts += usize::from(found.drift.p_value < 0.05);
            let halves = found.halves.unwrap();
            changes += usize::from(halves.lower > 1.0 || halves.upper < 1.0);
        }
        // 5 % of 400, give or take three standard deviations.
        assert!((8..=33).contains(&drifts), "{drifts}");
        assert!((8..=33).contains(&changes), "{changes}");
    }

    #[test]
    fn luck_of_rounds_is_not_in_the_halves() {
        let still = Experiment { round_sd: 0.0, ..Experiment::default() }.rounds(4);
        let mut moved = still.clone();
        for (round, factor) in moved.iter_mut().zip([1.5, 0.7, 1.0, 3.0, 0.2, 1.1]) {
            for pair in &mut round.pairs {
                pair.numerator_treatment *= factor;
            }
        }
        let halves = |rounds: &[Round]| trend(rounds).unwrap().halves.unwrap();
        assert!((halves(&still).ratio - halves(&moved).ratio).abs() < 1e-9);
        assert!((halves(&still).half_width - halves(&moved).half_width).abs() < 1e-9);
    }

    #[test]
    fn sign_test_as_in_closed_form() {
        // 2 * (1 + 10 + 45) / 1024: binom.test(2, 10) in R.
        for (one, other, expected) in
            [(0, 0, 1.0), (5, 5, 1.0), (1, 0, 1.0), (6, 0, 0.031_25), (2, 8, 0.109_375)]
        {
            assert!((sign_test(one, other) - expected).abs() < 1e-9, "{one} {other}");
        }
        // Normal approximation with its correction: z = (|a - b| - 1) / sqrt(a + b) = 1.96.
        assert!((sign_test(5000, 5197) - 0.052).abs() < 0.001);
        assert!(sign_test(0, 100_000) < 1e-300);
    }

    fn ladder() -> Vec<Round> {
        // Log rates 0.00 to 0.39 of both arms, the treatment's 50 % higher: quartiles about
        // -0.0975 and 0.0975, so fences at about 0.68 from the medians.
        let pair = |step: i32| {
            let rate = (f64::from(step) * 0.01).exp();
            pair_of_rates(1.5 * rate, rate, 100.0)
        };
        vec![Round { pairs: (0..40).map(pair).collect() }; 3]
    }

    #[test]
    fn slices_beyond_the_fences_are_counted_by_arm() {
        let mut rounds = ladder();
        let none = OutlierShares { treatment: 0, baseline: 0, slices: 120, p_value: 1.0 };
        assert_eq!(outlier_shares(&rounds), Some(none));
        // One just inside, one just outside, a stall, and one that hit both arms.
        rounds[0].pairs[20].numerator_treatment *= 0.60_f64.exp();
        rounds[0].pairs[21].numerator_treatment *= 0.75_f64.exp();
        rounds[1].pairs[20].denominator_treatment = 0.0;
        rounds[2].pairs[20].numerator_treatment *= 9.0;
        rounds[2].pairs[20].numerator_baseline *= 9.0;
        let found = outlier_shares(&rounds).unwrap();
        assert_eq!((found.treatment, found.baseline, found.slices), (3, 1, 120));
        assert!((found.p_value - 0.5).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn where_there_is_no_range_there_are_no_fences() {
        assert_eq!(outlier_shares(&[]), None);
        assert_eq!(outlier_shares(&of_logs(&[&[0.1; 9], &[0.1; 9]])), None);
        assert_eq!(outlier_shares(&of_logs(&[&[0.1, 0.2, 0.3]])), None);
        let mut stalled = ladder();
        for pair in &mut stalled[1].pairs[..20] {
            pair.numerator_baseline = 0.0;
        }
        assert_eq!(outlier_shares(&stalled), None);
    }

    fn swapped(rounds: &[Round]) -> Vec<Round> {
        let swap = |pair: &Pair| {
            let [a, b, c, d] = pair.amounts();
            Pair {
                numerator_treatment: c,
                denominator_treatment: d,
                numerator_baseline: a,
                denominator_baseline: b,
            }
        };
        rounds.iter().map(|round| Round { pairs: round.pairs.iter().map(swap).collect() }).collect()
    }

    fn any_rounds() -> impl Strategy<Value = Vec<Round>> {
        let amount = prop_oneof![8 => 0.01..1e3_f64, 1 => Just(0.0), 1 => any::<f64>()];
        let pair = prop::array::uniform4(amount).prop_map(|[a, b, c, d]| Pair {
            numerator_treatment: a,
            denominator_treatment: b,
            numerator_baseline: c,
            denominator_baseline: d,
        });
        let round = prop::collection::vec(pair, 0..20).prop_map(|pairs| Round { pairs });
        prop::collection::vec(round, 0..5)
    }

    proptest! {
        #[test]
        fn any_amounts_give_a_trend_in_order_or_none(rounds in any_rounds()) {
            if let Some(found) = trend(&rounds) {
                prop_assert!((-1.0..=1.0).contains(&found.drift.correlation));
                prop_assert!((0.0..=1.0).contains(&found.drift.p_value));
                if let Some(halves) = found.halves {
                    prop_assert!(halves.lower <= halves.ratio && halves.ratio <= halves.upper);
                }
            }
            if let Some(found) = outlier_shares(&rounds) {
                prop_assert!(found.treatment.max(found.baseline) <= found.slices);
                prop_assert!((0.0..=1.0).contains(&found.p_value));
            }
        }

        #[test]
        fn swapped_arms_mirror_the_trend(rounds in any_rounds()) {
            let there = trend(&rounds);
            let back = trend(&swapped(&rounds));
            prop_assert_eq!(there.map(|item| item.drift.correlation), back.map(|back| -back.drift.correlation));
            let there = outlier_shares(&rounds).map(|outlier_share| (outlier_share.treatment, outlier_share.baseline, outlier_share.p_value));
            let back = outlier_shares(&swapped(&rounds));
            prop_assert_eq!(there, back.map(|back| (back.baseline, back.treatment, back.p_value)));
        }

        #[test]
        fn coins_add_up(all in 0_usize..60) {
            // The p value of each outcome, weighed by its probability, is never too small.
            let chance = |heads: usize| {
                (ln_binomial(all as u64, heads as u64)
                    - as_float(all) * std::f64::consts::LN_2).exp()
            };
            for level in [0.01, 0.05, 0.2, 1.0] {
                let rejected: f64 = (0..=all)
                    .filter(|&heads| sign_test(heads, all - heads) <= level)
                    .map(chance)
                    .sum();
                prop_assert!(rejected <= level + 1e-9, "{rejected} at {level}");
            }
        }
    }
}
