//! The same work on copies of one data directory that differ in what is to be compared: which statements
//! are slower?

mod arms;
mod content;
mod explain;
mod judge;
mod record;

use std::path::PathBuf;

use pgtoll_cluster::{ClusterError, Guard};
use pgtoll_observe::ObserveError;
use pgtoll_record::{Host, Provenance, ReplayArm, ReplayArmRole, ReplayComparison};
use pgtoll_stats::BalancedOrders;
use pgtoll_system::Interrupt;
use pgtoll_wire::Interruption;

pub use arms::{ArmSetup, ComparedArmPlan, ComparedSource};

use crate::ReplayError;
use crate::run::ReplaySettings;
use crate::workload::CapturedWorkload;
use arms::{ArmSite, PreparedArms};
use judge::ShapeTimes;

/// The plan of a comparison.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    /// The baseline first. Its twin is added.
    pub arms: Vec<ComparedArmPlan>,
    /// Rounds: in each one every arm replays the work once. At least 2.
    pub rounds: u32,
    /// Fixes the order of arms in rounds.
    pub seed: u64,
    /// Ratios whose interval lies within this distance of 1 count as unchanged.
    pub margin: f64,
    /// How the work is replayed.
    pub replay: ReplaySettings,
}

/// Directory in which the copies are made.
#[derive(Debug)]
pub struct ComparisonSite<'a> {
    /// The data directories, the baseline's first. Of several the rows have to be the same.
    pub sources: Vec<ComparedSource>,
    /// The guard that starts them.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// The interrupt that ends it early.
    pub interrupt: &'a Interrupt,
    /// The interruption of waits for the copies' servers.
    pub interruption: &'a Interruption,
}

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonProgress<'a> {
    /// The round, from 1; 0 while arms are prepared.
    pub round: u32,
    /// The arm.
    pub arm: &'a str,
    /// Replays and preparations that are over.
    pub done: u64,
    /// All of them.
    pub all: u64,
}

/// An error of a comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComparisonError {
    /// The plan makes no comparison.
    #[error("{0}")]
    Plan(&'static str),
    /// Data directories hold other rows.
    #[error("{} does not hold the same rows as the baseline's data directory: {difference}", data.display())]
    OtherContent {
        /// The data directory.
        data: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// A server cannot be made, started or stopped.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The work directory cannot stand in a connection string.
    #[error("connect to a copy's server")]
    Dsn(#[from] pgtoll_wire::DsnError),
    /// A replay cannot be done.
    #[error("replay on arm \"{arm}\"")]
    Replay {
        /// The arm.
        arm: String,
        /// Why not.
        source: ReplayError,
    },
    /// A server's counters cannot be read.
    #[error("read the counters of arm \"{arm}\"")]
    Observe {
        /// The arm.
        arm: String,
        /// Why not.
        source: ObserveError,
    },
    /// A server cannot be asked.
    #[error("{action} on arm \"{arm}\"")]
    Server {
        /// The planned runs.
        action: String,
        /// The arm.
        arm: String,
        /// The error of the server or the system.
        source: Box<pgtoll_wire::Error>,
    },
}

/// An [`Error`](pgtoll_wire::Error) of this action on this arm.
fn server_error(action: &str, arm: &str) -> impl FnOnce(pgtoll_wire::Error) -> ComparisonError {
    let action = action.to_owned();
    let arm = arm.to_owned();
    move |source| ComparisonError::Server { action, arm, source: Box::new(source) }
}

impl ComparisonError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(_) => Some("pgtoll replay compare --help has examples".to_owned()),
            Self::OtherContent { .. } => Some(
                "make both from the state when the capture began: dump and restore, or pg_upgrade a copy"
                    .to_owned(),
            ),
            Self::Cluster(error) => error.hint(),
            Self::Replay { source, .. } => source.hint(),
            Self::Observe { .. } | Self::Dsn(_) => None,
            Self::Server { source, .. } => source.hint(),
        }
    }
}

/// The twin's name, which no other arm has.
pub const TWIN: &str = "twin";

/// Makes a copy of its data directory for each arm, and replays the work on fresh copies of these, round by
/// round. A signal ends it early; what was done in whole rounds until then is returned.
pub fn compare(
    workload: &CapturedWorkload,
    plan: &ComparisonPlan,
    site: ComparisonSite<'_>,
    provenance: Provenance,
    progress: &mut dyn FnMut(ComparisonProgress<'_>),
) -> Result<ReplayComparison, ComparisonError> {
    check(plan)?;
    let ComparisonSite { sources, guard, host, interrupt, interruption } = site;
    let mut settings = plan.replay.clone();
    settings.keeps_times = true;
    let mut site = ArmSite { guard, workload, settings, interrupt, interruption };
    let runs = plan.arms.len() as u64 + 1;
    let all = plan.arms.len() as u64 + runs * u64::from(plan.rounds);
    let mut done = 0;
    let mut prepared = PreparedArms::make(&mut site, &sources, &plan.arms, &mut |arm| {
        progress(ComparisonProgress { round: 0, arm, done, all });
        done += 1;
    })?;
    let mut times = ShapeTimes::new(workload, prepared.names());
    let orders = BalancedOrders::new(prepared.arms.len(), plan.seed);
    for (round, order) in (1..=plan.rounds).zip(orders) {
        let mut shown = |arm: &str| {
            progress(ComparisonProgress { round, arm, done, all });
            done += 1;
        };
        match prepared.run_round(&mut site, round, &order, &mut shown) {
            Ok(Some(step_ns)) => times.add_round(&step_ns),
            Ok(None) => break,
            Err(_) if interrupt.signal().is_some() => break,
            Err(error) => return Err(error),
        }
    }
    let mut record = record::record(plan, workload, &prepared, provenance, host);
    record.ended = interrupt.signal().map(str::to_owned);
    times.judge(&mut record);
    if record.ended.is_none() {
        explain::add_plans(&mut site, &prepared, &times, &mut record)?;
        site.guard.finish()?;
    }
    Ok(record)
}

fn check(plan: &ComparisonPlan) -> Result<(), ComparisonError> {
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    if names.len() < 2 {
        return Err(ComparisonError::Plan("a comparison needs a baseline and another arm"));
    }
    if names.contains(&TWIN) {
        return Err(ComparisonError::Plan("\"twin\" is the name of the baseline's twin"));
    }
    if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
        return Err(ComparisonError::Plan("two arms have the same name"));
    }
    if plan.rounds < 2 {
        return Err(ComparisonError::Plan("a comparison needs two rounds"));
    }
    Ok(())
}

/// The arm that others are compared with, by its place.
pub(crate) fn baseline_place(arms: &[ReplayArm]) -> Option<usize> {
    arms.iter().position(|arm| arm.role == ReplayArmRole::Baseline)
}
