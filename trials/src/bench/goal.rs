//! Ratios of arms' figures, and their goals.

use std::fmt::Write as _;

use pgtoll_record::trials::{BenchEstimate, BenchGoal, BenchOutcome, BenchSubject, BenchUsage};
use pgtoll_stats::{Options, Pair, Round, paired_ratio};

use super::Runs;

/// The ratio of two arms' time that is good enough.
#[derive(Clone, Copy, Debug)]
pub struct ArmGoal<A> {
    /// Which arms are compared, and by which figure: the words of table and record.
    pub what: &'static str,
    /// The numerator.
    pub arm: A,
    /// The denominator.
    pub to: A,
    /// The largest ratio that is good enough; `None`: the ratio is reported and has no goal.
    pub at_most: Option<f64>,
    /// The figure, in seconds.
    seconds: fn(&BenchUsage) -> f64,
}

impl<A: Copy + PartialEq> ArmGoal<A> {
    /// Compares wall time.
    pub const fn wall(label: &'static str, arm: A, to: A, at_most: Option<f64>) -> Self {
        Self { what: label, arm, to, at_most, seconds: |usage| usage.wall_s }
    }

    /// Compares CPU time.
    pub const fn cpu(label: &'static str, arm: A, to: A, at_most: Option<f64>) -> Self {
        Self { what: label, arm, to, at_most, seconds: BenchUsage::cpu_s }
    }

    /// Compares the arms: runs of the same repetition are a pair.
    pub(super) fn outcome(
        &self,
        subject: &BenchSubject,
        runs: &Runs<A>,
    ) -> anyhow::Result<BenchOutcome> {
        let seconds = |arm: A| {
            let own = runs.iter().filter(move |(run, _)| *run == arm);
            own.map(|(_, usage)| (self.seconds)(usage))
        };
        Ok(BenchOutcome {
            subject: subject.clone(),
            what: self.what.to_owned(),
            estimate: ratio(seconds(self.arm), seconds(self.to))?,
            goal: BenchGoal::AtMost(self.at_most),
        })
    }
}

/// The ratio of two arms' figures, in the order of their repetitions: those of the same repetition
/// are a pair.
pub fn ratio(
    numerators: impl Iterator<Item = f64>,
    denominators: impl Iterator<Item = f64>,
) -> anyhow::Result<BenchEstimate> {
    let pair = |(treatment, baseline)| Pair {
        numerator_treatment: treatment,
        denominator_treatment: 1.0,
        numerator_baseline: baseline,
        denominator_baseline: 1.0,
    };
    let rounds: Vec<Round> =
        numerators.zip(denominators).map(|both| Round { pairs: vec![pair(both)] }).collect();
    let estimate = paired_ratio(&rounds, &Options::default())?;
    Ok(BenchEstimate { ratio: estimate.ratio, lower: estimate.lower, upper: estimate.upper })
}

/// How the interval lies to the goal; empty without a goal.
fn verdict(outcome: &BenchOutcome) -> &'static str {
    let BenchEstimate { ratio, lower, upper } = outcome.estimate;
    // As if the goal were "at most": the bound that has to meet it first.
    let (goal, far, middle, near) = match outcome.goal {
        BenchGoal::AtMost(None) => return "",
        BenchGoal::AtMost(Some(goal)) => (goal, upper, ratio, lower),
        BenchGoal::AtLeast(goal) => (-goal, -lower, -ratio, -upper),
    };
    match () {
        () if far <= goal => "reached",
        () if middle <= goal => "reached, by its middle",
        () if near <= goal => "missed, by its middle",
        () => "missed",
    }
}

/// A table of ratios and goals with this number of decimals.
pub fn outcomes_table(outcomes: &[BenchOutcome], decimals: usize) -> String {
    let mut text = format!("{:<46}{:>7}{:>18}{:>8}\n", "", "ratio", "95 % interval", "goal");
    for outcome in outcomes {
        let BenchEstimate { ratio, lower, upper } = outcome.estimate;
        let interval = format!("[{lower:.decimals$}, {upper:.decimals$}]");
        let goal = match outcome.goal {
            BenchGoal::AtMost(goal) => goal,
            BenchGoal::AtLeast(goal) => Some(goal),
        };
        let goal = goal.map_or_else(String::new, |goal| format!("{goal:.decimals$}"));
        let label = &outcome.what;
        let verdict = verdict(outcome);
        let _ = writeln!(text, "{label:<46}{ratio:>7.decimals$}{interval:>18}{goal:>8}  {verdict}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(estimate: (f64, f64, f64), goal: BenchGoal, expected: (&str, bool)) {
        let (lower, ratio, upper) = estimate;
        let outcome = BenchOutcome {
            subject: BenchSubject::default(),
            what: String::new(),
            estimate: BenchEstimate { ratio, lower, upper },
            goal,
        };
        assert_eq!((verdict(&outcome), outcome.is_reached()), expected);
    }

    #[test]
    fn a_goal_is_reached_by_the_interval_or_by_its_middle() {
        let at_most = |goal| BenchGoal::AtMost(Some(goal));
        check((0.4, 0.5, 0.6), at_most(0.6), ("reached", true));
        check((0.4, 0.5, 0.6), at_most(0.5), ("reached, by its middle", true));
        check((0.4, 0.5, 0.6), at_most(0.45), ("missed, by its middle", false));
        check((0.4, 0.5, 0.6), at_most(0.3), ("missed", false));
        check((0.4, 0.5, 0.6), BenchGoal::AtMost(None), ("", true));
        check((2.4, 2.5, 2.6), BenchGoal::AtLeast(2.4), ("reached", true));
        check((2.4, 2.5, 2.6), BenchGoal::AtLeast(2.55), ("missed, by its middle", false));
    }
}
