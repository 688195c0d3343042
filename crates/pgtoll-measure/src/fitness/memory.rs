//! Memory, and what limits it.

use pgtoll_format::ByteSize;
use pgtoll_observe as observe;
use pgtoll_record::{FitnessCheck, Host};

use super::group::{Group, with};
use crate::BenchError;

/// The known facts about the memory beyond what a record has of it, in bytes.
pub(super) struct MemoryFacts {
    available: u64,
    /// That a control group allows.
    limit: Option<u64>,
    /// `None` where the system does not tell.
    swap_used: Option<u64>,
}

impl MemoryFacts {
    pub(super) fn read() -> Self {
        Self {
            available: observe::memory().map_or(0, |memory| memory.available_bytes),
            limit: observe::memory_limit_bytes(),
            swap_used: observe::swap_used_bytes(),
        }
    }
}

/// `lack` is what of the default experiment does not fit here.
#[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
pub(super) fn findings(
    group: Group,
    facts: &MemoryFacts,
    lack: Option<&BenchError>,
    host: &Host,
) -> Vec<FitnessCheck> {
    let size = |bytes: u64| ByteSize(bytes).rounded();
    let reading = format!("{}, {} available", size(host.memory_bytes), size(facts.available));
    let memory = match lack {
        Some(BenchError::MemoryTooSmall { needed_bytes, .. }) => group.warn(
            "memory",
            format!("{reading}; the default measurement needs {}", size(*needed_bytes)),
            "measure with a smaller --scale, or free some memory",
        ),
        _ => group.ok("memory", reading),
    };
    let limit = match facts.limit.filter(|limit| *limit < host.memory_bytes) {
        Some(limit) => group.note(
            "limit",
            format!("a control group allows {}", size(limit)),
            "all servers and their page cache share it: choose --scale by it",
        ),
        None => group.ok("limit", "none"),
    };
    let swap = match facts.swap_used {
        None => group.not_told("swap"),
        Some(0) => group.ok("swap", "not in use"),
        Some(used) => group.note(
            "swap",
            format!("{} in use", size(used)),
            "swapoff -a && swapon -a, when there is memory for it",
        ),
    };
    let memory = with(memory, "total_bytes", host.memory_bytes as f64);
    vec![with(memory, "available_bytes", facts.available as f64), limit, swap]
}

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::super::unknown_host;
    use super::*;

    fn check(facts: &MemoryFacts, lack: Option<&BenchError>, expected: [(State, &str); 3]) {
        let found = findings(Group("memory"), facts, lack, &unknown_host());
        let found = found.iter().map(|finding| (finding.state, finding.reading.as_str()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_limit_above_the_memory_is_none() {
        let facts = MemoryFacts { available: 512 << 20, limit: Some(1 << 40), swap_used: Some(0) };
        let memory = (State::Ok, "1.00 GB, 512 MB available");
        check(&facts, None, [memory, (State::Ok, "none"), (State::Ok, "not in use")]);
        let facts = MemoryFacts { limit: Some(1 << 29), swap_used: Some(1 << 20), ..facts };
        let limit = (State::Note, "a control group allows 512 MB");
        check(&facts, None, [memory, limit, (State::Note, "1.00 MB in use")]);
    }

    #[test]
    fn too_little_for_the_default_experiment_speaks_against_measuring() {
        let facts = MemoryFacts { available: 512 << 20, limit: None, swap_used: None };
        let lack = BenchError::MemoryTooSmall { available_bytes: 512 << 20, needed_bytes: 1 << 31 };
        let memory = "1.00 GB, 512 MB available; the default measurement needs 2.00 GB";
        let rest = [(State::Ok, "none"), (State::NotTold, "not told")];
        check(&facts, Some(&lack), [(State::Warn, memory), rest[0], rest[1]]);
    }
}
