//! Why nothing can be judged.

use std::io;
use std::path::PathBuf;

use pgtoll_wire::Error;

/// A file of the judge's could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct FileError {
    /// The attempted action, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Nothing can be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The server, or the way to it.
    #[error(transparent)]
    Wire(#[from] Error),
    /// Nothing can be written there.
    #[error("the server is a standby: nothing can be written to it")]
    Standby,
    /// Nothing can be written there.
    #[error("sessions are read-only (default_transaction_read_only = on)")]
    ReadOnly,
    /// The schema could not be made.
    #[error("make the schema {name}")]
    Schema {
        /// Its name.
        name: String,
        /// The server's error.
        source: Box<Error>,
    },
    /// A journal or the directory for journals.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system starts no thread for a client.
    #[error("start a thread for client {client}")]
    Thread {
        /// Its number.
        client: u32,
        /// The system's error.
        source: io::Error,
    },
    /// Sockets that end waiting could not be made.
    #[error("make a pair of sockets")]
    Sockets(#[source] io::Error),
    /// The directory holds no run's journals.
    #[error("{} holds no journals of lab judge: {reason}", directory.display())]
    NoJournals {
        /// The directory.
        directory: PathBuf,
        /// The faults.
        reason: String,
    },
    /// The journals are of another database than the one that was named.
    #[error("schema {name} of these journals is not there")]
    NoSchema {
        /// Its name.
        name: String,
    },
}

impl JudgeError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Wire(error) => return error.hint(),
            Self::Standby => {
                "name the primary, or several hosts with target_session_attrs=primary; \
                              readers may use standbys (--read-dsn)"
                    .to_owned()
            }
            Self::ReadOnly => {
                "add options='-c default_transaction_read_only=off', or name another \
                               role"
                    .to_owned()
            }
            Self::Schema { source, .. } if source.sqlstate() == Some("42501") => {
                "GRANT CREATE ON DATABASE … TO the role, or name another database".to_owned()
            }
            Self::Schema { source, .. } => return source.hint(),
            Self::File(FileError { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                "name a directory that does not exist yet".to_owned()
            }
            Self::File(_) => "name another directory with --journal".to_owned(),
            Self::NoJournals { .. } => "name a directory of --journal".to_owned(),
            Self::NoSchema { .. } => {
                "name the server and the database that the run wrote to".to_owned()
            }
            Self::Thread { .. } => "use fewer --clients".to_owned(),
            Self::Sockets(_) => return None,
        })
    }
}
