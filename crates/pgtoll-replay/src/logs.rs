//! Reads log files, one after the other, into a workload.

use std::io::Read;

use pgtoll_format::log::{
    EnvelopeReader, LinePrefix, LogError, LogReader, detect, detect_envelope,
};
use pgtoll_record::{LogEnvelope, LogSource};

use crate::capture::{CapturedPart, LogCapture};
use crate::workload::{CapturedWorkload, PlanHeader};
use crate::{ReplayError, describe};

/// A log file.
pub struct LogInput<'a> {
    /// Its name, for messages and the plan.
    pub name: String,
    /// Its content, unpacked.
    pub content: Box<dyn Read + 'a>,
}

impl std::fmt::Debug for LogInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogInput").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How logs are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogReading<'a> {
    /// The server's `log_line_prefix`; `None`: one of those that are in use.
    pub prefix: Option<&'a LinePrefix>,
    /// The server, where an envelope has events of several.
    pub server: Option<&'a str>,
}

/// Reads logs in the order in which they are given: a server's rotated files, the oldest first.
///
/// `progress` is called now and then with the bytes that were read.
pub fn read_logs<'a>(
    inputs: impl IntoIterator<Item = LogInput<'a>>,
    reading: &LogReading<'_>,
    progress: impl FnMut(u64),
) -> Result<CapturedWorkload, ReplayError> {
    let mut sessions = Vec::new();
    let mut steps = Vec::new();
    let take = |part: CapturedPart| {
        sessions.extend(part.sessions);
        steps.extend(part.steps);
        Ok(())
    };
    let header = read_logs_in_parts(inputs, reading, take, progress)?;
    // A capture numbers its sessions and gives steps their numbers.
    Ok(CapturedWorkload::of_parts(header, sessions, steps).unwrap_or_default())
}

/// As [`read_logs`], but hands over what is complete while it reads, and keeps nothing of it.
///
/// It holds the last step of each session that is open in the log ([`LogCapture`]), the longest entry
/// (64 MB at most), and what 256 KB of log have: the memory does not grow with the length of the log.
pub fn read_logs_in_parts<'a>(
    inputs: impl IntoIterator<Item = LogInput<'a>>,
    reading: &LogReading<'_>,
    mut take: impl FnMut(CapturedPart) -> Result<(), ReplayError>,
    mut progress: impl FnMut(u64),
) -> Result<PlanHeader, ReplayError> {
    let mut capture = LogCapture::new();
    let mut sources = Vec::new();
    let mut bytes = 0;
    for input in inputs {
        let source = read_log(input, reading, &mut capture, |more, part| {
            bytes += more;
            progress(bytes);
            take(part)
        })?;
        sources.push(source);
    }
    let begin_us = capture.begin_us();
    let length_us = capture.length_us();
    let (part, counts) = capture.finish();
    take(part)?;
    Ok(PlanHeader { sources, begin_us, length_us, counts, ..PlanHeader::default() })
}

/// Checks the uses of a plan's logs; an error if nothing can be replayed.
pub fn check(header: &PlanHeader) -> Result<Vec<pgtoll_record::LogFinding>, ReplayError> {
    let counts = &header.counts;
    if counts.statements == 0 {
        return Err(ReplayError::NoStatements { entries: counts.entries });
    }
    if let Some(wire) = &header.wire {
        return Ok(crate::wire_capture::findings(counts, wire));
    }
    Ok(describe::findings(counts))
}

fn read_log(
    mut input: LogInput<'_>,
    reading: &LogReading<'_>,
    capture: &mut LogCapture,
    mut take: impl FnMut(u64, CapturedPart) -> Result<(), ReplayError>,
) -> Result<LogSource, ReplayError> {
    let name = input.name;
    let failed = |source| ReplayError::Read { name: name.clone(), source };
    let damaged = |source| ReplayError::Log { name: name.clone(), source };
    let mut piece = vec![0; PIECE_BYTES];
    let sample = fill(&mut *input.content, &mut piece).map_err(failed)?;
    if sample == 0 {
        return Err(ReplayError::Empty { name });
    }
    let mut content = LogContent::open(input.content, &piece[..sample], reading.server);
    let sample = fill(&mut content, &mut piece).map_err(failed)?;
    content.check_servers(&name)?;
    let format = detect(&piece[..sample], reading.prefix).map_err(damaged)?;
    let mut source = LogSource {
        format: format.name().to_owned(),
        prefix: match &format {
            pgtoll_format::log::LogFormat::Stderr(prefix) => Some(prefix.text().to_owned()),
            _ => None,
        },
        ..LogSource::default()
    };
    let mut reader = LogReader::new(format);
    let mut length = sample;
    while length > 0 {
        source.bytes += length as u64;
        reader.push(&piece[..length]);
        take_entries(&mut reader, capture, &mut source).map_err(damaged)?;
        take(length as u64, capture.take_complete())?;
        length = content.read(&mut piece).map_err(failed)?;
    }
    reader.finish();
    take_entries(&mut reader, capture, &mut source).map_err(damaged)?;
    content.check_servers(&name)?;
    source.foreign_lines = reader.foreign_lines();
    source.envelope = content.envelope();
    source.name = name;
    Ok(source)
}

const PIECE_BYTES: usize = 256 << 10;

/// A log's own bytes, out of the envelope that they are in.
struct LogContent<'a> {
    content: Box<dyn Read + 'a>,
    envelope: Option<EnvelopeReader>,
    has_server: bool,
    /// Bytes that were taken and not yet read.
    ready: Vec<u8>,
    start: usize,
}

impl<'a> LogContent<'a> {
    /// Opens a log that begins with the bytes of `sample`, which were read.
    fn open(content: Box<dyn Read + 'a>, sample: &[u8], server: Option<&str>) -> Self {
        let envelope = detect_envelope(sample).map(EnvelopeReader::new);
        let mut envelope = envelope.map(|reader| reader.of_server(server.map(str::to_owned)));
        let ready = match &mut envelope {
            Some(reader) => {
                reader.push(sample);
                Vec::new()
            }
            None => sample.to_vec(),
        };
        Self { content, envelope, has_server: server.is_some(), ready, start: 0 }
    }

    /// Entries of several servers are not those of one.
    fn check_servers(&self, name: &str) -> Result<(), ReplayError> {
        let Some(envelope) = &self.envelope else { return Ok(()) };
        let servers = &envelope.counts().servers;
        if self.has_server || servers.len() < 2 {
            return Ok(());
        }
        let servers = servers.keys().take(SERVERS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        Err(ReplayError::Servers { name: name.to_owned(), servers })
    }

    fn envelope(&self) -> Option<LogEnvelope> {
        let reader = self.envelope.as_ref()?;
        let counts = reader.counts();
        Some(LogEnvelope {
            form: reader.envelope().name().to_owned(),
            events: counts.events,
            foreign: counts.foreign,
            duplicates: counts.duplicates,
            reordered: counts.reordered,
            late: counts.late,
            damaged: counts.damaged,
        })
    }
}

const SERVERS_SHOWN: usize = 10;

impl Read for LogContent<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        while self.start == self.ready.len() {
            let Some(envelope) = &mut self.envelope else { return self.content.read(bytes) };
            self.ready.clear();
            self.start = 0;
            envelope.take(&mut self.ready);
            if !self.ready.is_empty() {
                break;
            }
            if envelope.is_finished() {
                return Ok(0);
            }
            let mut piece = vec![0; PIECE_BYTES];
            match self.content.read(&mut piece)? {
                0 => envelope.finish(),
                length => envelope.push(&piece[..length]),
            }
        }
        let length = bytes.len().min(self.ready.len() - self.start);
        bytes[..length].copy_from_slice(&self.ready[self.start..self.start + length]);
        self.start += length;
        Ok(length)
    }
}

/// Reads until the piece is full or the content ends.
fn fill(content: &mut dyn Read, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < piece.len() {
        match content.read(&mut piece[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

fn take_entries(
    reader: &mut LogReader,
    capture: &mut LogCapture,
    source: &mut LogSource,
) -> Result<(), LogError> {
    while let Some(entry) = reader.next_entry() {
        match entry {
            Ok(entry) => {
                source.entries += 1;
                capture.add(&entry);
            }
            // As a crash leaves it.
            Err(LogError::Truncated { .. }) => source.is_truncated = true,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
