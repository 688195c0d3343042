//! The copies that work is replayed on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pgtoll_cluster::{Cluster, Guard, Installation, StopMode};
use pgtoll_format::MajorFacts;
use pgtoll_observe::{ClusterCpu, ServerCounters};
use pgtoll_record::{ArmReplay, ReplayArm, ReplayArmRole};
use pgtoll_system::Interrupt;
use pgtoll_wire::{Connection, Dsn, Interruption};

use super::content::Content;
use super::{ComparisonError, TWIN, server_error};
use crate::run::{ReplaySettings, Replayed, replay};
use crate::workload::CapturedWorkload;

/// How an arm differs from the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedArmPlan {
    /// Its name.
    pub name: String,
    /// Whether its pages are to have checksums. `None`: as in the data directory.
    pub checksums: Option<bool>,
    /// Settings that only this arm has.
    pub settings: BTreeMap<String, String>,
    /// The set-up of its copy before the first round.
    pub setup: Option<ArmSetup>,
    /// The index of its source in [`ComparisonSite::sources`](super::ComparisonSite::sources).
    pub source: usize,
}

/// A data directory as it was when the capture began. No server runs on it; it is only read.
#[derive(Clone, Debug)]
pub struct ComparedSource {
    /// Its server.
    pub installation: Installation,
    /// A server of the directory's own version, where `installation` is of a later major version: a copy
    /// is upgraded.
    pub before: Option<Installation>,
    /// The directory.
    pub data: PathBuf,
}

/// A script of `psql`, which runs in the database of most statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmSetup {
    /// Its file's name.
    pub name: String,
    /// Its text.
    pub sql: String,
}

/// The state that all arms share.
pub(super) struct ArmSite<'a> {
    pub(super) guard: Guard,
    pub(super) workload: &'a CapturedWorkload,
    pub(super) settings: ReplaySettings,
    pub(super) interrupt: &'a Interrupt,
    pub(super) interruption: &'a Interruption,
}

/// An arm as it is before each replay.
pub(super) struct PreparedArm {
    /// Stopped; the twin has the baseline's.
    template: Cluster,
    pub(super) arm: ReplayArm,
    facts: &'static MajorFacts,
}

/// A copy of a data directory that a server has recovered, stopped.
struct ImportedSource {
    cluster: Cluster,
    has_checksums: bool,
    /// `server_version`.
    server: String,
    /// Read where there are several.
    content: Option<Content>,
    facts: &'static MajorFacts,
}

/// All arms: the baseline, what is compared with it, the twin.
pub(super) struct PreparedArms {
    pub(super) arms: Vec<PreparedArm>,
    /// The baseline's `server_version`.
    pub(super) server: String,
    /// Settings of the data directories that do not hold for copies.
    pub(super) left_out: Vec<String>,
    /// Notes on other differences between arms of several data directories.
    pub(super) notes: Vec<String>,
}

/// How long sessions' processes may take to end, once their connections have.
const PROCESSES_END: Duration = Duration::from_secs(2);

impl ArmSite<'_> {
    pub(super) fn dsn(&self, cluster: &Cluster) -> Result<Dsn, ComparisonError> {
        let environment = cluster.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        let text = format!(
            "host='{}' port={} user={} dbname={}",
            value("PGHOST"),
            value("PGPORT"),
            value("PGUSER"),
            value("PGDATABASE")
        );
        let dsn: Dsn = text.parse()?;
        Ok(dsn.with_interruption(self.interruption))
    }

    fn databases(&self) -> BTreeSet<&str> {
        let used: BTreeSet<u32> = self.workload.steps.iter().map(|step| step.session).collect();
        let name = |session: &u32| {
            let name = self.workload.sessions[*session as usize].database.as_str();
            self.settings.map.get(name).map_or(name, String::as_str)
        };
        used.iter().map(name).map(|name| if name.is_empty() { "postgres" } else { name }).collect()
    }

    /// The database of most statements.
    fn main_database(&self) -> &str {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for step in &self.workload.steps {
            let name = self.workload.sessions[step.session as usize].database.as_str();
            let name = self.settings.map.get(name).map_or(name, String::as_str);
            *counts.entry(name).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(name, _)| name).filter(|name| !name.is_empty()).unwrap_or("postgres")
    }
}

impl PreparedArms {
    /// Copies the data directories, lets servers recover the copies, and makes each arm's template of one.
    pub(super) fn make(
        site: &mut ArmSite<'_>,
        sources: &[ComparedSource],
        plans: &[ComparedArmPlan],
        begun: &mut dyn FnMut(&str),
    ) -> Result<Self, ComparisonError> {
        let mut left_out = Vec::new();
        let mut imported = Vec::new();
        for (place, source) in sources.iter().enumerate() {
            let reads_content = sources.len() > 1;
            let (one, more) = ImportedSource::make(site, source, place, reads_content)?;
            left_out.extend(more);
            imported.push(one);
        }
        left_out.sort();
        left_out.dedup();
        let notes = compare_contents(sources, &imported)?;
        let mut arms: Vec<PreparedArm> = Vec::new();
        for (place, plan) in plans.iter().enumerate() {
            begun(&plan.name);
            let source = &imported[plan.source];
            let name = format!("template{place}");
            let template = template(site, &source.cluster, &name, plan, source.has_checksums)?;
            let role = if place == 0 { ReplayArmRole::Baseline } else { ReplayArmRole::Treatment };
            let arm = ReplayArm {
                name: plan.name.clone(),
                role,
                server: (sources.len() > 1).then(|| source.server.clone()),
                checksums: plan.checksums.unwrap_or(source.has_checksums),
                settings: plan.settings.clone(),
                setup: plan.setup.as_ref().map(|setup| setup.name.clone()),
                runs: Vec::new(),
            };
            arms.push(PreparedArm { template, arm, facts: source.facts });
        }
        let server = plans.first().map(|plan| imported[plan.source].server.clone());
        for source in imported {
            source.cluster.remove(&mut site.guard)?;
        }
        if let Some(baseline) = arms.first() {
            let name = TWIN.to_owned();
            let role = ReplayArmRole::Twin;
            let arm = ReplayArm { name, role, ..baseline.arm.clone() };
            let template = baseline.template.clone();
            let facts = baseline.facts;
            arms.push(PreparedArm { template, arm, facts });
        }
        Ok(Self { arms, server: server.unwrap_or_default(), left_out, notes })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.arms.iter().map(|arm| arm.arm.name.clone()).collect()
    }

    /// Replays the work once on each arm, in this order; the times of all steps by arm. `None`: a signal
    /// ended it, and the round does not count.
    pub(super) fn run_round(
        &mut self,
        site: &mut ArmSite<'_>,
        round: u32,
        order: &[usize],
        begun: &mut dyn FnMut(&str),
    ) -> Result<Option<Vec<Vec<u64>>>, ComparisonError> {
        let mut step_ns = vec![Vec::new(); self.arms.len()];
        let mut runs = Vec::new();
        for (place, index) in (1..).zip(order) {
            let arm = &self.arms[*index];
            begun(&arm.arm.name);
            let (mut run, replayed) = arm.replay(site)?;
            if replayed.ended.is_some() {
                return Ok(None);
            }
            (run.round, run.place) = (round, place);
            step_ns[*index] = replayed.step_ns;
            runs.push((*index, run));
        }
        for (index, run) in runs {
            self.arms[index].arm.runs.push(run);
        }
        Ok(Some(step_ns))
    }
}

impl PreparedArm {
    /// A server on a fresh copy; its postmaster's pid.
    pub(super) fn start(
        &self,
        site: &mut ArmSite<'_>,
        name: &str,
    ) -> Result<(Cluster, i32), ComparisonError> {
        let copy = self.template.copy(&mut site.guard, name)?;
        let pid = copy.start(&mut site.guard)?;
        Ok((copy, pid))
    }

    fn replay(&self, site: &mut ArmSite<'_>) -> Result<(ArmReplay, Replayed), ComparisonError> {
        let name = &self.arm.name;
        let facts = self.facts;
        let observe = |source| ComparisonError::Observe { arm: name.clone(), source };
        let (copy, pid) = self.start(site, "copy")?;
        let dsn = site.dsn(&copy)?;
        let mut connection = copy.connect("postgres")?;
        let counters = ServerCounters::read(&mut connection, facts, "postgres").map_err(observe)?;
        let mut cpu = ClusterCpu::attach(pid).map_err(observe)?;
        let before = cpu.sample().map_err(observe)?;
        let replayed = replay(site.workload, &dsn, &site.settings, site.interrupt, &mut |_| {});
        let replayed =
            replayed.map_err(|source| ComparisonError::Replay { arm: name.clone(), source })?;
        // What sessions counted is complete when their processes have ended.
        cpu.wait_until_back(&before, PROCESSES_END).map_err(observe)?;
        let used = cpu.sample().map_err(observe)?.since(&before);
        let now = ServerCounters::read(&mut connection, facts, "postgres").map_err(observe)?;
        connection.close();
        copy.stop(&mut site.guard, StopMode::Immediate)?;
        copy.remove(&mut site.guard)?;
        let done = &replayed.done;
        let images = now.wal_full_page_images.zip(counters.wal_full_page_images);
        let run = ArmReplay {
            round: 0,
            place: 0,
            run_s: done.run_s,
            statements: done.statements,
            unexpected_errors: done.unexpected_errors,
            missing_errors: done.missing_errors,
            order_breaks: done.order_breaks,
            broken_sessions: done.broken_sessions,
            cpu_s: Duration::from_nanos(used.nanoseconds).as_secs_f64(),
            wal_bytes: now.wal_insert - counters.wal_insert,
            wal_images: images.map(|(now, before)| now.saturating_sub(before)),
            client_cpu_s: done.client_cpu_s,
            lateness_p99_ms: done.lateness_ms.map(|lateness_ms| lateness_ms.p99),
        };
        Ok((run, replayed))
    }
}

impl ImportedSource {
    /// A copy for its server, and settings of the configuration that are left out.
    fn import(
        site: &mut ArmSite<'_>,
        source: &ComparedSource,
        name: &str,
    ) -> Result<(Cluster, Vec<String>), ComparisonError> {
        let ComparedSource { installation, before, data } = source;
        let own = before.as_ref().unwrap_or(installation);
        let (cluster, mut left_out) = Cluster::import(&mut site.guard, own, name, data)?;
        if before.is_none() {
            return Ok((cluster, left_out));
        }
        let (upgraded, refused) =
            cluster.upgrade(&mut site.guard, installation, &format!("{name}-upgraded"))?;
        cluster.remove(&mut site.guard)?;
        left_out.extend(refused);
        Ok((upgraded, left_out))
    }

    /// With what of the configuration is left out.
    fn make(
        site: &mut ArmSite<'_>,
        source: &ComparedSource,
        place: usize,
        reads_content: bool,
    ) -> Result<(Self, Vec<String>), ComparisonError> {
        let installation = &source.installation;
        let name = format!("source{place}");
        let (cluster, left_out) = Self::import(site, source, &name)?;
        cluster.start(&mut site.guard)?;
        let mut connection = cluster.connect("postgres")?;
        let failed = || server_error("prepare the copy", &name);
        let row = connection
            .query_one(
                "SELECT current_setting('data_checksums') AS checksums, \
                 current_setting('server_version') AS version",
            )
            .map_err(failed())?;
        let has_checksums = row.text("checksums").map_err(failed())? == "on";
        let server = row.text("version").map_err(failed())?.to_owned();
        let databases = site.databases();
        for database in &databases {
            confirm(&mut connection, database)?;
        }
        connection.close();
        let mut content = None;
        if reads_content {
            content = Some(Content::read(&site.dsn(&cluster)?, databases, &server)?);
        }
        cluster.stop(&mut site.guard, StopMode::Fast)?;
        let facts = installation.version.facts().map_err(pgtoll_cluster::ClusterError::from)?;
        Ok((Self { cluster, has_checksums, server, content, facts }, left_out))
    }
}

/// Returns the differences of data directories beside their servers; an error if their rows differ.
fn compare_contents(
    sources: &[ComparedSource],
    imported: &[ImportedSource],
) -> Result<Vec<String>, ComparisonError> {
    let upgraded = sources.iter().zip(imported).filter(|(source, _)| source.before.is_some());
    let mut notes: Vec<String> = upgraded
        .map(|(source, copy)| {
            let data = source.data.display();
            let version = &copy.server;
            format!("a copy of {data} was upgraded to {version} with pg_upgrade; ANALYZE made its statistics")
        })
        .collect();
    let Some((baseline, others)) = imported.split_first() else { return Ok(notes) };
    for (other, source) in others.iter().zip(&sources[1..]) {
        let Some((own, of_other)) = baseline.content.as_ref().zip(other.content.as_ref()) else {
            continue;
        };
        if let Some(difference) = own.difference(of_other) {
            return Err(ComparisonError::OtherContent { data: source.data.clone(), difference });
        }
        let data = source.data.display();
        let place = if source.data == sources[0].data {
            format!("on {} and {}", baseline.server, other.server)
        } else {
            format!("as {}", sources[0].data.display())
        };
        notes.push(format!(
            "{data} holds the same rows {place}: the tables of the databases of the work were compared"
        ));
        for index in own.differing_indexes(of_other) {
            notes
                .push(format!("only one of {} and {} has: {index}", baseline.server, other.server));
        }
        if baseline.has_checksums != other.has_checksums {
            let word = |has| if has { "on" } else { "off" };
            notes.push(format!(
                "the data directories differ in checksums, too: {} of {}, {} of {}",
                word(baseline.has_checksums),
                baseline.server,
                word(other.has_checksums),
                other.server
            ));
        }
    }
    Ok(notes)
}

/// Declares a database of our own copy as disposable.
fn confirm(connection: &mut Connection, database: &str) -> Result<(), ComparisonError> {
    let quoted = database.replace('"', "\"\"");
    let sql = format!("ALTER DATABASE \"{quoted}\" SET pgtoll.disposable = on");
    let action = format!("confirm database \"{database}\" as disposable");
    connection.execute(&sql).map_err(server_error(&action, "source"))
}

fn template(
    site: &mut ArmSite<'_>,
    source: &Cluster,
    name: &str,
    plan: &ComparedArmPlan,
    has_checksums: bool,
) -> Result<Cluster, ComparisonError> {
    let database = site.main_database().to_owned();
    let template = source.copy(&mut site.guard, name)?;
    template.configure(&mut site.guard, &plan.settings)?;
    match plan.checksums {
        Some(true) if !has_checksums => template.enable_checksums(&mut site.guard)?,
        Some(false) if has_checksums => template.disable_checksums(&mut site.guard)?,
        _ => {}
    }
    if let Some(setup) = &plan.setup {
        template.start(&mut site.guard)?;
        template.run_psql(&mut site.guard, &database, &setup.sql)?;
        template.stop(&mut site.guard, StopMode::Fast)?;
    }
    Ok(template)
}
