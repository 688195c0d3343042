//! Lines of syslog (RFC 3164, RFC 5424), as collectors and `journalctl` write them.
//!
//! A server cuts its messages at newlines, and at 900 bytes; `syslog_sequence_numbers` says which pieces
//! belong together. Source: `write_syslog` in `src/backend/utils/error/elog.c` of PostgreSQL 18.6.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::rfc3339_ns;
use crate::log::time::{timestamp, write_timestamp};

/// The prefix that a syslog line's own time and process id are put into, before the server's own prefix.
pub(super) const PREFIX: &str = "%m [%p] ";
/// `PG_SYSLOG_LIMIT`, and less by what a character may take: a longer word is cut there.
const CUT_BYTES: RangeInclusive<usize> = 897..=900;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyslogLine<'a> {
    pub(super) time_ns: i64,
    pub(super) host: Cow<'a, str>,
    /// The server's process; `None`: another program's line.
    pub(super) chunk: Option<SyslogChunk<'a>>,
}

/// A message of a server, or a piece of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyslogChunk<'a> {
    pub(super) pid: u32,
    /// The message's number in its process.
    pub(super) sequence: Option<u64>,
    /// The piece's number, from 1, where it is known.
    pub(super) number: Option<u64>,
    pub(super) text: Cow<'a, [u8]>,
}

/// The joint of a piece to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// It begins a message.
    New,
    /// In a new line.
    Line,
    /// In a new line, which has a prefix of its own.
    PrefixedLine,
    /// In the same line.
    Same,
}

impl SyslogChunk<'_> {
    /// Appends its text, with [`PREFIX`] before each line that has the server's, as the first may.
    pub(super) fn write(&self, time_ns: i64, has_prefix: bool, text: &mut Vec<u8>) {
        for (number, line) in self.text.split(|byte| *byte == b'\n').enumerate() {
            if number > 0 {
                text.push(b'\n');
            }
            if (number == 0 && has_prefix) || (number > 0 && !line.starts_with(b"\t")) {
                write_prefix(time_ns, self.pid, text);
            }
            text.extend_from_slice(line);
        }
    }

    /// Its joint to what came before it from its process: a piece with this number, of these bytes.
    ///
    /// A number alone is that of a message, unless the log `has_pieces_only`.
    pub(super) fn joint(&self, before: Option<(u64, usize)>, has_pieces_only: bool) -> Joint {
        let is_cut = before.is_some_and(|(_, bytes)| CUT_BYTES.contains(&bytes));
        let continues = match (self.sequence, self.number) {
            (sequence, Some(number)) if sequence.is_some() || has_pieces_only => number > 1,
            (_, Some(number)) if before.is_some_and(|(last, _)| number == last + 1) => {
                is_cut || self.text.starts_with(b" ") || self.text.starts_with(b"\t")
            }
            _ => self.text.starts_with(b"\t"),
        };
        match self.text.first() {
            _ if !continues => Joint::New,
            Some(b'\t') => Joint::Line,
            Some(b' ') => Joint::Same,
            _ if is_cut => Joint::Same,
            _ => Joint::PrefixedLine,
        }
    }
}

/// The time and the process id of a line, as [`PREFIX`] has them.
fn write_prefix(time_ns: i64, pid: u32, text: &mut Vec<u8>) {
    write_timestamp(time_ns / 1_000_000, text);
    text.extend_from_slice(format!(" UTC [{pid}] ").as_bytes());
}

/// Whether a sample has a server's line.
pub(super) fn has_server(sample: &[u8]) -> bool {
    let lines = || sample.split(|byte| *byte == b'\n').map(|line| parse(line, 0));
    let begins = lines().next().flatten().is_some();
    begins && lines().flatten().any(|line| line.chunk.is_some())
}

/// A line of a file that was read at `read_us`, the base of the year of times that have none.
pub(super) fn parse(line: &[u8], read_us: i64) -> Option<SyslogLine<'_>> {
    let line = match line.strip_prefix(b"<") {
        Some(rest) => {
            let end = memchr::memchr(b'>', rest.get(..rest.len().min(4))?)?;
            rest[..end].iter().all(u8::is_ascii_digit).then(|| &rest[end + 1..])?
        }
        None => line,
    };
    if let Some(rest) = line.strip_prefix(b"1 ") {
        return structured(rest);
    }
    let (time_ns, rest) = if let Some(found) = month_time(line, read_us) {
        found
    } else {
        let (time, rest) = word(line)?;
        (rfc3339_ns(time)?, rest)
    };
    let (host, rest) = word(rest)?;
    let is_host = |byte: &u8| byte.is_ascii_graphic();
    let colon = memchr::memmem::find(rest.get(..rest.len().min(TAG_BYTES_MAX))?, b":")?;
    let tag = &rest[..colon];
    if tag.contains(&b' ') || tag.is_empty() || !host.iter().all(is_host) {
        return None;
    }
    let text = &rest[colon + 1..];
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let (program, pid) = match memchr::memchr(b'[', tag) {
        Some(bracket) => (&tag[..bracket], tag[bracket + 1..].strip_suffix(b"]")),
        None => (tag, None),
    };
    let chunk = pid.and_then(number).and_then(|pid| chunk(program, pid, text));
    Some(SyslogLine { time_ns, host: String::from_utf8_lossy(host), chunk })
}

/// A program's name and process id are not longer.
const TAG_BYTES_MAX: usize = 128;

/// RFC 5424, behind its version: `TIME HOST PROGRAM PID ID [DATA] MESSAGE`.
fn structured(line: &[u8]) -> Option<SyslogLine<'_>> {
    let (time, rest) = word(line)?;
    let (host, rest) = word(rest)?;
    let (program, rest) = word(rest)?;
    let (pid, rest) = word(rest)?;
    let (_, mut rest) = word(rest)?;
    let time_ns = rfc3339_ns(time)?;
    if let Some(no_data) = rest.strip_prefix(b"-") {
        rest = no_data;
    } else {
        while rest.starts_with(b"[") {
            rest = behind_data(rest)?;
        }
    }
    // A collector may keep the space behind the colon of a line that it read as of RFC 3164.
    let text = rest.trim_ascii_start();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let chunk = number(pid).and_then(|pid| chunk(program, pid, text));
    Some(SyslogLine { time_ns, host: String::from_utf8_lossy(host), chunk })
}

/// Behind one element of structured data, whose values are quoted.
fn behind_data(text: &[u8]) -> Option<&[u8]> {
    let mut is_quoted = false;
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'"', b'\\', b']', &text[at..])?;
        match text[at] {
            b'"' => is_quoted = !is_quoted,
            b'\\' => at += 1,
            _ if !is_quoted => return Some(&text[at + 1..]),
            _ => {}
        }
        at += 1;
        text.get(at..)?;
    }
}

/// The message of a process: of a server by its program's name or its sequence number.
fn chunk<'a>(program: &[u8], pid: u32, text: &'a [u8]) -> Option<SyslogChunk<'a>> {
    let (sequence, number, rest) = sequence(text).unwrap_or((None, None, text));
    let is_server = program.starts_with(b"postgres") || (sequence.is_some() && number.is_some());
    is_server.then(|| SyslogChunk { pid, sequence, number, text: unescaped(rest) })
}

/// `[7-1] text`: a message's number and a piece's; `[7] text`: one of both.
fn sequence(text: &[u8]) -> Option<(Option<u64>, Option<u64>, &[u8])> {
    let inner = text.strip_prefix(b"[")?;
    let close = memchr::memchr(b']', inner.get(..inner.len().min(42))?)?;
    let rest = inner[close + 1..].strip_prefix(b" ")?;
    let numbers = &inner[..close];
    match memchr::memchr(b'-', numbers) {
        Some(dash) => {
            let (sequence, number) = (number(&numbers[..dash])?, number(&numbers[dash + 1..])?);
            Some((Some(sequence), Some(number), rest))
        }
        None => Some((None, Some(number(numbers)?), rest)),
    }
}

/// Control characters as collectors write them: `#011` is a tab.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memmem::find(text, b"#0") else { return Cow::Borrowed(text) };
    let mut plain = text[..first].to_vec();
    let mut rest = &text[first..];
    while let Some((byte, more)) = rest.split_first() {
        rest = match more {
            [b'0', tens @ b'0'..=b'3', ones @ b'0'..=b'7', more @ ..] if *byte == b'#' => {
                plain.push((tens - b'0') * 8 + (ones - b'0'));
                more
            }
            more => {
                plain.push(*byte);
                more
            }
        };
    }
    Cow::Owned(plain)
}

/// `Nov 29 10:00:00`: nanoseconds since 1970 in the last year in which that time was before the file was
/// read, with a day for time zones; and the rest.
fn month_time(line: &[u8], read_us: i64) -> Option<(i64, &[u8])> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let text = line.get(..15)?;
    let month = 1 + MONTHS.chunks(3).position(|month| text.starts_with(month))?;
    let rest = line[15..].strip_prefix(b" ")?;
    let (day, time) = (&text[4..6], &text[7..15]);
    let day = number::<u32>(day.trim_ascii_start())?;
    let time = str::from_utf8(time).ok()?;
    let until_us = read_us.saturating_add(86_400_000_000);
    // Years of 365 days: one too many after some decades, never too few.
    let newest = 1970 + until_us / (365 * 86_400_000_000);
    let in_year = |year: i64| {
        let text = format!("{year:04}-{month:02}-{day:02} {time}");
        timestamp(text.as_bytes()).map(|(time_us, _)| time_us)
    };
    let mut times = (newest - 2..=newest).rev().filter_map(in_year);
    let time_us = times.find(|time_us| *time_us <= until_us)?;
    Some((time_us.checked_mul(1000)?, rest))
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', text.get(..text.len().min(WORD_BYTES_MAX))?)?;
    (space > 0).then(|| (&text[..space], &text[space + 1..]))
}

/// A host's name is at most 255 bytes long.
const WORD_BYTES_MAX: usize = 256;

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-12-01.
    const READ_US: i64 = 1_796_083_200_000_000;
    /// 2026-11-29 10:00:00.
    const TIME_NS: i64 = 1_795_946_400_000_000_000;

    #[test]
    fn each_form_has_the_time_the_host_the_process_and_the_piece() {
        for line in [
            "Nov 29 10:00:00 db1 postgres[47]: [5-1] x\t#y",
            "<134>Nov 29 10:00:00 db1 postgres[47]: [5-1] x#011#y",
            "2026-11-29T11:00:00.000000+01:00 db1 postgres-15[47]: [5-1] x#011#y",
            "2026-11-29T10:00:00+0000 db1 main[47]: [5-1] x#011#y",
            "<134>1 2026-11-29T10:00:00Z db1 postgres 47 - - [5-1] x#011#y",
            "<134>1 2026-11-29T10:00:00Z db1 postgres 47 - [a b=\"]\\\"\"][c] \u{feff}[5-1] x\t#y",
        ] {
            let found = parse(line.as_bytes(), READ_US).unwrap_or_else(|| panic!("{line}"));
            let text = Cow::Borrowed(&b"x\t#y"[..]);
            let chunk = SyslogChunk { pid: 47, sequence: Some(5), number: Some(1), text };
            let host = Cow::Borrowed("db1");
            assert_eq!(found, SyslogLine { time_ns: TIME_NS, host, chunk: Some(chunk) }, "{line}");
        }
    }

    #[test]
    fn times_without_a_year_are_of_the_last_one() {
        let year = |line: &str| {
            let line = parse(line.as_bytes(), READ_US)?;
            let mut prefix = Vec::new();
            write_prefix(line.time_ns, 7, &mut prefix);
            String::from_utf8(prefix).ok()
        };
        let at = |time: &str| Some(format!("{time}.000 UTC [7] "));
        assert_eq!(year("Dec  2 10:00:00 h p: x"), at("2025-12-02 10:00:00"));
        assert_eq!(year("Dec  1 23:00:00 h p: x"), at("2026-12-01 23:00:00"));
        assert_eq!(year("Jan  1 00:00:00 h p: x"), at("2026-01-01 00:00:00"));
    }

    #[test]
    fn other_programs_have_no_piece_and_other_text_is_no_line() {
        for line in ["Nov 29 10:00:00 db1 sshd[7]: x", "Nov 29 10:00:00 db1 kernel: x"] {
            assert_eq!(parse(line.as_bytes(), READ_US).unwrap().chunk, None, "{line}");
        }
        for line in
            ["", "Nov 29", "Nov 29 10:00:00 db1 no tag", "2026-11-29 10:00:00 UTC [7] LOG:  x"]
        {
            assert_eq!(parse(line.as_bytes(), READ_US), None, "{line}");
        }
    }
}
