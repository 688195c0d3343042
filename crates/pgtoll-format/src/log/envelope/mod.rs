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
mod json;
mod order;

use std::borrow::Cow;
use std::collections::BTreeMap;

use json::JsonScanner;
use order::OrderWindow;

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
}

impl Envelope {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON events",
            Self::Container => "container log",
            Self::TimedLines => "lines with a time",
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
    counts: EnvelopeCounts,
}

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
            counts: EnvelopeCounts::default(),
        }
    }

    /// Takes only events of this server.
    #[must_use]
    pub fn of_server(mut self, server: Option<String>) -> Self {
        self.server = server;
        self
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
            Envelope::Container | Envelope::TimedLines => self.take_lines(log),
        }
        if self.finished {
            self.counts.damaged += self.parts.len() as u64;
            self.parts.clear();
            self.window.drain(log);
        }
    }

    fn take_objects(&mut self, log: &mut Vec<u8>) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut scanner = std::mem::take(&mut self.scanner);
        while let Some(object) = scanner.next_object(&buffer[self.start..]) {
            let object = self.start + object.start..self.start + object.end;
            match json::parse(&buffer[object]) {
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

    fn take_event(&mut self, event: Event<'_>, log: &mut Vec<u8>) {
        if let Some(server) = event.server.as_deref() {
            let servers = &mut self.counts.servers;
            if let Some(count) = servers.get_mut(server) {
                *count += 1;
            } else if servers.len() < SERVERS_MAX {
                servers.insert(server.to_owned(), 1);
            }
        }
        if self.server.is_some() && self.server.as_deref() != event.server.as_deref() {
            self.counts.foreign += 1;
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
        self.window.push(time_ns, event.id.as_deref(), &text, counts, log);
    }
}

/// `2026-11-29T10:00:00.123Z message`.
fn timed(line: &[u8]) -> Option<Event<'_>> {
    let space = memchr::memchr(b' ', line.get(..line.len().min(40))?)?;
    let time_ns = rfc3339_ns(&line[..space])?;
    let text = Cow::Borrowed(&line[space + 1..]);
    Some(Event { time_ns: Some(time_ns), server: None, id: None, text, is_part: false })
}

/// Nanoseconds since 1970 of `2026-11-29T10:00:00.123456789Z` or `…+01:00`.
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
    let offset_s = match zone {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), hours @ .., b':', tens, ones] if hours.len() == 2 => {
            let two = |tens: u8, ones: u8| {
                let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
                is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
            };
            let offset = two(hours[0], hours[1])? * 3600 + two(*tens, *ones)? * 60;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    // Until the year 2262.
    time_us.checked_mul(1000)?.checked_add(fraction_ns - offset_s * 1_000_000_000)
}

#[cfg(test)]
mod tests;
