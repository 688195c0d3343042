//! A run over a replica set: planned, begun, resumed or ended early.

mod convert;
mod switchover;

use std::path::Path;
use std::time::Instant;

use pgtoll_record::{
    Provenance, ROLLING_SCHEMA, RollingNode, RollingObjection, RollingOutcome, RollingRecord,
};
use pgtoll_system::Interrupt;

use crate::journal::{Journal, JournalFile, SettingBefore};
use crate::options::{RollingDialogue, RollingEvent, RollingOptions, RollingQuestion};
use crate::preflight::Preflight;
use crate::site::{NodeConnection, NodeSite, RECOVERY_LIMIT, quoted};
use crate::step::{AbortStep, RollingStep, next_step, next_step_of_abort};
use crate::survey::{NodeState, Survey};
use crate::{NodesFile, RollingError};

/// A run over a replica set.
pub struct RollingRun<'a> {
    pub(crate) sites: Vec<NodeSite>,
    pub(crate) options: RollingOptions,
    pub(crate) journal: Journal,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) dialogue: &'a mut dyn RollingDialogue,
    file: JournalFile,
    record: RollingRecord,
    began: Instant,
}

impl std::fmt::Debug for RollingRun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RollingRun").field("journal", &self.journal).finish_non_exhaustive()
    }
}

impl<'a> RollingRun<'a> {
    /// A run over the nodes of this file, which is locked. Nothing is asked of the nodes yet.
    pub fn over(
        path: &Path,
        options: RollingOptions,
        provenance: Provenance,
        interrupt: &'a Interrupt,
        dialogue: &'a mut dyn RollingDialogue,
    ) -> Result<Self, RollingError> {
        let nodes = NodesFile::read(path)?;
        let file = JournalFile::lock(path)?;
        for name in options.only.iter().chain(&options.to) {
            if nodes.node(name).is_none() {
                return Err(RollingError::NoNode { name: name.clone() });
            }
        }
        let site = |config| NodeSite {
            config,
            executable: options.executable.clone(),
            jobs: options.jobs,
        };
        let sites = nodes.nodes.into_iter().map(site).collect();
        let record = empty_record(&options, provenance);
        let journal = empty_journal(&options);
        let began = Instant::now();
        Ok(Self { sites, options, journal, interrupt, dialogue, file, record, began })
    }

    /// Returns the plan. Nothing is changed.
    pub fn dry_run(mut self) -> Result<RollingRecord, RollingError> {
        self.plan()?;
        self.record.outcome = RollingOutcome::DryRun;
        Ok(self.record)
    }

    /// Converts the nodes, after the user agreed to the plan. What was done until an error or a signal
    /// is in the record, with the error.
    pub fn begin(mut self) -> Result<(RollingRecord, Option<RollingError>), RollingError> {
        if self.file.read()?.is_some() {
            return Err(RollingError::Unfinished { path: self.file.path().to_owned() });
        }
        self.plan()?;
        if self.record.objections.iter().any(|objection| objection.refuses) {
            self.record.outcome = RollingOutcome::Refused;
            return Ok((self.record, None));
        }
        if !self.dialogue.confirm(&RollingQuestion::Begin(&self.record)) {
            return Err(RollingError::NotConfirmed { what: "the plan".to_owned() });
        }
        self.write_journal()?;
        let outcome = self.suspend_sync().and_then(|()| self.go_on());
        Ok(self.finished(outcome, RollingOutcome::Finished))
    }

    /// Goes on with a run that ended before everything was done.
    pub fn resume(mut self) -> Result<(RollingRecord, Option<RollingError>), RollingError> {
        self.take_up()?;
        let outcome = self.suspend_sync().and_then(|()| self.go_on());
        Ok(self.finished(outcome, RollingOutcome::Finished))
    }

    /// Ends an unfinished run in good order: a node takes writes, the others stream, settings are as
    /// before. Nodes that are converted stay so.
    pub fn abort(mut self) -> Result<(RollingRecord, Option<RollingError>), RollingError> {
        self.take_up()?;
        let outcome = self.put_in_order();
        Ok(self.finished(outcome, RollingOutcome::Aborted))
    }

    fn plan(&mut self) -> Result<(), RollingError> {
        self.event("ask the nodes");
        let preflight = Preflight::new(&self.sites, self.options.enable)?;
        let topology = &preflight.topology;
        let options = &self.options;
        let is_wanted = |name: &str| {
            let node = preflight.survey.node(name);
            node.is_some_and(|node| node.has_checksums() != options.enable)
                && options.only.as_ref().is_none_or(|only| only == name)
        };
        let candidate = options.to.clone().or_else(|| topology.direct().next().map(str::to_owned));
        let order = topology.order(candidate.as_deref());
        let wanted: Vec<String> = order.iter().filter(|name| is_wanted(name)).cloned().collect();
        let switches = wanted.contains(&topology.primary);
        self.record.objections =
            preflight.objections(&self.sites, &wanted, candidate.as_deref(), options);
        let candidate = candidate.filter(|_| switches);
        let of_node = |name: &String| node_record(name, &preflight);
        self.record.nodes = order.iter().map(of_node).collect();
        self.record.primary = Some(topology.primary.clone());
        self.record.candidate.clone_from(&candidate);
        let first = preflight.survey.nodes.first();
        let system_identifier = first.map_or(0, |node| node.report.system_identifier);
        self.record.system_identifier = system_identifier.to_string();
        self.record.predicted_gap_seconds = switches.then(|| preflight.gap_seconds());
        self.record.predicted_alone_seconds = self.alone_seconds(&wanted);
        self.journal.system_identifier = system_identifier;
        self.journal.nodes.clone_from(&self.record.nodes);
        self.journal.original_primary.clone_from(&topology.primary);
        self.journal.primary.clone_from(&topology.primary);
        self.journal.candidate = candidate;
        self.journal.wanted = wanted;
        Ok(())
    }

    /// Returns the seconds during which one of two nodes is alone.
    fn alone_seconds(&self, wanted: &[String]) -> Option<(f64, f64)> {
        (self.sites.len() == 2).then(|| {
            let of_wanted = self.record.nodes.iter().filter(|node| wanted.contains(&node.name));
            let times = of_wanted.filter_map(|node| node.predicted_seconds);
            times.fold((0.0, 0.0), |sum, time| (sum.0 + time.0 + 0.3, sum.1 + time.1 + 1.0))
        })
    }

    /// Reads the journal of the unfinished run, which has to be the same one.
    fn take_up(&mut self) -> Result<(), RollingError> {
        let path = self.file.path().to_owned();
        let journal = self.file.read()?.ok_or(RollingError::NothingToResume { path })?;
        let other = |label: &str| RollingError::OtherRun { what: label.to_owned() };
        if journal.enable != self.options.enable {
            let word = if journal.enable { "on" } else { "off" };
            return Err(other(&format!("turns checksums {word}")));
        }
        let has = |name: &str| self.sites.iter().any(|site| site.name() == name);
        let is_same = journal.nodes.iter().all(|node| has(&node.name));
        if !is_same || journal.nodes.len() != self.sites.len() {
            return Err(other("was over other nodes"));
        }
        self.record.system_identifier = journal.system_identifier.to_string();
        self.record.candidate.clone_from(&journal.candidate);
        self.journal = journal;
        // Who confirms now confirms the rest, too.
        self.journal.is_switchover_confirmed |= self.options.is_switchover_confirmed;
        for site in &self.sites {
            let found = site.report()?.system_identifier;
            if found != self.journal.system_identifier {
                return Err(other(&format!(
                    "was over another cluster than that of {}",
                    site.name()
                )));
            }
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), RollingError> {
        let mut before = None;
        let mut repeated = 0;
        loop {
            self.interrupt.check()?;
            let survey = Survey::from_sites(&self.sites)?;
            let step = next_step(&survey, &self.journal)?;
            repeated = if before.as_ref() == Some(&step) { repeated + 1 } else { 0 };
            if repeated >= REPEATS_MAX {
                return Err(RollingError::State {
                    message: format!("a step changes nothing: {step:?}"),
                    hint: "see the servers' logs, then --resume or --abort".to_owned(),
                });
            }
            before = Some(step.clone());
            match step {
                RollingStep::Start(name) => self.start(&name)?,
                RollingStep::AwaitStreaming(name) => {
                    let site = self.site(&name)?.clone();
                    self.await_streaming(&site)?;
                }
                RollingStep::Convert(name) => {
                    if let Some(node) = survey.node(&name) {
                        self.convert(node)?;
                    }
                }
                RollingStep::SwitchOver { from, to } => self.switch_over(&from, &to)?,
                RollingStep::GoOnSwitchingOver { from, to } => {
                    self.go_on_switching_over(&from, &to)?;
                }
                RollingStep::EndSwitchover => {
                    let primary =
                        survey.primary()?.map(|primary| primary.name.clone()).unwrap_or_default();
                    self.end_switchover(&primary)?;
                }
                RollingStep::Done => break,
            }
        }
        self.point("all-converted");
        self.restore()?;
        self.file.remove()
    }

    fn put_in_order(&mut self) -> Result<(), RollingError> {
        loop {
            let survey = Survey::from_sites(&self.sites)?;
            match next_step_of_abort(&survey, &self.journal)? {
                AbortStep::Start(name) => self.start(&name)?,
                AbortStep::TakeBack(name) => {
                    self.event(&format!("{name} takes writes again"));
                    let site = self.site(&name)?.clone();
                    self.take_back(&site)?;
                }
                AbortStep::Done => {
                    let primary =
                        survey.primary()?.map(|primary| primary.name.clone()).unwrap_or_default();
                    self.end_switchover(&primary)?;
                    break;
                }
            }
        }
        self.restore()?;
        self.file.remove()
    }

    fn start(&mut self, name: &str) -> Result<(), RollingError> {
        self.event(&format!("{name}: start"));
        let site = self.site(name)?.clone();
        site.start()?;
        site.connect_within(RECOVERY_LIMIT)?.close();
        Ok(())
    }

    /// Takes `synchronous_standby_names` out on all nodes that have it, if the user wants that.
    fn suspend_sync(&mut self) -> Result<(), RollingError> {
        if !self.options.suspend_sync {
            return Ok(());
        }
        for site in self.sites.clone() {
            // Resuming: one that is down was done before.
            let Ok(mut connection) = site.connect() else { continue };
            let row = connection.row(SYNC_NAMES)?;
            if row.text_of_column("value")?.is_empty() {
                continue;
            }
            let value = connection.rows(OWN_SYNC_NAMES)?;
            let value = value.first().map(|row| row.text_of_column("value")).transpose()?;
            let node = site.name().to_owned();
            let name = SYNC.to_owned();
            self.journal.restore.push(SettingBefore { node, name, value });
            self.write_journal()?;
            connection.set(SYNC, "")?;
            connection.execute("SELECT pg_reload_conf()")?;
            connection.close();
        }
        Ok(())
    }

    /// Settings as they were before, slots that nobody uses away.
    fn restore(&mut self) -> Result<(), RollingError> {
        for before in std::mem::take(&mut self.journal.restore) {
            let site = self.site(&before.node)?.clone();
            let mut connection = site.connect()?;
            match &before.value {
                Some(value) => connection.set(&before.name, value)?,
                None => connection.execute(&format!("ALTER SYSTEM RESET {}", before.name))?,
            }
            connection.execute("SELECT pg_reload_conf()")?;
            self.check_sync(&before, &mut connection)?;
            connection.close();
        }
        for slot in std::mem::take(&mut self.journal.slots) {
            let mut connection = self.site(&slot.node)?.connect()?;
            let name = quoted(&slot.name);
            let unused = format!("slot_name = {name} AND NOT active");
            let drop = format!(
                "SELECT count(pg_drop_replication_slot(slot_name)) AS n FROM pg_replication_slots \
                 WHERE {unused}"
            );
            if connection.row(&drop)?.number("n")? > 0 {
                let mut of_standby = self.site(&slot.standby)?.connect()?;
                of_standby.execute("ALTER SYSTEM RESET primary_slot_name")?;
                of_standby.execute("SELECT pg_reload_conf()")?;
            }
        }
        Ok(())
    }

    /// A primary whose `synchronous_standby_names` no standby has would never commit again.
    fn check_sync(
        &mut self,
        before: &SettingBefore,
        connection: &mut NodeConnection,
    ) -> Result<(), RollingError> {
        if connection.row(SYNC_STATE)?.is_true("recovery")? {
            return Ok(());
        }
        let limit = std::time::Duration::from_secs(10);
        if connection.wait_until(SYNC_STATE, "", limit).is_ok() {
            return Ok(());
        }
        connection.set(&before.name, "")?;
        connection.execute("SELECT pg_reload_conf()")?;
        let line = format!(
            "synchronous_standby_names of {} names no standby that streams from it now: it was left \
             empty, else no commit would ever end. Set it to standbys of {}",
            before.node, before.node
        );
        self.record.next.push(line);
        Ok(())
    }

    fn finished(
        mut self,
        outcome: Result<(), RollingError>,
        good: RollingOutcome,
    ) -> (RollingRecord, Option<RollingError>) {
        self.record.outcome = if outcome.is_ok() { good } else { RollingOutcome::Stopped };
        self.record.nodes.clone_from(&self.journal.nodes);
        self.record.switchovers.clone_from(&self.journal.switchovers);
        self.record.primary = Some(self.journal.primary.clone());
        self.record.seconds = Some(self.began.elapsed().as_secs_f64());
        if let Ok(survey) = Survey::from_sites(&self.sites) {
            for node in &mut self.record.nodes {
                node.checksums = survey.node(&node.name).map(NodeState::has_checksums);
            }
            if let Ok(Some(primary)) = survey.primary() {
                self.record.primary = Some(primary.name.clone());
            }
        }
        self.add_next_steps(outcome.is_ok());
        self.record.ended = outcome.as_ref().err().map(ToString::to_string);
        (self.record, outcome.err())
    }

    /// Adds the next steps for the user.
    fn add_next_steps(&mut self, is_ok: bool) {
        if !is_ok {
            self.record.next.push("--resume continues; --abort ends the run cleanly".to_owned());
            return;
        }
        for site in &self.sites {
            let slots = site
                .connect()
                .and_then(|mut connect| connect.row(UNUSED_SLOTS)?.text_of_column("names"));
            if let Some(slots) = slots.ok().filter(|slots| !slots.is_empty()) {
                let name = site.name();
                self.record.next.push(format!(
                    "{name} keeps WAL for slots that nobody uses: {slots}. Drop them on {name} unless \
                     somebody will: SELECT pg_drop_replication_slot('…')"
                ));
            }
        }
        if self.record.nodes.iter().any(|node| node.checksums != node.checksums_before) {
            self.record.next.extend(AFTER.map(str::to_owned));
        }
        let is_off = |node: &&RollingNode| node.checksums != Some(self.options.enable);
        if self.options.only.is_none() && self.record.nodes.iter().any(|node| is_off(&node)) {
            self.record
                .next
                .push("some nodes are not converted: begin a new run for them".to_owned());
        }
    }

    pub(crate) fn site(&self, name: &str) -> Result<&NodeSite, RollingError> {
        let found = self.sites.iter().find(|site| site.name() == name);
        found.ok_or_else(|| RollingError::NoNode { name: name.to_owned() })
    }

    pub(crate) fn event(&mut self, words: &str) {
        self.dialogue.event(RollingEvent::Step(words));
    }

    pub(crate) fn point(&mut self, name: &'static str) {
        self.dialogue.event(RollingEvent::Point(name));
    }

    pub(crate) fn write_journal(&self) -> Result<(), RollingError> {
        self.file.write(&self.journal)
    }

    pub(crate) fn journal_word(&self) -> &'static str {
        if self.journal.enable { "on" } else { "off" }
    }
}

/// How often the same step may come next: a standby may stop streaming for a moment.
const REPEATS_MAX: u32 = 3;

const SYNC: &str = "synchronous_standby_names";
const SYNC_NAMES: &str = "SELECT current_setting('synchronous_standby_names') AS value";
const OWN_SYNC_NAMES: &str = "SELECT setting AS value FROM pg_file_settings \
    WHERE name = 'synchronous_standby_names' AND sourcefile LIKE '%postgresql.auto.conf' \
    ORDER BY seqno DESC LIMIT 1";
const SYNC_STATE: &str = "SELECT pg_is_in_recovery() AS recovery, \
    current_setting('synchronous_standby_names') = '' OR EXISTS (SELECT FROM pg_stat_replication \
    WHERE sync_state IN ('sync', 'quorum')) AS done";
const UNUSED_SLOTS: &str = "SELECT coalesce(string_agg(slot_name, ', '), '') AS names \
    FROM pg_replication_slots WHERE NOT active AND slot_type = 'physical'";

const AFTER: [&str; 2] = [
    "make a new full backup: incremental backups do not see the change",
    "no pg_rewind from a node or copy that has checksums to one that has none",
];

fn node_record(name: &str, preflight: &Preflight) -> RollingNode {
    let position = preflight.survey.nodes.iter().position(|node| node.name == name);
    let state = position.and_then(|at| preflight.survey.nodes.get(at));
    let prediction = position.and_then(|at| preflight.predictions.get(at));
    let checksums = state.map(NodeState::has_checksums);
    RollingNode {
        name: name.to_owned(),
        primary: name == preflight.topology.primary,
        upstream: preflight.topology.upstream(name).map(str::to_owned),
        checksums_before: checksums,
        checksums,
        predicted_seconds: prediction.map(|(seconds, _)| *seconds),
        bytes: prediction.map(|(_, bytes)| *bytes),
        convert_seconds: None,
        down_seconds: None,
        catch_up_seconds: None,
        verified: None,
        refused_pages: 0,
    }
}

fn empty_record(options: &RollingOptions, provenance: Provenance) -> RollingRecord {
    RollingRecord {
        schema: ROLLING_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        enable: options.enable,
        system_identifier: String::new(),
        outcome: RollingOutcome::DryRun,
        ended: None,
        primary: None,
        nodes: Vec::new(),
        candidate: None,
        predicted_gap_seconds: None,
        predicted_alone_seconds: None,
        switchovers: Vec::new(),
        objections: Vec::<RollingObjection>::new(),
        seconds: None,
        next: Vec::new(),
    }
}

fn empty_journal(options: &RollingOptions) -> Journal {
    Journal {
        schema: Journal::schema(),
        enable: options.enable,
        system_identifier: 0,
        nodes: Vec::new(),
        original_primary: String::new(),
        primary: String::new(),
        candidate: None,
        wanted: Vec::new(),
        switch_back: options.switch_back,
        verify: options.verify,
        is_switchover_confirmed: options.is_switchover_confirmed,
        before_switch: options.before_switch.clone(),
        after_switch: options.after_switch.clone(),
        switchover: None,
        switchovers: Vec::new(),
        restore: Vec::new(),
        slots: Vec::new(),
    }
}
