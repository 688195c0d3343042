//! One drill: damage, verification, repair, comparison with the undamaged page.

use std::path::PathBuf;

use anyhow::Context as _;
use pgtoll_cluster::{Cluster, Guard};
use pgtoll_format::{Lsn, PageHeader, SplitMix64};
use serde::Serialize;
use serde_json::Value;

use crate::damage::{Damage, Kind};
use crate::site::{GAP, Site};

/// A drill before it is run.
pub(crate) struct Drill {
    pub(crate) major: u32,
    pub(crate) seed: u64,
    pub(crate) damage: Damage,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) major: u32,
    pub(crate) seed: u64,
    pub(crate) is_running: bool,
    pub(crate) relation: String,
    pub(crate) block: u64,
    pub(crate) damage: Kind,
    pub(crate) found: Detected,
    /// Of stopped clusters.
    pub(crate) repair: Option<Repair>,
}

/// Whether the verification found the damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Detected {
    /// A finding names the block.
    Found,
    /// A note names the relation: nothing tells the page from one that was never used.
    Noted,
    /// Nothing that is at hand can show it.
    Unknowable,
    Missed,
}

/// What the repair did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Repair {
    pub(crate) sources: &'static str,
    pub(crate) class: String,
    pub(crate) result: RepairResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RepairResult {
    Right,
    Wrong,
    NotWritten,
}

impl Outcome {
    pub(crate) fn is_failed(&self) -> bool {
        let is_wrong =
            self.repair.as_ref().is_some_and(|repair| repair.result == RepairResult::Wrong);
        self.found == Detected::Missed || is_wrong
    }
}

impl Drill {
    /// Verifies a running copy whose server does not have the block in memory.
    pub(crate) fn run_running(&self, site: &Site) -> anyhow::Result<Outcome> {
        let data = site.damaged.data();
        self.damage.apply(&data)?;
        let found = self.found(&verified(site)?);
        self.damage.revert(&data)?;
        Ok(self.outcome(true, found, None))
    }

    /// Verifies and repairs a stopped copy.
    pub(crate) fn run_stopped(
        &self,
        site: &mut Site,
        guard: &mut Guard,
        random: &mut SplitMix64,
    ) -> anyhow::Result<Outcome> {
        let data = site.damaged.data();
        self.damage.apply(&data)?;
        let found = self.found(&verified(site)?);
        let kinds: Vec<&'static str> = site.sources.keys().copied().collect();
        let sources = kinds[usize::try_from(random.below(kinds.len() as u64))?];
        let moved = if sources == GAP { Some(MovedSegment::take(&site.damaged)?) } else { None };
        let record = repaired(site, sources)?;
        if let Some(moved) = moved {
            moved.put_back()?;
        }
        let block = record["blocks"].as_array().and_then(|blocks| {
            blocks.iter().find(|block| block["block"].as_u64() == Some(self.damage.block))
        });
        let class = block.and_then(|block| block["class"].as_str()).unwrap_or("none").to_owned();
        let is_written = block.is_some_and(|block| block["installed"] == true);
        let result = if !is_written {
            RepairResult::NotWritten
        } else if self.damage.now(&data)? == self.damage.before || site.is_content_right(guard)? {
            RepairResult::Right
        } else {
            RepairResult::Wrong
        };
        self.damage.revert(&site.damaged.data())?;
        Ok(self.outcome(false, found, Some(Repair { sources, class, result })))
    }

    fn found(&self, record: &Value) -> Detected {
        let filenode = self.damage.relation.file.file_name().and_then(|name| name.to_str());
        let relations = record["relations"].as_array().into_iter().flatten();
        let own = relations
            .filter(|relation| Some(relation["filenode"].to_string().as_str()) == filenode);
        let findings =
            own.flat_map(|relation| relation["findings"].as_array().into_iter().flatten());
        let has_block = |finding: &&Value| {
            let [first, count] = ["block", "blocks"].map(|key| finding[key].as_u64().unwrap_or(0));
            (first..first + count.max(1)).contains(&self.damage.block)
        };
        if findings.into_iter().any(|finding| has_block(&finding)) {
            return Detected::Found;
        }
        let name = format!(".{}: ", self.damage.relation.name);
        let notes = record["notes"].as_array().into_iter().flatten();
        if notes.filter_map(Value::as_str).any(|note| note.contains(&name)) {
            return Detected::Noted;
        }
        if self.is_unknowable(record) { Detected::Unknowable } else { Detected::Missed }
    }

    /// Whether the page was changed last before the WAL at hand begins, or is a zero page at the end of
    /// its file, as servers leave them.
    fn is_unknowable(&self, record: &Value) -> bool {
        let covered = record["covered"].as_array().into_iter().flatten();
        let wal = covered.filter_map(Value::as_str).find_map(|item| item.strip_prefix("WAL from "));
        let from = wal.and_then(|range| range.split(' ').next()?.parse::<Lsn>().ok());
        let lsn = PageHeader::read(&self.damage.before).map(|header| header.lsn);
        let is_before = from.zip(lsn).is_some_and(|(from, lsn)| lsn <= from);
        match self.damage.kind {
            Kind::OlderCopy | Kind::Zeros | Kind::LastBlockZero => is_before,
            _ => false,
        }
    }

    fn outcome(&self, is_running: bool, found: Detected, repair: Option<Repair>) -> Outcome {
        Outcome {
            major: self.major,
            seed: self.seed,
            is_running,
            relation: self.damage.relation.name.clone(),
            block: self.damage.block,
            damage: self.damage.kind,
            found,
            repair,
        }
    }
}

/// The record of plain `pgtoll verify`.
fn verified(site: &Site) -> anyhow::Result<Value> {
    run(site, &["verify".to_owned()])
}

/// The record of `pgtoll repair --yes` with these sources.
fn repaired(site: &Site, sources: &str) -> anyhow::Result<Value> {
    let mut arguments = vec!["repair".to_owned(), "--yes".to_owned()];
    arguments.extend(site.sources[sources].iter().cloned());
    run(site, &arguments)
}

fn run(site: &Site, arguments: &[String]) -> anyhow::Result<Value> {
    let mut command = pgtoll_trials::program(&site.pgtoll);
    command.args(arguments).arg(site.damaged.data()).arg("--json");
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}: {error}", output.status))
}

/// A segment that is away from `pg_wal` for a while.
struct MovedSegment {
    from: PathBuf,
    to: PathBuf,
}

impl MovedSegment {
    /// Takes one in the middle.
    fn take(cluster: &Cluster) -> anyhow::Result<Self> {
        let directory = cluster.data().join("pg_wal");
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            segments.push(entry?.path());
        }
        segments.retain(|path| path.file_name().is_some_and(|name| name.len() == 24));
        segments.sort();
        let from = segments.get(segments.len() / 2).context("no WAL")?.clone();
        let to = from.with_extension("away");
        std::fs::rename(&from, &to)?;
        Ok(Self { from, to })
    }

    fn put_back(self) -> anyhow::Result<()> {
        Ok(std::fs::rename(self.to, self.from)?)
    }
}
