//! `log_line_prefix`, compiled to a matcher.

use std::ops::Range;

use crate::log::time::{epoch, zoned_timestamp};
use crate::log::{LogFields, LogSessionId, SqlState, VirtualXid};

/// A compiled `log_line_prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePrefix {
    text: String,
    parts: Vec<PrefixPart>,
}

/// A prefix that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// An escape that no version of PostgreSQL has.
    #[error("log_line_prefix has no escape %{0}")]
    Escape(char),
    /// It ends in a single `%`.
    #[error("log_line_prefix ends in %")]
    Incomplete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PrefixPart {
    Literal(Vec<u8>),
    Escape(u8),
    /// `%q`: other processes' prefixes end here.
    SessionsOnly,
}

/// The values in the prefix of a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixMatch {
    /// Bytes of the line that the prefix takes.
    pub(crate) length: usize,
    pub(crate) time_us: Option<i64>,
    pub(crate) pid: Option<u32>,
    pub(crate) session_id: Option<LogSessionId>,
    pub(crate) session_start_us: Option<i64>,
    pub(crate) user: Option<Range<usize>>,
    pub(crate) database: Option<Range<usize>>,
    pub(crate) application: Option<Range<usize>>,
    pub(crate) command_tag: Option<Range<usize>>,
    pub(crate) vxid: Option<VirtualXid>,
    pub(crate) xid: Option<u64>,
    pub(crate) sqlstate: Option<SqlState>,
}

impl PrefixMatch {
    pub(crate) fn session(&self) -> Option<LogSessionId> {
        self.session_id.or_else(|| {
            let start_us = self.session_start_us.unwrap_or_default();
            let start_s = u64::try_from(start_us / 1_000_000).unwrap_or_default();
            self.pid.map(|pid| LogSessionId { start_s, pid })
        })
    }
}

impl LinePrefix {
    /// Compiles the setting's value.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                literal.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            // Padding is spaces, which fields are trimmed of.
            while rest.next_if(|c| *c == '-' || c.is_ascii_digit()).is_some() {}
            let part = match rest.next().ok_or(PrefixError::Incomplete)? {
                '%' => {
                    literal.push(b'%');
                    continue;
                }
                'q' => PrefixPart::SessionsOnly,
                escape if ESCAPES.contains(escape) => PrefixPart::Escape(escape as u8),
                escape => return Err(PrefixError::Escape(escape)),
            };
            if !literal.is_empty() {
                parts.push(PrefixPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(part);
        }
        if !literal.is_empty() {
            parts.push(PrefixPart::Literal(literal));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Whether it has `%p` or `%c`: without, sessions cannot be distinguished.
    pub fn has_session(&self) -> bool {
        self.fields().session
    }

    /// The prefix of lines which have another one before this.
    #[must_use]
    pub(crate) fn behind(&self, outer: &str) -> Self {
        let text = format!("{outer}{}", self.text);
        Self::parse(&text).unwrap_or_else(|_| self.clone())
    }

    /// The setting's value.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the fields of entries under this prefix.
    pub fn fields(&self) -> LogFields {
        let has = |wanted: u8| self.parts.contains(&PrefixPart::Escape(wanted));
        LogFields {
            time: has(b'm') || has(b't') || has(b'n'),
            milliseconds: has(b'm') || has(b'n'),
            session: has(b'c') || has(b'p'),
            user_and_database: has(b'u') && has(b'd'),
            vxid: has(b'v'),
            xid: has(b'x'),
            sqlstate: has(b'e'),
            command_tag: has(b'i'),
        }
    }

    /// The prefix of a line, if it has this one and what follows it is accepted.
    pub(crate) fn matches(
        &self,
        line: &[u8],
        accept: impl Fn(&[u8]) -> bool,
    ) -> Option<PrefixMatch> {
        let line = &line[..line.len().min(PREFIX_BYTES_MAX)];
        let mut steps_left = STEPS_MAX;
        let mut found = PrefixMatch::default();
        let whole = Attempt { parts: &self.parts, line, accept: &accept };
        if whole.follow(0, 0, &mut found, &mut steps_left) {
            return Some(found);
        }
        let quit = self.parts.iter().position(|part| *part == PrefixPart::SessionsOnly)?;
        let mut found = PrefixMatch::default();
        let short = Attempt { parts: &self.parts[..quit], line, accept: &accept };
        short.follow(0, 0, &mut found, &mut steps_left).then_some(found)
    }
}

const ESCAPES: &str = "audrhbpPtmnieclsvxQL";

/// Names are at most 63 bytes long, command tags and hosts not much longer.
const PREFIX_BYTES_MAX: usize = 2048;
/// Fields of free text may end at several places; hostile lines do not make that take long.
const STEPS_MAX: u32 = 2000;

struct Attempt<'a, F> {
    parts: &'a [PrefixPart],
    line: &'a [u8],
    accept: &'a F,
}

impl<F: Fn(&[u8]) -> bool> Attempt<'_, F> {
    /// Whether the parts from `part` on match the line from `at` on. Free text is as short as it can be.
    fn follow(&self, part: usize, at: usize, found: &mut PrefixMatch, left: &mut u32) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match self.parts.get(part) {
            None => {
                found.length = at;
                (self.accept)(&self.line[at..])
            }
            Some(PrefixPart::SessionsOnly) => self.follow(part + 1, at, found, left),
            Some(PrefixPart::Literal(literal)) => {
                self.line[at..].starts_with(literal)
                    && self.follow(part + 1, at + literal.len(), found, left)
            }
            Some(PrefixPart::Escape(escape)) => {
                let text = &self.line[at..];
                let padding = text.iter().take_while(|byte| **byte == b' ').count();
                match fixed(*escape, &text[padding..], found) {
                    Some(length) => {
                        let end = at + padding + length;
                        self.follow(part + 1, end, found, left)
                            || (length > 0 && self.after_padding(part, end, found, left))
                    }
                    None if is_free(*escape) => self.free(part, *escape, at, found, left),
                    // Of a process that has none; what follows is not of it.
                    None => {
                        fixed(*escape, text, found) == Some(0)
                            && self.follow(part + 1, at, found, left)
                    }
                }
            }
        }
    }

    /// A field that was padded on its right.
    fn after_padding(
        &self,
        part: usize,
        at: usize,
        found: &mut PrefixMatch,
        left: &mut u32,
    ) -> bool {
        let padding = self.line[at..].iter().take_while(|byte| **byte == b' ').count();
        (1..=padding).any(|more| self.follow(part + 1, at + more, found, left))
    }

    fn free(
        &self,
        part: usize,
        escape: u8,
        at: usize,
        found: &mut PrefixMatch,
        left: &mut u32,
    ) -> bool {
        let text = &self.line[at..];
        let literal = match self.parts.get(part + 1) {
            Some(PrefixPart::Literal(literal)) => Some(literal.as_slice()),
            _ => None,
        };
        let mut end = 0;
        loop {
            // Where the next literal begins; without one the field may end anywhere.
            if let Some([first, others @ ..]) = literal {
                let Some(more) = memchr::memchr(*first, &text[end..]) else { return false };
                end += more;
                if !text[end + 1..].starts_with(others) {
                    end += 1;
                    continue;
                }
            }
            if self.follow(part + 1, at + end, found, left) {
                let range = trimmed(self.line, at..at + end);
                match escape {
                    b'u' => found.user = Some(range),
                    b'd' => found.database = Some(range),
                    b'a' => found.application = Some(range),
                    b'i' => found.command_tag = Some(range),
                    _ => {}
                }
                return true;
            }
            end += 1;
            if *left == 0 || end > text.len() {
                return false;
            }
        }
    }
}

fn is_free(escape: u8) -> bool {
    matches!(escape, b'u' | b'd' | b'a' | b'h' | b'b' | b'i' | b'L')
}

fn trimmed(line: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &line[range.clone()];
    let trimmed = text.trim_ascii_end();
    let end = range.start + trimmed.len();
    end - trimmed.trim_ascii_start().len()..end
}

/// `host(port)`, in which an IPv6 address has colons; `[local]`; or nothing.
fn host_and_port(text: &[u8]) -> usize {
    if text.starts_with(b"[local]") {
        return b"[local]".len();
    }
    let host = text.iter().take_while(|byte| !byte.is_ascii_whitespace() && **byte != b'(').count();
    let Some(port) = text[host..].strip_prefix(b"(") else { return 0 };
    let digits = port.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && port.get(digits) == Some(&b')') { host + digits + 2 } else { 0 }
}

/// The bytes of a field whose form is known, which is noted; `None` where it is not there.
fn fixed(escape: u8, text: &[u8], found: &mut PrefixMatch) -> Option<usize> {
    let number = |signed: bool| {
        let sign = usize::from(signed && text.starts_with(b"-"));
        let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0).then(|| sign + digits)
    };
    let parsed = |length: usize| str::from_utf8(&text[..length]).ok()?.parse::<u64>().ok();
    match escape {
        b't' | b'm' => {
            let (time_us, length) = zoned_timestamp(text)?;
            found.time_us = Some(time_us);
            Some(length)
        }
        b'n' => {
            let (time_us, length) = epoch(text)?;
            found.time_us = Some(time_us);
            Some(length)
        }
        b's' => {
            let (time_us, length) = zoned_timestamp(text)?;
            found.session_start_us = Some(time_us);
            Some(length)
        }
        b'p' => {
            let length = number(false)?;
            found.pid = u32::try_from(parsed(length)?).ok();
            found.pid.map(|_| length)
        }
        b'x' => {
            let length = number(false)?;
            found.xid = Some(parsed(length)?);
            Some(length)
        }
        b'r' => Some(host_and_port(text)),
        b'l' => number(false),
        // Without a parallel worker's leader there is nothing.
        b'P' => Some(number(false).unwrap_or(0)),
        b'Q' => number(true),
        b'e' => {
            found.sqlstate = Some(SqlState::parse(text.get(..5)?)?);
            Some(5)
        }
        b'c' => {
            let is_id = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'.';
            let length = text.iter().take_while(|byte| is_id(byte)).count();
            found.session_id = Some(LogSessionId::parse(&text[..length])?);
            Some(length)
        }
        b'v' => {
            let is_id = |byte: &u8| byte.is_ascii_digit() || *byte == b'/';
            let length = text.iter().take_while(|byte| is_id(byte)).count();
            found.vxid = VirtualXid::parse(&text[..length]);
            // Processes that are no backends have none.
            (length == 0 || found.vxid.is_some()).then_some(length)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matched(prefix: &str, line: &str) -> Option<PrefixMatch> {
        let accept = |rest: &[u8]| rest.starts_with(b"LOG:  ");
        LinePrefix::parse(prefix).unwrap().matches(line.as_bytes(), accept)
    }

    #[test]
    fn prefixes_that_people_use() {
        let check = |prefix: &str, before: &str, user: Option<&str>, pid| {
            let line = format!("{before}LOG:  x");
            let found = matched(prefix, &line).unwrap_or_else(|| panic!("{prefix}: {line}"));
            assert_eq!(found.length, before.len(), "{line}");
            assert_eq!(found.user.clone().map(|range| &line[range]), user, "{line}");
            assert_eq!(found.session().unwrap().pid, pid, "{line}");
        };
        let t = "2026-11-21 19:46:17";
        check("%m [%p] ", &format!("{t}.606 UTC [4711] "), None, 4711);
        let debian = "%m [%p] %q%u@%d ";
        check(debian, &format!("{t}.606 CET [4711] alice@shop "), Some("alice"), 4711);
        check(debian, &format!("{t}.606 CET [4711] "), None, 4711);
        let rds = "%t:%r:%u@%d:[%p]:";
        check(rds, &format!("{t} UTC:10.0.0.1(5432):alice@shop:[4711]:"), Some("alice"), 4711);
        check(rds, &format!("{t} UTC:::1(5432):alice@shop:[4711]:"), Some("alice"), 4711);
        check(rds, &format!("{t} UTC::@:[4711]:"), Some(""), 4711);
        let badger = "%t [%p]: user=%u,db=%d,app=%a,client=%h ";
        let line = format!("{t} UTC [4711]: user=alice,db=shop,app=a,client=b,client=[local] ");
        check(badger, &line, Some("alice"), 4711);
        let all = "%m|%u|%d|%c|%l|%i|%v|%x|%e|%Q|";
        let line = format!("{t}.606 UTC|a|d|6b01f509.1267|4|idle in transaction|0/2|0|00000|-12|");
        check(all, &line, Some("a"), 0x1267);
        let background = format!("{t}.606 UTC [4711] 6b01f509.1267  0 ");
        check("%m [%p] %c %v %x ", &background, None, 4711);
        check("%-6p%u|", "4711  alice|", Some("alice"), 4711);
        check("%6p|%-10u|", "  4711|alice     |", Some("alice"), 4711);
    }

    #[test]
    fn other_lines_do_not_match() {
        for line in ["", "LOG:  x", "2026-11-21 19:46:17 UTC [x] LOG:  y", "\tcontinued"] {
            assert!(matched("%m [%p] ", line).is_none(), "{line}");
        }
        assert_eq!(LinePrefix::parse("%m %y"), Err(PrefixError::Escape('y')));
        assert_eq!(LinePrefix::parse("%p %"), Err(PrefixError::Incomplete));
        assert!(!LinePrefix::parse("%m ").unwrap().has_session());
    }

    proptest! {
        #[test]
        fn no_line_makes_a_prefix_panic(prefix in "[%a-zA-Z0-9 |-]{0,20}", line in "[ -~\t0-9:]{0,200}") {
            if let Ok(prefix) = LinePrefix::parse(&prefix)
                && let Some(found) = prefix.matches(line.as_bytes(), |_| true)
            {
                prop_assert!(found.length <= line.len());
            }
        }
    }
}
