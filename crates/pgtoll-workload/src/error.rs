//! Errors under load.

use crate::EvaluationError;

/// The load could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A statement failed.
    #[error("run \"{statement}\" ({script}, line {line})")]
    Server {
        /// The script.
        script: String,
        /// The line where the statement begins.
        line: usize,
        /// The statement.
        statement: String,
        /// The server's error.
        source: Box<pgtoll_wire::Error>,
    },
    /// The data are not what a built-in script works on.
    #[error("{rows} rows of \"{statement}\": these are not pgbench's tables of this scale")]
    WrongRows {
        /// The statement.
        statement: String,
        /// How many rows it returned or changed, where it should be one.
        rows: u64,
    },
    /// `\gset` needs one row.
    #[error("{script}, line {line}: expected one row, got {rows}")]
    Captured {
        /// The script.
        script: String,
        /// The line where the statement begins.
        line: usize,
        /// How many rows there were.
        rows: usize,
    },
    /// A column cannot become a variable.
    #[error("{script}, line {line}: column \"{column}\" makes no name for a variable")]
    Column {
        /// The script.
        script: String,
        /// The line where the statement begins.
        line: usize,
        /// The column with the prefix.
        column: String,
    },
    /// An expression has no value.
    #[error("run {script}, line {line}")]
    Evaluation {
        /// The script.
        script: String,
        /// The command's line.
        line: usize,
        /// Why not.
        source: Box<EvaluationError>,
    },
    /// A script ended within a transaction.
    #[error("{script} ends without completing its transaction")]
    OpenTransaction {
        /// The script.
        script: String,
    },
    /// The system starts no thread for a client.
    #[error("start a thread for client {client} of {clients}")]
    Thread {
        /// The client's number, from 1.
        client: usize,
        /// How many clients there are.
        clients: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// No rate of transactions.
    #[error("cannot start {0} transactions a second")]
    Rate(f64),
}
