//! Steps: what they are, which keys belong to which, and what stands in their texts for `${name}`.

use std::collections::BTreeMap;
use std::time::Duration;

use pgtoll_format::TimeSpan;
use pgtoll_workload::Mix;
use schemars::JsonSchema;
use serde::Deserialize;

use super::check::{CLIENTS_MAX, Inconsistency};
use super::mistake::{KeyPath, list};
use super::{Experiment, OneOrMany, TIME};

/// One step of a workload: one of `sql`, `pgbench`, `program`, `script`, `restart`, `evict` and
/// `crash`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the keys of a file")]
pub struct StepSpec {
    /// A statement.
    pub sql: Option<String>,
    /// Or letters of pgbench's initialisation steps (`pgbench --init-steps`).
    pub pgbench: Option<String>,
    /// Or a shell's command, which runs to its end; it finds its server by libpq's environment
    /// variables.
    pub program: Option<String>,
    /// Or transactions of scripts: built-in ones by their names, or files; with a weight: `name@3`.
    pub script: Option<OneOrMany>,
    /// The scripts that `script` names.
    #[serde(skip)]
    pub mix: Option<Mix>,
    /// Or the server stops and starts again: its shared buffers are empty.
    #[serde(default)]
    pub restart: bool,
    /// Or it does so, and meanwhile its files leave the page cache.
    #[serde(default)]
    pub evict: bool,
    /// Or all its processes are killed at once, and it starts again: recovery.
    #[serde(default)]
    pub crash: bool,
    /// pgbench's scale factor; the experiment's without it.
    pub scale: Option<u32>,
    /// The script's clients, which work at the same time; 1 without it.
    pub clients: Option<u32>,
    /// Transactions of each client.
    pub transactions: Option<u64>,
    /// How long the clients work: a number and `ms`, `s`, `min` or `h`.
    #[schemars(with = "Option<String>", regex(pattern = TIME))]
    pub time: Option<TimeSpan>,
    /// Transactions a second of all clients together, at random times (open loop).
    pub rate: Option<f64>,
    /// The load works on several CPUs at once; without it the server stays on
    /// one CPU while arms take turns.
    #[serde(default)]
    pub parallel: bool,
    /// A shell's command that runs beside the script and is ended with it.
    pub beside: Option<String>,
    /// It is measured, under this name.
    pub measure: Option<String>,
    /// The title, in a few words.
    pub title: Option<String>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepKind<'a> {
    Sql(&'a str),
    Pgbench(&'a str),
    Program(&'a str),
    Script(&'a Mix),
    Restart,
    Evict,
    Crash,
}

/// No client gets anything done in less.
pub(crate) const SHORTEST_STEP: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl StepSpec {
    /// Returns its kind, in a checked experiment.
    pub(crate) fn kind(&self) -> StepKind<'_> {
        match self {
            Self { sql: Some(sql), .. } => StepKind::Sql(sql),
            Self { pgbench: Some(steps), .. } => StepKind::Pgbench(steps),
            Self { program: Some(program), .. } => StepKind::Program(program),
            Self { mix: Some(mix), .. } => StepKind::Script(mix),
            Self { crash: true, .. } => StepKind::Crash,
            Self { evict: true, .. } => StepKind::Evict,
            _ => StepKind::Restart,
        }
    }

    /// The script's clients.
    pub(crate) fn clients(&self) -> u32 {
        self.clients.unwrap_or(1)
    }

    /// pgbench's scale factor of an initialisation; of a planned experiment.
    pub(crate) fn pgbench_scale(&self) -> u32 {
        self.scale.unwrap_or(1)
    }

    /// It calls pgtoll itself.
    pub(crate) fn calls_pgtoll(&self) -> bool {
        self.texts().any(|(_, text)| text.contains("PGTOLL"))
    }

    /// Returns the action, for the record.
    pub fn action(&self) -> String {
        match self.kind() {
            StepKind::Sql(text) | StepKind::Program(text) => text.to_owned(),
            StepKind::Pgbench(steps) => format!(
                "pgbench --initialize --init-steps={steps} --scale={}",
                self.pgbench_scale()
            ),
            StepKind::Script(_) => self.script_action(),
            StepKind::Restart => "restart".to_owned(),
            StepKind::Evict => "restart with an empty page cache".to_owned(),
            StepKind::Crash => "kill all processes, then recover".to_owned(),
        }
    }

    fn script_action(&self) -> String {
        let scripts = list(self.script.iter().flat_map(OneOrMany::entries));
        let clients = match self.clients() {
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        };
        let length = self.transactions.map(|count| format!("{count} transactions each"));
        let length = length.or(self.time.map(|time| format!("for {time}")));
        let parts = [Some(scripts), Some(clients), length, self.beside_action()];
        list(parts.into_iter().flatten())
    }

    fn beside_action(&self) -> Option<String> {
        self.beside.as_ref().map(|beside| format!("beside {beside}"))
    }

    /// Keys whose texts may have placeholders.
    fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("sql", &self.sql), ("program", &self.program), ("beside", &self.beside)];
        all.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?)))
    }

    fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("sql", self.sql.is_some()),
            ("pgbench", self.pgbench.is_some()),
            ("program", self.program.is_some()),
            ("script", self.script.is_some()),
            ("restart", self.restart),
            ("evict", self.evict),
            ("crash", self.crash),
        ];
        all.into_iter().filter_map(|(kind, given)| given.then_some(kind))
    }

    /// The first thing that does not fit in it: where, and what the workload has.
    pub(super) fn mistake(&self, place: &KeyPath) -> Option<(KeyPath, String)> {
        let kinds: Vec<&str> = self.kinds().collect();
        let [kind] = kinds[..] else {
            let label = format!("has a step that is not one of {}", list(KINDS));
            return Some((place.clone(), label));
        };
        let given = [
            ("scale", self.scale.is_some()),
            ("clients", self.clients.is_some()),
            ("transactions", self.transactions.is_some()),
            ("time", self.time.is_some()),
            ("rate", self.rate.is_some()),
            ("parallel", self.parallel),
            ("beside", self.beside.is_some()),
            ("measure", self.measure.is_some()),
        ];
        let foreign = given.into_iter().filter(|(_, given)| *given).find_map(|(key, _)| {
            let item = KEYS_OF
                .iter()
                .find(|(keys_of, _)| *keys_of == key)
                .map_or(&[][..], |(_, keys_of)| *keys_of);
            (!item.contains(&kind)).then_some((key, item))
        });
        if let Some((key, foreign)) = foreign {
            let label = format!("has {key} in a step of {kind}; it is of {}", list(foreign));
            return Some((place.key(key), label));
        }
        self.mistake_of_kind(kind).map(|(key, label)| (place.key(key), label.to_owned()))
    }

    fn mistake_of_kind(&self, kind: &str) -> Option<(&'static str, &'static str)> {
        let is_blank =
            |text: &Option<String>| text.as_deref().is_some_and(|text| text.trim().is_empty());
        if let Some(letters) = &self.pgbench
            && letters.chars().any(|letter| !"dtgGvpf".contains(letter))
        {
            return Some(("pgbench", "has a pgbench step that is not of the letters dtgGvpf"));
        }
        if self.pgbench.as_deref() == Some("") || (kind == "pgbench" && self.scale == Some(0)) {
            return Some(("pgbench", "has a pgbench step without letters, or of scale 0"));
        }
        if is_blank(&self.program) {
            return Some(("program", "has a program without a word"));
        }
        if kind != "script" {
            return None;
        }
        if self.scale == Some(0) {
            return Some(("scale", "has a script step of scale 0"));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients()) {
            return Some(("clients", "has clients that are not 1 to 1000"));
        }
        if self.transactions.is_some() == self.time.is_some() {
            return Some(("script", "has a script step that is not one of transactions and time"));
        }
        if self.transactions == Some(0) {
            return Some(("transactions", "has a script step of 0 transactions"));
        }
        if self.time.is_some_and(|time| !(SHORTEST_STEP..=LONGEST).contains(&time.0)) {
            return Some(("time", "has a script step whose time is not between 5ms and 1d"));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)) {
            return Some(("rate", "has a rate that is not between 0 and 1000000 a second"));
        }
        None
    }
}

const KINDS: [&str; 7] = ["sql", "pgbench", "program", "script", "restart", "evict", "crash"];

/// The placeholder of the scale factor in steps' texts.
const SCALE: &str = "scale";

/// Keys that not every step may have, and the kinds that may.
const KEYS_OF: [(&str, &[&str]); 8] = [
    ("parallel", &["pgbench", "program"]),
    ("scale", &["pgbench", "script"]),
    ("clients", &["script"]),
    ("transactions", &["script"]),
    ("time", &["script"]),
    ("rate", &["script"]),
    ("beside", &["script"]),
    // A restart is what comes between two measurements.
    ("measure", &["sql", "pgbench", "program", "script", "crash"]),
];

/// The text with every `${name}` replaced by its value. What is no placeholder stays: `${PGDATA}` in
/// capitals is the shell's.
pub(crate) fn substituted(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        made.push_str(before);
        let value = name_at(from).and_then(|name| Some((name, values.get(name)?)));
        let taken = if let Some((name, value)) = value {
            made.push_str(value);
            name.len() + 3
        } else {
            made.push_str("${");
            2
        };
        rest = &from[taken..];
    }
    made + rest
}

/// The names of the text's placeholders.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("${").filter_map(|(start, _)| name_at(&text[start..]))
}

/// The name of the placeholder that the text begins with.
fn name_at(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix("${")?.split_once('}')?;
    is_name(name).then_some(name)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl Experiment {
    /// Sets the scale factor, that of steps which do not say another one, and the value `scale`.
    pub(crate) fn set_scale(&mut self, scale: u32) {
        self.scale = scale;
        let is_used = self
            .steps()
            .flat_map(|(_, step)| step.texts())
            .any(|(_, text)| placeholders(text).any(|name| name == SCALE));
        for arm in self.arms.iter_mut().filter(|_| is_used) {
            arm.values.insert(SCALE.to_owned(), scale.to_string());
        }
        for step in self.workloads.iter_mut().flat_map(|workload| &mut workload.steps) {
            if step.pgbench.is_some() {
                step.scale.get_or_insert(scale);
            }
        }
    }

    fn steps(&self) -> impl Iterator<Item = (KeyPath, &StepSpec)> {
        let workloads = self.workloads.iter().enumerate();
        workloads.flat_map(|(index, workload)| {
            let place = KeyPath::default().key("workloads").entry(index).key("steps");
            let steps = workload.steps.iter().enumerate();
            steps.map(move |(index, step)| (place.entry(index), step))
        })
    }

    /// Every value is used by a step, and every placeholder has a value in every arm.
    pub(super) fn check_values(&self, found: &mut Vec<Inconsistency>) {
        let names = || {
            self.steps().flat_map(|(_, step)| step.texts()).flat_map(|(_, text)| placeholders(text))
        };
        for (index, arm) in self.arms.iter().enumerate() {
            let place = KeyPath::default().key("arms").entry(index).key("values");
            for name in arm.values.keys() {
                let (message, hint) = if name == SCALE {
                    let hint = "${scale} is the experiment's scale factor".to_owned();
                    ("a value cannot be called \"scale\"".to_owned(), Some(hint))
                } else if !is_name(name) {
                    let label = "is not a lower-case letter with letters, digits and _ behind it";
                    (format!("value name {name:?} {label}"), None)
                } else if names().all(|item| item != name) {
                    let hint = format!("write ${{{name}}} in sql, program or beside of a step");
                    (format!("no step uses the value {name:?}"), Some(hint))
                } else {
                    continue;
                };
                found.push(Inconsistency { place: place.key(name), of_key: true, message, hint });
            }
        }
        for (place, step) in self.steps() {
            for (key, text) in step.texts() {
                let mut of_text: Vec<&str> = placeholders(text).collect();
                of_text.sort_unstable();
                of_text.dedup();
                for name in of_text.into_iter().filter(|name| *name != SCALE) {
                    let without: Vec<String> = self
                        .arms
                        .iter()
                        .filter(|arm| !arm.values.contains_key(name))
                        .map(|arm| format!("{:?}", arm.name))
                        .collect();
                    if without.is_empty() {
                        continue;
                    }
                    let message = format!("${{{name}}} has no value in arm {}", list(without));
                    let hint = Some(format!("values = {{ {name} = \"…\" }} in each arm"));
                    found
                        .push(Inconsistency { hint, ..Inconsistency::at(place.key(key), message) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
        texts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn placeholders_are_replaced_and_a_shells_variables_are_not() {
        let values = values(&[("jobs", "4"), ("format", "d")]);
        let made = |text| substituted(text, &values);
        assert_eq!(made("pg_dump -F${format} -j${jobs}${jobs} $x"), "pg_dump -Fd -j44 $x");
        assert_eq!(made("${PGDATA} ${none} ${ jobs} ${jobs"), "${PGDATA} ${none} ${ jobs} ${jobs");
        assert_eq!(placeholders("${a} ${B} ${c_1}${a}").collect::<Vec<_>>(), ["a", "c_1", "a"]);
    }

    #[test]
    fn the_scale_is_no_value_of_an_arm() {
        let text = |name: &str| {
            format!(
                "name = \"n\"\nquestion = \"q\"\nbaseline = \"one\"\n[[arms]]\nname = \"one\"\n\
                 values = {{ {name} = \"7\" }}\n[[arms]]\nname = \"two\"\nvalues = {{ {name} = \"8\" }}\n\
                 [[workloads]]\nname = \"w\"\ntitle = \"w\"\n\
                 steps = [{{ sql = \"SELECT ${{{name}}}\", measure = \"m\" }}]\n"
            )
        };
        let parsed = |name| Experiment::parse(&text(name), std::path::Path::new(""));
        assert!(parsed("rows").is_ok());
        let error = format!("{:?}", parsed("scale").unwrap_err());
        assert!(error.contains("cannot be called"), "{error}");
    }

    proptest! {
        /// What a value says is not looked at again.
        #[test]
        fn any_text_is_replaced_once(text in "[${}a-c ]*", value in "[${}a-c]*") {
            let values = values(&[("a", &value)]);
            let expected: Vec<&str> = text.split("${a}").collect();
            prop_assert_eq!(substituted(&text, &values), expected.join(&value));
        }
    }
}
