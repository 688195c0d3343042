//! Errors of logs, plans and targets.

use pgtoll_format::log::LogError;

/// An error of logs, plans or targets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A log cannot be read further.
    #[error("read {name}")]
    Log {
        /// The file.
        name: String,
        /// The place and the reason.
        source: LogError,
    },
    /// A file cannot be read.
    #[error("read {name}")]
    Read {
        /// The file.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is empty.
    #[error("{name} is empty")]
    Empty {
        /// The file.
        name: String,
    },
    /// An export has events of several servers.
    #[error("{name} has events of several servers: {servers}")]
    Servers {
        /// The file.
        name: String,
        /// Some of them.
        servers: String,
    },
    /// An export begins with its newest events, and is longer than what is put in order.
    #[error("{name} has its newest events first")]
    Descending {
        /// The file.
        name: String,
    },
    /// The logs have no statement that can be replayed.
    #[error("no statement to replay in {entries} log entries")]
    NoStatements {
        /// How many entries there are.
        entries: u64,
    },
    /// It is no plan, or it is damaged.
    #[error("line {line} of the plan: {reason}")]
    Plan {
        /// The line of the unpacked plan, from 1; 0 is the file's first line.
        line: u64,
        /// The faults.
        reason: String,
    },
    /// The plan cannot be written.
    #[error("write the plan")]
    Write(#[from] std::io::Error),
    /// A server cannot be talked to.
    #[error("{action}")]
    Server {
        /// The planned runs.
        action: String,
        /// The error of the server or the system.
        source: Box<pgtoll_wire::Error>,
    },
    /// A database that nobody has declared disposable.
    #[error("database \"{database}\" is not confirmed as disposable")]
    NotDisposable {
        /// The database.
        database: String,
        /// Its name quoted for SQL.
        quoted: String,
    },
    /// A table to compare has no such column.
    #[error("table {table} of database \"{database}\" has no column \"{column}\"")]
    NoColumn {
        /// The table.
        table: String,
        /// The column that was to be left out.
        column: String,
        /// The database.
        database: String,
    },
    /// The work goes to several databases, or to none.
    #[error("tables of {databases} databases cannot be compared with those of one")]
    SeveralDatabases {
        /// How many there are.
        databases: usize,
    },
    /// The target is a standby.
    #[error("the target is in recovery, so it takes no writes")]
    Standby,
    /// The server has not this many connections.
    #[error(
        "the work has {sessions} sessions at a time, and the server has {free} free connections"
    )]
    TooManySessions {
        /// The most sessions that are open at a time.
        sessions: u64,
        /// Connections that are free.
        free: u64,
        /// `max_connections`.
        most: u64,
    },
    /// The system starts no thread.
    #[error("start a thread for session {session}")]
    Thread {
        /// The session's number, from 1.
        session: u64,
        /// The system's error.
        source: std::io::Error,
    },
}

impl ReplayError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Log { source, .. } => return source.hint(),
            Self::Server { source, .. } => {
                if source.sqlstate() == Some("3D000") {
                    return Some(
                        "send a database's work to another one with --map NAME=OTHER".to_owned(),
                    );
                }
                if source.sqlstate() == Some("28000") {
                    return Some(
                        "let all sessions connect as one role with --user NAME".to_owned(),
                    );
                }
                return source.hint();
            }
            Self::Empty { .. } => "name the log files of the time that is to be replayed",
            Self::Descending { .. } => {
                "export it again, the oldest first (gcloud logging read --order=asc)"
            }
            Self::Servers { .. } => "name one: --server NAME",
            Self::NoStatements { .. } => {
                "set log_statement = 'all' (or log_min_duration_statement = 0) and log again"
            }
            Self::Plan { .. } => "make the plan again: pgtoll replay plan LOG… --plan FILE",
            Self::NotDisposable { quoted, .. } => {
                return Some(format!(
                    "a replay changes its data. If it is a copy that may be lost, say so in it: \
                     ALTER DATABASE {quoted} SET pgtoll.disposable = on"
                ));
            }
            Self::NoColumn { .. } => {
                "name columns that are left out as in the catalog: TABLE(-COLUMN)"
            }
            Self::SeveralDatabases { .. } => {
                "replay without --compare-tables, and compare the databases one by one"
            }
            Self::TooManySessions { sessions, free, most } => {
                return Some(format!(
                    "raise max_connections of the target to {} and restart it",
                    most + sessions.saturating_sub(*free)
                ));
            }
            Self::Standby => "promote a copy, or restore one",
            Self::Thread { .. } => "raise the limit of processes (ulimit -u)",
            Self::Read { .. } | Self::Write(_) => return None,
        };
        Some(hint.to_owned())
    }
}
