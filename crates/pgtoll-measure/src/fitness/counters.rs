//! Counters and limits that this machine has.

use std::path::PathBuf;

use pgtoll_cluster::{ClusterError, MemoryGroup, Profiler};
use pgtoll_observe as observe;
use pgtoll_observe::CpuSplit;
use pgtoll_record::{FitnessCheck, Host};

use super::group::{Group, with};

/// The kernel's counters, and this user's rights.
pub(super) struct CounterFacts {
    cpu_split: CpuSplit,
    has_io_counters: bool,
    /// Whether a control group that limits memory can be made.
    memory_limits: Result<(), ClusterError>,
    perf: Option<PathBuf>,
    timer_slack_ns: Option<u64>,
}

impl CounterFacts {
    pub(super) fn read(host: &Host) -> Self {
        let probe = MemoryGroup::create("doctor", (64 << 20).min(host.memory_bytes));
        Self {
            cpu_split: observe::cpu_split(),
            has_io_counters: observe::has_io_counters(),
            memory_limits: probe.and_then(MemoryGroup::remove),
            perf: Profiler::program(),
            timer_slack_ns: observe::timer_slack_ns(),
        }
    }
}

pub(super) fn findings(group: Group, facts: &CounterFacts) -> Vec<FitnessCheck> {
    let split = match facts.cpu_split {
        CpuSplit::Exact => group.ok("CPU split", "exact"),
        CpuSplit::Sampled { hz } => group.ok(
            "CPU split",
            format!(
                "user and kernel time are separated {} times a second: shares need 10 s; sums \
                 are exact",
                hz.map_or_else(|| "some hundred".to_owned(), |hz| hz.to_string())
            ),
        ),
    };
    let io = if facts.has_io_counters {
        group.ok("I/O of processes", "counted")
    } else {
        group.note(
            "I/O of processes",
            "not counted: no disk reads and writes in results",
            "use a kernel with CONFIG_TASK_IO_ACCOUNTING",
        )
    };
    let limits = match &facts.memory_limits {
        Ok(()) => group.ok("memory limits", "can be set"),
        Err(error) => group.note(
            "memory limits",
            format!("cannot be set ({error}): no checksums-disk"),
            "root, or systemd-run --user --scope -p Delegate=yes pgtoll ...",
        ),
    };
    let perf = match &facts.perf {
        Some(program) => group.ok("perf", program.display().to_string()),
        None => group.note(
            "perf",
            "not installed: no function's share of CPU time",
            "Debian: apt-get install linux-perf",
        ),
    };
    vec![split, io, limits, perf, timer_slack(group, facts.timer_slack_ns)]
}

#[expect(clippy::cast_precision_loss, reason = "a slack is far below 2^53 ns")]
fn timer_slack(group: Group, slack_ns: Option<u64>) -> FitnessCheck {
    const NAME: &str = "timer slack";
    let Some(slack_ns) = slack_ns else { return group.not_told(NAME) };
    let us = slack_ns as f64 / 1000.0;
    let advice = "open loops (--rate) begin transactions later than they should";
    let reading = format!("{us:.0} us");
    with(group.graded(NAME, us, [50.0, 1e9], reading, advice), "slack_us", us)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::*;

    #[test]
    fn what_cannot_be_counted_is_noted() {
        let facts = CounterFacts {
            cpu_split: CpuSplit::Sampled { hz: None },
            has_io_counters: false,
            memory_limits: Err(ClusterError::NoMemoryController),
            perf: None,
            timer_slack_ns: Some(60_000),
        };
        let found = findings(Group("counters"), &facts);
        let states = found.iter().map(|finding| finding.state).collect::<Vec<_>>();
        assert_eq!(states, [State::Ok, State::Note, State::Note, State::Note, State::Note]);
        assert!(found[0].reading.contains("some hundred times a second"), "{found:?}");
        assert_eq!(found[4].figures["slack_us"].to_bits(), 60f64.to_bits());
    }
}
