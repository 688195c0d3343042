//! Experiments: what is compared, as a TOML file says it.

mod check;
mod expect;
mod mistake;
mod own;
mod servers;
mod step;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_workload::{Mix, Script, ScriptError};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use self::check::Inconsistency;
pub use self::check::is_name;
pub use self::expect::{Bound, ExpectSpec};
pub use self::mistake::Mistake;
use self::mistake::{Fault, KeyPath, Structure, list, nearest};
pub use self::own::OwnWork;
pub use self::servers::ServerChoice;
pub use self::step::StepSpec;
pub(crate) use self::step::{SHORTEST_STEP, StepKind, substituted};

/// The experiments that pgtoll brings along: name and text.
pub static BUILT_IN: [(&str, &str); 22] = [
    ("checksums", include_str!("../../../../experiments/checksums.toml")),
    ("checksums-disk", include_str!("../../../../experiments/checksums-disk.toml")),
    ("init-matrix", include_str!("../../../../experiments/init-matrix.toml")),
    ("first-select", include_str!("../../../../experiments/first-select.toml")),
    ("second-select", include_str!("../../../../experiments/second-select.toml")),
    ("insert-update", include_str!("../../../../experiments/insert-update.toml")),
    ("big-insert", include_str!("../../../../experiments/big-insert.toml")),
    ("dump", include_str!("../../../../experiments/dump.toml")),
    ("cached-reads", include_str!("../../../../experiments/cached-reads.toml")),
    ("web-oltp", include_str!("../../../../experiments/web-oltp.toml")),
    ("append-log", include_str!("../../../../experiments/append-log.toml")),
    ("etl-scatter", include_str!("../../../../experiments/etl-scatter.toml")),
    ("unlogged-ingest", include_str!("../../../../experiments/unlogged-ingest.toml")),
    ("cpu-bound-checksum", include_str!("../../../../experiments/cpu-bound-checksum.toml")),
    ("durability-ladder", include_str!("../../../../experiments/durability-ladder.toml")),
    ("checkpoint-distance", include_str!("../../../../experiments/checkpoint-distance.toml")),
    ("wal-compression", include_str!("../../../../experiments/wal-compression.toml")),
    ("torn-page-protection", include_str!("../../../../experiments/torn-page-protection.toml")),
    ("aio-scan", include_str!("../../../../experiments/aio-scan.toml")),
    ("parallel-dump", include_str!("../../../../experiments/parallel-dump.toml")),
    ("verify-load", include_str!("../../../../experiments/verify-load.toml")),
    ("null", include_str!("../../../../experiments/null.toml")),
];

/// The scripts that the experiments bring along: name and text.
pub(crate) static SCRIPTS: [(&str, &str); 4] = [
    ("append-log", include_str!("../../../../experiments/scripts/append-log.sql")),
    ("etl-scatter", include_str!("../../../../experiments/scripts/etl-scatter.sql")),
    ("unlogged-ingest", include_str!("../../../../experiments/scripts/unlogged-ingest.sql")),
    ("web-oltp", include_str!("../../../../experiments/scripts/web-oltp.sql")),
];

/// An experiment: arms, and the work under which they are compared.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// Its answer.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// The first major version of PostgreSQL that it is for: older servers skip it.
    pub since: Option<u32>,
    /// pgbench's scale factor of the data that scripts work on.
    #[serde(default = "one")]
    pub scale: u32,
    /// SQL that runs once, with psql, on the loaded data that all arms are copies of.
    pub setup: Option<String>,
    /// All arms are one cluster, whose settings are changed between slices without a restart.
    #[serde(default)]
    pub crossover: bool,
    /// Settings of every arm.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The arm whose server's settings all others get, as far as they know them: code is compared with
    /// code. Default: each has those that it is shipped with.
    pub settings_of: Option<String>,
    /// The compared arms.
    #[schemars(length(min = 2, max = 8))]
    pub arms: Vec<ArmSpec>,
    /// The work; those that stand first get time first.
    pub workloads: Vec<WorkloadSpec>,
    /// The expected results, shown beside the real ones.
    #[serde(default)]
    pub expect: Vec<ExpectSpec>,
}

const NAME: &str = "^[A-Za-z0-9_-]{1,24}$";
const TIME: &str = "^[0-9.]+ ?(us|ms|s|min|m|h|d)$";
const SIZE: &str = "^[0-9.]+ ?(B|kB|MB|GB|TB)$";

// The record's `Arm` has the same facts, and differs in what it takes: an experiment's author is told
// of every key that is unknown, while a reader of records passes over those of later versions.
/// One of the configurations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmSpec {
    /// Its name; also the name of its directory.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// The first major version of PostgreSQL that it is for: older servers skip it.
    pub since: Option<u32>,
    /// Its server: a major version, or a directory with `bin/postgres`. Default: the run's.
    pub postgres: Option<String>,
    /// Data checksums are on.
    #[serde(default)]
    pub checksums: bool,
    /// Settings that only this arm has.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The values of `${name}` in steps, by name.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// A null arm: a copy of that arm without any difference.
    pub twin_of: Option<String>,
    /// An arm that it is also compared with: of a ladder's rungs the one below.
    pub against: Option<String>,
}

/// The work of the servers: transactions of scripts, the load of a program, or steps on a fresh
/// copy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name.
    #[schemars(regex(pattern = NAME))]
    pub name: String,
    /// In a few words.
    pub title: String,
    /// Settings of every arm under this workload.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Built-in scripts of pgbench by their names, or files of scripts in its language; with a
    /// weight: `name@3`.
    pub script: Option<OneOrMany>,
    /// The scripts that `script` names.
    #[serde(skip)]
    pub mix: Option<Mix>,
    /// Transactions a second of all clients together, at random times (open loop).
    pub rate: Option<f64>,
    /// The script's clients, which work at the same time; 1 without it. Several are free to work on
    /// several CPUs.
    #[schemars(range(min = 1, max = 1000))]
    pub clients: Option<u32>,
    /// Transactions of the script in the counted pass, by one client; 0: none.
    #[serde(default)]
    pub counted: u64,
    /// It is meant to read from outside shared buffers: a warning says so when it will not.
    #[serde(default)]
    pub misses: bool,
    /// A shell's command that makes load until it is ended; it finds its server by libpq's
    /// environment variables.
    pub command: Option<String>,
    /// A slice's length: a number and `ms` or `s`.
    #[schemars(with = "Option<String>", regex(pattern = TIME))]
    pub slice: Option<TimeSpan>,
    /// Memory that each arm's server may use, page cache included: a number and `kB`, `MB` or `GB`.
    #[schemars(with = "Option<String>", regex(pattern = SIZE))]
    pub memory: Option<ByteSize>,
    /// How the name of a function begins whose share of CPU time is sampled.
    pub profile: Option<String>,
    /// Steps, done in this order by each arm on a fresh copy of an empty cluster.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// The steps' copies are of the loaded cluster: pgbench's tables at the experiment's scale, and what
    /// `setup` makes.
    #[serde(default)]
    pub loaded: bool,
    /// The table that the steps are about: figures are per page of it.
    pub table: Option<String>,
    /// All measured steps together are one more figure, under this name.
    pub total: Option<String>,
}

/// A list in which a single entry needs no brackets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One script.
    One(String),
    /// Several scripts.
    Many(Vec<String>),
}

impl WorkloadSpec {
    /// The steps that are measured, with their names.
    pub fn measured(&self) -> impl Iterator<Item = (&str, &StepSpec)> {
        self.steps.iter().filter_map(|step| Some((step.measure.as_deref()?, step)))
    }

    /// The step during which functions are sampled, if any can be: its place and its name.
    pub(crate) fn profiled_step(&self) -> Option<(usize, &str)> {
        let mut steps = self.steps.iter().enumerate();
        steps.find_map(|(place, step)| {
            let name = step.measure.as_deref()?;
            step.script.is_some().then_some((place, name))
        })
    }

    /// The script's clients.
    pub fn clients(&self) -> u32 {
        self.clients.unwrap_or(1)
    }

    /// It runs in slices; else in repetitions.
    pub fn is_sliced(&self) -> bool {
        self.mix.is_some() || self.command.is_some()
    }

    /// The arms do its measured steps at the same time, in turns: statements and programs have a
    /// beginning and an end, and no latencies of their own that a turn of others would lengthen.
    pub fn takes_turns(&self) -> bool {
        let can = |step: &StepSpec| {
            matches!(step.kind(), StepKind::Sql(_) | StepKind::Pgbench(_) | StepKind::Program(_))
        };
        !self.steps.is_empty() && self.measured().all(|(_, step)| can(step))
    }

    /// The names under which figures of it appear: its own, or those of its measured steps.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = (self.script.is_some() || self.command.is_some()).then_some(self.name.as_str());
        own.into_iter().chain(self.measured().map(|(name, _)| name)).chain(self.total.as_deref())
    }
}

fn one() -> u32 {
    1
}

impl Experiment {
    /// The built-in experiment of this name.
    pub fn built_in(name: &str) -> Option<Result<Self, ExperimentError>> {
        let text = BUILT_IN.iter().find(|(built_in, _)| *built_in == name).map(|(_, text)| text);
        text.map(|text| Self::parse(text, Path::new("")))
    }

    /// Reads and checks an experiment's text: an error has all mistakes that can be seen at once.
    /// Files of scripts that it names are looked for in `directory`.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, ExperimentError> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return Err(ExperimentError::new(errors.iter().map(of_toml).collect(), text));
        }
        let schema = experiment_schema();
        let structure = Structure::new(&schema, text, &table);
        let Structure { mut faults, unknown, is_broken, .. } = structure;
        if is_broken {
            return Err(ExperimentError::new(faults, text));
        }
        let known = without(table.clone(), &unknown);
        let mut experiment = match Self::deserialize(toml::de::Deserializer::from(known)) {
            Ok(experiment) => experiment,
            Err(error) => {
                faults.push(of_toml(&error));
                return Err(ExperimentError::new(faults, text));
            }
        };
        let mut inconsistencies = experiment.inconsistencies();
        experiment.read_scripts(directory, &mut inconsistencies);
        // What follows from a misspelt key is no mistake of its own.
        let follows = |inconsistency: &Inconsistency| {
            unknown.iter().any(|(place, _)| !place.is_root() && place.holds(&inconsistency.place))
        };
        let own = inconsistencies.into_iter().filter(|inconsistency| !follows(inconsistency));
        faults.extend(own.map(|inconsistency| inconsistency.in_text(&table)));
        if faults.is_empty() { Ok(experiment) } else { Err(ExperimentError::new(faults, text)) }
    }

    /// Gives each arm that has none a twin: a copy of it, which is compared with it.
    pub fn twin_each(&mut self) {
        let has_twin = |spec: &ArmSpec| {
            spec.twin_of.is_some()
                || self.arms.iter().any(|arm| arm.twin_of.as_ref() == Some(&spec.name))
        };
        let without = self.arms.iter().filter(|arm| !has_twin(arm));
        let twins: Vec<ArmSpec> = without
            .map(|arm| ArmSpec {
                name: format!("{}-twin", arm.name),
                twin_of: Some(arm.name.clone()),
                against: None,
                ..arm.clone()
            })
            .collect();
        self.arms.extend(twins);
    }

    /// The experiment after changes, if it still holds together.
    pub fn checked(self) -> Result<Self, ExperimentError> {
        match self.inconsistencies().into_iter().next() {
            Some(Inconsistency { message, hint, .. }) => {
                Err(ExperimentError::Inconsistent { message, hint })
            }
            None => Ok(self),
        }
    }

    /// The workloads of scripts.
    pub fn scripts(&self) -> impl Iterator<Item = (&WorkloadSpec, &Mix)> {
        self.workloads.iter().filter_map(|workload| Some((workload, workload.mix.as_ref()?)))
    }

    /// The workloads that run on loaded data.
    pub(crate) fn on_loaded(&self) -> impl Iterator<Item = &WorkloadSpec> {
        self.workloads.iter().filter(|workload| workload.is_sliced() || workload.loaded)
    }

    /// The workloads that run in slices, on loaded data.
    pub fn sliced(&self) -> impl Iterator<Item = &WorkloadSpec> {
        self.workloads.iter().filter(|workload| workload.is_sliced())
    }

    /// Reads the files that the workloads name.
    fn read_scripts(&mut self, directory: &Path, found: &mut Vec<Inconsistency>) {
        for (index, workload) in self.workloads.iter_mut().enumerate() {
            let place = KeyPath::default().key("workloads").entry(index);
            let steps = workload.steps.iter_mut().enumerate().map(|(index, step)| {
                (place.key("steps").entry(index), &mut step.script, &mut step.mix)
            });
            let own = (place.clone(), &mut workload.script, &mut workload.mix);
            for (place, script, read) in steps.chain([own]) {
                let Some(script) = script else { continue };
                match mix(script.entries(), directory) {
                    Ok(mix) => *read = Some(mix),
                    Err(_) => found.extend(script.inconsistencies(&place.key("script"), directory)),
                }
            }
        }
    }
}

/// Makes the fault that a parser reports.
fn of_toml(error: &toml::de::Error) -> Fault {
    let message = error.message().replace('\n', ", ");
    Fault { span: error.span().unwrap_or(0..0), message, hint: None }
}

/// The table without the keys that are unknown.
fn without<'i>(
    mut table: Spanned<DeTable<'i>>,
    unknown: &[(KeyPath, String)],
) -> Spanned<DeTable<'i>> {
    for (place, key) in unknown {
        if let Some(table) = place.table_in(table.get_mut()) {
            table.remove(key.as_str());
        }
    }
    table
}

/// The JSON Schema of an experiment's file.
pub fn experiment_schema() -> serde_json::Value {
    schemars::schema_for!(Experiment).to_value()
}

impl OneOrMany {
    fn entries(&self) -> &[String] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }

    /// All that is wrong with what it names.
    fn inconsistencies(&self, place: &KeyPath, directory: &Path) -> Vec<Inconsistency> {
        let place_of = |index| match self {
            Self::One(_) => place.clone(),
            Self::Many(_) => place.entry(index),
        };
        let entries = self.entries().iter().enumerate();
        let single: Vec<Inconsistency> = entries
            .filter_map(|(index, entry)| {
                let error = weighted(entry, directory).err()?;
                let hint = error.hint_of_entry(entry);
                Some(Inconsistency {
                    hint,
                    ..Inconsistency::at(place_of(index), pgtoll_system::error_chain(&error))
                })
            })
            .collect();
        if single.is_empty() {
            let together = mix(self.entries(), directory)
                .err()
                .map(|error| pgtoll_system::error_chain(&error));
            return together
                .into_iter()
                .map(|together| Inconsistency::at(place.clone(), together))
                .collect();
        }
        single
    }
}

/// The scripts that `NAME`, `FILE`, `NAME@WEIGHT` … name; files are looked for in `directory`.
pub fn mix(entries: &[String], directory: &Path) -> Result<Mix, ExperimentError> {
    let scripts = entries.iter().map(|entry| weighted(entry, directory));
    let scripts: Vec<(Script, u32)> = scripts.collect::<Result<_, _>>()?;
    if scripts.iter().all(|(script, _)| script.sql().next().is_none()) {
        return Err(ExperimentError::inconsistent("a script without a statement"));
    }
    Mix::new(scripts).map_err(|error| ExperimentError::inconsistent(error.to_string()))
}

fn weighted(entry: &str, directory: &Path) -> Result<(Script, u32), ExperimentError> {
    let split = entry.rsplit_once('@');
    let split = split.and_then(|(name, weight)| Some((name, weight.parse().ok()?)));
    let (name, weight) = split.unwrap_or((entry, 1));
    Ok((script(name, directory)?, weight))
}

fn script(name: &str, directory: &Path) -> Result<Script, ExperimentError> {
    if let Some(script) = Script::built_in(name) {
        return Ok(script);
    }
    if let Some((_, text)) = SCRIPTS.iter().find(|(script, _)| *script == name) {
        return Script::parse(name, text)
            .map_err(|source| ExperimentError::Script { path: name.into(), source });
    }
    let path = directory.join(name);
    if !path.exists() {
        return Err(ExperimentError::NoScript { name: name.to_owned() });
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|source| ExperimentError::ScriptFile { path: path.clone(), source })?;
    Script::parse(name, &text).map_err(|source| ExperimentError::Script { path, source })
}

/// An experiment's text that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// Mistakes in its text, in the order in which they stand there; at least one.
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Mistakes(Vec<Mistake>),
    /// Its parts do not fit.
    #[error("{message}")]
    Inconsistent {
        /// The fault and its place.
        message: String,
        /// Returns advice, if there is any.
        hint: Option<String>,
    },
    /// A script is neither built in nor a file.
    #[error(
        "no script {name:?} (there are: {}; or the path of a file in pgbench's language; a command has its own workload)",
        list(script_names())
    )]
    NoScript {
        /// The request.
        name: String,
    },
    /// A script's file cannot be read.
    #[error("read {}", path.display())]
    ScriptFile {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A script is not in pgbench's language.
    #[error("read {}", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// The faults, and where.
        source: ScriptError,
    },
}

impl ExperimentError {
    fn new(mut faults: Vec<Fault>, text: &str) -> Self {
        faults.sort_by_key(|fault| fault.span.start);
        // A parser that continues after an error stumbles over it again.
        faults.dedup_by(|later, first| later.span == first.span && later.message == first.message);
        Self::Mistakes(faults.into_iter().map(|fault| fault.located(text)).collect())
    }

    pub(crate) fn inconsistent(message: impl Into<String>) -> Self {
        Self::Inconsistent { message: message.into(), hint: None }
    }

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let Self::Inconsistent { hint, .. } = self else { return None };
        hint.clone()
    }

    /// Returns advice about an entry of `script`.
    fn hint_of_entry(&self, entry: &str) -> Option<String> {
        let Self::NoScript { .. } = self else { return None };
        let near = nearest(entry, script_names())?;
        Some(format!("did you mean {near:?}?"))
    }
}

/// Those of pgbench, then those of the experiments.
fn script_names() -> impl Iterator<Item = &'static str> {
    pgtoll_workload::BUILT_IN.iter().chain(&SCRIPTS).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_built_in_is_consistent_and_named_as_its_file() {
        for (name, text) in BUILT_IN {
            assert_eq!(Experiment::parse(text, Path::new("")).unwrap().name, name);
        }
    }

    /// Makes the first of the built-in experiments wrong; `expected` has a line for each mistake.
    #[track_caller]
    fn check(change: (&str, &str), expected: &str) {
        // What is expected follows other names.
        let (whole, _) = BUILT_IN[0].1.split_once("[[expect]]").unwrap();
        let text = whole.replace(change.0, change.1);
        assert_ne!(text, whole, "{change:?} changes nothing");
        let error = Experiment::parse(&text, Path::new("")).unwrap_err();
        let ExperimentError::Mistakes(mistakes) = error else { panic!("{error:?}") };
        let lines: Vec<String> = mistakes
            .iter()
            .map(|mistake| {
                let marked: String =
                    mistake.text.chars().skip(mistake.column - 1).take(mistake.width).collect();
                let hint = mistake.hint.as_ref().map(|hint| format!(" ({hint})"));
                format!("{marked}: {}{}", mistake.message, hint.unwrap_or_default())
            })
            .collect();
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn mistakes_are_named() {
        check(
            ("baseline = \"off\"", "baseline = \"of\""),
            "\"of\": baseline \"of\" is not an arm (did you mean \"off\"?)",
        );
        check(("name = \"hints\"", "name = \"off\""), "\"off\": two arms are called \"off\"");
        check(
            ("name = \"hints\"", "name = \"../x\""),
            "\"../x\": arm name \"../x\" is not 1 to 24 letters, digits, - and _",
        );
        check(
            ("name = \"hints\"", "name = \"origin\""),
            "\"origin\": arm name \"origin\" is pgtoll's own",
        );
        check(("first-select", "insert"), "\"insert\": two workloads are called \"insert\"");
        check(("question \u{3d}", "question"), "\": key with no value, expected `=`");
    }

    #[test]
    fn each_arm_gets_the_twin_that_it_does_not_have() {
        let mut experiment = Experiment::built_in("checksums").unwrap().unwrap();
        experiment.twin_each();
        let twins =
            experiment.arms.iter().filter_map(|arm| Some((&*arm.name, arm.twin_of.as_deref()?)));
        let twins: Vec<(&str, &str)> = twins.collect();
        let expected = [("twin", "off"), ("hints-twin", "hints"), ("checksums-twin", "checksums")];
        assert_eq!(twins, expected);
        assert_eq!(experiment.checked().unwrap().arms.len(), 6);
    }

    #[test]
    fn wrong_twins_are_named() {
        let pick = |twin_of: &str| format!("twin_of = \"{twin_of}\"");
        check(
            ("twin_of = \"off\"", &pick("hints")),
            "\"hints\": arm \"twin\" is not a copy of \"hints\": they must not differ (a twin has the \
             same server, checksums, settings and values as the arm that it copies)",
        );
        check(
            ("twin_of = \"off\"", &pick("twin")),
            "\"twin\": arm \"twin\" is not a copy of \"twin\": they must not differ (a twin is a copy \
             of another arm)",
        );
        check(
            ("twin_of = \"off\"", &pick("of")),
            "\"of\": arm \"twin\" is a twin of \"of\", which is not an arm (did you mean \"off\"?)",
        );
    }

    #[test]
    fn wrong_settings_are_named() {
        check(
            ("autovacuum =", "AutoVacuum ="),
            "AutoVacuum: setting AutoVacuum is not written in lower case (write autovacuum)",
        );
        check(
            ("autovacuum =", "port ="),
            "port: setting port is pgtoll's own (leave it out: pgtoll's servers depend on it)",
        );
        check(
            ("autovacuum = \"off\"", "autovacuum = 0"),
            "0: \"autovacuum\" is an integer, where a string belongs (write it as \"0\")",
        );
    }

    #[test]
    fn wrong_keys_and_types_are_named() {
        check(
            (", measure = \"first-select\"", ", measures = \"x\""),
            "measures: unknown key \"measures\" (did you mean \"measure\"?)",
        );
        check(
            ("checksums = true", "checksum = true"),
            "checksum: unknown key \"checksum\" (did you mean \"checksums\"?)",
        );
        check(
            ("checksums = true", "weather = true"),
            "weather: unknown key \"weather\" (the keys here are against, checksums, name, postgres, \
             settings, since, twin_of, values)",
        );
        check(
            ("checksums = true", "checksums = \"on\""),
            "\"on\": \"checksums\" is a string, where true or false belongs",
        );
        check(("scale = 25", "scale = -1"), "-1: \"scale\" is -1, and the least is 0");
        check(("scale = 25", "scale = 0"), "0: scale is 0");
        check(
            ("scale = 25", "since = 12"),
            "12: since 12: pgtoll does not support this major version (13 to 19)",
        );
        check(
            ("\nbaseline = \"off\"", "\n"),
            "#: the key \"baseline\" is missing (baseline is the arm that the others are compared with)",
        );
        check(
            ("counted = 20000\nmisses", "slice = \"9 o'clock\"\nmisses"),
            "\"9 o'clock\": \"9 o'clock\" is not a time like 90s (units: us, ms, s, min, h, d)",
        );
    }

    #[test]
    fn clients_have_to_find_room() {
        let with = |clients: u32| format!("counted = 20000\nclients = {clients}\nmisses");
        let wrong = |clients: u32, expected: &str| {
            check(("counted = 20000\nmisses", &with(clients)), expected);
        };
        wrong(0, "0: \"clients\" is 0, and the least is 1");
        wrong(1001, "1001: workload \"read-only-misses\" has clients that are not 1 to 1000");
        wrong(
            18,
            "18: workload \"read-only-misses\" has 18 clients, and max_connections = 20 leaves room \
             for 17 (--set max_connections=21, or so in the experiment's settings)",
        );
        let text = BUILT_IN[0].1.replace("counted = 20000\nmisses", &with(17));
        let experiment = Experiment::parse(&text, Path::new("")).unwrap();
        assert_eq!(experiment.workloads[0].clients(), 17);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let text = BUILT_IN[0].1.replace("autovacuum =", "port =");
        let text =
            text.replace("twin_of", "twim_of").replace("baseline = \"off", "baseline = \"of");
        let Err(ExperimentError::Mistakes(mistakes)) = Experiment::parse(&text, Path::new(""))
        else {
            panic!("there are mistakes")
        };
        let places: Vec<_> =
            mistakes.iter().map(|mistake| (mistake.line, mistake.column)).collect();
        assert_eq!(places, [(9, 12), (15, 1), (36, 1)]);
    }

    #[test]
    fn wrong_expectations_are_named() {
        let with = |old: &str, new: &str| {
            let expect = "[[expect]]\nworkload = \"insert\"\narm = \"hints\"\n\
                          metric = \"cpu_per_operation\"\nbetween = [\"-5%\", \"5%\"]\n\
                          source = \"s\"\n";
            assert!(expect.contains(old));
            format!("[[expect]]\n{}", expect.replace(old, new).trim_start_matches("[[expect]]\n"))
        };
        let check = |old: &str, new: &str, expected: &str| {
            let text = format!("{}\n{}", BUILT_IN[1].1, with(old, new));
            let text = text
                .replace("read-only-disk", "insert")
                .replace("name = \"checksums\"", "name = \"hints\"");
            let found = match Experiment::parse(&text, Path::new("")) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            assert_eq!(found.split_once(": ").map_or("", |(_, message)| message), expected);
        };
        check("s\"\n", "s\"\n", "");
        check("insert", "inzert", "workload \"inzert\" does not exist");
        check("hints", "hint", "arm \"hint\" does not exist");
        check("cpu_per_operation", "cpu", "no metric is called \"cpu\"");
        check(
            "\"-5%\", \"5%\"",
            "\"6%\", \"5%\"",
            "the expectation has no bounds that fit together",
        );
        check("\"-5%\", \"5%\"", "-5, \"5%\"", "the expectation has no bounds that fit together");
        check("\"-5%\", \"5%\"", "-5, 5", "cpu_per_operation is compared with the baseline only");
        check("hints", "off", "the baseline does not differ from itself");
        let source = "source = \"s\"\n";
        let with = |key: &str| format!("{source}{key}\n");
        check(source, &with("against = \"twin\""), "");
        check(source, &with("against = \"twins\""), "arm \"twins\" does not exist");
        check(source, &with("against = \"hints\""), "arm \"hints\" does not differ from itself");
        check(
            source,
            &with("url = \"example.org\""),
            "\"example.org\" is not the address of a page",
        );
    }

    #[test]
    fn wrong_rungs_are_named() {
        let rung = |other: &str| format!("checksums = true\nagainst = \"{other}\"");
        let text = BUILT_IN[0].1.replace("checksums = true", &rung("hints"));
        let experiment = Experiment::parse(&text, Path::new("")).unwrap();
        assert_eq!(experiment.arms[2].against.as_deref(), Some("hints"));
        check(
            ("checksums = true", &rung("hint")),
            "\"hint\": arm \"hint\" does not exist (did you mean \"hints\"?)",
        );
        check(
            ("checksums = true", &rung("checksums")),
            "\"checksums\": arm \"checksums\" does not differ from itself (name another arm)",
        );
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let text = BUILT_IN[0].1.replace("question =", "question");
        let error = Experiment::parse(&text, Path::new("")).unwrap_err();
        assert!(error.to_string().starts_with("line 8, column 10: "), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_an_experiment_or_an_error(text in ".*") {
            let _ = Experiment::parse(&text, Path::new("/nowhere"));
        }

        #[test]
        fn any_cut_of_an_experiment_is_an_experiment_or_an_error(cut in 0..BUILT_IN[0].1.len()) {
            let text: String = BUILT_IN[0].1.chars().take(cut).collect();
            let _ = Experiment::parse(&text, Path::new("/nowhere"));
        }
    }
}
