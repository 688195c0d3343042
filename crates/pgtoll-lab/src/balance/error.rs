//! Why a balanced set could not be built, or a part of it not be done.

use pgtoll_cluster::ClusterError;
use pgtoll_workload::{LoadError, ScriptError};

/// Why a balanced set could not be built, or a part of it not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BalanceError {
    /// Servers and balancer.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The load's script, a mistake of pgtoll's.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The balancer did not come up.
    #[error("Pgpool-II ended at its start ({status}): {output}")]
    BalancerEnded {
        /// How it ended.
        status: String,
        /// The last line that it printed.
        output: String,
    },
    /// The awaited state was not reached.
    #[error("{what} not reached within {seconds} s: {state}")]
    NotReached {
        /// The awaited state.
        what: &'static str,
        /// For how long.
        seconds: u64,
        /// How it is instead.
        state: String,
    },
    /// A thread ended otherwise than by its end.
    #[error("a client's thread failed")]
    Thread,
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] pgtoll_system::Interrupted),
}

impl BalanceError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cluster(error) => error.hint(),
            Self::Wire(error) => error.hint(),
            _ => None,
        }
    }
}
