//! Why a data directory of somebody else is not taken as a cluster of our own.

use std::path::PathBuf;

/// Why a data directory is not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotImported {
    /// It has no `PG_VERSION`.
    #[error("it has no PG_VERSION")]
    NoDataDirectory,
    /// It is of another major version than the server.
    #[error("it is of PostgreSQL {found}, and the server of PostgreSQL {server}")]
    OtherMajor {
        /// The content of its `PG_VERSION`.
        found: String,
        /// The server's major version.
        server: u32,
    },
    /// A server runs on it.
    #[error("a server runs on it (pid {0})")]
    Running(i32),
    /// It is a standby's, or waits for a recovery.
    #[error("it has {0}")]
    Recovery(&'static str),
    /// A copy of it would share files with it.
    #[error("{} leads out of it", .0.display())]
    Link(PathBuf),
    /// Its configuration has a line that no server reads.
    #[error("{file}: {error}")]
    Configuration {
        /// The file.
        file: &'static str,
        /// The line, and what is wrong.
        error: String,
    },
}

impl NotImported {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::NoDataDirectory => "name the directory that has PG_VERSION, base and global",
            Self::OtherMajor { .. } => "name a server of its version with --postgres",
            Self::Running(_) => "stop the server, or name a copy: a base backup, or a snapshot",
            Self::Recovery(_) => "promote a copy of it, stop that, and name the copy",
            Self::Link(_) => {
                "make a copy without links: pg_basebackup with --tablespace-mapping, or cp -L"
            }
            Self::Configuration { .. } => "correct the line in a copy",
        }
    }
}
