//! Whether the parts of an experiment fit together.

use std::collections::BTreeSet;
use std::time::Duration;

use pgtoll_format::{MAJORS, facts_of_major};
use toml::Spanned;
use toml::de::DeTable;

use super::mistake::{Fault, KeyPath, list, nearest};
use super::{ArmSpec, Experiment, WorkloadSpec};
use crate::names::{COUNTED, CROSSED, EMPTY, OPERATION, ORIGIN, ORIGINS, PROFILER};

/// Parts that do not fit.
#[derive(Debug)]
pub(super) struct Inconsistency {
    pub(super) place: KeyPath,
    /// The key at that place is wrong, and not its value.
    pub(super) of_key: bool,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Inconsistency {
    pub(super) fn at(place: KeyPath, message: impl Into<String>) -> Self {
        Self { place, of_key: false, message: message.into(), hint: None }
    }

    pub(super) fn in_text(self, table: &Spanned<DeTable<'_>>) -> Fault {
        let span = self.place.span(table, self.of_key);
        Fault { span, message: self.message, hint: self.hint }
    }

    /// A name that is not among those that it should be one of.
    pub(super) fn not_among<'n>(
        place: KeyPath,
        label: &str,
        name: &str,
        names: impl IntoIterator<Item = &'n str> + Clone,
    ) -> Self {
        let hint = match nearest(name, names.clone()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are {}", list(names)),
        };
        Self { hint: Some(hint), ..Self::at(place, label) }
    }
}

/// Directories and programs that pgtoll makes beside the arms'.
const RESERVED_NAMES: [&str; 4] = [ORIGIN, COUNTED, CROSSED, PROFILER];
/// How names of others begin.
const RESERVED_BEGINNINGS: [&str; 3] = [EMPTY, OPERATION, ORIGINS];

/// Whether an arm may not be called so.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED_NAMES.contains(&name)
        || RESERVED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
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

/// Settings that decide which pages get a full-page image after a checkpoint, and when there is
/// one: a page that one arm has touched is no first touch for the next arm.
const NOT_CROSSED: [&str; 4] =
    ["full_page_writes", "max_wal_size", "checkpoint_timeout", "checkpoint_completion_target"];

/// More clients need a server with more connections than anybody has here.
pub(super) const CLIENTS_MAX: u32 = 1000;
/// Sessions that pgtoll has beside its clients, with what is left of those that have just ended.
const SESSIONS_BESIDE: u32 = 3;

impl Experiment {
    /// All that does not fit; scripts are not read for it.
    pub(super) fn inconsistencies(&self) -> Vec<Inconsistency> {
        let root = KeyPath::default();
        let mut found = Vec::new();
        found.extend(check_name("experiment", &self.name, root.key("name")));
        if self.scale == 0 {
            found.push(Inconsistency::at(root.key("scale"), "scale is 0"));
        }
        self.check_since(&mut found);
        self.check_arms(&mut found);
        self.check_twins(&mut found);
        self.check_against(&mut found);
        self.check_settings(&mut found);
        self.check_workloads(&mut found);
        self.check_values(&mut found);
        if self.crossover {
            self.check_crossover(&mut found);
        }
        self.check_expectations(&mut found);
        found
    }

    pub(super) fn arm_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.arms.iter().map(|arm| arm.name.as_str())
    }

    fn check_arms(&self, found: &mut Vec<Inconsistency>) {
        let root = KeyPath::default();
        if !(2..=8).contains(&self.arms.len()) {
            let message = format!("{} arms, where 2 to 8 are taken", self.arms.len());
            found.push(Inconsistency::at(root.key("arms"), message));
        }
        let mut names = BTreeSet::new();
        for (index, arm) in self.arms.iter().enumerate() {
            let place = root.key("arms").entry(index).key("name");
            found.extend(check_name("arm", &arm.name, place.clone()));
            if is_reserved(&arm.name) {
                let message = format!("arm name {:?} is pgtoll's own", arm.name);
                found.push(Inconsistency::at(place.clone(), message));
            }
            if !names.insert(arm.name.as_str()) {
                let message = format!("two arms are called {:?}", arm.name);
                found.push(Inconsistency::at(place, message));
            }
        }
        if !names.contains(self.baseline.as_str()) {
            let message = format!("baseline {:?} is not an arm", self.baseline);
            let place = root.key("baseline");
            let inconsistency =
                Inconsistency::not_among(place, &message, &self.baseline, self.arm_names());
            found.push(inconsistency);
        }
        let has_server = |arm: &ArmSpec, name: &str| {
            arm.name == name && arm.postgres.is_some() && arm.twin_of.is_none()
        };
        let source = self.settings_of.as_ref();
        if let Some(name) = source.filter(|name| !self.arms.iter().any(|arm| has_server(arm, name)))
        {
            let message = format!("settings_of {name:?} is not an arm with a server of its own");
            let servers = self.arms.iter().filter(|arm| has_server(arm, &arm.name));
            let names = servers.map(|arm| arm.name.as_str());
            found.push(Inconsistency::not_among(root.key("settings_of"), &message, name, names));
        }
    }

    /// Versions that pgtoll supports.
    fn check_since(&self, found: &mut Vec<Inconsistency>) {
        let root = KeyPath::default();
        let arms = self.arms.iter().enumerate();
        let of_arms = arms.map(|(index, arm)| (root.key("arms").entry(index), arm.since));
        for (place, since) in of_arms.chain([(root.clone(), self.since)]) {
            let unknown = since.filter(|major| facts_of_major(*major).is_none());
            found.extend(unknown.map(|major| {
                let text = format!("since {major}: pgtoll does not support this major version");
                let hint =
                    Some(format!("{} to {}", MAJORS[MAJORS.len() - 1].major, MAJORS[0].major));
                Inconsistency { hint, ..Inconsistency::at(place.key("since"), text) }
            }));
        }
    }

    fn check_twins(&self, found: &mut Vec<Inconsistency>) {
        for (index, arm) in self.arms.iter().enumerate() {
            let Some(twin_of) = &arm.twin_of else { continue };
            let place = KeyPath::default().key("arms").entry(index).key("twin_of");
            let Some(other) = self.arms.iter().find(|other| other.name == *twin_of) else {
                let message =
                    format!("arm {:?} is a twin of {twin_of:?}, which is not an arm", arm.name);
                found.push(Inconsistency::not_among(place, &message, twin_of, self.arm_names()));
                continue;
            };
            let alike = other.settings == arm.settings
                && other.checksums == arm.checksums
                && other.values == arm.values
                && other.postgres == arm.postgres;
            if !alike || other.name == arm.name {
                let text = format!(
                    "arm {:?} is not a copy of {twin_of:?}: they must not differ",
                    arm.name
                );
                let hint = if other.name == arm.name {
                    "a twin is a copy of another arm"
                } else {
                    "a twin has the same server, checksums, settings and values as the arm that it copies"
                };
                let hint = Some(hint.to_owned());
                found.push(Inconsistency { hint, ..Inconsistency::at(place, text) });
            }
        }
    }

    fn check_against(&self, found: &mut Vec<Inconsistency>) {
        for (index, arm) in self.arms.iter().enumerate() {
            let Some(other) = &arm.against else { continue };
            let place = KeyPath::default().key("arms").entry(index).key("against");
            found.extend(self.wrong_against(&arm.name, other, place));
        }
    }

    /// An arm is compared with another one that exists.
    pub(super) fn wrong_against(
        &self,
        arm: &str,
        other: &str,
        place: KeyPath,
    ) -> Option<Inconsistency> {
        if arm == other {
            let text = format!("arm {arm:?} does not differ from itself");
            let hint = Some("name another arm".to_owned());
            return Some(Inconsistency { hint, ..Inconsistency::at(place, text) });
        }
        self.arm_names().all(|name| name != other).then(|| {
            let label = format!("arm {other:?} does not exist");
            Inconsistency::not_among(place, &label, other, self.arm_names())
        })
    }

    fn check_settings(&self, found: &mut Vec<Inconsistency>) {
        let root = KeyPath::default();
        let of_arms = self.arms.iter().enumerate();
        let of_arms = of_arms.map(|(index, arm)| (root.key("arms").entry(index), &arm.settings));
        let of_work = self.workloads.iter().enumerate();
        let of_work =
            of_work.map(|(index, item)| (root.key("workloads").entry(index), &item.settings));
        let all = of_arms.chain(of_work).chain([(root.clone(), &self.settings)]);
        for (place, name) in all.flat_map(|(place, settings)| {
            settings.keys().map(move |name| (place.key("settings").key(name), name))
        }) {
            let lower = name.to_ascii_lowercase();
            let (label, hint) = match lower.as_str() {
                _ if RESERVED.contains(&lower.as_str()) => {
                    ("is pgtoll's own", "leave it out: pgtoll's servers depend on it".to_owned())
                }
                _ if lower != *name => ("is not written in lower case", format!("write {lower}")),
                _ => continue,
            };
            found.push(Inconsistency {
                place,
                of_key: true,
                message: format!("setting {name} {label}"),
                hint: Some(hint),
            });
        }
    }

    /// In a crossover slices of all arms work on the same pages, one after the other.
    fn check_crossover(&self, found: &mut Vec<Inconsistency>) {
        let root = KeyPath::default();
        let arms = || self.arms.iter().enumerate();
        let place = |index| root.key("arms").entry(index);
        found.extend(arms().filter(|(_, arm)| arm.checksums).map(|(index, _)| {
            let text = "data checksums cannot be changed without a restart: no crossover";
            Inconsistency::at(place(index).key("checksums"), text)
        }));
        found.extend(arms().filter(|(_, arm)| arm.postgres.is_some()).map(|(index, _)| {
            let text = "a server of its own cannot be changed without a restart: no crossover";
            Inconsistency::at(place(index).key("postgres"), text)
        }));
        for (index, arm) in arms() {
            for name in NOT_CROSSED.iter().filter(|name| arm.settings.contains_key(**name)) {
                let text = format!(
                    "{name} of one arm's slice has an effect on the next arm's: no crossover"
                );
                found.push(Inconsistency::at(place(index).key("settings").key(name), text));
            }
        }
        for (index, item) in self.workloads.iter().enumerate() {
            let place = root.key("workloads").entry(index);
            let given = [
                ("command", item.command.is_some()),
                ("profile", item.profile.is_some()),
                ("loaded", item.loaded),
            ];
            let first = given.into_iter().find(|(_, given)| *given);
            found.extend(first.map(|(key, _)| {
                let text = format!("workload {:?}: {key} has no crossover", item.name);
                Inconsistency::at(place.key(key), text)
            }));
        }
    }

    fn check_workloads(&self, found: &mut Vec<Inconsistency>) {
        let root = KeyPath::default();
        if self.workloads.is_empty() {
            found.push(Inconsistency::at(root.key("workloads"), "no workload"));
        }
        let mut names = BTreeSet::new();
        for (index, workload) in self.workloads.iter().enumerate() {
            let place = root.key("workloads").entry(index);
            found.extend(check_name("workload", &workload.name, place.key("name")));
            found.extend(workload.inconsistency(&place));
            found.extend(self.too_many_clients(workload, &place));
            for (name, place) in workload.named(&place) {
                if name != workload.name {
                    found.extend(check_name("measured step's", name, place.clone()));
                }
                if !names.insert(name) {
                    let text = format!("two workloads are called {name:?}");
                    found.push(Inconsistency::at(place, text));
                }
            }
        }
    }
}

impl Experiment {
    /// More clients than the server of some arm has room for.
    fn too_many_clients(&self, workload: &WorkloadSpec, place: &KeyPath) -> Option<Inconsistency> {
        let own = workload.clients.map(|clients| (place.key("clients"), clients));
        let steps = workload.steps.iter().enumerate().filter_map(|(index, step)| {
            Some((place.key("steps").entry(index).key("clients"), step.clients?))
        });
        let (place, clients) = own.into_iter().chain(steps).max_by_key(|(_, clients)| *clients)?;
        let most = self.arms.iter().map(|arm| self.max_connections(workload, arm)).min()?;
        let needed = clients.saturating_add(SESSIONS_BESIDE);
        if clients > CLIENTS_MAX || needed <= most {
            return None;
        }
        let name = &workload.name;
        let message = format!(
            "workload {name:?} has {clients} clients, and max_connections = {most} leaves room for {}",
            most.saturating_sub(SESSIONS_BESIDE)
        );
        let hint =
            Some(format!("--set max_connections={needed}, or so in the experiment's settings"));
        Some(Inconsistency { hint, ..Inconsistency::at(place, message) })
    }

    fn max_connections(&self, workload: &WorkloadSpec, arm: &ArmSpec) -> u32 {
        /// The default of every version that pgtoll knows.
        const DEFAULT: u32 = 100;
        let all = [&arm.settings, &workload.settings, &self.settings];
        let text = all.into_iter().find_map(|settings| settings.get("max_connections"));
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT)
    }
}

impl WorkloadSpec {
    /// The names under which figures of it appear, and where they stand.
    fn named(&self, place: &KeyPath) -> Vec<(&str, KeyPath)> {
        let own = self.script.is_some() || self.command.is_some();
        let own = own.then(|| (self.name.as_str(), place.key("name")));
        let steps = self.steps.iter().enumerate().filter_map(|(index, step)| {
            let place = place.key("steps").entry(index).key("measure");
            Some((step.measure.as_deref()?, place))
        });
        let total = self.total.as_deref().map(|total| (total, place.key("total")));
        own.into_iter().chain(steps).chain(total).collect()
    }

    /// The first thing that does not fit in it.
    fn inconsistency(&self, place: &KeyPath) -> Option<Inconsistency> {
        let wrong = |place: KeyPath, label: &str| {
            Some(Inconsistency::at(place, format!("workload {:?} {label}", self.name)))
        };
        let key = |key: &str| place.key(key);
        let kinds = [self.script.is_some(), self.command.is_some(), !self.steps.is_empty()];
        match kinds.iter().filter(|kind| **kind).count() {
            0 => return wrong(place.clone(), "has neither script nor command nor steps"),
            1 => {}
            _ => return wrong(place.clone(), "has more than one of script, command and steps"),
        }
        let mut steps = self.steps.iter().enumerate();
        let mistake =
            steps.find_map(|(index, step)| step.mistake(&place.key("steps").entry(index)));
        if let Some((place, label)) = mistake {
            return wrong(place, &label);
        }
        if !self.steps.is_empty() && self.measured().next().is_none() {
            return wrong(key("steps"), "measures nothing");
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)) {
            return wrong(key("rate"), "has a rate that is not between 0 and 1000000 a second");
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients()) {
            return wrong(key("clients"), "has clients that are not 1 to 1000");
        }
        let of_scripts = [
            ("rate", self.rate.is_some()),
            ("clients", self.clients.is_some()),
            ("counted", self.counted > 0),
            ("misses", self.misses),
        ];
        if let Some((name, _)) = of_scripts.iter().find(|(_, has)| *has && self.script.is_none()) {
            return wrong(key(name), "has rate, clients, counted or misses, which are of scripts");
        }
        let has_slice = self.slice.is_some_and(|slice| {
            !(Duration::from_millis(5)..=Duration::from_secs(10)).contains(&slice.0)
        });
        if has_slice {
            return wrong(key("slice"), "has a slice that is not between 5ms and 10s");
        }
        let of_steps = [
            ("table", self.table.is_some()),
            ("total", self.total.is_some()),
            ("loaded", self.loaded),
        ];
        if let Some((name, _)) = of_steps.iter().find(|(_, has)| *has && self.steps.is_empty()) {
            return wrong(key(name), "has table, total or loaded, which are of steps");
        }
        if !self.steps.is_empty() && self.slice.is_some() {
            return wrong(key("slice"), "has slice, which is not of steps");
        }
        if !self.steps.is_empty() && self.profile.is_some() && self.profiled_step().is_none() {
            return wrong(key("profile"), "has profile, which needs a measured step of scripts");
        }
        if self.command.is_some() && self.profile.is_some() {
            return wrong(key("profile"), "has profile, which is not of commands");
        }
        None
    }
}

/// Whether experiments, arms, workloads and runs may be called so: 1 to 24 letters, digits, `-` and
/// `_`, since names become names of directories.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 24 && name.chars().all(plain)
}

fn check_name(string: &str, name: &str, place: KeyPath) -> Option<Inconsistency> {
    let text = format!("{string} name {name:?} is not 1 to 24 letters, digits, - and _");
    (!is_name(name)).then(|| Inconsistency::at(place, text))
}
