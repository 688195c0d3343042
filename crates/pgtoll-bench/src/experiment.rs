//! Experiments: what is compared, as a TOML file says it.

use std::collections::{BTreeMap, BTreeSet};

use pgtoll_load::Script;
use serde::Deserialize;

use crate::prepare::ORIGIN;

/// The experiments that pgtoll brings along: name and text.
pub static BUILT_IN: [(&str, &str); 1] =
    [("checksums", include_str!("../../../experiments/checksums.toml"))];

/// What is compared, and under which work.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What it answers.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// pgbench's scale factor of the data that scripts work on.
    #[serde(default = "one")]
    pub scale: u32,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What is compared.
    pub arms: Vec<ArmSpec>,
    /// The work; those that stand first get time first.
    pub workloads: Vec<WorkloadSpec>,
}

/// One of the configurations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmSpec {
    /// Its name; also the name of its directory.
    pub name: String,
    /// Data checksums are on.
    #[serde(default)]
    pub checksums: bool,
    /// Settings that only this arm has.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// A null arm: a copy of that arm without any difference.
    pub twin_of: Option<String>,
}

/// What the servers have to do: transactions of a script, or steps on a fresh copy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Settings of every arm under this workload.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// pgbench's name of a built-in script.
    pub script: Option<String>,
    /// Transactions of the script in the counted pass; 0: none.
    #[serde(default)]
    pub counted: u64,
    /// It is meant to read from outside shared buffers: a warning says so when it will not.
    #[serde(default)]
    pub misses: bool,
    /// Steps, done in this order by each arm on a fresh copy of an empty cluster.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// The table that the steps are about: figures are per page of it.
    pub table: Option<String>,
}

/// One statement of a workload's steps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// The statement.
    pub sql: String,
    /// It is measured, under this name.
    pub measure: Option<String>,
    /// What is measured, in a few words.
    pub title: Option<String>,
}

impl WorkloadSpec {
    /// The script; `None` for a workload of steps.
    pub fn script(&self) -> Option<Script> {
        self.script.as_deref().and_then(|name| name.parse().ok())
    }

    /// The steps that are measured, with their names.
    pub fn measured(&self) -> impl Iterator<Item = (&str, &StepSpec)> {
        self.steps.iter().filter_map(|step| Some((step.measure.as_deref()?, step)))
    }
}

fn one() -> u32 {
    1
}

/// Settings that pgtoll itself depends on.
const RESERVED: [&str; 11] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "include",
    "include_dir",
    "include_if_exists",
    "listen_addresses",
    "port",
    "unix_socket_directories",
];

impl Experiment {
    /// The built-in experiment of this name.
    pub fn built_in(name: &str) -> Option<Result<Self, ExperimentError>> {
        BUILT_IN.iter().find(|(of, _)| *of == name).map(|(_, text)| Self::parse(text))
    }

    /// Reads and checks an experiment's text.
    pub fn parse(text: &str) -> Result<Self, ExperimentError> {
        let experiment: Self =
            toml::from_str(text).map_err(|error| ExperimentError::toml(text, &error))?;
        experiment.check()?;
        Ok(experiment)
    }

    /// The workloads of scripts, which work on pgbench's tables.
    pub fn scripts(&self) -> impl Iterator<Item = (&WorkloadSpec, Script)> {
        self.workloads.iter().filter_map(|of| Some((of, of.script()?)))
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |what: String| Err(ExperimentError::Inconsistent(what));
        self.check_workloads()?;
        if self.scale == 0 {
            return wrong("scale is 0".into());
        }
        if !(2..=8).contains(&self.arms.len()) {
            return wrong(format!("{} arms, where 2 to 8 are taken", self.arms.len()));
        }
        let mut names = BTreeSet::new();
        check_name("experiment", &self.name)?;
        for arm in &self.arms {
            check_name("arm", &arm.name)?;
            if !names.insert(arm.name.as_str()) {
                return wrong(format!("two arms are called {:?}", arm.name));
            }
        }
        if !names.contains(self.baseline.as_str()) {
            return wrong(format!("baseline {:?} is not an arm", self.baseline));
        }
        self.check_twins().and_then(|()| self.check_settings())
    }

    fn check_workloads(&self) -> Result<(), ExperimentError> {
        let wrong = |what: String| Err(ExperimentError::Inconsistent(what));
        if self.workloads.is_empty() {
            return wrong("no workload".into());
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            check_name("workload", &workload.name)?;
            match &workload.script {
                Some(_) if !workload.steps.is_empty() => {
                    return wrong(format!("workload {:?} has script and steps", workload.name));
                }
                Some(script) => {
                    let known = script.parse::<Script>();
                    known.map_err(|error| ExperimentError::Inconsistent(error.to_string()))?;
                }
                None if workload.measured().next().is_none() => {
                    return wrong(format!("workload {:?} measures nothing", workload.name));
                }
                None => {}
            }
            let measured = workload.measured().map(|(name, _)| name);
            let script = workload.script.is_some().then_some(workload.name.as_str());
            for name in measured.chain(script) {
                check_name("measured step's", name)?;
                if !names.insert(name) {
                    return wrong(format!("two workloads are called {name:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_twins(&self) -> Result<(), ExperimentError> {
        for arm in &self.arms {
            let Some(of) = &arm.twin_of else { continue };
            let alike = self.arms.iter().any(|other| {
                other.name == *of
                    && other.name != arm.name
                    && other.settings == arm.settings
                    && other.checksums == arm.checksums
            });
            if !alike {
                let text = format!("arm {:?} is no copy of {of:?}: they must not differ", arm.name);
                return Err(ExperimentError::Inconsistent(text));
            }
            if *of != self.baseline {
                let text = format!("arm {:?} is no copy of the baseline", arm.name);
                return Err(ExperimentError::Inconsistent(text));
            }
        }
        Ok(())
    }

    fn check_settings(&self) -> Result<(), ExperimentError> {
        let all = self.arms.iter().map(|arm| &arm.settings);
        let all = all.chain(self.workloads.iter().map(|of| &of.settings)).chain([&self.settings]);
        for name in all.flat_map(BTreeMap::keys) {
            let wrong = |what| Err(ExperimentError::Inconsistent(format!("setting {name} {what}")));
            if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
                return wrong("is pgtoll's own");
            }
            if name.to_ascii_lowercase() != *name {
                return wrong("is not written in lower case");
            }
        }
        Ok(())
    }
}

/// Names become names of directories.
fn check_name(of: &str, name: &str) -> Result<(), ExperimentError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 24 || !name.chars().all(plain) || name == ORIGIN {
        let rule = format!("1 to 24 letters, digits, - and _ (and not {ORIGIN})");
        let text = format!("{of} name {name:?} is not {rule}");
        return Err(ExperimentError::Inconsistent(text));
    }
    Ok(())
}

/// An experiment's text that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExperimentError {
    /// It is no TOML, or not of the right form.
    #[error("line {line}, column {column}: {message}")]
    Toml {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// Its parts do not fit.
    #[error("{0}")]
    Inconsistent(String),
}

impl ExperimentError {
    fn toml(text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self::Toml {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: error.message().replace('\n', ", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_built_in_is_consistent_and_named_as_its_file() {
        for (name, text) in BUILT_IN {
            assert_eq!(Experiment::parse(text).unwrap().name, name);
        }
    }

    fn check(change: (&str, &str), expected: &str) {
        let text = BUILT_IN[0].1.replace(change.0, change.1);
        assert_ne!(text, BUILT_IN[0].1, "{change:?} changes nothing");
        let error = Experiment::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        check(("baseline = \"off\"", "baseline = \"of\""), "baseline \"of\" is not an arm");
        check(("name = \"hints\"", "name = \"off\""), "two arms are called \"off\"");
        check(("name = \"hints\"", "name = \"../x\""), "arm name \"../x\" is not");
        check(("twin_of = \"off\"", "twin_of = \"hints\""), "they must not differ");
        check(("twin_of = \"off\"", "twin_of = \"twin\""), "they must not differ");
        check(("name = \"hints\"", "name = \"origin\""), "(and not origin)");
        check(("autovacuum =", "AutoVacuum ="), "is not written in lower case");
        check(("select-only", "tpcb"), "no script \"tpcb\"");
        check(("first-select", "insert"), "two workloads are called \"insert\"");
        check((", measure = \"first-select\"", ", measures = \"x\""), "unknown field `measures`");
        check(("checksums = true", "checksum = true"), "unknown field `checksum`");
        check(("autovacuum =", "port ="), "setting port is pgtoll's own");
        check(("question =", "question"), "line 8, column 10");
    }

    proptest! {
        #[test]
        fn any_text_is_an_experiment_or_an_error(text in ".*") {
            let _ = Experiment::parse(&text);
        }

        #[test]
        fn any_cut_of_an_experiment_is_an_experiment_or_an_error(cut in 0..BUILT_IN[0].1.len()) {
            let text: String = BUILT_IN[0].1.chars().take(cut).collect();
            let _ = Experiment::parse(&text);
        }
    }
}
