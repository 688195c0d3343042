//! Why a server cannot be watched.

use pgtoll_format::{UnsupportedMajor, VersionParseError};
use pgtoll_wal::ServerError;

/// A server cannot be watched, or not be asked this.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The server, or the way to it.
    #[error(transparent)]
    Wire(#[from] pgtoll_wire::Error),
    /// It names no version.
    #[error("read the server's version")]
    Version(#[from] VersionParseError),
    /// A version that pgtoll does not know.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedMajor),
    /// The role may not see what other sessions do.
    #[error("role {role:?} may not read other sessions' statistics")]
    NoMonitor {
        /// The role, as SQL quotes it.
        quoted: String,
        /// The role.
        role: String,
    },
    /// The role may not call a function that each look calls.
    #[error("role {role:?} may not call {function}()")]
    NoFunction {
        /// The function.
        function: &'static str,
        /// The role, as SQL quotes it.
        quoted: String,
        /// The role.
        role: String,
    },
    /// A provider's storage service keeps pages and WAL.
    #[error(
        "{provider} keeps pages and WAL in storage of its own: its checksums, full-page images and \
         checkpoints are not PostgreSQL's, and no view shows them"
    )]
    OwnStorage {
        /// The provider.
        provider: &'static str,
    },
    /// It writes no WAL of its own.
    #[error("the server is a standby: it writes no WAL of its own and logs no hints")]
    Standby,
    /// Sessions are handed on: settings and counters may be of several server processes.
    #[error(
        "a connection pooler is in front of the server: it named process {named}, and process \
         {found} answers"
    )]
    Pooler {
        /// The process that the connection was promised.
        named: i32,
        /// The process that answers.
        found: i32,
    },
    /// The role may not stream WAL.
    #[error("role {role:?} may not stream WAL")]
    NoReplication {
        /// The role.
        role: String,
        /// The remedy.
        remedy: String,
    },
    /// The server refuses to stream WAL.
    #[error("{error}")]
    Refused {
        /// Its error.
        error: ServerError,
        /// The remedy.
        remedy: String,
    },
    /// The server's WAL.
    #[error(transparent)]
    Wal(ServerError),
    /// No thread could be started to read WAL.
    #[error("start a thread that reads WAL")]
    Thread(#[source] std::io::Error),
    /// The question names no setting that can be predicted.
    #[error("--setting does not accept \"{setting}\"")]
    Question {
        /// As it was given.
        setting: String,
    },
}

impl PredictError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Wire(error) => return error.hint(),
            Self::NoMonitor { quoted, .. } => format!("GRANT pg_monitor TO {quoted};"),
            Self::NoFunction { function, quoted, .. } => {
                format!("GRANT EXECUTE ON FUNCTION {function}() TO {quoted};")
            }
            Self::OwnStorage { .. } => {
                "use pgtoll lab judge or pgtoll replay: they judge commits and latency \
                                        over a connection, whatever the storage"
                    .to_owned()
            }
            Self::NoReplication { remedy, .. } | Self::Refused { remedy, .. } => remedy.clone(),
            Self::Wal(error) => return error.hint(),
            Self::Thread(_) => {
                "watch without --wal stream, or raise the limit of processes".to_owned()
            }
            Self::Standby => "name the primary in --dsn".to_owned(),
            Self::Pooler { .. } => "connect to the server's own host and port".to_owned(),
            Self::Question { .. } => "like data_checksums=on, wal_log_hints=on, \
                                      wal_compression=lz4, max_wal_size=20GB or \
                                      checkpoint_timeout=30min"
                .to_owned(),
            Self::Version(_) | Self::Unsupported(_) => return None,
        })
    }
}
