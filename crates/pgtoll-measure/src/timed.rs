//! A timed workload: its rounds, within the budget.

use std::time::Instant;

use pgtoll_cluster::Cluster;
use pgtoll_format::TimeSpan;
use pgtoll_record::Slicing;

use crate::pace::Pace;
use crate::profile::profile;
use crate::round::Rounds;
use crate::run::Run;
use crate::{BenchError, InterimEstimate, WorkloadSpec};

/// Runs a workload's rounds and samples its functions.
pub(crate) fn run_rounds(
    workload: &WorkloadSpec,
    clusters: &[Cluster],
    run: &mut Run<'_>,
) -> Result<(), BenchError> {
    let plan = run.plan;
    let Some(slicing) = plan.slicing.get(&workload.name) else { return Ok(()) };
    let mut pace = Pace::new(plan, run.began);
    let blocks = pace.blocks(slicing, plan.beyond_blocks(slicing));
    let planned = slicing.blocks_per_round;
    let is_first = plan.timed.first() == Some(&workload.name);
    if !is_first && blocks < planned / 4 {
        return run.note(format!("{}: not timed after all, the budget is spent", workload.name));
    }
    let mut rounds = Rounds::new(workload, slicing, clusters, run);
    let shortest = all_rounds(&mut rounds, slicing, &mut pace, run)?;
    if shortest < planned {
        let budget =
            plan.budget.map_or("the budget".to_owned(), |budget| TimeSpan(budget).to_string());
        run.note(format!("{}: rounds shortened to keep to {budget}", workload.name))?;
    }
    profile(&rounds, run)
}

/// Runs rounds until the workload is precise enough or has all of them. The blocks of the shortest.
fn all_rounds(
    rounds: &mut Rounds<'_>,
    slicing: &Slicing,
    pace: &mut Pace,
    run: &mut Run<'_>,
) -> Result<u32, BenchError> {
    let plan = run.plan;
    let all = run.plan.design.rounds;
    let mut shortest = slicing.blocks_per_round;
    let began = Instant::now();
    for round in 1..=all {
        let round_began = Instant::now();
        let blocks = pace.blocks(slicing, plan.beyond_blocks(slicing));
        let half_width = rounds.half_width();
        let took = began.elapsed();
        let interim = InterimEstimate::after(half_width, round - 1, all, took);
        rounds.round(round, blocks, interim, run)?;
        pace.learn(slicing, blocks, round_began.elapsed());
        shortest = shortest.min(blocks);
        if rounds.is_precise_enough(round) {
            break;
        }
    }
    Ok(shortest)
}
