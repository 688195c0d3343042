//! Failovers by repmgr behind PgBouncer: a primary and a standby of our own, faults under load, and
//! what clients saw of them, repeated.

mod context;
mod error;
mod fault;
mod hook;
mod rejoin;
mod run;
mod steps;
mod supervisor;
mod third;
mod topology;
mod volumes;
mod witness;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, Installation, Pgbouncer, Repmgr, StopMode, VolumeMaker};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{
    FAILOVER_SCHEMA, FailoverDesign, FailoverDetector, FailoverFault, FailoverRecord, FailoverRun,
    Host, Provenance,
};

use self::context::{DATABASE, NODES, RunContext, lock};
pub use self::error::FailoverError;
use self::run::run_once;
use self::volumes::skipped_faults;

/// What is to be done.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command")]
pub struct FailoverPlan {
    /// What happens to the primary.
    pub faults: Vec<FailoverFault>,
    /// How repmgrd is set up.
    pub detectors: Vec<FailoverDetector>,
    /// Commits wait for the standby.
    pub synchronous: bool,
    /// Runs of each fault with each of repmgr's settings.
    pub runs: u32,
    /// Clients that write.
    pub clients: u32,
    /// Transactions a second of all clients together.
    pub rate_per_second: f64,
    /// Under load before the fault.
    pub lead: Duration,
    /// The same fault happens to the new primary, when the old one has returned.
    pub fail_back: bool,
    /// Poolers, all of which clients know.
    pub bouncers: u32,
    /// A witness on the primary's side of the link between the servers.
    pub witness: bool,
    /// A second standby that is never promoted, and has WAL sooner than the first.
    pub third_node: bool,
}

/// Whether the pages of the data directory of a stopped server are sound: pages, and unsound ones of
/// them, or why that is unknown.
pub type VerifyPages = fn(&Path) -> Result<(u64, u64), String>;

/// Where it is done, and with what.
#[derive(Debug)]
pub struct FailoverSite<'a> {
    /// The servers.
    pub installation: &'a Installation,
    /// The failover manager of these servers.
    pub repmgr: Repmgr,
    /// The pooler.
    pub pgbouncer: Pgbouncer,
    /// What starts them.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// Signals.
    pub interrupt: &'a Interrupt,
    /// Of an old primary that has returned.
    pub verify: VerifyPages,
    /// What makes volumes for faults of disks, or why there are none. Begun before the guard, since it
    /// must see them.
    pub volumes: Result<VolumeMaker, String>,
}

impl FailoverPlan {
    /// A fault with one of repmgr's settings, in the order in which they are run.
    fn cases(&self) -> Vec<(FailoverFault, FailoverDetector)> {
        let all = self
            .faults
            .iter()
            .flat_map(|fault| self.detectors.iter().map(move |detector| (*fault, *detector)));
        // By plan nobody has to notice anything: one way is enough.
        let mut cases: Vec<_> = all
            .map(|(fault, detector)| match fault {
                FailoverFault::Switchover => (fault, FailoverDetector::None),
                _ => (fault, detector),
            })
            .collect();
        let mut seen = Vec::new();
        cases.retain(|case| {
            !seen.contains(case) && {
                seen.push(*case);
                true
            }
        });
        cases
    }

    /// How many runs there will be.
    pub fn all_runs(&self) -> usize {
        self.cases().len() * self.runs as usize
    }

    /// About how long the runs take together.
    pub fn time(&self) -> Duration {
        let of_each = |(fault, detector): &(FailoverFault, FailoverDetector)| {
            (self.judged(*fault, *detector) + OVERHEAD) * (1 + u32::from(self.fail_back))
        };
        self.cases().iter().map(of_each).sum::<Duration>() * self.runs
    }

    /// Whether one of the faults is of a disk of the primary's own.
    pub fn needs_volumes(&self) -> bool {
        self.faults.iter().any(|fault| volumes::volume_of(*fault).is_some())
    }

    /// Whether a cut link is healed: the witness keeps the standby from promoting itself.
    fn heals_cut(&self, fault: FailoverFault) -> bool {
        self.witness && fault == FailoverFault::LinkCut
    }

    /// How long transactions fall due.
    fn judged(&self, fault: FailoverFault, detector: FailoverDetector) -> Duration {
        let is_longest = fault == FailoverFault::IoFreeze || self.heals_cut(fault);
        let after = if is_longest { THAWED_AFTER_LIMIT } else { Duration::ZERO };
        self.lead + notice_limit(fault, detector) + after + AFTERWARDS
    }
}

/// How long repmgrd may take until it promotes, at most.
fn notice_limit(fault: FailoverFault, detector: FailoverDetector) -> Duration {
    let seconds = detector.timers().map_or(0, |[monitor, attempts, interval]| {
        let hang = match fault {
            // A hang takes a connection's time-out at each look.
            FailoverFault::Freeze | FailoverFault::IoFreeze => 2 * (attempts + 2),
            // The server fails, recovers and fails again.
            FailoverFault::WalFull => 5,
            _ => 0,
        };
        monitor + attempts * interval + hang
    });
    Duration::from_secs(u64::from(seconds))
}

/// A frozen disk goes on when repmgrd had so much longer than it may need.
const THAWED_AFTER_LIMIT: Duration = Duration::from_secs(5);

/// Starting, rewinding, verifying and removing the servers of a run.
const OVERHEAD: Duration = Duration::from_secs(8);
/// Under load after the outage.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Runs all failovers that are not in `earlier`, round by round: a record of the same design that ended
/// before all were done. `on_run` gets the record each time that a run was added. What was done until an
/// error or a signal is in the record.
///
/// # Errors
///
/// Where `earlier` is of another design, machine or server. Nothing was run then.
pub fn failover(
    plan: &FailoverPlan,
    site: FailoverSite<'_>,
    provenance: &Provenance,
    earlier: Option<FailoverRecord>,
    on_run: &mut dyn FnMut(&FailoverRecord),
) -> Result<FailoverRecord, FailoverError> {
    let FailoverSite { installation, repmgr, pgbouncer, guard, host, interrupt, verify, volumes } =
        site;
    let mut record = empty_record(plan, installation, host, provenance);
    if let Some(earlier) = earlier {
        record = continued(earlier, &record)?;
    }
    record.skipped = skipped_faults(plan, &volumes, interrupt);
    let guard = Arc::new(Mutex::new(guard));
    let prepared = prepare(installation, &repmgr, &pgbouncer, &guard, &mut record);
    let outcome = prepared.and_then(|template| {
        let witness = plan.witness.then(|| witness::template(installation, &mut lock(&guard)));
        let witness = witness.transpose()?;
        let context = RunContext {
            plan,
            template: &template,
            witness: witness.as_ref(),
            repmgr: &repmgr,
            pgbouncer: &pgbouncer,
            guard: &guard,
            interrupt,
            provenance,
            settings: record.settings.clone(),
            verify,
            volumes: volumes.as_ref().ok(),
        };
        run_all(&context, &mut record, on_run)
    });
    match outcome {
        Ok(()) => record.complete = true,
        Err(error) => record.ended = Some(crate::error_words(&error)),
    }
    Ok(record)
}

/// The earlier record, to be added to.
fn continued(
    earlier: FailoverRecord,
    own: &FailoverRecord,
) -> Result<FailoverRecord, FailoverError> {
    let differences = [
        ("pgtoll", earlier.pgtoll == own.pgtoll),
        ("server", earlier.server == own.server),
        ("machine", earlier.host == own.host),
        ("design", earlier.design == own.design),
    ];
    if let Some((what, _)) = differences.into_iter().find(|(_, is_same)| !is_same) {
        return Err(FailoverError::AnotherRecord { what });
    }
    Ok(FailoverRecord { ended: None, complete: false, ..earlier })
}

fn empty_record(
    plan: &FailoverPlan,
    installation: &Installation,
    host: Host,
    provenance: &Provenance,
) -> FailoverRecord {
    FailoverRecord {
        schema: FAILOVER_SCHEMA.to_owned(),
        pgtoll: provenance.version.clone(),
        command: provenance.command.clone(),
        made: provenance.made.clone(),
        server: format!("PostgreSQL {} ({})", installation.version, installation.origin),
        engines: Vec::new(),
        host,
        design: FailoverDesign {
            faults: plan.faults.clone(),
            detectors: plan.detectors.clone(),
            synchronous: plan.synchronous,
            runs: plan.runs,
            clients: plan.clients,
            rate_per_second: plan.rate_per_second,
            fail_back: plan.fail_back,
            bouncers: plan.bouncers,
            witness: plan.witness,
            third_node: plan.third_node,
        },
        settings: settings(plan.synchronous),
        runs: Vec::new(),
        skipped: Vec::new(),
        complete: false,
        ended: None,
        notes: notes(plan).into_iter().map(str::to_owned).collect(),
    }
}

fn run_all(
    context: &RunContext<'_>,
    record: &mut FailoverRecord,
    on_run: &mut dyn FnMut(&FailoverRecord),
) -> Result<(), FailoverError> {
    let is_skipped = |fault| record.skipped.iter().any(|skipped| skipped.fault == fault);
    let mut cases = context.plan.cases();
    cases.retain(|(fault, _)| !is_skipped(*fault));
    for number in 1..=context.plan.runs {
        for &(fault, detector) in &cases {
            let is_done = |run: &FailoverRun| {
                (run.fault, run.detector, run.number) == (fault, detector, number)
            };
            if !record.runs.iter().any(is_done) {
                record.runs.push(run_once(context, fault, detector, number)?);
                on_run(record);
            }
        }
    }
    Ok(())
}

/// A data directory that each run begins with a copy of. The engines' versions and all of the servers'
/// settings are in the record then.
fn prepare(
    installation: &Installation,
    repmgr: &Repmgr,
    pgbouncer: &Pgbouncer,
    guard: &Arc<Mutex<Guard>>,
    record: &mut FailoverRecord,
) -> Result<Cluster, FailoverError> {
    let mut guard = lock(guard);
    record.engines = vec![repmgr.version(&mut guard)?, pgbouncer.version(&mut guard)?];
    let template = Cluster::init(&mut guard, installation, "template", true)?;
    // Nothing confirms its commits.
    let settings = settings(false);
    template.configure(&mut guard, &settings)?;
    template.start(&mut guard)?;
    let mut connection = template.connect("postgres")?;
    for database in [Repmgr::DATABASE, DATABASE] {
        connection.execute(&format!("CREATE DATABASE {database}"))?;
    }
    let sql = format!("SELECT count(*) AS count FROM pg_settings WHERE name = '{SYNC_METHOD}'");
    if connection.query_one(&sql)?.text("count")? != "0" {
        // As pg_rewind, a server that was not shut down syncs every file before it starts.
        record.settings.insert(SYNC_METHOD.to_owned(), "syncfs".to_owned());
    }
    connection.close();
    template.stop(&mut guard, StopMode::Fast)?;
    Ok(template)
}

const NAMES: &str = "synchronous_standby_names";
const SYNC_METHOD: &str = "recovery_init_sync_method";

/// Of both servers: a standby that is cloned has its primary's.
fn settings(synchronous: bool) -> BTreeMap<String, String> {
    let settings = [
        ("shared_preload_libraries", "repmgr"),
        // pg_rewind reads WAL back to the fork.
        ("wal_keep_size", "256MB"),
        // Before a standby that has just lost its primary is promoted it may wait for this long.
        ("wal_retrieve_retry_interval", "100ms"),
        ("max_connections", "200"),
        ("shared_buffers", "64MB"),
    ];
    let names = format!("ANY 1 ({})", NODES.join(", "));
    let waiting = synchronous.then(|| (NAMES.to_owned(), names));
    settings
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .chain(waiting)
        .collect()
}

/// What a reader has to know.
fn notes(plan: &FailoverPlan) -> Vec<&'static str> {
    let of_witness = if plan.witness { WITNESS_NOTE } else { NO_WITNESS_NOTE };
    let third = plan.third_node.then_some(THIRD_NOTE);
    NOTES.into_iter().chain([of_witness]).chain(third).collect()
}

const NO_WITNESS_NOTE: &str = "two servers and no witness: a standby that is cut off from its primary \
                               promotes itself, and there are two primaries (fault link-cut)";
const WITNESS_NOTE: &str = "a standby that is cut off from its primary is cut off from the witness, \
                            too, has no majority and does not promote itself (fault link-cut); the \
                            link is healed then. The daemons beside primary and witness look at the \
                            primary through this link as well, and report it gone meanwhile";
const THIRD_NOTE: &str = "the second standby streams from the primary directly, the first through a \
                          link that holds WAL back for 50 ms and is cut when the primary's host \
                          dies: the second has WAL that the promoted one has not";

const NOTES: [&str; 4] = [
    "process faults on one kernel: servers, repmgrd and PgBouncer share CPUs and a disk; a host of \
     its own dies otherwise, and these are no recovery times of production",
    "the promotion hook resets synchronous_standby_names, promotes, replaces PgBouncer's database \
     file by rename, then RELOAD, KILL and RESUME: RELOAD alone leaves connections to a frozen \
     primary",
    "the old primary's files are synced at once by pgtoll (pg_rewind --no-sync, then syncfs) and by the \
     server (recovery_init_sync_method = syncfs): one by one, as by default, some 1500 files take \
     up to seconds on a busy disk, and are synced twice",
    "none is the floor: no repmgrd, the promotion hook begins when the fault is done",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(faults: &[FailoverFault], detectors: &[FailoverDetector]) -> FailoverPlan {
        FailoverPlan {
            faults: faults.to_vec(),
            detectors: detectors.to_vec(),
            synchronous: true,
            runs: 3,
            clients: 4,
            rate_per_second: 100.0,
            lead: Duration::from_secs(1),
            fail_back: false,
            bouncers: 1,
            witness: false,
            third_node: false,
        }
    }

    #[test]
    fn a_handover_by_plan_is_run_once_whatever_notices_faults() {
        let both = [FailoverDetector::Default, FailoverDetector::Fast];
        let plan = plan(&[FailoverFault::HostDeath, FailoverFault::Switchover], &both);
        assert_eq!(plan.cases().len(), 3);
        assert_eq!(plan.all_runs(), 9);
        let fast = plan.judged(FailoverFault::HostDeath, FailoverDetector::Fast);
        assert!(fast < plan.judged(FailoverFault::Freeze, FailoverDetector::Fast));
        assert!(plan.judged(FailoverFault::HostDeath, FailoverDetector::Default) > fast * 5);
    }

    #[test]
    fn both_servers_would_wait_for_the_other() {
        assert_eq!(settings(true)[NAMES], "ANY 1 (node1, node2)");
        assert!(!settings(false).contains_key(NAMES));
    }
}
