//! `pgtoll predict`, started on a server that works, and its answer.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};
use pgtoll_cluster::Cluster;
use pgtoll_record::trials::{
    PredictionTrialBlind as Blind, PredictionTrialRange as Range, PredictionTrialRights as Rights,
};
use pgtoll_trials::{beside, program};
use serde_json::Value;

use crate::work::DATABASE;

/// A role with `pg_monitor`, which templates have.
pub(crate) const MONITOR: &str = "monitor";

/// The program while it watches a server. It is killed when this is dropped before its end.
pub(crate) struct Program {
    child: Child,
    /// Files, since a pipe that nobody reads holds it up when it is full.
    output: File,
    errors: File,
}

impl Program {
    /// Lets it watch this number of checkpoint cycles, and read WAL if its role may.
    pub(crate) fn begin(cluster: &Cluster, cycles: u32, rights: Rights) -> anyhow::Result<Self> {
        let environment = cluster.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        let (user, more): (_, &[_]) = match rights {
            Rights::Superuser => (value("PGUSER"), &["--wal", "stream"]),
            Rights::Monitor => (MONITOR, &[]),
        };
        let dsn = format!(
            "host='{}' port={} user={user} dbname={DATABASE}",
            value("PGHOST"),
            value("PGPORT"),
        );
        let file = || tempfile::tempfile().context("make a file for the answer of pgtoll predict");
        let output = file()?;
        let errors = file()?;
        let child = program(beside("pgtoll")?)
            .args(["--quiet", "predict", "--json", "--dsn", &dsn])
            .args(more)
            .args(["--cycles", &cycles.to_string()])
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(errors.try_clone()?))
            .spawn();
        Ok(Self { child: child.context("start pgtoll predict")?, output, errors })
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait().context("wait for pgtoll predict")?.is_some())
    }

    /// What it answers about data checksums.
    pub(crate) fn finish(mut self) -> anyhow::Result<ProgramAnswer> {
        if !self.has_ended()? {
            bail!(
                "pgtoll predict goes on after twice as many checkpoint cycles as it was to watch"
            );
        }
        let read = |file: &mut File| -> anyhow::Result<String> {
            let mut text = String::new();
            file.rewind()?;
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let output = read(&mut self.output)?;
        let errors = read(&mut self.errors)?;
        let record = serde_json::from_str(&output);
        checksums_answer(
            &record.with_context(|| format!("read the answer of pgtoll predict: {errors}"))?,
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The relative changes of WAL and CPU time that it predicts, and its blind self-test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProgramAnswer {
    pub(crate) wal: Option<Range>,
    pub(crate) basis: Option<String>,
    pub(crate) cpu: Option<Range>,
    pub(crate) blind: Option<Blind>,
}

/// Finds the answer about data checksums in a record of schema `pgtoll.prediction/1`.
fn checksums_answer(record: &Value) -> anyhow::Result<ProgramAnswer> {
    let answers = record["answers"].as_array().context("the prediction has no answers")?;
    let is_own = |answer: &&Value| answer["setting"] == "data_checksums";
    let answer = answers.iter().find(is_own).context("no answer is about checksums")?;
    Ok(ProgramAnswer {
        wal: range(&answer["wal"]["extra_share"]),
        basis: answer["wal"]["basis"].as_str().map(str::to_owned),
        cpu: range(&answer["cpu"]["share_of_busy"]),
        blind: blind(&record["checks"]["blind"]),
    })
}

fn blind(check: &Value) -> Option<Blind> {
    let predicted = range(&check["predicted_share"])?;
    Some(Blind { predicted, found: check["found_share"].as_f64()? })
}

fn range(interval: &Value) -> Option<Range> {
    let bound = |name: &str| interval[name].as_f64();
    Some(Range { middle: bound("estimate")?, lower: bound("lower")?, upper: bound("upper")? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_its_ranges() {
        let wal = json!({"estimate": 0.2, "lower": 0.1, "upper": 0.3});
        let answer = json!({
            "setting": "data_checksums",
            "wal": {"extra_share": wal, "basis": "census"},
            "cpu": {"share_of_busy": wal},
        });
        let blind = json!({"predicted_share": wal, "found_share": 0.25});
        let record = json!({
            "answers": [{"setting": "max_wal_size"}, answer],
            "checks": {"blind": blind},
        });
        let range = Range { middle: 0.2, lower: 0.1, upper: 0.3 };
        let expected = ProgramAnswer {
            wal: Some(range),
            basis: Some("census".to_owned()),
            cpu: Some(range),
            blind: Some(Blind { predicted: range, found: 0.25 }),
        };
        assert_eq!(checksums_answer(&record).unwrap(), expected);
        let nothing = json!({"answers": [{"setting": "data_checksums", "wal": null}]});
        assert_eq!(checksums_answer(&nothing).unwrap(), ProgramAnswer::default());
        checksums_answer(&json!({"answers": []})).unwrap_err();
    }
}
