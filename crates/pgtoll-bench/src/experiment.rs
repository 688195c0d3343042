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
    /// Settings of every arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What is compared.
    pub arms: Vec<ArmSpec>,
    /// The work; the first form of the file takes one.
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

/// What the servers have to do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// pgbench's name of a built-in script.
    pub script: String,
    /// pgbench's scale factor.
    pub scale: u32,
    /// Settings of every arm under this workload.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
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

    /// The workload.
    pub fn workload(&self) -> &WorkloadSpec {
        &self.workloads[0]
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |what: String| Err(ExperimentError::Inconsistent(what));
        if self.workloads.len() != 1 {
            return wrong(format!("{} workloads, where one is taken", self.workloads.len()));
        }
        if let Err(error) = self.workload().script.parse::<Script>() {
            return wrong(error.to_string());
        }
        if self.workload().scale == 0 {
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
        let all = all.chain([&self.settings, &self.workload().settings]);
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
    if name.is_empty() || name.len() > 16 || !name.chars().all(plain) || name == ORIGIN {
        let rule = format!("1 to 16 letters, digits, - and _ (and not {ORIGIN})");
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
        check(("select-only", "tpcb-like"), "no script \"tpcb-like\"");
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
