//! Questions that a short run is too coarse for, by earlier runs on the same machine.

use pgtoll_estimate::{DECIDED_WITHIN, Twins};
use pgtoll_record::ExpectedFigure;

use crate::{ExpectSpec, Plan};

/// For which figures the plan is too coarse, for which that is unknown, and which expectations it
/// leaves open: a sentence each, none where there is nothing to say.
pub fn too_coarse_for(plan: &Plan, twins: &Twins) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut unknown = Vec::new();
    for (name, rounds) in timed_figures(plan) {
        match twins.expected_width(&plan.experiment.name, name, rounds) {
            None => unknown.push(name),
            Some(width) if width.ratio > DECIDED_WITHIN => sentences.push(format!(
                "a run this short is too coarse for {name}: server CPU within about ±{:.0} %, as {} of twins here had it; a \
                 small cost needs ±{:.0} %",
                width.ratio * 100.0,
                comparisons(width.comparisons),
                DECIDED_WITHIN * 100.0
            )),
            Some(_) => {}
        }
    }
    if !unknown.is_empty() {
        sentences.push(format!(
            "how coarse a run this short is for {} is unknown: no complete run here has timed that yet",
            unknown.join(", ")
        ));
    }
    sentences.extend(open_expectations(plan));
    let experiment = &plan.experiment.name;
    sentences.into_iter().map(|sentence| format!("{experiment}: {sentence}")).collect()
}

fn comparisons(number: usize) -> String {
    if number == 1 {
        "an earlier comparison".into()
    } else {
        format!("{number} earlier comparisons")
    }
}

/// The names of figures that are timed, and how many rounds, or starts, each has.
fn timed_figures(plan: &Plan) -> impl Iterator<Item = (&str, u32)> {
    let timed =
        plan.experiment.workloads.iter().filter(|workload| plan.timed.contains(&workload.name));
    timed.flat_map(|workload| {
        let rounds = if workload.is_sliced() {
            plan.design.rounds
        } else if workload.takes_turns() {
            plan.design.repetitions * 2
        } else {
            plan.design.repetitions
        };
        workload.names().filter(move |_| rounds > 0).map(move |name| (name, rounds))
    })
}

/// Expectations of figures that are not timed.
fn open_expectations(plan: &Plan) -> Option<String> {
    let expected = &plan.experiment.expect;
    let timed: Vec<&str> = timed_figures(plan).map(|(name, _)| name).collect();
    let is_compared = |spec: &&ExpectSpec| {
        matches!(ExpectedFigure::named(&spec.metric), Some(ExpectedFigure::Compared(_)))
    };
    let open = expected.iter().filter(is_compared);
    let open: Vec<&ExpectSpec> =
        open.filter(|open| !timed.contains(&open.workload.as_str())).collect();
    let mut names: Vec<&str> = open.iter().map(|open| open.workload.as_str()).collect();
    names.dedup();
    (!open.is_empty()).then(|| {
        format!(
            "{} of {} expectations stay open, since this run does not time {}",
            open.len(),
            expected.len(),
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pgtoll_record::{Comparison, Run};

    use super::*;
    use crate::{Choices, Experiment};

    /// What is said of a quick look at data checksums where a run had twins this wide.
    fn refusal_hints(half_width: Option<f64>) -> Vec<String> {
        let text = include_str!("../../../records/2026-11-23-pg15/run.jsonl");
        let run = Run::parse(text).unwrap();
        let mut result = pgtoll_estimate::summarise(&run);
        let widen =
            |comparison: &mut Comparison| comparison.half_width = half_width.unwrap_or_default();
        result.comparisons.iter_mut().for_each(widen);
        let kept = half_width.map(|_| pgtoll_estimate::twin_lines(&result)).unwrap_or_default();
        let twins = Twins::parse(&kept, &run.header.host);
        let choices = Choices {
            brief: true,
            rounds: Some(4),
            budget: Some(Duration::from_secs(60)),
            ..Choices::default()
        };
        let plan = Plan::new(Experiment::built_in("checksums").unwrap().unwrap(), &choices);
        too_coarse_for(&plan, &twins)
    }

    #[test]
    fn earlier_twins_decide() {
        assert!(
            refusal_hints(None)[0]
                .starts_with("checksums: how coarse a run this short is for read-only-misses")
        );
        let wide = refusal_hints(Some(0.2));
        assert!(wide[0].starts_with(
            "checksums: a run this short is too coarse for read-only-misses: server CPU within "
        ));
        assert!(!wide.iter().any(|wide| wide.contains("unknown")), "{wide:?}");
        assert!(!refusal_hints(Some(0.001)).iter().any(|item| item.contains("coarse")));
    }

    #[test]
    fn expectations_of_what_is_not_timed_stay_open() {
        let experiment = Experiment::built_in("first-select").unwrap().unwrap();
        let mut plan = Plan::new(experiment, &Choices::default());
        let output =
            |plan: &Plan| too_coarse_for(plan, &Twins::default()).pop().unwrap_or_default();
        assert!(!output(&plan).contains("expectations"), "{}", output(&plan));
        plan.timed.clear();
        assert!(
            output(&plan)
                .contains(" expectations stay open, since this run does not time first-select"),
            "{}",
            output(&plan)
        );
    }
}
