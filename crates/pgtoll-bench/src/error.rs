//! What can end a run.

use std::io;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, ClusterError};
use pgtoll_format::ByteSize;

/// With less, a server cannot even write a WAL segment.
const LEAST_FREE: u64 = 16 << 20;

/// What can end a run. [`hint`](Self::hint) says what to try.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A server of ours failed, or a signal came.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The load could not be generated.
    #[error("load arm \"{arm}\"")]
    Load {
        /// Which arm.
        arm: String,
        /// The end of its server's log.
        log: String,
        /// What happened.
        source: Box<pgtoll_load::LoadError>,
    },
    /// A statement of ours failed.
    #[error("query arm \"{arm}\"")]
    Query {
        /// Which arm.
        arm: String,
        /// The end of its server's log.
        log: String,
        /// What happened.
        source: Box<pgtoll_wire::Error>,
    },
    /// A counter could not be read.
    #[error("{0}")]
    Observe(#[from] pgtoll_observe::ObserveError),
    /// An arm is not what the experiment says.
    #[error("arm \"{arm}\" has {name} = {found}, where the experiment says {expected}")]
    NotAsSaid {
        /// Which arm.
        arm: String,
        /// Which setting.
        name: String,
        /// What the server shows.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The disk is too small.
    #[error(
        "{} has {} free, and {} are needed",
        path.display(), ByteSize(*free_bytes).rounded(), ByteSize(*needed_bytes).rounded()
    )]
    DiskTooSmall {
        /// Where.
        path: PathBuf,
        /// What there is.
        free_bytes: u64,
        /// What the plan needs.
        needed_bytes: u64,
    },
    /// The arms' data do not fit into memory together.
    #[error(
        "{} of memory are available, and the arms together need {}",
        ByteSize(*available_bytes).rounded(), ByteSize(*needed_bytes).rounded()
    )]
    MemoryTooSmall {
        /// What there is.
        available_bytes: u64,
        /// What the plan needs.
        needed_bytes: u64,
    },
    /// Something failed, and the disk of the clusters is full.
    #[error("{} is full", path.display())]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// What failed.
        source: Box<BenchError>,
    },
    /// The record could not be written.
    #[error("write {}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of a cluster could not be read.
    #[error("read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl BenchError {
    pub(crate) fn load(cluster: &Cluster, source: pgtoll_load::LoadError) -> Self {
        let arm = cluster.name().to_owned();
        Self::Load { arm, log: cluster.last_words(), source: Box::new(source) }
    }

    pub(crate) fn query(cluster: &Cluster, source: pgtoll_wire::Error) -> Self {
        let arm = cluster.name().to_owned();
        Self::Query { arm, log: cluster.last_words(), source: Box::new(source) }
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::DiskFull { .. } => Some(
                "free some space, name another disk with --work-dir, or use a smaller --scale"
                    .into(),
            ),
            Self::DiskTooSmall { .. } => {
                Some("name another disk with --work-dir, or use a smaller --scale".into())
            }
            Self::MemoryTooSmall { .. } => Some(
                "use a smaller --scale: arms in turn compare only when all are in memory".into(),
            ),
            Self::Load { log, .. } | Self::Query { log, .. } => {
                Some(format!("the last word of that server's log: {log}"))
            }
            Self::Record { .. } => Some("name another directory with --output".into()),
            _ => None,
        }
    }

    /// A full disk fails in many words; few of them are about the disk.
    pub(crate) fn or_disk_full(self, work_base: &Path) -> Self {
        let free = pgtoll_observe::free_bytes(work_base);
        if self.is_interruption() || free.is_ok_and(|bytes| bytes > LEAST_FREE) {
            return self;
        }
        Self::DiskFull { path: work_base.to_owned(), source: Box::new(self) }
    }

    /// A signal ended the run.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Cluster(ClusterError::Interrupted(_)))
    }
}
