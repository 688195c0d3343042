//! Settings of the kernel.

use std::collections::BTreeMap;

use pgtoll_observe as observe;
use pgtoll_record::{FitnessCheck, Host};

use super::group::Group;

/// The known facts about the kernel's settings.
#[derive(Default)]
pub(super) struct KernelFacts {
    transparent_huge_pages: Option<String>,
    /// Values by dotted names; of those that findings are about.
    sysctls: BTreeMap<String, String>,
    memory_nodes: Option<usize>,
}

impl KernelFacts {
    pub(super) fn read(host: &Host) -> Self {
        let named = SETTINGS.iter().map(|(name, _, _)| *name).chain([NUMA_BALANCING]);
        let named = named.filter_map(|name| Some((name.to_owned(), observe::sysctl(name)?)));
        let prefixed = [DIRTY, SCHEDULER]
            .into_iter()
            .flat_map(|(directory, prefix)| observe::sysctls(directory, prefix));
        Self {
            transparent_huge_pages: host.transparent_huge_pages.clone(),
            sysctls: named.chain(prefixed).collect(),
            memory_nodes: observe::memory_nodes(),
        }
    }

    fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }

    /// `name=value` of all settings whose names begin so; `None` when there is none.
    fn together(&self, (directory, prefix): (&str, &str)) -> Option<String> {
        let begin = format!("{directory}.{prefix}");
        let settings = self.sysctls.iter();
        let named = settings
            .filter_map(|(name, value)| Some(format!("{}={value}", name.strip_prefix(&begin)?)));
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| named.join(", "))
    }
}

const NUMA_BALANCING: &str = "kernel.numa_balancing";
/// Directories of settings, and how those begin that are shown together.
const DIRTY: (&str, &str) = ("vm", "dirty_");
const SCHEDULER: (&str, &str) = ("kernel", "sched_");

pub(super) fn findings(group: Group, facts: &KernelFacts) -> Vec<FitnessCheck> {
    let mut found = vec![huge_pages(group, facts), dirty_pages(group, facts)];
    for (name, is_fine, advice) in SETTINGS {
        let short = name.rsplit('.').next().unwrap_or(name);
        found.push(match facts.sysctl(name) {
            None => group.not_told(short),
            Some(value) if is_fine(value) => group.ok(short, value),
            Some(value) => group.note(short, value, advice),
        });
    }
    found.push(memory_nodes(group, facts));
    let scheduler = facts.together(SCHEDULER);
    found.push(
        scheduler.map_or_else(|| group.not_told("scheduler"), |all| group.ok("scheduler", all)),
    );
    found
}

fn huge_pages(group: Group, facts: &KernelFacts) -> FitnessCheck {
    match facts.transparent_huge_pages.as_deref() {
        None => group.not_told("huge pages"),
        Some("always") => group.note(
            "huge pages",
            "transparent ones always: the kernel may join pages in the middle of a slice",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(other) => group.ok("huge pages", format!("transparent ones: {other}")),
    }
}

/// The kernel writes dirty pages in the background from here on, and makes who writes wait beyond.
fn dirty_pages(group: Group, facts: &KernelFacts) -> FitnessCheck {
    const NAME: &str = "dirty pages";
    let Some(all) = facts.together(DIRTY) else { return group.not_told(NAME) };
    let background = facts.sysctl("vm.dirty_background_ratio");
    let background = background.and_then(|ratio| ratio.parse::<u32>().ok()).unwrap_or(0);
    if background > 10 {
        let advice = "sysctl vm.dirty_background_bytes=268435456: the kernel writes in smaller \
                      bursts";
        return group.note(NAME, all, advice);
    }
    group.ok(NAME, all)
}

fn memory_nodes(group: Group, facts: &KernelFacts) -> FitnessCheck {
    const NAME: &str = "memory nodes";
    match (facts.memory_nodes, facts.sysctl(NUMA_BALANCING)) {
        (None | Some(0), _) => group.not_told(NAME),
        (Some(1), _) => group.ok(NAME, "1"),
        (Some(nodes), Some("1")) => group.note(
            NAME,
            format!("{nodes}, and the kernel moves pages between them"),
            "sysctl kernel.numa_balancing=0, and numactl --cpunodebind=0 --membind=0 pgtoll",
        ),
        (Some(nodes), _) => group.note(
            NAME,
            nodes.to_string(),
            "numactl --cpunodebind=0 --membind=0 pgtoll keeps to one",
        ),
    }
}

/// A kernel setting, whether a value is fine, and what to do when it is not.
type Setting = (&'static str, fn(&str) -> bool, &'static str);

const SETTINGS: [Setting; 4] = [
    (
        "vm.swappiness",
        |value| value.parse().is_ok_and(|value: u32| value <= 60),
        "sysctl vm.swappiness=10: the page cache gives way before servers do",
    ),
    (
        "vm.overcommit_memory",
        |value| value != "1",
        "sysctl vm.overcommit_memory=2, as PostgreSQL's documentation advises for servers",
    ),
    (
        "vm.zone_reclaim_mode",
        |value| value == "0",
        "sysctl vm.zone_reclaim_mode=0: the page cache of other nodes is better than a disk",
    ),
    (
        "kernel.perf_event_paranoid",
        |value| value.parse().is_ok_and(|value: i32| value <= 2),
        "sysctl kernel.perf_event_paranoid=2: then perf can sample servers",
    ),
];

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::*;

    fn facts(sysctls: &[(&str, &str)]) -> KernelFacts {
        let owned = sysctls.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        KernelFacts { sysctls: owned.collect(), ..KernelFacts::default() }
    }

    fn check(facts: &KernelFacts, name: &str, state: State, reading: &str) {
        let found = findings(Group("kernel"), facts);
        let found = found.iter().find(|finding| finding.name == name).unwrap();
        assert_eq!((found.state, found.reading.as_str()), (state, reading));
    }

    #[test]
    fn settings_are_judged_by_their_values() {
        for (name, fine, other) in [
            ("vm.swappiness", "60", "61"),
            ("vm.overcommit_memory", "2", "1"),
            ("vm.zone_reclaim_mode", "0", "1"),
            ("kernel.perf_event_paranoid", "-1", "3"),
        ] {
            let short = name.split('.').next_back().unwrap();
            check(&facts(&[(name, fine)]), short, State::Ok, fine);
            check(&facts(&[(name, other)]), short, State::Note, other);
            check(&facts(&[]), short, State::NotTold, "not told");
        }
    }

    #[test]
    fn settings_of_a_kind_are_one_finding() {
        let ratio =
            |ratio: &str| facts(&[("vm.dirty_ratio", "20"), ("vm.dirty_background_ratio", ratio)]);
        check(&ratio("10"), "dirty pages", State::Ok, "background_ratio=10, ratio=20");
        check(&ratio("11"), "dirty pages", State::Note, "background_ratio=11, ratio=20");
        check(&facts(&[]), "dirty pages", State::NotTold, "not told");
    }

    #[test]
    fn pages_that_move_between_nodes_are_worse_than_nodes() {
        let nodes = |nodes, balancing: &[(&str, &str)]| KernelFacts {
            memory_nodes: Some(nodes),
            ..facts(balancing)
        };
        check(&nodes(1, &[]), "memory nodes", State::Ok, "1");
        check(&nodes(2, &[(NUMA_BALANCING, "0")]), "memory nodes", State::Note, "2");
        let moved = "2, and the kernel moves pages between them";
        check(&nodes(2, &[(NUMA_BALANCING, "1")]), "memory nodes", State::Note, moved);
    }
}
