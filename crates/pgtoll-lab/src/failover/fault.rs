//! What happens to the primary.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pgtoll_cluster::{
    Cluster, Guard, ProgramSignal, RepmgrNode, RunningPgbouncer, ServerProcesses, StopMode,
};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::FailoverFault;

use super::context::{DATABASE, lock};
use super::error::FailoverError;
use super::hook::{HANDOVER, hook_name};
use super::supervisor::{Abandoned, Supervisor};
use super::topology::{Topology, until};
use crate::link::{Link, LinkState};

/// All that a fault needs, on a thread of its own.
pub(super) struct FaultAction {
    fault: FailoverFault,
    is_watched: bool,
    abandoned: Option<Abandoned>,
    guard: Arc<Mutex<Guard>>,
    primary: Cluster,
    postmaster: i32,
    standby: Cluster,
    node: RepmgrNode,
    poolers: Vec<RunningPgbouncer>,
    /// On the primary's host, if it has one.
    own_pooler: Option<RunningPgbouncer>,
    /// Between both servers.
    link: Option<Arc<Link>>,
    interrupt: Interrupt,
    /// When it began.
    pub(super) began: Arc<Mutex<Option<SystemTime>>>,
}

/// A frozen primary goes on when its successor has served clients for this long.
const THAW_AFTER: Duration = Duration::from_secs(1);

impl FaultAction {
    pub(super) fn of(topology: &Topology, fault: FailoverFault, interrupt: &Interrupt) -> Self {
        Self {
            fault,
            is_watched: topology.is_watched(),
            abandoned: topology.supervisor().map(Supervisor::abandoned),
            guard: topology.guard.clone(),
            primary: topology.primary.clone(),
            postmaster: topology.postmaster,
            standby: topology.standby.clone(),
            node: topology.nodes[0].clone(),
            poolers: topology.poolers.clone(),
            own_pooler: topology.pooler_of_primary().cloned(),
            link: topology.link(),
            interrupt: interrupt.clone(),
            began: Arc::default(),
        }
    }

    /// In the judge's words.
    pub(super) fn words(&self) -> &'static str {
        match self.fault {
            FailoverFault::HostDeath => "death of the primary's host",
            FailoverFault::Postmaster => "SIGKILL to the primary's postmaster",
            FailoverFault::Freeze => "freeze of the primary's host, thaw after the promotion",
            FailoverFault::LinkCut => "cut of the link between primary and standby",
            FailoverFault::Switchover => "handover by plan",
        }
    }

    pub(super) fn act(self) -> Result<&'static str, FailoverError> {
        if let Ok(mut began) = self.began.lock() {
            *began = Some(SystemTime::now());
        }
        match self.fault {
            FailoverFault::HostDeath => self.host_dies()?,
            FailoverFault::Postmaster => {
                self.primary.kill_postmaster(&mut lock(&self.guard))?;
            }
            FailoverFault::Freeze => return self.freeze(),
            FailoverFault::LinkCut => {
                if let Some(link) = &self.link {
                    link.set_state(LinkState::Cut);
                }
            }
            FailoverFault::Switchover => return self.hand_over(),
        }
        if !self.is_watched {
            self.call_hook(&[])?;
        }
        Ok("done")
    }

    /// Stop all, then kill all: signals one by one would let some work without the others.
    fn host_dies(&self) -> Result<(), FailoverError> {
        let processes = ServerProcesses::of(self.postmaster)?;
        if let Some(abandoned) = &self.abandoned {
            abandoned.add(self.node.daemon());
        }
        let mut guard = lock(&self.guard);
        self.signal_programs(&mut guard, ProgramSignal::Stop)?;
        processes.suspend()?;
        self.primary.kill(&mut guard)?;
        if let Some(pooler) = &self.own_pooler {
            guard.signal(pooler.name(), ProgramSignal::Kill)?;
        }
        if self.is_watched {
            guard.reap(self.node.daemon(), Duration::ZERO)?;
        }
        Ok(())
    }

    fn freeze(&self) -> Result<&'static str, FailoverError> {
        let processes = ServerProcesses::of(self.postmaster)?;
        self.signal_programs(&mut lock(&self.guard), ProgramSignal::Stop)?;
        processes.suspend()?;
        if !self.is_watched {
            self.call_hook(&[])?;
        }
        let mut connection = self.standby.connect("postgres")?;
        let promoted = until("the standby was not promoted", &self.interrupt, || {
            let row = connection.query_one("SELECT pg_is_in_recovery() AS standby")?;
            let is_standby = row.text("standby")? == "t";
            Ok(is_standby.then(|| "still a standby".to_owned()))
        });
        connection.close();
        if promoted.is_ok() {
            self.interrupt.wait(THAW_AFTER)?;
        }
        processes.resume()?;
        self.signal_programs(&mut lock(&self.guard), ProgramSignal::Continue)?;
        promoted.map(|()| "thawed after the promotion")
    }

    /// Clients wait at the pooler meanwhile.
    fn hand_over(&self) -> Result<&'static str, FailoverError> {
        for pooler in &self.poolers {
            let mut console = pooler.console()?;
            console.execute(&format!("PAUSE {DATABASE}"))?;
            console.close();
        }
        self.primary.stop(&mut lock(&self.guard), StopMode::Fast)?;
        self.call_hook(&[HANDOVER])?;
        Ok("handed over")
    }

    /// What repmgrd does when it has noticed.
    fn call_hook(&self, arguments: &[&str]) -> Result<(), FailoverError> {
        let mut guard = lock(&self.guard);
        let hook =
            guard.directory().join(hook_name(self.standby.name())).to_string_lossy().into_owned();
        guard.run(Path::new("/bin/sh"), &[&[&*hook], arguments].concat())?;
        Ok(())
    }

    /// Programs on the primary's host beside its server.
    fn signal_programs(
        &self,
        guard: &mut Guard,
        signal: ProgramSignal,
    ) -> Result<(), FailoverError> {
        if let Some(pooler) = &self.own_pooler {
            guard.signal(pooler.name(), signal)?;
        }
        if self.is_watched {
            guard.signal(self.node.daemon(), signal)?;
        }
        Ok(())
    }
}
