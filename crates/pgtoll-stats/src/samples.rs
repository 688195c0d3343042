//! From measurements of single arms to pairs.

use std::collections::BTreeMap;

use crate::{Pair, Round};

/// One measurement of one arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The arm.
    pub arm: &'a str,
    /// The number of the fresh start.
    pub round: u32,
    /// Within the round: what the arms did next to each other has the same number, and numbers
    /// grow with time.
    pub block: u32,
    /// The arm's numerator.
    pub numerator: f64,
    /// The denominator.
    pub denominator: f64,
}

/// The samples of `treatment` beside those of `baseline` in the same block, round by round. A
/// block that lacks one of them has no pair.
pub fn pair_up(samples: &[Sample<'_>], treatment: &str, baseline: &str) -> Vec<Round> {
    let mut blocks: BTreeMap<(u32, u32), [Option<&Sample<'_>>; 2]> = BTreeMap::new();
    for sample in samples {
        let place = match sample.arm {
            arm if arm == treatment => 0,
            arm if arm == baseline => 1,
            _ => continue,
        };
        blocks.entry((sample.round, sample.block)).or_default()[place] = Some(sample);
    }
    let mut rounds: BTreeMap<u32, Round> = BTreeMap::new();
    for ((round, _), block) in blocks {
        let [Some(treatment), Some(baseline)] = block else { continue };
        rounds.entry(round).or_default().pairs.push(Pair {
            numerator_treatment: treatment.numerator,
            denominator_treatment: treatment.denominator,
            numerator_baseline: baseline.numerator,
            denominator_baseline: baseline.denominator,
        });
    }
    rounds.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_matched_and_incomplete_ones_left_out() {
        let sample = |arm, round, block, numerator| Sample {
            arm,
            round,
            block,
            numerator,
            denominator: 1.0,
        };
        let samples = [
            sample("b", 1, 2, 20.0),
            sample("other", 1, 2, 99.0),
            sample("a", 1, 1, 1.0),
            sample("b", 1, 1, 10.0),
            sample("a", 1, 2, 2.0),
            sample("a", 2, 1, 3.0),
            sample("b", 3, 1, 30.0),
        ];
        let rounds = pair_up(&samples, "a", "b");
        let numerators: Vec<(f64, f64)> = rounds
            .iter()
            .flat_map(|round| &round.pairs)
            .map(|pair| (pair.numerator_treatment, pair.numerator_baseline))
            .collect();
        assert_eq!(rounds.len(), 1);
        assert_eq!(numerators, [(1.0, 10.0), (2.0, 20.0)]);
    }
}
