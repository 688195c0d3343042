//! Servers, their user, and what earlier runs left.

use pgtoll_cluster::{Found, GuardOptions, Installation, Leftover, leftovers};
use pgtoll_record::FitnessCheck;

use super::group::Group;

/// Servers that are installed, whom they would run as, and what earlier runs left.
pub(super) struct ServerFacts<'a> {
    guard: &'a GuardOptions,
    found: &'a Found,
    server: Option<&'a Installation>,
    leftovers: Vec<Leftover>,
}

impl<'a> ServerFacts<'a> {
    pub(super) fn read(
        guard: &'a GuardOptions,
        found: &'a Found,
        server: Option<&'a Installation>,
    ) -> Self {
        Self { guard, found, server, leftovers: leftovers(&guard.base, &guard.user) }
    }
}

pub(super) fn findings(group: Group, facts: &ServerFacts<'_>) -> Vec<FitnessCheck> {
    let ServerFacts { guard, found, server, leftovers } = facts;
    let mut findings = vec![match server {
        Some(server) => {
            let reading = format!("PostgreSQL {} in {}", name(server), server.bin.display());
            group.ok("server", reading)
        }
        None => group.note("server", "none", "pgtoll postgres install fetches one"),
    }];
    let all: Vec<String> = found.installations.iter().map(name).collect();
    findings.extend((all.len() > 1).then(|| group.ok("all servers", all.join(", "))));
    findings.extend(found.skipped.iter().map(|skipped| {
        let advice = skipped.reason.hint().unwrap_or_default();
        group.note("not used", skipped.to_string(), &advice)
    }));
    let because = if guard.user.changed { ", since PostgreSQL refuses root" } else { "" };
    let user = format!("{}{because}; it can work in {}", guard.user.name, guard.base.display());
    findings.push(group.ok("user", user));
    findings.extend(leftovers.iter().map(|leftover| {
        let reading = format!("{}: its guard was killed", leftover.directory.display());
        group.note("left behind", reading, &leftover.removal())
    }));
    findings
}

fn name(server: &Installation) -> String {
    format!("{} ({})", server.version, server.origin)
}

#[cfg(test)]
mod tests {
    use pgtoll_cluster::{ClusterError, ServerUser, Skipped};
    use pgtoll_record::State;

    use super::*;

    #[test]
    fn servers_that_are_not_used_and_what_was_left_are_named() {
        let guard = GuardOptions::of_this_program("/base".into(), ServerUser::choose().unwrap());
        let skipped = Skipped {
            reason: ClusterError::NoVersion {
                program: "/bin/postgres".into(),
                reason: "no".into(),
            },
        };
        let found = Found { installations: Vec::new(), skipped: vec![skipped] };
        let left = Leftover {
            directory: "/base/pgtoll-1".into(),
            postmasters: Vec::new(),
            programs: Vec::new(),
        };
        let facts =
            ServerFacts { guard: &guard, found: &found, server: None, leftovers: vec![left] };
        let found = findings(Group("servers"), &facts);
        let named: Vec<(&str, State)> =
            found.iter().map(|finding| (finding.name.as_str(), finding.state)).collect();
        assert_eq!(
            named,
            [
                ("server", State::Note),
                ("not used", State::Note),
                ("user", State::Ok),
                ("left behind", State::Note),
            ]
        );
        assert!(found[3].advice.as_deref().is_some_and(|advice| advice.contains("/base/pgtoll-1")));
    }
}
