//! Noise: other activity on the machine.

use procfs::{CpuPressure, CurrentSI, KernelStats};

use crate::ObserveError;

/// The machine's CPU counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSample {
    busy_ticks: u64,
    steal_ticks: u64,
    total_ticks: u64,
    pressure_us: Option<u64>,
}

/// CPU use of the machine between two samples, as shares of the CPU time that it had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineUse {
    /// Used by anybody.
    pub busy: f64,
    /// Stolen by the hypervisor.
    pub steal: f64,
    /// CPU time that all CPUs together had, in seconds.
    pub cpu_seconds: f64,
    /// Time in which some task waited for a CPU, in µs; `None` without `/proc/pressure`.
    pub pressure_us: Option<u64>,
}

impl MachineSample {
    /// Reads `/proc/stat` and `/proc/pressure/cpu`.
    pub fn now() -> Result<Self, ObserveError> {
        let stat = KernelStats::current()
            .map_err(|source| ObserveError::Proc { what: "/proc/stat", source })?;
        let cpu = stat.total;
        // Guests' time is in user and nice already.
        let busy =
            cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0);
        let steal = cpu.steal.unwrap_or(0);
        Ok(Self {
            busy_ticks: busy,
            steal_ticks: steal,
            total_ticks: busy + steal + cpu.idle + cpu.iowait.unwrap_or(0),
            pressure_us: <CpuPressure as procfs::Current>::current().ok().map(|p| p.some.total),
        })
    }

    /// Returns the use since an earlier sample.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    pub fn since(&self, earlier: &Self) -> MachineUse {
        let ticks = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let total = ticks(self.total_ticks, earlier.total_ticks).max(1.0);
        MachineUse {
            busy: ticks(self.busy_ticks, earlier.busy_ticks) / total,
            steal: ticks(self.steal_ticks, earlier.steal_ticks) / total,
            cpu_seconds: total / procfs::ticks_per_second() as f64,
            pressure_us: self
                .pressure_us
                .zip(earlier.pressure_us)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }
}
