//! The processor and its clocks.

use pgtoll_observe as observe;
use pgtoll_record::{FitnessCheck, Host};

use super::group::{Group, with};

/// The known facts about the processor beyond what a record has of it; `None` where the system does not
/// tell.
pub(super) struct ProcessorFacts {
    online_cores: Option<u64>,
    /// CPUs' worth of time that a control group allows.
    quota: Option<f64>,
    boost: Option<bool>,
    multithreading: Option<bool>,
    clock_source: Option<String>,
    clock_cost_ns: f64,
}

impl ProcessorFacts {
    pub(super) fn read() -> Self {
        Self {
            online_cores: observe::online_cores(),
            quota: observe::cpu_quota(),
            boost: observe::boost(),
            multithreading: observe::multithreading(),
            clock_source: observe::clock_source(),
            clock_cost_ns: observe::clock_cost_ns(),
        }
    }
}

pub(super) fn findings(group: Group, facts: &ProcessorFacts, host: &Host) -> Vec<FitnessCheck> {
    vec![
        cores(group, facts.online_cores, host),
        quota(group, facts.quota),
        governor(group, host.governor.as_deref()),
        boost(group, facts.boost),
        multithreading(group, facts.multithreading),
        machine(group, host.hypervisor),
        clock_source(group, facts.clock_source.as_deref()),
        clock(group, facts.clock_cost_ns),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "cores are few")]
fn cores(group: Group, online: Option<u64>, host: &Host) -> FitnessCheck {
    let online = online.unwrap_or(host.cores);
    let all = if online > host.cores { format!(" of {online}") } else { String::new() };
    let reading = format!("{}{all}, {}", host.cores, host.cpu);
    let cores = match host.cores {
        1 => group.warn("cores", reading, "use at least 2: the load takes CPU from the server"),
        _ => group.ok("cores", reading),
    };
    with(cores, "cores", host.cores as f64)
}

fn quota(group: Group, quota: Option<f64>) -> FitnessCheck {
    match quota {
        Some(quota) => group.warn(
            "quota",
            format!("a control group allows {quota:.1} CPUs' worth of time"),
            "run without it (no --cpus, no CPUQuota=): throttling stops servers in mid-slice",
        ),
        None => group.ok("quota", "none"),
    }
}

fn governor(group: Group, governor: Option<&str>) -> FitnessCheck {
    match governor {
        None => group.not_told("governor"),
        Some("performance") => group.ok("governor", "performance"),
        Some(other) => group.note(
            "governor",
            other,
            "cpupower frequency-set -g performance: CPU time is of one frequency then",
        ),
    }
}

fn boost(group: Group, boost: Option<bool>) -> FitnessCheck {
    match boost {
        None => group.not_told("boost"),
        Some(false) => group.ok("boost", "off"),
        Some(true) => group.note(
            "boost",
            "on: frequencies depend on heat and on neighbours",
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost (intel_pstate: 1 > no_turbo)",
        ),
    }
}

fn multithreading(group: Group, multithreading: Option<bool>) -> FitnessCheck {
    match multithreading {
        None => group.not_told("SMT"),
        Some(false) => group.ok("SMT", "off, or not there"),
        Some(true) => group.note(
            "SMT",
            "on: two CPUs may be one core, which slows both down",
            "echo off > /sys/devices/system/cpu/smt/control, or keep others off the machine",
        ),
    }
}

fn machine(group: Group, hypervisor: bool) -> FitnessCheck {
    if hypervisor {
        let advice = "neighbours are not seen: look at steal, and repeat at another hour";
        return group.note("machine", "virtual", advice);
    }
    group.ok("machine", "says nothing of a hypervisor")
}

fn clock_source(group: Group, source: Option<&str>) -> FitnessCheck {
    const NAME: &str = "clock source";
    match source {
        None => group.not_told(NAME),
        Some(
            source @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
        ) => group.ok(NAME, source),
        Some(other) => group.note(NAME, other, "tsc is cheaper, where the kernel trusts it"),
    }
}

fn clock(group: Group, cost_ns: f64) -> FitnessCheck {
    let reading = format!("{cost_ns:.0} ns to ask for the time");
    let advice = "each transaction asks several times: see the clock source";
    with(group.graded("clock", cost_ns, [150.0, 1000.0], reading, advice), "cost_ns", cost_ns)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::State;

    use super::super::unknown_host;
    use super::*;

    const GROUP: Group = Group("CPU");

    #[test]
    fn facts_that_are_unknown_are_not_guessed() {
        let facts = ProcessorFacts {
            online_cores: None,
            quota: None,
            boost: None,
            multithreading: None,
            clock_source: None,
            clock_cost_ns: 30.0,
        };
        let found = findings(GROUP, &facts, &unknown_host());
        let unknown: Vec<&str> = found
            .iter()
            .filter(|finding| finding.state == State::NotTold)
            .map(|finding| finding.name.as_str())
            .collect();
        assert_eq!(unknown, ["governor", "boost", "SMT", "clock source"]);
        assert_eq!(found[0].reading, "4, unknown");
    }

    #[test]
    fn a_single_core_and_a_quota_speak_against_measuring() {
        let host = Host { cores: 1, ..unknown_host() };
        let found = cores(GROUP, Some(8), &host);
        assert_eq!((found.state, found.reading.as_str()), (State::Warn, "1 of 8, unknown"));
        assert_eq!(quota(GROUP, Some(1.5)).state, State::Warn);
        assert_eq!(quota(GROUP, None).state, State::Ok);
    }

    #[test]
    fn clocks_that_ask_the_hypervisor_are_noted() {
        assert_eq!(clock_source(GROUP, Some("kvm-clock")).state, State::Ok);
        assert_eq!(clock_source(GROUP, Some("hpet")).state, State::Note);
        assert_eq!(
            [30.0, 500.0, 2000.0].map(|cost| clock(GROUP, cost).state),
            [State::Ok, State::Note, State::Warn]
        );
    }
}
