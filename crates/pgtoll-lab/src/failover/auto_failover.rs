//! `pg_auto_failover`: a monitor on a host of its own, a daemon beside each server, and clients that know
//! both servers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgtoll_cluster::{AutoFailover, AutoFailoverSettings, Cluster, EngineDaemon, Guard};
use pgtoll_record::{FailoverDetector, FailoverFault, FailoverRun, JudgedEvent};
use pgtoll_wire::{Connection, Dsn};

use super::context::{NODES, RunContext};
use super::error::FailoverError;
use super::managed::{
    ManagedPair, begin_network, in_order, promoted_at, seconds_after, wait_for_primary,
    wait_for_standby,
};
use super::partition::{CrossLinks, judge_sides, network_cut};
use super::rejoin_steps::RejoinSteps;
use super::servers::{both_servers, until};
use super::site::{CutSite, FaultSite};
use super::topology::{Topology, TopologyPair};
use crate::JudgeSide;

/// Addresses: the monitor's, then each server's.
const MONITOR: u8 = 10;
const HOSTS: [u8; 2] = [11, 12];
/// The name of the monitor's server.
const MONITOR_NAME: &str = "monitor";

/// How long a primary that is cut off may live: its keeper ends it when it had neither the monitor nor a standby
/// for 20 s (`network_partition_timeout`); a standby that fell silent is one for 30 s (`wal_sender_timeout`).
pub(super) const ENDS_PRIMARY_WITHIN: Duration = Duration::from_secs(70);

/// The monitor's times, in milliseconds, and its retries.
pub(super) fn monitor_settings(detector: FailoverDetector) -> BTreeMap<String, String> {
    // By the names in the documentation's chapter "Configuring pg_auto_failover".
    let names = [
        "health_check_period",
        "health_check_timeout",
        "health_check_max_retries",
        "health_check_retry_delay",
        "node_considered_unhealthy_timeout",
        "primary_demote_timeout",
    ];
    let values: [u32; 6] = match detector {
        // What version 2.0 does unless told otherwise.
        FailoverDetector::Default => [5000, 5000, 2, 2000, 20_000, 30_000],
        // The documentation names no shortest times; these found a dead host in three seconds.
        FailoverDetector::Fast | FailoverDetector::None => [1000, 1000, 1, 500, 3000, 2000],
    };
    let names = names.map(|name| format!("pgautofailover.{name}"));
    names.into_iter().zip(values.map(|value| value.to_string())).collect()
}

/// How often the monitor looks at a server.
pub(super) fn health_check_period(detector: FailoverDetector) -> Duration {
    let settings = monitor_settings(detector);
    let ms = settings.get("pgautofailover.health_check_period").and_then(|ms| ms.parse().ok());
    Duration::from_millis(ms.unwrap_or_default())
}

/// A topology that `pg_auto_failover` looks after.
pub(super) struct AutoFailoverTopology {
    pair: ManagedPair,
    /// The links of a partition.
    cross: Option<CrossLinks>,
    monitor: Monitor,
}

/// A monitor that runs.
struct Monitor {
    program: AutoFailover,
    cluster: Cluster,
    daemon: EngineDaemon,
    /// Its superuser is named as the servers' user of the system is.
    role: String,
}

impl AutoFailoverTopology {
    pub(super) fn start(
        context: &RunContext<'_>,
        program: &AutoFailover,
        fault: FailoverFault,
        detector: FailoverDetector,
    ) -> Result<Self, FailoverError> {
        let interrupt = context.interrupt;
        let synchronous = context.plan.synchronous;
        let mut guard = pgtoll_system::lock(context.guard);
        let network = begin_network(&mut guard, fault, &[MONITOR, HOSTS[0], HOSTS[1]], interrupt)?;
        let cluster = Cluster::empty(&mut guard, context.installation, MONITOR_NAME)?;
        let daemon = program.monitor(&mut guard, &network, &cluster, MONITOR)?;
        let role = guard.user().name.clone();
        let monitor = Monitor { program: program.clone(), cluster, daemon, role };
        monitor.daemon.start(&mut guard)?;
        until("the monitor did not start", interrupt, || {
            monitor.daemon.check(&mut guard)?;
            Ok(monitor.connect().err().map(|error| pgtoll_system::error_chain(&error)))
        })?;
        monitor.configure(detector)?;
        let primary = context.template.copy(&mut guard, NODES[0])?;
        let standby = Cluster::empty(&mut guard, context.installation, NODES[1])?;
        let settings = |host| AutoFailoverSettings { host, monitor: MONITOR, synchronous };
        let first = program.node(&mut guard, &network, &primary, settings(HOSTS[0]))?;
        first.start(&mut guard)?;
        wait_for_primary(&mut guard, &first, &primary, interrupt)?;
        let second = program.node(&mut guard, &network, &standby, settings(HOSTS[1]))?;
        second.start(&mut guard)?;
        let names = [1, 2].map(|number| format!("pgautofailover_standby_{number}"));
        wait_for_standby(&primary, &names[1], synchronous, interrupt)?;
        monitor.wait_for_states(&mut guard, context)?;
        let is_parted = fault == FailoverFault::Partition;
        let cross = is_parted.then(|| CrossLinks::open(&mut guard, &primary, &standby));
        let cross = cross.transpose()?;
        drop(guard);
        let cut = CutSite {
            network: network_cut(fault, HOSTS).map(|cut| (network.clone(), cut)),
            client_links: cross.as_ref().map(CrossLinks::links).unwrap_or_default(),
            ends_within: ENDS_PRIMARY_WITHIN,
            route: None,
        };
        let servers = [primary, standby];
        let daemons = [first, second];
        let mut pair = ManagedPair::new(context, network, servers, daemons, names)?;
        pair.cut = cut;
        Ok(Self { pair, cross, monitor })
    }
}

impl Monitor {
    fn connect(&self) -> Result<Connection, pgtoll_wire::Error> {
        self.program.connect_to_monitor(&self.cluster, &self.role)
    }

    fn configure(&self, detector: FailoverDetector) -> Result<(), FailoverError> {
        let mut connection = self.connect()?;
        for (name, value) in monitor_settings(detector) {
            connection.execute(&format!("ALTER SYSTEM SET {name} = {value}"))?;
        }
        connection.execute("SELECT pg_reload_conf()")?;
        connection.close();
        Ok(())
    }

    /// Waits until the monitor would promote the standby.
    fn wait_for_states(
        &self,
        guard: &mut Guard,
        context: &RunContext<'_>,
    ) -> Result<(), FailoverError> {
        let mut connection = self.connect()?;
        let sql = "SELECT coalesce(string_agg(reportedstate::text, ', ' ORDER BY reportedstate::text), \
                   '') AS states FROM pgautofailover.node";
        until("the monitor did not see a primary and a secondary", context.interrupt, || {
            self.daemon.check(guard)?;
            let states = connection.query_one(sql)?.text("states")?.to_owned();
            Ok((states != "primary, secondary").then_some(states))
        })?;
        connection.close();
        Ok(())
    }

    /// Returns its reports since the fault.
    fn events(&self, began: SystemTime) -> Result<Vec<JudgedEvent>, FailoverError> {
        let mut connection = self.connect()?;
        let since = seconds_after(UNIX_EPOCH, began).unwrap_or_default();
        let sql = format!(
            "SELECT (extract(epoch FROM eventtime) - {since:.6})::text AS at, description \
             FROM pgautofailover.event WHERE eventtime >= to_timestamp({since:.6}) ORDER BY eventid"
        );
        let mut events = Vec::new();
        connection.query_each(&sql, |row, _| {
            let at_s = row.parse("at")?;
            let label = format!("{MONITOR_NAME}: {}", row.text("description")?);
            events.push(JudgedEvent { at_s, what: label });
            Ok(())
        })?;
        connection.close();
        Ok(events)
    }

    fn remove(self, guard: &mut Guard) -> Result<(), FailoverError> {
        self.daemon.kill_with(guard, &self.cluster);
        self.cluster.remove(guard)?;
        Ok(())
    }
}

impl Topology for AutoFailoverTopology {
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
        Ok(pair.fault_site(self.monitor.program.switchover(
            &pair.network,
            MONITOR,
            &pair.primary,
        )?))
    }

    fn report(&self, run: &mut FailoverRun, began: SystemTime) {
        let events = self.monitor.events(began).unwrap_or_default();
        run.noticed_s = events.first().map(|event| event.at_s);
        run.promoted_s =
            promoted_at(&self.pair.standby).and_then(|time| seconds_after(began, time));
        run.steps = in_order(events);
    }

    fn bring_back(
        &self,
        context: &RunContext<'_>,
        _fault: FailoverFault,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        self.pair.bring_back(context.interrupt, steps)
    }

    fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError> {
        self.pair.exchange_roles(context.interrupt)?;
        self.monitor.wait_for_states(&mut pgtoll_system::lock(&self.pair.guard), context)
    }

    fn remove(self: Box<Self>) -> Result<(), FailoverError> {
        let guard = self.pair.guard.clone();
        let mut guard = pgtoll_system::lock(&guard);
        self.monitor.remove(&mut guard)?;
        self.pair.remove(&mut guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_times_are_shorter_than_the_defaults() {
        let default = monitor_settings(FailoverDetector::Default);
        let fast = monitor_settings(FailoverDetector::Fast);
        assert!(default.keys().eq(fast.keys()));
        let number = |text: &String| text.parse::<u32>().unwrap();
        assert!(default.iter().all(|(name, value)| number(&fast[name]) < number(value)));
    }
}
