//! The event that a message reports.

/// The event that an entry's message reports, as far as a workload is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMessage<'a> {
    /// `log_statement`: a simple query begins.
    Statement {
        /// The whole query, which may be several statements.
        sql: &'a [u8],
    },
    /// `log_statement`: an Execute message begins.
    Execute {
        /// The prepared statement's name; `<unnamed>` without one.
        name: &'a [u8],
        /// The statement.
        sql: &'a [u8],
        /// Whether it fetches more rows of a portal that was executed before.
        is_fetch: bool,
    },
    /// `log_duration` or `log_min_duration_statement`: something ended.
    Duration {
        /// How long it took, in microseconds.
        duration_us: u64,
        /// The phase that ended, if the message says so.
        phase: Option<TimedPhase<'a>>,
    },
    /// `log_connections`: a client has connected.
    ConnectionReceived,
    /// `log_connections`: the session begins.
    ConnectionAuthorized {
        /// The role.
        user: &'a [u8],
        /// The database.
        database: &'a [u8],
    },
    /// `log_disconnections`: the session has ended.
    Disconnection,
    /// `log_executor_stats`: a query has ended, and not committed.
    ExecutorStatistics,
    /// A fast-path call, whose arguments are not logged.
    FastPathCall,
    /// An entry of `pgaudit`, which repeats a statement.
    Audit,
    /// A plan of `auto_explain`, which repeats a statement.
    Plan,
    /// A setting was changed while the server runs.
    SettingChanged {
        /// Its name.
        name: &'a [u8],
        /// The value that it has now.
        value: &'a [u8],
    },
    /// `log_lock_waits`: a lock took longer than `deadlock_timeout`.
    LockWait,
    /// Anything else.
    Other,
}

/// A phase whose end `log_min_duration_statement` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedPhase<'a> {
    /// A simple query.
    Statement {
        /// The whole query.
        sql: &'a [u8],
    },
    /// A Parse message.
    Parse,
    /// A Bind message.
    Bind,
    /// An Execute message.
    Execute {
        /// The prepared statement's name; `<unnamed>` without one.
        name: &'a [u8],
        /// The statement.
        sql: &'a [u8],
        /// Whether it fetches more rows of a portal that was executed before.
        is_fetch: bool,
    },
}

pub(crate) fn parse(message: &[u8]) -> LogMessage<'_> {
    match message.first() {
        Some(b's') => statement(message),
        Some(b'e') => execute(message),
        Some(b'd') => duration(message).or_else(|| disconnection(message)),
        Some(b'c') => connection(message),
        Some(b'E') => (message == b"EXECUTOR STATISTICS").then_some(LogMessage::ExecutorStatistics),
        Some(b'f') => {
            message.starts_with(b"fastpath function call: ").then_some(LogMessage::FastPathCall)
        }
        Some(b'p') => setting_changed(message).or_else(|| lock_wait(message)),
        Some(b'A') => message.starts_with(b"AUDIT: ").then_some(LogMessage::Audit),
        _ => None,
    }
    .unwrap_or(LogMessage::Other)
}

fn statement(message: &[u8]) -> Option<LogMessage<'_>> {
    message.strip_prefix(b"statement: ").map(|sql| LogMessage::Statement { sql })
}

fn execute(message: &[u8]) -> Option<LogMessage<'_>> {
    let (name, sql, is_fetch) = execution(message)?;
    Some(LogMessage::Execute { name, sql, is_fetch })
}

/// `parameter "NAME" changed to "VALUE"`.
fn setting_changed(message: &[u8]) -> Option<LogMessage<'_>> {
    let rest = message.strip_prefix(b"parameter \"")?;
    let (name, rest) = rest.split_at(memchr::memchr(b'"', rest)?);
    let value = rest.strip_prefix(b"\" changed to \"")?.strip_suffix(b"\"")?;
    Some(LogMessage::SettingChanged { name, value })
}

/// `execute NAME[/PORTAL]: SQL` or `execute fetch from NAME[/PORTAL]: SQL`.
fn execution(message: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let rest = message.strip_prefix(b"execute ")?;
    let (rest, is_fetch) = match rest.strip_prefix(b"fetch from ") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let colon = memchr::memmem::find(rest, b": ")?;
    let name = &rest[..colon];
    let name = name.split(|byte| *byte == b'/').next().unwrap_or(name);
    Some((name, &rest[colon + 2..], is_fetch))
}

fn duration(message: &[u8]) -> Option<LogMessage<'_>> {
    let rest = message.strip_prefix(b"duration: ")?;
    let end = memchr::memmem::find(rest, b" ms")?;
    let duration_us = microseconds(&rest[..end])?;
    let phase = match rest[end + 3..].strip_prefix(b"  ") {
        None => None,
        Some(rest) if rest.starts_with(b"plan:") => return Some(LogMessage::Plan),
        Some(rest) if rest.starts_with(b"parse ") => Some(TimedPhase::Parse),
        Some(rest) if rest.starts_with(b"bind ") => Some(TimedPhase::Bind),
        Some(rest) => match (rest.strip_prefix(b"statement: "), execution(rest)) {
            (Some(sql), _) => Some(TimedPhase::Statement { sql }),
            (None, Some((name, sql, is_fetch))) => {
                Some(TimedPhase::Execute { name, sql, is_fetch })
            }
            (None, None) => None,
        },
    };
    Some(LogMessage::Duration { duration_us, phase })
}

/// `0.127`: milliseconds with three digits behind the point.
fn microseconds(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = str::from_utf8(text).ok()?.split_once('.')?;
    if fraction.len() != 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction.parse().ok()?)
}

fn disconnection(message: &[u8]) -> Option<LogMessage<'_>> {
    message.starts_with(b"disconnection: session time: ").then_some(LogMessage::Disconnection)
}

fn connection(message: &[u8]) -> Option<LogMessage<'_>> {
    if message.starts_with(b"connection received: ") {
        return Some(LogMessage::ConnectionReceived);
    }
    let rest = message.strip_prefix(b"connection authorized: user=")?;
    let database_at = memchr::memmem::find(rest, b" database=")?;
    let database = &rest[database_at + b" database=".len()..];
    let ends = [&b" application_name="[..], b" SSL enabled", b" GSS ("];
    let end = ends.iter().filter_map(|end| memchr::memmem::find(database, end)).min();
    let database = &database[..end.unwrap_or(database.len())];
    Some(LogMessage::ConnectionAuthorized { user: &rest[..database_at], database })
}

fn lock_wait(message: &[u8]) -> Option<LogMessage<'_>> {
    let rest = message.strip_prefix(b"process ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    rest[space..].starts_with(b" still waiting for ").then_some(LogMessage::LockWait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_protocols() {
        let check = |text: &'static str, expected| assert_eq!(parse(text.as_bytes()), expected);
        check("statement: select 1;\n2", LogMessage::Statement { sql: b"select 1;\n2" });
        let execute = |name, is_fetch| LogMessage::Execute { name, sql: b"select $1", is_fetch };
        check("execute <unnamed>: select $1", execute(b"<unnamed>", false));
        check("execute S_1/C_2: select $1", execute(b"S_1", false));
        check("execute fetch from S_1/C_2: select $1", execute(b"S_1", true));
        let duration = |duration_us, phase| LogMessage::Duration { duration_us, phase };
        check("duration: 0.011 ms", duration(11, None));
        check("duration: 1234.500 ms", duration(1_234_500, None));
        check("duration: 0.1 ms", LogMessage::Other);
        let phase = TimedPhase::Statement { sql: b"select 1" };
        check("duration: 0.011 ms  statement: select 1", duration(11, Some(phase)));
        check("duration: 0.011 ms  parse p: select 1", duration(11, Some(TimedPhase::Parse)));
        check("duration: 0.011 ms  bind p/x: select 1", duration(11, Some(TimedPhase::Bind)));
        let phase = TimedPhase::Execute { name: b"p", sql: b"select 1", is_fetch: false };
        check("duration: 0.011 ms  execute p: select 1", duration(11, Some(phase)));
        check("statements", LogMessage::Other);
        check("", LogMessage::Other);
    }

    #[test]
    fn sessions_begin_and_end() {
        let authorized = LogMessage::ConnectionAuthorized { user: b"a b", database: b"shop" };
        let text =
            "connection authorized: user=a b database=shop application_name=x SSL enabled (p)";
        assert_eq!(parse(text.as_bytes()), authorized);
        assert_eq!(parse(b"connection authorized: user=a b database=shop"), authorized);
        assert_eq!(parse(b"connection received: host=[local]"), LogMessage::ConnectionReceived);
        let text = b"disconnection: session time: 0:00:03.861 user=a database=b host=[local]";
        assert_eq!(parse(text), LogMessage::Disconnection);
        let text = b"process 1 still waiting for ShareLock on transaction 7 after 100.1 ms";
        assert_eq!(parse(text), LogMessage::LockWait);
    }
}
