//! repmgr: repmgrd beside a primary and a standby, and poolers as the only way in.

mod hook;
mod supervisor;
mod third;
mod witness;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pgtoll_cluster::{
    Cluster, Guard, Pgbouncer, Repmgr, RepmgrNode, RepmgrSettings, RunningPgbouncer,
};
use pgtoll_record::{FailoverDetector, FailoverFault, FailoverRun, ThirdNode};
use pgtoll_system::Interrupt;
use pgtoll_wire::Dsn;

use self::hook::{
    EVENTS, hook_name, notification_command, promote_command, write_hook, write_notification,
    write_route,
};
use self::supervisor::Supervisor;
use self::third::{AHEAD, Third};
use self::witness::Witness;
pub(super) use self::witness::template as witness_template;
use super::RepmgrPrograms;
use super::context::{DATABASE, NODES, RunContext, THIRD, WITNESS};
use super::error::FailoverError;
use super::partition::{is_cut, judge_sides};
use super::rejoin_steps::RejoinSteps;
use super::servers::{link_directory, open_link, until, wait_for_streaming};
use super::site::{CutSite, FaultSite, Handover, Response};
use super::steps::Steps;
use super::topology::{ServerPair, StartedPrimary, Topology, TopologyPair};
use crate::JudgeSide;
use crate::link::{Link, LinkDelay};

/// A topology that repmgr looks after.
pub(super) struct RepmgrTopology {
    pair: ServerPair,
    pgbouncer: Pgbouncer,
    /// The primary's, then the standby's.
    nodes: [RepmgrNode; 2],
    poolers: Vec<RunningPgbouncer>,
    detector: FailoverDetector,
    /// Starts a repmgrd again that ends by itself; `None` while none runs.
    supervisor: Option<Supervisor>,
    /// A second standby.
    third: Option<Third>,
    witness: Option<Witness>,
    parting: Option<Parting>,
}

/// The parts of a partition: a pooler on each side, of which the one of the standby's side reaches the primary
/// through a link, and the other one is led to the new primary by hand.
struct Parting {
    link: Arc<Link>,
    route: PathBuf,
}

impl RepmgrTopology {
    pub(super) fn start(
        context: &RunContext<'_>,
        programs: &RepmgrPrograms,
        fault: FailoverFault,
        detector: FailoverDetector,
    ) -> Result<Self, FailoverError> {
        let repmgr = &programs.repmgr;
        let mut guard = pgtoll_system::lock(context.guard);
        let primary = StartedPrimary::start(context, &mut guard, fault)?;
        write_notification(&mut guard)?;
        let [of_first, of_second] = NODES.map(|name| settings(&guard, name, detector));
        let is_cut = is_cut(fault);
        let has_third = context.plan.third_node;
        let directory = link_directory(&guard);
        let server = &primary.cluster;
        let link = (is_cut || has_third).then(|| open_link(&mut guard, &directory, server));
        let link = link.transpose()?.map(Arc::new);
        let seen_in = is_cut.then(|| directory.clone());
        let seen = RepmgrSettings { host: seen_in, ..of_first.clone() };
        let first = repmgr.node(&mut guard, server, &seen)?;
        first.run(&mut guard, &["primary", "register"])?;
        // repmgrd beside it does not need the link.
        let first = repmgr.node(&mut guard, server, &of_first)?;
        let pair = primary.with_standby(context, &mut guard, link)?;
        let primary = &pair.primary;
        let standby = &pair.standby;
        let second = repmgr.node(&mut guard, standby, &of_second)?;
        wait_for_streaming(primary, standby, context.interrupt)?;
        second.run(&mut guard, &["standby", "register", "--upstream-node-id=1"])?;
        let of_third = settings(&guard, THIRD, detector);
        let third =
            has_third.then(|| Third::start(context, repmgr, &mut guard, primary, &of_third));
        let third = third.transpose()?;
        if let (Some(link), true) = (&pair.link, has_third) {
            link.set_delay(LinkDelay { to_client: AHEAD, ..LinkDelay::default() });
        }
        let of_witness = settings(&guard, WITNESS, detector);
        let witness = context
            .witness
            .map(|template| Witness::start(repmgr, &mut guard, template, primary, &of_witness));
        let witness = witness.transpose()?;
        // A copy that is still dirty would be synced by pg_rewind, file by file.
        primary.sync(&mut guard)?;
        let is_parted = fault == FailoverFault::Partition;
        let (poolers, far_link) = start_poolers(context, programs, &mut guard, primary, is_parted)?;
        let reached = if is_parted { &poolers[1..] } else { &poolers[..] };
        for (node, server) in [(&first, primary), (&second, standby)] {
            write_hook(&mut guard, repmgr, node.configuration(), server, reached)?;
        }
        let parting = far_link.map(|link| {
            let route = write_route(&mut guard, standby, &poolers[..1])?;
            Ok::<_, FailoverError>(Parting { link, route })
        });
        let parting = parting.transpose()?;
        drop(guard);
        let mut topology = Self {
            pair,
            pgbouncer: programs.pgbouncer.clone(),
            nodes: [first, second],
            poolers,
            detector,
            supervisor: None,
            third,
            witness,
            parting,
        };
        for pooler in &topology.poolers {
            wait_for_pooler(pooler, context.interrupt)?;
        }
        topology.start_daemons(context.interrupt)?;
        Ok(topology)
    }

    /// Whether repmgrd runs beside the servers.
    fn is_watched(&self) -> bool {
        self.detector != FailoverDetector::None
    }

    /// Starts repmgrd beside both servers, and waits until both watch.
    fn start_daemons(&mut self, interrupt: &Interrupt) -> Result<(), FailoverError> {
        if !self.is_watched() {
            return Ok(());
        }
        let mut connection = self.pair.primary.connect(Repmgr::DATABASE)?;
        let began = connection.query_one("SELECT clock_timestamp()::text AS now")?;
        let began = began.text("now")?.to_owned();
        let watching = self.watching_nodes();
        for node in &watching {
            node.start_daemon(&mut pgtoll_system::lock(&self.pair.guard))?;
        }
        self.supervisor = Some(Supervisor::begin(&self.pair.guard, &watching));
        // Each says in the primary's table that it watches.
        let sql = format!(
            "SELECT count(DISTINCT node_id) AS started FROM repmgr.events \
             WHERE event = 'repmgrd_start' AND event_timestamp >= '{began}'"
        );
        until("repmgrd did not start", interrupt, || {
            let started = connection.query_one(&sql)?.text("started")?.to_owned();
            let all = watching.len().to_string();
            Ok(if started == all { None } else { Some(format!("{started} of {all} started")) })
        })?;
        connection.close();
        Ok(())
    }

    /// Beside which repmgrd runs.
    fn watching_nodes(&self) -> Vec<RepmgrNode> {
        let witness = self.witness.as_ref().map(|witness| &witness.node);
        self.nodes.iter().chain(witness).cloned().collect()
    }

    /// The pooler on this server's host, if each host has one.
    fn pooler_beside(&self, server: &Cluster) -> Option<&RunningPgbouncer> {
        let number = usize::from(server.name() != NODES[0]);
        self.poolers.get(number).filter(|_| self.poolers.len() == NODES.len())
    }
}

/// Starts poolers that lead to the primary; of a partition one on each side, of which the second does so by
/// the link.
fn start_poolers(
    context: &RunContext<'_>,
    programs: &RepmgrPrograms,
    guard: &mut Guard,
    primary: &Cluster,
    is_parted: bool,
) -> Result<(Vec<RunningPgbouncer>, Option<Arc<Link>>), FailoverError> {
    let far = guard.directory().join(format!("link-to-{}", primary.name()));
    let link = is_parted.then(|| open_link(guard, &far, primary)).transpose()?.map(Arc::new);
    let mut poolers = Vec::new();
    for number in 1..=(if is_parted { 2 } else { context.plan.bouncers }) {
        let name = format!("pooler{number}");
        let server = if is_parted && number == 2 { &*far } else { primary.directory() };
        poolers.push(programs.pgbouncer.start(guard, &name, DATABASE, server)?);
    }
    Ok((poolers, link))
}

/// The way in by these poolers.
fn way_by(poolers: &[RunningPgbouncer]) -> Result<Dsn, FailoverError> {
    let hosts: Vec<String> =
        poolers.iter().map(|pooler| pooler.directory().display().to_string()).collect();
    let hosts = hosts.join(",");
    let port = Pgbouncer::PORT;
    Ok(format!("host='{hosts}' port={port} user=postgres dbname={DATABASE}").parse()?)
}

impl Topology for RepmgrTopology {
    fn pair(&self) -> &dyn TopologyPair {
        &self.pair
    }

    fn dsn(&self) -> Result<Dsn, FailoverError> {
        // What the promotion hook reaches.
        way_by(if self.parting.is_some() { &self.poolers[1..] } else { &self.poolers })
    }

    fn sides(&self) -> Result<Vec<JudgeSide>, FailoverError> {
        if self.parting.is_none() {
            return Ok(Vec::new());
        }
        Ok(judge_sides([way_by(&self.poolers[..1])?, way_by(&self.poolers[1..])?]))
    }

    fn fault_site(&self) -> Result<FaultSite, FailoverError> {
        let pair = &self.pair;
        let hook =
            pgtoll_system::lock(&pair.guard).directory().join(hook_name(pair.standby.name()));
        let witness_link = self.witness.as_ref().map(|witness| witness.link.clone());
        Ok(FaultSite {
            guard: pair.guard.clone(),
            primary: pair.primary.clone(),
            postmaster: pair.postmaster,
            is_managed: false,
            standby: pair.standby.clone(),
            daemon: self.is_watched().then(|| self.nodes[0].daemon().to_owned()),
            abandoned: self.supervisor.as_ref().map(Supervisor::abandoned),
            own_pooler: self.pooler_beside(&pair.primary).cloned(),
            standby_daemon: self.is_watched().then(|| self.nodes[1].daemon().to_owned()),
            standby_pooler: self.pooler_beside(&pair.standby).cloned(),
            receiver: None,
            heals_cut: witness_link.is_some(),
            link: pair.link.clone(),
            other_link: witness_link,
            cut: CutSite {
                client_links: self.parting.iter().map(|parting| parting.link.clone()).collect(),
                route: self.parting.as_ref().map(|parting| parting.route.clone()),
                ..CutSite::default()
            },
            volume: pair.volume(),
            response: if self.is_watched() {
                Response::Engine
            } else {
                Response::Hook(hook.clone())
            },
            handover: Handover::Poolers { poolers: self.poolers.clone(), hook },
        })
    }

    fn report(&self, run: &mut FailoverRun, began: SystemTime) {
        let mut guard = pgtoll_system::lock(&self.pair.guard);
        let path = guard.directory().join(EVENTS);
        // As the servers' user: it could have put a link there.
        let printed = guard.run(Path::new("cat"), &[&path.to_string_lossy()]);
        let text = printed.map(|output| output.tail).unwrap_or_default();
        let steps = Steps::parse(&text, began);
        let noticed = match run.fault {
            FailoverFault::StandbyDeath => {
                format!("{} child_node_disconnect", self.pair.primary.name())
            }
            _ => format!("{} repmgrd_upstream_disconnect", self.pair.standby.name()),
        };
        run.noticed_s = steps.first(&noticed);
        run.promoted_s = steps.first("hook promoted");
        run.routed_s = steps.first("hook routed");
        run.steps = steps.events;
    }

    /// Ends repmgrd beside both servers; what had ended before is no error.
    fn end_watch(&mut self) -> u32 {
        let restarts = self.supervisor.take().map_or(0, Supervisor::end);
        let mut guard = pgtoll_system::lock(&self.pair.guard);
        for node in self.watching_nodes() {
            let _ = guard.reap(node.daemon(), Duration::ZERO);
        }
        restarts
    }

    /// Tells repmgr in the end that the old primary is a standby of the new one.
    fn bring_back(
        &self,
        context: &RunContext<'_>,
        fault: FailoverFault,
        steps: &mut RejoinSteps,
    ) -> Result<(), FailoverError> {
        self.pair.bring_back(context, fault, steps)?;
        if self.is_watched() {
            let upstream = format!("--upstream-node-id={}", node_id(self.pair.standby.name()));
            let arguments = ["standby", "register", "--force", &upstream];
            self.nodes[0].run(&mut pgtoll_system::lock(&self.pair.guard), &arguments)?;
            steps.done("registered");
        }
        Ok(())
    }

    fn follow_third(&self, context: &RunContext<'_>) -> Option<ThirdNode> {
        self.third.as_ref().map(|third| third.follow(context, &self.pair))
    }

    fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError> {
        self.pair.exchange_roles(context)?;
        self.nodes.reverse();
        for pooler in &self.poolers {
            self.pgbouncer.restart_ended(&mut pgtoll_system::lock(&self.pair.guard), pooler)?;
            wait_for_pooler(pooler, context.interrupt)?;
        }
        self.start_daemons(context.interrupt)
    }

    fn remove(mut self: Box<Self>) -> Result<(), FailoverError> {
        self.end_watch();
        let guard = self.pair.guard.clone();
        let mut guard = pgtoll_system::lock(&guard);
        for pooler in &self.poolers {
            pooler.remove(&mut guard)?;
        }
        self.pair.stop(&mut guard);
        if let Some(third) = self.third {
            third.remove(&mut guard)?;
        }
        if let Some(witness) = self.witness {
            witness.remove(&mut guard)?;
        }
        self.pair.remove(&mut guard)?;
        let files = NODES.into_iter().flat_map(|name| [format!("{name}.conf"), hook_name(name)]);
        for file in files.chain([EVENTS.to_owned()]) {
            let path = guard.directory().join(file);
            guard.run(Path::new("rm"), &["-f", &path.to_string_lossy()])?;
        }
        Ok(())
    }
}

/// repmgr's number of a server.
fn node_id(name: &str) -> u32 {
    let names = [NODES[0], NODES[1], THIRD, WITNESS];
    (1..).zip(names).find(|(_, item)| *item == name).map_or(0, |(number, _)| number)
}

fn settings(guard: &Guard, name: &str, detector: FailoverDetector) -> RepmgrSettings {
    let timers = detector.repmgr_timers().unwrap_or([1, 1, 1]);
    let [monitor_interval_s, reconnect_attempts, reconnect_interval_s] = timers;
    RepmgrSettings {
        node_id: node_id(name),
        host: None,
        may_be_promoted: name != THIRD && name != WITNESS,
        monitor_interval_s,
        reconnect_attempts,
        reconnect_interval_s,
        promotes_by_pg_ctl: detector != FailoverDetector::Default,
        promote_command: promote_command(guard, name),
        event_notification_command: notification_command(guard),
    }
}

fn wait_for_pooler(pooler: &RunningPgbouncer, interrupt: &Interrupt) -> Result<(), FailoverError> {
    until("PgBouncer did not answer", interrupt, || {
        Ok(pooler.console().err().map(|error| error.to_string()))
    })
}
