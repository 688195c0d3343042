//! The servers that a fault can reach, and the engine that reacts.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, NetworkCut, PrivateNetwork, RunningPgbouncer, Volume};

use crate::link::Link;

/// The objects of a topology that a fault can reach.
pub(super) struct FaultSite {
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) primary: Cluster,
    pub(super) postmaster: i32,
    /// The engine started the primary's server, not the guard.
    pub(super) is_managed: bool,
    pub(super) standby: Cluster,
    /// The engine's program on the primary's host, by its name with the guard.
    pub(super) daemon: Option<String>,
    /// The daemon that would start it again.
    pub(super) abandoned: Option<Abandoned>,
    /// On the primary's host, if it has one.
    pub(super) own_pooler: Option<RunningPgbouncer>,
    /// The same on the standby's host.
    pub(super) standby_daemon: Option<String>,
    pub(super) standby_pooler: Option<RunningPgbouncer>,
    /// The receiver of WAL beside the standby, by its name with the guard.
    pub(super) receiver: Option<String>,
    /// Between both servers.
    pub(super) link: Option<Arc<Link>>,
    /// Between the standby and what else is on the primary's side.
    pub(super) other_link: Option<Arc<Link>>,
    /// The other links that are cut between hosts.
    pub(super) cut: CutSite,
    /// The cut link is healed: no promotion is expected.
    pub(super) heals_cut: bool,
    /// The primary's disk, if it has one of its own.
    pub(super) volume: Option<Volume>,
    pub(super) response: Response,
    pub(super) handover: Handover,
}

/// The response to a fault.
pub(super) enum Response {
    /// The engine, when it notices.
    Engine,
    /// This script, at once, which is told what is the case in a word.
    Hook(PathBuf),
    /// An administrator, after a time: until then clients wait.
    ByHand,
}

/// How a handover by plan is done.
pub(super) enum Handover {
    /// Clients are held back by the poolers, the primary is shut down, and this script promotes.
    Poolers { poolers: Vec<RunningPgbouncer>, hook: PathBuf },
    /// The engine does it, asked by this command.
    Command { program: PathBuf, arguments: Vec<String> },
    /// There is no such thing.
    Nobody,
}

/// The cuts beside the links between servers that the lab starts itself.
#[derive(Clone, Default)]
pub(super) struct CutSite {
    /// The network of an engine whose programs find each other by addresses.
    pub(super) network: Option<(PrivateNetwork, NetworkCut)>,
    /// Through which clients reach what is on the other side.
    pub(super) client_links: Vec<Arc<Link>>,
    /// How long after the begin of the partition the old primary may end by itself.
    pub(super) ends_within: Duration,
    /// Leads the clients on the primary's side to the new primary: for an administrator, who stops the old
    /// one before. `None` where the engine does that.
    pub(super) route: Option<PathBuf>,
}

/// Names of daemons that end on purpose.
#[derive(Clone, Default)]
pub(super) struct Abandoned(Arc<Mutex<Vec<String>>>);

impl Abandoned {
    /// From now on nobody starts this daemon again.
    pub(super) fn add(&self, daemon: &str) {
        pgtoll_system::lock(&self.0).push(daemon.to_owned());
    }

    /// Whether it ended on purpose.
    pub(super) fn has(&self, daemon: &str) -> bool {
        let all = pgtoll_system::lock(&self.0);
        all.iter().any(|item| item == daemon)
    }
}
