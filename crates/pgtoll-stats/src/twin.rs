//! A treatment beside two runs of the baseline, over a few whole runs.

use crate::error::EstimateError;
use crate::moments::{as_float, mean, sample_sd};
use crate::paired::{Options, WITHIN_SHARE, paired_ratio};
use crate::pairs::{Pair, Round};
use crate::quantiles::{t_p_value, t_quantile};

/// The costs of the same work in the three runs of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trio {
    /// On the treatment.
    pub treatment: f64,
    /// On the baseline.
    pub baseline: f64,
    /// On the baseline's twin, which does not differ from it.
    pub twin: f64,
}

/// The result of [`ratio_beside_twin`].
#[derive(Clone, Debug, PartialEq)]
pub struct TwinComparison {
    /// Treatment over the geometric mean of baseline and twin: the mean of the rounds on the log scale.
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
    /// Twin over baseline.
    pub twin_log_ratios: Vec<f64>,
}

/// Compares a treatment with the baseline where each arm runs as a whole, once a round. A round is the trios of
/// its slices, or one trio.
///
/// Baseline and twin are two runs of the same, so the treatment is compared with both, by their geometric
/// mean: that has half the variance of one run. Let σ² be the variance of a run's log cost. Treatment less
/// that mean has 3/2 σ², twin less baseline 2 σ², and the two do not depend on each other: σ² is
/// pooled from the former about its mean and the latter about 0, where it belongs, with 2 R − 1
/// degrees of freedom in R rounds. A treatment may be less steady than the baseline: where its own spread
/// is larger than the pooled one, that counts, with its own R − 1. Neither is less than [`WITHIN_SHARE`] of what the
/// slices inside the rounds allow by [`paired_ratio`]'s bootstrap.
///
/// Errors are those of [`paired_ratio`].
pub fn ratio_beside_twin(
    rounds: &[Vec<Trio>],
    options: &Options,
) -> Result<TwinComparison, EstimateError> {
    let estimate = paired_ratio(&paired(rounds, Trio::treatment_beside_both), options)?;
    // Of these only the rounds' locations count, which are not drawn.
    let few = Options { resamples: 2, ..options.clone() };
    let twin_log_ratios =
        paired_ratio(&paired(rounds, Trio::twin_beside_baseline), &few)?.round_log_ratios;
    let round_log_ratios = estimate.round_log_ratios;
    let theta = mean(&round_log_ratios).ok_or(EstimateError::NoRounds)?;
    let own: f64 =
        round_log_ratios.iter().map(|round_log_ratio| (round_log_ratio - theta).powi(2)).sum();
    let of_twin: f64 = twin_log_ratios.iter().map(|twin_log_ratio| twin_log_ratio.powi(2)).sum();
    let count = as_float(round_log_ratios.len());
    let pooled_freedom = 2.0 * count - 1.0;
    let pooled = (own + of_twin * TREATMENT_VARIANCE / TWIN_VARIANCE) / pooled_freedom;
    let own_variance = sample_sd(&round_log_ratios).map_or(0.0, |sd| sd * sd);
    let (variance, freedom) =
        if own_variance > pooled { (own_variance, count - 1.0) } else { (pooled, pooled_freedom) };
    let normal = t_quantile(options.confidence, f64::INFINITY);
    let within = WITHIN_SHARE * estimate.bootstrap_half_width / normal;
    let error = (variance / count).sqrt().max(within) * options.widening;
    let half_width = t_quantile(options.confidence, freedom) * error;
    // Runs that agree to the last bit are of a clock too coarse for them.
    let p_value = if error > 0.0 { t_p_value(theta / error, freedom) } else { 1.0 };
    Ok(TwinComparison {
        ratio: theta.exp(),
        lower: (theta - half_width).exp(),
        upper: (theta + half_width).exp(),
        p_value,
        floor: (of_twin / count).sqrt(),
        round_log_ratios,
        twin_log_ratios,
    })
}

/// The variance of a run less the mean of two others, in variances of one run.
const TREATMENT_VARIANCE: f64 = 1.5;
/// The variance of a run less another one.
const TWIN_VARIANCE: f64 = 2.0;

impl Trio {
    fn treatment_beside_both(&self) -> Pair {
        // Two roots, since a product can overflow.
        pair(self.treatment, self.baseline.sqrt() * self.twin.sqrt())
    }

    fn twin_beside_baseline(&self) -> Pair {
        pair(self.twin, self.baseline)
    }
}

fn pair(treatment: f64, baseline: f64) -> Pair {
    Pair {
        numerator_treatment: treatment,
        denominator_treatment: 1.0,
        numerator_baseline: baseline,
        denominator_baseline: 1.0,
    }
}

fn paired(rounds: &[Vec<Trio>], pair: fn(&Trio) -> Pair) -> Vec<Round> {
    rounds.iter().map(|trios| Round { pairs: trios.iter().map(pair).collect() }).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;
    use crate::simulation::normal;
    use crate::{adjusted_p_values, beside_others};

    /// Replays of a few shapes of statements: a run has luck that all its shapes share, luck of each shape,
    /// and noise of each slice.
    #[derive(Clone, Copy, Debug)]
    struct Runs {
        shapes: usize,
        rounds: usize,
        slices: usize,
        run_sd: f64,
        shape_sd: f64,
        slice_sd: f64,
        /// How much less steady the treatment's runs are.
        unsteady: f64,
    }

    /// Two runs of the same are 8 % apart in a shape, root mean square.
    const NOISY: Runs = Runs {
        shapes: 12,
        rounds: 6,
        slices: 8,
        run_sd: 0.03,
        shape_sd: 0.03,
        slice_sd: 0.1,
        unsteady: 1.0,
    };

    impl Runs {
        /// What is found of each shape; `planted` is the log ratio of the first one.
        fn compare(&self, seed: u64, planted: f64) -> Vec<TwinComparison> {
            Self::judge(seed, &self.draw(seed, planted))
        }

        /// The same, beside what the other shapes share.
        fn compare_beside_others(&self, seed: u64, planted: f64) -> Vec<TwinComparison> {
            Self::judge(seed, &beside_others(&self.draw(seed, planted)))
        }

        fn judge(seed: u64, shapes: &[Vec<Vec<Trio>>]) -> Vec<TwinComparison> {
            let options = Options { resamples: 100, seed, ..Options::default() };
            shapes.iter().map(|rounds| ratio_beside_twin(rounds, &options).unwrap()).collect()
        }

        /// The rounds of each shape.
        fn draw(&self, seed: u64, planted: f64) -> Vec<Vec<Vec<Trio>>> {
            let mut random = Pcg64::seed_from_u64(seed);
            let mut draw = |sd: f64| sd * normal(&mut random);
            let mut shapes = vec![Vec::new(); self.shapes];
            let steadiness = [self.unsteady, 1.0, 1.0];
            for _ in 0..self.rounds {
                let run = steadiness.map(|times| draw(self.run_sd * times));
                for (index, shape) in shapes.iter_mut().enumerate() {
                    let planted = if index == 0 { planted } else { 0.0 };
                    let mut of_shape = run;
                    for (luck, times) in of_shape.iter_mut().zip(steadiness) {
                        *luck += draw(self.shape_sd * times);
                    }
                    let slices = (0..self.slices).map(|_| {
                        let [treatment, baseline, twin] =
                            of_shape.map(|luck| (luck + draw(self.slice_sd)).exp());
                        Trio { treatment: treatment * planted.exp(), baseline, twin }
                    });
                    shape.push(slices.collect());
                }
            }
            shapes
        }

        /// Of [`SEEDS`] comparisons of the same, those that call any shape slower or faster.
        fn false_alarms(&self) -> usize {
            (0..SEEDS).filter(|seed| differing(&self.compare(*seed, 0.0)).contains(&true)).count()
        }

        /// Of [`SEEDS`] comparisons with a shape slower by a fifth, those that call it slower.
        fn found(&self) -> usize {
            let finds = |seed: &u64| {
                let shapes = self.compare(*seed, 1.2_f64.ln());
                differing(&shapes)[0] && shapes[0].ratio > 1.0
            };
            (0..SEEDS).filter(finds).count()
        }
    }

    fn differing(shapes: &[TwinComparison]) -> Vec<bool> {
        let p_values: Vec<f64> = shapes.iter().map(|shape| shape.p_value).collect();
        adjusted_p_values(&p_values).into_iter().map(|p| p <= 0.05).collect()
    }

    const SEEDS: u64 = 400;

    #[test]
    fn at_most_one_in_twenty_comparisons_of_the_same_shows_any_difference() {
        let unsteady = |rounds| Runs { rounds, unsteady: 2.0, ..NOISY };
        for runs in [3, 8].map(|rounds| Runs { rounds, ..NOISY }).into_iter().chain([unsteady(8)]) {
            let false_alarms = runs.false_alarms();
            assert!(false_alarms * 20 <= 400, "{false_alarms} of {SEEDS}: {runs:?}");
        }
    }

    #[test]
    fn a_shape_that_is_slower_by_a_fifth_is_found() {
        let quieter = Runs { rounds: 6, run_sd: 0.02, shape_sd: 0.02, ..NOISY };
        for runs in [Runs { rounds: 8, ..NOISY }, quieter] {
            let found = runs.found();
            assert!(found * 10 >= 9 * 400, "{found} of {SEEDS}: {runs:?}");
        }
    }

    #[test]
    fn luck_of_whole_runs_hides_no_shape_from_what_is_beside_the_others() {
        let runs = Runs { rounds: 8, run_sd: 0.15, shape_sd: 0.02, ..NOISY };
        let names = |shapes: &[TwinComparison]| differing(shapes)[0] && shapes[0].ratio > 1.0;
        let fifth = 1.2_f64.ln();
        let count = |label: &dyn Fn(u64) -> bool| (0..SEEDS).filter(|seed| label(*seed)).count();
        let alone = count(&|seed| names(&runs.compare(seed, fifth)));
        let beside = count(&|seed| names(&runs.compare_beside_others(seed, fifth)));
        let alarms =
            count(&|seed| differing(&runs.compare_beside_others(seed, 0.0)).contains(&true));
        assert!(beside * 100 >= 99 * 400 && alone * 2 < 400, "{alone} and {beside} of {SEEDS}");
        assert!(alarms * 20 <= 400, "{alarms} of {SEEDS}");
    }

    #[test]
    fn both_runs_of_the_baseline_count() {
        let trio = |treatment, baseline, twin| vec![Trio { treatment, baseline, twin }];
        let rounds = [trio(6.0, 4.0, 9.0), trio(12.0, 9.0, 4.0), trio(6.0, 6.0, 6.0)];
        let found = ratio_beside_twin(&rounds, &Options::default()).unwrap();
        assert!((found.ratio - 2.0_f64.cbrt()).abs() < 1e-12, "{found:?}");
        let twins: Vec<f64> = found.twin_log_ratios.iter().map(|ratio| ratio.exp()).collect();
        let differs = twins
            .iter()
            .zip([2.25, 1.0 / 2.25, 1.0])
            .any(|(one, other)| (one - other).abs() > 1e-12);
        assert!(!differs, "{twins:?}");
        // Its own spread is 2/3 ln² 2 / 2, less than what the twin's allows.
        let spread = (2.0 / 3.0 * 2.0_f64.ln().powi(2) + 0.75 * 2.0 * 2.25_f64.ln().powi(2)) / 5.0;
        let half_width = t_quantile(0.95, 5.0) * (spread / 3.0).sqrt();
        assert!((found.upper.ln() - found.ratio.ln() - half_width).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn runs_that_agree_to_the_last_bit_differ_in_nothing() {
        let rounds = vec![vec![Trio { treatment: 4.0, baseline: 4.0, twin: 4.0 }]; 3];
        let found = ratio_beside_twin(&rounds, &Options::default()).unwrap();
        assert_eq!((found.ratio, found.p_value, found.floor), (1.0, 1.0, 0.0));
        assert_eq!((found.lower, found.upper), (1.0, 1.0));
    }

    #[test]
    fn without_rounds_there_is_an_error() {
        let none = ratio_beside_twin(&[], &Options::default());
        assert_eq!(none, Err(EstimateError::NoRounds));
    }
}
