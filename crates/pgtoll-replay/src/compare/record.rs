//! The record of a comparison, without what the times say.

use pgtoll_record::{Host, Provenance, REPLAY_COMPARISON_SCHEMA, ReplayComparison};

use super::ComparisonPlan;
use super::arms::PreparedArms;
use crate::workload::CapturedWorkload;

/// The share of shapes called slower or faster that may be neither.
const FALSE_DISCOVERY_RATE: f64 = 0.05;

pub(super) fn record(
    plan: &ComparisonPlan,
    workload: &CapturedWorkload,
    prepared: &PreparedArms,
    provenance: Provenance,
    host: Host,
) -> ReplayComparison {
    let Provenance { version, command, made } = provenance;
    let arms: Vec<_> = prepared.arms.iter().map(|arm| arm.arm.clone()).collect();
    let runs = || arms.iter().flat_map(|arm| &arm.runs);
    let is_whole = runs().count() == arms.len() * plan.rounds as usize
        && runs().all(|run| run.broken_sessions == 0);
    let mut notes = Vec::new();
    if !prepared.left_out.is_empty() {
        notes.push(format!(
            "of the data directory's configuration the copies go without {}",
            prepared.left_out.join(", ")
        ));
    }
    notes.extend(prepared.notes.iter().cloned());
    ReplayComparison {
        schema: REPLAY_COMPARISON_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        host,
        sources: workload.header.sources.clone(),
        server: prepared.server.clone(),
        order: plan.replay.order.name().to_owned(),
        speed: plan.replay.speed,
        rounds: plan.rounds,
        seed: plan.seed,
        false_discovery_rate: FALSE_DISCOVERY_RATE,
        confidence: pgtoll_stats::Options::default().confidence,
        margin: plan.margin,
        complete: is_whole,
        ended: None,
        arms,
        totals: Vec::new(),
        shapes: Vec::new(),
        notes,
    }
}
