//! `stderr`: lines with a prefix, continued by lines that begin with a tab.

use std::borrow::Cow;
use std::ops::Range;

use crate::log::language::{foreign_message, is_foreign_severity};
use crate::log::prefix::PrefixMatch;
use crate::log::{LinePrefix, LogEntry, LogError, LogSeverity};

/// What follows a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Entry(LogSeverity),
    Detail,
    Context,
    Statement,
    /// `HINT`, `QUERY`, `LOCATION`, `BACKTRACE`.
    Unread,
}

/// The label at the begin of a text, and the bytes that it takes with its colon and spaces.
fn label(text: &[u8]) -> Option<(Label, usize)> {
    let colon = memchr::memchr(b':', &text[..text.len().min(LABEL_BYTES_MAX)])?;
    let word = &text[..colon];
    let label = match word {
        b"DETAIL" => Label::Detail,
        b"CONTEXT" => Label::Context,
        b"STATEMENT" => Label::Statement,
        b"HINT" | b"QUERY" | b"LOCATION" | b"BACKTRACE" => Label::Unread,
        _ => Label::Entry(LogSeverity::of_label(word)?),
    };
    text[colon..].starts_with(b":  ").then_some((label, colon + 3))
}

const LABEL_BYTES_MAX: usize = 16;

/// A label in another language, up to its colon.
fn foreign_label(text: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memmem::find(&text[..text.len().min(64)], b":  ")?;
    is_foreign_severity(&text[..colon]).then_some(&text[..colon])
}

/// Whether an entry begins with this line.
pub(crate) fn begins_entry(line: &[u8], prefix: &LinePrefix) -> bool {
    let accept = |rest: &[u8]| {
        matches!(label(rest), Some((Label::Entry(_), _))) || foreign_label(rest).is_some()
    };
    prefix.matches(line, accept).is_some()
}

/// The entry of these lines. Lines without a prefix are counted.
pub(crate) fn parse<'a>(
    record: &'a [u8],
    prefix: &LinePrefix,
    line: u64,
    foreign_lines: &mut u64,
) -> Result<LogEntry<'a>, LogError> {
    let known = |rest: &[u8]| label(rest).is_some() || foreign_label(rest).is_some();
    let mut entry: Option<LogEntry<'a>> = None;
    for part in parts(record) {
        let found = prefix.matches(&record[part.clone()], known);
        let Some(found) = found else {
            *foreign_lines += 1;
            continue;
        };
        let text = &record[part.start + found.length..part.end];
        let Some((label, length)) = label(text) else {
            let word = foreign_label(text).unwrap_or_default();
            return Err(LogError::Language {
                line,
                word: String::from_utf8_lossy(word).into_owned(),
            });
        };
        let text = untabbed(&text[length..]);
        match (label, &mut entry) {
            (Label::Entry(severity), None) => {
                if let Some(word) = foreign_message(&text) {
                    return Err(LogError::Language { line, word: word.trim_end().to_owned() });
                }
                entry = Some(begun(record, &part, &found, severity, text, line));
            }
            (Label::Detail, Some(entry)) => entry.detail = Some(text),
            (Label::Context, Some(entry)) => entry.context = Some(text),
            (Label::Statement, Some(entry)) => entry.statement = Some(text),
            (Label::Unread, Some(_)) => {}
            (_, _) => *foreign_lines += 1,
        }
    }
    entry.ok_or(LogError::Damaged { line, reason: "no severity behind the prefix" })
}

fn begun<'a>(
    record: &'a [u8],
    part: &Range<usize>,
    found: &PrefixMatch,
    severity: LogSeverity,
    message: Cow<'a, [u8]>,
    line: u64,
) -> LogEntry<'a> {
    let text = |range: &Option<Range<usize>>| {
        let bytes =
            |range: &Range<usize>| &record[part.start + range.start..part.start + range.end];
        let text = range.as_ref().map(bytes).filter(|bytes| !bytes.is_empty());
        text.map(Cow::Borrowed)
    };
    LogEntry {
        line,
        time_us: found.time_us,
        session: found.session(),
        user: text(&found.user),
        database: text(&found.database),
        application: text(&found.application),
        command_tag: text(&found.command_tag),
        vxid: found.vxid,
        xid: found.xid,
        severity,
        sqlstate: found.sqlstate,
        message,
        ..LogEntry::default()
    }
}

/// The lines of a record, each with those that continue it.
fn parts(record: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= record.len() {
            return None;
        }
        let mut end = start;
        loop {
            let Some(newline) = memchr::memchr(b'\n', &record[end..]) else {
                end = record.len();
                let part = start..end;
                start = end;
                return Some(part);
            };
            end += newline + 1;
            if record.get(end) != Some(&b'\t') {
                let part = start..end - 1;
                start = end;
                return Some(part);
            }
        }
    })
}

/// The text without the tab that the server puts behind each newline.
fn untabbed(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            plain.push(b'\n');
            plain.extend_from_slice(line.strip_prefix(b"\t").unwrap_or(line));
        } else {
            plain.extend_from_slice(line);
        }
    }
    Cow::Owned(plain)
}
