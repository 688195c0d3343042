//! Faults of the primary.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pgtoll_cluster::{
    Cluster, ClusterError, Guard, ProgramSignal, RunningPgbouncer, ServerProcesses, StopMode,
    Volume,
};
use pgtoll_record::FailoverFault;
use pgtoll_system::Interrupt;

use super::context::DATABASE;
use super::error::FailoverError;
use super::servers::{LIMIT, PAUSE, postmaster, until_within};
use super::site::{FaultSite, Handover, Response};
use super::volumes::WAL_BYTES;
use crate::link::LinkState;

/// The hook's argument for a planned switchover: waiting clients are kept.
pub(super) const HANDOVER: &str = "handover";

/// The hook's argument while the primary still answers: repmgr would refuse to promote beside it.
pub(super) const BESIDE_PRIMARY: &str = "beside-primary";

/// All that a fault needs, on a thread of its own.
pub(super) struct FaultAction {
    fault: FailoverFault,
    pub(super) site: FaultSite,
    /// A frozen disk continues, a cut link is healed, and an administrator comes, after this time.
    pub(super) limit: Duration,
    pub(super) interrupt: Interrupt,
    /// When what was done.
    pub(super) times: Arc<Mutex<FaultTimes>>,
}

/// When a fault began, and when an administrator ended it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultTimes {
    pub(super) began: Option<SystemTime>,
    pub(super) ended_by_hand: Option<SystemTime>,
    /// The end of a partition; the four others are as for other faults.
    pub(super) healed: Option<SystemTime>,
    pub(super) promoted: Option<SystemTime>,
    pub(super) old_primary_ended: Option<SystemTime>,
    pub(super) ended_old_primary_by_hand: bool,
}

/// A frozen primary continues when its successor has served clients for this long.
const THAW_AFTER: Duration = Duration::from_secs(1);

impl FaultAction {
    pub(super) fn new(
        fault: FailoverFault,
        site: FaultSite,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Self {
        Self { fault, site, limit, interrupt: interrupt.clone(), times: Arc::default() }
    }

    /// In the judge's words.
    pub(super) fn describe(&self) -> &'static str {
        match self.fault {
            FailoverFault::HostDeath => "death of the primary's host",
            FailoverFault::Postmaster => "SIGKILL to the primary's postmaster",
            FailoverFault::Freeze => "freeze of the primary's host, thaw after the promotion",
            FailoverFault::LinkCut => "cut of the link between primary and standby",
            FailoverFault::Partition => "partition between the primary's host and the standby's",
            FailoverFault::WalFull => "WAL until the primary's volume for it is full",
            FailoverFault::IoFreeze => "freeze of the primary's disk",
            FailoverFault::StandbyDeath => "death of the standby's host",
            FailoverFault::Switchover => "handover by plan",
            FailoverFault::WalsenderHang => "handover by plan while a receiver of WAL hangs",
        }
    }

    pub(super) fn act(self) -> Result<&'static str, FailoverError> {
        self.note(|times| times.began = Some(SystemTime::now()));
        match self.fault {
            FailoverFault::HostDeath => self.host_dies()?,
            FailoverFault::Postmaster => self.kill_postmaster()?,
            FailoverFault::Freeze => return self.freeze(),
            FailoverFault::LinkCut => {
                self.set_links(LinkState::Cut)?;
                if self.site.heals_cut {
                    return self.heal_cut();
                }
            }
            FailoverFault::Partition => return self.part(),
            FailoverFault::WalFull => self.fill_wal_volume()?,
            FailoverFault::IoFreeze => return self.freeze_disk(),
            FailoverFault::StandbyDeath => return self.standby_dies(),
            FailoverFault::Switchover => return self.hand_over(),
            FailoverFault::WalsenderHang => {
                self.hang_receiver()?;
                return self.hand_over();
            }
        }
        match &self.site.response {
            Response::Engine => Ok("done"),
            Response::Hook(script) => self.call_hook(script, &[]).map(|()| "done"),
            Response::ByHand => self.promote_by_hand(),
        }
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut FaultTimes)) {
        if let Ok(mut times) = self.times.lock() {
            change(&mut times);
        }
    }

    fn host_dies(&self) -> Result<(), FailoverError> {
        let site = &self.site;
        self.kill_host(
            &site.primary,
            site.postmaster,
            site.daemon.as_deref(),
            site.own_pooler.as_ref(),
        )
    }

    /// Stop all, then kill all: signals one by one would let some work without the others.
    fn kill_host(
        &self,
        server: &Cluster,
        postmaster: i32,
        daemon: Option<&str>,
        pooler: Option<&RunningPgbouncer>,
    ) -> Result<(), FailoverError> {
        let site = &self.site;
        let processes = ServerProcesses::from_postmaster(postmaster)?;
        if let (Some(abandoned), Some(daemon)) = (&site.abandoned, daemon) {
            abandoned.add(daemon);
        }
        let mut guard = pgtoll_system::lock(&site.guard);
        for program in pooler.map(RunningPgbouncer::name).into_iter().chain(daemon) {
            guard.signal(program, ProgramSignal::Stop)?;
        }
        processes.suspend()?;
        if let Some(link) = &site.link {
            // What is under way is lost.
            link.set_state(LinkState::Cut);
        }
        if site.is_managed {
            guard.remove_files(&processes.kill()?)?;
        } else {
            server.kill(&mut guard)?;
        }
        if let Some(pooler) = pooler {
            guard.signal(pooler.name(), ProgramSignal::Kill)?;
        }
        if let Some(daemon) = daemon {
            guard.reap(daemon, Duration::ZERO)?;
        }
        Ok(())
    }

    /// Commits that wait for the standby wait until the engine, or an administrator, says that they need
    /// not.
    fn standby_dies(&self) -> Result<&'static str, FailoverError> {
        let site = &self.site;
        let mut connection = site.primary.connect("postgres")?;
        self.kill_host(
            &site.standby,
            postmaster(&site.standby)?,
            site.standby_daemon.as_deref(),
            site.standby_pooler.as_ref(),
        )?;
        let end = Instant::now() + self.limit;
        loop {
            let row = connection
                .query_one("SELECT current_setting('synchronous_standby_names') AS names")?;
            if row.text("names")?.is_empty() {
                break;
            }
            if Instant::now() > end {
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")?;
                connection.execute("SELECT pg_reload_conf()")?;
                self.note(|times| times.ended_by_hand = Some(SystemTime::now()));
                break;
            }
            self.interrupt.wait(PAUSE)?;
        }
        connection.close();
        Ok("done")
    }

    /// From now on it confirms nothing, and there is more to send than the line to it holds: its walsender
    /// does not get on, and cannot be told that the server is to end.
    fn hang_receiver(&self) -> Result<(), FailoverError> {
        let site = &self.site;
        let Some(receiver) = &site.receiver else { return Err(FailoverError::NoReceiver) };
        pgtoll_system::lock(&site.guard).signal(receiver, ProgramSignal::Stop)?;
        let mut connection = site.primary.connect("postgres")?;
        connection.execute(
            "SELECT pg_logical_emit_message(false, 'pgtoll', repeat('x', 16 * 1024 * 1024))",
        )?;
        connection.close();
        Ok(())
    }

    fn kill_postmaster(&self) -> Result<(), FailoverError> {
        let site = &self.site;
        if site.is_managed {
            ServerProcesses::from_postmaster(site.postmaster)?.kill_postmaster()?;
        } else {
            site.primary.kill_postmaster(&mut pgtoll_system::lock(&site.guard))?;
        }
        Ok(())
    }

    pub(super) fn set_links(&self, state: LinkState) -> Result<(), FailoverError> {
        let site = &self.site;
        for link in site.link.iter().chain(&site.other_link).chain(&site.cut.client_links) {
            link.set_state(state);
        }
        let Some((network, cut)) = &site.cut.network else { return Ok(()) };
        let mut guard = pgtoll_system::lock(&site.guard);
        match state {
            LinkState::Open => network.heal(&mut guard, *cut)?,
            LinkState::Silent | LinkState::Cut => network.cut(&mut guard, *cut)?,
        }
        Ok(())
    }

    /// Nobody is expected to promote the standby: it has no majority, or there is no engine.
    fn heal_cut(&self) -> Result<&'static str, FailoverError> {
        if self.is_promoted_within(self.limit)? {
            if self.site.cut.network.is_some() {
                // The engine brings the old primary back over it.
                self.set_links(LinkState::Open)?;
            }
            return Ok("the standby was promoted all the same");
        }
        self.set_links(LinkState::Open)?;
        self.note_hand();
        Ok("healed, with no promotion")
    }

    fn freeze(&self) -> Result<&'static str, FailoverError> {
        let site = &self.site;
        let processes = ServerProcesses::from_postmaster(site.postmaster)?;
        self.signal_programs(&mut pgtoll_system::lock(&site.guard), ProgramSignal::Stop)?;
        processes.suspend()?;
        if let Response::Hook(script) = &site.response {
            self.call_hook(script, &[])?;
        }
        let promoted = if self.is_by_hand() {
            self.is_promoted_within(self.limit).map(|_| "thawed, with no promotion")
        } else {
            self.wait_for_promotion().map(|()| "thawed after the promotion")
        };
        processes.resume()?;
        self.signal_programs(&mut pgtoll_system::lock(&site.guard), ProgramSignal::Continue)?;
        self.note_hand();
        promoted
    }

    /// Until the standby is promoted, and a moment longer.
    fn wait_for_promotion(&self) -> Result<(), FailoverError> {
        let mut connection = self.site.standby.connect("postgres")?;
        let limit = LIMIT.max(self.limit);
        until_within("the standby was not promoted", limit, &self.interrupt, || {
            let row = connection.query_one("SELECT pg_is_in_recovery() AS standby")?;
            let is_standby = row.text("standby")? == "t";
            Ok(is_standby.then(|| "still a standby".to_owned()))
        })?;
        connection.close();
        self.interrupt.wait(THAW_AFTER)?;
        Ok(())
    }

    /// Writes WAL until the server ends all of its sessions, since it cannot write more.
    fn fill_wal_volume(&self) -> Result<(), FailoverError> {
        let mut connection = self.site.primary.connect("postgres")?;
        let message = "SELECT pg_logical_emit_message(false, 'pgtoll', repeat('x', 1048576))";
        for _ in 0..2 * (WAL_BYTES >> 20) {
            if connection.execute(message).is_err() {
                return Ok(());
            }
        }
        Err(FailoverError::VolumeNotFull)
    }

    fn freeze_disk(&self) -> Result<&'static str, FailoverError> {
        let Some(volume) = &self.site.volume else { return Err(FailoverError::NoVolume) };
        let frozen = FrozenVolume::begin(volume)?;
        if let Response::Hook(script) = &self.site.response {
            self.call_hook(script, &[BESIDE_PRIMARY])?;
        }
        let is_promoted = self.is_promoted_within(self.limit)?;
        if is_promoted {
            self.interrupt.wait(THAW_AFTER)?;
        }
        frozen.end()?;
        self.note_hand();
        Ok(if is_promoted { "thawed after the promotion" } else { "thawed, with no promotion" })
    }

    fn is_promoted_within(&self, limit: Duration) -> Result<bool, FailoverError> {
        let mut connection = self.site.standby.connect("postgres")?;
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

    fn is_by_hand(&self) -> bool {
        matches!(self.site.response, Response::ByHand)
    }

    /// An administrator has just ended the outage, if nobody else would.
    fn note_hand(&self) {
        if self.is_by_hand() {
            self.note(|times| times.ended_by_hand = Some(SystemTime::now()));
        }
    }

    /// After the time for which clients are watched.
    fn promote_by_hand(&self) -> Result<&'static str, FailoverError> {
        self.interrupt.wait(self.limit)?;
        let standby = &self.site.standby;
        let mut connection = standby.connect("postgres")?;
        // Nobody is left to confirm commits.
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")?;
        connection.execute("SELECT pg_reload_conf()")?;
        connection.close();
        self.note_hand();
        standby.promote()?;
        Ok("promoted by hand")
    }

    fn hand_over(&self) -> Result<&'static str, FailoverError> {
        match &self.site.handover {
            Handover::Poolers { poolers, hook } => {
                // Clients wait there meanwhile.
                for pooler in poolers {
                    let mut console = pooler.console()?;
                    console.execute(&format!("PAUSE {DATABASE}"))?;
                    console.close();
                }
                self.site
                    .primary
                    .stop(&mut pgtoll_system::lock(&self.site.guard), StopMode::Fast)?;
                self.call_hook(hook, &[HANDOVER])?;
            }
            Handover::Command { program, arguments } => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                pgtoll_system::lock(&self.site.guard).run(program, &arguments)?;
            }
            Handover::Nobody => return Err(FailoverError::NoHandover),
        }
        Ok("handed over")
    }

    /// Calls the hook, as repmgrd does after it has noticed.
    pub(super) fn call_hook(&self, script: &Path, arguments: &[&str]) -> Result<(), FailoverError> {
        let script = script.to_string_lossy();
        let mut guard = pgtoll_system::lock(&self.site.guard);
        guard.run(Path::new("/bin/sh"), &[&[&*script], arguments].concat())?;
        Ok(())
    }

    /// Programs on the primary's host beside its server.
    fn signal_programs(
        &self,
        guard: &mut Guard,
        signal: ProgramSignal,
    ) -> Result<(), FailoverError> {
        if let Some(pooler) = &self.site.own_pooler {
            guard.signal(pooler.name(), signal)?;
        }
        if let Some(daemon) = &self.site.daemon {
            guard.signal(daemon, signal)?;
        }
        Ok(())
    }
}

/// A frozen disk, which continues when this is dropped.
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
