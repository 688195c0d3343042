//! What a plan has, and the records of logs, plans and replays.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_record::{
    LOG_EXAMINATION_SCHEMA, Latencies, LogExamination, LogFinding, Provenance, REPLAY_SCHEMA,
    ReplayLatencyCount, ReplayPlanned, ReplayQuantiles, ReplayRecord,
};

use crate::catalog::TableFacts;
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
    let transactions = ReplayTransactions::of(workload);
    let own = || order(workload, &transactions, &TableFacts::default(), settings.order);
    let planned = match &replayed {
        Some(replayed) => planned(workload, &transactions, &replayed.order),
        None => planned(workload, &transactions, &own()),
    };
    let ended = replayed.as_ref().and_then(|of| of.ended.clone());
    let is_broken = replayed
        .as_ref()
        .is_some_and(|of| of.done.broken_sessions > 0 || of.tables_failed.is_some());
    let (target, done) = replayed.map(|of| (of.target, of.done)).unzip();
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
            Treatment::SkipFailed | Treatment::Rollback => {
                "failed for a lock, serialization or cancel"
            }
            Treatment::SkipEnded => "its transaction had failed",
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
        sessions_open_max: sessions_open_max(workload),
        steps: workload.steps.len() as u64,
        transactions: transactions.list.len() as u64,
        skipped,
        edges: order.edges,
        barriers: order.barriers,
        uncertain_pairs: order.uncertain_pairs,
        failed,
        latency_ms: quantiles(&latencies),
        histogram: histogram(&latencies),
    }
}

/// The most sessions with a statement that are open at a time.
pub(crate) fn sessions_open_max(workload: &CapturedWorkload) -> u64 {
    let ends = workload.sessions.iter().flat_map(|of| [(of.begin, 1_i64), (of.end + 1, -1)]);
    let mut ends: Vec<(u64, i64)> = ends.collect();
    ends.sort_unstable();
    let open = ends.iter().scan(0_i64, |open, (_, change)| {
        *open += change;
        Some(*open)
    });
    u64::try_from(open.max().unwrap_or_default()).unwrap_or_default()
}

/// Their quantiles in milliseconds; `None` without any.
pub(crate) fn quantiles(latencies: &Latencies) -> Option<ReplayQuantiles> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (mean_ns, _) = latencies.mean_and_stddev_ns()?;
    Some(ReplayQuantiles {
        count: latencies.count(),
        mean: mean_ns / 1e6,
        median: ms(latencies.quantile(0.5)?),
        p95: ms(latencies.quantile(0.95)?),
        p99: ms(latencies.quantile(0.99)?),
        max: ms(latencies.max()?),
    })
}

/// Counts by classes that grow by a factor of about three; empty without any.
pub(crate) fn histogram(latencies: &Latencies) -> Vec<ReplayLatencyCount> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let mut before = 0;
    let mut counts = Vec::new();
    for up_to_ms in CLASSES_MS {
        let until = latencies.count_up_to(Duration::from_secs_f64(up_to_ms / 1e3));
        let statements = until.saturating_sub(before);
        counts.push(ReplayLatencyCount { up_to_ms: Some(up_to_ms), statements });
        before = before.max(until);
    }
    let statements = latencies.count().saturating_sub(before);
    counts.push(ReplayLatencyCount { up_to_ms: None, statements });
    counts
}

const CLASSES_MS: [f64; 10] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0];

#[expect(clippy::cast_precision_loss, reason = "microseconds of less than a century")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_every_statement_once() {
        let mut latencies = Latencies::new();
        for micros in [50, 90, 250, 2_000, 2_500, 20_000_000] {
            latencies.record(Duration::from_micros(micros));
        }
        let counts: Vec<(Option<f64>, u64)> = histogram(&latencies)
            .iter()
            .filter(|of| of.statements > 0)
            .map(|of| (of.up_to_ms, of.statements))
            .collect();
        assert_eq!(counts, [(Some(0.1), 2), (Some(0.3), 1), (Some(3.0), 2), (None, 1)]);
        assert!(histogram(&Latencies::new()).is_empty());
    }
}
