//! The exchange rate of durability: what a commit costs, and what it saves when the primary's host
//! dies, on plain PostgreSQL with one standby.

mod case;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_cluster::{Cluster, ClusterError, Guard, Installation, StopMode};
use pgtoll_record::{
    EXCHANGE_SCHEMA, ExchangeCase, ExchangeDesign, ExchangeRecord, Host, Provenance,
    SynchronousCommit,
};
use pgtoll_stats::BalancedOrders;
use pgtoll_system::Interrupt;
use pgtoll_workload::{LoadError, ScriptError};

use self::case::{CaseContext, run_case};
use crate::JudgeError;

/// The plan.
#[derive(Clone, Debug)]
pub struct ExchangePlan {
    /// Clients that write.
    pub clients: u32,
    /// How long clients commit as fast as they can, in each case.
    pub load: Duration,
    /// How long transactions fall due before and after the primary's death together.
    pub judged: Duration,
    /// How long WAL is on its way to the standby.
    pub delays: Vec<Duration>,
    /// The waits of commits.
    pub commits: Vec<SynchronousCommit>,
    /// How often each case is run.
    pub repetitions: u32,
    /// The seed of the orders of cases.
    pub seed: u64,
    /// Transactions fall due in bursts when the primary dies.
    pub bursts: bool,
}

/// The site of the lab.
#[derive(Debug)]
pub struct ExchangeSite<'a> {
    /// The servers.
    pub installation: &'a Installation,
    /// The guard that starts them.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// Set by the signals that end the lab.
    pub interrupt: &'a Interrupt,
}

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// A server could not be made, started or stopped.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The load's script, a mistake of pgtoll's.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The judge.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// The way to the servers, a mistake of pgtoll's.
    #[error(transparent)]
    Dsn(#[from] pgtoll_wire::DsnError),
    /// The link between primary and standby.
    #[error("listen for the standby's connection")]
    Link(#[source] std::io::Error),
    /// The standby does not stream.
    #[error("the standby does not stream: {state}")]
    NotStreaming {
        /// The state that the primary reports of it.
        state: String,
    },
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] pgtoll_system::Interrupted),
}

impl ExchangeError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::Judge(error) => error.hint(),
            Self::Wire(error) => error.hint(),
            Self::Dsn(error) => error.hint(),
            _ => None,
        }
    }
}

/// Runs all cases, in orders that balance what changes over time. `on_case` is notified of each when it
/// is done, with how many there are. What was done until an error or a signal is in the record.
pub fn exchange(
    plan: &ExchangePlan,
    site: ExchangeSite<'_>,
    provenance: &Provenance,
    on_case: &mut dyn FnMut(&ExchangeCase, usize),
) -> ExchangeRecord {
    let ExchangeSite { installation, guard, host, interrupt } = site;
    let mut record = ExchangeRecord {
        schema: EXCHANGE_SCHEMA.to_owned(),
        pgtoll: provenance.version.clone(),
        command: provenance.command.clone(),
        made: provenance.made.clone(),
        server: format!("PostgreSQL {} ({})", installation.version, installation.origin),
        host,
        design: design(plan),
        settings: settings(),
        cases: Vec::new(),
        complete: false,
        ended: None,
        notes: NOTES.map(str::to_owned).to_vec(),
    };
    let guard = Arc::new(Mutex::new(guard));
    let outcome = run_all(plan, installation, &guard, interrupt, provenance, &mut |case, all| {
        on_case(case, all);
        record.cases.push(case.clone());
    });
    match outcome {
        Ok(()) => record.complete = true,
        Err(error) => record.ended = Some(pgtoll_system::error_chain(&error)),
    }
    record
}

fn run_all(
    plan: &ExchangePlan,
    installation: &Installation,
    guard: &Arc<Mutex<Guard>>,
    interrupt: &Interrupt,
    provenance: &Provenance,
    on_case: &mut dyn FnMut(&ExchangeCase, usize),
) -> Result<(), ExchangeError> {
    let template = template(installation, &mut pgtoll_system::lock(guard))?;
    let kinds: Vec<(SynchronousCommit, Duration)> = plan
        .delays
        .iter()
        .flat_map(|delay| plan.commits.iter().map(|commit| (*commit, *delay)))
        .collect();
    let all = kinds.len() * plan.repetitions as usize;
    let orders = BalancedOrders::new(kinds.len(), plan.seed);
    for (repetition, order) in (1..=plan.repetitions).zip(orders) {
        for at in order {
            interrupt.check()?;
            let (commit, delay) = kinds[at];
            let context = CaseContext {
                plan,
                template: &template,
                guard,
                interrupt,
                provenance,
                settings: settings(),
            };
            on_case(&run_case(&context, commit, delay, repetition)?, all);
        }
    }
    Ok(())
}

/// A data directory that each case begins with a copy of.
fn template(installation: &Installation, guard: &mut Guard) -> Result<Cluster, ExchangeError> {
    let template = Cluster::init(guard, installation, "template", true)?;
    template.configure(guard, &settings())?;
    template.start(guard)?;
    let mut connection = template.connect("postgres")?;
    connection.execute("CREATE TABLE load (id bigserial PRIMARY KEY, payload text)")?;
    connection.close();
    template.stop(guard, StopMode::Fast)?;
    Ok(template)
}

/// Returns the settings of all servers.
fn settings() -> BTreeMap<String, String> {
    [
        // Before a standby that has just lost its primary is promoted it may wait for this long.
        ("wal_retrieve_retry_interval", "100ms"),
        ("max_wal_size", "4GB"),
        ("wal_keep_size", "1GB"),
        ("max_connections", "200"),
        ("shared_buffers", "128MB"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn design(plan: &ExchangePlan) -> ExchangeDesign {
    ExchangeDesign {
        clients: plan.clients,
        load_s: plan.load.as_secs_f64(),
        judged_s: plan.judged.as_secs_f64(),
        delays_ms: plan.delays.iter().map(|delay| delay.as_secs_f64() * 1e3).collect(),
        commits: plan.commits.clone(),
        repetitions: plan.repetitions,
        seed: plan.seed,
        bursts: plan.bursts,
    }
}

const NOTES: [&str; 4] = [
    "process faults on one kernel: both servers share CPUs and a disk, and the link's delay is \
     pgtoll's own",
    "the primary's processes are stopped, the link is cut with what is under way, then they are \
     killed: but for the standby's kernel, which stays, as its host does; remote_write and on differ \
     only where both hosts lose power",
    "expected is the rate of commits when the primary died times the delay; with off more is lost, as \
     WAL is flushed up to three times wal_writer_delay later",
    "the outage begins with the death and ends with the first commit on the promoted standby; nobody \
     had to notice the death, so that it is a floor for every failover",
];
