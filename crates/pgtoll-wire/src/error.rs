//! What can go wrong on a connection.

use std::borrow::Cow;
use std::error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

/// What can go wrong on a connection.
///
/// After [`Error::Server`] below severity `FATAL`, and after the errors that blame the caller, the
/// connection is usable. After the others it is not, and every later call is
/// [`Error::GivenUp`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path of the socket does not fit into a socket address.
    #[error("socket path is longer than {limit} bytes: {}", path.display())]
    SocketPath {
        /// The socket file.
        path: PathBuf,
        /// How many bytes fit.
        limit: usize,
    },

    /// Nobody could be reached at the endpoint.
    #[error("could not connect to {}", path.display())]
    Connect {
        /// The socket file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// Connecting took longer than [`Config::connect_timeout`](crate::Config::connect_timeout).
    #[error("server did not answer within the connection time-out")]
    ConnectTimeout,

    /// The connection was established, then the system refused to go on.
    #[error("could not {action}")]
    Io {
        /// What was tried: verb and object.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },

    /// The server closed the connection, and gave no reason.
    #[error("server closed the connection unexpectedly")]
    Closed {
        /// What the system said, if it was more than the end of the stream.
        source: Option<io::Error>,
    },

    /// The server reported an error.
    #[error(transparent)]
    Server(Box<ServerError>),

    /// The server sent what the protocol does not allow.
    #[error("server broke the protocol: {finding}")]
    Protocol {
        /// What was wrong.
        finding: Cow<'static, str>,
        /// What the decoder said.
        source: Option<io::Error>,
    },

    /// The server asks for a password, and the configuration has none.
    #[error("server asks for password authentication, but no password is configured")]
    PasswordRequired,

    /// The server asks for a proof of identity that this client cannot give.
    #[error("server asks for {method} authentication, which is not supported")]
    AuthenticationMethod {
        /// The method, in the words of `pg_hba.conf`.
        method: Cow<'static, str>,
    },

    /// A string or a parameter cannot be sent.
    #[error("could not encode {what}")]
    Encode {
        /// What could not be sent.
        what: &'static str,
        /// The reason.
        source: Box<dyn error::Error + Send + Sync>,
    },

    /// A prepared statement was given too many parameters, or too few.
    #[error("statement takes {expected} parameters, but {actual} were given")]
    ParameterCount {
        /// How many the statement takes.
        expected: usize,
        /// How many were given.
        actual: usize,
    },

    /// A query that must return one row returned another number of them.
    #[error("query returned {actual} rows instead of one")]
    RowCount {
        /// How many rows there were.
        actual: usize,
    },

    /// A row has no column of this name.
    #[error("row has no column {column:?}")]
    NoColumn {
        /// The name asked for.
        column: String,
    },

    /// A value that must not be null is null.
    #[error("column {column:?} is null")]
    Null {
        /// The column.
        column: String,
    },

    /// A value is not of the type asked for.
    #[error("column {column:?} is not of type {wanted}: {value:?}")]
    Value {
        /// The column.
        column: String,
        /// The value's text.
        value: String,
        /// The Rust type asked for.
        wanted: &'static str,
        /// Why the text is not a value of this type.
        source: Box<dyn error::Error + Send + Sync>,
    },

    /// The connection failed before, and where the conversation stands is unknown.
    #[error("connection was given up after an earlier error")]
    GivenUp,
}

impl Error {
    /// The SQLSTATE, if it is the server that reported this error.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server(error) => Some(&error.sqlstate),
            _ => None,
        }
    }

    pub(crate) fn protocol(finding: impl Into<Cow<'static, str>>) -> Self {
        Self::Protocol { finding: finding.into(), source: None }
    }

    pub(crate) fn undecodable(finding: &'static str, source: io::Error) -> Self {
        Self::Protocol { finding: finding.into(), source: Some(source) }
    }

    pub(crate) fn unsendable(
        what: &'static str,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Encode { what, source: source.into() }
    }
}

/// An error that the server reported, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerError {
    /// `ERROR`, `FATAL` or `PANIC`, whatever the server's language.
    pub severity: String,
    /// The five characters that name the condition.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// More about the problem.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The statement that failed. Not displayed, because statements can hold secrets.
    pub statement: Option<String>,
    /// Where in the statement, in characters from 1.
    pub position: Option<u32>,
}

impl ServerError {
    /// Reads the fields of an error message. A server that has not yet agreed on an encoding may
    /// send anything, so bytes that are not UTF-8 are replaced.
    pub(crate) fn decode(mut fields: ErrorFields<'_>) -> Result<Box<Self>, Error> {
        let mut error = Box::new(Self {
            severity: String::new(),
            sqlstate: String::new(),
            message: String::new(),
            detail: None,
            hint: None,
            statement: None,
            position: None,
        });
        let mut severity_translated = String::new();
        while let Some(field) =
            fields.next().map_err(|source| Error::undecodable("malformed error message", source))?
        {
            let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'S' => severity_translated = text,
                b'V' => error.severity = text,
                b'C' => error.sqlstate = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                b'P' => error.position = text.parse().ok(),
                _ => {}
            }
        }
        if error.severity.is_empty() {
            error.severity = severity_translated;
        }
        Ok(error)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} (SQLSTATE {})", self.severity, self.message, self.sqlstate)?;
        if let Some(detail) = &self.detail {
            write!(formatter, "; detail: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(formatter, "; hint: {hint}")?;
        }
        Ok(())
    }
}

impl error::Error for ServerError {}
