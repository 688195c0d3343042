//! Errors of a connection string.

use std::io;
use std::path::PathBuf;

/// The faults of a connection string. No message shows a value of it, which may be a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DsnError {
    /// libpq has no such keyword.
    #[error("unknown connection keyword {keyword:?}")]
    UnknownKeyword {
        /// The word.
        keyword: String,
    },

    /// The text is after a password, or not a word: it may be a part of a secret.
    #[error("unknown keyword at character {place}; it is not shown, since it may be a secret")]
    UnknownWord {
        /// The start of the word, from 1.
        place: usize,
    },

    /// libpq can do that, and pgtoll cannot.
    #[error("connection keyword {keyword:?} is not supported")]
    Unsupported {
        /// The keyword.
        keyword: &'static str,
    },

    /// A value that the keyword does not have.
    #[error("invalid value for {keyword}: expected {expected}")]
    Value {
        /// The keyword.
        keyword: &'static str,
        /// The accepted values. The given one may be a piece of a password that `/` or `@` cut off.
        expected: String,
    },

    /// A word of a `key=value` string is followed by no `=`.
    #[error("\"=\" is missing after the word at character {place}")]
    MissingEquals {
        /// The start of the word, from 1.
        place: usize,
    },

    /// A quoted value does not end.
    #[error("quote at character {place} is not closed")]
    OpenQuote {
        /// The start of the value, from 1.
        place: usize,
    },

    /// A URI is not of the form that libpq documents.
    #[error("malformed connection URI: {finding}")]
    Uri {
        /// The faults.
        finding: &'static str,
    },

    /// As many hosts, addresses and ports are needed, or one port.
    #[error("the list of {of}s does not have {hosts} entries, one for each host")]
    Counts {
        /// The keyword of the list.
        of: &'static str,
        /// How many hosts there are.
        hosts: usize,
    },

    /// The system's roots without a look at the host's name prove nothing.
    #[error("sslrootcert=system needs sslmode=verify-full")]
    WeakMode,

    /// Nobody named a role, and the system has no name for this user.
    #[error("no user named, and the system has no name for this one")]
    NoUser,

    /// No file has the service.
    #[error("service {name:?} is not defined")]
    UnknownService {
        /// The service.
        name: String,
    },

    /// A file of services has a line that is no pair.
    #[error("{}: line {line} is not a connection keyword with its value", path.display())]
    ServiceFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },

    /// A file that somebody named cannot be read.
    #[error("could not read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl DsnError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::UnknownWord { .. } | Self::MissingEquals { .. } => {
                "a value with spaces needs quotes, like 'open sesame'"
            }
            Self::Uri { .. } => "write special characters of a URI as % and two digits: %40 for @",
            Self::NoUser => "name one: user=NAME, or PGUSER",
            Self::UnknownService { .. } => {
                "services are defined in ~/.pg_service.conf, or in the file that PGSERVICEFILE names"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
