//! Parts of topologies whose servers an engine starts: in a network of their own, reached from
//! outside by their Unix sockets.
//! outside by their Unix sockets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pgtoll_cluster::{Cluster, EngineDaemon, Guard, PrivateNetwork};
use pgtoll_record::{FailoverFault, JudgedEvent};
use pgtoll_system::Interrupt;

use super::context::RunContext;
use super::error::FailoverError;
use super::partition::is_cut;
use super::rejoin_steps::{RejoinSteps, STREAMING};
use super::servers::{postmaster, until, until_within};
use super::site::{CutSite, FaultSite, Handover, Response};
use super::topology::TopologyPair;

/// A primary and a standby, and the daemon of an engine beside each.
pub(super) struct ManagedPair {
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) network: PrivateNetwork,
    pub(super) primary: Cluster,
    postmaster: i32,
    pub(super) standby: Cluster,
    /// The primary's, then the standby's.
    pub(super) daemons: [EngineDaemon; 2],
    /// By which names standbys call themselves, in the same order.
    standby_names: [String; 2],
    is_synchronous: bool,
    /// The links that a fault cuts between hosts.
    pub(super) cut: CutSite,
}

impl ManagedPair {
    /// Makes the topology of running servers.
    pub(super) fn new(
        context: &RunContext<'_>,
        network: PrivateNetwork,
        [primary, standby]: [Cluster; 2],
        daemons: [EngineDaemon; 2],
        standby_names: [String; 2],
    ) -> Result<Self, FailoverError> {
        let guard = context.guard.clone();
        let postmaster = postmaster(&primary)?;
        let is_synchronous = context.plan.synchronous;
        Ok(Self {
            guard,
            network,
            primary,
            postmaster,
            standby,
            daemons,
            standby_names,
            is_synchronous,
            cut: CutSite::default(),
        })
    }

    /// Returns the objects that a fault can reach; this command does a planned switchover.
    pub(super) fn fault_site(&self, (program, arguments): (PathBuf, Vec<String>)) -> FaultSite {
        FaultSite {
            guard: self.guard.clone(),
            primary: self.primary.clone(),
            postmaster: self.postmaster,
            is_managed: true,
            standby: self.standby.clone(),
            daemon: Some(self.daemons[0].name().to_owned()),
            abandoned: None,
            own_pooler: None,
            standby_daemon: Some(self.daemons[1].name().to_owned()),
            standby_pooler: None,
            receiver: None,
            link: None,
            other_link: None,
            cut: self.cut.clone(),
            heals_cut: true,
            volume: None,
            response: Response::Engine,
            handover: Handover::Command { program, arguments },
        }
    }

    /// As the host's service manager would: the engine does the rest.
    pub(super) fn bring_back(
        &self,
        interrupt: &Interrupt,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        if self.daemons[0].start_ended(&mut pgtoll_system::lock(&self.guard))? {
            steps.done("start");
        }
        wait_for_standby(&self.standby, &self.standby_names[0], self.is_synchronous, interrupt)?;
        steps.done(STREAMING);
        Ok(())
    }

    /// The standby is the primary from now on, and the old primary, which was stopped, its standby.
    pub(super) fn exchange_roles(&mut self, interrupt: &Interrupt) -> Result<(), FailoverError> {
        self.daemons[0].start(&mut pgtoll_system::lock(&self.guard))?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.daemons.reverse();
        self.standby_names.reverse();
        wait_for_standby(&self.primary, &self.standby_names[1], self.is_synchronous, interrupt)?;
        self.postmaster = postmaster(&self.primary)?;
        Ok(())
    }

    /// Ends and removes all of it.
    pub(super) fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        for (daemon, server) in self.daemons.iter().zip([&self.primary, &self.standby]) {
            daemon.kill_with(guard, server);
        }
        self.network.end(guard)?;
        for server in [self.standby, self.primary] {
            server.remove(guard)?;
        }
        Ok(())
    }
}

impl TopologyPair for ManagedPair {
    fn primary(&self) -> &Cluster {
        &self.primary
    }

    fn standby(&self) -> &Cluster {
        &self.standby
    }

    /// As the host's service manager would.
    fn return_standby(
        &self,
        interrupt: &Interrupt,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        self.daemons[1].start_ended(&mut pgtoll_system::lock(&self.guard))?;
        steps.done("start");
        wait_for_standby(&self.primary, &self.standby_names[1], self.is_synchronous, interrupt)?;
        steps.done(STREAMING);
        Ok(())
    }

    /// Its daemon, too.
    fn stop_old_primary(&self) -> Result<(), FailoverError> {
        self.daemons[0].stop(&mut pgtoll_system::lock(&self.guard))?;
        Ok(())
    }
}

/// How long an engine may take until a server streams: some of its loops, and a rewind.
pub(super) const STREAMING_LIMIT: Duration = Duration::from_secs(180);

/// A network that can be used: with hosts of their own where the fault cuts some off.
pub(super) fn begin_network(
    guard: &mut Guard,
    fault: FailoverFault,
    hosts: &[u8],
    interrupt: &Interrupt,
) -> Result<PrivateNetwork, FailoverError> {
    let mut network = if is_cut(fault) {
        PrivateNetwork::begin_with_switch(guard, "network", hosts)?
    } else {
        PrivateNetwork::begin(guard, "network")?
    };
    until("the engine's network did not come up", interrupt, || {
        Ok((!network.is_up(guard)?).then(|| "not up".to_owned()))
    })?;
    Ok(network)
}

/// Waits until the server takes writes.
pub(super) fn wait_for_primary(
    guard: &mut Guard,
    daemon: &EngineDaemon,
    server: &Cluster,
    interrupt: &Interrupt,
) -> Result<(), FailoverError> {
    until("the engine did not make a primary", interrupt, || {
        daemon.check(guard)?;
        let mut connection = match server.connect("postgres") {
            Ok(connection) => connection,
            Err(error) => return Ok(Some(pgtoll_system::error_chain(&error))),
        };
        let row = connection.query_one("SELECT pg_is_in_recovery() AS standby")?;
        let is_standby = row.text("standby")? == "t";
        connection.close();
        Ok(is_standby.then(|| "a standby".to_owned()))
    })
}

/// Waits until the standby streams from the primary, and if commits are to wait for it, until they do.
pub(super) fn wait_for_standby(
    primary: &Cluster,
    name: &str,
    is_synchronous: bool,
    interrupt: &Interrupt,
) -> Result<(), FailoverError> {
    let mut connection = primary.connect("postgres")?;
    let sql = format!(
        "SELECT coalesce(string_agg(state || ' ' || sync_state, ', '), 'not connected') AS state \
         FROM pg_stat_replication WHERE application_name = '{name}'"
    );
    until_within("the standby did not stream", STREAMING_LIMIT, interrupt, || {
        let state = connection.query_one(&sql)?.text("state")?.to_owned();
        let is_there = match state.split_once(' ') {
            Some(("streaming", sync)) => (sync != "async") == is_synchronous,
            _ => false,
        };
        Ok((!is_there).then_some(state))
    })?;
    connection.close();
    Ok(())
}

/// When a server was promoted: the begin of its newest timeline.
pub(super) fn promoted_at(server: &Cluster) -> Option<SystemTime> {
    let files = fs::read_dir(server.data().join("pg_wal")).ok()?.flatten();
    let histories = files.filter(|file| file.file_name().to_string_lossy().ends_with(".history"));
    let times = histories.filter_map(|file| file.metadata().ok()?.modified().ok());
    times.max()
}

/// Seconds from one time to another one.
pub(super) fn seconds_after(began: SystemTime, time: SystemTime) -> Option<f64> {
    time.duration_since(began).ok().map(|time| time.as_secs_f64())
}

/// The end of a log.
pub(super) fn end_of_log(guard: &mut Guard, log: &Path) -> String {
    // As the servers' user: it could have put a link there.
    let printed = guard.run(Path::new("cat"), &[&log.to_string_lossy()]);
    printed.map(|output| output.tail).unwrap_or_default()
}

/// Events in the order of time, without repetitions of what was reported just before.
pub(super) fn in_order(mut events: Vec<JudgedEvent>) -> Vec<JudgedEvent> {
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events.dedup_by(|later, earlier| later.what == earlier.what);
    events.truncate(EVENTS_MAX);
    events
}

/// An engine that retries reports a lot.
const EVENTS_MAX: usize = 60;
