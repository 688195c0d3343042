//! Objections to a run, before anything is changed.

use std::time::{Duration, Instant};

use pgtoll_format::{ByteSize, facts_of_major};
use pgtoll_record::RollingObjection;

use crate::site::{NodeConnection, NodeSite, pause};
use crate::survey::{NodeState, Survey, flush_position};
use crate::topology::ReplicaTree;
use crate::{NodeAnswer, NodeVerb, RollingError, RollingOptions};

/// The facts before a run.
#[derive(Debug)]
pub(crate) struct Preflight {
    pub(crate) survey: Survey,
    pub(crate) topology: ReplicaTree,
    /// For each node in the file's order: the least and most seconds of its conversion, and its bytes.
    pub(crate) predictions: Vec<((f64, f64), u64)>,
    /// Bytes of WAL a second that the primary writes now.
    pub(crate) wal_rate: f64,
    /// The seconds of one command on the slowest node.
    pub(crate) command_seconds: f64,
}

/// For how long the primary's WAL is watched.
const WATCH: Duration = Duration::from_secs(1);

impl Preflight {
    /// Asks all nodes. Nothing is changed.
    pub(crate) fn new(sites: &[NodeSite], enable: bool) -> Result<Self, RollingError> {
        let (survey, topology) = settled(sites)?;
        let mut command_seconds = 0.0_f64;
        let mut predictions = Vec::new();
        for site in sites {
            let began = Instant::now();
            site.report()?;
            command_seconds = command_seconds.max(began.elapsed().as_secs_f64());
            predictions.push(match site.ask(NodeVerb::Predict)? {
                NodeAnswer::Predicted { seconds, bytes } => {
                    (if enable { seconds } else { (0.0, 0.1) }, bytes)
                }
                other => return Err(site.strange(&other)),
            });
        }
        let primary = sites.iter().find(|site| site.name() == topology.primary);
        let primary =
            primary.ok_or_else(|| RollingError::NoNode { name: topology.primary.clone() })?;
        let mut connection = primary.connect()?;
        let wal_rate = wal_rate(&mut connection)?;
        connection.close();
        Ok(Self { survey, topology, predictions, wal_rate, command_seconds })
    }

    /// Seconds of each switchover without a writable primary, at least and at most: a fast stop after a
    /// checkpoint, replay and promotion (0.15 to 0.6 s in the trials of this program), and two
    /// commands on nodes' machines.
    pub(crate) fn gap_seconds(&self) -> (f64, f64) {
        let commands = 2.0 * self.command_seconds;
        (0.15 + commands, 0.6 + 2.0 * commands)
    }

    /// Returns the objections to converting these nodes.
    pub(crate) fn objections(
        &self,
        sites: &[NodeSite],
        wanted: &[String],
        candidate: Option<&str>,
        options: &RollingOptions,
    ) -> Vec<RollingObjection> {
        let mut found = Objections::default();
        self.check_identity(&mut found, options);
        for (node, site) in self.survey.nodes.iter().zip(sites) {
            check_node(node, site, options, &mut found);
        }
        for name in wanted.iter().filter(|name| **name != self.topology.primary) {
            self.check_retention(name, &mut found);
        }
        if wanted.contains(&self.topology.primary) {
            self.check_switchover(candidate, options, &mut found);
        }
        found.0
    }

    fn check_identity(&self, found: &mut Objections, options: &RollingOptions) {
        let nodes = &self.survey.nodes;
        let Some(first) = nodes.first() else { return };
        for node in nodes {
            let name = &node.name;
            let report = &node.report;
            if report.system_identifier != first.report.system_identifier {
                let text = format!("is a copy of another cluster than {}", first.name);
                found.refuse(name, text, "list the nodes of one replica set");
            }
            let major = |node: &NodeState| node.server.as_ref().map(|server| server.major);
            if major(node) != major(first) {
                let text = format!("has another major version than {}", first.name);
                found.refuse(name, text, "list the nodes of one replica set");
            }
            if report.version != options.version {
                let text = format!("has pgtoll {}, this is {}", report.version, options.version);
                found.refuse(name, text, "install the same version on all machines");
            }
            if report.checksum_version > 1 {
                let text = "is in the middle of changing its checksums".to_owned();
                found.refuse(name, text, "let that end first");
            }
        }
    }

    /// Whether its upstream keeps the WAL that comes while it is down.
    fn check_retention(&self, name: &str, found: &mut Objections) {
        let Some(node) = self.survey.node(name) else { return };
        let Some(server) = &node.server else { return };
        let upstream = self.topology.upstream(name).and_then(|upstream| self.survey.node(upstream));
        let Some((upstream, state)) =
            upstream.and_then(|upstream| Some((upstream, upstream.server.as_ref()?)))
        else {
            return;
        };
        // A segment that is in use is kept anyway.
        let needed = self.wal_needed(name).saturating_sub(state.wal_segment_bytes);
        let kept = if server.slot.is_empty() {
            state.wal_keep_bytes
        } else {
            let free = upstream.report.wal_free_bytes.unwrap_or(u64::MAX) / 2;
            state.slot_keep_bytes.unwrap_or(u64::MAX).min(free)
        };
        if needed <= kept {
            return;
        }
        let needed = ByteSize(needed).rounded();
        let kept = ByteSize(kept).rounded();
        let text = format!(
            "may need {needed} of WAL after its conversion, and {} keeps {kept} for it",
            upstream.name
        );
        let hint = format!(
            "give it a replication slot, or set wal_keep_size on {} to {needed} or more",
            upstream.name
        );
        found.add(!server.restore_command, name, text, &hint);
    }

    /// Bytes of WAL that come while a node is converted, generously.
    fn wal_needed(&self, name: &str) -> u64 {
        let index = self.survey.nodes.iter().position(|node| node.name == name);
        let seconds =
            index.and_then(|index| self.predictions.get(index)).map_or(0.0, |item| item.0.1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a prediction, and never negative"
        )]
        let bytes = (self.wal_rate * (seconds + 5.0) * 1.5) as u64;
        bytes
    }

    fn check_switchover(
        &self,
        candidate: Option<&str>,
        options: &RollingOptions,
        found: &mut Objections,
    ) {
        let primary = &self.topology.primary;
        let Some(name) = candidate else {
            let text = "has no standby that streams from it and could take over".to_owned();
            return found.refuse(primary, text, "convert the standbys alone: --only NODE");
        };
        if self.topology.upstream(name) != Some(primary) {
            let text = format!("does not stream from {primary} itself, and cannot take over");
            found.refuse(name, text, "name another one with --to");
        }
        if self.survey.nodes.len() == 2 {
            let text = "while it is down there is one copy of the data only".to_owned();
            found.warn(name, text, "have a backup, or add a standby first");
        }
        let Some(server) = self.survey.node(primary).and_then(|node| node.server.as_ref()) else {
            return;
        };
        if !server.wal_log_hints && options.enable {
            let text =
                "has wal_log_hints off: if a converted standby loses power while the primary \
                        has no checksums yet, it may not start again"
                    .to_owned();
            let hint = "set wal_log_hints = on before (it takes a restart), or keep that time short; \
                        the remedy is in the book";
            found.warn(primary, text, hint);
        }
        if !server.logical_slots.is_empty() {
            let slots = server.logical_slots.join(", ");
            let text = format!("has logical slots, which a switchover loses: {slots}");
            let hint = "convert the standbys alone (--only NODE), and hand over by what keeps them";
            found.refuse(primary, text, hint);
        }
    }
}

fn check_node(node: &NodeState, site: &NodeSite, options: &RollingOptions, found: &mut Objections) {
    let name = &node.name;
    let Some(server) = &node.server else {
        let text = "is down".to_owned();
        return found.refuse(name, text, "start it, let it catch up, and begin again");
    };
    if u32::try_from(server.major).ok().and_then(facts_of_major).is_none() {
        let text = format!("runs PostgreSQL {}", server.major);
        found.refuse(name, text, "the versions that pgtoll knows can be converted one by one");
    }
    if !server.is_superuser {
        let user = site.config.dsn.user();
        let text = format!("is connected to as {user}, which is not a superuser");
        found.refuse(name, text, "let its dsn name a superuser");
    }
    if node.report.recovery_signal {
        let text = "has a recovery.signal".to_owned();
        found.refuse(name, text, "let its recovery end first");
    }
    if server.is_standby && !node.report.standby_signal {
        let text =
            "is a standby without standby.signal: after a restart it would take writes".to_owned();
        found.refuse(name, text, "make that file in its data directory");
    }
    if server.is_standby && !node.is_streaming() {
        let text = "does not stream".to_owned();
        found.refuse(name, text, "let it catch up first");
    }
    if server.apply_delay_ms > 0 {
        let text = "replays with a delay (recovery_min_apply_delay)".to_owned();
        found.refuse(name, text, "take the delay out for the run");
    }
    if server.is_standby && !server.follows_timelines {
        let text = "does not follow a new primary (recovery_target_timeline)".to_owned();
        found.refuse(name, text, "set recovery_target_timeline = 'latest'");
    }
    if server.base_backups > 0 {
        let text = "a base backup of it is being made".to_owned();
        found.refuse(name, text, "wait for its end");
    }
    if !server.synchronous_standby_names.is_empty() && !options.suspend_sync {
        let names = &server.synchronous_standby_names;
        let text = format!("has synchronous_standby_names = '{names}': commits would wait");
        let hint = "let the run take it out and put it back: --suspend-sync. Commits are asynchronous \
                    meanwhile";
        found.refuse(name, text, hint);
    }
    let own = site.config.pgdata.to_string_lossy();
    let data = server.data_directory.trim_end_matches('/');
    if !server.data_directory.is_empty() && data != own.trim_end_matches('/') {
        let text = format!("its server says that its data directory is {data}, not {own}");
        // A link may lead there.
        found.warn(name, text, "is pgdata in the file of nodes right?");
    }
    if !node.report.managers.is_empty() && !options.managers_paused {
        let managers = node.report.managers.join(", ");
        let text = format!("is managed by {managers}, which would start or promote servers itself");
        found.refuse(name, text, "pause it, then say --managers-paused");
    }
}

/// The nodes, when all standbys stream: after a restart of its upstream a standby connects again within
/// seconds (`wal_retrieve_retry_interval`).
fn settled(sites: &[NodeSite]) -> Result<(Survey, ReplicaTree), RollingError> {
    let until = Instant::now() + SETTLE_LIMIT;
    loop {
        let survey = Survey::from_sites(sites)?;
        let topology = ReplicaTree::new(&survey, sites);
        let streams = survey.nodes.iter().all(|node| node.is_primary() || node.is_streaming());
        match topology {
            Ok(topology) if streams || Instant::now() > until => return Ok((survey, topology)),
            Err(error) if Instant::now() > until => return Err(error),
            _ => pause(Duration::from_millis(100)),
        }
    }
}

const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// Objections that were found.
#[derive(Default)]
struct Objections(Vec<RollingObjection>);

impl Objections {
    fn refuse(&mut self, node: &str, text: String, hint: &str) {
        self.add(true, node, text, hint);
    }

    fn warn(&mut self, node: &str, text: String, hint: &str) {
        self.add(false, node, text, hint);
    }

    fn add(&mut self, refuses: bool, node: &str, text: String, hint: &str) {
        let node = Some(node.to_owned());
        let hint = hint.to_owned();
        self.0.push(RollingObjection { refuses, node, text, hint });
    }
}

fn wal_rate(connection: &mut NodeConnection) -> Result<f64, RollingError> {
    let before = flush_position(connection)?;
    let began = Instant::now();
    pause(WATCH);
    let after = flush_position(connection)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let bytes = (after.0.saturating_sub(before.0)) as f64;
    Ok(bytes / began.elapsed().as_secs_f64().max(0.1))
}
