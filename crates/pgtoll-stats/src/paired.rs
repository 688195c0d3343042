//! The ratio of a cost between treatment and baseline, with its interval.

use crate::bootstrap::{self, Draws, Series};
use crate::error::{EstimateError, RESAMPLES_MAX};
use crate::moments::{as_float, mean, sample_sd};
use crate::pairs::{Pair, Round};
use crate::quantiles::{sorted_quantile, t_quantile};

/// How to estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How often to resample: from 2 to [`RESAMPLES_MAX`].
    pub resamples: usize,
    /// Fixes the random draws; the same input and seed give the same estimate.
    pub seed: u64,
    /// The probability with which the interval should hold the true ratio.
    pub confidence: f64,
    /// κ, at least 1: every half-width is multiplied by it. It is the factor
    /// that comparing an arm with its own twin has shown to be needed.
    pub widening: f64,
    /// The fewest consecutive pairs resampled as one block; see
    /// [`minimum_block_length_for`].
    pub minimum_block_length: usize,
}

impl Default for Options {
    /// 2000 resamples with seed 0, 95 %, not widened, blocks of one pair or more.
    fn default() -> Self {
        Self { resamples: 2000, seed: 0, confidence: 0.95, widening: 1.0, minimum_block_length: 1 }
    }
}

impl Options {
    fn check(&self) -> Result<(), EstimateError> {
        if !(2..=RESAMPLES_MAX).contains(&self.resamples) {
            return Err(EstimateError::Resamples(self.resamples));
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Err(EstimateError::Confidence(self.confidence));
        }
        if !(self.widening >= 1.0 && self.widening.is_finite()) {
            return Err(EstimateError::Widening(self.widening));
        }
        Ok(())
    }
}

/// The part of the bootstrap's half-width below which the spread between rounds
/// is taken for luck.
///
/// All of it would be too much: the larger of two half-widths that are right on
/// their own is too wide, and would miss in 2.6 % of six rounds that do not
/// differ instead of in 5 %. With 0.7, half the variance, it is 4.2 %.
pub const WITHIN_SHARE: f64 = 0.7;

/// The number of consecutive pairs that fill a second, for
/// [`Options::minimum_block_length`]: what disturbs a machine lasts that long
/// even where the autocorrelation of the pairs is too noisy to show it.
///
/// One if `pair_seconds`, the time from one pair to the next, is not a
/// positive number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a cast from too large a number saturates, as it should"
)]
pub fn minimum_block_length_for(pair_seconds: f64) -> usize {
    if pair_seconds > 0.0 { (1.0 / pair_seconds).ceil().max(1.0) as usize } else { 1 }
}

/// The result of [`paired_ratio`]. Ratios are treatment over baseline; they are
/// infinite or zero where the logarithm is out of reach of a float.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The typical ratio: e^θ, where θ is the mean over the rounds of the
    /// Hodges–Lehmann location of the pairs' log ratios.
    pub ratio: f64,
    /// e^(θ − `half_width`).
    pub lower: f64,
    /// e^(θ + `half_width`).
    pub upper: f64,
    /// The half-width of the interval around θ, on the log scale, widening included.
    pub half_width: f64,
    /// The ratio of the totals: sum of numerators over sum of denominators,
    /// treatment over baseline. Unlike `ratio` it keeps rare long stalls.
    pub total_ratio: f64,
    /// e^(ln `total_ratio` − `total_half_width`).
    pub total_lower: f64,
    /// e^(ln `total_ratio` + `total_half_width`).
    pub total_upper: f64,
    /// The half-width of the interval around ln `total_ratio`, on the log scale, widening
    /// included.
    pub total_half_width: f64,
    /// The location of each round's log ratios; θ is their mean.
    pub round_log_ratios: Vec<f64>,
    /// The half-width for θ of a t interval over the rounds, before widening.
    /// `None` with one round, which has no spread: the interval then speaks
    /// for that round only, and is too narrow for the next.
    pub rounds_half_width: Option<f64>,
    /// The half-width for θ from the bootstrap inside the rounds, before
    /// widening: what the interval would be if all rounds had the same luck.
    pub bootstrap_half_width: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of pairs, dropped ones included.
    pub pairs: usize,
    /// Number of consecutive pairs resampled as one block. A round with fewer
    /// pairs than this is one block.
    pub block_length: usize,
    /// Pairs in which an amount is zero. They have no log ratio, so θ goes
    /// without them; the totals do not.
    pub dropped_pairs: usize,
}

impl Estimate {
    /// The same with both half-widths multiplied by `factor`, on the log scale.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        let around = |ratio: f64, half_width: f64| {
            ((ratio.ln() - half_width).exp(), (ratio.ln() + half_width).exp())
        };
        let half_width = self.half_width * factor;
        let total_half_width = self.total_half_width * factor;
        let (lower, upper) = around(self.ratio, half_width);
        let (total_lower, total_upper) = around(self.total_ratio, total_half_width);
        Self { lower, upper, half_width, total_lower, total_upper, total_half_width, ..self }
    }

    /// How many rounds like these there would have to be, these included, for
    /// `half_width` to come down to `target`, if their spread stays what it is.
    /// Both parts of it fall with the square root of their number, and t falls
    /// with it too. `options` are those of the estimate.
    ///
    /// `None` if there is but one round, whose spread nobody knows, if the
    /// target is not a positive number, or if a billion rounds are not enough.
    pub fn rounds_needed(&self, options: &Options, target: f64) -> Option<u32> {
        let now = as_float(self.rounds);
        let t_now = t_quantile(options.confidence, now - 1.0);
        let spread = self.rounds_half_width?;
        let bootstrap = self.bootstrap_half_width;
        let is_enough = |rounds: u32| {
            let rounds = f64::from(rounds);
            let scale = (now / rounds).sqrt();
            let t = t_quantile(options.confidence, rounds - 1.0) / t_now;
            let half_width = larger(Some(spread * t * scale), bootstrap * scale);
            half_width * options.widening <= target
        };
        if target.is_nan() || target <= 0.0 || !is_enough(ROUNDS_NEEDED_MAX) {
            return None;
        }
        let mut few = u32::try_from(self.rounds).ok().filter(|&now| now < ROUNDS_NEEDED_MAX)?;
        if is_enough(few) {
            return Some(few);
        }
        let mut enough = ROUNDS_NEEDED_MAX;
        while enough - few > 1 {
            let middle = few.midpoint(enough);
            if is_enough(middle) {
                enough = middle;
            } else {
                few = middle;
            }
        }
        Some(enough)
    }
}

const ROUNDS_NEEDED_MAX: u32 = 1_000_000_000;

/// Estimates the ratio of the treatment's cost to the baseline's.
///
/// Two ratios come out. The typical one is e^θ, θ being the mean over rounds
/// of the Hodges–Lehmann location of the pairs' log ratios. As slices come in
/// random order, the log ratios are symmetric about θ, so this neglect of wild
/// slices adds no bias. The other is the ratio of the totals, which forgets
/// nothing.
///
/// The interval is a t interval over the rounds' values, t · s / √R. Their
/// spread holds everything that differs from round to round, the luck of a
/// start as well as the noise of the slices, so nothing is added to it.
///
/// Few rounds can by luck lie close together, closer than their own slices
/// allow. A bootstrap tells what those allow: it keeps the rounds and fills
/// each with moving blocks of its own consecutive pairs. Blocks are as long as
/// the smallest lag at which the autocorrelation of the log ratios (about their
/// round's mean, pooled over the rounds) falls below 2 / √(pairs per round).
/// The bootstrap's half-width is half the distance between the two percentiles;
/// the interval's is not less than [`WITHIN_SHARE`] of it. One round has no
/// spread, and then all of the bootstrap's half-width is the interval's.
///
/// The half-width, times [`Options::widening`], is laid to both sides of the
/// estimate on the log scale: the interval is symmetric there, not as ratios.
pub fn paired_ratio(rounds: &[Round], options: &Options) -> Result<Estimate, EstimateError> {
    options.check()?;
    let series = rounds
        .iter()
        .enumerate()
        .map(|(index, round)| Series::new(index, round))
        .collect::<Result<Vec<Series<'_>>, EstimateError>>()?;
    let round_log_ratios: Vec<f64> = series.iter().map(|series| series.location).collect();
    let round_totals: Vec<f64> = series.iter().map(|series| series.total).collect();

    let theta = mean(&round_log_ratios).ok_or(EstimateError::NoRounds)?;
    let total = Pair::total(rounds.iter().flat_map(|round| &round.pairs));
    let total = total.log_ratio().ok_or(EstimateError::Overflow)?;

    let block_length = bootstrap::block_length(&series, options.minimum_block_length);
    let Draws { typical, total: draws_of_total } =
        bootstrap::draw(&series, block_length, options.resamples, options.seed);
    let width = Width::new(typical, &round_log_ratios, options)?;
    let total_width = Width::new(draws_of_total, &round_totals, options)?;

    let pairs = rounds.iter().map(|round| round.pairs.len()).sum();
    Ok(Estimate {
        ratio: theta.exp(),
        lower: (theta - width.widened).exp(),
        upper: (theta + width.widened).exp(),
        half_width: width.widened,
        total_ratio: total.exp(),
        total_lower: (total - total_width.widened).exp(),
        total_upper: (total + total_width.widened).exp(),
        total_half_width: total_width.widened,
        round_log_ratios,
        rounds_half_width: width.rounds,
        bootstrap_half_width: width.bootstrap,
        rounds: rounds.len(),
        pairs,
        block_length,
        dropped_pairs: pairs - series.iter().map(Series::usable_pairs).sum::<usize>(),
    })
}

struct Width {
    bootstrap: f64,
    rounds: Option<f64>,
    widened: f64,
}

impl Width {
    fn new(
        mut draws: Vec<f64>,
        by_round: &[f64],
        options: &Options,
    ) -> Result<Self, EstimateError> {
        draws.sort_unstable_by(f64::total_cmp);
        let tail = f64::midpoint(1.0, -options.confidence);
        let percentile = |probability| {
            sorted_quantile(&draws, probability).ok_or(EstimateError::NoUsableResample)
        };
        // Between equal draws the two interpolations may differ by a rounding.
        let bootstrap = ((percentile(1.0 - tail)? - percentile(tail)?) / 2.0).max(0.0);
        let rounds = rounds_half_width(by_round, options.confidence);
        let widened = larger(rounds, bootstrap) * options.widening;
        Ok(Self { bootstrap, rounds, widened })
    }
}

fn larger(rounds: Option<f64>, bootstrap: f64) -> f64 {
    rounds.map_or(bootstrap, |rounds| rounds.max(WITHIN_SHARE * bootstrap))
}

fn rounds_half_width(by_round: &[f64], confidence: f64) -> Option<f64> {
    let rounds = as_float(by_round.len());
    let sd = sample_sd(by_round)?;
    Some(t_quantile(confidence, rounds - 1.0) * sd / rounds.sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{Experiment, Handicap, Machine, pair_of_rates};

    fn options(seed: u64, resamples: usize) -> Options {
        Options { resamples, seed, ..Options::default() }
    }

    fn constant_ratio(ratio: f64, rounds: u32, pairs: u32) -> Vec<Round> {
        let pair = |round: u32, pair: u32| {
            let cost = 100.0 + f64::from(round * 7 + pair % 13);
            pair_of_rates(cost * ratio, cost, 50.0)
        };
        (0..rounds)
            .map(|round| Round { pairs: (0..pairs).map(|index| pair(round, index)).collect() })
            .collect()
    }

    fn swapped(rounds: &[Round]) -> Vec<Round> {
        let swap = |pair: &Pair| Pair {
            numerator_treatment: pair.numerator_baseline,
            denominator_treatment: pair.denominator_baseline,
            numerator_baseline: pair.numerator_treatment,
            denominator_baseline: pair.denominator_treatment,
        };
        rounds.iter().map(|round| Round { pairs: round.pairs.iter().map(swap).collect() }).collect()
    }

    #[test]
    fn a_constant_ratio_has_no_width() {
        let estimate = paired_ratio(&constant_ratio(1.25, 4, 30), &options(1, 300)).unwrap();
        assert!((estimate.ratio - 1.25).abs() < 1e-12);
        assert!((estimate.total_ratio - 1.25).abs() < 1e-12);
        assert!(estimate.half_width < 1e-12 && estimate.total_half_width < 1e-12);
        assert_eq!((estimate.rounds, estimate.pairs, estimate.dropped_pairs), (4, 120, 0));
    }

    #[test]
    fn widening_afterwards_is_widening_before() {
        let rounds = Experiment::default().rounds(3);
        let plain = paired_ratio(&rounds, &options(1, 300)).unwrap();
        let before = Options { widening: 1.4, ..options(1, 300) };
        let before = paired_ratio(&rounds, &before).unwrap();
        let after = plain.clone().widened(1.4);
        let bounds = |estimate: &Estimate| {
            [estimate.lower, estimate.upper, estimate.total_lower, estimate.total_upper]
        };
        for (one, other) in bounds(&before).into_iter().zip(bounds(&after)) {
            assert!((one / other - 1.0).abs() < 1e-12, "{before:?} {after:?}");
        }
        assert_eq!(after.ratio.to_bits(), plain.ratio.to_bits());
    }

    #[test]
    fn one_round_has_the_bootstrap_alone() {
        let rounds = Experiment::default().rounds(5);
        let estimate = paired_ratio(&rounds[..1], &options(1, 300)).unwrap();
        assert_eq!(estimate.rounds_half_width, None);
        assert_eq!(estimate.half_width.to_bits(), estimate.bootstrap_half_width.to_bits());
        // Theory for normal noise: 1.96 * 0.08 / sqrt(60) = 0.020.
        let width = estimate.half_width;
        assert!((0.014..0.028).contains(&width), "{width}");
    }

    #[test]
    fn one_pair_is_an_estimate_without_width() {
        let rounds = [Round { pairs: vec![pair_of_rates(3.0, 2.0, 1.0)] }];
        let estimate = paired_ratio(&rounds, &Options::default()).unwrap();
        assert!((estimate.ratio - 1.5).abs() < 1e-12);
        assert_eq!((estimate.half_width, estimate.block_length), (0.0, 1));
    }

    #[test]
    fn the_interval_is_a_t_interval_over_rounds() {
        let rounds: Vec<Round> = [1.0_f64, 2.0, 3.0]
            .iter()
            .map(|log| Round { pairs: vec![pair_of_rates(log.exp(), 1.0, 1.0); 5] })
            .collect();
        let estimate = paired_ratio(&rounds, &options(1, 500)).unwrap();
        let expected = 4.302_653 / 3.0_f64.sqrt();
        assert!((estimate.half_width - expected).abs() < 1e-5, "{estimate:?}");
        assert!((estimate.total_half_width - expected).abs() < 1e-5, "{estimate:?}");
        assert!(estimate.bootstrap_half_width < 1e-12);
        assert!((estimate.ratio.ln() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn rounds_that_agree_by_luck_do_not_make_it_narrow() {
        let one = Experiment { rounds: 1, ..Experiment::default() }.rounds(1).remove(0);
        let rounds = vec![one; 6];
        let estimate = paired_ratio(&rounds, &options(1, 2000)).unwrap();
        assert!(estimate.rounds_half_width.unwrap() < 1e-12);
        let share = estimate.half_width / estimate.bootstrap_half_width;
        assert!((share - WITHIN_SHARE).abs() < 1e-12, "{share}");
        // Theory for normal noise: 1.96 * 0.08 / sqrt(360) = 0.0083.
        let width = estimate.bootstrap_half_width;
        assert!((0.006..0.011).contains(&width), "{width}");
    }

    #[test]
    fn rounds_needed_are_those_that_suffice() {
        let options = options(1, 300);
        let estimate = paired_ratio(&Experiment::default().rounds(3), &options).unwrap();
        let sd = sample_sd(&estimate.round_log_ratios).unwrap();
        let pick = |rounds: u32| {
            let rounds = f64::from(rounds);
            t_quantile(0.95, rounds - 1.0) * sd / rounds.sqrt()
        };
        for target in [0.02, 0.01, 0.003, 0.0004] {
            let rounds = estimate.rounds_needed(&options, target).unwrap();
            assert!(pick(rounds) <= target && pick(rounds - 1) > target, "{target}: {rounds}");
        }
        assert_eq!(estimate.rounds_needed(&options, estimate.half_width), Some(6));
        assert_eq!(estimate.rounds_needed(&options, f64::INFINITY), Some(6));
        for odd in [0.0, -1.0, f64::NAN, 1e-12] {
            assert_eq!(estimate.rounds_needed(&options, odd), None);
        }
        let one = paired_ratio(&Experiment::default().rounds(3)[..1], &options).unwrap();
        assert_eq!(one.rounds_needed(&options, 0.01), None);
    }

    #[test]
    fn widening_multiplies_the_half_width() {
        let rounds = Experiment::default().rounds(6);
        let plain = paired_ratio(&rounds, &options(1, 300)).unwrap();
        let wide = paired_ratio(&rounds, &Options { widening: 1.5, ..options(1, 300) }).unwrap();
        assert!((wide.half_width - 1.5 * plain.half_width).abs() < 1e-12);
        assert!((wide.upper.ln() - wide.ratio.ln() - wide.half_width).abs() < 1e-12);
        assert_eq!(wide.bootstrap_half_width.to_bits(), plain.bootstrap_half_width.to_bits());
    }

    #[test]
    fn a_stall_shows_in_the_totals_only() {
        let mut rounds = constant_ratio(1.0, 3, 50);
        for round in &mut rounds {
            // The treatment stands still for a slice: time passes, nothing done.
            round.pairs[10].numerator_treatment = 0.0;
        }
        let estimate = paired_ratio(&rounds, &options(3, 300)).unwrap();
        assert_eq!(estimate.dropped_pairs, 3);
        assert!((estimate.ratio - 1.0).abs() < 1e-12);
        assert!(estimate.total_ratio < 0.99);
        assert!(estimate.total_lower < estimate.total_ratio);
    }

    #[test]
    fn swapping_the_arms_inverts_the_ratio() {
        for seed in 0..10 {
            let rounds = Experiment::default().rounds(seed);
            let forward = paired_ratio(&rounds, &options(seed, 500)).unwrap();
            let back = paired_ratio(&swapped(&rounds), &options(seed, 500)).unwrap();
            let negated: Vec<f64> = back.round_log_ratios.iter().map(|log| -log).collect();
            assert_eq!(forward.round_log_ratios, negated);
            assert!((forward.ratio * back.ratio - 1.0).abs() < 1e-12);
            assert!((forward.lower * back.upper - 1.0).abs() < 1e-9);
            assert!((forward.total_upper * back.total_lower - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_seed_decides() {
        let rounds = Experiment::default().rounds(8);
        let first = paired_ratio(&rounds, &options(1, 300)).unwrap();
        assert_eq!(first, paired_ratio(&rounds, &options(1, 300)).unwrap());
        let other = paired_ratio(&rounds, &options(2, 300)).unwrap();
        assert_eq!(first.ratio.to_bits(), other.ratio.to_bits());
        assert_ne!(first.bootstrap_half_width.to_bits(), other.bootstrap_half_width.to_bits());
    }

    /// Simulates, and returns the shares of intervals (typical, total) that
    /// hold the truth, and the mean half-widths.
    fn coverage(experiment: &Experiment, simulations: u32) -> ([f64; 2], [f64; 2]) {
        let mut covered = [0.0; 2];
        let mut widths = [0.0; 2];
        // Sums keep what log ratios average out: noise above weighs more than noise below.
        let variance = experiment.pair_sd.powi(2) + experiment.round_sd.powi(2);
        let truths = [0.0, variance / 2.0].map(|excess| (experiment.log_ratio + excess).exp());
        let share = 1.0 / f64::from(simulations);
        for seed in 0..u64::from(simulations) {
            let rounds = experiment.rounds(seed);
            let estimate = paired_ratio(&rounds, &options(seed, 100)).unwrap();
            let bounds =
                [(estimate.lower, estimate.upper), (estimate.total_lower, estimate.total_upper)];
            for ((covered, (lower, upper)), truth) in covered.iter_mut().zip(bounds).zip(truths) {
                *covered += if lower <= truth && truth <= upper { share } else { 0.0 };
            }
            widths[0] += estimate.half_width * share;
            widths[1] += estimate.total_half_width * share;
        }
        (covered, widths)
    }

    fn check_coverage(experiment: &Experiment, half_width_at_most: f64) {
        let (covered, widths) = coverage(experiment, 300);
        let is_good = |&share: &f64| (0.93..0.99).contains(&share);
        assert!(covered.iter().all(is_good), "{covered:?} {widths:?}");
        let is_narrow = |&width: &f64| width < half_width_at_most;
        assert!(widths.iter().all(is_narrow), "{covered:?} {widths:?}");
    }

    #[test]
    fn intervals_cover_despite_effects_of_rounds() {
        // t interval: 2.57 * sqrt(0.015^2 / 6 + 0.08^2 / 360) = 0.019.
        check_coverage(&Experiment::default(), 0.02);
        // 2.26 * sqrt(0.015^2 / 10 + 0.08^2 / 600) = 0.013.
        check_coverage(&Experiment { rounds: 10, ..Experiment::default() }, 0.014);
    }

    #[test]
    fn intervals_cover_without_effects_of_rounds() {
        // 2.57 * 0.08 / sqrt(360) = 0.0108.
        check_coverage(&Experiment { round_sd: 0.0, ..Experiment::default() }, 0.0115);
    }

    #[test]
    fn intervals_cover_despite_autocorrelation() {
        let experiment = Experiment { persistence: 0.6, ..Experiment::default() };
        check_coverage(&experiment, 0.028);
    }

    #[test]
    fn few_rounds_are_wide_and_cover() {
        for (rounds, at_most) in [(2, 0.16), (3, 0.05), (4, 0.032)] {
            check_coverage(&Experiment { rounds, pairs: 40, ..Experiment::default() }, at_most);
        }
    }

    /// The share of 200 experiments whose intervals (typical, total) hold the
    /// true cost of an extra statement in every `every` transactions.
    fn check_handicap(machine: Machine, every: u32, rounds: u32) {
        let handicap = Handicap { machine, every, rounds, blocks: 40 };
        let truth = handicap.true_ratio();
        let mut covered = [0; 2];
        for seed in 0..200 {
            let options = Options {
                minimum_block_length: minimum_block_length_for(0.1),
                ..options(seed, 60)
            };
            let found = paired_ratio(&handicap.rounds(seed), &options).unwrap();
            let bounds = [(found.lower, found.upper), (found.total_lower, found.total_upper)];
            for (covered, (lower, upper)) in covered.iter_mut().zip(bounds) {
                *covered += u32::from(lower <= truth && truth <= upper);
            }
        }
        assert!(covered.iter().all(|&covered| covered >= 180), "{covered:?} of 200");
    }

    #[test]
    fn a_known_handicap_is_found_on_a_quiet_machine() {
        check_handicap(Machine::Quiet, 20, 6);
        check_handicap(Machine::Quiet, 200, 3);
    }

    #[test]
    fn a_known_handicap_is_found_beside_a_neighbour() {
        check_handicap(Machine::Bursty, 20, 6);
    }

    #[test]
    fn a_known_handicap_is_found_on_a_machine_that_drifts() {
        check_handicap(Machine::Drifting, 20, 6);
    }

    #[test]
    fn a_second_fills_the_block() {
        assert_eq!(minimum_block_length_for(0.15), 7);
        assert_eq!(minimum_block_length_for(3.0), 1);
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(minimum_block_length_for(odd), 1);
        }
    }

    #[test]
    fn errors_say_where() {
        let good = constant_ratio(1.0, 2, 3);
        let check = |rounds: &[Round], options: &Options, expected: &str| {
            assert_eq!(paired_ratio(rounds, options).unwrap_err().to_string(), expected);
        };
        let usual = Options::default();
        check(&[], &usual, "there are no rounds");
        let with = |amount| {
            let mut rounds = good.clone();
            rounds[1].pairs[2].denominator_baseline = amount;
            rounds
        };
        for (amount, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
            let expected = format!(
                "pair 2 of round 1 holds the amount {shown}, which must be finite and not negative"
            );
            check(&with(amount), &usual, &expected);
        }
        let mut large = with(f64::MAX);
        large[0].pairs[0].denominator_baseline = f64::MAX;
        check(&large, &usual, "the amounts are too large to be added up");
        let mut dead = good.clone();
        dead[1].pairs.clear();
        check(&dead, &usual, "round 1 has no pair whose four amounts are all positive");
        dead[1].pairs.push(Pair::default());
        check(&dead, &usual, "round 1 has no pair whose four amounts are all positive");

        let check_options = |options: Options, expected: &str| check(&good, &options, expected);
        check_options(
            options(0, 1),
            "the number of resamples is 1, which must be from 2 to 1000000",
        );
        check_options(
            Options { confidence: 1.0, ..Options::default() },
            "the confidence is 1, which must lie between 0 and 1",
        );
        check_options(
            Options { widening: 0.5, ..Options::default() },
            "the widening is 0.5, which must be finite and at least 1",
        );
    }

    fn amount() -> impl Strategy<Value = f64> {
        prop_oneof![
            6 => 0.0..1e6_f64,
            1 => Just(0.0),
            1 => Just(f64::MIN_POSITIVE),
            1 => Just(f64::MAX / 8.0),
        ]
    }

    fn hostile_rounds(amount: BoxedStrategy<f64>) -> impl Strategy<Value = Vec<Round>> {
        let pair = [amount.clone(), amount.clone(), amount.clone(), amount].prop_map(
            |[
                numerator_treatment,
                denominator_treatment,
                numerator_baseline,
                denominator_baseline,
            ]| Pair {
                numerator_treatment,
                denominator_treatment,
                numerator_baseline,
                denominator_baseline,
            },
        );
        let round = prop::collection::vec(pair, 0..12).prop_map(|pairs| Round { pairs });
        prop::collection::vec(round, 0..5)
    }

    proptest! {
        #[test]
        fn hostile_amounts_never_panic(
            rounds in hostile_rounds(prop_oneof![amount(), any::<f64>()].boxed()),
            minimum_block_length: usize,
            seed: u64,
        ) {
            let options = Options { minimum_block_length, ..options(seed, 20) };
            let _either_way = paired_ratio(&rounds, &options);
        }

        #[test]
        fn estimates_are_numbers_in_order(
            rounds in hostile_rounds(amount().boxed()),
            minimum_block_length in 0_usize..20,
            seed: u64,
        ) {
            let options = Options { minimum_block_length, ..options(seed, 20) };
            if let Ok(estimate) = paired_ratio(&rounds, &options) {
                prop_assert!(estimate.half_width >= 0.0 && estimate.total_half_width >= 0.0);
                prop_assert!(estimate.lower <= estimate.ratio);
                prop_assert!(estimate.ratio <= estimate.upper);
                prop_assert!(estimate.total_lower <= estimate.total_ratio);
                prop_assert!(estimate.total_ratio <= estimate.total_upper);
                prop_assert!(estimate.dropped_pairs < estimate.pairs);
            }
        }

        #[test]
        fn hostile_options_never_panic(
            resamples in 0_usize..50,
            confidence: f64,
            near in 0.0..1.0_f64,
            widening: f64,
            minimum_block_length: usize,
            seed: u64,
        ) {
            let rounds = constant_ratio(1.1, 2, 5);
            for confidence in [confidence, near, 1.0 - f64::EPSILON, f64::MIN_POSITIVE] {
                for widening in [widening, 1.0] {
                    let options =
                        Options { resamples, seed, confidence, widening, minimum_block_length };
                    let _either_way = paired_ratio(&rounds, &options);
                }
            }
        }
    }
}
