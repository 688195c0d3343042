//! Reads that Pgpool-II sends to standbys: where each kind of statement goes, how old what readers see
//! is, what balancing costs, and what clients see when a standby dies.

mod death;
mod error;
mod freshness;
mod queue;
mod routes;
mod set;
mod split;
mod throughput;

use std::time::Duration;

use pgtoll_cluster::{Guard, Installation, Pgpool};
use pgtoll_record::{BALANCE_SCHEMA, BalanceDesign, BalanceRecord, Host, Provenance};
use pgtoll_system::Interrupt;

pub use self::error::BalanceError;
use self::set::BalancedSet;

/// How much is tried.
#[derive(Clone, Debug)]
pub struct BalancePlan {
    /// Sessions in which each kind of statement is tried.
    pub route_sessions: u32,
    /// Sessions whose share on each standby is counted.
    pub split_sessions: u32,
    /// Rows that are written and then read, for each rung of what commits wait for.
    pub writes: u32,
    /// Clients that read at full speed.
    pub clients: u32,
    /// How long each time.
    pub slice: Duration,
    /// How often with the balancer, and as often without it.
    pub slices: u32,
}

/// The site of the lab.
#[derive(Debug)]
pub struct BalanceSite<'a> {
    /// The servers.
    pub installation: &'a Installation,
    /// The balancer in front of them.
    pub pgpool: &'a Pgpool,
    /// The guard that starts all programs.
    pub guard: Guard,
    /// The machine.
    pub host: Host,
    /// Set by the signals that end the lab.
    pub interrupt: &'a Interrupt,
}

/// The state that all parts share.
struct BalanceContext<'a> {
    plan: &'a BalancePlan,
    guard: &'a mut Guard,
    interrupt: &'a Interrupt,
    set: &'a BalancedSet,
    /// Readers can wait for what they have written.
    has_wait: bool,
}

/// A part, and what it adds to the record.
type Part = fn(&mut BalanceContext<'_>, &mut BalanceRecord) -> Result<(), BalanceError>;

/// In this order: the last one kills a standby.
const PARTS: [(&str, Part); 6] = [
    ("where statements go", routes::routes),
    ("how sessions are shared out", split::split),
    ("reads after writes", freshness::freshness),
    ("reads beside reads without a balancer", throughput::throughput),
    ("more clients than it takes", queue::queue),
    ("a standby dies and comes back", death::death),
];

/// How many parts there are.
pub const BALANCE_PARTS: usize = PARTS.len();

/// Builds a primary and two standbys behind Pgpool-II, and does all parts. `on_part` is notified of the record
/// and the part's name after each. What was done until an error or a signal is in the record; an error
/// where nothing was begun is one of this function.
pub fn balance(
    plan: &BalancePlan,
    site: BalanceSite<'_>,
    provenance: &Provenance,
    on_part: &mut dyn FnMut(&BalanceRecord, &str),
) -> Result<BalanceRecord, BalanceError> {
    let BalanceSite { installation, pgpool, mut guard, host, interrupt } = site;
    let room = set::room(plan.clients);
    let has_wait = installation.version.facts().is_ok_and(|facts| facts.has_wait_for_lsn);
    let set = BalancedSet::start(&mut guard, installation, pgpool, room, interrupt)?;
    let mut record = BalanceRecord {
        schema: BALANCE_SCHEMA.to_owned(),
        pgtoll: provenance.version.clone(),
        command: provenance.command.clone(),
        made: provenance.made.clone(),
        server: format!("PostgreSQL {} ({})", installation.version, installation.origin),
        balancer: pgpool.version(&mut guard)?,
        host,
        design: design(plan, room),
        settings: set::settings(),
        balancer_settings: Pgpool::settings(room),
        routes: Vec::new(),
        split: None,
        freshness: Vec::new(),
        throughput: None,
        queue: None,
        death: None,
        complete: false,
        ended: None,
        notes: notes(has_wait),
    };
    let mut context = BalanceContext { plan, guard: &mut guard, interrupt, set: &set, has_wait };
    for (name, part) in PARTS {
        let done = part(&mut context, &mut record);
        // What follows from a signal is not the news.
        if let Err(error) = interrupt.check().map_err(BalanceError::from).and(done) {
            record.ended = Some(format!("{name}: {}", pgtoll_system::error_chain(&error)));
            return Ok(record);
        }
        on_part(&record, name);
    }
    record.complete = true;
    Ok(record)
}

fn design(plan: &BalancePlan, room: u32) -> BalanceDesign {
    BalanceDesign {
        weights: set::WEIGHTS.map(|(name, weight)| (name.to_owned(), weight)).into(),
        route_sessions: plan.route_sessions,
        split_sessions: plan.split_sessions,
        writes: plan.writes,
        clients: plan.clients,
        slice_s: plan.slice.as_secs_f64(),
        slices: plan.slices,
        balancer_clients: room,
    }
}

fn notes(has_wait: bool) -> Vec<String> {
    let of_wait = if has_wait { WAIT_NOTE } else { NO_WAIT_NOTE };
    NOTES.into_iter().chain([of_wait]).map(str::to_owned).collect()
}

const WAIT_NOTE: &str = "WAIT FOR LSN: a session writes through the balancer, asks the primary how far its WAL is, and then \
     waits until a standby has applied that; it reads from this standby itself, or through the \
     balancer from whichever that chooses";
const NO_WAIT_NOTE: &str = "servers have WAIT FOR LSN from 19 on: with it a reader waits for its own write on any standby, \
     whatever commits wait for";
const NOTES: [&str; 3] = [
    "the servers' answers say which of them executed a statement (current_setting('cluster_name'))",
    "all servers share CPUs, a disk and a kernel: how old reads are depends on that, and whether more \
     standbys serve more reads is not measurable here",
    "a read that found its row does not prove that the next one will",
];
