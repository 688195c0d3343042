//! One run of `pgtoll replay compare`, and what it says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use pgtoll_record::trials::{ReplayCompareNamed, ReplayComparePlant, ReplayCompareTrial};
use pgtoll_record::{ReplayComparison, ShapeVerdict};
use pgtoll_stats::median;
use pgtoll_trials::{beside, program};

use crate::site::{CompareSite, rows_setting};

/// Where comparisons are made, or are found.
pub(crate) struct Comparisons<'a> {
    pub(crate) site: &'a CompareSite,
    pub(crate) records: &'a Path,
    pub(crate) work_dir: &'a Path,
    pub(crate) postgres: &'a str,
    pub(crate) rounds: u32,
}

impl Comparisons<'_> {
    /// The comparison with this plant and seed, made now if its record is not there.
    pub(crate) fn result(
        &self,
        plant: ReplayComparePlant,
        seed: u64,
    ) -> anyhow::Result<ReplayComparison> {
        let path = self.records.join(format!("{}-{seed}.json", name(plant)));
        if !path.is_file() {
            self.compare(plant, seed, &path)?;
        }
        let text = fs::read_to_string(&path).context("read the comparison's record")?;
        let record: ReplayComparison =
            serde_json::from_str(&text).context("read the comparison's record")?;
        if !record.complete || record.rounds != self.rounds {
            bail!(
                "{} is of a comparison that was interrupted, or of another number of rounds: remove it",
                path.display()
            );
        }
        Ok(record)
    }

    fn compare(&self, plant: ReplayComparePlant, seed: u64, path: &Path) -> anyhow::Result<()> {
        // It gets its name when it is complete.
        let draft = path.with_extension("part");
        let _ = fs::remove_file(&draft);
        let mut command = program(beside("pgtoll")?);
        command.args(["--quiet", "replay", "compare", "--order", "key", "--user", "postgres"]);
        command.args(["--arms", &format!("before,{}", name(plant)), "--postgres", self.postgres]);
        command.args(["--rounds", &self.rounds.to_string(), "--seed", &seed.to_string()]);
        command.arg("--data").arg(self.site.data());
        command.arg("--work-dir").arg(self.work_dir).arg("--record").arg(&draft);
        if let Some(script) = self.script(plant)? {
            command.args(["--setup", &format!("{}:{}", name(plant), script.display())]);
        }
        let output = command.arg(&self.site.plan).output().context("run pgtoll replay compare")?;
        // Status 1: something is slower.
        if !matches!(output.status.code(), Some(0 | 1)) {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("pgtoll replay compare: {}: {message}", output.status);
        }
        fs::rename(&draft, path).context("keep the comparison's record")
    }

    /// What makes the arm slower.
    fn script(&self, plant: ReplayComparePlant) -> anyhow::Result<Option<PathBuf>> {
        let script = match plant {
            ReplayComparePlant::Nothing => return Ok(None),
            ReplayComparePlant::Fifth => rows_setting(self.site.plant.planted_rows),
            ReplayComparePlant::Index => include_str!("worse-index.sql").to_owned(),
        };
        let path = self.records.join(format!("{}.sql", name(plant)));
        fs::write(&path, script).context("write the script")?;
        Ok(Some(path))
    }
}

/// The arm's name.
pub(crate) fn name(plant: ReplayComparePlant) -> &'static str {
    match plant {
        ReplayComparePlant::Nothing => "nothing",
        ReplayComparePlant::Fifth => "fifth",
        ReplayComparePlant::Index => "index",
    }
}

/// A part of the statement that is made slower which no other one has.
fn planted_statement(plant: ReplayComparePlant) -> Option<&'static str> {
    match plant {
        ReplayComparePlant::Nothing => None,
        ReplayComparePlant::Fifth => Some("select sum ( v ) from events"),
        ReplayComparePlant::Index => Some("select sum ( amount ) from orders"),
    }
}

/// What a comparison says of what is known.
pub(crate) fn trial(
    plant: ReplayComparePlant,
    record: &ReplayComparison,
) -> anyhow::Result<ReplayCompareTrial> {
    let named = |verdict| {
        let found = record.by_verdict(verdict).into_iter();
        let named = found.filter_map(|(shape, by_verdict)| {
            Some(ReplayCompareNamed {
                statement: shape.statement.clone(),
                range: by_verdict.range?,
            })
        });
        named.collect::<Vec<_>>()
    };
    let slower = named(ShapeVerdict::Slower);
    let faster = named(ShapeVerdict::Faster);
    let floors: Vec<f64> = record.shapes.iter().filter_map(|shape| shape.floor).collect();
    let mut planted = None;
    let mut found = None;
    if let Some(part) = planted_statement(plant) {
        let shape = record.shapes.iter().find(|shape| shape.statement.starts_with(part));
        let shape = shape.context("the planted statement was not compared")?;
        planted = shape.arms.first().and_then(|arm| arm.range);
        found = Some(slower.iter().any(|slower| slower.statement == shape.statement));
    }
    Ok(ReplayCompareTrial {
        plant,
        seed: record.seed,
        made: record.made.clone(),
        shapes: record.shapes.len() as u64,
        floor: median(&floors).context("nothing was compared")?,
        slower,
        faster,
        planted,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_statements_are_in_the_work_and_in_no_other_one() {
        let work = include_str!("transaction.sql").to_lowercase();
        let work = work.replace('(', " ( ").replace(')', " )");
        for plant in [ReplayComparePlant::Fifth, ReplayComparePlant::Index] {
            let part = planted_statement(plant).unwrap();
            assert_eq!(work.lines().filter(|line| line.starts_with(part)).count(), 1, "{part}");
        }
        assert_eq!(planted_statement(ReplayComparePlant::Nothing), None);
    }
}
