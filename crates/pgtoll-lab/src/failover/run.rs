//! A run: a topology, a fault under load, the old primary's return.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use pgtoll_cluster::{Cluster, StopMode};
use pgtoll_record::{FailoverDetector, FailoverFault, FailoverRejoin, FailoverRun, JudgeRecord};

use super::context::{RunContext, lock};
use super::error::FailoverError;
use super::fault::FaultAction;
use super::hook::EVENTS;
use super::steps::Steps;
use super::topology::{Topology, named, wait_for_streaming};
use crate::error_words;
use crate::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};

/// Runs a failover, and removes its servers.
pub(super) fn run_once(
    context: &RunContext<'_>,
    fault: FailoverFault,
    detector: FailoverDetector,
    number: u32,
) -> Result<FailoverRun, FailoverError> {
    let topology = Topology::start(context, detector)?;
    let action = FaultAction::of(&topology, fault, detector, context.interrupt);
    let began = action.began.clone();
    let judged = judge_fault(context, &topology, action, context.plan.judged(fault, detector))?;
    let mut run = observed(&judged, (fault, detector, number));
    // Without a fault there is nothing to count from.
    if let Some(began) = began.lock().ok().and_then(|began| *began) {
        report_steps(&mut run, &topology, began);
    }
    topology.end_daemons();
    run.two_primaries = is_primary(&topology.primary) && is_primary(&topology.standby);
    if run.two_primaries {
        run.findings.push(
            "split brain: the old primary went on, and both servers take writes; only PgBouncer \
             keeps clients from it"
                .to_owned(),
        );
    }
    if is_primary(&topology.standby) {
        run.rejoin = Some(rejoin(context, &topology));
    } else {
        run.findings.push("the standby was not promoted".to_owned());
    }
    context.interrupt.check()?;
    topology.remove()?;
    Ok(run)
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
    run.noticed_s = steps.first("node2 repmgrd_upstream_disconnect");
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

/// Makes a standby of the old primary, and verifies its pages.
fn rejoin(context: &RunContext<'_>, topology: &Topology) -> FailoverRejoin {
    let began = Instant::now();
    let returned = come_back(context, topology);
    let seconds = began.elapsed().as_secs_f64();
    if let Err(error) = returned {
        return FailoverRejoin { error: Some(error_words(&error)), ..FailoverRejoin::default() };
    }
    let stopped = topology.primary.stop(&mut lock(&topology.guard), StopMode::Fast);
    let verified = stopped
        .map_err(|error| error.to_string())
        .and_then(|_| (context.verify)(&topology.primary.data()));
    match verified {
        Ok((pages, unsound)) => FailoverRejoin {
            seconds: Some(seconds),
            error: None,
            pages: Some(pages),
            unsound: Some(unsound),
        },
        Err(error) => FailoverRejoin {
            seconds: Some(seconds),
            error: Some(format!("its pages were not verified: {error}")),
            ..FailoverRejoin::default()
        },
    }
}

fn come_back(context: &RunContext<'_>, topology: &Topology) -> Result<(), FailoverError> {
    let (old, new) = (&topology.primary, &topology.standby);
    {
        let mut guard = lock(&topology.guard);
        // One that was frozen still runs; others have ended.
        let _ = old.stop(&mut guard, StopMode::Fast);
        old.rewind(&mut guard, new)?;
        old.configure(&mut guard, &named(context, old.name()))?;
        old.start(&mut guard)?;
    }
    wait_for_streaming(new, old, context.interrupt)
}
