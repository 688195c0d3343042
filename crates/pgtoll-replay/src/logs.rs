//! Reads log files, one after the other, into a workload.

use std::io::Read;

use pgtoll_format::log::{
    Envelope, EnvelopeReader, LinePrefix, LogContent, LogError, LogReader, detect, detect_envelope,
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
    /// The path of the text in JSON objects; `None`: one of those that are in use.
    pub field: Option<&'a str>,
    /// The time of reading, in microseconds since 1970: times of syslog may have no year.
    pub read_us: i64,
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
    input: LogInput<'_>,
    reading: &LogReading<'_>,
    capture: &mut LogCapture,
    mut take: impl FnMut(u64, CapturedPart) -> Result<(), ReplayError>,
) -> Result<LogSource, ReplayError> {
    let name = input.name;
    let failed = |source| ReplayError::Read { name: name.clone(), source };
    let damaged = |source| ReplayError::Log { name: name.clone(), source };
    let named = reading.field.map(|_| Envelope::Json);
    let envelope = |sample: &[u8]| {
        let envelope = named.or_else(|| detect_envelope(sample))?;
        Some(envelope_reader(envelope, reading))
    };
    let mut content = LogContent::open(input.content, envelope).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES];
    let sample = fill(&mut content, &mut piece).map_err(failed)?;
    let envelope = content.envelope();
    if sample == 0 && envelope.is_none() {
        return Err(ReplayError::Empty { name });
    }
    check_envelope(envelope, reading, &name)?;
    let outer = envelope.map_or("", |reader| reader.envelope().prefix());
    let format = detect(&piece[..sample], outer, reading.prefix).map_err(damaged)?;
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
        check_envelope(content.envelope(), reading, &name)?;
        take(length as u64, capture.take_complete())?;
        length = content.read(&mut piece).map_err(failed)?;
    }
    reader.finish();
    take_entries(&mut reader, capture, &mut source).map_err(damaged)?;
    check_envelope(content.envelope(), reading, &name)?;
    source.foreign_lines = reader.foreign_lines();
    source.envelope = content.envelope().map(envelope_record);
    source.name = name;
    Ok(source)
}

const PIECE_BYTES: usize = 256 << 10;

fn envelope_reader(envelope: Envelope, reading: &LogReading<'_>) -> EnvelopeReader {
    EnvelopeReader::new(envelope)
        .of_server(reading.server.map(str::to_owned))
        .of_field(reading.field.map(str::to_owned))
        .read_at(reading.read_us)
}

/// Entries of several servers are not those of one, and backwards they are no workload.
fn check_envelope(
    envelope: Option<&EnvelopeReader>,
    reading: &LogReading<'_>,
    name: &str,
) -> Result<(), ReplayError> {
    let Some(envelope) = envelope else { return Ok(()) };
    if envelope.is_descending() {
        return Err(ReplayError::Descending { name: name.to_owned() });
    }
    let servers = &envelope.counts().servers;
    if reading.server.is_some() || servers.len() < 2 {
        return Ok(());
    }
    let servers = servers.keys().take(SERVERS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    Err(ReplayError::Servers { name: name.to_owned(), servers })
}

const SERVERS_SHOWN: usize = 10;

fn envelope_record(reader: &EnvelopeReader) -> LogEnvelope {
    let counts = reader.counts();
    LogEnvelope {
        form: reader.envelope().name().to_owned(),
        events: counts.events,
        foreign: counts.foreign,
        duplicates: counts.duplicates,
        reordered: counts.reordered,
        late: counts.late,
        damaged: counts.damaged,
        missing: counts.missing,
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
