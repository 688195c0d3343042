//! A primary, a standby, repmgrd beside each, and a pooler as the only way in.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pgtoll_cluster::{
    Cluster, Guard, Pgbouncer, RepmgrNode, RepmgrSettings, RunningPgbouncer, StopMode,
};
use pgtoll_interrupt::Interrupt;
use pgtoll_record::FailoverDetector;
use pgtoll_wire::Dsn;

use super::context::{DATABASE, NODES, RunContext, lock};
use super::error::FailoverError;
use super::hook::{notification_command, promote_command, write_hook, write_notification};

const POOLER: &str = "pooler";
/// How long a step of the preparation may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A topology that serves clients.
pub(super) struct Topology {
    pub(super) guard: Arc<Mutex<Guard>>,
    pub(super) primary: Cluster,
    /// The primary's postmaster.
    pub(super) postmaster: i32,
    pub(super) standby: Cluster,
    pub(super) nodes: [RepmgrNode; 2],
    pub(super) pooler: RunningPgbouncer,
}

impl Topology {
    pub(super) fn start(
        context: &RunContext<'_>,
        detector: FailoverDetector,
    ) -> Result<Self, FailoverError> {
        let mut guard = lock(context.guard);
        let primary = context.template.copy(&mut guard, NODES[0])?;
        primary.configure(&mut guard, &named(context, NODES[0]))?;
        let postmaster = primary.start(&mut guard)?;
        write_notification(&mut guard)?;
        let (of_first, of_second) = (settings(&guard, 1, detector), settings(&guard, 2, detector));
        let first = context.repmgr.node(&mut guard, &primary, &of_first)?;
        first.run(&mut guard, &["primary", "register"])?;
        let standby = primary.standby(&mut guard, NODES[1], primary.directory())?;
        standby.configure(&mut guard, &named(context, NODES[1]))?;
        standby.start(&mut guard)?;
        let second = context.repmgr.node(&mut guard, &standby, &of_second)?;
        wait_for_streaming(&primary, &standby, context.interrupt)?;
        second.run(&mut guard, &["standby", "register", "--upstream-node-id=1"])?;
        let pooler = context.pgbouncer.start(&mut guard, POOLER, DATABASE, &primary)?;
        let hook = (context.repmgr, second.configuration().as_path());
        write_hook(&mut guard, hook, &standby, &pooler)?;
        wait_for_pooler(&pooler, context.interrupt)?;
        let nodes = [first, second];
        if detector != FailoverDetector::None {
            for node in &nodes {
                node.start_daemon(&mut guard)?;
            }
            wait_for_daemons(&primary, context.interrupt)?;
        }
        let guard = context.guard.clone();
        Ok(Self { guard, primary, postmaster, standby, nodes, pooler })
    }

    /// The clients' way in.
    pub(super) fn dsn(&self) -> Result<Dsn, FailoverError> {
        let directory = self.pooler.directory().display();
        let port = Pgbouncer::PORT;
        Ok(format!("host='{directory}' port={port} user=postgres dbname={DATABASE}").parse()?)
    }

    /// Ends repmgrd beside both servers; what had ended before is no error.
    pub(super) fn end_daemons(&self) {
        let mut guard = lock(&self.guard);
        for node in &self.nodes {
            let _ = guard.reap(node.daemon(), Duration::ZERO);
        }
    }

    /// Ends all that still runs, and removes it.
    pub(super) fn remove(self) -> Result<(), FailoverError> {
        self.end_daemons();
        let mut guard = lock(&self.guard);
        self.pooler.remove(&mut guard)?;
        for cluster in [self.standby, self.primary] {
            // It may have ended long ago.
            let _ = cluster.stop(&mut guard, StopMode::Immediate);
            cluster.remove(&mut guard)?;
        }
        let files = NODES.map(|name| format!("{name}.conf"));
        for file in files.iter().map(String::as_str).chain([super::hook::EVENTS]) {
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

fn settings(guard: &Guard, node_id: u32, detector: FailoverDetector) -> RepmgrSettings {
    let timers = detector.timers().unwrap_or([1, 1, 1]);
    let [monitor_interval_s, reconnect_attempts, reconnect_interval_s] = timers;
    RepmgrSettings {
        node_id,
        monitor_interval_s,
        reconnect_attempts,
        reconnect_interval_s,
        promotes_by_pg_ctl: detector != FailoverDetector::Default,
        promote_command: promote_command(guard),
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

/// Until each repmgrd has said that it watches.
fn wait_for_daemons(primary: &Cluster, interrupt: &Interrupt) -> Result<(), FailoverError> {
    let mut connection = primary.connect(pgtoll_cluster::Repmgr::DATABASE)?;
    until("repmgrd did not start", interrupt, || {
        let row = connection.query_one(
            "SELECT count(DISTINCT node_id) AS started FROM repmgr.events \
             WHERE event = 'repmgrd_start'",
        )?;
        let started = row.text("started")?.to_owned();
        Ok(if started == "2" { None } else { Some(format!("{started} of 2 started")) })
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
