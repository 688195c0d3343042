//! Why a bridge could not be built or shown.

use std::path::PathBuf;

use pgtoll_cluster::ClusterError;
use pgtoll_workload::{LoadError, ScriptError};

/// Why a bridge could not be built, or a step of it not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// Servers and Redis.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A connection.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// A statement that should have been done.
    #[error("a statement of session {session} failed")]
    Statement {
        /// The session.
        session: &'static str,
        /// The server's error.
        source: pgtoll_wire::Error,
    },
    /// The load that the observatory looks at.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The load's script, a mistake of pgtoll's.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// `redis-cli` is too old.
    #[error(
        "redis-cli of {version} has no option -e, without which an error of Redis is data to a query"
    )]
    OldRedis {
        /// The server's version, as it reports it.
        version: String,
    },
    /// The server comes without an extension that is needed.
    #[error("the server in {} has no extension {extension}", bin.display())]
    NoExtension {
        /// The extension.
        extension: &'static str,
        /// The place of the server's programs.
        bin: PathBuf,
    },
    /// Redis did not come up.
    #[error("Redis ended at its start ({status}): {output}")]
    RedisEnded {
        /// How it ended.
        status: String,
        /// The last line that it printed.
        output: String,
    },
    /// The awaited state was not reached.
    #[error("{what} not reached within {seconds} s")]
    NotReached {
        /// The awaited state.
        what: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// A plan without what every plan has.
    #[error("read the plan of the join: {0}")]
    Plan(String),
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] pgtoll_system::Interrupted),
}

impl BridgeError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Cluster(error) => return error.hint(),
            Self::Wire(error) => return error.hint(),
            Self::OldRedis { .. } => "install Redis 7 or later",
            Self::NoExtension { .. } => {
                "install the server's contrib package (Debian has it with the server; Red Hat: \
                 postgresql-contrib), or name another server with --postgres"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
