//! Envelopes: the forms in which collectors and providers hand over a server's log.
//!
//! A reader takes the bytes of an export and gives those of the server's own log, `stderr` lines or `jsonlog`,
//! for [`LogReader`](crate::log::LogReader). Events are put in the order of their times as far as a window
//! of them reaches; duplicates in it are dropped.
//!
//! ```
//! use pgtoll_format::log::{EnvelopeReader, detect_envelope};
//!
//! let export = br#"{"events":[{"timestamp":1,"message":"2026-11-29 10:00:00 UTC [7] LOG:  statement: select 1"}]}"#;
//! let mut reader = EnvelopeReader::new(detect_envelope(export).expect("an envelope"));
//! reader.push(export);
//! reader.finish();
//! let mut log = Vec::new();
//! reader.take(&mut log);
//! assert_eq!(log, b"2026-11-29 10:00:00 UTC [7] LOG:  statement: select 1\n");
//! ```

mod container;
mod content;
mod json;
mod order;
mod syslog;

pub use content::LogContent;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use json::JsonScanner;
use order::OrderWindow;
use syslog::{Joint, SyslogChunk, SyslogLine};

use crate::log::time::timestamp;

/// A form of export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// JSON objects: one a line, an array of them, or the documents of CloudWatch.
    Json,
    /// Lines of a container runtime (CRI): a time, the stream, `F` or `P`, the server's line.
    Container,
    /// A time as in RFC 3339, a space, the server's line: exports of CloudWatch to S3.
    TimedLines,
    /// Lines of syslog, as `rsyslogd`, `syslog-ng` and `journalctl` write them.
    Syslog,
}

impl Envelope {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON events",
            Self::Container => "container log",
            Self::TimedLines => "lines with a time",
            Self::Syslog => "syslog",
        }
    }

    /// The prefix that it puts before each line of the server, and so before the server's `log_line_prefix`.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Syslog => syslog::PREFIX,
            Self::Json | Self::Container | Self::TimedLines => "",
        }
    }
}

/// The envelope of a log by its first bytes; `None`: it has none, or one that is unknown.
pub fn detect_envelope(sample: &[u8]) -> Option<Envelope> {
    let begin = sample.trim_ascii_start();
    if begin.starts_with(b"{") || begin.starts_with(b"[") {
        return json::has_events(begin).then_some(Envelope::Json);
    }
    let line = begin.split(|byte| *byte == b'\n').next()?;
    if container::parse(line).is_some() {
        return Some(Envelope::Container);
    }
    if syslog::has_server(begin) {
        return Some(Envelope::Syslog);
    }
    timed(line).map(|_| Envelope::TimedLines)
}

/// Counts of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvelopeCounts {
    /// Events whose text was handed over.
    pub events: u64,
    /// Events of other programs, or without a message.
    pub foreign: u64,
    /// Events that came twice.
    pub duplicates: u64,
    /// Events that came later than one of a later time, and were put in their place.
    pub reordered: u64,
    /// Events that came too late for that.
    pub late: u64,
    /// Events that are cut or are no JSON.
    pub damaged: u64,
    /// Messages that the sequence numbers of syslog show to be missing.
    pub missing: u64,
    /// Events by the server that sent them, as the envelope names it.
    pub servers: BTreeMap<String, u64>,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// Nanoseconds since 1970.
    pub(crate) time_ns: Option<i64>,
    pub(crate) server: Option<Cow<'a, str>>,
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) text: Cow<'a, [u8]>,
    /// The next event of the same stream continues its text.
    pub(crate) is_part: bool,
}

/// From bytes of an export, in pieces of any length, to those of the server's log.
#[derive(Debug)]
pub struct EnvelopeReader {
    envelope: Envelope,
    buffer: Vec<u8>,
    /// The start of what is not yet taken.
    start: usize,
    scanner: JsonScanner,
    finished: bool,
    /// Events of other servers are left out.
    server: Option<String>,
    window: OrderWindow,
    /// The parts of a text before its last, by stream.
    parts: BTreeMap<String, Vec<u8>>,
    last_time_ns: i64,
    /// The time at which the export is read, in microseconds since 1970.
    read_us: i64,
    /// The last sequence number of each process.
    sequences: HashMap<Stream, u64>,
    /// A single number is that of a piece, not of a message.
    has_pieces_only: bool,
    /// The path of the text in JSON objects; `None`: one of those that are in use.
    field: Option<String>,
    counts: EnvelopeCounts,
}

/// A process, and its server.
type Stream = (u32, String);

/// Processes beyond these are forgotten.
const STREAMS_MAX: usize = 100_000;
/// Servers beyond these are not counted by name.
const SERVERS_MAX: usize = 1000;
/// Parts that no end follows are given up.
const PART_BYTES_MAX: usize = 64 << 20;

impl EnvelopeReader {
    /// Reads an export from its begin.
    pub fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            buffer: Vec::new(),
            start: 0,
            scanner: JsonScanner::default(),
            finished: false,
            server: None,
            window: OrderWindow::default(),
            parts: BTreeMap::new(),
            last_time_ns: i64::MIN,
            read_us: 0,
            sequences: HashMap::new(),
            has_pieces_only: false,
            field: None,
            counts: EnvelopeCounts::default(),
        }
    }

    /// Takes only events of this server.
    #[must_use]
    pub fn of_server(mut self, server: Option<String>) -> Self {
        self.server = server;
        self
    }

    /// Takes the text of JSON objects at this path: `kubernetes.log`, or `/a.b/c` where keys have points.
    #[must_use]
    pub fn of_field(mut self, field: Option<String>) -> Self {
        self.field = field;
        self
    }

    /// Sets the time at which the export is read, in microseconds since 1970: times of RFC 3164 have no year.
    #[must_use]
    pub fn read_at(mut self, read_us: i64) -> Self {
        self.read_us = read_us;
        self
    }

    /// Whether events come newest first, and are more than can be put in order.
    pub fn is_descending(&self) -> bool {
        self.counts.late > 1000 && self.counts.late > self.counts.events / 8
    }

    /// Adds the export's next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The export has ended.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether the export has ended.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The form that it reads.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// The counts so far.
    pub fn counts(&self) -> &EnvelopeCounts {
        &self.counts
    }

    /// Appends what is complete of the server's log.
    pub fn take(&mut self, log: &mut Vec<u8>) {
        match self.envelope {
            Envelope::Json => self.take_objects(log),
            Envelope::Container | Envelope::TimedLines | Envelope::Syslog => self.take_lines(log),
        }
        if self.finished {
            self.counts.damaged += self.parts.len() as u64;
            self.parts.clear();
            self.window.drain(&mut self.counts, log);
        }
    }

    fn take_objects(&mut self, log: &mut Vec<u8>) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut scanner = std::mem::take(&mut self.scanner);
        while let Some(object) = scanner.next_object(&buffer[self.start..]) {
            let object = self.start + object.start..self.start + object.end;
            match json::parse(&buffer[object], self.field.as_deref()) {
                Ok(Some(event)) => self.take_event(event, log),
                Ok(None) => self.counts.foreign += 1,
                Err(()) => self.counts.damaged += 1,
            }
        }
        self.counts.damaged += scanner.take_damaged(self.finished);
        self.start += scanner.forget();
        self.buffer = buffer;
        self.scanner = scanner;
    }

    fn take_lines(&mut self, log: &mut Vec<u8>) {
        let buffer = std::mem::take(&mut self.buffer);
        loop {
            let rest = &buffer[self.start..];
            let (line, length) = match memchr::memchr(b'\n', rest) {
                Some(newline) => (&rest[..newline], newline + 1),
                None if self.finished && !rest.is_empty() => (rest, rest.len()),
                None => break,
            };
            self.start += length;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let event = match self.envelope {
                Envelope::Container => container::parse(line),
                Envelope::Syslog => match syslog::parse(line, self.read_us) {
                    Some(line) => {
                        self.take_syslog(&line, log);
                        continue;
                    }
                    None => None,
                },
                _ => timed(line),
            };
            match event {
                Some(event) => self.take_event(event, log),
                // It continues the line before.
                None if self.envelope == Envelope::TimedLines => {
                    let time_ns = Some(self.last_time_ns);
                    let text = Cow::Borrowed(line);
                    let event = Event { time_ns, server: None, id: None, text, is_part: false };
                    self.take_event(event, log);
                }
                None if line.is_empty() => {}
                None => self.counts.damaged += 1,
            }
        }
        self.buffer = buffer;
    }

    /// Counts an event of a server; whether it is taken.
    fn is_wanted(&mut self, server: Option<&str>) -> bool {
        if let Some(server) = server {
            let servers = &mut self.counts.servers;
            if let Some(count) = servers.get_mut(server) {
                *count += 1;
            } else if servers.len() < SERVERS_MAX {
                servers.insert(server.to_owned(), 1);
            }
        }
        let is_wanted = self.server.is_none() || self.server.as_deref() == server;
        self.counts.foreign += u64::from(!is_wanted);
        is_wanted
    }

    /// Joins the pieces of a message where its first one waits.
    fn take_syslog(&mut self, line: &SyslogLine<'_>, log: &mut Vec<u8>) {
        let Some(chunk) = &line.chunk else {
            self.counts.foreign += 1;
            return;
        };
        if !self.is_wanted(Some(&line.host)) {
            return;
        }
        let stream = (chunk.pid, line.host.to_string());
        // A process numbers one message as its first.
        self.has_pieces_only |= chunk.sequence.is_none()
            && chunk.number == Some(1)
            && self.sequences.contains_key(&stream);
        let joint = chunk.joint(self.window.last_piece(&stream), self.has_pieces_only);
        let mut text = match joint {
            Joint::New | Joint::Same => Vec::new(),
            Joint::Line | Joint::PrefixedLine => vec![b'\n'],
        };
        let has_prefix = matches!(joint, Joint::New | Joint::PrefixedLine);
        chunk.write(line.time_ns, has_prefix, &mut text);
        let piece = (chunk.number.unwrap_or(1), chunk.text.len());
        self.count_missing(&stream, joint, chunk);
        if joint != Joint::New {
            // Where messages have no number, the next piece is known by its own.
            let next = chunk.sequence.and(chunk.number);
            if !self.window.append(&stream, next, piece, &text) {
                self.counts.damaged += 1;
            }
            return;
        }
        let counts = &mut self.counts;
        self.window.push(line.time_ns, None, Some((stream, piece)), &text, counts, log);
    }

    /// A message of one piece has its own number alone; so has a piece of a message without one.
    fn count_missing(&mut self, stream: &Stream, joint: Joint, chunk: &SyslogChunk<'_>) {
        let Some(number) = chunk.sequence.or(chunk.number) else { return };
        if self.sequences.len() >= STREAMS_MAX {
            self.sequences.clear();
        }
        let last = self.sequences.insert(stream.clone(), number).filter(|_| joint == Joint::New);
        // A lower one is of another process with the same id.
        self.counts.missing += last.map_or(0, |last| number.saturating_sub(last.saturating_add(1)));
    }

    fn take_event(&mut self, event: Event<'_>, log: &mut Vec<u8>) {
        if !self.is_wanted(event.server.as_deref()) {
            return;
        }
        let stream = event.server.as_deref().unwrap_or_default();
        let mut text = event.text;
        if event.is_part {
            let part = self.parts.entry(stream.to_owned()).or_default();
            part.extend_from_slice(&text);
            if part.len() > PART_BYTES_MAX {
                self.parts.remove(stream);
                self.counts.damaged += 1;
            }
            return;
        }
        if let Some(mut part) = self.parts.remove(stream) {
            part.extend_from_slice(&text);
            text = Cow::Owned(part);
        }
        let time_ns = event.time_ns.unwrap_or(self.last_time_ns);
        self.last_time_ns = time_ns;
        let counts = &mut self.counts;
        self.window.push(time_ns, event.id.as_deref(), None, &text, counts, log);
    }
}

/// `2026-11-29T10:00:00.123Z message`.
fn timed(line: &[u8]) -> Option<Event<'_>> {
    let space = memchr::memchr(b' ', line.get(..line.len().min(40))?)?;
    let time_ns = rfc3339_ns(&line[..space])?;
    let text = Cow::Borrowed(&line[space + 1..]);
    Some(Event { time_ns: Some(time_ns), server: None, id: None, text, is_part: false })
}

/// Nanoseconds since 1970 of `2026-11-29T10:00:00.123456789Z`, `…+01:00` or `…+0100`.
pub(crate) fn rfc3339_ns(text: &[u8]) -> Option<i64> {
    let mut fixed: [u8; 19] = text.get(..19)?.try_into().ok()?;
    if !matches!(fixed[10], b'T' | b't') {
        return None;
    }
    fixed[10] = b' ';
    let (time_us, _) = timestamp(&fixed)?;
    let rest = &text[19..];
    let digits = rest.strip_prefix(b".").unwrap_or_default();
    let digits = &digits[..digits.iter().take_while(|byte| byte.is_ascii_digit()).count()];
    let fraction = digits.iter().chain(b"000000000").take(9);
    let fraction_ns = fraction.fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    let zone = &rest[if digits.is_empty() { 0 } else { digits.len() + 1 }..];
    let two = |tens: u8, ones: u8| {
        let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
        is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
    };
    let offset_s = match *zone {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] | [sign @ (b'+' | b'-'), a, b, c, d] => {
            let offset = two(a, b)? * 3600 + two(c, d)? * 60;
            if sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    // Until the year 2262.
    time_us.checked_mul(1000)?.checked_add(fraction_ns - offset_s * 1_000_000_000)
}

#[cfg(test)]
mod tests;
