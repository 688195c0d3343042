//! What exactly will run: settings resolved, disk and time told before anything starts.

use std::path::Path;
use std::time::Duration;

use pgtoll_format::ByteSize;
use pgtoll_record::Design;

use crate::{BenchError, Experiment, WorkloadSpec};

/// What a user may choose; `None` leaves it to the experiment or to pgtoll.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// pgbench's scale factor.
    pub scale: Option<u32>,
    /// How long all may take, roughly.
    pub budget: Option<Duration>,
    /// The half-width of the intervals of server CPU at which a workload is done, as a ratio: 0.01
    /// is 1 %. Then there are as many rounds as it takes, or as the budget allows.
    pub precision: Option<f64>,
    /// Rounds of each workload that is timed.
    pub rounds: Option<u32>,
    /// A round's length without restarts.
    pub round_time: Option<Duration>,
    /// A slice's length.
    pub slice: Option<Duration>,
    /// Repetitions of steps.
    pub repetitions: Option<u32>,
    /// Counted passes have a tenth of their transactions.
    pub count_less: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

/// What exactly will run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// How slices and operations lie.
    pub design: Design,
    /// The half-width, as a ratio, at which a workload is done before its rounds are.
    pub precision: Option<f64>,
    /// The names of the scripts' workloads that are timed; the others are only counted.
    pub timed: Vec<String>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// What `measure` takes when nobody says otherwise.
pub const BUDGET: Duration = Duration::from_secs(300);
/// Long enough for many transactions, short against a neighbour's job.
const SLICE: Duration = Duration::from_millis(50);
/// Caches that another arm's slice has filled are warm again after a few milliseconds.
const LEAD_IN: Duration = Duration::from_millis(5);
/// Beyond about this length the spread between rounds rules, and another round helps more.
const LONGEST_ROUND: Duration = Duration::from_secs(20);
/// A workload that cannot have rounds of this length is better left to a larger budget.
const SHORTEST_ROUND: Duration = Duration::from_secs(8);
/// Fewer rounds know too little of the spread between rounds.
pub(crate) const ROUNDS: u32 = 6;
const WARM_UP: Duration = Duration::from_secs(2);
/// Fewer repetitions know too little of the spread between them.
const REPETITIONS: u32 = 5;

/// pgbench's tables and index take 15 MB for each unit of scale (100,000 accounts of 128 bytes
/// and an index entry of 21).
const BYTES_PER_SCALE: u64 = 15_500_000;
/// An empty cluster with its WAL segments after a load.
const BYTES_PER_CLUSTER: u64 = 120_000_000;

/// What takes how long, for the plan's estimate. They decide what fits into a budget, and nothing
/// that is measured.
mod cost {
    use std::time::Duration;

    pub(super) const START_AND_STOP: Duration = Duration::from_millis(500);
    /// A copy, a start, a load of a million rows and two scans.
    pub(super) const STEPS: Duration = Duration::from_millis(1500);
    pub(super) const COUNTED_TRANSACTION: Duration = Duration::from_micros(100);
    pub(super) const BYTES_PER_SECOND: u64 = 300_000_000;
}

impl Plan {
    /// Resolves what the user left open: the workloads that stand first in the file get rounds as
    /// long as they may be, as many of them as fit into the budget, and at least one.
    pub fn new(mut experiment: Experiment, choices: &Choices) -> Self {
        experiment.scale = choices.scale.unwrap_or(experiment.scale);
        if choices.count_less {
            experiment.workloads.iter_mut().for_each(|of| of.counted = of.counted.div_ceil(10));
        }
        let mut plan = Self {
            timed: Vec::new(),
            precision: choices.precision,
            design: Design {
                rounds: choices.rounds.unwrap_or(ROUNDS),
                blocks_per_round: 0,
                slice_ns: nanoseconds(choices.slice.unwrap_or(SLICE)),
                lead_in_ns: nanoseconds(LEAD_IN),
                warm_up_blocks: 0,
                repetitions: choices.repetitions.unwrap_or(REPETITIONS),
                scale: experiment.scale,
            },
            seed: choices.seed,
            experiment,
        };
        plan.allot(choices);
        plan
    }

    /// Decides which workloads are timed, and how long their rounds are.
    fn allot(&mut self, choices: &Choices) {
        let budget = choices.budget.unwrap_or(BUDGET);
        let left = budget.saturating_sub(self.untimed_duration());
        let scripts: Vec<String> =
            self.experiment.scripts().map(|(of, _)| of.name.clone()).collect();
        let round_time = |workloads: usize| -> Duration {
            let all = left / (self.design.rounds * count(workloads)).max(1);
            let longest = all.saturating_sub(self.restart() + WARM_UP).min(LONGEST_ROUND);
            choices.round_time.unwrap_or(longest)
        };
        let fits = |workloads: &usize| {
            let round = round_time(*workloads);
            let all = (round + self.restart() + WARM_UP.min(round / 4)) * self.design.rounds;
            (round >= SHORTEST_ROUND || choices.round_time.is_some())
                && all * count(*workloads) <= left
        };
        // Whatever the budget: without one workload there is nothing to show.
        let workloads = (1..=scripts.len()).rev().find(fits).unwrap_or(scripts.len().min(1));
        let round = round_time(workloads.max(1));
        self.design.blocks_per_round = times(round, self.block()).max(1);
        self.design.warm_up_blocks = times(WARM_UP.min(round / 4), self.block()).max(1);
        if choices.precision.is_some() && choices.rounds.is_none() {
            let blocks = self.design.blocks_per_round + self.design.warm_up_blocks;
            let one = self.block() * blocks + self.restart();
            self.design.rounds = times(left / count(workloads).max(1), one).max(ROUNDS);
        }
        self.timed = scripts.into_iter().take(workloads).collect();
    }

    /// Bytes of disk that all clusters together need, roughly.
    pub fn disk_bytes(&self) -> u64 {
        // When the last copy is made, the origin is still there.
        (self.data_bytes() + BYTES_PER_CLUSTER) * (self.arms() + 1)
    }

    /// What a reader of the results has to know before there are any.
    pub fn warnings(&self) -> Vec<String> {
        let common = self.experiment.settings.get("shared_buffers");
        let misses = self.experiment.scripts().filter(|(of, _)| of.misses);
        misses
            .filter_map(|(workload, _)| {
                let size = workload.settings.get("shared_buffers").or(common)?;
                let size = size.parse::<ByteSize>().ok()?;
                (size.0 >= self.data_bytes() / 4).then(|| {
                    format!(
                        "{}: shared_buffers of {size} hold much of the data of {}: few pages are \
                         read from outside",
                        workload.name,
                        ByteSize(self.data_bytes()).rounded()
                    )
                })
            })
            .collect()
    }

    /// How long it takes, roughly.
    pub fn duration(&self) -> Duration {
        let blocks = self.design.blocks_per_round + self.design.warm_up_blocks;
        let round = self.block() * blocks + self.restart();
        self.untimed_duration() + round * self.design.rounds * count(self.timed.len())
    }

    /// All but the rounds: what it takes to make the data, the counted passes, the repetitions of
    /// steps.
    fn untimed_duration(&self) -> Duration {
        let arms = count(self.experiment.arms.len());
        let made = Duration::from_secs(3 + self.disk_bytes() / cost::BYTES_PER_SECOND);
        let counted = self.experiment.scripts().filter(|(of, _)| of.counted > 0).map(|(of, _)| {
            let transactions = u32::try_from(of.counted).unwrap_or(u32::MAX);
            (cost::START_AND_STOP + cost::COUNTED_TRANSACTION * transactions) * arms
        });
        let steps = self.experiment.workloads.iter().filter(|of| !of.steps.is_empty());
        let steps = steps.map(|_| cost::STEPS * arms * 2 * self.design.repetitions);
        made + counted.sum::<Duration>() + steps.sum::<Duration>()
    }

    fn restart(&self) -> Duration {
        cost::START_AND_STOP * count(self.experiment.arms.len())
    }

    fn block(&self) -> Duration {
        let slice = Duration::from_nanos(self.design.slice_ns + self.design.lead_in_ns);
        slice * count(self.experiment.arms.len())
    }

    /// Refuses what cannot work: a disk that would fill, arms that push each other out of memory.
    pub fn check_room(&self, work_base: &Path) -> Result<(), BenchError> {
        let free_bytes = pgtoll_observe::free_bytes(work_base)?;
        let needed_bytes = self.disk_bytes();
        // A tenth stays free, for the WAL and for others.
        if free_bytes / 10 * 9 < needed_bytes {
            let path = work_base.to_owned();
            return Err(BenchError::DiskTooSmall { path, free_bytes, needed_bytes });
        }
        let available_bytes = pgtoll_observe::memory()?.available_bytes;
        let needed_bytes = self.data_bytes() * self.arms();
        if available_bytes / 10 * 7 < needed_bytes {
            return Err(BenchError::MemoryTooSmall { available_bytes, needed_bytes });
        }
        Ok(())
    }

    /// The plan in sentences, a line each.
    pub fn lines(&self) -> Vec<String> {
        let experiment = &self.experiment;
        let design = &self.design;
        let names: Vec<&str> = experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
        let counted = experiment.scripts().filter(|(of, _)| of.counted > 0);
        let counted: Vec<&str> = counted.map(|(of, _)| of.name.as_str()).collect();
        let steps = experiment.workloads.iter().flat_map(WorkloadSpec::measured);
        let steps: Vec<&str> = steps.map(|(name, _)| name).collect();
        let round = self.block() * design.blocks_per_round;
        let mut lines = vec![
            format!("experiment {}: {}", experiment.name, experiment.question),
            format!("arms: {} (baseline {})", names.join(", "), experiment.baseline),
        ];
        if !counted.is_empty() {
            lines.push(format!("counted exactly: {}", counted.join(", ")));
        }
        if !steps.is_empty() {
            lines.push(format!(
                "repeated {} times, in pairs of opposite order: {}",
                design.repetitions * 2,
                steps.join(", ")
            ));
        }
        if !self.timed.is_empty() {
            lines.push(format!(
                "timed: {}: {}{} x {:.1} s each, slices of {} ms in balanced random order",
                self.timed.join(", "),
                if self.precision.is_some() { "at most " } else { "" },
                design.rounds,
                round.as_secs_f64(),
                design.slice_ns / 1_000_000
            ));
        }
        let untimed = experiment.scripts().map(|(of, _)| of.name.as_str());
        let untimed: Vec<&str> =
            untimed.filter(|name| self.timed.iter().all(|timed| timed != name)).collect();
        if !untimed.is_empty() {
            lines.push(format!("not timed: {} (--budget 20m times all)", untimed.join(", ")));
        }
        lines.push(format!(
            "pgbench scale {}, seed {}; needs about {} of disk and {} of time",
            experiment.scale,
            self.seed,
            ByteSize(self.disk_bytes()).rounded(),
            pgtoll_format::TimeSpan(self.duration()).rounded()
        ));
        lines
    }

    fn arms(&self) -> u64 {
        self.experiment.arms.len() as u64
    }

    /// Of one arm.
    fn data_bytes(&self) -> u64 {
        u64::from(self.experiment.scale) * BYTES_PER_SCALE
    }
}

/// How often `part` fits into `whole`.
fn times(whole: Duration, part: Duration) -> u32 {
    u32::try_from(whole.as_nanos() / part.as_nanos().max(1)).unwrap_or(u32::MAX)
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(choices: &Choices) -> Plan {
        Plan::new(Experiment::built_in("checksums").unwrap().unwrap(), choices)
    }

    fn within(budget: Duration) -> Choices {
        Choices { budget: Some(budget), ..Choices::default() }
    }

    #[test]
    fn the_default_times_what_stands_first_and_a_large_budget_times_all() {
        let default = plan(&Choices::default());
        assert_eq!(default.timed[0], "read-only-misses");
        assert!(default.design.rounds >= 6);
        assert!(default.lines().iter().any(|line| line.starts_with("not timed: ")));
        let large = plan(&within(Duration::from_secs(1200)));
        assert_eq!(large.timed, ["read-only-misses", "read-only-cached", "read-write"]);
    }

    #[test]
    fn precision_takes_the_rounds_that_the_budget_has() {
        let choices = Choices { precision: Some(0.01), ..within(Duration::from_secs(3600)) };
        assert!(plan(&choices).design.rounds > 20);
        assert_eq!(plan(&Choices { rounds: Some(7), ..choices }).design.rounds, 7);
    }

    proptest! {
        #[test]
        fn a_plan_keeps_its_budget_or_does_the_least(
            budget in 1u64..10_000,
            rounds in prop::option::of(1u32..100),
            repetitions in prop::option::of(0u32..20),
        ) {
            let budget = Duration::from_secs(budget);
            let plan = plan(&Choices { rounds, repetitions, ..within(budget) });
            prop_assert!(!plan.timed.is_empty());
            prop_assert!(plan.design.blocks_per_round > 0 && plan.design.warm_up_blocks > 0);
            let least = plan.timed.len() == 1;
            prop_assert!(least || plan.duration() <= budget.mul_f64(1.01), "{:?}", plan.duration());
        }

        #[test]
        fn more_budget_never_times_less(one in 1u64..5_000, more in 0u64..5_000) {
            let timed = |seconds| plan(&within(Duration::from_secs(seconds))).timed.len();
            prop_assert!(timed(one) <= timed(one + more));
        }
    }
}
