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
    /// Lets it watch so many checkpoint cycles.
    pub(crate) fn begin(cluster: &Cluster, cycles: u32) -> anyhow::Result<Self> {
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
            .args(["--cycles", &cycles.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Self(child.context("start pgtoll predict")?))
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait().context("wait for pgtoll predict")?.is_some())
    }

    /// The relative changes of WAL and CPU time that it predicts.
    pub(crate) fn finish(mut self) -> anyhow::Result<(Range, Option<Range>)> {
        if !self.has_ended()? {
            bail!(
                "pgtoll predict goes on after twice as many checkpoint cycles as it was to watch"
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
        ranges(&record.with_context(|| format!("read the answer of pgtoll predict: {errors}"))?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer about data checksums in a record of schema `pgtoll.prediction/1`.
fn ranges(record: &Value) -> anyhow::Result<(Range, Option<Range>)> {
    let answers = record["answers"].as_array().context("the prediction has no answers")?;
    let of_checksums = |answer: &&Value| answer["setting"] == "data_checksums";
    let answer = answers.iter().find(of_checksums).context("no answer is about checksums")?;
    let wal = range(&answer["wal"]["extra_share"]).context("WAL is not predicted")?;
    Ok((wal, range(&answer["cpu"]["share_of_busy"])))
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
        let record = |cpu: Value| {
            let answer =
                json!({"setting": "data_checksums", "wal": {"extra_share": wal}, "cpu": cpu});
            json!({"answers": [{"setting": "max_wal_size"}, answer]})
        };
        let expected = Range { middle: 0.2, lower: 0.1, upper: 0.3 };
        assert_eq!(ranges(&record(Value::Null)).unwrap(), (expected, None));
        let cpu = json!({"share_of_busy": wal});
        assert_eq!(ranges(&record(cpu)).unwrap(), (expected, Some(expected)));
        ranges(&json!({"answers": [{"setting": "data_checksums", "wal": null}]})).unwrap_err();
    }
}
