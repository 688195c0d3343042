//! `csvlog`.

use std::borrow::Cow;
use std::ops::Range;

use crate::log::language::{foreign_message, is_foreign_severity};
use crate::log::time::zoned_timestamp;
use crate::log::{LogEntry, LogError, LogSessionId, LogSeverity, SqlState, VirtualXid};

/// The place of a column's value.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    range: Range<usize>,
    /// A quoted empty value is no NULL.
    is_quoted: bool,
    /// It has doubled quotes.
    is_doubled: bool,
}

// Columns as in `write_csvlog`. Newer versions add some at the end: `backend_type` (13), `leader_pid`
// and `query_id` (14).
const LOG_TIME: usize = 0;
const USER_NAME: usize = 1;
const DATABASE_NAME: usize = 2;
const PROCESS_ID: usize = 3;
const SESSION_ID: usize = 5;
const COMMAND_TAG: usize = 7;
const VIRTUAL_TRANSACTION_ID: usize = 9;
const TRANSACTION_ID: usize = 10;
const ERROR_SEVERITY: usize = 11;
const SQL_STATE_CODE: usize = 12;
const MESSAGE: usize = 13;
const DETAIL: usize = 14;
const CONTEXT: usize = 18;
const QUERY: usize = 19;
const APPLICATION_NAME: usize = 22;
/// The columns of PostgreSQL 12 and before.
const COLUMNS_MIN: usize = 23;

/// Whether a line begins like a record of csvlog.
pub(crate) fn begins_record(line: &[u8]) -> bool {
    zoned_timestamp(line).is_some_and(|(_, length)| line.get(length) == Some(&b','))
}

pub(crate) fn parse<'a>(
    record: &'a [u8],
    line: u64,
    columns: &mut Vec<Column>,
) -> Result<LogEntry<'a>, LogError> {
    let damaged = |reason| LogError::Damaged { line, reason };
    split(record, columns).ok_or(damaged("text behind a quoted value"))?;
    if columns.len() < COLUMNS_MIN {
        return Err(damaged("fewer than 23 columns"));
    }
    let text = |index: usize| -> Option<Cow<'a, [u8]>> {
        let column = columns.get(index)?;
        let bytes = &record[column.range.clone()];
        if bytes.is_empty() && !column.is_quoted {
            return None;
        }
        Some(if column.is_doubled { Cow::Owned(undoubled(bytes)) } else { Cow::Borrowed(bytes) })
    };
    let raw =
        |index: usize| columns.get(index).map_or(&b""[..], |column| &record[column.range.clone()]);
    let (time_us, _) = zoned_timestamp(raw(LOG_TIME)).ok_or(damaged("no time at the begin"))?;
    let severity = LogSeverity::of_label(raw(ERROR_SEVERITY)).ok_or_else(|| {
        let label = raw(ERROR_SEVERITY);
        if is_foreign_severity(label) {
            return LogError::Language { line, word: String::from_utf8_lossy(label).into_owned() };
        }
        damaged("unknown severity")
    })?;
    let message = text(MESSAGE).unwrap_or_default();
    if let Some(word) = foreign_message(&message) {
        return Err(LogError::Language { line, word: word.trim_end().to_owned() });
    }
    let pid = number(raw(PROCESS_ID)).and_then(|pid| u32::try_from(pid).ok());
    let session = LogSessionId::parse(raw(SESSION_ID));
    Ok(LogEntry {
        line,
        time_us: Some(time_us),
        session: session.or(pid.map(|pid| LogSessionId { start_s: 0, pid })),
        user: text(USER_NAME),
        database: text(DATABASE_NAME),
        application: text(APPLICATION_NAME),
        command_tag: text(COMMAND_TAG),
        vxid: VirtualXid::parse(raw(VIRTUAL_TRANSACTION_ID)),
        xid: number(raw(TRANSACTION_ID)),
        severity,
        sqlstate: SqlState::parse(raw(SQL_STATE_CODE)),
        message,
        detail: text(DETAIL),
        context: text(CONTEXT),
        statement: text(QUERY),
    })
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// `None` where something else than a comma follows a quoted value.
fn split(record: &[u8], columns: &mut Vec<Column>) -> Option<()> {
    columns.clear();
    let mut at = 0;
    loop {
        let (column, next) = if record.get(at) == Some(&b'"') {
            quoted(record, at + 1)?
        } else {
            // Most are empty, and all are short: no work for `memchr`.
            let rest = &record[at..];
            let length = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            let end = at + length;
            (Column { range: at..end, is_quoted: false, is_doubled: false }, end)
        };
        if columns.len() < COLUMNS_KEPT {
            columns.push(column);
        }
        match record.get(next) {
            None => return Some(()),
            Some(b',') => at = next + 1,
            Some(_) => return None,
        }
    }
}

/// No version has more that is read.
const COLUMNS_KEPT: usize = 32;

/// The value that begins at `start`, behind its quote, and where the text behind it begins.
fn quoted(record: &[u8], start: usize) -> Option<(Column, usize)> {
    let mut is_doubled = false;
    let mut at = start;
    loop {
        let quote = at + memchr::memchr(b'"', record.get(at..)?)?;
        if record.get(quote + 1) != Some(&b'"') {
            let column = Column { range: start..quote, is_quoted: true, is_doubled };
            return Some((column, quote + 1));
        }
        is_doubled = true;
        at = quote + 2;
    }
}

fn undoubled(value: &[u8]) -> Vec<u8> {
    let mut single = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(quote) = memchr::memchr(b'"', rest) {
        single.extend_from_slice(&rest[..=quote]);
        rest = rest.get(quote + 2..).unwrap_or_default();
    }
    single.extend_from_slice(rest);
    single
}
