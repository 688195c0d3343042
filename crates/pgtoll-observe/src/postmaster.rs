//! The processes of a cluster: a postmaster and its children.

use procfs::ProcError;
use procfs::process::Process;

use crate::ObserveError;

/// A postmaster, told from a later process with its pid by its directory in /proc.
#[derive(Debug)]
pub(crate) struct PostmasterProcess {
    pub(crate) process: Process,
    pub(crate) pid: i32,
}

impl PostmasterProcess {
    pub(crate) fn attach(pid: i32) -> Result<Self, ObserveError> {
        let process = Process::new(pid).map_err(|source| ObserveError::Process { pid, source })?;
        Ok(Self { process, pid })
    }

    /// Its children, those included that have ended but were not reaped yet: one that is not here
    /// any more is in the postmaster's totals.
    pub(crate) fn children(&self) -> Result<Vec<i32>, ObserveError> {
        let children = self.process.task_main_thread().and_then(|thread| thread.children());
        let children = children.map_err(|source| self.error(source))?;
        Ok(children.into_iter().filter_map(|pid| i32::try_from(pid).ok()).collect())
    }

    pub(crate) fn error(&self, source: ProcError) -> ObserveError {
        ObserveError::Process { pid: self.pid, source }
    }
}
