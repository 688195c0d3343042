//! From a run's record to its result.

use std::collections::BTreeMap;

use pgtoll_record::{Comparison, MetricValue, NoiseShare, RESULT_SCHEMA, Run, RunResult};

use crate::answer::answer;
use crate::answers::answers;
use crate::comparisons::comparisons;
use crate::expectations::expected;
use crate::notes::notes;
use crate::one_piece::{one_piece_checks, one_piece_notes};
use crate::values::values;

/// Every estimate that the record allows, whether the run was completed or not.
pub fn summarise(run: &Run) -> RunResult {
    let mut own = Vec::new();
    let mut against_others = Vec::new();
    for (of_workload, of_others) in
        run.header.workloads.iter().map(|workload| comparisons(run, workload))
    {
        own.extend(of_workload);
        against_others.extend(of_others);
    }
    let comparisons: Vec<Comparison> = own;
    let values: Vec<MetricValue> =
        run.header.workloads.iter().flat_map(|workload| values(run, workload)).collect();
    let mut rounds = BTreeMap::new();
    for round in &run.rounds {
        *rounds.entry(round.workload.clone()).or_insert(0) += 1;
    }
    let in_one_piece = one_piece_checks(run, &comparisons);
    let mut notes = notes(run, &comparisons);
    notes.extend(one_piece_notes(&in_one_piece));
    let answer = answer(&run.header, &comparisons, &values, &run.profiles);
    RunResult {
        schema: RESULT_SCHEMA.to_owned(),
        header: run.header.clone(),
        complete: run.is_complete(),
        answers: answers(&run.header, answer.as_ref()),
        answer,
        settings: run
            .prepared
            .as_ref()
            .map(|prepared| prepared.settings.clone())
            .unwrap_or_default(),
        skipped: run.skipped.clone(),
        rounds,
        expected: expected(&run.header, &comparisons, &against_others, &values),
        notes,
        in_one_piece,
        values,
        comparisons,
        against_others,
        noise: noise(run),
    }
}

#[expect(clippy::cast_precision_loss, reason = "rounds are few")]
fn noise(run: &Run) -> Option<NoiseShare> {
    let count = run.rounds.len() as f64;
    let mean = |share: fn(&NoiseShare) -> f64| {
        run.rounds.iter().map(|round| share(&round.noise)).sum::<f64>() / count
    };
    let pressure = run.rounds.iter().all(|round| round.noise.cpu_pressure.is_some());
    (!run.rounds.is_empty()).then(|| NoiseShare {
        steal: mean(|noise| noise.steal),
        others: mean(|noise| noise.others),
        cpu_pressure: pressure.then(|| mean(|noise| noise.cpu_pressure.unwrap_or_default())),
    })
}
