//! Sessions attached to a running server.

use pgtoll_cluster::Cluster;
use pgtoll_observe::{ClusterCpu, ClusterIo};
use pgtoll_wire::Connection;

use crate::BenchError;
use crate::names::DATABASE;

/// Sessions of a server, and the clocks and counters of its processes.
pub(crate) struct Sessions {
    pub(crate) postmaster: i32,
    pub(crate) monitor: Connection,
    /// Does the statements and nothing else.
    pub(crate) worker: Connection,
    pub(crate) cpu: ClusterCpu,
    pub(crate) io: ClusterIo,
}

impl Sessions {
    pub(crate) fn begin(cluster: &Cluster, postmaster: i32) -> Result<Self, BenchError> {
        Ok(Self {
            postmaster,
            monitor: cluster.connect(DATABASE)?,
            worker: cluster.connect(DATABASE)?,
            cpu: ClusterCpu::attach(postmaster)?,
            io: ClusterIo::attach(postmaster)?,
        })
    }

    pub(crate) fn close(self) {
        self.worker.close();
        self.monitor.close();
    }
}
