//! Whether a machine is fit to be measured on: what its facts mean, group by group. Each group reads
//! its facts and then judges them, so that every judgement can be tested on any machine.

mod activity;
mod counters;
mod disk;
mod group;
mod intervals;
mod kernel;
mod memory;
mod processor;
mod servers;
mod watch;

use pgtoll_cluster::{Found, GuardOptions, Installation};
use pgtoll_record::{FitnessCheck, Host};

use self::counters::CounterFacts;
use self::disk::DiskFacts;
use self::group::Group;
pub use self::intervals::IntervalFacts;
use self::kernel::KernelFacts;
use self::memory::MemoryFacts;
use self::processor::ProcessorFacts;
use self::servers::ServerFacts;
pub use self::watch::Watch;
use crate::{BenchError, Choices, Experiment, Plan};

/// The known facts about a machine before its fitness is judged.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The directory and the user of clusters.
    pub guard: &'a GuardOptions,
    /// The servers that are installed.
    pub found: &'a Found,
    /// The one that would be measured.
    pub server: Option<&'a Installation>,
    /// The machine.
    pub host: &'a Host,
    /// The observation of the idle machine.
    pub watch: &'a Watch,
    /// The facts about intervals from earlier runs here.
    pub intervals: IntervalFacts<'a>,
}

const INTERVALS: Group = Group("calibration");

/// Reads what is left to read, and judges everything.
pub fn findings(surroundings: &Surroundings<'_>) -> Result<Vec<FitnessCheck>, BenchError> {
    let Surroundings { guard, found, server, host, watch, intervals } = surroundings;
    let lack = lack(guard);
    let disk = DiskFacts::read(&guard.base)?;
    let servers = ServerFacts::read(guard, found, *server);
    let groups = [
        processor::findings(Group("CPU"), &ProcessorFacts::read(), host),
        activity::findings(Group("what else runs"), watch, pgtoll_observe::load_average(), host),
        memory::findings(Group("memory"), &MemoryFacts::read(), lack.as_ref(), host),
        disk::findings(Group("disk"), &disk, watch, lack.as_ref()),
        kernel::findings(Group("kernel"), &KernelFacts::read(host)),
        counters::findings(Group("counters"), &CounterFacts::read(host)),
        servers::findings(Group("servers"), &servers),
        vec![intervals::finding(INTERVALS, intervals)],
    ];
    Ok(groups.into_iter().flatten().collect())
}

/// Judges the intervals again, after more comparisons came.
pub fn recalibrate(findings: &mut [FitnessCheck], intervals: &IntervalFacts<'_>) {
    for old in findings {
        if old.group == INTERVALS.0 {
            *old = intervals::finding(INTERVALS, intervals);
        }
    }
}

/// Returns the shortage for the default experiment.
fn lack(guard: &GuardOptions) -> Option<BenchError> {
    // A test parses all built-in experiments.
    let experiment = Experiment::built_in("checksums")?.ok()?;
    let plan = Plan::new(experiment, &Choices::default());
    plan.check_room(&guard.base).err()
}

/// A machine of which little is known.
#[cfg(test)]
fn unknown_host() -> Host {
    Host {
        kernel: String::new(),
        cpu: "unknown".into(),
        cores: 4,
        memory_bytes: 1 << 30,
        file_system: String::new(),
        hypervisor: false,
        transparent_huge_pages: None,
        governor: None,
        cpu_split: String::new(),
    }
}
