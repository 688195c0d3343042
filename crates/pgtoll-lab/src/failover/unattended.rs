//! No failover manager: a primary and a standby, and clients that know both.

use std::sync::Arc;
use std::time::SystemTime;

use pgtoll_record::{FailoverFault, FailoverRun};
use pgtoll_wire::Dsn;

use super::context::RunContext;
use super::error::FailoverError;
use super::partition::{CrossLinks, is_cut, judge_sides};
use super::rejoin_steps::RejoinSteps;
use super::servers::{both_servers, link_directory, open_link, wait_for_streaming};
use super::site::{CutSite, FaultSite, Handover, Response};
use super::topology::{ServerPair, StartedPrimary, Topology, TopologyPair};
use crate::JudgeSide;

/// Servers that nobody looks after.
pub(super) struct UnattendedTopology {
    pair: ServerPair,
    /// The links of a partition.
    cross: Option<CrossLinks>,
}

impl UnattendedTopology {
    pub(super) fn start(
        context: &RunContext<'_>,
        fault: FailoverFault,
    ) -> Result<Self, FailoverError> {
        let mut guard = pgtoll_system::lock(context.guard);
        let primary = StartedPrimary::start(context, &mut guard, fault)?;
        let directory = link_directory(&guard);
        let link = is_cut(fault).then(|| open_link(&mut guard, &directory, &primary.cluster));
        let pair = primary.with_standby(context, &mut guard, link.transpose()?.map(Arc::new))?;
        wait_for_streaming(&pair.primary, &pair.standby, context.interrupt)?;
        // A copy that is still dirty would be synced by pg_rewind, file by file.
        pair.primary.sync(&mut guard)?;
        let is_parted = fault == FailoverFault::Partition;
        let cross = is_parted.then(|| CrossLinks::open(&mut guard, &pair.primary, &pair.standby));
        Ok(Self { cross: cross.transpose()?, pair })
    }
}

impl Topology for UnattendedTopology {
    fn pair(&self) -> &dyn TopologyPair {
        &self.pair
    }

    fn dsn(&self) -> Result<Dsn, FailoverError> {
        both_servers(&self.pair.primary, &self.pair.standby)
    }

    fn sides(&self) -> Result<Vec<JudgeSide>, FailoverError> {
        let servers = [&self.pair.primary, &self.pair.standby];
        self.cross.as_ref().map_or(Ok(Vec::new()), |cross| Ok(judge_sides(cross.ways(servers)?)))
    }

    fn fault_site(&self) -> Result<FaultSite, FailoverError> {
        let pair = &self.pair;
        Ok(FaultSite {
            guard: pair.guard.clone(),
            primary: pair.primary.clone(),
            postmaster: pair.postmaster,
            is_managed: false,
            standby: pair.standby.clone(),
            daemon: None,
            abandoned: None,
            own_pooler: None,
            standby_daemon: None,
            standby_pooler: None,
            receiver: None,
            link: pair.link.clone(),
            other_link: None,
            cut: CutSite {
                client_links: self.cross.as_ref().map(CrossLinks::links).unwrap_or_default(),
                ..CutSite::default()
            },
            heals_cut: true,
            volume: pair.volume(),
            response: Response::ByHand,
            handover: Handover::Nobody,
        })
    }

    /// There is nobody to report.
    fn report(&self, _run: &mut FailoverRun, _began: SystemTime) {}

    fn bring_back(
        &self,
        context: &RunContext<'_>,
        fault: FailoverFault,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        self.pair.bring_back(context, fault, steps)
    }

    fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError> {
        self.pair.exchange_roles(context)
    }

    fn remove(self: Box<Self>) -> Result<(), FailoverError> {
        let guard = self.pair.guard.clone();
        let mut guard = pgtoll_system::lock(&guard);
        self.pair.stop(&mut guard);
        self.pair.remove(&mut guard)
    }
}
