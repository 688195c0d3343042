//! Runs of `pgtoll measure` and their results.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use pgtoll_record::RunResult;
use pgtoll_trials::{beside, program};

/// The handicap times this many is what its size is found from.
pub(crate) const MULTIPLE: u32 = 20;

/// The experiment, and the scripts that it names.
const EXPERIMENT: &str = include_str!("experiment.toml");
const SCRIPTS: [(&str, &str); 2] = [
    ("read-only.sql", include_str!("read-only.sql")),
    ("read-write.sql", include_str!("read-write.sql")),
];
/// The arms and their rows as the experiment has them.
const ARMS: [(&str, u32); 2] = [("plain", 14), ("handicap", 28)];
/// The first line of each workload in the experiment.
const WORKLOAD: &str = "[[workloads]]\n";

/// The choices that all runs share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    /// The only workload, else all.
    pub(crate) workload: Option<&'a str>,
    /// The rows that every arm works on, and the handicap's more.
    pub(crate) rows: u32,
    /// The time of a run, as `pgtoll measure` takes it; else short rounds of every workload.
    pub(crate) budget: Option<&'a str>,
}

/// Where runs are made, or are found.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    pgtoll: PathBuf,
    records: &'a Path,
    work_dir: &'a Path,
    case: Case<'a>,
}

impl<'a> Runs<'a> {
    /// Finds the program that is tried, and writes the scripts.
    pub(crate) fn prepare(
        records: &'a Path,
        work_dir: &'a Path,
        case: Case<'a>,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(records).with_context(|| format!("make {}", records.display()))?;
        for (name, text) in SCRIPTS {
            fs::write(records.join(name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(Self { pgtoll: beside("pgtoll")?, records, work_dir, case })
    }

    /// The result of the run with this seed, made now if it is not there.
    pub(crate) fn result(
        &self,
        multiple: u32,
        seed: u64,
        server: &str,
    ) -> anyhow::Result<RunResult> {
        let Case { workload, rows, budget } = self.case;
        let workload = workload.unwrap_or("all");
        let budget = budget.unwrap_or("short");
        let directory =
            self.records.join(format!("{workload}-{rows}-{budget}-{seed}-times-{multiple}"));
        let path = directory.join("result.json");
        if !path.is_file() {
            let _ = fs::remove_dir_all(&directory);
            self.measure(multiple, seed, server, &directory)?;
        }
        let text = fs::read_to_string(&path).context("read the result")?;
        let result: RunResult = serde_json::from_str(&text).context("read the result")?;
        if !result.complete {
            bail!("{} is the result of a run that was interrupted: remove it", path.display());
        }
        Ok(result)
    }

    fn measure(
        &self,
        multiple: u32,
        seed: u64,
        server: &str,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let experiment = self.records.join(format!("{seed}-times-{multiple}.toml"));
        fs::write(&experiment, self.case.experiment(multiple)?).context("write the experiment")?;
        let status = program(&self.pgtoll)
            .args(["--quiet", "measure", "--twins", "each"])
            .args(match self.case.budget {
                Some(budget) => vec!["--budget", budget],
                None => vec!["--rounds", "6", "--round-time", "4s"],
            })
            .args(["--postgres", server, "--seed", &seed.to_string()])
            .arg(&experiment)
            .arg("--work-dir")
            .arg(self.work_dir)
            .arg("--output")
            .arg(directory)
            // Results of earlier runs are neither used for this one's intervals nor added to.
            .env("XDG_STATE_HOME", self.records.join("no-state"))
            .stdout(std::process::Stdio::null())
            .status()
            .context("run pgtoll measure")?;
        if !status.success() {
            bail!("pgtoll measure: {status}");
        }
        Ok(())
    }
}

impl Case<'_> {
    /// The experiment with this multiple of the handicap.
    fn experiment(&self, multiple: u32) -> anyhow::Result<String> {
        let mut parts = EXPERIMENT.split(WORKLOAD);
        let head = parts.next().unwrap_or_default();
        let arm = |name, rows| {
            format!("name = \"{name}\"\nsettings = {{ \"pgtoll.extra\" = \"{rows}\" }}")
        };
        let rows = [self.rows, self.rows * (1 + multiple)];
        let mut text = ARMS.iter().zip(rows).fold(head.to_owned(), |text, (&(name, was), rows)| {
            text.replace(&arm(name, was), &arm(name, rows))
        });
        let named = |name| move |part: &&str| part.starts_with(&format!("name = \"{name}\"\n"));
        let chosen: Vec<&str> = match self.workload {
            None => parts.collect(),
            Some(name) => parts.filter(named(name)).collect(),
        };
        if chosen.is_empty() {
            bail!("the experiment has no such workload");
        }
        for part in chosen {
            text.push_str(WORKLOAD);
            text.push_str(part);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pgtoll_measure::Experiment;

    use super::*;

    fn parsed(case: Case<'_>, multiple: u32) -> (Vec<String>, Vec<String>) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/twins");
        let experiment =
            Experiment::parse(&case.experiment(multiple).unwrap(), &directory).unwrap();
        let extra = experiment.arms.iter().map(|arm| arm.settings["pgtoll.extra"].clone());
        let workloads = experiment.workloads.iter().map(|workload| workload.name.clone());
        (extra.collect(), workloads.collect())
    }

    #[test]
    fn the_multiple_is_in_one_arm() {
        let case = Case { workload: None, rows: 14, budget: None };
        assert_eq!(case.experiment(1).unwrap(), EXPERIMENT);
        assert_eq!(parsed(case, 20).0, ["14", "294"]);
    }

    #[test]
    fn one_workload() {
        let case = Case { workload: Some("read-write"), rows: 10, budget: None };
        let expected = (vec!["10".to_owned(), "20".to_owned()], vec!["read-write".to_owned()]);
        assert_eq!(parsed(case, 1), expected);
        assert!(Case { workload: Some("read"), ..case }.experiment(1).is_err());
    }
}
