//! Experiments with a known answer, for the tests.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::{BalancedOrders, Pair, Round, Sample, pair_up};

#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) log_ratio: f64,
    pub(crate) rounds: usize,
    pub(crate) pairs: usize,
    /// The standard deviation of the luck that a whole round shares.
    pub(crate) round_sd: f64,
    /// The standard deviation of one pair's log ratio.
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

/// The other activity on the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Machine {
    /// Slices differ by a few percent, and nothing else.
    Quiet,
    /// A neighbour's job runs a quarter of the time, for a second or two: it
    /// takes half of the speed and makes CPU time a quarter dearer.
    Bursty,
    /// The speed wanders, and CPU time with it; the treatment's starts differ.
    Drifting,
}

/// Two arms that run the same transactions, but for one extra statement of the
/// treatment in every `every` transactions.
#[derive(Clone, Debug)]
pub(crate) struct Handicap {
    pub(crate) machine: Machine,
    pub(crate) every: u32,
    pub(crate) rounds: u32,
    pub(crate) blocks: u32,
}

const SLICE_NS: f64 = 50e6;
const TRANSACTION_NS: f64 = 25e3;
const STATEMENT_NS: f64 = 15e3;
/// CPU time for wall time: the rest is the client's.
const CPU_SHARE: f64 = 0.6;

impl Handicap {
    /// CPU time per transaction, treatment over baseline.
    pub(crate) fn true_ratio(&self) -> f64 {
        1.0 + STATEMENT_NS / TRANSACTION_NS / f64::from(self.every)
    }

    /// CPU nanoseconds over transactions.
    pub(crate) fn rounds(&self, seed: u64) -> Vec<Round> {
        let mut random = Pcg64::seed_from_u64(seed ^ 0x4a6d_0000_0000);
        let mut orders = BalancedOrders::new(2, seed);
        let mut samples = Vec::new();
        for round in 0..self.rounds {
            self.run_round(round, &mut orders, &mut random, &mut samples);
        }
        pair_up(&samples, "treatment", "baseline")
    }

    fn run_round(
        &self,
        round: u32,
        orders: &mut BalancedOrders,
        random: &mut Pcg64,
        samples: &mut Vec<Sample<'static>>,
    ) {
        let luck_sd = if self.machine == Machine::Drifting { 0.01 } else { 0.001 };
        let luck = [luck_sd, luck_sd].map(|sd| sd * normal(random));
        let mut done = 0_u32;
        let mut weather = 0.0;
        let mut burst = 0_u32;
        for block in 0..self.blocks {
            let order = orders.next().unwrap_or_default();
            for (position, &arm) in order.iter().enumerate() {
                let speed = self.speed(&mut weather, &mut burst, random);
                // Who comes first finds the caches colder.
                let place = if position == 0 { 1.01 } else { 1.0 };
                let dearness = place * speed.powf(-0.3) * (luck[arm] + 0.03 * normal(random)).exp();
                let transactions = transactions(speed / dearness, random);
                let extra = if arm == 0 {
                    (done + transactions) / self.every - done / self.every
                } else {
                    0
                };
                done += if arm == 0 { transactions } else { 0 };
                let work =
                    f64::from(transactions) * TRANSACTION_NS + f64::from(extra) * STATEMENT_NS;
                samples.push(Sample {
                    arm: ["treatment", "baseline"][arm],
                    round,
                    block,
                    numerator: work * dearness,
                    denominator: f64::from(transactions),
                });
            }
        }
    }

    /// Returns the machine's speed in the next slice; 1 is its best.
    fn speed(&self, weather: &mut f64, burst: &mut u32, random: &mut Pcg64) -> f64 {
        match self.machine {
            Machine::Quiet => 1.0,
            Machine::Bursty => {
                if *burst == 0 && random.random_range(0..90) == 0 {
                    *burst = random.random_range(20..40);
                }
                let busy = *burst > 0;
                *burst = burst.saturating_sub(1);
                if busy { 0.5 } else { 1.0 }
            }
            Machine::Drifting => {
                *weather += 0.03 * normal(random) - 0.001;
                weather.clamp(-1.0, 0.0).exp()
            }
        }
    }
}

/// How many end within a slice: a count about what the speed allows, which a
/// neighbour's pace makes a little more uneven than Poisson's would be.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some thousands at most, and a cast from below zero is zero"
)]
fn transactions(speed: f64, random: &mut Pcg64) -> u32 {
    let expected = SLICE_NS * CPU_SHARE / TRANSACTION_NS * speed;
    (expected + 1.5 * expected.sqrt() * normal(random)).round().max(1.0) as u32
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
pub(crate) fn normal(random: &mut Pcg64) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
