//! From samples to an interval, for the rule that ends a run and for what is printed.

use pgtoll_record::{Calibration, Header, Metric, Workload};
use pgtoll_stats::{
    Estimate, Options, Round, Sample, minimum_block_length_for, pair_up, paired_ratio,
};

use crate::metrics::cpu_metric;
use crate::samples::{RecordLines, samples};

/// What a result's intervals are computed from.
pub(crate) const RESAMPLES: usize = 2000;
/// For looks in between: an interval that is not printed may be a little off.
const INTERIM_RESAMPLES: usize = 500;
/// An interval that does not have the spread between rounds would be too narrow, by an unknown
/// factor.
pub(crate) const ROUNDS_NEEDED: usize = 2;

/// What a run's intervals depend on besides its samples.
#[derive(Clone, Debug)]
pub struct Intervals<'a> {
    /// The arms' names.
    pub arms: Vec<&'a str>,
    /// The arm that the others are compared with.
    pub baseline: &'a str,
    /// The seed of the resampling.
    pub seed: u64,
    /// What earlier runs on the machine say of its intervals.
    pub calibration: &'a [Calibration],
}

/// Two arms, compared.
pub(crate) struct ComparedArms {
    pub(crate) rounds: Vec<Round>,
    pub(crate) options: Options,
    pub(crate) estimate: Estimate,
}

impl<'a> From<&'a Header> for Intervals<'a> {
    fn from(header: &'a Header) -> Self {
        Self {
            arms: header.arms.iter().map(|arm| arm.name.as_str()).collect(),
            baseline: &header.baseline,
            seed: header.seed,
            calibration: &header.calibration,
        }
    }
}

impl Intervals<'_> {
    /// Half of the widest interval of server CPU against the baseline, on the log scale, from what
    /// a run of the workload has measured so far; `None` before each arm has one.
    ///
    /// It is the half-width that the result will have, but for fewer resamples.
    pub fn interim_half_width(&self, lines: RecordLines<'_>, workload: &Workload) -> Option<f64> {
        self.widest(lines, workload, INTERIM_RESAMPLES)
    }

    fn widest(&self, lines: RecordLines<'_>, workload: &Workload, resamples: usize) -> Option<f64> {
        let metric = cpu_metric(workload);
        let samples = samples(lines, workload, metric);
        let options = Options { resamples, ..self.options(workload, metric) };
        let others = self.arms.iter().filter(|arm| **arm != self.baseline);
        let half_widths: Option<Vec<f64>> = others
            .map(|arm| {
                let compared = compare(&samples, arm, self.baseline, options.clone());
                Some(compared?.estimate.half_width)
            })
            .collect();
        half_widths?.into_iter().max_by(f64::total_cmp)
    }

    /// The factor by which the metric's intervals are widened; `None`: it was never calibrated.
    pub(crate) fn widening(&self, metric: Metric) -> Option<f64> {
        let mut calibration = self.calibration.iter();
        calibration.find(|factor| factor.metric == metric).map(|factor| factor.widening)
    }

    /// How the metric's intervals in a result are computed.
    pub(crate) fn options(&self, workload: &Workload, metric: Metric) -> Options {
        let slicing = workload.slicing.as_ref();
        let slicing = slicing.filter(|_| Metric::OF_SLICES.contains(&metric));
        let pair_seconds = slicing.map(|slicing| slicing.block(self.arms.len()).as_secs_f64());
        Options {
            resamples: RESAMPLES,
            widening: self.widening(metric).unwrap_or(1.0),
            seed: self.seed,
            minimum_block_length: pair_seconds.map_or(1, minimum_block_length_for),
            ..Options::default()
        }
    }
}

/// An arm against another one, paired within blocks. `None` before two rounds were completed.
pub(crate) fn compare(
    samples: &[Sample<'_>],
    arm: &str,
    against: &str,
    options: Options,
) -> Option<ComparedArms> {
    let rounds = pair_up(samples, arm, against);
    if rounds.len() < ROUNDS_NEEDED {
        return None;
    }
    let estimate = paired_ratio(&rounds, &options).ok()?;
    Some(ComparedArms { rounds, options, estimate })
}

#[cfg(test)]
mod tests {
    use pgtoll_record::Run;

    use super::*;
    use crate::summarise;

    const RECORD: &str = include_str!("../../../records/2026-11-22-pg17/run.jsonl");

    #[test]
    fn the_rule_that_ends_a_run_and_the_printed_interval_agree() {
        let run = Run::parse(RECORD).unwrap();
        let result = summarise(&run);
        let intervals = Intervals::from(&run.header);
        let timed = run.header.workloads.iter().filter(|of| result.rounds.contains_key(&of.name));
        for workload in timed {
            let printed = result.comparisons.iter().filter(|of| {
                of.workload == workload.name && of.metric == Metric::CpuPerTransaction
            });
            let printed = printed.map(|of| of.half_width).max_by(f64::total_cmp).unwrap();
            let widest = intervals.widest((&run).into(), workload, RESAMPLES).unwrap();
            assert_eq!(widest.to_bits(), printed.to_bits(), "{}", workload.name);
            let interim = intervals.interim_half_width((&run).into(), workload).unwrap();
            assert!((interim / printed - 1.0).abs() < 0.1, "{interim} {printed}");
        }
    }
}
