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
/// The handicap as the experiment has it.
const HANDICAP: (&str, u32) = ("\"pgtoll.extra\" = ", 14);

/// Where runs are made, or are found.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    pgtoll: PathBuf,
    records: &'a Path,
    work_dir: &'a Path,
}

impl<'a> Runs<'a> {
    /// Finds the program that is tried, and writes the scripts.
    pub(crate) fn prepare(records: &'a Path, work_dir: &'a Path) -> anyhow::Result<Self> {
        fs::create_dir_all(records).with_context(|| format!("make {}", records.display()))?;
        for (name, text) in SCRIPTS {
            fs::write(records.join(name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(Self { pgtoll: beside("pgtoll")?, records, work_dir })
    }

    /// The result of the run with this seed, made now if it is not there.
    pub(crate) fn result(
        &self,
        multiple: u32,
        seed: u64,
        server: &str,
    ) -> anyhow::Result<RunResult> {
        let directory = self.records.join(format!("{seed}-times-{multiple}"));
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
        let experiment = self.records.join(format!("times-{multiple}.toml"));
        fs::write(&experiment, handicapped(multiple)).context("write the experiment")?;
        let status = program(&self.pgtoll)
            .args(["--quiet", "measure", "--twins", "each", "--rounds", "6", "--round-time", "4s"])
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

/// The experiment with this multiple of the handicap.
fn handicapped(multiple: u32) -> String {
    let (name, rows) = HANDICAP;
    EXPERIMENT.replace(&format!("{name}\"{rows}\""), &format!("{name}\"{}\"", rows * multiple))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pgtoll_measure::Experiment;

    use super::*;

    #[test]
    fn the_multiple_is_in_one_arm() {
        assert_eq!(handicapped(1), EXPERIMENT);
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/twins");
        let extra = |multiple| {
            let experiment = Experiment::parse(&handicapped(multiple), &directory).unwrap();
            let arms = experiment.arms.iter();
            arms.map(|arm| arm.settings["pgtoll.extra"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(extra(1), ["0", "14"]);
        assert_eq!(extra(20), ["0", "280"]);
    }
}
