//! The contents of a plan, and the records of logs, plans and replays.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_record::{
    AFTER_FAILURE, FAILED_WHEN_LOGGED, LOG_EXAMINATION_SCHEMA, Latencies, LogExamination,
    LogFinding, Provenance, REPLAY_SCHEMA, ReplayPlanned, ReplayRecord,
};

use crate::catalog::TableFacts;
use crate::latencies::{histogram, quantiles};
use crate::order::{Order, order};
use crate::run::{ReplaySettings, Replayed};
use crate::transactions::{ReplayTransactions, Treatment};
use crate::workload::{CapturedWorkload, PlanHeader};

/// The record of what logs allow.
pub fn examination(
    provenance: Provenance,
    header: &PlanHeader,
    findings: Vec<LogFinding>,
) -> LogExamination {
    let Provenance { version, command, made } = provenance;
    LogExamination {
        schema: LOG_EXAMINATION_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        sources: header.sources.clone(),
        length_s: seconds(header.length_us),
        counts: header.counts.clone(),
        findings,
        plan: None,
        redacted: header.redacted,
        is_partial: false,
    }
}

/// The record of a replay, or of a dry run.
pub fn replay_record(
    provenance: Provenance,
    workload: &CapturedWorkload,
    settings: &ReplaySettings,
    replayed: Option<Replayed>,
) -> ReplayRecord {
    let Provenance { version, command, made } = provenance;
    let transactions = ReplayTransactions::from_workload(workload);
    let own = || order(workload, &transactions, &TableFacts::default(), settings.order);
    let planned = match &replayed {
        Some(replayed) => planned(workload, &transactions, &replayed.order),
        None => planned(workload, &transactions, &own()),
    };
    let ended = replayed.as_ref().and_then(|replayed| replayed.ended.clone());
    let is_broken = replayed.as_ref().is_some_and(|replayed| {
        replayed.done.broken_sessions > 0 || replayed.tables_failed.is_some()
    });
    let (target, done) = replayed.map(|replayed| (replayed.target, replayed.done)).unzip();
    ReplayRecord {
        schema: REPLAY_SCHEMA.to_owned(),
        pgtoll: version,
        command,
        made,
        sources: workload.header.sources.clone(),
        target,
        order: settings.order.name().to_owned(),
        speed: settings.speed,
        complete: done.is_some() && ended.is_none() && !is_broken,
        ended,
        planned,
        done,
    }
}

fn planned(
    workload: &CapturedWorkload,
    transactions: &ReplayTransactions,
    order: &Order,
) -> ReplayPlanned {
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    for treatment in &transactions.treatment {
        let reason = match treatment {
            Treatment::Execute => continue,
            Treatment::SkipIncomplete => "not all of it is in the log",
            Treatment::SkipRedacted => "its values are not in the plan",
            Treatment::SkipFailed | Treatment::Rollback => FAILED_WHEN_LOGGED,
            Treatment::SkipEnded => AFTER_FAILURE,
        };
        *skipped.entry(reason.to_owned()).or_default() += 1;
    }
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    let mut latencies = Latencies::new();
    for step in &workload.steps {
        if let Some(code) = &step.failed {
            *failed.entry(code.clone()).or_default() += 1;
        }
        if let Some(us) = step.duration_us {
            latencies.record(Duration::from_micros(us));
        }
    }
    ReplayPlanned {
        length_s: seconds(workload.header.length_us),
        sessions: workload.header.counts.sessions,
        sessions_open_max: workload.sessions_open_max(),
        steps: workload.steps.len() as u64,
        transactions: transactions.list.len() as u64,
        skipped,
        edges: order.edges,
        barriers: order.barriers,
        uncertain_pairs: order.uncertain_pairs,
        unrepeatable: workload.header.counts.volatile_calls.clone(),
        failed,
        latency_ms: quantiles(&latencies),
        histogram: histogram(&latencies),
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of less than a century")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
