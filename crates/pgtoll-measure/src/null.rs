//! Null runs: all arms are alike, so that what their intervals miss calibrates later ones.

use std::time::Duration;

use pgtoll_format::TimeSpan;
use pgtoll_record::{Comparison, Metric, Misses};

use crate::{Choices, Experiment, ExperimentError, Plan};

/// Fewer rounds say too little of the spread between them to be counted.
const ROUNDS: u32 = 6;
/// Many short runs say more than a long one: what differs between runs is what is looked for.
const ROUND_TIME: Duration = Duration::from_secs(2);
/// In less a run has not even its first workload.
const SHORTEST: Duration = Duration::from_secs(30);
/// The default of `measure`.
const REPETITIONS: u32 = 5;

/// The name of the built-in experiment whose arms do not differ.
pub const EXPERIMENT: &str = "null";

/// The plan of one of the runs that fit into `time` together. What does not fit into half of the
/// time is not timed: what differs between runs is looked for too.
pub fn plan(time: Duration, seed: u64) -> Result<Plan, ExperimentError> {
    let built_in = Experiment::built_in(EXPERIMENT);
    let missing = || ExperimentError::inconsistent("it is not built in");
    let choices = Choices {
        budget: Some((time / 2).max(SHORTEST)),
        rounds: Some(ROUNDS),
        round_time: Some(ROUND_TIME),
        repetitions: Some(REPETITIONS),
        seed,
        ..Choices::default()
    };
    Ok(Plan::new(built_in.ok_or_else(missing)??, &choices))
}

/// The command that makes a run of this seed again, without options of where it runs.
pub fn command(seed: u64) -> Vec<String> {
    let text = format!(
        "pgtoll measure {} --rounds {ROUNDS} --round-time {} --repetitions {REPETITIONS} \
         --seed {seed}",
        EXPERIMENT,
        TimeSpan(ROUND_TIME),
    );
    text.split(' ').map(ToOwned::to_owned).collect()
}

/// How many intervals have missed that there is no difference, as they were before any widening.
pub fn misses<'a>(comparisons: impl Iterator<Item = &'a Comparison>) -> Vec<Misses> {
    let nulls: Vec<&Comparison> = comparisons.filter(|comparison| comparison.null).collect();
    let counted = Metric::ALL.into_iter().map(|metric| {
        let own = || nulls.iter().filter(|comparison| comparison.metric == metric);
        let missed = own().filter(|comparison| {
            comparison.ratio.estimate.ln().abs() > comparison.half_width_before_widening()
        });
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Misses { metric, comparisons: count(own().count()), missed: count(missed.count()) }
    });
    counted.filter(|misses| misses.comparisons > 0).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn comparison(metric: &str, ratio: f64, is_null: bool) -> Comparison {
        let interval = json!({ "estimate": ratio, "lower": 0.5, "upper": 2.0 });
        let comparison = json!({
            "workload": "w", "metric": metric, "arm": "twin", "null": is_null,
            "ratio": interval, "total_ratio": interval,
            // 0.05 before it was widened.
            "half_width": 0.1, "kappa": 2.0,
            "verdict": "not_resolved", "more_seconds": (),
            "rounds": 6, "pairs": 60, "dropped_pairs": 0, "resamples": 500,
        });
        serde_json::from_value(comparison).unwrap()
    }

    #[test]
    fn misses_are_counted_by_metric_and_before_any_widening() {
        let all = [
            comparison("cpu_per_transaction", 1.07, true),
            comparison("cpu_per_transaction", 1.01, true),
            comparison("cpu_per_transaction", 1.5, false),
            comparison("transactions_per_second", 0.97, true),
        ];
        let found: Vec<(Metric, u32, u32)> = misses(all.iter())
            .iter()
            .map(|misses| (misses.metric, misses.comparisons, misses.missed))
            .collect();
        let expected = [(Metric::CpuPerTransaction, 2, 1), (Metric::TransactionsPerSecond, 1, 0)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_plan_and_its_command_are_of_one_run() {
        let plan = plan(Duration::from_secs(600), 7).unwrap();
        assert_eq!((plan.design.rounds, plan.design.repetitions, plan.seed), (6, 5, 7));
        let expected = "pgtoll measure null --rounds 6 --round-time 2s --repetitions 5 --seed 7";
        assert_eq!(command(7).join(" "), expected);
    }
}
