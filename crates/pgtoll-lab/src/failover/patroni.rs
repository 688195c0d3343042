//! Patroni: a daemon beside each server, etcd on a host of its own, and `HAProxy` as the only way in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgtoll_cluster::{
    Cluster, Guard, Haproxy, HaproxyChecks, Patroni, PatroniSettings, RunningEtcd, RunningHaproxy,
};
use pgtoll_record::{FailoverDetector, FailoverFault, FailoverRun, JudgedEvent};
use pgtoll_wire::Dsn;

use super::PatroniPrograms;
use super::context::{DATABASE, NODES, RunContext};
use super::error::FailoverError;
use super::managed::{
    ManagedPair, begin_network, end_of_log, in_order, promoted_at, seconds_after, wait_for_primary,
    wait_for_standby,
};
use super::partition::{judge_sides, network_cut};
use super::rejoin_steps::RejoinSteps;
use super::servers::until;
use super::site::FaultSite;
use super::topology::{Topology, TopologyPair};
use crate::JudgeSide;

/// Addresses: etcd's, then each server's.
const ETCD: u8 = 10;
const HOSTS: [(&str, u8); 2] = [(NODES[0], 11), (NODES[1], 12)];

/// Patroni's times, and the checks of the proxy in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatroniTimes {
    pub(super) ttl_s: u32,
    pub(super) loop_wait_s: u32,
    pub(super) retry_timeout_s: u32,
    pub(super) primary_start_timeout_s: u32,
    pub(super) checks: HaproxyChecks,
}

impl PatroniTimes {
    /// Defaults, and the least that Patroni's documentation allows ("Dynamic Configuration Settings": ttl
    /// at least 20, `loop_wait` 1, `retry_timeout` 3; `primary_start_timeout` 0 fails over at once). The
    /// checks: those of the template for `HAProxy` that comes with Patroni, and twice a second.
    pub(super) fn from_detector(detector: FailoverDetector) -> Self {
        match detector {
            FailoverDetector::Default => Self {
                ttl_s: 30,
                loop_wait_s: 10,
                retry_timeout_s: 10,
                primary_start_timeout_s: 300,
                checks: HaproxyChecks { interval_ms: 3000, fall: 3, rise: 2 },
            },
            FailoverDetector::Fast | FailoverDetector::None => Self {
                ttl_s: 20,
                loop_wait_s: 1,
                retry_timeout_s: 3,
                primary_start_timeout_s: 0,
                checks: HaproxyChecks { interval_ms: 500, fall: 1, rise: 1 },
            },
        }
    }
}

/// A topology that Patroni looks after.
pub(super) struct PatroniTopology {
    pair: ManagedPair,
    patroni: Patroni,
    etcd: RunningEtcd,
    haproxy: RunningHaproxy,
    /// On the primary's side of a partition.
    other_haproxy: Option<RunningHaproxy>,
}

impl PatroniTopology {
    pub(super) fn start(
        context: &RunContext<'_>,
        programs: &PatroniPrograms,
        fault: FailoverFault,
        detector: FailoverDetector,
    ) -> Result<Self, FailoverError> {
        let times = PatroniTimes::from_detector(detector);
        let interrupt = context.interrupt;
        let mut guard = pgtoll_system::lock(context.guard);
        let network = begin_network(&mut guard, fault, &[ETCD, HOSTS[0].1, HOSTS[1].1], interrupt)?;
        let etcd = programs.etcd.start(&mut guard, &network, ETCD)?;
        let primary = context.template.copy(&mut guard, NODES[0])?;
        let standby = Cluster::empty(&mut guard, context.installation, NODES[1])?;
        let mut daemon = |cluster: &Cluster, (_, host)| {
            let settings = settings(context, times, host);
            programs.patroni.node(&mut guard, &network, cluster, &settings)
        };
        let daemons = [daemon(&primary, HOSTS[0])?, daemon(&standby, HOSTS[1])?];
        until("etcd did not start", interrupt, || {
            Ok((!etcd.is_ready(&mut guard)?).then(|| "not ready".to_owned()))
        })?;
        daemons[0].start(&mut guard)?;
        wait_for_primary(&mut guard, &daemons[0], &primary, interrupt)?;
        daemons[1].start(&mut guard)?;
        wait_for_standby(&primary, NODES[1], context.plan.synchronous, interrupt)?;
        wait_for_candidate(context, &mut guard, &primary, NODES[1])?;
        let is_parted = fault == FailoverFault::Partition;
        let mut proxy = |name, host| {
            programs.haproxy.start(&mut guard, name, &network, host, times.checks, &HOSTS)
        };
        let haproxy = proxy("haproxy", if is_parted { HOSTS[1].1 } else { ETCD })?;
        let other_haproxy = is_parted.then(|| proxy("haproxy-primary", HOSTS[0].1)).transpose()?;
        for proxy in [Some(&haproxy), other_haproxy.as_ref()].into_iter().flatten() {
            until("HAProxy did not notice that the standby is one", interrupt, || {
                let log = guard.program_log(proxy.name());
                let log = end_of_log(&mut guard, &log);
                Ok((!log.contains(&format!("/{} is DOWN", NODES[1]))).then_some(log))
            })?;
        }
        drop(guard);
        let names = NODES.map(str::to_owned);
        let cut = network_cut(fault, HOSTS.map(|(_, host)| host));
        let cut = cut.map(|cut| (network.clone(), cut));
        let mut pair = ManagedPair::new(context, network, [primary, standby], daemons, names)?;
        pair.cut.network = cut;
        Ok(Self { pair, patroni: programs.patroni.clone(), etcd, haproxy, other_haproxy })
    }
}

impl PatroniTopology {
    /// Returns the actions of the daemon beside the old primary, without its failures to reach etcd.
    fn events_of_primary(&self, began: SystemTime) -> Vec<JudgedEvent> {
        let primary = &self.pair.primary;
        let log = end_of_log(&mut pgtoll_system::lock(&self.pair.guard), &Patroni::log(primary));
        let done: Vec<&str> = log.lines().filter(|line| line.contains(" INFO: ")).collect();
        patroni_events(&done.join("\n"), primary.name(), began)
    }
}

/// The way in by a proxy.
fn way_by(proxy: &RunningHaproxy) -> Result<Dsn, FailoverError> {
    let host = proxy.directory().display();
    let port = Haproxy::PORT;
    Ok(format!("host='{host}' port={port} user=postgres dbname={DATABASE}").parse()?)
}

/// Waits until Patroni would promote the standby. With synchronous replication that is some seconds after
/// commits wait for it: only then etcd has its name.
fn wait_for_candidate(
    context: &RunContext<'_>,
    guard: &mut Guard,
    primary: &Cluster,
    standby: &str,
) -> Result<(), FailoverError> {
    if !context.plan.synchronous {
        return Ok(());
    }
    until("Patroni did not make the standby a synchronous one", context.interrupt, || {
        let log = end_of_log(guard, &Patroni::log(primary));
        let last =
            log.lines().rfind(|line| line.contains("Synchronous standby status assigned to"));
        Ok((!last.is_some_and(|line| line.contains(standby))).then(|| "not assigned".to_owned()))
    })
}

fn settings(context: &RunContext<'_>, times: PatroniTimes, host: u8) -> PatroniSettings {
    let mut parameters = context.settings.clone();
    // The one is repmgr's, the other Patroni's own.
    parameters.remove("shared_preload_libraries");
    parameters.remove("synchronous_standby_names");
    PatroniSettings {
        host,
        etcd: ETCD,
        ttl_s: times.ttl_s,
        loop_wait_s: times.loop_wait_s,
        retry_timeout_s: times.retry_timeout_s,
        primary_start_timeout_s: times.primary_start_timeout_s,
        synchronous: context.plan.synchronous,
        parameters,
    }
}

impl Topology for PatroniTopology {
    fn pair(&self) -> &dyn TopologyPair {
        &self.pair
    }

    fn dsn(&self) -> Result<Dsn, FailoverError> {
        way_by(&self.haproxy)
    }

    fn sides(&self) -> Result<Vec<JudgeSide>, FailoverError> {
        let Some(other) = &self.other_haproxy else { return Ok(Vec::new()) };
        Ok(judge_sides([way_by(other)?, way_by(&self.haproxy)?]))
    }

    fn fault_site(&self) -> Result<FaultSite, FailoverError> {
        let pair = &self.pair;
        let command = self.patroni.switchover(&pair.network, ETCD, &pair.primary, &pair.standby);
        Ok(pair.fault_site(command))
    }

    fn report(&self, run: &mut FailoverRun, began: SystemTime) {
        let standby = &self.pair.standby;
        let survivor =
            if run.fault == FailoverFault::StandbyDeath { &self.pair.primary } else { standby };
        let (log, proxied) = {
            let mut guard = pgtoll_system::lock(&self.pair.guard);
            let log = end_of_log(&mut guard, &Patroni::log(survivor));
            let of_proxy = guard.program_log(self.haproxy.name());
            (log, end_of_log(&mut guard, &of_proxy))
        };
        let own = patroni_events(&log, survivor.name(), began);
        run.noticed_s = own.first().map(|event| event.at_s);
        run.promoted_s = promoted_at(standby).and_then(|time| seconds_after(began, time));
        let proxied = haproxy_events(&proxied, began);
        let up = format!("/{} is UP", standby.name());
        run.routed_s =
            proxied.iter().find(|proxied| proxied.what.contains(&up)).map(|proxied| proxied.at_s);
        let of_primary = self.other_haproxy.as_ref().map(|_| self.events_of_primary(began));
        run.steps = in_order([own, proxied, of_primary.unwrap_or_default()].concat());
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
        let mut guard = pgtoll_system::lock(&self.pair.guard);
        let standby = self.pair.standby.name();
        wait_for_candidate(context, &mut guard, &self.pair.primary, standby)
    }

    fn remove(self: Box<Self>) -> Result<(), FailoverError> {
        let guard = self.pair.guard.clone();
        let mut guard = pgtoll_system::lock(&guard);
        self.haproxy.remove(&mut guard)?;
        if let Some(other) = &self.other_haproxy {
            other.remove(&mut guard)?;
        }
        self.etcd.remove(&mut guard)?;
        self.pair.remove(&mut guard)
    }
}

/// Returns events from lines like `1795470502.724124 INFO: promoted self to leader by acquiring session lock`: what the
/// daemon beside this server reported since the fault, but for loops in which it did nothing.
fn patroni_events(text: &str, name: &str, began: SystemTime) -> Vec<JudgedEvent> {
    let event = |line: &str| {
        let (time, rest) = line.split_once(' ')?;
        let (_, subject) = rest.split_once(": ")?;
        let time = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(time.parse().ok()?).ok()?)?;
        let is_idle = subject.starts_with("no action") || subject.starts_with("Lock owner");
        let at_s = seconds_after(began, time).filter(|_| !is_idle)?;
        // What Python says of a connection that was refused is of no use to a reader.
        let label = subject.split(" (HTTPConnectionPool").next().unwrap_or(subject);
        Some(JudgedEvent { at_s, what: format!("{name}: {label}") })
    };
    text.lines().filter_map(event).collect()
}

/// Returns the proxy's reports since the fault, from lines that begin with a time.
fn haproxy_events(text: &str, began: SystemTime) -> Vec<JudgedEvent> {
    let event = |line: &str| {
        let (time, subject) = line.split_once(' ')?;
        let time = SystemTime::from(time.parse::<jiff::Timestamp>().ok()?);
        let label = subject.split(", reason: ").next().unwrap_or(subject).trim();
        Some(JudgedEvent { at_s: seconds_after(began, time)?, what: format!("HAProxy: {label}") })
    };
    text.lines().filter_map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_from_the_fault_and_idle_loops_are_none() {
        let text = "999.500000 INFO: no action. I am (node2), a secondary\n\
                    1001.250000 INFO: promoted self to leader by acquiring session lock\n\
                    server promoting\n\
                    1001.500000 INFO: no action. I am (node2), the leader with the lock\n";
        let began = UNIX_EPOCH + Duration::from_secs(1000);
        let events = patroni_events(text, "node2", began);
        let [promoted] = &events[..] else { panic!("{events:?}") };
        assert!((promoted.at_s - 1.25).abs() < 1e-6);
        assert_eq!(promoted.what, "node2: promoted self to leader by acquiring session lock");
    }

    #[test]
    fn the_proxy_says_which_server_is_up() {
        let text = "1970-01-01T00:16:41.500000+00:00 Server postgres/node2 is UP, reason: Layer7 \
                    check passed, code: 200. 1 active\n[NOTICE] (1) : New worker forked\n";
        let began = UNIX_EPOCH + Duration::from_secs(1000);
        let events = haproxy_events(text, began);
        let [up] = &events[..] else { panic!("{events:?}") };
        assert_eq!((up.at_s, &*up.what), (1.5, "HAProxy: Server postgres/node2 is UP"));
    }

    #[test]
    fn the_times_keep_patronis_rule() {
        for detector in [FailoverDetector::Default, FailoverDetector::Fast] {
            let times = PatroniTimes::from_detector(detector);
            assert!(times.loop_wait_s + 2 * times.retry_timeout_s <= times.ttl_s, "{times:?}");
        }
    }
}
