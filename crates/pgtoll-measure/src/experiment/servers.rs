//! Servers in the place of an experiment's arms.

use std::path::Path;

use super::check::is_reserved;
use super::{ArmSpec, Experiment};

/// A server that is compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerChoice {
    /// The arm's name.
    pub label: String,
    /// A directory with `bin/postgres`, or a major version.
    pub postgres: String,
}

/// The arm that is a twin of the baseline.
const TWIN: &str = "twin";
/// The experiment whose work is compared where none is named, and its name then.
const DEFAULT: &str = "checksums";
const SERVERS: &str = "servers";
/// Parts of a server's path that packages share.
const UNTELLING: [&str; 4] = ["bin", "/", "pginstall", "native"];
/// Characters of a label at most; an arm's name has a few more.
const LABEL_LENGTH: usize = 20;

impl ServerChoice {
    /// Servers by the names that a user gave them: `18` is called so, a directory by its last part.
    pub fn of_names(names: &[String]) -> Vec<Self> {
        let mut choices: Vec<Self> = Vec::new();
        for name in names {
            let label = label(name);
            let is_taken =
                |label: &str| label == TWIN || choices.iter().any(|one| one.label == label);
            let numbered = (2..).map(|number| format!("{label}-{number}"));
            let mut labels = std::iter::once(label.clone()).chain(numbered);
            let label = labels.find(|label| !is_taken(label)).unwrap_or(label.clone());
            choices.push(Self { label, postgres: name.clone() });
        }
        choices
    }
}

/// An arm's name for a server.
fn label(name: &str) -> String {
    let parts = Path::new(name).iter().rev().map(|part| part.to_string_lossy());
    let mut parts = parts.filter(|part| !UNTELLING.contains(&&**part));
    let part = parts.next().unwrap_or_default();
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let label: String =
        part.chars().take(LABEL_LENGTH).map(|one| if plain(one) { one } else { '-' }).collect();
    if !label.chars().any(plain) {
        return "server".to_owned();
    }
    if is_reserved(&label) { format!("pg-{label}") } else { label }
}

impl Experiment {
    /// Compares servers under its work: its baseline arm on each of them, the first the baseline, and a
    /// twin of that. Expectations, which are about other arms, go. `settings_of` is one of the servers'
    /// labels.
    pub fn compare_servers(&mut self, servers: &[ServerChoice], settings_of: Option<&str>) {
        let Some(model) = self.arms.iter().find(|arm| arm.name == self.baseline).cloned() else {
            return;
        };
        let Some(first) = servers.first() else { return };
        let arm = |server: &ServerChoice| ArmSpec {
            name: server.label.clone(),
            postgres: Some(server.postgres.clone()),
            twin_of: None,
            against: None,
            ..model.clone()
        };
        let twin =
            ArmSpec { name: TWIN.to_owned(), twin_of: Some(first.label.clone()), ..arm(first) };
        self.arms = servers.iter().map(arm).chain([twin]).collect();
        if self.name == DEFAULT {
            SERVERS.clone_into(&mut self.name);
        }
        self.baseline.clone_from(&first.label);
        let others: Vec<&str> = servers[1..].iter().map(|server| server.label.as_str()).collect();
        self.question =
            format!("Is {} slower than {} on this work?", others.join(" or "), first.label);
        self.settings_of = settings_of.map(str::to_owned);
        self.expect.clear();
        self.crossover = false;
    }

    /// Whether arms have servers of their own.
    pub fn has_servers(&self) -> bool {
        self.arms.iter().any(|arm| arm.postgres.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_arms_with_names_of_their_own() {
        let names =
            ["17", "/opt/pg/18.6/pginstall/bin", "/usr/local/18.6", "twin", "/", "/opt/empty"]
                .map(str::to_owned);
        let choices = ServerChoice::of_names(&names);
        let labels: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
        assert_eq!(labels, ["17", "18-6", "18-6-2", "twin-2", "server", "pg-empty"]);
        let mut experiment = Experiment::built_in("checksums").unwrap().unwrap();
        experiment.compare_servers(&choices[..2], Some("17"));
        let mut experiment = experiment.checked().unwrap();
        let arms: Vec<_> =
            experiment.arms.iter().map(|arm| (&*arm.name, arm.postgres.as_deref())).collect();
        assert_eq!(
            arms,
            [
                ("17", Some("17")),
                ("18-6", Some("/opt/pg/18.6/pginstall/bin")),
                ("twin", Some("17"))
            ]
        );
        assert_eq!((&*experiment.name, &*experiment.baseline), ("servers", "17"));
        assert_eq!(experiment.question, "Is 18-6 slower than 17 on this work?");
        for name in ["twin", "16"] {
            experiment.settings_of = Some(name.to_owned());
            let error = experiment.clone().checked().unwrap_err().to_string();
            assert!(error.contains("is not an arm with a server of its own"), "{error}");
        }
    }

    #[test]
    fn one_cluster_cannot_have_two_servers() {
        let mut experiment = Experiment::built_in("wal-compression").unwrap().unwrap();
        assert!(experiment.crossover);
        experiment.arms[1].postgres = Some("18".to_owned());
        let error = experiment.checked().unwrap_err().to_string();
        assert!(error.contains("no crossover"), "{error}");
    }
}
