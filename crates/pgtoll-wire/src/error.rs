//! Errors of a connection.

use std::borrow::Cow;
use std::error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

/// An error of a connection.
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
    #[error("could not connect to {address}")]
    Connect {
        /// The socket file, or address and port.
        address: String,
        /// The system's error.
        source: io::Error,
    },

    /// The system does not know the host.
    #[error("could not find host {host:?}")]
    Resolve {
        /// The host's name.
        host: String,
        /// The system's error.
        source: Box<io::Error>,
    },

    /// None of several hosts gave the connection that was asked for.
    #[error("none of the hosts can be used: {}", describe_attempts(attempts))]
    Hosts {
        /// Each host with what went wrong there, in the order of the attempts.
        attempts: Vec<(String, Box<Self>)>,
    },

    /// The session is not of the kind that `target_session_attrs` asks for.
    #[error("server is not {wanted}, as target_session_attrs asks for")]
    SessionKind {
        /// The setting's value.
        wanted: &'static str,
    },

    /// The server does not encrypt, or cannot, and `sslmode` insists.
    #[error("server does not support TLS, which sslmode asks for")]
    NoTls,

    /// No agreement on keys, or the server's certificate is refused.
    #[error("TLS with {host} failed")]
    Tls {
        /// The host as it was named.
        host: String,
        /// The fault.
        source: Box<dyn error::Error + Send + Sync>,
    },

    /// A file of certificates or a key cannot be used.
    #[error("could not use {}: {finding}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The faults.
        finding: String,
    },

    /// A certificate must be verified, and there is nothing to verify it by.
    #[error("no root certificates to verify the server's certificate by")]
    NoRoots,

    /// `channel_binding=require`, and the server asks for another proof.
    #[error("server does not offer channel binding, which the connection string requires")]
    ChannelBinding,

    /// The file of passwords cannot be used.
    #[error("server asks for a password, and {} is ignored: others than its owner may access it", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
    },

    /// A setting is not of the form that the server's documentation promises.
    #[error("server says {name} = {value:?}, which is not understood")]
    Setting {
        /// The setting.
        name: String,
        /// The server's error.
        value: String,
    },

    /// The server has removed the WAL that it should send.
    #[error("server no longer has the WAL at {:X}/{:X} of timeline {timeline}", position >> 32, position & 0xFFFF_FFFF)]
    WalRemoved {
        /// The requested start of WAL.
        position: u64,
        /// The timeline.
        timeline: u32,
        /// The server's own words.
        source: Box<ErrorResponse>,
    },

    /// Connecting took longer than [`Config::connect_timeout`](crate::Config::connect_timeout).
    #[error("server did not answer within the connection time-out")]
    ConnectTimeout,

    /// The connection was established, then the system refused to continue.
    #[error("could not {action}")]
    Io {
        /// The attempted action: verb and object.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },

    /// The server closed the connection, and gave no reason.
    #[error("server closed the connection unexpectedly")]
    Closed {
        /// The system's error, unless the stream just ended.
        source: Option<io::Error>,
    },

    /// The server reported an error.
    #[error(transparent)]
    Server(Box<ErrorResponse>),

    /// The server sent what the protocol does not allow.
    #[error("server broke the protocol: {finding}")]
    Protocol {
        /// The fault.
        finding: Cow<'static, str>,
        /// The decoder's error.
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
        /// The part that could not be sent.
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

    /// The server sent more than any server needs to, and all of it would have to be kept or read.
    #[error("server sent more than {limit}")]
    TooMuch {
        /// How much of what is allowed.
        limit: &'static str,
    },

    /// An [`Interruption`](crate::Interruption) ended the wait.
    #[error("interrupted while waiting for the server")]
    Interrupted,

    /// The socket is another user's than the one whose server is meant.
    #[error("user {actual} listens at {}, and not user {expected}", path.display())]
    Peer {
        /// The socket file.
        path: PathBuf,
        /// The system's number of the user whose process listens.
        actual: u32,
        /// The number of the user whose server is meant.
        expected: u32,
    },

    /// The connection failed before, and where the conversation stands is unknown.
    #[error("connection was given up after an earlier error")]
    GivenUp,
}

impl Error {
    /// The SQLSTATE, if it is the server that reported this error.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server(error) | Self::WalRemoved { source: error, .. } => Some(&error.sqlstate),
            _ => None,
        }
    }

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::PasswordRequired => "set PGPASSWORD, or add the server to the password file",
            Self::PasswordFile { .. } => "make the file accessible to its owner only (chmod 600)",
            Self::NoTls => "turn TLS on at the server, or choose another sslmode",
            Self::NoRoots => {
                "name a file of root certificates with sslrootcert, or use sslrootcert=system"
            }
            Self::Tls { .. } => "look at sslmode, sslrootcert and the server's certificate",
            Self::WalRemoved { .. } => "read the missing WAL from the archive",
            Self::Connect { .. } => "look at host and port, and whether the server runs",
            Self::TooMuch { .. } => "is this a PostgreSQL server? Look at host and port",
            Self::Server(error) => error.own_hint()?,
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(crate) fn protocol(finding: impl Into<Cow<'static, str>>) -> Self {
        Self::Protocol { finding: finding.into(), source: None }
    }

    pub(crate) fn undecodable(finding: &'static str, source: io::Error) -> Self {
        Self::Protocol { finding: finding.into(), source: Some(source) }
    }

    pub(crate) fn unsendable(
        label: &'static str,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Self::Encode { what: label, source: source.into() }
    }
}

/// Each host's own reason, in one line.
fn describe_attempts(attempts: &[(String, Box<Error>)]) -> String {
    let reasons = attempts.iter().map(|(host, error)| format!("{host}: {}", chain(error)));
    reasons.collect::<Vec<_>>().join("; ")
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// An error that the server reported, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorResponse {
    /// `ERROR`, `FATAL` or `PANIC`, whatever the server's language.
    pub severity: String,
    /// The five characters that name the condition.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// More about the problem.
    pub detail: Option<String>,
    /// Returns advice, if there is any.
    pub hint: Option<String>,
    /// The function of the server's source that reported it, which is never translated.
    pub routine: Option<String>,
    /// The statement that failed. Not displayed, because statements can hold secrets.
    pub statement: Option<String>,
    /// The position in the statement, in characters from 1.
    pub position: Option<u32>,
}

impl ErrorResponse {
    /// Reads the fields of an error message. A server that has not yet agreed on an encoding may
    /// send anything, so bytes that are not UTF-8 are replaced.
    pub(crate) fn decode(mut fields: ErrorFields<'_>) -> Result<Box<Self>, Error> {
        let mut error = Box::new(Self {
            severity: String::new(),
            sqlstate: String::new(),
            message: String::new(),
            detail: None,
            hint: None,
            routine: None,
            statement: None,
            position: None,
        });
        let mut severity_translated = String::new();
        while let Some(field) =
            fields.next().map_err(|source| Error::undecodable("malformed error message", source))?
        {
            let text = shortened(field.value_bytes());
            match field.type_() {
                b'S' => severity_translated = text,
                b'V' => error.severity = text,
                b'C' => error.sqlstate = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                b'R' => error.routine = Some(text),
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

impl ErrorResponse {
    /// Returns advice about a refused connection.
    fn own_hint(&self) -> Option<&'static str> {
        Some(match self.sqlstate.as_str() {
            "28P01" => "look at the user and the password: PGPASSWORD, or the file ~/.pgpass",
            "28000" => "look at the user, and at the rules of the server's pg_hba.conf",
            "3D000" => "name a database that exists: dbname=NAME",
            "53300" => "wait until the server has a free connection",
            "57P03" => "wait until the server is up",
            _ => return None,
        })
    }
}

/// A field's text, which no server that means well makes so long.
fn shortened(field: &[u8]) -> String {
    match field.get(..FIELD_BYTES_MAX) {
        Some(begin) => String::from_utf8_lossy(begin).into_owned() + "…",
        None => String::from_utf8_lossy(field).into_owned(),
    }
}

const FIELD_BYTES_MAX: usize = 16 * 1024;

impl fmt::Display for ErrorResponse {
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

impl error::Error for ErrorResponse {}

/// Whether the other side has ended the connection.
pub(crate) fn hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
}
