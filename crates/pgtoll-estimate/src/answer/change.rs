//! Arms by what they change.

use pgtoll_record::{Arm, Header};

/// More would be a list of settings, and no name.
const SETTINGS_NAMED: usize = 2;

/// Returns an arm's change, in the words of its settings: `data checksums`, `wal_log_hints = on`. Its
/// own name where that says nothing, or the same of another arm.
pub(crate) fn change(header: &Header, arm: &str) -> String {
    let find = |name: &str| header.arms.iter().find(|arm| arm.name == name);
    let (Some(own), Some(baseline)) = (find(arm), find(&header.baseline)) else {
        return arm.to_owned();
    };
    let words = describe(own, baseline);
    let others = header.arms.iter().filter(|item| item.name != arm && item.twin_of.is_none());
    let is_own = others
        .filter(|arm| arm.name != header.baseline)
        .all(|arm| describe(arm, baseline) != words);
    words.filter(|_| is_own).unwrap_or_else(|| arm.to_owned())
}

/// The change with the arm's name, where that is not in it.
pub fn change_and_name(change: &str, arm: &str) -> String {
    let mut words = change.split([' ', ',']);
    if words.any(|word| word == arm) { change.to_owned() } else { format!("{change} ({arm})") }
}

fn describe(arm: &Arm, baseline: &Arm) -> Option<String> {
    let version = |arm: &Arm| arm.server.as_ref().map(|server| server.version.clone());
    let server = arm.server.as_ref().filter(|server| baseline.server.as_ref() != Some(server));
    let server = server.map(|server| {
        let is_other_version = version(baseline).as_ref() != Some(&server.version);
        if is_other_version {
            format!("PostgreSQL {}", server.version)
        } else {
            format!("build {}", arm.name)
        }
    });
    let checksums = match (arm.checksums, baseline.checksums) {
        (true, false) => Some("data checksums".to_owned()),
        (false, true) => Some("no data checksums".to_owned()),
        _ => None,
    };
    let changed = arm.settings.iter().filter(|(name, value)| {
        baseline.settings.get(*name).is_none_or(|setting| setting != *value)
    });
    let changed = changed.map(|(name, value)| format!("{name} = {value}"));
    let left_out = baseline.settings.keys().filter(|name| !arm.settings.contains_key(*name));
    let left_out = left_out.map(|name| format!("default {name}"));
    // The scale is the same for all.
    let values = arm.values.iter().filter(|(name, value)| {
        *name != "scale" && baseline.values.get(*name).is_none_or(|item| item != *value)
    });
    let values = values.map(|(name, value)| format!("{name} {value}"));
    let all: Vec<String> =
        server.into_iter().chain(checksums).chain(changed).chain(left_out).chain(values).collect();
    (1..=SETTINGS_NAMED).contains(&all.len()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pgtoll_record::Run;

    use super::*;

    const RECORD: &str = include_str!("../../../../records/2026-11-22-pg17/run.jsonl");

    #[test]
    fn an_arm_is_named_by_what_it_changes() {
        let mut header = Run::parse(RECORD).unwrap().header;
        assert_eq!(change(&header, "checksums"), "data checksums");
        assert_eq!(change(&header, "hints"), "wal_log_hints = on");
        assert_eq!(change(&header, "twin"), "twin");
        assert_eq!(change(&header, "nobody"), "nobody");
        let set = |arm: &mut Arm, pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            arm.settings = pairs.collect::<BTreeMap<String, String>>();
        };
        set(&mut header.arms[0], &[("max_wal_size", "16GB")]);
        set(&mut header.arms[1], &[("max_wal_size", "1GB")]);
        assert_eq!(change(&header, "hints"), "max_wal_size = 1GB");
        assert_eq!(change(&header, "checksums"), "data checksums, default max_wal_size");
        set(
            &mut header.arms[1],
            &[("fsync", "off"), ("max_wal_size", "1GB"), ("wal_level", "minimal")],
        );
        assert_eq!(change(&header, "hints"), "hints", "too many to be a name");
    }

    #[test]
    fn two_arms_have_two_names() {
        let mut header = Run::parse(RECORD).unwrap().header;
        header.arms[1].checksums = true;
        header.arms[1].settings.clear();
        assert_eq!(change(&header, "hints"), "hints");
        assert_eq!(change(&header, "checksums"), "checksums");
    }

    #[test]
    fn the_name_of_the_arm_stands_beside_what_it_changes() {
        assert_eq!(change_and_name("data checksums", "checksums"), "data checksums");
        assert_eq!(change_and_name("wal_log_hints = on", "hints"), "wal_log_hints = on (hints)");
    }
}
