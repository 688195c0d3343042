//! Checks that take time.

use std::io;
use std::path::Path;
use std::time::Duration;

use pgtoll_observe as observe;
use pgtoll_observe::{MachineSample, MachineUse};
use pgtoll_system::Interrupt;

use crate::BenchError;

/// How long other programs are watched.
const TIME: Duration = Duration::from_secs(3);
/// Enough for a 99th percentile.
const SYNCS: usize = 200;
/// For a disk with heads that move this is enough too.
const SYNC_TIME: Duration = Duration::from_secs(2);

/// The observation of the idle machine, and the times of syncs.
#[derive(Debug)]
pub struct Watch {
    /// CPU use meanwhile.
    pub(super) machine: MachineUse,
    /// Shares of that time in which some task waited.
    pub(super) pressure: Waited,
    /// How long syncs took, sorted; an error where the file could not be written.
    pub(super) syncs: io::Result<Vec<Duration>>,
}

/// Shares of a time in which some task waited; `None` where the kernel does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    pub(super) cpu: Option<f64>,
    pub(super) io: Option<f64>,
    pub(super) memory: Option<f64>,
}

impl Watch {
    /// Watches for 3 s, then syncs a file below `work_dir` for up to 2 s. `stage` is told what begins.
    pub fn new(
        work_dir: &Path,
        interrupt: &Interrupt,
        stage: &mut dyn FnMut(&str),
    ) -> Result<Self, BenchError> {
        stage("look at what else runs, for 3 s");
        let machine_before = MachineSample::now()?;
        let pressure_before = observe::pressure();
        interrupt.wait(TIME)?;
        let machine = MachineSample::now()?.since(&machine_before);
        let pressure = observe::pressure();
        stage("sync a file, for up to 2 s");
        let is_over = || interrupt.signal().is_some();
        let syncs = observe::sync_times(work_dir, SYNCS, SYNC_TIME, &is_over);
        interrupt.check()?;
        Ok(Self {
            machine,
            pressure: Waited {
                cpu: share(pressure_before.cpu_us, pressure.cpu_us),
                io: share(pressure_before.io_us, pressure.io_us),
                memory: share(pressure_before.memory_us, pressure.memory_us),
            },
            syncs: syncs.map(|mut times| {
                times.sort_unstable();
                times
            }),
        })
    }

    /// Nothing else ran.
    #[cfg(test)]
    pub(super) fn idle(syncs: io::Result<Vec<Duration>>) -> Self {
        let machine = MachineUse { busy: 0.0, steal: 0.0, cpu_seconds: 6.0, pressure_us: None };
        Self { machine, pressure: Waited::default(), syncs }
    }
}

#[expect(clippy::cast_precision_loss, reason = "three seconds of µs")]
fn share(before_us: Option<u64>, after_us: Option<u64>) -> Option<f64> {
    let waited = after_us?.saturating_sub(before_us?) as f64;
    Some((waited / 1e6 / TIME.as_secs_f64()).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_at_most_and_unknown_where_a_counter_is() {
        assert_eq!(share(Some(0), Some(1_500_000)), Some(0.5));
        assert_eq!(share(Some(0), Some(4_000_000)), Some(1.0));
        assert_eq!(share(None, Some(1)), None);
    }
}
