//! pgtoll's design: rounds of short slices in random order.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_measure::{Choices, Experiment, Plan, Progress, RECORD_FILE};
use pgtoll_record::trials::{DesignEstimate, DesignNeighbours, DesignSliced};
use pgtoll_record::{Metric, Run, RunResult};
use pgtoll_stats::median;

use crate::site::Site;

pub(crate) const ROUNDS: u32 = 6;
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// Part of the wall time that is planned for: slices end late on a busy machine. What the rounds
/// really took is reported.
const PLANNED: f64 = 0.98;
/// The rounds that find out how long a restart takes, at most.
const PILOT_ROUND: Duration = Duration::from_secs(3);
const PILOT_ROUNDS: u32 = 3;

/// Fits rounds into a wall time, by what earlier rounds took.
#[derive(Debug)]
pub(crate) struct Pace {
    wall: Duration,
    /// Seconds of a round beyond its planned slices: stops, starts, checkpoints, delays.
    beyond: Vec<f64>,
}

impl Pace {
    /// Finds out, with a few short rounds under the same load, how long a restart takes.
    pub(crate) fn by_pilot(site: &Site, wall: Duration, seed: u64) -> anyhow::Result<Self> {
        let mut pace = Self { wall, beyond: Vec::new() };
        let round = (wall / ROUNDS).min(PILOT_ROUND);
        let choices = Choices { rounds: Some(PILOT_ROUNDS), ..choices(round, seed) };
        let plan = Plan::new(site.experiment.clone(), &choices);
        let (run, _) = run(site, &plan, "pilot", seed)?;
        pace.learn(&plan, &run)?;
        Ok(pace)
    }

    fn plan_of(&self, experiment: &Experiment, seed: u64) -> Plan {
        let beyond = Duration::from_secs_f64(median(&self.beyond).unwrap_or(0.0).max(0.0));
        let round = (self.wall.mul_f64(PLANNED) / ROUNDS).saturating_sub(beyond);
        let mut plan = Plan::new(experiment.clone(), &choices(round, seed));
        // The round time is that of the counted blocks: the warm-up comes off it.
        for slicing in plan.slicing.values_mut() {
            let counted = slicing.blocks_per_round.saturating_sub(slicing.warm_up_blocks);
            slicing.blocks_per_round = counted.max(1);
        }
        plan
    }

    /// Returns how long a round takes.
    fn learn(&mut self, plan: &Plan, run: &Run) -> anyhow::Result<f64> {
        let round = seconds_per_round(run).context("tell the rounds of the record apart")?;
        self.beyond.push(round - planned_seconds(plan));
        Ok(round)
    }
}

/// One measurement, unwidened: nothing is known of the twins of earlier runs.
pub(crate) fn measure(
    site: &Site,
    pace: &mut Pace,
    trial: u32,
    trial_seed: u64,
) -> anyhow::Result<DesignSliced> {
    let plan = pace.plan_of(&site.experiment, trial_seed);
    let name = format!("trial-{trial}");
    let (run, neighbours) = run(site, &plan, &name, trial_seed)?;
    let round = pace.learn(&plan, &run)?;
    let result = pgtoll_estimate::summarise(&run);
    let path = site.records.join(&name).join("result.json");
    fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    Ok(DesignSliced {
        wall_seconds: round * f64::from(plan.design.rounds),
        rounds: plan.design.rounds,
        blocks_per_round: plan.slicing.values().map(|slicing| slicing.blocks_per_round).sum(),
        tps: estimate(&result, Metric::TransactionsPerSecond)?,
        cpu: estimate(&result, Metric::CpuPerTransaction)?,
        neighbours,
    })
}

fn choices(round_time: Duration, seed: u64) -> Choices {
    Choices {
        rounds: Some(ROUNDS),
        round_time: Some(round_time),
        slice: Some(SLICE),
        seed,
        ..Choices::default()
    }
}

/// Runs the plan and reads its record. The neighbours are let go at the first counted slice.
fn run(site: &Site, plan: &Plan, name: &str, seed: u64) -> anyhow::Result<(Run, DesignNeighbours)> {
    let output = site.records.join(name);
    fs::create_dir_all(&output).with_context(|| format!("make {}", output.display()))?;
    let site_of_run = pgtoll_measure::Site {
        servers: &std::collections::BTreeMap::new(),
        installation: &site.installation,
        guard: &site.guard,
        interrupt: &site.interrupt,
        output: &output,
        name: None,
        calibration: Vec::new(),
        pgtoll: env!("CARGO_PKG_VERSION"),
        command: std::env::args().collect(),
    };
    let mut neighbours = site.neighbours(seed)?;
    let mut gone = Ok(());
    let mut first = true;
    let measured = pgtoll_measure::measure(plan, &site_of_run, &mut |event| {
        if matches!(event, Progress::Block { .. }) && std::mem::take(&mut first) {
            gone = neighbours.go();
        }
    });
    measured?;
    gone.context("let the neighbours go")?;
    let neighbours = neighbours.stop()?;
    let record = output.join(RECORD_FILE);
    let text = fs::read_to_string(&record).with_context(|| format!("read {}", record.display()))?;
    let run = Run::parse(&text).with_context(|| format!("read {}", record.display()))?;
    Ok((run, neighbours))
}

fn estimate(result: &RunResult, metric: Metric) -> anyhow::Result<DesignEstimate> {
    let comparison = result.comparisons.iter().find(|comparison| comparison.metric == metric);
    let comparison = comparison.context("find the twin's comparison in the result")?;
    Ok(DesignEstimate::new(comparison.ratio.estimate, comparison.half_width))
}

/// From one round's first slice to the next one's, on average. `None` with fewer than two rounds.
#[expect(clippy::cast_precision_loss, reason = "a run's nanoseconds are far below 2^53")]
fn seconds_per_round(run: &Run) -> Option<f64> {
    let first = run.slices.first()?;
    let last_round = run.slices.last()?.round;
    let last = run.slices.iter().find(|slice| slice.round == last_round)?;
    let rounds = last_round.checked_sub(first.round).filter(|&rounds| rounds > 0)?;
    Some(last.start_ns.checked_sub(first.start_ns)? as f64 / 1e9 / f64::from(rounds))
}

/// Of a round's slices, those of the warm-up included.
#[expect(clippy::cast_precision_loss, reason = "a slice's nanoseconds are far below 2^53")]
fn planned_seconds(plan: &Plan) -> f64 {
    let nanoseconds = plan.slicing.values().map(|slicing| {
        // A slice of the warm-up has no lead-in.
        let counted = u64::from(slicing.blocks_per_round) * (slicing.slice_ns + slicing.lead_in_ns);
        counted + u64::from(slicing.warm_up_blocks) * slicing.slice_ns
    });
    nanoseconds.sum::<u64>() as f64 / 1e9 * plan.experiment.arms.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENT;

    #[test]
    fn a_plan_fits_the_wall_time_with_restarts_and_warm_up() {
        let experiment = Experiment::parse(EXPERIMENT, std::path::Path::new("")).unwrap();
        for (wall, beyond) in [(60, 0.7), (60, 2.0), (120, 0.4), (600, 1.0)] {
            let pace = Pace { wall: Duration::from_secs(wall), beyond: vec![beyond] };
            let plan = pace.plan_of(&experiment, 1);
            let planned = (planned_seconds(&plan) + beyond) * f64::from(plan.design.rounds);
            let part = planned / pace.wall.as_secs_f64();
            assert!((0.9..0.99).contains(&part), "{part} of {wall} s: {:?}", plan.design);
        }
    }

    #[test]
    fn too_little_time_is_one_block_a_round() {
        let experiment = Experiment::parse(EXPERIMENT, std::path::Path::new("")).unwrap();
        let pace = Pace { wall: Duration::from_secs(6), beyond: vec![1.5] };
        let plan = pace.plan_of(&experiment, 1);
        assert!(
            plan.slicing.values().all(|slicing| slicing.blocks_per_round == 1),
            "{:?}",
            plan.slicing
        );
    }
}
