//! A treatment and a twin of the baseline, each compared with the baseline over a few whole runs.

use crate::error::EstimateError;
use crate::moments::{as_float, mean, sample_sd};
use crate::paired::{Options, WITHIN_SHARE, paired_ratio};
use crate::pairs::Round;
use crate::quantiles::{t_p_value, t_quantile};

/// What [`ratio_beside_twin`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct TwinComparison {
    /// Treatment over baseline: that of [`paired_ratio`].
    pub ratio: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// The interval's upper end.
    pub upper: f64,
    /// How probable a ratio at least as far from 1 is where nothing differs.
    pub p_value: f64,
    /// How far two runs of the same are apart, on the log scale: the root mean square of the twin's
    /// rounds.
    pub floor: f64,
    /// The treatment's log ratio in each round.
    pub round_log_ratios: Vec<f64>,
    /// The twin's.
    pub twin_log_ratios: Vec<f64>,
}

/// Compares a treatment with the baseline where each arm runs as a whole, once a round, and the twin, which
/// does not differ from the baseline, shows what a run's luck makes of that.
///
/// The rounds of both hold the same baseline. Runs are few, so the spread between them is taken from both
/// arms: of the treatment about its mean, of the twin about 0, where it belongs. It is not less than the
/// treatment's own, since a treatment may be less steady, nor than [`WITHIN_SHARE`] of what the slices
/// inside the rounds allow by [`paired_ratio`]'s bootstrap. Both arms share the baseline's luck, so that a
/// pair of their differences is worth 1.6 and not 2: the degrees of freedom are fewer by that.
///
/// Errors are those of [`paired_ratio`].
pub fn ratio_beside_twin(
    treatment: &[Round],
    twin: &[Round],
    options: &Options,
) -> Result<TwinComparison, EstimateError> {
    let estimate = paired_ratio(treatment, options)?;
    let twin_log_ratios = paired_ratio(twin, options)?.round_log_ratios;
    let rounds = estimate.round_log_ratios;
    let theta = mean(&rounds).ok_or(EstimateError::NoRounds)?;
    let own: f64 = rounds.iter().map(|of| (of - theta).powi(2)).sum();
    let of_twin: f64 = twin_log_ratios.iter().map(|of| of.powi(2)).sum();
    let (count, twins) = (as_float(rounds.len()), as_float(twin_log_ratios.len()));
    let free = count - 1.0 + twins;
    let own_variance = sample_sd(&rounds).map_or(0.0, |sd| sd * sd);
    let between = ((own + of_twin) / free).max(own_variance) / count;
    let normal = t_quantile(options.confidence, f64::INFINITY);
    let within = WITHIN_SHARE * estimate.bootstrap_half_width / normal;
    let error = between.sqrt().max(within) * options.widening;
    let freedom = free / SHARED_BASELINE;
    let half_width = t_quantile(options.confidence, freedom) * error;
    // Runs that agree to the last bit are of a clock too coarse for them.
    let p_value = if error > 0.0 { t_p_value(theta / error, freedom) } else { 1.0 };
    Ok(TwinComparison {
        ratio: theta.exp(),
        lower: (theta - half_width).exp(),
        upper: (theta + half_width).exp(),
        p_value,
        floor: (of_twin / twins).sqrt(),
        round_log_ratios: rounds,
        twin_log_ratios,
    })
}

/// Two differences from the same baseline have a correlation of ½, their squares of ¼.
const SHARED_BASELINE: f64 = 1.25;

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;
    use crate::adjusted_p_values;
    use crate::pairs::Pair;
    use crate::simulation::normal;

    /// Replays of a few shapes of statements: a run has luck that all its shapes share, luck of each shape,
    /// and noise of each slice.
    struct Runs {
        shapes: usize,
        rounds: usize,
        slices: usize,
        run_sd: f64,
        shape_sd: f64,
        slice_sd: f64,
    }

    const RUNS: Runs =
        Runs { shapes: 12, rounds: 5, slices: 8, run_sd: 0.03, shape_sd: 0.03, slice_sd: 0.1 };

    impl Runs {
        /// The adjusted p-values and ratios of all shapes; `planted` is the log ratio of the first one.
        fn compare(&self, seed: u64, planted: f64) -> Vec<(f64, f64)> {
            let mut random = Pcg64::seed_from_u64(seed);
            let mut draw = |sd: f64| sd * normal(&mut random);
            let mut treatment = vec![Vec::new(); self.shapes];
            let mut twin = vec![Vec::new(); self.shapes];
            for _ in 0..self.rounds {
                // Baseline, treatment, twin.
                let run = [draw(self.run_sd), draw(self.run_sd), draw(self.run_sd)];
                for shape in 0..self.shapes {
                    let of_shape = run.map(|luck| luck + draw(self.shape_sd));
                    let mut rounds = [Round::default(), Round::default()];
                    for _ in 0..self.slices {
                        let [base, treated, twin] = of_shape.map(|luck| luck + draw(self.slice_sd));
                        let planted = if shape == 0 { planted } else { 0.0 };
                        for (round, cost) in rounds.iter_mut().zip([treated + planted, twin]) {
                            round.pairs.push(Pair {
                                numerator_treatment: cost.exp(),
                                denominator_treatment: 1.0,
                                numerator_baseline: base.exp(),
                                denominator_baseline: 1.0,
                            });
                        }
                    }
                    let [of_treatment, of_twin] = rounds;
                    treatment[shape].push(of_treatment);
                    twin[shape].push(of_twin);
                }
            }
            let options = Options { resamples: 100, seed, ..Options::default() };
            let found: Vec<TwinComparison> = treatment
                .iter()
                .zip(&twin)
                .map(|(treatment, twin)| ratio_beside_twin(treatment, twin, &options).unwrap())
                .collect();
            let p_values: Vec<f64> = found.iter().map(|of| of.p_value).collect();
            let adjusted = adjusted_p_values(&p_values);
            adjusted.into_iter().zip(found.iter().map(|of| of.ratio)).collect()
        }
    }

    const SEEDS: u64 = 400;

    #[test]
    fn at_most_one_in_twenty_comparisons_of_the_same_shows_any_difference() {
        for rounds in [3, 6] {
            let runs = Runs { rounds, ..RUNS };
            let shows = |seed: &u64| runs.compare(*seed, 0.0).iter().any(|(p, _)| *p <= 0.05);
            let false_alarms = (0..SEEDS).filter(shows).count();
            assert!(false_alarms * 20 <= 400, "{false_alarms} of {SEEDS} with {rounds} rounds");
        }
    }

    #[test]
    fn a_shape_that_is_slower_by_a_fifth_is_found() {
        let check = |runs: &Runs| {
            let finds = |seed: &u64| {
                let (p, ratio) = runs.compare(*seed, 1.2_f64.ln())[0];
                p <= 0.05 && ratio > 1.0
            };
            let found = (0..SEEDS).filter(finds).count();
            assert!(found * 10 >= 9 * 400, "{found} of {SEEDS}");
        };
        check(&Runs { rounds: 8, ..RUNS });
        check(&Runs { rounds: 6, run_sd: 0.02, shape_sd: 0.02, ..RUNS });
    }

    #[test]
    fn runs_that_agree_to_the_last_bit_differ_in_nothing() {
        let pair = Pair {
            numerator_treatment: 2.0,
            denominator_treatment: 1.0,
            numerator_baseline: 2.0,
            denominator_baseline: 1.0,
        };
        let rounds = vec![Round { pairs: vec![pair] }; 3];
        let found = ratio_beside_twin(&rounds, &rounds, &Options::default()).unwrap();
        assert_eq!((found.ratio, found.p_value, found.floor), (1.0, 1.0, 0.0));
        assert_eq!((found.lower, found.upper), (1.0, 1.0));
    }

    #[test]
    fn without_rounds_there_is_an_error() {
        let none = ratio_beside_twin(&[], &[], &Options::default());
        assert_eq!(none, Err(EstimateError::NoRounds));
    }
}
