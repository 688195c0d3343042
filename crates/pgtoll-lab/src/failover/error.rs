//! Why failovers could not be run.

use pgtoll_cluster::ClusterError;

use crate::JudgeError;

/// Why a failover could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailoverError {
    /// Servers and engines.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The judge.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// The way to the servers, a mistake of pgtoll's.
    #[error(transparent)]
    Dsn(#[from] pgtoll_wire::DsnError),
    /// The link between both servers.
    #[error("make a link between servers")]
    Link(#[source] std::io::Error),
    /// The awaited state was not reached.
    #[error("{what} within {seconds} s: {state}")]
    NotReached {
        /// The awaited state.
        what: &'static str,
        /// For how long.
        seconds: u64,
        /// How it stood in the end.
        state: String,
    },
    /// More WAL than the volume takes was written to it.
    #[error("the volume of the primary's WAL did not fill up")]
    VolumeNotFull,
    /// A fault of a disk, and no disk: a mistake of pgtoll's.
    #[error("the primary has no disk of its own")]
    NoVolume,
    /// A handover by plan, and no engine: a mistake of pgtoll's.
    #[error("no failover manager to switch over")]
    NoHandover,
    /// A receiver that was to hang, and none: a mistake of pgtoll's.
    #[error("no receiver of WAL was started beside the standby")]
    NoReceiver,
    /// An engine without its programs: a mistake of pgtoll's.
    #[error("the programs of {engine} were not looked for")]
    NoPrograms {
        /// Its name.
        engine: &'static str,
    },
    /// A record that was to be continued is of something else.
    #[error("the record to be continued has another {what}")]
    AnotherRecord {
        /// The part that differs: `machine`, `server`, `design`.
        what: &'static str,
    },
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] pgtoll_system::Interrupted),
}

impl FailoverError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::Judge(error) => error.hint(),
            Self::Wire(error) => error.hint(),
            Self::Dsn(error) => error.hint(),
            _ => None,
        }
    }
}
