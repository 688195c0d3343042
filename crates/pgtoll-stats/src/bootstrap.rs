//! The bootstrap: blocks of pairs inside rounds.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::error::EstimateError;
use crate::location::median_of_sums;
use crate::moments::{as_float, mean};
use crate::pairs::{Pair, Round};

/// A checked round, prepared for being resampled many times.
#[derive(Debug)]
pub(crate) struct Series<'a> {
    /// Hodges–Lehmann location of the log ratios.
    pub(crate) location: f64,
    /// Log ratio of the round's totals.
    pub(crate) total: f64,
    pairs: &'a [Pair],
    /// Half of each log ratio, in order of size.
    halves: Vec<f64>,
    /// The rank of the pair's half in `halves`; `None` for a dropped pair.
    ranks: Vec<Option<usize>>,
}

impl<'a> Series<'a> {
    pub(crate) fn new(index: usize, round: &'a Round) -> Result<Self, EstimateError> {
        check_amounts(index, round)?;
        let log_ratios: Vec<Option<f64>> = round.pairs.iter().map(Pair::log_ratio).collect();
        let mut by_size: Vec<(f64, usize)> = log_ratios
            .iter()
            .enumerate()
            .filter_map(|(pair, log_ratio)| log_ratio.map(|log_ratio| (log_ratio / 2.0, pair)))
            .collect();
        by_size.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        if by_size.is_empty() {
            return Err(EstimateError::NoUsablePair { round: index });
        }

        let mut ranks = vec![None; round.pairs.len()];
        for (rank, &(_, pair)) in by_size.iter().enumerate() {
            ranks[pair] = Some(rank);
        }
        let halves: Vec<f64> = by_size.into_iter().map(|(half, _)| half).collect();
        Ok(Self {
            location: median_of_sums(&halves, &mut Vec::new()),
            total: Pair::total(&round.pairs).log_ratio().ok_or(EstimateError::Overflow)?,
            pairs: &round.pairs,
            halves,
            ranks,
        })
    }

    pub(crate) fn usable_pairs(&self) -> usize {
        self.halves.len()
    }

    /// Log ratios about their mean, in order of time. Zero stands for a
    /// dropped pair: it adds nothing to any product.
    fn deviations(&self) -> Vec<f64> {
        let center = mean(&self.halves).unwrap_or(0.0);
        let deviation = |rank: &Option<usize>| rank.map_or(0.0, |rank| self.halves[rank] - center);
        self.ranks.iter().map(deviation).collect()
    }
}

fn check_amounts(index: usize, round: &Round) -> Result<(), EstimateError> {
    for (pair, amounts) in round.pairs.iter().map(Pair::amounts).enumerate() {
        for amount in amounts {
            if !(amount.is_finite() && amount >= 0.0) {
                return Err(EstimateError::Amount { round: index, pair, amount });
            }
        }
    }
    Ok(())
}

/// The smallest lag at which the pooled autocorrelation is lost in the noise
/// that it has in one round, but at least `minimum` and at most the longest
/// round.
pub(crate) fn block_length(series: &[Series<'_>], minimum: usize) -> usize {
    let longest = series.iter().map(|series| series.pairs.len()).max().unwrap_or(1);
    let pairs: usize = series.iter().map(|series| series.pairs.len()).sum();
    let minimum = minimum.clamp(1, longest);

    // Pooled, because the correlation comes from the machine, which is the
    // same in all rounds, and one round alone is a noisy witness.
    let deviations: Vec<Vec<f64>> = series.iter().map(Series::deviations).collect();
    let covariance = |lag: usize| -> f64 {
        let of_round = |values: &Vec<f64>| -> f64 {
            values.iter().zip(values.iter().skip(lag)).map(|(a, b)| a * b).sum()
        };
        deviations.iter().map(of_round).sum()
    };
    let noise = 2.0 / (as_float(pairs) / as_float(series.len())).sqrt();
    let limit = noise * covariance(0);
    if limit <= 0.0 {
        return minimum;
    }
    (1..longest).find(|&lag| covariance(lag).abs() < limit).unwrap_or(longest).max(minimum)
}

/// One value per resample, in no useful order. A resample that happens to hold
/// no pair with a log ratio has no typical value, and likewise for the totals.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    pub(crate) typical: Vec<f64>,
    pub(crate) total: Vec<f64>,
}

pub(crate) fn draw(
    series: &[Series<'_>],
    block_length: usize,
    resamples: usize,
    seed: u64,
) -> Draws {
    let mut resampler = Resampler {
        random: Pcg64::seed_from_u64(seed),
        block_length,
        times: Vec::new(),
        halves: Vec::new(),
        scratch: Vec::new(),
    };
    let mut draws = Draws::default();
    for _ in 0..resamples {
        let (typical, total) = resampler.resample(series);
        draws.typical.extend(typical);
        draws.total.extend(total);
    }
    draws
}

/// The random source, and buffers that are reused from draw to draw.
struct Resampler {
    random: Pcg64,
    block_length: usize,
    times: Vec<usize>,
    halves: Vec<f64>,
    scratch: Vec<f64>,
}

impl Resampler {
    fn resample(&mut self, series: &[Series<'_>]) -> (Option<f64>, Option<f64>) {
        let mut total = Pair::default();
        let mut locations = 0.0;
        let mut rounds = 0;
        for round in series {
            let round_total = self.draw_pairs(round);
            total = Pair::total([&total, &round_total]);
            if !self.halves.is_empty() {
                locations += median_of_sums(&self.halves, &mut self.scratch);
                rounds += 1;
            }
        }
        let typical = (rounds > 0).then(|| locations / as_float(rounds));
        (typical, total.log_ratio())
    }

    /// Draws as many pairs as the round has, in blocks. Leaves the halves of
    /// their log ratios in `self.halves`, in order of size, and returns their
    /// total.
    fn draw_pairs(&mut self, round: &Series<'_>) -> Pair {
        let pairs = round.pairs.len();
        let length = self.block_length.min(pairs);
        self.times.clear();
        self.times.resize(round.halves.len(), 0);
        let mut total = Pair::default();
        let mut drawn = 0;
        while drawn < pairs {
            let start = self.random.random_range(0..=pairs - length);
            let block = start..start + length.min(pairs - drawn);
            drawn += block.len();
            for &rank in round.ranks[block.clone()].iter().flatten() {
                self.times[rank] += 1;
            }
            total = Pair::total(round.pairs[block].iter().chain([&total]));
        }

        // Counted per rank and written out in order: no sort per resample.
        self.halves.clear();
        for (&half, &times) in round.halves.iter().zip(&self.times) {
            self.halves.extend(std::iter::repeat_n(half, times));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::sample_sd;
    use crate::simulation::{Experiment, pair_of_rates};

    fn length_of(rounds: &[Round], minimum: usize) -> usize {
        let series: Vec<Series<'_>> =
            rounds.iter().enumerate().map(|(n, round)| Series::new(n, round).unwrap()).collect();
        block_length(&series, minimum)
    }

    #[test]
    fn blocks_grow_with_autocorrelation() {
        let lengths = [0.0, 0.6, 0.9].map(|persistence| {
            let experiment = Experiment { persistence, pairs: 400, ..Experiment::default() };
            length_of(&experiment.rounds(1), 1)
        });
        assert_eq!(lengths[0], 1);
        assert!((3..=8).contains(&lengths[1]), "{lengths:?}");
        assert!((lengths[1] + 1..=60).contains(&lengths[2]), "{lengths:?}");
    }

    #[test]
    fn blocks_stay_within_the_minimum_and_the_round() {
        let rounds = Experiment { pairs: 20, ..Experiment::default() }.rounds(1);
        assert_eq!(length_of(&rounds, 0), 1);
        assert_eq!(length_of(&rounds, 7), 7);
        assert_eq!(length_of(&rounds, usize::MAX), 20);
        let constant = [Round { pairs: vec![pair_of_rates(2.0, 1.0, 1.0); 9] }];
        assert_eq!(length_of(&constant, 4), 4);
    }

    #[test]
    fn whole_rounds_as_blocks_leave_nothing_to_chance() {
        let rounds = Experiment { rounds: 2, ..Experiment::default() }.rounds(1);
        let series: Vec<Series<'_>> =
            rounds.iter().map(|round| Series::new(0, round).unwrap()).collect();
        let expected = f64::midpoint(series[0].location, series[1].location);
        let draws = draw(&series, 60, 50, 1);
        assert_eq!((draws.typical.len(), draws.total.len()), (50, 50));
        assert!(draws.typical.iter().all(|typical| (typical - expected).abs() < 1e-12));
        assert!(draws.total.windows(2).all(|two| (two[0] - two[1]).abs() < 1e-12));
    }

    #[test]
    fn its_spread_is_that_of_the_slices_and_not_of_the_rounds() {
        let experiment = Experiment { round_sd: 0.5, pairs: 200, ..Experiment::default() };
        let rounds = experiment.rounds(1);
        let series: Vec<Series<'_>> =
            rounds.iter().map(|round| Series::new(0, round).unwrap()).collect();
        let draws = draw(&series, 1, 500, 1);
        let sd = sample_sd(&draws.typical).unwrap();
        // 0.08 / sqrt(1200), and a little more since Hodges and Lehmann's is not the mean.
        assert!((0.0021..0.0027).contains(&sd), "{sd}");
    }
}
