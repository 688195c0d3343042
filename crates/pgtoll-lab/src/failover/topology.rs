//! A primary, a standby, repmgrd beside each, and poolers as the only way in.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pgtoll_cluster::{
    Cluster, Guard, Pgbouncer, Repmgr, RepmgrNode, RepmgrSettings, RunningPgbouncer, StopMode,
    Volume, Volumes,
};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::{FailoverDetector, FailoverFault};
use pgtoll_wire::Dsn;

use super::context::{DATABASE, NODES, RunContext, THIRD, WITNESS, lock};
use super::error::FailoverError;
use super::hook::{
    EVENTS, hook_name, notification_command, promote_command, write_hook, write_notification,
};
use super::supervisor::Supervisor;
use super::third::{AHEAD, Third};
use super::volumes::hold_volume;
use super::witness::Witness;
use crate::link::{Link, LinkDelay};

/// How long a step of the preparation may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A topology that serves clients.
pub(super) struct Topology {
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) primary: Cluster,
    /// The primary's postmaster.
    pub(super) postmaster: i32,
    pub(super) standby: Cluster,
    /// The primary's, then the standby's.
    pub(super) nodes: [RepmgrNode; 2],
    pub(super) poolers: Vec<RunningPgbouncer>,
    pub(super) detector: FailoverDetector,
    /// Starts a repmgrd again that ends by itself; `None` while none runs.
    supervisor: Option<Supervisor>,
    /// Through which the standby sees the first primary; `None` where that is not to be cut.
    link: Option<Arc<Link>>,
    /// The disk of the first primary; `None` where it needs none of its own.
    volume: Option<(Volumes, Volume)>,
    /// A second standby.
    third: Option<Third>,
    witness: Option<Witness>,
}

impl Topology {
    pub(super) fn start(
        context: &RunContext<'_>,
        fault: FailoverFault,
        detector: FailoverDetector,
    ) -> Result<Self, FailoverError> {
        let mut guard = lock(context.guard);
        let primary = context.template.copy(&mut guard, NODES[0])?;
        let volume = hold_volume(context, &mut guard, &primary, fault)?;
        primary.configure(&mut guard, &named(context, NODES[0]))?;
        let postmaster = primary.start(&mut guard)?;
        write_notification(&mut guard)?;
        let [of_first, of_second] = NODES.map(|name| settings(&guard, name, detector));
        let (is_cut, has_third) = (fault == FailoverFault::LinkCut, context.plan.third_node);
        let directory = link_directory(&guard);
        let link = (is_cut || has_third).then(|| open_link(&mut guard, &directory, &primary));
        let link = link.transpose()?.map(Arc::new);
        let seen_in = is_cut.then(|| directory.clone());
        let seen = RepmgrSettings { host: seen_in.clone(), ..of_first.clone() };
        let first = context.repmgr.node(&mut guard, &primary, &seen)?;
        first.run(&mut guard, &["primary", "register"])?;
        // repmgrd beside it does not need the link.
        let first = context.repmgr.node(&mut guard, &primary, &of_first)?;
        let upstream = if link.is_some() { &*directory } else { primary.directory() };
        let standby = primary.standby(&mut guard, NODES[1], upstream)?;
        standby.configure(&mut guard, &named(context, NODES[1]))?;
        standby.start(&mut guard)?;
        let second = context.repmgr.node(&mut guard, &standby, &of_second)?;
        wait_for_streaming(&primary, &standby, context.interrupt)?;
        second.run(&mut guard, &["standby", "register", "--upstream-node-id=1"])?;
        let of_third = settings(&guard, THIRD, detector);
        let third = has_third.then(|| Third::start(context, &mut guard, &primary, &of_third));
        let third = third.transpose()?;
        if let (Some(link), true) = (&link, has_third) {
            link.set_delay(LinkDelay { to_client: AHEAD, ..LinkDelay::default() });
        }
        let of_witness = settings(&guard, WITNESS, detector);
        let witness = context
            .witness
            .map(|template| Witness::start(context, &mut guard, template, &primary, &of_witness));
        let witness = witness.transpose()?;
        // A copy that is still dirty would be synced by pg_rewind, file by file.
        primary.sync(&mut guard)?;
        let mut poolers = Vec::new();
        for number in 1..=context.plan.bouncers {
            let name = format!("pooler{number}");
            poolers.push(context.pgbouncer.start(&mut guard, &name, DATABASE, &primary)?);
        }
        for (node, server) in [(&first, &primary), (&second, &standby)] {
            write_hook(&mut guard, (context.repmgr, node.configuration()), server, &poolers)?;
        }
        drop(guard);
        let mut topology = Self {
            guard: context.guard.clone(),
            primary,
            postmaster,
            standby,
            nodes: [first, second],
            poolers,
            detector,
            supervisor: None,
            link,
            volume,
            third,
            witness,
        };
        for pooler in &topology.poolers {
            wait_for_pooler(pooler, context.interrupt)?;
        }
        topology.start_daemons(context.interrupt)?;
        Ok(topology)
    }

    /// The clients' way in.
    pub(super) fn dsn(&self) -> Result<Dsn, FailoverError> {
        let hosts: Vec<String> =
            self.poolers.iter().map(|of| of.directory().display().to_string()).collect();
        let (hosts, port) = (hosts.join(","), Pgbouncer::PORT);
        Ok(format!("host='{hosts}' port={port} user=postgres dbname={DATABASE}").parse()?)
    }

    /// Whether repmgrd runs beside the servers.
    pub(super) fn is_watched(&self) -> bool {
        self.detector != FailoverDetector::None
    }

    /// Starts repmgrd beside both servers, and waits until both watch.
    fn start_daemons(&mut self, interrupt: &Interrupt) -> Result<(), FailoverError> {
        if !self.is_watched() {
            return Ok(());
        }
        let mut connection = self.primary.connect(Repmgr::DATABASE)?;
        let began = connection.query_one("SELECT clock_timestamp()::text AS now")?;
        let began = began.text("now")?.to_owned();
        let watching = self.watching_nodes();
        for node in &watching {
            node.start_daemon(&mut lock(&self.guard))?;
        }
        self.supervisor = Some(Supervisor::begin(&self.guard, &watching));
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

    /// The second standby.
    pub(super) fn third(&self) -> Option<&Third> {
        self.third.as_ref()
    }

    /// Between the witness and the standby.
    pub(super) fn witness_link(&self) -> Option<Arc<Link>> {
        self.witness.as_ref().map(|witness| witness.link.clone())
    }

    /// Between both servers, if there is one.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        self.link.clone()
    }

    /// The disk of the first primary, if it has one of its own.
    pub(super) fn volume(&self) -> Option<Volume> {
        self.volume.as_ref().map(|(_, volume)| volume.clone())
    }

    /// What the fault needs, so that a repmgrd that it ends is not started again.
    pub(super) fn supervisor(&self) -> Option<&Supervisor> {
        self.supervisor.as_ref()
    }

    /// Ends repmgrd beside both servers; what had ended before is no error. Returns how often one had
    /// ended by itself.
    pub(super) fn end_daemons(&mut self) -> u32 {
        let restarts = self.supervisor.take().map_or(0, Supervisor::end);
        let mut guard = lock(&self.guard);
        for node in self.watching_nodes() {
            let _ = guard.reap(node.daemon(), Duration::ZERO);
        }
        restarts
    }

    /// Tells repmgr that the old primary is a standby of the new one.
    pub(super) fn register_old_primary(&self) -> Result<(), FailoverError> {
        let upstream = format!("--upstream-node-id={}", node_id(self.standby.name()));
        let arguments = ["standby", "register", "--force", &upstream];
        self.nodes[0].run(&mut lock(&self.guard), &arguments)?;
        Ok(())
    }

    /// The promoted standby is the primary from now on, and the old primary, which has returned and was
    /// stopped, its standby.
    pub(super) fn exchange_roles(&mut self, context: &RunContext<'_>) -> Result<(), FailoverError> {
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.nodes.reverse();
        self.standby.start(&mut lock(&self.guard))?;
        wait_for_streaming(&self.primary, &self.standby, context.interrupt)?;
        // The hook had set it to nothing; there is a standby again.
        let mut connection = self.primary.connect("postgres")?;
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")?;
        connection.execute("SELECT pg_reload_conf()")?;
        let pid = connection.query_one(
            "SELECT (regexp_match(pg_read_file('postmaster.pid'), '^[0-9]+'))[1] AS pid",
        )?;
        self.postmaster = pid.parse("pid")?;
        connection.close();
        for pooler in &self.poolers {
            context.pgbouncer.restart_ended(&mut lock(&self.guard), pooler)?;
            wait_for_pooler(pooler, context.interrupt)?;
        }
        self.start_daemons(context.interrupt)
    }

    /// The pooler on the primary's host, if each host has one.
    pub(super) fn pooler_of_primary(&self) -> Option<&RunningPgbouncer> {
        let number = usize::from(self.primary.name() != NODES[0]);
        self.poolers.get(number).filter(|_| self.poolers.len() == NODES.len())
    }

    /// Ends all that still runs, and removes it.
    pub(super) fn remove(mut self) -> Result<(), FailoverError> {
        self.end_daemons();
        let mut guard = lock(&self.guard);
        for pooler in &self.poolers {
            pooler.remove(&mut guard)?;
        }
        for cluster in [&self.standby, &self.primary] {
            // It may have ended long ago.
            let _ = cluster.stop(&mut guard, StopMode::Immediate);
        }
        if let Some(third) = self.third {
            third.remove(&mut guard)?;
        }
        if let Some(witness) = self.witness {
            witness.remove(&mut guard)?;
        }
        // Where one is mounted a directory cannot be removed.
        drop(self.volume);
        for cluster in [self.standby, self.primary] {
            cluster.remove(&mut guard)?;
        }
        let files = NODES.into_iter().flat_map(|name| [format!("{name}.conf"), hook_name(name)]);
        for file in files.chain([EVENTS.to_owned()]) {
            let path = guard.directory().join(file);
            guard.run(Path::new("rm"), &["-f", &path.to_string_lossy()])?;
        }
        Ok(())
    }
}

/// The servers' settings, and a name that rows of the judge carry.
pub(super) fn named(
    context: &RunContext<'_>,
    name: &str,
) -> std::collections::BTreeMap<String, String> {
    let mut settings = context.settings.clone();
    settings.insert("cluster_name".to_owned(), name.to_owned());
    settings
}

/// repmgr's number of a server.
pub(super) fn node_id(name: &str) -> u32 {
    let names = [NODES[0], NODES[1], THIRD, WITNESS];
    (1..).zip(names).find(|(_, of)| *of == name).map_or(0, |(number, _)| number)
}

/// Where the standby finds the primary's socket if a link is in between.
fn link_directory(guard: &Guard) -> PathBuf {
    guard.directory().join("link")
}

/// A link to a server, in a directory of its own.
pub(super) fn open_link(
    guard: &mut Guard,
    directory: &Path,
    server: &Cluster,
) -> Result<Link, FailoverError> {
    guard.run(Path::new("mkdir"), &["-p", &directory.to_string_lossy()])?;
    let socket = |directory: &Path| directory.join(".s.PGSQL.5432");
    Link::open(&socket(directory), &socket(server.directory()), LinkDelay::default())
        .map_err(FailoverError::Link)
}

fn settings(guard: &Guard, name: &str, detector: FailoverDetector) -> RepmgrSettings {
    let timers = detector.timers().unwrap_or([1, 1, 1]);
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

/// Waits until the standby streams from the primary.
pub(super) fn wait_for_streaming(
    primary: &Cluster,
    standby: &Cluster,
    interrupt: &Interrupt,
) -> Result<(), FailoverError> {
    let mut connection = primary.connect("postgres")?;
    let sql = format!(
        "SELECT coalesce(string_agg(state, ', '), 'not connected') AS state \
         FROM pg_stat_replication WHERE application_name = '{}'",
        standby.name()
    );
    until("the standby did not stream", interrupt, || {
        let state = connection.query_one(&sql)?.text("state")?.to_owned();
        Ok(if state == "streaming" { None } else { Some(state) })
    })
}

fn wait_for_pooler(pooler: &RunningPgbouncer, interrupt: &Interrupt) -> Result<(), FailoverError> {
    until("PgBouncer did not answer", interrupt, || {
        Ok(pooler.console().err().map(|error| error.to_string()))
    })
}

/// Waits until there is nothing left that `state` says.
pub(super) fn until(
    what: &'static str,
    interrupt: &Interrupt,
    mut state: impl FnMut() -> Result<Option<String>, FailoverError>,
) -> Result<(), FailoverError> {
    let end = Instant::now() + LIMIT;
    while let Some(state) = state()? {
        if Instant::now() > end {
            return Err(FailoverError::NotReached { what, seconds: LIMIT.as_secs(), state });
        }
        interrupt.wait(PAUSE)?;
    }
    Ok(())
}
