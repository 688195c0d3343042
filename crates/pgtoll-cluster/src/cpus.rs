//! On which CPUs processes run.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::ClusterError;

/// The CPUs that this thread may use, by their numbers.
pub fn usable_cpus() -> Result<Vec<usize>, ClusterError> {
    let set = sched_getaffinity(None).map_err(|errno| error(0, errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the process with this pid run on these CPUs alone, and what it starts from then on. A process
/// that has ended needs no CPU.
pub fn pin(pid: i32, cpus: &[usize]) -> Result<(), ClusterError> {
    let process = Pid::from_raw(pid).ok_or_else(|| error(pid, Errno::INVAL))?;
    match sched_setaffinity(Some(process), &set_of(cpus)) {
        Err(Errno::SRCH) => Ok(()),
        done => done.map_err(|errno| error(pid, errno)),
    }
}

/// This thread, on one CPU until this is dropped.
#[derive(Debug)]
pub struct PinnedThread {
    before: CpuSet,
}

impl PinnedThread {
    /// Lets the calling thread run on this CPU alone, and what it starts from then on.
    pub fn on(cpu: usize) -> Result<Self, ClusterError> {
        let before = sched_getaffinity(None).map_err(|errno| error(0, errno))?;
        sched_setaffinity(None, &set_of(&[cpu])).map_err(|errno| error(0, errno))?;
        Ok(Self { before })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // CPUs that have gone meanwhile leave the others.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    set
}

fn error(pid: i32, errno: Errno) -> ClusterError {
    ClusterError::Pin { pid, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_on_one_cpu_and_then_on_all_again() {
        let all = usable_cpus().unwrap();
        let last = *all.last().unwrap();
        let pinned = PinnedThread::on(last).unwrap();
        assert_eq!(usable_cpus().unwrap(), [last]);
        drop(pinned);
        assert_eq!(usable_cpus().unwrap(), all);
    }
}
