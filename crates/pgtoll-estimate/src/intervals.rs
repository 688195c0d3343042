//! From samples to an interval, for the rule that ends a run and for what is printed.

use pgtoll_record::{Calibration, Header, Metric, Workload};
use pgtoll_stats::{
    Estimate, Options, Round, Sample, minimum_block_length_for, pair_up, paired_ratio,
};

use crate::metrics::cpu_metric;
use crate::samples::{RecordLines, samples};

/// The number of resamples behind a result's intervals.
pub(crate) const RESAMPLES: usize = 2000;
/// For looks in between: an interval that is not printed may be a little off.
const INTERIM_RESAMPLES: usize = 500;
/// An interval that does not have the spread between rounds would be too narrow, by an unknown
/// factor.
pub(crate) const ROUNDS_NEEDED: usize = 2;

/// The inputs of a run's intervals besides its samples.
#[derive(Clone, Debug)]
pub struct Intervals<'a> {
    /// Each arm but the baseline, and what it is compared with.
    pub pairs: Vec<ArmPair<'a>>,
    /// The seed of the resampling.
    pub seed: u64,
    /// Calibrations from earlier runs on the machine.
    pub calibration: &'a [Calibration],
}

/// An arm, and the arm that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmPair<'a> {
    /// The arm.
    pub arm: &'a str,
    /// The name of the baseline.
    pub against: &'a str,
    /// It is a copy of that: its interval should cover 1.
    pub null: bool,
}

impl<'a> ArmPair<'a> {
    /// The pairs of arms that are given with what they are a twin of: a twin is compared with the
    /// arm that it copies, every other arm with the baseline.
    pub fn of_arms(
        baseline: &'a str,
        arms: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Vec<Self> {
        let others = arms.into_iter().filter(|(arm, _)| *arm != baseline);
        let pair = |(arm, twin_of): (&'a str, Option<&'a str>)| Self {
            arm,
            against: twin_of.unwrap_or(baseline),
            null: twin_of.is_some(),
        };
        others.map(pair).collect()
    }
}

/// Two arms, compared.
pub(crate) struct ComparedArms {
    pub(crate) rounds: Vec<Round>,
    pub(crate) options: Options,
    pub(crate) estimate: Estimate,
}

/// All pairs of a workload in one metric.
pub(crate) struct ComparedRow {
    /// In the pairs' order; `None` before two rounds were completed.
    pub(crate) compared: Vec<Option<ComparedArms>>,
    /// By how much the intervals were widened for a null arm.
    pub(crate) null_factor: Option<f64>,
}

impl<'a> From<&'a Header> for Intervals<'a> {
    fn from(header: &'a Header) -> Self {
        let arms = header.arms.iter().map(|arm| (arm.name.as_str(), arm.twin_of.as_deref()));
        Self {
            pairs: ArmPair::of_arms(&header.baseline, arms),
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
        let row = compared_row(&samples, &self.pairs, &options);
        let half_widths =
            row.compared.iter().map(|compared| Some(compared.as_ref()?.estimate.half_width));
        half_widths.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
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
        let arms = self.pairs.len() + 1;
        let pair_seconds = slicing.map(|slicing| slicing.block(arms).as_secs_f64());
        Options {
            resamples: RESAMPLES,
            widening: self.widening(metric).unwrap_or(1.0),
            seed: self.seed,
            minimum_block_length: pair_seconds.map_or(1, minimum_block_length_for),
            ..Options::default()
        }
    }
}

/// Every pair, with intervals so wide that those of null arms cover 1: what makes a copy of an arm
/// differ from it makes the others differ, too.
pub(crate) fn compared_row(
    samples: &[Sample<'_>],
    pairs: &[ArmPair<'_>],
    options: &Options,
) -> ComparedRow {
    let compared = pairs.iter().map(|pair| compare(samples, *pair, options.clone()));
    let mut compared: Vec<Option<ComparedArms>> = compared.collect();
    let nulls = pairs.iter().zip(&compared).filter(|(pair, _)| pair.null);
    let factors = nulls.filter_map(|(_, null)| null_factor(&null.as_ref()?.estimate));
    let null_factor = factors.max_by(f64::total_cmp);
    if let Some(factor) = null_factor {
        for compared in compared.iter_mut().flatten() {
            compared.options.widening *= factor;
            compared.estimate = compared.estimate.clone().widened(factor);
        }
    }
    ComparedRow { compared, null_factor }
}

/// How many half-widths a null arm is off, if that is more than one.
fn null_factor(null: &Estimate) -> Option<f64> {
    // Widened by it, the interval covers 1 whatever is rounded.
    const ROUNDING: f64 = 1.0 + 1e-12;
    let factor = null.ratio.ln().abs() / null.half_width;
    (factor > 1.0 && factor.is_finite()).then_some(factor * ROUNDING)
}

/// An arm against another one, paired within blocks. `None` before two rounds were completed.
fn compare(samples: &[Sample<'_>], pair: ArmPair<'_>, options: Options) -> Option<ComparedArms> {
    let rounds = pair_up(samples, pair.arm, pair.against);
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
        agree(&run);
        // An arm that costs something, called a copy: its row is widened.
        let mut off = run.clone();
        off.header.arms[2].twin_of = Some("off".to_owned());
        assert!(
            summarise(&off).comparisons.iter().any(|comparison| comparison.null_factor.is_some())
        );
        agree(&off);
    }

    #[track_caller]
    fn agree(run: &Run) {
        let result = summarise(run);
        let intervals = Intervals::from(&run.header);
        let timed = run
            .header
            .workloads
            .iter()
            .filter(|workload| result.rounds.contains_key(&workload.name));
        for workload in timed {
            let printed = result.comparisons.iter().filter(|comparison| {
                comparison.workload == workload.name
                    && comparison.metric == Metric::CpuPerTransaction
            });
            let printed = printed.map(|printed| printed.half_width).max_by(f64::total_cmp).unwrap();
            let widest = intervals.widest(run.into(), workload, RESAMPLES).unwrap();
            assert_eq!(widest.to_bits(), printed.to_bits(), "{}", workload.name);
            let interim = intervals.interim_half_width(run.into(), workload).unwrap();
            assert!((interim / printed - 1.0).abs() < 0.1, "{interim} {printed}");
        }
    }

    fn sample(arm: &str, round: u32, block: u32, cost: f64) -> Sample<'_> {
        Sample { arm, round, block, numerator: cost, denominator: 1.0 }
    }

    /// Costs of `off`, an arm that costs a tenth more, and a twin that costs this much.
    fn row(twin_costs: f64) -> ComparedRow {
        let noise = |round: u32, block: u32, arm: u32| {
            let mut mixed = (round * 1000 + block * 10 + arm).wrapping_mul(0x9e37_79b1);
            mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
            mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
            1.0 + f64::from(mixed >> 24) / 25_600.0
        };
        let blocks = (1..=6).flat_map(|round| (1..=20).map(move |block| (round, block)));
        let samples = blocks.flat_map(|(round, block)| {
            [("off", 1.0), ("on", 1.1), ("twin", twin_costs)].into_iter().zip(0..).map(
                move |((arm, costs), index)| {
                    sample(arm, round, block, costs * noise(round, block, index))
                },
            )
        });
        let samples: Vec<Sample<'_>> = samples.collect();
        let arms = [("off", None), ("on", None), ("twin", Some("off"))];
        compared_row(&samples, &ArmPair::of_arms("off", arms), &Options::default())
    }

    #[test]
    fn a_null_arm_that_differs_widens_its_row() {
        let sound = row(1.0);
        let off = row(1.02);
        assert_eq!(sound.null_factor, None);
        let factor = off.null_factor.unwrap();
        let [on, twin] = [0, 1].map(|index| off.compared[index].as_ref().unwrap());
        assert!(twin.estimate.ratio > 1.015 && twin.estimate.lower <= 1.0, "{:?}", twin.estimate);
        assert!((twin.estimate.half_width / twin.estimate.ratio.ln() - 1.0).abs() < 1e-9);
        let before = &sound.compared[0].as_ref().unwrap().estimate;
        assert!((on.estimate.half_width / before.half_width / factor - 1.0).abs() < 1e-9);
        assert!(
            (on.estimate.total_half_width / before.total_half_width / factor - 1.0).abs() < 1e-9
        );
        assert_eq!(on.estimate.ratio.to_bits(), before.ratio.to_bits());
        assert!((on.options.widening - factor).abs() < 1e-12);
    }

    #[test]
    fn twins_are_compared_with_what_they_copy() {
        let arms = [("off", None), ("on", None), ("on-twin", Some("on"))];
        let pairs = ArmPair::of_arms("off", arms);
        let pair = |arm, against, null| ArmPair { arm, against, null };
        assert_eq!(pairs, [pair("on", "off", false), pair("on-twin", "on", true)]);
    }
}
