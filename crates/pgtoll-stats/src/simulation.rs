//! Experiments with a known answer, for the tests.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::{Pair, Round};

#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) log_ratio: f64,
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
    /// Of the luck that a whole round shares.
    pub(crate) round_sd: f64,
    /// Of one pair's log ratio.
    pub(crate) pair_sd: f64,
    /// How much of a pair's noise is left for the next pair: 0 to below 1.
    pub(crate) persistence: f64,
}

impl Default for Experiment {
    /// Two spreads as measured on a busy virtual machine.
    fn default() -> Self {
        Self {
            log_ratio: 0.05,
            rounds: 6,
            pairs: 60,
            round_sd: 0.015,
            pair_sd: 0.08,
            persistence: 0.0,
        }
    }
}

impl Experiment {
    pub(crate) fn rounds(&self, seed: u64) -> Vec<Round> {
        // Apart from the bootstrap's stream, which has the plain seed.
        let mut random = Pcg64::seed_from_u64(seed ^ 0x5eed_0000_0000);
        (0..self.rounds).map(|_| self.round(&mut random)).collect()
    }

    fn round(&self, random: &mut Pcg64) -> Round {
        let center = self.log_ratio + self.round_sd * normal(random);
        let fresh = (1.0 - self.persistence.powi(2)).sqrt();
        let mut noise = normal(random);
        let pairs = (0..self.pairs)
            .map(|_| {
                noise = self.persistence * noise + fresh * normal(random);
                let baseline = 100.0 * (0.2 * normal(random)).exp();
                let treatment = baseline * (center + self.pair_sd * noise).exp();
                pair_of_rates(treatment, baseline, 50.0)
            })
            .collect();
        Round { pairs }
    }
}

pub(crate) fn pair_of_rates(treatment: f64, baseline: f64, denominator: f64) -> Pair {
    Pair {
        numerator_treatment: treatment * denominator,
        denominator_treatment: denominator,
        numerator_baseline: baseline * denominator,
        denominator_baseline: denominator,
    }
}

/// Box and Muller's transformation.
fn normal(random: &mut Pcg64) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
