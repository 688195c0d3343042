//! Failovers by repmgr, Patroni, `pg_auto_failover` or nobody: a primary and a standby of our own, faults
//! under load, and what clients saw of them, repeated.

mod auto_failover;
mod case;
mod context;
mod engines;
mod error;
mod fault;
mod managed;
mod partition;
mod patroni;
mod receiver;
mod rejoin;
mod rejoin_steps;
mod repmgr;
mod run;
mod servers;
mod site;
mod start;
mod steps;
mod topology;
mod unattended;
mod volumes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_cluster::{
    AutoFailover, Cluster, ClusterError, Etcd, Guard, Haproxy, Installation, Patroni, Pgbouncer,
    PrivateNetwork, Repmgr, StopMode, VolumeMaker,
};
use pgtoll_record::{
    FAILOVER_SCHEMA, FailoverDesign, FailoverDetector, FailoverEngine, FailoverFault,
    FailoverRecord, FailoverRun, Host, Provenance, SkippedFault,
};
use pgtoll_system::Interrupt;

use self::case::FailoverCase;
use self::context::{DATABASE, NODES, RunContext};
use self::engines::{ends_within, look_interval, notes, obstacle, patience_s, topologies};
pub use self::error::FailoverError;
use self::partition::is_cut;
use self::run::run_once;
use self::volumes::skipped_faults;

/// The plan.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command")]
pub struct FailoverPlan {
    /// The faults of the primary.
    pub faults: Vec<FailoverFault>,
    /// The failover managers, each with servers of its own.
    pub engines: Vec<FailoverEngine>,
    /// How they are set up, as far as an engine has it.
    pub detectors: Vec<FailoverDetector>,
    /// Commits wait for the standby.
    pub synchronous: bool,
    /// Runs of each fault with each engine and each of its settings.
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

/// The site and the programs.
#[derive(Debug)]
pub struct FailoverSite<'a> {
    /// The servers.
    pub installation: &'a Installation,
    /// The programs of the engines that are asked for.
    pub programs: EnginePrograms,
    /// The guard that starts them.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// Set by the signals that end the lab.
    pub interrupt: &'a Interrupt,
    /// Verifies the pages of a returned primary.
    pub verify: VerifyPages,
    /// The maker of volumes for faults of disks, or the reason for its absence. Begun before the guard, since it
    /// must see them.
    pub volumes: Result<VolumeMaker, String>,
}

/// Programs of engines, those of others that they need included; `None` where an engine is not asked for.
#[derive(Clone, Debug, Default)]
pub struct EnginePrograms {
    /// repmgr and what is used beside it.
    pub repmgr: Option<RepmgrPrograms>,
    /// Patroni and what is used beside it.
    pub patroni: Option<PatroniPrograms>,
    /// `pg_auto_failover` of these servers.
    pub auto_failover: Option<AutoFailover>,
}

impl EnginePrograms {
    /// The programs of these engines for this server.
    pub fn find(
        engines: &[FailoverEngine],
        installation: &Installation,
    ) -> Result<Self, ClusterError> {
        let mut found = Self::default();
        for engine in engines {
            match engine {
                FailoverEngine::Repmgr => {
                    let repmgr = Repmgr::from_installation(installation)?;
                    let pgbouncer = Pgbouncer::find("pgbouncer")?;
                    found.repmgr = Some(RepmgrPrograms { repmgr, pgbouncer });
                }
                FailoverEngine::Patroni => found.patroni = Some(PatroniPrograms::find()?),
                FailoverEngine::PgAutoFailover => {
                    found.auto_failover = Some(AutoFailover::from_installation(installation)?);
                }
                FailoverEngine::None => {}
            }
        }
        Ok(found)
    }
}

/// Patroni, where it keeps its state, and the proxy.
#[derive(Clone, Debug)]
pub struct PatroniPrograms {
    /// The failover manager.
    pub patroni: Patroni,
    /// The store of the leader's name.
    pub etcd: Etcd,
    /// The clients' way in.
    pub haproxy: Haproxy,
}

impl PatroniPrograms {
    fn find() -> Result<Self, ClusterError> {
        let packages = Patroni::PACKAGES.join(" ");
        Ok(Self {
            patroni: Patroni::find()?,
            etcd: Etcd::find(&packages)?,
            haproxy: Haproxy::find(&packages)?,
        })
    }
}

/// repmgr of these servers, and the pooler.
#[derive(Clone, Debug)]
pub struct RepmgrPrograms {
    /// The failover manager of these servers.
    pub repmgr: Repmgr,
    /// The clients' way in.
    pub pgbouncer: Pgbouncer,
}

impl FailoverPlan {
    /// A fault, an engine and one of its settings each, in the order in which they are run.
    fn cases(&self) -> Vec<FailoverCase> {
        let mut cases = Vec::new();
        for &fault in &self.faults {
            for &engine in &self.engines {
                for detector in self.detectors_of(engine) {
                    // By plan nobody has to notice anything: one way is enough.
                    let by_plan = fault.is_handover() && engine == FailoverEngine::Repmgr;
                    let detector = if by_plan { FailoverDetector::None } else { detector };
                    let case = FailoverCase { fault, engine, detector };
                    if obstacle(engine, fault).is_none() && !cases.contains(&case) {
                        cases.push(case);
                    }
                }
            }
        }
        cases
    }

    /// The settings of this engine that are asked for. No engine has but one.
    pub fn detectors_of(&self, engine: FailoverEngine) -> Vec<FailoverDetector> {
        let all = engine.detectors().iter().copied();
        let is_asked_for = |detector: &FailoverDetector| {
            engine == FailoverEngine::None || self.detectors.contains(detector)
        };
        all.filter(is_asked_for).collect()
    }

    /// How many runs there will be.
    pub fn all_runs(&self) -> usize {
        self.cases().len() * self.runs as usize
    }

    /// About how long the runs take together.
    pub fn time(&self) -> Duration {
        let of_each = |case: &FailoverCase| {
            (self.judged(*case) + overhead(*case)) * (1 + u32::from(self.fail_back))
        };
        self.cases().iter().map(of_each).sum::<Duration>() * self.runs
    }

    /// Whether one of the faults is of a disk of the primary's own.
    pub fn needs_volumes(&self) -> bool {
        self.faults.iter().any(|fault| volumes::volume_of(*fault).is_some())
    }

    /// Whether the standby is to be promoted: a witness keeps one that is cut off from promoting itself.
    fn promotes(&self, case: FailoverCase) -> bool {
        match case.engine {
            _ if case.fault == FailoverFault::StandbyDeath => false,
            FailoverEngine::Repmgr => !(self.witness && is_cut(case.fault)),
            FailoverEngine::None => matches!(
                case.fault,
                FailoverFault::HostDeath | FailoverFault::Postmaster | FailoverFault::WalFull
            ),
            // Etcd and the monitor see both servers.
            FailoverEngine::Patroni | FailoverEngine::PgAutoFailover => {
                case.fault != FailoverFault::LinkCut
            }
        }
    }

    /// How long transactions fall due.
    fn judged(&self, case: FailoverCase) -> Duration {
        if case.fault == FailoverFault::Partition {
            // The load continues until it is over.
            return self.lead + look_interval(case);
        }
        let is_longest = case.fault == FailoverFault::IoFreeze
            || case.engine == FailoverEngine::None
            || !self.promotes(case);
        let after = if is_longest { THAWED_AFTER_LIMIT } else { Duration::ZERO };
        self.lead + look_interval(case) + notice_limit(case) + after + AFTERWARDS
    }

    /// When the fault begins. An engine looks at intervals that count from its start, as the run does: at the
    /// same moment of each run its outages would be all alike, and those of a fault at any moment are not.
    fn fault_at(&self, case: FailoverCase, number: u32) -> Duration {
        let share = (f64::from(number.min(self.runs)) - 0.5) / f64::from(self.runs.max(1));
        self.lead + look_interval(case).mul_f64(share.clamp(0.0, 1.0))
    }
}

/// How long a fault may outlast the load, and clients may take until they are served again.
fn heal_limit(case: FailoverCase) -> Duration {
    let parted = notice_limit(case) + ends_within(case.engine);
    HEAL_LIMIT + if case.fault == FailoverFault::Partition { parted } else { Duration::ZERO }
}

/// How long an engine may take until it promotes, at most.
fn notice_limit(case: FailoverCase) -> Duration {
    Duration::from_secs(patience_s(case))
}

/// A frozen disk continues when the engine had so much longer than it may need.
const THAWED_AFTER_LIMIT: Duration = Duration::from_secs(5);

/// Starting, rewinding, verifying and removing the servers of a run, and what a partition lasts longer.
fn overhead(case: FailoverCase) -> Duration {
    let own = match case.engine {
        FailoverEngine::Repmgr | FailoverEngine::None => 8,
        FailoverEngine::Patroni | FailoverEngine::PgAutoFailover => 20,
    };
    let parted = if case.fault == FailoverFault::Partition {
        patience_s(case) + ends_within(case.engine).as_secs() + 10
    } else {
        0
    };
    Duration::from_secs(own + parted)
}
/// The judge's own.
const HEAL_LIMIT: Duration = Duration::from_secs(60);
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
    let FailoverSite { installation, programs, guard, host, interrupt, verify, volumes } = site;
    let mut record = empty_record(plan, installation, host, provenance);
    if let Some(earlier) = earlier {
        record = continued(earlier, &record)?;
    }
    record.skipped = unanswered(plan);
    record.skipped.extend(skipped_faults(plan, &volumes, interrupt));
    let guard = Arc::new(Mutex::new(guard));
    let prepared = prepare(plan, installation, &programs, &guard, &mut record);
    let outcome = prepared.and_then(|template| {
        let template_of_witness =
            || repmgr::witness_template(installation, &mut pgtoll_system::lock(&guard));
        let witness = plan.witness.then(template_of_witness);
        let witness = witness.transpose()?;
        let context = RunContext {
            plan,
            installation,
            template: &template,
            witness: witness.as_ref(),
            programs: &programs,
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
        Err(error) => record.ended = Some(pgtoll_system::error_chain(&error)),
    }
    Ok(record)
}

/// Faults that an engine, or the lab beside it, does not have.
fn unanswered(plan: &FailoverPlan) -> Vec<SkippedFault> {
    let all = plan.faults.iter().flat_map(|&fault| {
        plan.engines.iter().filter_map(move |&engine| {
            let reason = obstacle(engine, fault)?.to_owned();
            Some(SkippedFault { fault, engine: Some(engine), by_nature: true, reason })
        })
    });
    all.collect()
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
    if let Some((label, _)) = differences.into_iter().find(|(_, is_same)| !is_same) {
        return Err(FailoverError::AnotherRecord { what: label });
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
            engines: plan.engines.clone(),
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
        settings: settings(plan, plan.synchronous),
        topologies: Vec::new(),
        runs: Vec::new(),
        skipped: Vec::new(),
        complete: false,
        ended: None,
        notes: notes(plan),
    }
}

fn run_all(
    context: &RunContext<'_>,
    record: &mut FailoverRecord,
    on_run: &mut dyn FnMut(&FailoverRecord),
) -> Result<(), FailoverError> {
    let is_skipped = |case: &FailoverCase| {
        let is_of =
            |engine: Option<FailoverEngine>| engine.is_none_or(|engine| engine == case.engine);
        record.skipped.iter().any(|skipped| skipped.fault == case.fault && is_of(skipped.engine))
    };
    let mut cases = context.plan.cases();
    cases.retain(|case| !is_skipped(case));
    for number in 1..=context.plan.runs {
        for &case in &cases {
            let FailoverCase { fault, engine, detector } = case;
            let is_done = |run: &FailoverRun| {
                (run.fault, run.engine, run.detector, run.number)
                    == (fault, engine, detector, number)
            };
            if !record.runs.iter().any(is_done) {
                record.runs.push(run_once(context, case, number)?);
                on_run(record);
            }
        }
    }
    Ok(())
}

/// Faults that cut hosts off from each other, and why there are no such hosts.
fn without_switch(
    plan: &FailoverPlan,
    guard: &mut Guard,
) -> Result<Vec<SkippedFault>, FailoverError> {
    let cases = plan.cases();
    let cut = cases.iter().filter(|case| engines::listens(case.engine) && is_cut(case.fault));
    let mut cut: Vec<_> = cut.map(|case| (case.fault, case.engine)).collect();
    cut.dedup();
    if cut.is_empty() {
        return Ok(Vec::new());
    }
    let reason = match PrivateNetwork::check_switch(guard) {
        Ok(()) => return Ok(Vec::new()),
        Err(ClusterError::NoPrivateNetwork { reason }) => {
            format!("hosts of their own cannot be made: {reason}")
        }
        Err(error) => return Err(error.into()),
    };
    let skipped = |(fault, engine)| SkippedFault {
        fault,
        engine: Some(engine),
        by_nature: false,
        reason: reason.clone(),
    };
    Ok(cut.into_iter().map(skipped).collect())
}

/// A data directory that each run begins with a copy of. The engines' versions and all of the servers'
/// settings are in the record then.
fn prepare(
    plan: &FailoverPlan,
    installation: &Installation,
    programs: &EnginePrograms,
    guard: &Arc<Mutex<Guard>>,
    record: &mut FailoverRecord,
) -> Result<Cluster, FailoverError> {
    let mut guard = pgtoll_system::lock(guard);
    if plan.engines.iter().any(|engine| engines::listens(*engine)) {
        PrivateNetwork::check(&mut guard)?;
    }
    record.skipped.extend(without_switch(plan, &mut guard)?);
    record.topologies = topologies(plan, programs, &mut guard)?;
    record.engines = Vec::new();
    for version in record.topologies.iter().flat_map(|topology| &topology.versions) {
        if !record.engines.contains(version) {
            record.engines.push(version.clone());
        }
    }
    let template = Cluster::init(&mut guard, installation, "template", true)?;
    // Nothing confirms its commits.
    let settings = settings(plan, false);
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
const LIBRARIES: &str = "shared_preload_libraries";
const SYNC_METHOD: &str = "recovery_init_sync_method";

/// Returns the settings of both servers: a standby that is cloned has its primary's. Who waits for whom is for engines to say
/// that start servers themselves.
fn settings(plan: &FailoverPlan, synchronous: bool) -> BTreeMap<String, String> {
    let settings = [
        // pg_rewind reads WAL back to the fork.
        ("wal_keep_size", "256MB"),
        // Before a standby that has just lost its primary is promoted it may wait for this long.
        ("wal_retrieve_retry_interval", "100ms"),
        ("max_connections", "200"),
        ("shared_buffers", "64MB"),
    ];
    let has = |engine| plan.engines.contains(&engine);
    let is_own = has(FailoverEngine::Repmgr) || has(FailoverEngine::None);
    let names = format!("ANY 1 ({})", NODES.join(", "));
    let waiting = (synchronous && is_own).then(|| (NAMES.to_owned(), names));
    let library = || (LIBRARIES.to_owned(), "repmgr".to_owned());
    settings
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .chain(has(FailoverEngine::Repmgr).then(library))
        .chain(waiting)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(faults: &[FailoverFault], detectors: &[FailoverDetector]) -> FailoverPlan {
        FailoverPlan {
            faults: faults.to_vec(),
            engines: vec![FailoverEngine::Repmgr],
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
        let case =
            |fault, detector| FailoverCase { fault, engine: FailoverEngine::Repmgr, detector };
        let fast = plan.judged(case(FailoverFault::HostDeath, FailoverDetector::Fast));
        let freeze = case(FailoverFault::Freeze, FailoverDetector::Fast);
        assert!(fast < plan.judged(freeze));
        let default = case(FailoverFault::HostDeath, FailoverDetector::Default);
        assert!(plan.judged(default) > fast * 5);
    }

    #[test]
    fn faults_are_spread_over_what_lies_between_two_looks_of_the_engine() {
        let plan = plan(&[FailoverFault::HostDeath], &[FailoverDetector::Default]);
        let case = FailoverCase {
            fault: FailoverFault::HostDeath,
            engine: FailoverEngine::Patroni,
            detector: FailoverDetector::Default,
        };
        let moments: Vec<f64> = (1..=plan.runs)
            .map(|number| plan.fault_at(case, number).as_secs_f64() - plan.lead.as_secs_f64())
            .collect();
        let steps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        let step = 10.0 / f64::from(plan.runs);
        assert!(steps.into_iter().all(|item| (item - step).abs() < 1e-9), "{moments:?}");
        assert!((moments[0] - step / 2.0).abs() < 1e-9, "{moments:?}");
    }

    #[test]
    fn an_engine_has_the_settings_that_it_has() {
        let mut plan = plan(&[FailoverFault::HostDeath], &FailoverDetector::ALL);
        plan.engines = FailoverEngine::ALL.to_vec();
        let pick = |engine| plan.cases().iter().filter(|case| case.engine == engine).count();
        let counts = FailoverEngine::ALL.map(pick);
        assert_eq!(counts, [2, 2, 3, 1]);
        plan.faults = vec![FailoverFault::Switchover];
        let none = |case: &FailoverCase| case.engine == FailoverEngine::None;
        assert!(!plan.cases().iter().any(none));
        assert!(
            unanswered(&plan)
                .iter()
                .any(|unanswered| unanswered.engine == Some(FailoverEngine::None))
        );
    }

    #[test]
    fn both_servers_would_wait_for_the_other() {
        let mut plan = plan(&[FailoverFault::HostDeath], &[FailoverDetector::Fast]);
        assert_eq!(settings(&plan, true)[NAMES], "ANY 1 (node1, node2)");
        assert!(!settings(&plan, false).contains_key(NAMES));
        plan.engines = vec![FailoverEngine::Patroni];
        assert!(!settings(&plan, true).contains_key(NAMES));
    }
}
