//! Errors of reading a log.

/// A place of a log that cannot be read. The reader continues after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Text that is no entry.
    #[error("line {line}: {reason}")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// The faults.
        reason: &'static str,
    },
    /// The file ends within an entry, as after a crash or while the server writes it.
    #[error("line {line}: the log ends within an entry")]
    Truncated {
        /// The line where the entry begins.
        line: u64,
    },
    /// Messages are in another language than English.
    #[error("line {line}: the log's language is not English: \"{word}\"")]
    Language {
        /// The line, from 1.
        line: u64,
        /// The word that shows it.
        word: String,
    },
    /// No format fits the begin of the text.
    #[error("line {line}: not a server log that pgtoll can read")]
    Unknown {
        /// The first line that fits nothing.
        line: u64,
    },
    /// The prefix has neither `%p` nor `%c`.
    #[error("log_line_prefix has neither %p nor %c, so sessions cannot be distinguished")]
    Sessions,
    /// Bytes that no log has.
    #[error("line {line}: binary data")]
    Binary {
        /// The line, from 1.
        line: u64,
    },
}

impl LogError {
    /// The line that it is about.
    pub fn line(&self) -> u64 {
        match self {
            Self::Damaged { line, .. }
            | Self::Truncated { line }
            | Self::Language { line, .. }
            | Self::Unknown { line }
            | Self::Binary { line } => *line,
            Self::Sessions => 1,
        }
    }

    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Damaged { .. } => {
                "is the file complete, and of one format? A collector that was killed leaves such a line"
            }
            Self::Truncated { .. } => return None,
            Self::Language { .. } => {
                "set lc_messages = 'C' and log again: other languages are not read"
            }
            Self::Unknown { .. } => {
                "of stderr or syslog, name the server's log_line_prefix: --prefix '%m [%p] '; of JSON, the \
                 text's key: --field PATH"
            }
            Self::Sessions => "set log_line_prefix = '%m [%p] ' or a longer one, and log again",
            Self::Binary { .. } => "name log files; compressed ones end in .gz, .zst, .lz4 or .xz",
        };
        Some(hint.to_owned())
    }
}
