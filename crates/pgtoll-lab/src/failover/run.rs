//! A run: a topology, a fault under load, the old primary's return.

use pgtoll_cluster::Cluster;
use pgtoll_record::{
    ClientTimeline, FailoverEngine, FailoverFault, FailoverRun, JudgeRecord, JudgedEvent,
};

use super::case::FailoverCase;
use super::context::RunContext;
use super::error::FailoverError;
use super::fault::{FaultAction, FaultTimes};
use super::partition::{is_cut, partition_finding, partition_outcome};
use super::receiver::WalReceiver;
use super::rejoin::{rejoin, standby_return};
use super::start::start;
use super::topology::Topology;
use super::volumes::volume_of;
use super::{THAWED_AFTER_LIMIT, heal_limit, notice_limit};
use crate::{JudgeFault, JudgeFaultEnd, JudgePlan, judge};
use pgtoll_system::error_chain;

/// Runs a failover, and removes its servers.
pub(super) fn run_once(
    context: &RunContext<'_>,
    case: FailoverCase,
    number: u32,
) -> Result<FailoverRun, FailoverError> {
    let load_average = load_average();
    let mut topology = start(context, case)?;
    let mut run = fail_over(context, &mut *topology, case, number)?;
    run.load_average = load_average;
    let has_returned = run.rejoin.as_ref().is_some_and(|rejoin| rejoin.error.is_none());
    if context.plan.fail_back && has_returned && has_way_back(case.fault) {
        topology.exchange_roles(context)?;
        run.back = Some(Box::new(fail_over(context, &mut *topology, case, number)?));
    }
    context.interrupt.check()?;
    topology.remove()?;
    Ok(run)
}

/// Whether the same can happen to the new primary: it has no link in the other direction, and no disk of
/// its own. A standby's death makes no new one.
fn has_way_back(fault: FailoverFault) -> bool {
    !is_cut(fault) && fault != FailoverFault::StandbyDeath && volume_of(fault).is_none()
}

/// Linux's, over the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// A fault under load, until the old primary has returned and was verified.
fn fail_over(
    context: &RunContext<'_>,
    topology: &mut dyn Topology,
    case: FailoverCase,
    number: u32,
) -> Result<FailoverRun, FailoverError> {
    let fault = case.fault;
    let limit = notice_limit(case) + THAWED_AFTER_LIMIT;
    let hangs = fault == FailoverFault::WalsenderHang;
    let receiver =
        hangs.then(|| WalReceiver::start(context, topology.pair().primary())).transpose()?;
    let mut site = topology.fault_site()?;
    site.receiver = receiver.as_ref().map(|_| WalReceiver::NAME.to_owned());
    let action = FaultAction::new(fault, site, limit, context.interrupt);
    let times = action.times.clone();
    let judged = judge_fault(context, topology, action, case, number)?;
    if let Some(receiver) = receiver {
        receiver.remove(&mut pgtoll_system::lock(context.guard))?;
    }
    let mut run = observed(&judged, case, number);
    let times = times.lock().map(|times| *times).unwrap_or_default();
    // Without a fault there is nothing to count from.
    if let Some(began) = times.began {
        topology.report(&mut run, began);
        run.ended_by_hand_s = by_hand(times);
    }
    if fault == FailoverFault::Partition {
        let outcome = partition_outcome(times, &judged);
        run.findings.extend(partition_finding(&outcome, run.after_successor));
        run.partition = Some(outcome);
    }
    run.timeline = Some(timeline(&judged, &run.steps));
    run.daemon_restarts = topology.end_watch();
    let primary = topology.pair().primary();
    let standby = topology.pair().standby();
    let is_old_primary = is_primary(primary);
    let is_new_primary = is_primary(standby);
    run.two_primaries = is_old_primary && is_new_primary;
    if run.two_primaries {
        run.findings.push(split_brain(case.engine).to_owned());
    }
    if fault == FailoverFault::StandbyDeath {
        if run.ended_by_hand_s.is_some() {
            run.findings.extend(still_waits(case.engine).map(str::to_owned));
        }
        run.rejoin = Some(standby_return(context, topology));
    } else if is_new_primary {
        let (names, is_confirmed) = standby_names(standby)?;
        if !names.is_empty() && !is_confirmed {
            run.findings.push(
                "synchronous_standby_names was not reset on the promoted server: commits wait for \
                 a server that is gone"
                    .to_owned(),
            );
        }
        run.standby_names = Some(names);
        run.rejoin = Some(rejoin(context, topology, fault));
        run.third = topology.follow_third(context);
    } else if is_old_primary && fault == FailoverFault::Postmaster {
        run.restarted_in_place = true;
    } else if context.plan.promotes(case) {
        run.findings.push(not_promoted(case).to_owned());
    }
    context.interrupt.check()?;
    Ok(run)
}

/// When an administrator ended the outage, in seconds from the fault.
fn by_hand(times: FaultTimes) -> Option<f64> {
    let seconds = times.ended_by_hand?.duration_since(times.began?).ok()?;
    Some(seconds.as_secs_f64())
}

fn split_brain(engine: FailoverEngine) -> &'static str {
    match engine {
        FailoverEngine::Repmgr => {
            "split brain: the old primary went on, and both servers take writes; only PgBouncer \
             keeps clients from it"
        }
        FailoverEngine::Patroni => {
            "split brain: the old primary went on, and both servers take writes; only HAProxy keeps \
             clients from it"
        }
        FailoverEngine::PgAutoFailover | FailoverEngine::None => {
            "split brain: the old primary went on, and both servers take writes, to which clients \
             connect as they find them"
        }
    }
}

/// Returns the finding about an engine that left commits waiting for the standby.
fn still_waits(engine: FailoverEngine) -> Option<&'static str> {
    match engine {
        FailoverEngine::None => None,
        FailoverEngine::Repmgr => Some(
            "repmgr leaves a dead standby in synchronous_standby_names: commits wait until an \
             administrator removes it",
        ),
        FailoverEngine::Patroni | FailoverEngine::PgAutoFailover => Some(
            "the engine left the dead standby in synchronous_standby_names for as long as it was \
             watched, and commits waited",
        ),
    }
}

fn not_promoted(case: FailoverCase) -> &'static str {
    match (case.fault, case.engine) {
        (FailoverFault::IoFreeze, FailoverEngine::Repmgr) => {
            "repmgrd did not promote the standby: a primary whose writes wait answers its checks, \
             and clients wait until the disk resumes"
        }
        _ => "the standby was not promoted",
    }
}

/// Whom commits wait for, and whether somebody is there who confirms them.
fn standby_names(cluster: &Cluster) -> Result<(String, bool), FailoverError> {
    let mut connection = cluster.connect("postgres")?;
    let row = connection.query_one(
        "SELECT current_setting('synchronous_standby_names') AS names, EXISTS (SELECT FROM \
         pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS confirmed",
    )?;
    let found = (row.text("names")?.to_owned(), row.text("confirmed")? == "t");
    connection.close();
    Ok(found)
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

/// Lets clients write while the fault happens.
fn judge_fault(
    context: &RunContext<'_>,
    topology: &dyn Topology,
    action: FaultAction,
    case: FailoverCase,
    number: u32,
) -> Result<JudgeRecord, FailoverError> {
    let fault = JudgeFault {
        what: action.describe().to_owned(),
        at: context.plan.fault_at(case, number),
        action: Box::new(move || match action.act() {
            Ok(status) => JudgeFaultEnd::done(status),
            Err(error) => {
                JudgeFaultEnd { success: false, status: error_chain(&error), output: String::new() }
            }
        }),
    };
    let plan = JudgePlan {
        clients: context.plan.clients,
        readers: 0,
        rate_per_second: context.plan.rate_per_second,
        duration: context.plan.judged(case),
        heal_limit: heal_limit(case),
        sides: topology.sides()?,
        ..JudgePlan::new(topology.dsn()?)
    };
    let provenance = context.provenance.clone();
    Ok(judge(&plan, Some(fault), provenance, context.interrupt, &mut |_| {})?)
}

/// Returns the run that the judge observed.
fn observed(judged: &JudgeRecord, case: FailoverCase, number: u32) -> FailoverRun {
    let verdict = judged.verdict.as_ref();
    let mut findings = judged.findings.clone();
    if let Some(failed) = judged.fault.as_ref().filter(|fault| !fault.success) {
        let status = failed.status.as_deref().unwrap_or("it did not end");
        findings.push(format!("the fault was not as planned: {status}"));
    }
    FailoverRun {
        fault: case.fault,
        engine: case.engine,
        detector: case.detector,
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
        ended_by_hand_s: None,
        noticed_s: None,
        promoted_s: None,
        routed_s: None,
        restarted_in_place: false,
        steps: Vec::new(),
        partition: None,
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

/// Whether it runs and takes writes.
fn is_primary(cluster: &Cluster) -> bool {
    let Ok(mut connection) = cluster.connect("postgres") else { return false };
    let row = connection.query_one("SELECT pg_is_in_recovery() AS standby");
    let is_primary = row.is_ok_and(|row| row.text("standby").is_ok_and(|text| text == "f"));
    connection.close();
    is_primary
}
