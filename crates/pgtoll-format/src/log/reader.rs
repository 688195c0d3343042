//! From bytes in pieces of any length to entries.

use std::ops::Range;

use crate::log::stderr::{LineHead, StderrLine};
use crate::log::{LinePrefix, LogEntry, LogError, LogFields, csv, json, stderr};

/// The format of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `log_destination = stderr`, with the server's `log_line_prefix`.
    Stderr(LinePrefix),
    /// `log_destination = csvlog`, of all versions: 23 columns, 24 from 13, 26 from 14.
    Csv,
    /// `log_destination = jsonlog`, from 15.
    Json,
}

impl LogFormat {
    /// As `log_destination` has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stderr(_) => "stderr",
            Self::Csv => "csvlog",
            Self::Json => "jsonlog",
        }
    }

    /// Returns the fields of its entries.
    pub fn fields(&self) -> LogFields {
        match self {
            Self::Stderr(prefix) => prefix.fields(),
            Self::Csv | Self::Json => LogFields::ALL,
        }
    }
}

/// Reads a log: bytes are pushed, entries are taken until there is none.
#[derive(Debug)]
pub struct LogReader {
    format: LogFormat,
    buffer: Vec<u8>,
    /// The start of the next entry in the buffer.
    start: usize,
    /// Up to where the buffer was searched for the entry's end.
    scanned: usize,
    /// csvlog: whether `scanned` is within quotes.
    in_quotes: bool,
    /// The number of the line at `start`.
    line: u64,
    finished: bool,
    foreign_lines: u64,
    /// The columns of the entry that was returned last.
    columns: Vec<csv::Column>,
    /// stderr: the lines between `start` and `scanned`.
    lines: Vec<StderrLine>,
    /// stderr: of the line at `scanned`, where it has shown that the entry before it has ended. A prefix is
    /// what takes time: each line is matched once.
    next_head: Option<LineHead>,
}

impl LogReader {
    /// Reads a file of this format from its begin.
    pub fn new(format: LogFormat) -> Self {
        Self {
            format,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            in_quotes: false,
            line: 1,
            finished: false,
            foreign_lines: 0,
            columns: Vec::new(),
            lines: Vec::new(),
            next_head: None,
        }
    }

    /// Adds the file's next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The file has ended.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The format that it reads.
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    /// Lines of stderr that no entry has: of libraries, of memory contexts, of other programs.
    pub fn foreign_lines(&self) -> u64 {
        self.foreign_lines
    }

    /// The next entry; `None` until more bytes are pushed, or at the end. Behind an error it continues with
    /// the next line.
    pub fn next_entry(&mut self) -> Option<Result<LogEntry<'_>, LogError>> {
        let record = match self.take_record()? {
            Ok(record) => record,
            Err(error) => return Some(Err(error)),
        };
        let line = self.line;
        let bytes = &self.buffer[record.clone()];
        self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        if memchr::memchr(0, bytes).is_some() {
            return Some(Err(LogError::Binary { line }));
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let entry = match &self.format {
            LogFormat::Stderr(_) => stderr::parse(text, &self.lines, line, &mut self.foreign_lines),
            LogFormat::Csv => csv::parse(text, line, &mut self.columns),
            LogFormat::Json => json::parse(text, line),
        };
        Some(entry)
    }

    /// Returns the range of the next record in the buffer, with its last newline.
    fn take_record(&mut self) -> Option<Result<Range<usize>, LogError>> {
        let end = match &self.format {
            LogFormat::Json => self.end_of_line(),
            LogFormat::Csv => self.end_of_csv_record(),
            LogFormat::Stderr(_) => self.end_of_stderr_record(),
        };
        let line = self.line;
        let Some(end) = end else {
            if self.buffer.len() - self.start > RECORD_BYTES_MAX {
                self.skip_line();
                let reason = "an entry longer than 64 MB: is a quote missing?";
                return Some(Err(LogError::Damaged { line, reason }));
            }
            if !self.finished || self.start == self.buffer.len() {
                return None;
            }
            self.start = self.buffer.len();
            self.scanned = self.start;
            return Some(Err(LogError::Truncated { line }));
        };
        let record = self.start..end;
        self.start = end;
        self.scanned = end;
        self.in_quotes = false;
        Some(Ok(record))
    }

    /// Goes on behind the line at which an entry seemed to begin.
    fn skip_line(&mut self) {
        let rest = &self.buffer[self.start..];
        let length = memchr::memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
        self.start += length;
        self.scanned = self.start;
        self.in_quotes = false;
        self.lines.clear();
        self.line += 1;
    }

    fn end_of_line(&mut self) -> Option<usize> {
        let newline = memchr::memchr(b'\n', &self.buffer[self.scanned..]);
        let end = newline.map(|newline| self.scanned + newline + 1);
        self.scanned = end.unwrap_or(self.buffer.len());
        end
    }

    fn end_of_csv_record(&mut self) -> Option<usize> {
        let unscanned = &self.buffer[self.scanned..];
        for at in memchr::memchr2_iter(b'"', b'\n', unscanned) {
            if unscanned[at] == b'"' {
                self.in_quotes = !self.in_quotes;
            } else if !self.in_quotes {
                self.scanned += at + 1;
                return Some(self.scanned);
            }
        }
        self.scanned = self.buffer.len();
        None
    }

    /// Before the line with the next entry's prefix, or at the end.
    fn end_of_stderr_record(&mut self) -> Option<usize> {
        let LogFormat::Stderr(prefix) = &self.format else { return None };
        if self.scanned == self.start {
            self.lines.clear();
        }
        loop {
            let rest = &self.buffer[self.scanned..];
            let Some(newline) = memchr::memchr(b'\n', rest) else {
                let is_complete = self.finished && rest.is_empty() && self.scanned > self.start;
                // What precedes a last line without an end is complete, unless that continues it.
                let is_cut = self.finished && !rest.is_empty() && self.scanned > self.start;
                let ends_before = is_complete || (is_cut && !rest.starts_with(b"\t"));
                return ends_before.then_some(self.scanned);
            };
            let line = &rest[..newline];
            let begin = self.scanned - self.start;
            let continues = line.starts_with(b"\t");
            let head = match self.next_head.take() {
                Some(head) => Some(head),
                None if continues => None,
                None => stderr::head(line, prefix),
            };
            let begins = head.as_ref().is_some_and(LineHead::begins_entry);
            if begins && begin > 0 {
                self.next_head = head;
                return Some(self.scanned);
            }
            self.scanned += newline + 1;
            match self.lines.last_mut() {
                Some(last) if continues => last.range.end = begin + newline,
                Some(_) => self.lines.push(StderrLine { range: begin..begin + newline, head }),
                None if begins => {
                    self.lines.push(StderrLine { range: begin..begin + newline, head });
                }
                // A file may begin within an entry.
                None => {
                    self.start = self.scanned;
                    self.line += 1;
                    self.foreign_lines += 1;
                }
            }
        }
    }
}

/// A statement with its parameters; the server itself cuts nothing.
const RECORD_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::LogMessage;

    const STDERR: &str = "\tthe end of an entry that began before\n\
        2026-11-21 19:46:17.796 UTC [47] alice@shop LOG:  execute p: select $1,\n\t\t'x'\n\
        2026-11-21 19:46:17.796 UTC [47] alice@shop DETAIL:  Parameters: $1 = '1'\n\
        TopMemoryContext: 1 total\n\
        2026-11-21 19:46:17.797 UTC [47] alice@shop ERROR:  division by zero\n\
        2026-11-21 19:46:17.797 UTC [47] alice@shop STATEMENT:  select 1/0\n\
        2026-11-21 19:46:18.000 UTC [40] LOG:  checkpoint starting: time\n";
    const CSV: &str = "2026-11-21 19:46:14.936 UTC,\"postgres\",\"shop\",23515,\"[local]\",\
        6b01f506.5bdb,5,\"idle\",2026-11-21 19:46:14 UTC,3/3,0,LOG,00000,\"statement: select 1;\n\
        select \"\"a\"\",\n2\",,,,,,,,,\"zoo\",\"client backend\",,0\n";
    const JSON: &str = "{\"timestamp\":\"2026-11-21 19:46:17.776 UTC\",\"user\":\"a\",\"dbname\":\"b\",\
        \"pid\":23655,\"session_id\":\"6b01f509.5c67\",\"vxid\":\"0/1\",\"txid\":0,\
        \"error_severity\":\"LOG\",\"message\":\"statement: select \\\"a\\\"\"}\n";

    fn format(name: &str) -> LogFormat {
        match name {
            "csv" => LogFormat::Csv,
            "json" => LogFormat::Json,
            _ => LogFormat::Stderr(LinePrefix::parse("%m [%p] %q%u@%d ").unwrap()),
        }
    }

    /// All that is read, in pieces of this length: entries and errors as text.
    fn read(format: LogFormat, bytes: &[u8], piece: usize) -> (Vec<String>, u64) {
        let mut reader = LogReader::new(format);
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            while let Some(entry) = reader.next_entry() {
                found.push(format!("{entry:?}"));
            }
        }
        reader.finish();
        while let Some(entry) = reader.next_entry() {
            found.push(format!("{entry:?}"));
        }
        (found, reader.foreign_lines())
    }

    #[test]
    fn entries_of_stderr_have_their_details() {
        let mut reader = LogReader::new(format("stderr"));
        reader.push(STDERR.as_bytes());
        reader.finish();
        let entry = reader.next_entry().unwrap().unwrap();
        let sql = &b"select $1,\n\t'x'"[..];
        assert_eq!(entry.kind(), LogMessage::Execute { name: b"p", sql, is_fetch: false });
        assert_eq!((entry.line, entry.user.as_deref()), (2, Some(&b"alice"[..])));
        assert_eq!(entry.detail.as_deref(), Some(&b"Parameters: $1 = '1'"[..]));
        let entry = reader.next_entry().unwrap().unwrap();
        assert!(entry.is_error());
        assert_eq!((entry.line, entry.statement.as_deref()), (6, Some(&b"select 1/0"[..])));
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!((entry.line, entry.user), (8, None));
        assert!(reader.next_entry().is_none());
        assert_eq!(reader.foreign_lines(), 2);
    }

    #[test]
    fn lines_of_stderr_may_end_in_a_carriage_return() {
        let mut reader = LogReader::new(format("stderr"));
        reader.push(STDERR.replace('\n', "\r\n").as_bytes());
        reader.finish();
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!(entry.detail.as_deref(), Some(&b"Parameters: $1 = '1'\r"[..]));
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!(entry.statement.as_deref(), Some(&b"select 1/0"[..]));
    }

    #[test]
    fn quotes_are_single_in_csv_and_json() {
        let message = |name, text: &str| {
            let mut reader = LogReader::new(format(name));
            reader.push(text.as_bytes());
            let entry = reader.next_entry().unwrap().unwrap();
            String::from_utf8(entry.message.into_owned()).unwrap()
        };
        assert_eq!(message("csv", CSV), "statement: select 1;\nselect \"a\",\n2");
        assert_eq!(message("json", JSON), "statement: select \"a\"");
    }

    #[test]
    fn logs_that_end_anywhere_end_in_what_is_whole() {
        for (name, text) in [("stderr", STDERR), ("csv", CSV), ("json", JSON)] {
            let text = text.repeat(2);
            for length in 0..text.len() {
                let part = &text.as_bytes()[..length];
                let (found, _) = read(format(name), part, 7);
                let errors = found.iter().filter(|item| item.starts_with("Err")).count();
                let is_truncated =
                    found.iter().all(|item| item.starts_with("Ok") || item.contains("Truncated"));
                assert!(errors <= 1 && is_truncated, "{name} {length}: {found:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            name in prop::sample::select(&["stderr", "csv", "json"][..]),
            cut in any::<prop::sample::Index>(),
            noise in "[ -~\n\t\"]{0,40}",
            piece in 1_usize..60,
        ) {
            let text = [STDERR, CSV, JSON].concat();
            let mut bytes = text.into_bytes();
            let at = cut.index(bytes.len());
            bytes.splice(at..at, noise.bytes());
            let whole = read(format(name), &bytes, bytes.len());
            prop_assert_eq!(read(format(name), &bytes, piece), whole);
        }
    }
}
