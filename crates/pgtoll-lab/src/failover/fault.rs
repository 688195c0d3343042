//! What happens to the primary.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pgtoll_cluster::{
    Cluster, ClusterError, Guard, ProgramSignal, RepmgrNode, RunningPgbouncer, ServerProcesses,
    StopMode, Volume,
};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::FailoverFault;

use super::context::{DATABASE, lock};
use super::error::FailoverError;
use super::hook::{BESIDE_PRIMARY, HANDOVER, hook_name};
use super::supervisor::{Abandoned, Supervisor};
use super::topology::{PAUSE, Topology, until};
use super::volumes::WAL_BYTES;
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
    /// Between the witness, if there is one, and the standby.
    witness_link: Option<Arc<Link>>,
    /// The primary's disk, if it has one of its own.
    volume: Option<Volume>,
    /// A frozen disk goes on, and a cut link is healed, after this time at the latest.
    pub(super) frozen_at_most: Duration,
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
            witness_link: topology.witness_link(),
            volume: topology.volume(),
            frozen_at_most: Duration::ZERO,
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
            FailoverFault::WalFull => "WAL until the primary's volume for it is full",
            FailoverFault::IoFreeze => "freeze of the primary's disk",
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
                self.set_links(LinkState::Cut);
                if self.witness_link.is_some() {
                    return self.heal_cut();
                }
            }
            FailoverFault::WalFull => self.fill_wal_volume()?,
            FailoverFault::IoFreeze => return self.freeze_disk(),
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
        if let Some(link) = &self.link {
            // What is under way is lost.
            link.set_state(LinkState::Cut);
        }
        self.primary.kill(&mut guard)?;
        if let Some(pooler) = &self.own_pooler {
            guard.signal(pooler.name(), ProgramSignal::Kill)?;
        }
        if self.is_watched {
            guard.reap(self.node.daemon(), Duration::ZERO)?;
        }
        Ok(())
    }

    fn set_links(&self, state: LinkState) {
        for link in self.link.iter().chain(&self.witness_link) {
            link.set_state(state);
        }
    }

    /// The standby needs the witness, which it does not reach either.
    fn heal_cut(&self) -> Result<&'static str, FailoverError> {
        let is_promoted = self.is_promoted_within(self.frozen_at_most)?;
        if is_promoted {
            return Ok("the standby was promoted without the witness");
        }
        self.set_links(LinkState::Open);
        Ok("healed, with no promotion")
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

    /// Writes WAL until the server ends all of its sessions, since it cannot write more.
    fn fill_wal_volume(&self) -> Result<(), FailoverError> {
        let mut connection = self.primary.connect("postgres")?;
        let message = "SELECT pg_logical_emit_message(false, 'pgtoll', repeat('x', 1048576))";
        for _ in 0..2 * (WAL_BYTES >> 20) {
            if connection.execute(message).is_err() {
                return Ok(());
            }
        }
        Err(FailoverError::VolumeNotFull)
    }

    fn freeze_disk(&self) -> Result<&'static str, FailoverError> {
        let Some(volume) = &self.volume else { return Err(FailoverError::NoVolume) };
        let frozen = FrozenVolume::begin(volume)?;
        if !self.is_watched {
            self.call_hook(&[BESIDE_PRIMARY])?;
        }
        let is_promoted = self.is_promoted_within(self.frozen_at_most)?;
        if is_promoted {
            self.interrupt.wait(THAW_AFTER)?;
        }
        frozen.end()?;
        Ok(if is_promoted { "thawed after the promotion" } else { "thawed, with no promotion" })
    }

    fn is_promoted_within(&self, limit: Duration) -> Result<bool, FailoverError> {
        let mut connection = self.standby.connect("postgres")?;
        let end = Instant::now() + limit;
        loop {
            let row = connection.query_one("SELECT pg_is_in_recovery() AS standby")?;
            let is_promoted = row.text("standby")? == "f";
            if is_promoted || Instant::now() > end {
                connection.close();
                return Ok(is_promoted);
            }
            self.interrupt.wait(PAUSE)?;
        }
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

/// A frozen disk, which goes on when this is dropped.
struct FrozenVolume<'a>(Option<&'a Volume>);

impl<'a> FrozenVolume<'a> {
    fn begin(volume: &'a Volume) -> Result<Self, ClusterError> {
        volume.freeze()?;
        Ok(Self(Some(volume)))
    }

    fn end(mut self) -> Result<(), ClusterError> {
        self.0.take().map_or(Ok(()), Volume::thaw)
    }
}

impl Drop for FrozenVolume<'_> {
    fn drop(&mut self) {
        if let Some(volume) = self.0.take() {
            // Where that fails the volumes' keeper does it.
            let _ = volume.thaw();
        }
    }
}
