//! A partition with clients on both sides: the primary's host is cut off from the standby's, and from all
//! that is on the standby's side. Clients of each side reach only what is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pgtoll_cluster::{Cluster, Guard, NetworkCut, StopMode};
use pgtoll_record::{FailoverFault, JudgeRecord, PartitionOutcome, PartitionSide};
use pgtoll_wire::{Connection, Dsn};

use super::context::DATABASE;
use super::error::FailoverError;
use super::fault::{FaultAction, FaultTimes};
use super::servers::{PAUSE, open_link};
use super::site::Response;
use crate::JudgeSide;
use crate::link::{Link, LinkState};

/// Clients give up a connection on which nothing arrives, as with this `tcp_user_timeout`.
const CLIENTS_GIVE_UP: Duration = Duration::from_secs(3);
/// The partition lasts for so long after the promotion, and after the old primary's end.
const SETTLES: Duration = Duration::from_secs(2);
/// With two primaries it lasts for so long after the promotion.
const WITH_TWO: Duration = Duration::from_secs(5);
/// After it was healed an engine may take so long to end the old primary: one that waits for a reply hears
/// something when TCP sends again, after as long as the partition lasted.
const HEALED_LIMIT: Duration = Duration::from_secs(50);
/// An administrator comes so long after it was healed.
const ADMINISTRATOR: Duration = Duration::from_secs(2);

/// Whether the fault cuts hosts off from each other.
pub(super) fn is_cut(fault: FailoverFault) -> bool {
    matches!(fault, FailoverFault::LinkCut | FailoverFault::Partition)
}

/// Returns the fault's cut of the network of both hosts.
pub(super) fn network_cut(fault: FailoverFault, [primary, standby]: [u8; 2]) -> Option<NetworkCut> {
    match fault {
        FailoverFault::LinkCut => Some(NetworkCut::Between([primary, standby])),
        FailoverFault::Partition => Some(NetworkCut::Host(primary)),
        _ => None,
    }
}

/// The ways in of the clients on the primary's side, and on the standby's.
pub(super) fn judge_sides(ways: [Dsn; 2]) -> Vec<JudgeSide> {
    let names = ["primary's side", "standby's side"];
    let sides = names.into_iter().zip(ways);
    sides.map(|(name, dsn)| JudgeSide { name: name.to_owned(), dsn }).collect()
}

/// Links from clients to the server on the other side.
pub(super) struct CrossLinks {
    to_primary: (PathBuf, Arc<Link>),
    to_standby: (PathBuf, Arc<Link>),
}

impl CrossLinks {
    pub(super) fn open(
        guard: &mut Guard,
        primary: &Cluster,
        standby: &Cluster,
    ) -> Result<Self, FailoverError> {
        let mut open = |server: &Cluster| {
            let directory = guard.directory().join(format!("link-to-{}", server.name()));
            let link = open_link(guard, &directory, server)?;
            Ok::<_, FailoverError>((directory, Arc::new(link)))
        };
        Ok(Self { to_primary: open(primary)?, to_standby: open(standby)? })
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        vec![self.to_primary.1.clone(), self.to_standby.1.clone()]
    }

    /// Clients of each side know both servers, the one on the other side through a link.
    pub(super) fn ways(&self, servers: [&Cluster; 2]) -> Result<[Dsn; 2], FailoverError> {
        let [primary, standby] = servers.map(|server| server.directory().display());
        let way = |hosts: String| -> Result<Dsn, FailoverError> {
            Ok(format!(
                "host='{hosts}' port=5432 user=postgres dbname={DATABASE} \
                 target_session_attrs=read-write"
            )
            .parse()?)
        };
        let to_primary = self.to_primary.0.display();
        let to_standby = self.to_standby.0.display();
        Ok([way(format!("{primary},{to_standby}"))?, way(format!("{to_primary},{standby}"))?])
    }
}

impl FaultAction {
    /// Cuts, waits until the engine has done what it does, heals, and lets an administrator end what the
    /// engine does not.
    pub(super) fn part(&self) -> Result<&'static str, FailoverError> {
        let began = Instant::now();
        self.set_links(LinkState::Silent)?;
        if let Response::Hook(script) = &self.site.response {
            self.call_hook(script, &[])?;
        }
        let mut roles = Roles::new(&self.site.primary, &self.site.standby);
        let outcome = self.watch(&mut roles, began);
        self.set_links(LinkState::Open)?;
        self.note(|times| times.healed = Some(SystemTime::now()));
        outcome?;
        if roles.promoted.is_some() && roles.ended.is_none() {
            self.end_old_primary(&mut roles)?;
        }
        self.note(|times| {
            times.promoted = roles.promoted.map(|(_, time)| time);
            times.old_primary_ended = roles.ended.map(|(_, time)| time);
        });
        Ok(match (roles.promoted, roles.ended) {
            (None, _) => "healed, with no promotion",
            (Some(_), None) => "healed, with two primaries",
            (Some(_), Some(_)) => "healed, with a new primary",
        })
    }

    /// Until all that is to be seen before healing was seen.
    fn watch(&self, roles: &mut Roles<'_>, began: Instant) -> Result<(), FailoverError> {
        let mut have_given_up = false;
        loop {
            if !have_given_up && began.elapsed() >= CLIENTS_GIVE_UP {
                have_given_up = true;
                for link in &self.site.cut.client_links {
                    link.set_state(LinkState::Cut);
                }
            }
            roles.look();
            let is_over = match (roles.promoted, roles.ended) {
                (None, _) => began.elapsed() >= self.limit,
                (Some((promoted, _)), Some((ended, _))) => promoted.max(ended).elapsed() >= SETTLES,
                (Some((promoted, _)), None) => {
                    promoted.elapsed() >= WITH_TWO && began.elapsed() >= self.site.cut.ends_within
                }
            };
            if is_over {
                return Ok(());
            }
            self.interrupt.wait(PAUSE)?;
        }
    }

    /// The engine gets a chance; where it is known to do nothing, an administrator comes.
    fn end_old_primary(&self, roles: &mut Roles<'_>) -> Result<(), FailoverError> {
        let site = &self.site;
        let healed = Instant::now();
        let limit = if site.cut.route.is_some() { ADMINISTRATOR } else { HEALED_LIMIT };
        while roles.ended.is_none() && healed.elapsed() < limit {
            self.interrupt.wait(PAUSE)?;
            roles.look();
        }
        let (None, Some(route)) = (roles.ended, &site.cut.route) else { return Ok(()) };
        if let (Some(abandoned), Some(daemon)) = (&site.abandoned, &site.daemon) {
            abandoned.add(daemon);
        }
        site.primary.stop(&mut pgtoll_system::lock(&site.guard), StopMode::Fast)?;
        roles.look();
        self.note(|times| times.ended_old_primary_by_hand = true);
        self.call_hook(route, &[])
    }
}

/// The server that takes writes, and the time of its last change.
struct Roles<'a> {
    primary: RoleWatch<'a>,
    standby: RoleWatch<'a>,
    /// The standby takes writes.
    promoted: Option<(Instant, SystemTime)>,
    /// The old primary takes no writes any more.
    ended: Option<(Instant, SystemTime)>,
}

impl<'a> Roles<'a> {
    fn new(primary: &'a Cluster, standby: &'a Cluster) -> Self {
        let watch = |cluster| RoleWatch { cluster, connection: None };
        Self { primary: watch(primary), standby: watch(standby), promoted: None, ended: None }
    }

    fn look(&mut self) {
        let now = (Instant::now(), SystemTime::now());
        if self.standby.takes_writes() {
            self.promoted.get_or_insert(now);
        }
        if self.primary.takes_writes() {
            // It had been restarted.
            self.ended = None;
        } else {
            self.ended.get_or_insert(now);
        }
    }
}

/// A server that is asked again and again, from its own host.
struct RoleWatch<'a> {
    cluster: &'a Cluster,
    connection: Option<Connection>,
}

impl RoleWatch<'_> {
    /// A standby takes none, nor does a primary that an engine has made read-only for a time.
    fn takes_writes(&mut self) -> bool {
        if self.connection.is_none() {
            self.connection = self.cluster.connect("postgres").ok();
        }
        let Some(connection) = &mut self.connection else { return false };
        let row = connection.query_one("SHOW transaction_read_only");
        let answer = row.and_then(|row| Ok(row.text("transaction_read_only")? == "off"));
        if answer.is_err() {
            self.connection = None;
        }
        answer.unwrap_or(false)
    }
}

/// The outcome of both sides.
pub(super) fn partition_outcome(times: FaultTimes, judged: &JudgeRecord) -> PartitionOutcome {
    let since = |from: SystemTime, to: Option<SystemTime>| {
        to.map(|to| to.duration_since(from).unwrap_or_default().as_secs_f64())
    };
    let began = times.began.unwrap_or(SystemTime::UNIX_EPOCH);
    let sides = judged.sides.iter().map(|side| PartitionSide {
        name: side.name.clone(),
        clients: side.clients,
        acknowledged: side.acknowledged_since_fault,
        lost: side.lost,
        outage_s: side.outage.as_ref().map(|gap| gap.seconds),
        outage_open: side.outage.as_ref().is_some_and(|gap| gap.open),
    });
    PartitionOutcome {
        healed_s: since(began, times.healed),
        old_primary_ended_s: times.promoted.and_then(|_| since(began, times.old_primary_ended)),
        ended_by_hand: times.ended_old_primary_by_hand,
        two_primaries_s: times.promoted.and_then(|promoted| {
            since(promoted, times.old_primary_ended.or(Some(SystemTime::now())))
        }),
        sides: sides.collect(),
    }
}

/// Returns the finding about the topology.
pub(super) fn partition_finding(
    outcome: &PartitionOutcome,
    after_successor: u64,
) -> Option<String> {
    let seconds = outcome.two_primaries_s.filter(|seconds| *seconds > 0.0)?;
    let end = match (outcome.old_primary_ended_s, outcome.ended_by_hand) {
        (None, _) => "; the old one was not ended",
        (Some(_), true) => ", until an administrator stopped the old one",
        (Some(_), false) => "",
    };
    Some(format!(
        "two primaries for {seconds:.1} s{end}: the old one acknowledged {after_successor} \
         transactions after the new one had begun"
    ))
}
