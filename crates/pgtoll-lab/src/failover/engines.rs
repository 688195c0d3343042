//! Facts about each engine: its programs, its settings, how long it may take, which faults it has
//! no answer to.
//! to.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_cluster::Guard;
use pgtoll_record::{
    EngineSettings, EngineTopology, FailoverDetector, FailoverEngine, FailoverFault,
};

use super::auto_failover::{ENDS_PRIMARY_WITHIN, health_check_period, monitor_settings};
use super::case::FailoverCase;
use super::error::FailoverError;
use super::patroni::PatroniTimes;
use super::{EnginePrograms, FailoverPlan};

/// Why there is no such fault beside this engine, on any machine.
pub(super) fn obstacle(engine: FailoverEngine, fault: FailoverFault) -> Option<&'static str> {
    match (engine, fault) {
        (FailoverEngine::None, fault) if fault.is_handover() => {
            Some("no failover manager to switch over")
        }
        (
            FailoverEngine::Patroni | FailoverEngine::PgAutoFailover,
            FailoverFault::WalFull | FailoverFault::IoFreeze,
        ) => Some("this lab has disks of their own for servers that it starts itself only"),
        _ => None,
    }
}

/// How long an engine may take until it promotes, at most, in seconds.
pub(super) fn patience_s(case: FailoverCase) -> u64 {
    match case.engine {
        // PostgreSQL's wal_sender_timeout is a minute.
        _ if case.fault == FailoverFault::WalsenderHang => 75,
        FailoverEngine::Repmgr => repmgr_patience_s(case.fault, case.detector),
        // Nobody comes within this time.
        FailoverEngine::None => 5,
        // The lock's time begins again with each loop; a loop later it is seen to be over.
        FailoverEngine::Patroni => {
            let times = PatroniTimes::from_detector(case.detector);
            u64::from(times.ttl_s + times.loop_wait_s + 2)
        }
        // Checks and retries, the time until a silent node is unhealthy, the time to drain.
        FailoverEngine::PgAutoFailover => match case.detector {
            FailoverDetector::Default => 60,
            FailoverDetector::Fast | FailoverDetector::None => 10,
        },
    }
}

/// How long after the begin of a partition the engine may need to end the primary that is cut off. Where it
/// ends it before it promotes the standby, or not at all, nothing is waited for.
pub(super) fn ends_within(engine: FailoverEngine) -> Duration {
    match engine {
        FailoverEngine::PgAutoFailover => ENDS_PRIMARY_WITHIN,
        FailoverEngine::Patroni | FailoverEngine::Repmgr | FailoverEngine::None => Duration::ZERO,
    }
}

fn repmgr_patience_s(fault: FailoverFault, detector: FailoverDetector) -> u64 {
    let seconds = detector.repmgr_timers().map_or(0, |[monitor, attempts, interval]| {
        let hang = match fault {
            // A hang takes a connection's time-out at each look.
            FailoverFault::Freeze | FailoverFault::IoFreeze | FailoverFault::Partition => {
                2 * (attempts + 2)
            }
            // The server fails, recovers and fails again.
            FailoverFault::WalFull => 5,
            _ => 0,
        };
        monitor + attempts * interval + hang
    });
    u64::from(seconds)
}

/// At which intervals the engine looks whether the primary is there.
pub(super) fn look_interval(case: FailoverCase) -> Duration {
    match case.engine {
        FailoverEngine::Repmgr => {
            let timers = case.detector.repmgr_timers();
            Duration::from_secs(timers.map_or(0, |[monitor, ..]| u64::from(monitor)))
        }
        FailoverEngine::Patroni => {
            Duration::from_secs(u64::from(PatroniTimes::from_detector(case.detector).loop_wait_s))
        }
        FailoverEngine::PgAutoFailover => health_check_period(case.detector),
        FailoverEngine::None => Duration::ZERO,
    }
}

/// Whether the programs of this engine find each other by addresses.
pub(super) fn listens(engine: FailoverEngine) -> bool {
    matches!(engine, FailoverEngine::Patroni | FailoverEngine::PgAutoFailover)
}

/// The engines of a plan, with their versions and settings.
pub(super) fn topologies(
    plan: &FailoverPlan,
    programs: &EnginePrograms,
    guard: &mut Guard,
) -> Result<Vec<EngineTopology>, FailoverError> {
    let pick = |&engine: &FailoverEngine| {
        let detectors = plan.detectors_of(engine).into_iter();
        let settings = detectors.filter_map(|detector| {
            let values = settings(engine, detector);
            (!values.is_empty()).then_some(EngineSettings { detector, values })
        });
        Ok(EngineTopology {
            engine,
            versions: versions(engine, programs, guard)?,
            entry: entry(engine).to_owned(),
            settings: settings.collect(),
        })
    };
    plan.engines.iter().map(pick).collect()
}

fn versions(
    engine: FailoverEngine,
    programs: &EnginePrograms,
    guard: &mut Guard,
) -> Result<Vec<String>, FailoverError> {
    let missing = || FailoverError::NoPrograms { engine: engine.name() };
    match engine {
        FailoverEngine::Repmgr => {
            let programs = programs.repmgr.as_ref().ok_or_else(missing)?;
            Ok(vec![programs.repmgr.version(guard)?, programs.pgbouncer.version(guard)?])
        }
        FailoverEngine::None => Ok(Vec::new()),
        FailoverEngine::Patroni => {
            let programs = programs.patroni.as_ref().ok_or_else(missing)?;
            let etcd = &programs.etcd;
            let haproxy = &programs.haproxy;
            let patroni = programs.patroni.version(guard)?;
            Ok(vec![patroni, etcd.version(guard)?, haproxy.version(guard)?])
        }
        FailoverEngine::PgAutoFailover => {
            let program = programs.auto_failover.as_ref().ok_or_else(missing)?;
            Ok(vec![program.version(guard)?])
        }
    }
}

/// How clients reach whichever server is the primary.
fn entry(engine: FailoverEngine) -> &'static str {
    match engine {
        FailoverEngine::Repmgr => "PgBouncer, by transaction",
        FailoverEngine::Patroni => "HAProxy, which asks Patroni's REST API",
        FailoverEngine::PgAutoFailover | FailoverEngine::None => {
            "both servers, of which clients choose the one that takes writes \
             (target_session_attrs=read-write)"
        }
    }
}

/// By the names that the engine's documentation has.
fn settings(engine: FailoverEngine, detector: FailoverDetector) -> BTreeMap<String, String> {
    let values: Vec<(&str, String)> = match engine {
        FailoverEngine::Repmgr => {
            let names = ["monitor_interval_secs", "reconnect_attempts", "reconnect_interval"];
            let timers = detector.repmgr_timers().unwrap_or_default();
            let timers = names.into_iter().zip(timers.map(|value| value.to_string()));
            let promotes = ("service_promote_command", "pg_ctl promote".to_owned());
            match detector {
                FailoverDetector::Default => timers.collect(),
                FailoverDetector::Fast => timers.chain([promotes]).collect(),
                FailoverDetector::None => Vec::new(),
            }
        }
        FailoverEngine::Patroni => {
            let times = PatroniTimes::from_detector(detector);
            let checks = times.checks;
            vec![
                ("ttl", times.ttl_s.to_string()),
                ("loop_wait", times.loop_wait_s.to_string()),
                ("retry_timeout", times.retry_timeout_s.to_string()),
                ("primary_start_timeout", times.primary_start_timeout_s.to_string()),
                (
                    "HAProxy's checks",
                    format!(
                        "inter {}ms fall {} rise {}",
                        checks.interval_ms, checks.fall, checks.rise
                    ),
                ),
            ]
        }
        FailoverEngine::PgAutoFailover => return monitor_settings(detector),
        FailoverEngine::None => Vec::new(),
    };
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Notes for the reader.
pub(super) fn notes(plan: &FailoverPlan) -> Vec<String> {
    let has = |engine| plan.engines.contains(&engine);
    let has_repmgr = has(FailoverEngine::Repmgr);
    let is_alone = has_repmgr && plan.engines.len() == 1;
    let mut notes = vec![if is_alone { KERNEL_NOTE_OF_REPMGR } else { KERNEL_NOTE }];
    notes.push(MOMENT_NOTE);
    notes.extend(has_repmgr.then_some(HOOK_NOTE));
    if has_repmgr || has(FailoverEngine::None) {
        notes.push(SYNC_NOTE);
    }
    if has_repmgr {
        let of_witness = if plan.witness { WITNESS_NOTE } else { NO_WITNESS_NOTE };
        notes.extend([FLOOR_NOTE, of_witness]);
    }
    let is_asked_for = |fault| plan.faults.contains(&fault);
    notes.extend(is_asked_for(FailoverFault::WalsenderHang).then_some(HANG_NOTE));
    notes.extend(is_asked_for(FailoverFault::StandbyDeath).then_some(DEAD_STANDBY_NOTE));
    if is_asked_for(FailoverFault::Partition) {
        notes.push(PARTITION_NOTE);
        notes.extend(has_repmgr.then_some(PARTED_REPMGR_NOTE));
        notes.extend(has(FailoverEngine::PgAutoFailover).then_some(PARTED_KEEPER_NOTE));
    }
    notes.extend(plan.third_node.then_some(THIRD_NOTE));
    notes.extend(has(FailoverEngine::None).then_some(NOBODY_NOTE));
    notes.extend(has(FailoverEngine::Patroni).then_some(PATRONI_NOTE));
    notes.extend(has(FailoverEngine::PgAutoFailover).then_some(MONITOR_NOTE));
    notes.into_iter().map(str::to_owned).collect()
}

const KERNEL_NOTE_OF_REPMGR: &str = "process faults on one kernel: servers, repmgrd and PgBouncer share CPUs and a disk; a host of \
     its own dies otherwise, and these are no recovery times of production";
const KERNEL_NOTE: &str = "process faults on one kernel: servers and engines share CPUs and a disk; a host of its own dies \
     otherwise, and these are no recovery times of production";
const MOMENT_NOTE: &str = "an engine looks at the primary at intervals: runs of a case have the fault at moments spread evenly \
     over one of them, so that outages are those of a fault at any moment; a single run has it in the middle";
const HOOK_NOTE: &str = "the promotion hook resets synchronous_standby_names, promotes, replaces PgBouncer's database \
     file by rename, then RELOAD, KILL and RESUME: RELOAD alone leaves connections to a frozen \
     primary";
const SYNC_NOTE: &str = "the old primary's files are synced at once by pgtoll (pg_rewind --no-sync, then syncfs) and by the \
     server (recovery_init_sync_method = syncfs): one by one, as by default, some 1500 files take \
     up to seconds on a busy disk, and are synced twice";
const FLOOR_NOTE: &str =
    "none is the floor: no repmgrd, the promotion hook begins when the fault is done";
const HANG_NOTE: &str = "walsender-hang: a pg_receivewal beside the standby is stopped by SIGSTOP and 16 MB of WAL are written \
     just before the handover. A primary that is shut down waits for walsenders, and gives up a \
     receiver that is silent after wal_sender_timeout (a minute by default); pg_terminate_backend of its \
     walsender before the handover, or a shorter time-out, spares that";
const DEAD_STANDBY_NOTE: &str = "standby-death: on one kernel the primary sees a dead standby's connection end at once; a host that \
     loses power or network is noticed by PostgreSQL after wal_sender_timeout (a minute by default), \
     and what waits for that comes on top";
const NOBODY_NOTE: &str = "without a failover manager pgtoll ends the fault by hand when clients have been watched for some \
     seconds (it promotes the standby of a primary that is gone, thaws or heals otherwise): until \
     then there was no service, so these outages are lower bounds";
const PATRONI_NOTE: &str = "Patroni's etcd is one member on a host of its own, which no fault touches; in production it has \
     three. Patroni has no watchdog here. A primary that is thawed takes writes until Patroni demotes \
     it";
const MONITOR_NOTE: &str = "pg_auto_failover's monitor is on a host of its own, which no fault touches. Commits wait for the \
     standby unless replication-quorum is off, which it is where they are not to wait";
const NO_WITNESS_NOTE: &str = "two servers and no witness: a standby that is cut off from its primary \
                               promotes itself, and there are two primaries (faults link-cut, partition)";
const WITNESS_NOTE: &str = "a standby that is cut off from its primary is cut off from the witness, \
                            too, has no majority and does not promote itself (fault link-cut); the \
                            link is healed then. The daemons beside primary and witness look at the \
                            primary through this link as well, and report it gone meanwhile";
const PARTITION_NOTE: &str = "partition: packets between the primary's host and all else vanish. Clients take sides in turn and \
     reach what is on their side: a proxy or pooler on its host, or its server. Etcd and the monitor are \
     on the standby's side. Clients that know both servers, and PgBouncer, lose a silent connection after \
     3 s, as with tcp_user_timeout: without it they may wait for as long as the partition lasts";
const PARTED_REPMGR_NOTE: &str = "partition: the promotion hook reaches the pooler on the standby's side only. The old primary is \
     not ended; 2 s after the partition is healed pgtoll does what an administrator would (stops it, and \
     leads the other pooler to the new primary), so the time with two primaries is a lower bound";
const PARTED_KEEPER_NOTE: &str = "partition: pg_auto_failover's keeper ends a primary when it had neither the monitor nor a standby \
     for network_partition_timeout (20 s), and a standby that fell silent is one until \
     wal_sender_timeout: the monitor's times do not change that, and with short ones it promotes much \
     sooner. A keeper whose request is under way when the cut comes waits for TCP, and ends its \
     primary only when the partition is healed";
const THIRD_NOTE: &str = "the second standby streams from the primary directly, the first through a \
                          link that holds WAL back for 50 ms and is cut when the primary's host \
                          dies: the second has WAL that the promoted one has not";
