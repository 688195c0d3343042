//! A primary and a standby that clients reach, whatever looks after them; and what all of these do with
//! their servers.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use pgtoll_cluster::{Cluster, Guard, StopMode, Volume, Volumes};
use pgtoll_record::{FailoverFault, FailoverRun, ThirdNode};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use super::context::{NODES, RunContext};
use super::error::FailoverError;
use super::rejoin_steps::{RejoinSteps, STREAMING};
use super::servers::{link_directory, named, postmaster, wait_for_streaming};
use super::site::FaultSite;
use super::volumes::hold_volume;
use crate::JudgeSide;
use crate::link::Link;

/// A topology that serves clients, until it is removed.
pub(super) trait Topology {
    /// Both servers.
    fn pair(&self) -> &dyn TopologyPair;

    /// The clients' way in.
    fn dsn(&self) -> Result<Dsn, FailoverError>;

    /// The clients' ways in on both sides of a partition; empty where there is none.
    fn sides(&self) -> Result<Vec<JudgeSide>, FailoverError> {
        Ok(Vec::new())
    }

    /// Returns the objects that a fault can reach.
    fn fault_site(&self) -> Result<FaultSite, FailoverError>;

    /// Adds to the run what was reported since the fault, and when what was done.
    fn report(&self, run: &mut FailoverRun, began: SystemTime);

    /// The load is over. Returns how often a daemon had ended by itself and was started again.
    fn end_watch(&mut self) -> u32 {
        0
    }

    /// Makes a standby of the old primary.
    fn bring_back(
        &self,
        context: &RunContext<'_>,
        fault: FailoverFault,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError>;

    /// Lets a second standby follow the promoted one; `None` where there is none.
    fn follow_third(&self, _context: &RunContext<'_>) -> Option<ThirdNode> {
        None
    }

    /// The promoted standby is the primary from now on, and the old primary, which has returned and was
    /// stopped, its standby.
    fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError>;

    /// Ends all that still runs, and removes it.
    fn remove(self: Box<Self>) -> Result<(), FailoverError>;
}

/// A primary and a standby, whatever starts them.
pub(super) trait TopologyPair {
    /// The server that is the primary until the fault.
    fn primary(&self) -> &Cluster;

    /// The other one.
    fn standby(&self) -> &Cluster;

    /// Starts the standby, which died, and lets commits wait for it again if they are to.
    fn return_standby(
        &self,
        interrupt: &Interrupt,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError>;

    /// Shuts the old primary down, which has come back as a standby.
    fn stop_old_primary(&self) -> Result<(), FailoverError>;
}

/// A primary and a standby that the lab itself starts, and what a fault may need between and below them.
pub(super) struct ServerPair {
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) primary: Cluster,
    /// The primary's postmaster.
    pub(super) postmaster: i32,
    pub(super) standby: Cluster,
    /// Through which the standby sees the first primary; `None` where that is not to be cut.
    pub(super) link: Option<Arc<Link>>,
    /// The disk of the first primary; `None` where it needs none of its own.
    volume: Option<(Volumes, Volume)>,
}

/// A primary that runs.
pub(super) struct StartedPrimary {
    pub(super) cluster: Cluster,
    postmaster: i32,
    volume: Option<(Volumes, Volume)>,
}

impl StartedPrimary {
    pub(super) fn start(
        context: &RunContext<'_>,
        guard: &mut Guard,
        fault: FailoverFault,
    ) -> Result<Self, FailoverError> {
        let cluster = context.template.copy(guard, NODES[0])?;
        let volume = hold_volume(context, guard, &cluster, fault)?;
        cluster.configure(guard, &named(context, NODES[0]))?;
        let postmaster = cluster.start(guard)?;
        Ok(Self { cluster, postmaster, volume })
    }

    /// Starts a standby that streams through the link, if there is one.
    pub(super) fn with_standby(
        self,
        context: &RunContext<'_>,
        guard: &mut Guard,
        link: Option<Arc<Link>>,
    ) -> Result<ServerPair, FailoverError> {
        let primary = self.cluster;
        let directory = link_directory(guard);
        let upstream = if link.is_some() { &*directory } else { primary.directory() };
        let standby = primary.standby(guard, NODES[1], upstream)?;
        standby.configure(guard, &named(context, NODES[1]))?;
        standby.start(guard)?;
        let guard = context.guard.clone();
        let postmaster = self.postmaster;
        let volume = self.volume;
        Ok(ServerPair { guard, primary, postmaster, standby, link, volume })
    }
}

impl ServerPair {
    /// The disk of the first primary, if it has one of its own.
    pub(super) fn volume(&self) -> Option<Volume> {
        self.volume.as_ref().map(|(_, volume)| volume.clone())
    }

    /// Makes a standby of the old primary, by `pg_rewind`.
    pub(super) fn bring_back(
        &self,
        context: &RunContext<'_>,
        fault: FailoverFault,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        let old = &self.primary;
        let new = &self.standby;
        {
            let mut guard = pgtoll_system::lock(&self.guard);
            // One that was frozen still runs; others have ended.
            let _ = old.stop(&mut guard, StopMode::Fast);
            steps.done("stopped");
            if let (Some(volume), FailoverFault::WalFull) = (self.volume(), fault) {
                volume.enlarge(ENLARGED_WAL_BYTES)?;
                steps.done("volume enlarged");
            }
            new.checkpoint()?;
            steps.done("checkpoint");
            old.rewind(&mut guard, new)?;
            steps.done("pg_rewind");
            old.configure(&mut guard, &named(context, old.name()))?;
            old.start(&mut guard)?;
            steps.done("start");
        }
        wait_for_streaming(new, old, context.interrupt)?;
        steps.done(STREAMING);
        Ok(())
    }

    /// The standby is the primary from now on, and the old primary, which was stopped, its standby.
    pub(super) fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError> {
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.standby.start(&mut pgtoll_system::lock(&self.guard))?;
        wait_for_streaming(&self.primary, &self.standby, context.interrupt)?;
        reset_standby_names(&self.primary)?;
        self.postmaster = postmaster(&self.primary)?;
        Ok(())
    }

    /// Ends both.
    pub(super) fn stop(&self, guard: &mut Guard) {
        for cluster in [&self.standby, &self.primary] {
            // It may have ended long ago.
            let _ = cluster.stop(guard, StopMode::Immediate);
        }
    }

    /// Removes both, which have ended.
    pub(super) fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        drop(self.link);
        // Where one is mounted a directory cannot be removed.
        drop(self.volume);
        for cluster in [self.standby, self.primary] {
            cluster.remove(guard)?;
        }
        Ok(())
    }
}

impl TopologyPair for ServerPair {
    fn primary(&self) -> &Cluster {
        &self.primary
    }

    fn standby(&self) -> &Cluster {
        &self.standby
    }

    fn return_standby(
        &self,
        interrupt: &Interrupt,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        self.standby.start(&mut pgtoll_system::lock(&self.guard))?;
        steps.done("start");
        wait_for_streaming(&self.primary, &self.standby, interrupt)?;
        reset_standby_names(&self.primary)?;
        steps.done(STREAMING);
        Ok(())
    }

    fn stop_old_primary(&self) -> Result<(), FailoverError> {
        self.primary.stop(&mut pgtoll_system::lock(&self.guard), StopMode::Fast)?;
        Ok(())
    }
}

/// They were set to nothing when the standby was gone, or promoted; there is one again.
fn reset_standby_names(primary: &Cluster) -> Result<(), FailoverError> {
    let mut connection = primary.connect("postgres")?;
    connection.execute("ALTER SYSTEM RESET synchronous_standby_names")?;
    connection.execute("SELECT pg_reload_conf()")?;
    connection.close();
    Ok(())
}

/// The size of an enlarged WAL volume: it also takes the new primary's.
const ENLARGED_WAL_BYTES: u64 = 1 << 30;
