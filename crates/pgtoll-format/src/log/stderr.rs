//! `stderr`: lines with a prefix, continued by lines that begin with a tab.

use std::borrow::Cow;
use std::ops::Range;

use crate::log::language::{foreign_message, is_foreign_severity};
use crate::log::prefix::PrefixMatch;
use crate::log::{LinePrefix, LogEntry, LogError, LogSeverity};

/// The label behind a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let colon = memchr::memchr(b':', &text[..text.len().min(64)])?;
    (text[colon..].starts_with(b":  ") && is_foreign_severity(&text[..colon]))
        .then_some(&text[..colon])
}

/// A line of a record with those that continue it.
#[derive(Debug)]
pub(crate) struct StderrLine {
    /// Its range in the record, without its newline.
    pub(crate) range: Range<usize>,
    /// `None` of a line without a prefix.
    pub(crate) head: Option<LineHead>,
}

/// The prefix and the label of a line.
#[derive(Debug)]
pub(crate) struct LineHead {
    prefix: PrefixMatch,
    /// `None`: in another language.
    label: Option<Label>,
    /// The start of the text behind the label, counted from the line's begin.
    text: usize,
}

impl LineHead {
    /// Whether an entry begins with this line.
    pub(crate) fn begins_entry(&self) -> bool {
        matches!(self.label, None | Some(Label::Entry(_)))
    }
}

/// The prefix and the label at the begin of a line, if it has them.
pub(crate) fn head(line: &[u8], prefix: &LinePrefix) -> Option<LineHead> {
    let known = |rest: &[u8]| label(rest).is_some() || foreign_label(rest).is_some();
    let prefix = prefix.matches(line, known)?;
    let label = label(&line[prefix.length..]);
    let text = prefix.length + label.map_or(0, |(_, length)| length);
    Some(LineHead { prefix, label: label.map(|(label, _)| label), text })
}

/// Whether an entry begins with this line.
pub(crate) fn begins_entry(line: &[u8], prefix: &LinePrefix) -> bool {
    head(line, prefix).is_some_and(|head| head.begins_entry())
}

/// The entry of a record with these lines. Lines without a prefix are counted.
pub(crate) fn parse<'a>(
    record: &'a [u8],
    lines: &[StderrLine],
    line: u64,
    foreign_lines: &mut u64,
) -> Result<LogEntry<'a>, LogError> {
    let mut entry: Option<LogEntry<'a>> = None;
    for StderrLine { range, head } in lines {
        let Some(head) = head else {
            *foreign_lines += 1;
            continue;
        };
        // The record has no carriage return at its end, its last line may have.
        let text = &record[range.start + head.text..range.end.min(record.len())];
        let Some(label) = head.label else {
            let word = foreign_label(text).unwrap_or_default();
            return Err(LogError::Language {
                line,
                word: String::from_utf8_lossy(word).into_owned(),
            });
        };
        let text = untabbed(text);
        match (label, &mut entry) {
            (Label::Entry(severity), None) => {
                if let Some(word) = foreign_message(&text) {
                    return Err(LogError::Language { line, word: word.trim_end().to_owned() });
                }
                entry = Some(begun(record, range, &head.prefix, severity, text, line));
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

/// The text without the tab that the server puts behind each newline.
fn untabbed(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(newline) = memchr::memchr(b'\n', rest) {
        plain.extend_from_slice(&rest[..=newline]);
        rest = &rest[newline + 1..];
        rest = rest.strip_prefix(b"\t").unwrap_or(rest);
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}
