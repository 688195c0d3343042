//! The plan of a run: settings resolved, disk and time known before anything starts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pgtoll_cluster::MemoryGroup;
use pgtoll_format::{ByteSize, TimeSpan, conf};
use pgtoll_record::{Design, Slicing};
use pgtoll_workload::Mix;

use crate::experiment::{SHORTEST_STEP, StepKind};
use crate::units::nanoseconds;
use crate::{ArmSpec, BenchError, Experiment, StepSpec, WorkloadSpec};

/// The choices of a user; `None` leaves one to the experiment or to pgtoll.
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
    /// A quick look: repetitions that were not chosen are fewer where there is no time, counted passes and steps' clients have a tenth of their transactions or time,
    /// functions are not sampled, and workloads are left out, the last first, for which there is no
    /// time.
    pub brief: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// How rounds and repetitions lie.
    pub design: Design,
    /// How slices lie, by the names of the workloads that have some.
    pub slicing: BTreeMap<String, Slicing>,
    /// The half-width, as a ratio, at which a workload is done before its rounds are.
    pub precision: Option<f64>,
    /// The names of the workloads that are timed; the others are only counted.
    pub timed: Vec<String>,
    /// How long all may take; `None` when the length of rounds was chosen.
    pub budget: Option<Duration>,
    /// The names of the workloads for which a quick look has no time.
    pub left_out: Vec<String>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The default budget of `measure`.
pub const BUDGET: Duration = Duration::from_secs(300);
/// Long enough for many transactions, short against a neighbour's job.
const SLICE: Duration = Duration::from_millis(50);
/// One client that writes is slow for a tenth of a second, then quick: only many short slices spread that over
/// all arms.
const WRITING_SLICE: Duration = Duration::from_millis(10);
/// A turn of operations: long against what it takes to suspend a server, short against what disturbs
/// a machine.
pub(crate) const TURN: Duration = Duration::from_millis(5);
/// A program that makes load has to be stopped and its sessions be waited for.
const COMMAND_SLICE: Duration = Duration::from_millis(200);
/// A queue that a stall leaves behind has to be worked off in the same slice.
const OPEN_LOOP_SLICE: Duration = Duration::from_secs(2);
/// Caches that another arm's slice has filled are warm again after a few milliseconds.
const LEAD_IN: Duration = Duration::from_millis(5);
/// Beyond about this length the spread between rounds rules, and another round helps more.
const LONGEST_ROUND: Duration = Duration::from_secs(20);
/// A workload that cannot have rounds of this length is better left to a larger budget.
const SHORTEST_ROUND: Duration = Duration::from_secs(8);
/// A quick look is content with this.
const SHORTEST_BRIEF_ROUND: Duration = Duration::from_millis(2500);
/// Fewer rounds know too little of the spread between rounds.
pub(crate) const ROUNDS: u32 = 6;
/// More than anybody has the patience for, and as many as the command line takes.
const ROUNDS_MAX: u32 = 1000;
const WARM_UP: Duration = Duration::from_secs(2);
/// Repetitions at least: fewer estimate the spread between them too badly.
const REPETITIONS: u32 = 5;
/// More narrow intervals by little, and are a long time to wait.
const MOST_REPETITIONS: u32 = 15;
/// A quick look is content with this many, if there is no time for more.
const FEWEST_REPETITIONS: u32 = 3;

/// pgbench's tables and index take 15 MB for each unit of scale (100,000 accounts of 128 bytes
/// and an index entry of 21).
const BYTES_PER_SCALE: u64 = 15_500_000;
/// An empty cluster with its WAL segments after a load.
const BYTES_PER_CLUSTER: u64 = 120_000_000;

/// Times of steps, for the plan's estimate. They decide what fits into a budget, and nothing
/// that is measured.
mod cost {
    use std::time::Duration;

    pub(super) const START_AND_STOP: Duration = Duration::from_millis(500);
    /// A copy, a start, and their end.
    pub(super) const STEPS: Duration = Duration::from_secs(1);
    /// A measured statement on a million rows, and its counters.
    pub(super) const MEASURED: Duration = Duration::from_millis(330);
    /// One of pgbench's initialisation steps, for each unit of scale.
    pub(super) const PGBENCH_STEP: Duration = Duration::from_millis(60);
    /// A program whose work is unknown.
    pub(super) const PROGRAM: Duration = Duration::from_millis(500);
    /// A start, a warm-up, and the samples of one arm.
    pub(super) const PROFILE: Duration = Duration::from_secs(5);
    /// Sums of more would say no more.
    pub(super) const LONGEST_STEP: Duration = Duration::from_secs(1_000_000_000);
    /// One that reads; one that is committed, flush included.
    pub(super) const READ: Duration = Duration::from_micros(100);
    pub(super) const COMMIT: Duration = Duration::from_millis(1);
    pub(super) const BYTES_PER_SECOND: u64 = 300_000_000;
}

impl Plan {
    /// Resolves what the user left open: the workloads that stand first in the file get rounds as
    /// long as they may be, as many of them as fit into the budget, and at least one.
    pub fn new(mut experiment: Experiment, choices: &Choices) -> Self {
        experiment.set_scale(choices.scale.unwrap_or(experiment.scale));
        if choices.brief {
            experiment.workloads.iter_mut().for_each(shorten);
        }
        let mut plan = Self {
            timed: Vec::new(),
            budget: match choices.round_time {
                None => Some(choices.budget.unwrap_or(BUDGET)),
                Some(_) => None,
            },
            left_out: Vec::new(),
            slicing: BTreeMap::new(),
            precision: choices.precision,
            design: Design {
                rounds: choices.rounds.unwrap_or(ROUNDS),
                repetitions: choices.repetitions.unwrap_or(REPETITIONS),
                scale: experiment.scale,
                crossover: experiment.crossover,
                one_cpu: true,
                precision: choices.precision,
                rows_frozen: true,
            },
            seed: choices.seed,
            experiment,
        };
        let budget = choices.budget.unwrap_or(BUDGET);
        while choices.brief
            && choices.repetitions.is_none()
            && plan.design.repetitions > FEWEST_REPETITIONS
            && plan.fixed_duration(1) > budget
        {
            plan.design.repetitions -= 1;
        }
        while choices.brief && choices.round_time.is_none() && plan.experiment.workloads.len() > 1 {
            if plan.round_time(1, budget, choices) >= SHORTEST_BRIEF_ROUND {
                break;
            }
            plan.left_out.extend(plan.experiment.workloads.pop().map(|workload| workload.name));
        }
        plan.allot(choices);
        if choices.repetitions.is_none() {
            plan.repeat_as_often_as_fits(budget);
        }
        plan
    }

    /// Repeats steps more often if nothing works in rounds, which would take all that is left: intervals are as
    /// narrow as the budget makes them.
    fn repeat_as_often_as_fits(&mut self, budget: Duration) {
        if self.timed_slicing().next().is_some() {
            return;
        }
        while self.design.repetitions < MOST_REPETITIONS {
            self.design.repetitions += 1;
            if self.fixed_duration(self.timed.len()) > budget {
                self.design.repetitions -= 1;
                return;
            }
        }
    }

    /// Decides which workloads are timed, and how long their rounds are: as many of the first in
    /// the file as the budget has room for, and at least one.
    fn allot(&mut self, choices: &Choices) {
        let budget = choices.budget.unwrap_or(BUDGET);
        let all = self.experiment.workloads.len();
        let first = (1..=all).rev().find(|first| self.fits(*first, budget, choices));
        let first = first.unwrap_or(1);
        let round = self.round_time(first, budget, choices);
        let workloads = &self.experiment.workloads;
        self.timed = workloads[..first].iter().map(|workload| workload.name.clone()).collect();
        self.slicing = self
            .experiment
            .sliced()
            .map(|sliced| (sliced.name.clone(), self.slicing_of(sliced, round, choices)))
            .collect();
        if choices.rounds.is_none() {
            let left = budget.saturating_sub(self.fixed_duration(first));
            let rounds: Duration =
                self.timed_slicing().map(|timed_slicing| self.round_duration(timed_slicing)).sum();
            let all = if rounds.is_zero() { ROUNDS } else { times(left, rounds) };
            self.design.rounds = all.clamp(ROUNDS, ROUNDS_MAX);
        }
    }

    fn fits(&self, first: usize, budget: Duration, choices: &Choices) -> bool {
        let fixed = self.fixed_duration(first);
        let scripts = self.sliced_of_first(first);
        if scripts == 0 {
            return fixed <= budget;
        }
        let round = self.round_time(first, budget, choices);
        let one = round + self.restart() + WARM_UP.min(round / 4);
        (round >= SHORTEST_ROUND || choices.round_time.is_some())
            && fixed + one * self.design.rounds * scripts <= budget
    }

    /// A round's length without its restarts and warm-up, when the first workloads are timed.
    fn round_time(&self, first: usize, budget: Duration, choices: &Choices) -> Duration {
        let left = budget.saturating_sub(self.fixed_duration(first));
        let one = left / (self.design.rounds * self.sliced_of_first(first)).max(1);
        let longest = one.saturating_sub(self.restart() + WARM_UP).min(LONGEST_ROUND);
        choices.round_time.unwrap_or(longest)
    }

    fn sliced_of_first(&self, first: usize) -> u32 {
        let workloads = self.experiment.workloads.iter().take(first);
        count(workloads.filter(|workload| workload.is_sliced()).count())
    }

    fn slicing_of(
        &self,
        workload_spec: &WorkloadSpec,
        round: Duration,
        choices: &Choices,
    ) -> Slicing {
        let writes = workload_spec.mix.as_ref().is_some_and(Mix::writes);
        let usual = match workload_spec {
            spec if spec.command.is_some() => COMMAND_SLICE,
            spec if spec.rate.is_some() => OPEN_LOOP_SLICE,
            // Settings that change before each slice take longer than that.
            spec if writes && spec.clients() == 1 && !self.design.crossover => WRITING_SLICE,
            _ => SLICE,
        };
        let slice = choices.slice.or(workload_spec.slice.map(|slice| slice.0)).unwrap_or(usual);
        // What a program did in a slice is not known, only what it did in a round.
        let lead_in = match workload_spec {
            spec if spec.command.is_some() => Duration::ZERO,
            // A tenth of a slice's transactions.
            spec if writes && spec.rate.is_none() => slice / 10,
            _ => LEAD_IN,
        };
        let block = (slice + lead_in) * count(self.experiment.arms.len());
        Slicing {
            slice_ns: nanoseconds(slice),
            lead_in_ns: nanoseconds(lead_in),
            blocks_per_round: times(round, block).max(1),
            warm_up_blocks: times(WARM_UP.min(round / 4), block).max(1),
            one_cpu: Some(workload_spec.mix.is_some() && workload_spec.clients() == 1),
        }
    }

    /// How slices lie in the workloads that are timed.
    fn timed_slicing(&self) -> impl Iterator<Item = &Slicing> {
        self.timed.iter().filter_map(|name| self.slicing.get(name))
    }

    /// Bytes of disk that all clusters together need, roughly.
    pub fn disk_bytes(&self) -> u64 {
        let cluster = self.data_bytes() + BYTES_PER_CLUSTER;
        // When the last copy is made, the origin is still there; when steps have a copy of a copy, it
        // is not, but the disk has to take both.
        let of_arms = cluster * (self.arms() + 1);
        let steps = self.experiment.workloads.iter().filter(|workload| !workload.steps.is_empty());
        let of_steps = steps.map(|step| {
            let together = if step.takes_turns() { self.arms() } else { 1 };
            (if step.loaded { cluster } else { 0 } + bytes_made(step)) * together
        });
        of_arms + of_steps.max().unwrap_or(0)
    }

    /// Returns warnings for the reader, before there are results.
    pub fn warnings(&self) -> Vec<String> {
        let data = ByteSize(self.data_bytes());
        let misses = self.experiment.scripts().map(|(script, _)| script).filter(|item| item.misses);
        let held = misses.filter(|miss| self.shared_buffers(miss) >= data.0 / 4).map(|miss| {
            format!(
                "{}: shared_buffers of {} hold much of the data of {}: few pages are read from \
                 outside",
                miss.name,
                ByteSize(self.shared_buffers(miss)),
                data.rounded()
            )
        });
        held.collect()
    }

    /// The size of shared buffers under this workload, in bytes.
    fn shared_buffers(&self, spec: &WorkloadSpec) -> u64 {
        /// The default of every version that pgtoll knows.
        const DEFAULT: u64 = 128 << 20;
        let common = self.experiment.settings.get("shared_buffers");
        let text = spec.settings.get("shared_buffers").or(common);
        let bytes =
            text.and_then(|text| conf::size("shared_buffers", text).ok()).map(|item| item.0);
        bytes.unwrap_or(DEFAULT)
    }

    /// How long it takes, roughly.
    pub fn duration(&self) -> Duration {
        let rounds: Duration =
            self.timed_slicing().map(|timed_slicing| self.round_duration(timed_slicing)).sum();
        self.fixed_duration(self.timed.len()) + rounds * self.design.rounds
    }

    /// With its restarts and its warm-up.
    fn round_duration(&self, slicing: &Slicing) -> Duration {
        self.block(slicing) * slicing.blocks_per_round + self.beyond_blocks(slicing)
    }

    /// All but the rounds, when the first workloads are timed: what it takes to make the data, the
    /// counted passes, the repetitions of steps, the samples of functions.
    fn fixed_duration(&self, first: usize) -> Duration {
        let arms = count(self.experiment.arms.len());
        let made = Duration::from_secs(3 + self.disk_bytes() / cost::BYTES_PER_SECOND);
        let counted = self.experiment.scripts().filter(|(script, _)| script.counted > 0).map(
            |(script, mix)| {
                let transactions = u32::try_from(script.counted).unwrap_or(u32::MAX);
                (cost::START_AND_STOP + transaction_duration(mix) * transactions) * arms
            },
        );
        let workloads = self.experiment.workloads.iter().enumerate();
        let others = workloads.map(|(index, workload)| {
            let is_timed = index < first;
            let profiled = is_timed && workload.profile.is_some();
            let profile =
                if profiled { cost::PROFILE * self.profiled_arms() } else { Duration::ZERO };
            profile + self.steps_duration(workload) * arms * self.trials(workload, is_timed)
        });
        made + counted.sum::<Duration>() + others.sum::<Duration>()
    }

    /// How often each arm does the steps of a workload: once when only its counters are wanted.
    fn trials(&self, spec: &WorkloadSpec, is_timed: bool) -> u32 {
        match (is_timed, spec.takes_turns()) {
            (true, true) => self.design.repetitions * 2 + self.in_one_piece(),
            (true, false) => self.design.repetitions * 2,
            (false, _) => self.design.repetitions.min(1),
        }
    }

    /// How often arms that take turns do their steps in one piece, too: a check, which may have wide
    /// intervals. 3 times by default; a quick look, once.
    pub(crate) fn in_one_piece(&self) -> u32 {
        (self.design.repetitions * 3 / 5).clamp(1, 3)
    }

    /// One trial of one arm.
    fn steps_duration(&self, spec: &WorkloadSpec) -> Duration {
        if spec.steps.is_empty() {
            return Duration::ZERO;
        }
        let bytes = if spec.loaded { self.data_bytes() } else { 0 };
        let copy = Duration::from_secs(bytes / cost::BYTES_PER_SECOND);
        cost::STEPS + copy + spec.steps.iter().map(step_duration).sum::<Duration>()
    }

    fn profiled_arms(&self) -> u32 {
        count(self.experiment.arms.iter().filter(|arm| self.is_profiled(arm)).count())
    }

    /// The baseline has none of what is sampled, and its twin neither.
    pub(crate) fn is_profiled(&self, arm: &ArmSpec) -> bool {
        arm.twin_of.is_none() && arm.name != self.experiment.baseline
    }

    /// A round's time beyond its blocks.
    pub(crate) fn beyond_blocks(&self, slicing: &Slicing) -> Duration {
        self.restart() + self.block(slicing) * slicing.warm_up_blocks
    }

    fn restart(&self) -> Duration {
        cost::START_AND_STOP * count(self.experiment.arms.len())
    }

    fn block(&self, slicing: &Slicing) -> Duration {
        slicing.block(self.experiment.arms.len())
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
        self.check_limits()?;
        let available_bytes = pgtoll_observe::memory()?.available_bytes;
        let needed_bytes = self.memory_bytes();
        if available_bytes / 10 * 7 < needed_bytes {
            return Err(BenchError::MemoryTooSmall { available_bytes, needed_bytes });
        }
        Ok(())
    }

    /// Limits of memory that this user cannot set, or that the data do not reach.
    fn check_limits(&self) -> Result<(), BenchError> {
        for workload in &self.experiment.workloads {
            let Some(limit) = workload.memory else { continue };
            MemoryGroup::create("probe", limit.0)?.remove()?;
            // Nobody knows what a setup makes, or a step.
            let is_known = workload.is_sliced() && self.experiment.setup.is_none();
            if is_known && limit.0 >= self.data_bytes() {
                let arm = self.experiment.baseline.clone();
                return Err(BenchError::LimitNotReached { arm, limit });
            }
        }
        Ok(())
    }

    /// After the load, when it is known how large the data are.
    pub(crate) fn check_loaded(&self, base: &Path, data_bytes: u64) -> Result<(), BenchError> {
        let copies = if self.design.crossover { 2 } else { self.arms() + 1 };
        let loaded = self.experiment.workloads.iter().filter(|workload| workload.loaded);
        let of_steps = loaded.map(|loaded| if loaded.takes_turns() { self.arms() } else { 1 });
        let needed_bytes = data_bytes * (copies + of_steps.max().unwrap_or(0));
        let free_bytes = pgtoll_observe::free_bytes(base)?;
        if free_bytes < needed_bytes {
            let path = base.to_owned();
            return Err(BenchError::DiskTooSmall { path, free_bytes, needed_bytes });
        }
        let in_memory = self.experiment.sliced().any(|sliced| sliced.memory.is_none());
        let needed_bytes = data_bytes * if self.design.crossover { 1 } else { self.arms() };
        let available_bytes = pgtoll_observe::memory()?.available_bytes;
        if in_memory && available_bytes / 10 * 7 < needed_bytes {
            return Err(BenchError::MemoryTooSmall { available_bytes, needed_bytes });
        }
        Ok(())
    }

    /// Returns the memory that the servers of the largest workload use at once: their data in the page cache,
    /// and again what of it their shared buffers hold.
    fn memory_bytes(&self) -> u64 {
        let data = self.data_bytes();
        let servers = if self.design.crossover { 1 } else { self.arms() };
        let needs = self.experiment.sliced().map(|sliced| match sliced.memory {
            Some(limit) => limit.0,
            None => data + data.min(self.shared_buffers(sliced)),
        });
        let steps = self.experiment.workloads.iter().filter(|workload| !workload.is_sliced());
        let limits = steps.filter_map(|step| {
            let together = if step.takes_turns() { servers } else { 1 };
            Some(step.memory?.0 * together)
        });
        (needs.max().unwrap_or(0) * servers).max(limits.max().unwrap_or(0))
    }

    /// The plan in sentences, a line each.
    pub fn lines(&self) -> Vec<String> {
        let experiment = &self.experiment;
        let names: Vec<&str> = experiment.arms.iter().map(|arm| arm.name.as_str()).collect();
        let counted = experiment.scripts().filter(|(script, _)| script.counted > 0);
        let counted: Vec<&str> = counted.map(|(counted, _)| counted.name.as_str()).collect();
        let is_timed = |spec: &&WorkloadSpec| self.timed.contains(&spec.name);
        let mut lines = vec![
            format!("experiment {}: {}", experiment.name, experiment.question),
            format!("arms: {} (baseline {})", names.join(", "), experiment.baseline),
        ];
        if experiment.crossover {
            lines.push("crossover: one cluster, its settings changed before each slice".into());
        }
        if !counted.is_empty() {
            lines.push(format!("counted exactly: {}", counted.join(", ")));
        }
        for workload in experiment.workloads.iter().filter(is_timed) {
            lines.push(self.line_of(workload));
        }
        let untimed = experiment.workloads.iter().filter(|workload| !is_timed(workload));
        let untimed: Vec<&str> = untimed.map(|untimed| untimed.name.as_str()).collect();
        if !untimed.is_empty() {
            lines.push(format!("not timed: {} (--budget 20m times all)", untimed.join(", ")));
        }
        if !self.left_out.is_empty() {
            lines.push(format!("left out: {} (no --quick)", self.left_out.join(", ")));
        }
        lines.push(format!(
            "pgbench scale {}, seed {}; needs about {} of disk and {} of time",
            experiment.scale,
            self.seed,
            ByteSize(self.disk_bytes()).rounded(),
            TimeSpan(self.duration()).rounded()
        ));
        lines
    }

    fn line_of(&self, workload: &WorkloadSpec) -> String {
        let Some(slicing) = self.slicing.get(&workload.name) else {
            let steps: Vec<&str> = workload.names().collect();
            let times = self.design.repetitions * 2;
            let how = if workload.takes_turns() {
                let turn = TURN.as_millis();
                let check = match self.in_one_piece() {
                    1 => "once".to_owned(),
                    check => format!("{check} times"),
                };
                format!("in turns of {turn} ms, and {check} in one piece as a check")
            } else {
                "in pairs of opposite order".to_owned()
            };
            return format!("timed: {}: {times} times, {how}", steps.join(", "));
        };
        let round = self.block(slicing) * slicing.blocks_per_round;
        format!(
            "timed: {}: {}{} x {:.1} s, slices of {} ms in balanced random order",
            workload.name,
            if self.precision.is_some() { "at most " } else { "" },
            self.design.rounds,
            round.as_secs_f64(),
            slicing.slice_ns / 1_000_000
        )
    }

    fn arms(&self) -> u64 {
        self.experiment.arms.len() as u64
    }

    /// Returns the data size of one arm.
    fn data_bytes(&self) -> u64 {
        u64::from(self.experiment.scale) * BYTES_PER_SCALE
    }
}

/// A tenth of the work, as a quick look has it. What a statement or a program does stays whole.
fn shorten(workload: &mut WorkloadSpec) {
    workload.counted = workload.counted.div_ceil(10);
    workload.profile = None;
    for step in &mut workload.steps {
        step.transactions = step.transactions.map(|all| all.div_ceil(10));
        step.time = step.time.map(|TimeSpan(time)| TimeSpan((time / 10).max(SHORTEST_STEP)));
    }
}

/// Beyond what every trial takes.
fn step_duration(step: &StepSpec) -> Duration {
    match step.kind() {
        StepKind::Sql(_) if step.measure.is_some() => cost::MEASURED,
        StepKind::Sql(_) => Duration::ZERO,
        StepKind::Pgbench(_) => cost::PGBENCH_STEP * step.pgbench_scale(),
        StepKind::Program(_) => cost::PROGRAM,
        StepKind::Restart | StepKind::Evict | StepKind::Crash => cost::START_AND_STOP,
        StepKind::Script(mix) => {
            let all = step.transactions.unwrap_or(0).saturating_mul(step.clients().into());
            let all = u32::try_from(all).unwrap_or(u32::MAX);
            let of_one = step.rate.map_or(transaction_duration(mix), |rate| {
                Duration::try_from_secs_f64(rate.recip()).unwrap_or(Duration::ZERO)
            });
            step.time.map_or(of_one.saturating_mul(all), |time| time.0).min(cost::LONGEST_STEP)
        }
    }
}

fn transaction_duration(mix: &Mix) -> Duration {
    if mix.writes() { cost::COMMIT } else { cost::READ }
}

/// Returns the bytes of the rows that a trial makes with pgbench, and of their WAL.
fn bytes_made(spec: &WorkloadSpec) -> u64 {
    let loads = spec
        .steps
        .iter()
        .filter(|step| step.pgbench.as_ref().is_some_and(|letters| letters.contains(['g', 'G'])));
    loads.map(|step| u64::from(step.pgbench_scale()) * BYTES_PER_SCALE * 2).sum()
}

/// How often `part` fits into `whole`.
fn times(whole: Duration, part: Duration) -> u32 {
    u32::try_from(whole.as_nanos() / part.as_nanos().max(1)).unwrap_or(u32::MAX)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
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
        assert_eq!(large.timed.len(), large.experiment.workloads.len(), "{:?}", large.timed);
    }

    #[test]
    fn precision_takes_the_rounds_that_the_budget_has() {
        let choices = Choices { precision: Some(0.01), ..within(Duration::from_secs(3600)) };
        assert!(plan(&choices).design.rounds > 20);
        assert_eq!(plan(&Choices { rounds: Some(7), ..choices }).design.rounds, 7);
    }

    #[test]
    fn a_quick_look_has_a_tenth_of_what_clients_do() {
        let of_step = |keys: &str| {
            let text = format!(
                "name = \"n\"\nquestion = \"q\"\nbaseline = \"one\"\n\
                 [[arms]]\nname = \"one\"\n[[arms]]\nname = \"two\"\n\
                 [[workloads]]\nname = \"w\"\ntitle = \"w\"\n\
                 steps = [{{ script = \"select-only\", {keys}, measure = \"m\" }}]\n"
            );
            let choices = Choices { brief: true, ..within(BUDGET) };
            let plan = Plan::new(Experiment::parse(&text, Path::new("")).unwrap(), &choices);
            let step = &plan.experiment.workloads[0].steps[0];
            (step.transactions, step.time.map(|time| time.0.as_millis()))
        };
        assert_eq!(of_step("transactions = 250"), (Some(25), None));
        assert_eq!(of_step("transactions = 3"), (Some(1), None));
        assert_eq!(of_step("time = \"4s\""), (None, Some(400)));
        assert_eq!(of_step("time = \"20ms\""), (None, Some(5)));
    }

    #[test]
    fn steps_know_the_scale() {
        let mut experiment = Experiment::built_in("insert-update").unwrap().unwrap();
        experiment.scale = 1;
        let plan = Plan::new(experiment, &Choices { scale: Some(7), ..within(BUDGET) });
        assert!(plan.experiment.arms.iter().all(|arm| arm.values["scale"] == "7"));
    }

    #[test]
    fn copies_of_loaded_clusters_and_what_steps_take_are_planned() {
        let with = |keys: &str, steps: &str| {
            let text = format!(
                "name = \"n\"\nquestion = \"q\"\nbaseline = \"one\"\nscale = 100\n\
                 [[arms]]\nname = \"one\"\n[[arms]]\nname = \"two\"\n\
                 [[workloads]]\nname = \"w\"\ntitle = \"w\"\n{keys}\n\
                 steps = [{{ sql = \"SELECT 1\", measure = \"m\" }}{steps}]\n"
            );
            let experiment = Experiment::parse(&text, Path::new("")).unwrap();
            let choices = Choices { repetitions: Some(5), ..within(BUDGET) };
            let plan = Plan::new(experiment, &choices);
            (plan.disk_bytes(), plan.duration())
        };
        let (disk, time) = with("", "");
        let (of_loaded, _) = with("loaded = true", "");
        // Both arms have their copies at the same time.
        assert_eq!(of_loaded - disk, 2 * (100 * BYTES_PER_SCALE + BYTES_PER_CLUSTER));
        let (of_rows, _) = with("", ", { pgbench = \"g\", scale = 7 }");
        assert_eq!(of_rows - disk, 2 * 7 * BYTES_PER_SCALE * 2);
        // Ten times in turns and three in one piece, in each of two arms.
        let more = |step: &str| with("", step).1.saturating_sub(time) / 26;
        assert_eq!(more(", { restart = true }"), cost::START_AND_STOP);
        let script = |keys: &str| format!(", {{ script = \"select-only\", {keys} }}");
        assert_eq!(more(&script("time = \"3s\", clients = 9")), Duration::from_secs(3));
        let open = more(&script("transactions = 100, clients = 4, rate = 50"));
        assert_eq!(open, Duration::from_secs(8));
        assert!(more(&script("transactions = 9000000000000, rate = 0.001")) > BUDGET);
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
            for slicing in plan.slicing.values() {
                prop_assert!(slicing.blocks_per_round > 0 && slicing.warm_up_blocks > 0);
            }
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
