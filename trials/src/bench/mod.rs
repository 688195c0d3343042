//! The parts that benches share. Every arm runs once in each repetition, in balanced orders; arms
//! are compared by the ratio of their figures in the same repetition.

mod arguments;
mod goal;

use anyhow::Context as _;
use pgtoll_cluster::{Guard, Installation};
use pgtoll_record::Host;
use pgtoll_record::trials::{
    BenchHeader, BenchLine, BenchOutcome, BenchRun, BenchSubject, BenchUsage,
};
use pgtoll_stats::BalancedOrders;

pub use arguments::BenchArguments;
pub use goal::{ArmGoal, outcomes_table, ratio};

use crate::{Recorder, TrialSite, installation, print, say};

/// A way to do the work that is timed: a program with its options.
pub trait TimedArm: Copy + PartialEq + 'static {
    /// Every arm, in the order of tables.
    const ALL: &'static [Self];

    /// The arm's name in records.
    fn key(self) -> &'static str;

    /// Whether the other pgtoll runs (`--before`).
    fn is_before(self) -> bool;
}

/// A bench of programs in progress.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Its options.
    pub arguments: &'a BenchArguments,
    /// The place of its servers.
    pub site: TrialSite,
    recorder: Recorder,
}

/// The runs of one subject: each arm, and the time that it took.
pub type Runs<A> = Vec<(A, BenchUsage)>;

impl<'a> Bench<'a> {
    /// Finds the servers of `--postgres`, then makes the record.
    pub fn begin(arguments: &'a BenchArguments) -> anyhow::Result<(Self, Vec<Installation>)> {
        let site = TrialSite::prepare(&arguments.work_dir)?;
        let installations = arguments.postgres.iter().map(|which| installation(which));
        let installations = installations.collect::<anyhow::Result<_>>()?;
        let recorder = Recorder::create(&arguments.record)?;
        Ok((Self { arguments, site, recorder }, installations))
    }

    /// The header's fields that every bench has.
    pub fn header(&self, schema: &str, command: String) -> anyhow::Result<BenchHeader> {
        Ok(header(schema, command, self.site.host()?, self.arguments.repetitions))
    }

    /// Adds a line to the record.
    pub fn record(&mut self, line: &BenchLine) -> anyhow::Result<()> {
        self.recorder.write(line)
    }

    /// Measures each subject with a guard of its own, then records and prints how its arms compare;
    /// `true` when every goal is reached.
    pub fn measure_each<S>(
        &mut self,
        subjects: impl IntoIterator<Item = S>,
        mut measure: impl FnMut(&mut Self, S, &mut Guard) -> anyhow::Result<Vec<BenchOutcome>>,
    ) -> anyhow::Result<bool> {
        let mut reached = true;
        for subject in subjects {
            let mut guard = self.site.begin_guard()?;
            let outcomes = measure(self, subject, &mut guard)?;
            for outcome in &outcomes {
                self.record(&BenchLine::Outcome(outcome.clone()))?;
            }
            print(&outcomes_table(&outcomes, 3));
            reached &= outcomes.iter().all(BenchOutcome::is_reached);
            guard.finish()?;
        }
        Ok(reached)
    }

    /// Runs every arm in every repetition and records each run. `title` names the subject where
    /// progress is shown. Without another pgtoll its arms are left out.
    pub fn run_arms<A: TimedArm>(
        &mut self,
        subject: &BenchSubject,
        title: &str,
        mut run: impl FnMut(A) -> anyhow::Result<BenchUsage>,
    ) -> anyhow::Result<Runs<A>> {
        let can_run = |arm: &A| self.arguments.before.is_some() || !arm.is_before();
        let arms: Vec<A> = A::ALL.iter().copied().filter(can_run).collect();
        let mut runs = Vec::new();
        for (repetition, order) in orders(&arms, self.arguments.repetitions, self.arguments.seed) {
            say(&format!("{title}: repetition {repetition}"));
            for arm in order {
                self.site.interrupt.check()?;
                let usage = run(arm)?;
                self.record(&BenchLine::Run(BenchRun {
                    subject: subject.clone(),
                    repetition,
                    place: None,
                    arm: arm.key().to_owned(),
                    usage: Some(usage),
                    slices_ns: None,
                    load: None,
                }))?;
                runs.push((arm, usage));
            }
        }
        Ok(runs)
    }
}

/// The header's fields that every bench has.
pub fn header(schema: &str, command: String, host: Host, repetitions: u32) -> BenchHeader {
    BenchHeader {
        schema: schema.to_owned(),
        pgtoll: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        started: jiff::Timestamp::now().to_string(),
        server: None,
        servers: None,
        host,
        best: None,
        repetitions,
    }
}

/// The repetitions, counted from 1, each with all arms in its order.
pub fn orders<A: Copy>(
    arms: &[A],
    repetitions: u32,
    seed: u64,
) -> impl Iterator<Item = (u32, Vec<A>)> {
    let orders = BalancedOrders::new(arms.len(), seed);
    (1..=repetitions).zip(orders.map(|order| order.into_iter().map(|index| arms[index]).collect()))
}

/// Compares arms; a goal whose arms did not run is left out.
pub fn compare<A: TimedArm>(
    goals: &[ArmGoal<A>],
    subject: &BenchSubject,
    runs: &Runs<A>,
) -> anyhow::Result<Vec<BenchOutcome>> {
    let has_run = |arm: A| runs.iter().any(|(own, _)| *own == arm);
    let goals = goals.iter().filter(|goal| has_run(goal.arm) && has_run(goal.to));
    goals.map(|goal| goal.outcome(subject, runs).context(goal.what)).collect()
}

/// The median; of an even number the upper one of the middle two, of none not a number.
pub fn upper_median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum TestArm {
        Ours,
        Theirs,
        Before,
    }

    impl TimedArm for TestArm {
        const ALL: &'static [Self] = &[Self::Ours, Self::Theirs, Self::Before];

        fn key(self) -> &'static str {
            "arm"
        }

        fn is_before(self) -> bool {
            self == Self::Before
        }
    }

    #[test]
    fn every_order_has_every_arm() {
        let all: Vec<(u32, Vec<TestArm>)> = orders(TestArm::ALL, 6, 1).collect();
        assert_eq!(
            all.iter().map(|(repetition, _)| *repetition).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6]
        );
        for arm in TestArm::ALL {
            assert!(all.iter().all(|(_, order)| order.contains(arm)));
            // Six orders are all permutations of three: each arm is first twice.
            assert_eq!(all.iter().filter(|(_, order)| order[0] == *arm).count(), 2);
        }
    }

    #[test]
    fn goals_of_arms_that_did_not_run_are_left_out() {
        let usage = |wall_s| BenchUsage { user_s: 4.0, system_s: 1.0, wall_s };
        let runs = vec![
            (TestArm::Ours, usage(1.0)),
            (TestArm::Theirs, usage(2.0)),
            (TestArm::Theirs, usage(4.0)),
            (TestArm::Ours, usage(2.0)),
        ];
        let goals = [
            ArmGoal::wall("wall", TestArm::Ours, TestArm::Theirs, Some(0.6)),
            ArmGoal::cpu("cpu", TestArm::Ours, TestArm::Theirs, Some(0.9)),
            ArmGoal::cpu("before", TestArm::Ours, TestArm::Before, None),
        ];
        let subject = BenchSubject { major: Some(15), ..BenchSubject::default() };
        let outcomes = compare(&goals, &subject, &runs).unwrap();
        let found: Vec<_> = outcomes
            .iter()
            .map(|outcome| (outcome.what.as_str(), outcome.estimate.ratio, outcome.is_reached()))
            .collect();
        assert_eq!(found, [("wall", 0.5, true), ("cpu", 1.0, false)]);
        assert!(outcomes.iter().all(|outcome| outcome.subject == subject));
    }

    #[test]
    fn an_even_number_has_the_upper_middle_value() {
        let odd = upper_median([3.0, 1.0, 2.0].into_iter());
        let even = upper_median([4.0, 1.0, 2.0, 3.0].into_iter());
        assert_eq!((odd, even), (2.0, 3.0));
        assert!(upper_median(std::iter::empty()).is_nan());
    }
}
