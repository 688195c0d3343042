//! A run: a topology, a fault under load, the old primary's return.

use std::path::Path;
use std::time::{Duration, SystemTime};

use pgtoll_cluster::Cluster;
use pgtoll_record::{
    ClientTimeline, FailoverDetector, FailoverFault, FailoverRun, JudgeRecord, JudgedEvent,
};

use super::context::{RunContext, lock};
use super::error::FailoverError;
use super::fault::FaultAction;
use super::hook::EVENTS;
use super::rejoin::rejoin;
use super::steps::Steps;
use super::topology::Topology;
use super::volumes::volume_of;
use super::{THAWED_AFTER_LIMIT, notice_limit};
use crate::error_words;
use crate::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};

/// Runs a failover, and removes its servers.
pub(super) fn run_once(
    context: &RunContext<'_>,
    fault: FailoverFault,
    detector: FailoverDetector,
    number: u32,
) -> Result<FailoverRun, FailoverError> {
    let load_average = load_average();
    let mut topology = Topology::start(context, fault, detector)?;
    let mut run = fail_over(context, &mut topology, fault, number)?;
    run.load_average = load_average;
    let has_returned = run.rejoin.as_ref().is_some_and(|rejoin| rejoin.error.is_none());
    if context.plan.fail_back && has_returned && has_way_back(fault) {
        topology.exchange_roles(context)?;
        run.back = Some(Box::new(fail_over(context, &mut topology, fault, number)?));
    }
    context.interrupt.check()?;
    topology.remove()?;
    Ok(run)
}

/// Whether the same can happen to the new primary: it has no link in the other direction, and no disk of
/// its own.
fn has_way_back(fault: FailoverFault) -> bool {
    fault != FailoverFault::LinkCut && volume_of(fault).is_none()
}

/// Linux's, over the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// A fault under load, until the old primary has returned and was verified.
fn fail_over(
    context: &RunContext<'_>,
    topology: &mut Topology,
    fault: FailoverFault,
    number: u32,
) -> Result<FailoverRun, FailoverError> {
    let detector = topology.detector;
    let mut action = FaultAction::of(topology, fault, context.interrupt);
    action.frozen_at_most = notice_limit(fault, detector) + THAWED_AFTER_LIMIT;
    let began = action.began.clone();
    let judged = judge_fault(context, topology, action, context.plan.judged(fault, detector))?;
    let mut run = observed(&judged, (fault, detector, number));
    // Without a fault there is nothing to count from.
    if let Some(began) = began.lock().ok().and_then(|began| *began) {
        report_steps(&mut run, topology, began);
    }
    run.timeline = Some(timeline(&judged, &run.steps));
    run.daemon_restarts = topology.end_daemons();
    run.two_primaries = is_primary(&topology.primary) && is_primary(&topology.standby);
    if run.two_primaries {
        run.findings.push(
            "split brain: the old primary went on, and both servers take writes; only PgBouncer \
             keeps clients from it"
                .to_owned(),
        );
    }
    if is_primary(&topology.standby) {
        run.standby_names = Some(standby_names(&topology.standby)?);
        if run.standby_names.as_ref().is_some_and(|names| !names.is_empty()) {
            run.findings.push(
                "synchronous_standby_names was not reset on the promoted server: commits wait for \
                 a server that is gone"
                    .to_owned(),
            );
        }
        run.rejoin = Some(rejoin(context, topology, fault));
        run.third = topology.third().map(|third| third.follow(context, topology));
    } else if !context.plan.heals_cut(fault) {
        run.findings.push(not_promoted(fault).to_owned());
    }
    context.interrupt.check()?;
    Ok(run)
}

fn not_promoted(fault: FailoverFault) -> &'static str {
    if fault == FailoverFault::IoFreeze {
        "repmgrd did not promote the standby: a primary whose writes wait answers its checks, and \
         clients wait until the disk goes on"
    } else {
        "the standby was not promoted"
    }
}

fn standby_names(cluster: &Cluster) -> Result<String, FailoverError> {
    let mut connection = cluster.connect("postgres")?;
    let row =
        connection.query_one("SELECT current_setting('synchronous_standby_names') AS names")?;
    let names = row.text("names")?.to_owned();
    connection.close();
    Ok(names)
}

/// Each client over time, with the fault and what was reported since.
fn timeline(judged: &JudgeRecord, steps: &[JudgedEvent]) -> ClientTimeline {
    let fault_s = judged.fault.as_ref().map(|fault| fault.began_s);
    let later = steps.iter().filter_map(|step| {
        Some(JudgedEvent { at_s: fault_s? + step.at_s, what: step.what.clone() })
    });
    let mut events: Vec<JudgedEvent> = judged.events.iter().cloned().chain(later).collect();
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    ClientTimeline {
        seconds: judged.seconds,
        bin_s: judged.bin_s,
        clients: judged.clients.iter().map(|client| client.line.clone()).collect(),
        events,
    }
}

/// Lets clients write through the pooler while the fault happens.
fn judge_fault(
    context: &RunContext<'_>,
    topology: &Topology,
    action: FaultAction,
    duration: Duration,
) -> Result<JudgeRecord, FailoverError> {
    let fault = JudgeFault {
        what: action.words().to_owned(),
        at: context.plan.lead,
        action: Box::new(move || match action.act() {
            Ok(status) => JudgeFaultEnd::done(status),
            Err(error) => {
                JudgeFaultEnd { success: false, status: error_words(&error), output: String::new() }
            }
        }),
    };
    let plan = JudgePlan {
        clients: context.plan.clients,
        readers: 0,
        rate_per_second: context.plan.rate_per_second,
        duration,
        ..JudgePlan::new(topology.dsn()?)
    };
    let provenance = context.provenance.clone();
    Ok(judge(&plan, Some(fault), provenance, context.interrupt, &mut |_| {})?)
}

/// What the judge found.
fn observed(
    judged: &JudgeRecord,
    (fault, detector, number): (FailoverFault, FailoverDetector, u32),
) -> FailoverRun {
    let verdict = judged.verdict.as_ref();
    let mut findings = judged.findings.clone();
    if let Some(failed) = judged.fault.as_ref().filter(|fault| !fault.success) {
        let status = failed.status.as_deref().unwrap_or("it did not end");
        findings.push(format!("the fault was not as planned: {status}"));
    }
    FailoverRun {
        fault,
        detector,
        number,
        acknowledged: judged.transactions.acknowledged,
        failed: judged.transactions.failed,
        unknown: judged.transactions.unknown,
        recovered: verdict.map(|verdict| verdict.recovered.count),
        lost: verdict.map(|verdict| verdict.lost.count),
        lost_before: verdict.map(|verdict| verdict.lost.before_fault),
        oldest_lost_s: verdict.and_then(|verdict| verdict.lost.oldest_before_s),
        impossible: verdict.map(|verdict| {
            verdict.ghosts.count + verdict.phantoms.count + verdict.duplicates.count
        }),
        after_successor: judged.nodes.iter().map(|node| node.after_successor).sum(),
        two_primaries: false,
        outage_s: judged.outage.as_ref().map(|gap| gap.seconds),
        outage_open: judged.outage.as_ref().is_some_and(|gap| gap.open),
        noticed_s: None,
        promoted_s: None,
        routed_s: None,
        steps: Vec::new(),
        rejoin: None,
        third: None,
        standby_names: None,
        daemon_restarts: 0,
        load_average: None,
        timeline: None,
        back: None,
        findings,
    }
}

fn report_steps(run: &mut FailoverRun, topology: &Topology, began: SystemTime) {
    let mut guard = lock(&topology.guard);
    let path = guard.directory().join(EVENTS);
    // As the servers' user: it could have put a link there.
    let printed = guard.run(Path::new("cat"), &[&path.to_string_lossy()]);
    let text = printed.map(|output| output.tail).unwrap_or_default();
    let steps = Steps::parse(&text, began);
    run.noticed_s =
        steps.first(&format!("{} repmgrd_upstream_disconnect", topology.standby.name()));
    run.promoted_s = steps.first("hook promoted");
    run.routed_s = steps.first("hook routed");
    run.steps = steps.events;
}

/// Whether it runs and takes writes.
fn is_primary(cluster: &Cluster) -> bool {
    let Ok(mut connection) = cluster.connect("postgres") else { return false };
    let row = connection.query_one("SELECT pg_is_in_recovery() AS standby");
    let is_primary = row.is_ok_and(|row| row.text("standby").is_ok_and(|text| text == "f"));
    connection.close();
    is_primary
}
