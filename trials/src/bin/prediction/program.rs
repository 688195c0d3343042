//! `pgtoll predict`, started on a server that works, and its answer.

use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};
use pgtoll_cluster::Cluster;
use pgtoll_record::trials::PredictionTrialRange as Range;
use pgtoll_trials::{beside, program};
use serde_json::Value;

use crate::work::DATABASE;

/// The program while it watches a server. It is killed when this is dropped before its end.
pub(crate) struct Program(Child);

impl Program {
    /// Lets it watch as long as it does by itself: two checkpoint cycles.
    pub(crate) fn begin(cluster: &Cluster) -> anyhow::Result<Self> {
        let environment = cluster.environment();
        let value = |name: &str| environment.get(name).map_or("", String::as_str);
        let dsn = format!(
            "host='{}' port={} user={} dbname={DATABASE}",
            value("PGHOST"),
            value("PGPORT"),
            value("PGUSER")
        );
        let child = program(beside("pgtoll")?)
            .args(["--quiet", "predict", "--json", "--dsn", &dsn])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Self(child.context("start pgtoll predict")?))
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait().context("wait for pgtoll predict")?.is_some())
    }

    /// What it answers about data checksums.
    pub(crate) fn finish(mut self) -> anyhow::Result<ProgramAnswer> {
        if !self.has_ended()? {
            bail!(
                "pgtoll predict goes on after three times as many checkpoint cycles as it was to watch"
            );
        }
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            pipe.context("read from pgtoll predict")?.read_to_string(&mut text)?;
            anyhow::Ok(text)
        };
        let output = read(self.0.stdout.as_mut().map(|pipe| pipe as _))?;
        let errors = read(self.0.stderr.as_mut().map(|pipe| pipe as _))?;
        let record = serde_json::from_str(&output);
        checksums_answer(
            &record.with_context(|| format!("read the answer of pgtoll predict: {errors}"))?,
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The relative changes of WAL and CPU time that it predicts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgramAnswer {
    pub(crate) wal: Option<Range>,
    pub(crate) basis: Option<String>,
    pub(crate) cpu: Option<Range>,
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
    })
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
        let record = json!({"answers": [{"setting": "max_wal_size"}, answer]});
        let range = Some(Range { middle: 0.2, lower: 0.1, upper: 0.3 });
        let basis = Some("census".to_owned());
        let expected = ProgramAnswer { wal: range, basis, cpu: range };
        assert_eq!(checksums_answer(&record).unwrap(), expected);
        let nothing = json!({"answers": [{"setting": "data_checksums", "wal": null}]});
        let expected = ProgramAnswer { wal: None, basis: None, cpu: None };
        assert_eq!(checksums_answer(&nothing).unwrap(), expected);
        checksums_answer(&json!({"answers": []})).unwrap_err();
    }
}
