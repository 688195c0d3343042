//! One entry of a log, whatever the format.

use std::borrow::Cow;

use crate::log::LogMessage;
use crate::log::message;

/// One report of the server: a message with its detail, context and statement.
///
/// Texts are bytes: a database's encoding need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// The number of its first line in the file, from 1.
    pub line: u64,
    /// Microseconds since 1970 by the log's own clock; `log_timezone` is not applied.
    pub time_us: Option<i64>,
    /// The session that wrote it.
    pub session: Option<LogSessionId>,
    /// The session's role; `[unknown]` before authentication.
    pub user: Option<Cow<'a, [u8]>>,
    /// The session's database.
    pub database: Option<Cow<'a, [u8]>>,
    /// `application_name`.
    pub application: Option<Cow<'a, [u8]>>,
    /// The command tag, or the state of an idle session.
    pub command_tag: Option<Cow<'a, [u8]>>,
    /// The virtual transaction.
    pub vxid: Option<VirtualXid>,
    /// The transaction id; 0 before the first write.
    pub xid: Option<u64>,
    /// How severe it is.
    pub severity: LogSeverity,
    /// The error code.
    pub sqlstate: Option<SqlState>,
    /// The message itself.
    pub message: Cow<'a, [u8]>,
    /// `DETAIL`.
    pub detail: Option<Cow<'a, [u8]>>,
    /// `CONTEXT`.
    pub context: Option<Cow<'a, [u8]>>,
    /// `STATEMENT`: what the client had sent.
    pub statement: Option<Cow<'a, [u8]>>,
}

impl LogEntry<'_> {
    /// Returns the event that the message reports.
    pub fn kind(&self) -> LogMessage<'_> {
        message::parse(&self.message)
    }

    /// Whether it reports the failure of a statement or session.
    pub fn is_error(&self) -> bool {
        self.severity >= LogSeverity::Error
    }
}

/// How severe an entry is, in PostgreSQL's order for log files, `LOG` among the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSeverity {
    /// `DEBUG1` to `DEBUG5`.
    Debug,
    /// `LOG`.
    #[default]
    Log,
    /// `INFO`.
    Info,
    /// `NOTICE`.
    Notice,
    /// `WARNING`.
    Warning,
    /// `ERROR`: the statement failed.
    Error,
    /// `FATAL`: the session ended.
    Fatal,
    /// `PANIC`: all sessions ended.
    Panic,
}

impl LogSeverity {
    /// The severity of this English label.
    pub(crate) fn of_label(label: &[u8]) -> Option<Self> {
        Some(match label {
            b"LOG" => Self::Log,
            b"ERROR" => Self::Error,
            b"FATAL" => Self::Fatal,
            b"WARNING" => Self::Warning,
            b"NOTICE" => Self::Notice,
            b"INFO" => Self::Info,
            b"PANIC" => Self::Panic,
            b"DEBUG" | b"DEBUG1" | b"DEBUG2" | b"DEBUG3" | b"DEBUG4" | b"DEBUG5" => Self::Debug,
            _ => return None,
        })
    }
}

/// A session's identity: start time and pid, as in `%c`; the start is 0 where only the pid is
/// logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogSessionId {
    /// Seconds since 1970.
    pub start_s: u64,
    /// The process.
    pub pid: u32,
}

impl LogSessionId {
    /// The id in `%c`'s form: two hexadecimal numbers.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (start, pid) = text.split_once('.')?;
        let start_s = u64::from_str_radix(start, 16).ok()?;
        Some(Self { start_s, pid: u32::from_str_radix(pid, 16).ok()? })
    }
}

/// A virtual transaction id: `backend/localXID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VirtualXid {
    /// The backend's number, from 0 since PostgreSQL 17.
    pub backend: u32,
    /// The backend's transaction; 0 outside of one.
    pub local: u32,
}

impl VirtualXid {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (backend, local) = str::from_utf8(text).ok()?.split_once('/')?;
        Some(Self { backend: backend.parse().ok()?, local: local.parse().ok()? })
    }
}

/// A five-character error code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// No error.
    pub const SUCCESS: Self = Self(*b"00000");

    /// The code with this text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let code: [u8; 5] = text.try_into().ok()?;
        let is_code = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        code.iter().all(is_code).then_some(Self(code))
    }

    /// The code's text.
    pub fn text(&self) -> &str {
        // Made of ASCII.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Debug for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// The fields of a log's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct LogFields {
    /// A time at all.
    pub time: bool,
    /// The time has milliseconds.
    pub milliseconds: bool,
    /// Sessions are distinguished, by `%c`, or by `%p`.
    pub session: bool,
    /// Role and database of each entry.
    pub user_and_database: bool,
    /// Virtual transaction ids.
    pub vxid: bool,
    /// Transaction ids.
    pub xid: bool,
    /// Error codes.
    pub sqlstate: bool,
    /// Command tags, and states of idle sessions.
    pub command_tag: bool,
}

impl LogFields {
    /// The fields of csvlog and jsonlog.
    pub(crate) const ALL: Self = Self {
        time: true,
        milliseconds: true,
        session: true,
        user_and_database: true,
        vxid: true,
        xid: true,
        sqlstate: true,
        command_tag: true,
    };
}
