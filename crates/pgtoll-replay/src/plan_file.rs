//! A plan as a file: a line that says what it is, then JSON lines, packed with zstd.
//!
//! It has the statements and values of the log, so it is as confidential as the log. With values replaced it
//! still has statements, roles and databases, and says so.
//!
//! Lines are in any order but for the last one, so that a plan is written while a log is read.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};

use crate::ReplayError;
use crate::capture::CapturedPart;
use crate::workload::{CapturedSession, CapturedStep, CapturedWorkload, PlanHeader};

/// The first line of a plan, up to its version.
const MAGIC: &str = "pgtoll-replay-plan/1 confidential: statements and values of a server's log\n";
/// As before, of a plan without values.
const MAGIC_REDACTED: &str =
    "pgtoll-replay-plan/1 confidential: statements of a server's log, their values replaced\n";

/// A line of a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanLine {
    /// The last one counts: a capture writes one at its begin and one at its end.
    Header(Box<PlanHeader>),
    /// The number is that of the line among those of sessions.
    Session(CapturedSession),
    NumberedSession {
        number: u32,
        session: CapturedSession,
    },
    Step(CapturedStep),
    /// A session whose line was written before it was over.
    SessionEnd {
        session: u32,
        end_us: u64,
        end: u64,
    },
    /// The last one: a plan without it is not whole.
    End {
        sessions: u64,
        steps: u64,
    },
}

/// Writes a plan while its parts come in; nothing of them is kept.
pub struct PlanWriter<W: Write> {
    packed: zstd::stream::write::Encoder<'static, W>,
    redacted: bool,
    sessions: u64,
    steps: u64,
}

impl<W: Write> std::fmt::Debug for PlanWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sessions, steps, redacted, .. } = self;
        let mut debug_struct = f.debug_struct("PlanWriter");
        debug_struct.field("sessions", sessions).field("steps", steps).field("redacted", redacted);
        debug_struct.finish_non_exhaustive()
    }
}

impl<W: Write> PlanWriter<W> {
    /// Begins a plan. `redacted` only marks it: the values are replaced by [`crate::Redactor`].
    pub fn new(mut into: W, redacted: bool) -> io::Result<Self> {
        into.write_all(if redacted { MAGIC_REDACTED } else { MAGIC }.as_bytes())?;
        let packed = zstd::stream::write::Encoder::new(into, 3)?;
        Ok(Self { packed, redacted, sessions: 0, steps: 0 })
    }

    /// Adds sessions and steps.
    pub fn add(&mut self, part: CapturedPart) -> io::Result<()> {
        for (number, session) in part.sessions {
            self.line(&PlanLine::NumberedSession { number, session })?;
        }
        for step in part.steps {
            self.line(&PlanLine::Step(step))?;
        }
        Ok(())
    }

    /// Ends the plan: without that it cannot be read.
    pub fn finish(mut self, header: &PlanHeader) -> io::Result<()> {
        let redacted = self.redacted || header.redacted;
        let header = PlanHeader { redacted, ..header.clone() };
        self.line(&PlanLine::Header(Box::new(header)))?;
        self.end()
    }

    pub(crate) fn line(&mut self, line: &PlanLine) -> io::Result<()> {
        let is_session = matches!(line, PlanLine::Session(_) | PlanLine::NumberedSession { .. });
        self.sessions += u64::from(is_session);
        self.steps += u64::from(matches!(line, PlanLine::Step(_)));
        serde_json::to_writer(&mut self.packed, line)?;
        self.packed.write_all(b"\n")
    }

    /// Packs what was written until now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.packed.flush()
    }

    /// Writes the last line.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let sessions = self.sessions;
        let steps = self.steps;
        self.line(&PlanLine::End { sessions, steps })?;
        self.packed.finish()?.flush()
    }
}

impl CapturedWorkload {
    /// Writes the plan.
    pub fn write(&self, into: impl Write) -> io::Result<()> {
        let mut writer = PlanWriter::new(into, self.header.redacted)?;
        for (number, session) in (0..).zip(&self.sessions) {
            let sessions = vec![(number, session.clone())];
            writer.add(CapturedPart { sessions, steps: Vec::new() })?;
        }
        for step in &self.steps {
            writer.add(CapturedPart { sessions: Vec::new(), steps: vec![step.clone()] })?;
        }
        writer.finish(&self.header)
    }

    /// Reads a plan.
    pub fn read(from: impl Read) -> Result<Self, ReplayError> {
        let mut from = BufReader::new(from);
        let broken = |line, reason: String| ReplayError::Plan { line, reason };
        let mut magic = Vec::new();
        let longest = MAGIC.len().max(MAGIC_REDACTED.len()) as u64;
        let read = (&mut from).take(longest).read_until(b'\n', &mut magic);
        let is_plan = [MAGIC, MAGIC_REDACTED].iter().any(|item| item.as_bytes() == magic);
        if read.is_err() || !is_plan {
            return Err(broken(0, "not a plan of this version of pgtoll".to_owned()));
        }
        let unpacked = zstd::stream::read::Decoder::with_buffer(from)
            .map_err(|error| broken(1, error.to_string()))?;
        let mut lines = BufReader::new(unpacked);
        let mut header = PlanHeader::default();
        let mut sessions = Vec::new();
        let mut steps = Vec::new();
        let mut ends = Vec::new();
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            let mut limited = (&mut lines).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut text);
            read.map_err(|error| broken(number, error.to_string()))?;
            if !text.ends_with(b"\n") {
                return Err(broken(number, "the plan ends here, and is not whole".to_owned()));
            }
            let line: PlanLine =
                serde_json::from_slice(&text).map_err(|error| broken(number, error.to_string()))?;
            match line {
                PlanLine::Header(read) => header = *read,
                PlanLine::Session(session) => {
                    let next = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
                    sessions.push((next, session));
                }
                PlanLine::NumberedSession { number, session } => sessions.push((number, session)),
                PlanLine::Step(step) => steps.push(step),
                PlanLine::SessionEnd { session, end_us, end } => {
                    ends.push((session, end_us, end, number));
                }
                PlanLine::End { sessions: sessions_written, steps: steps_written } => {
                    let counts = (sessions.len() as u64, steps.len() as u64);
                    if counts != (sessions_written, steps_written) {
                        return Err(broken(number, "lines are missing".to_owned()));
                    }
                    // A plan that is marked as one without values is not executed as one with them.
                    header.redacted |= magic == MAGIC_REDACTED.as_bytes();
                    let mut workload = Self::of_parts(header, sessions, steps)
                        .ok_or_else(|| broken(number, "a step without a session".to_owned()))?;
                    for (session, end_us, end, number) in ends {
                        let found = workload.sessions.get_mut(session as usize);
                        let missing = || broken(number, "the end of no session".to_owned());
                        let session = found.ok_or_else(missing)?;
                        session.end_us = Some(end_us);
                        session.end = end;
                    }
                    return Ok(workload);
                }
            }
        }
        Err(broken(0, "the plan has no end".to_owned()))
    }

    /// Whether a file that begins so is a plan, of whatever version.
    pub fn is_plan(begin: &[u8]) -> bool {
        begin.starts_with(b"pgtoll-replay-plan/")
    }
}

/// A statement of 64 MB, with characters that JSON escapes.
const LINE_BYTES_MAX: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ExecutedStatement, StatementRequest};

    fn workload() -> CapturedWorkload {
        let step = |begin, request| CapturedStep {
            session: 0,
            start_us: 5,
            duration_us: Some(7),
            begin,
            end: begin + 1,
            before_commit: None,
            request,
            failed: None,
            has_written: Some(true),
            in_block: None,
            rows: Some(3),
            ends_late: true,
        };
        let parameters = vec![None, Some("it's".to_owned().into())];
        let execution = ExecutedStatement {
            name: "p".to_owned(),
            sql: "select $1".to_owned(),
            types: vec![25],
            parameters,
        };
        CapturedWorkload {
            header: PlanHeader { version: "1".to_owned(), ..PlanHeader::default() },
            sessions: vec![CapturedSession { user: "alice".to_owned(), ..Default::default() }],
            steps: vec![
                step(1, StatementRequest::Simple("select\n1".to_owned())),
                step(3, StatementRequest::Extended(vec![execution])),
            ],
        }
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        workload().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written();
        assert!(CapturedWorkload::is_plan(&bytes));
        assert_eq!(CapturedWorkload::read(&bytes[..]).unwrap(), workload());
    }

    #[test]
    fn lines_may_be_in_any_order_and_sessions_without_numbers() {
        let CapturedWorkload { header, sessions, steps } = workload();
        let mut bytes = MAGIC.as_bytes().to_vec();
        let mut lines = vec![PlanLine::Step(steps[1].clone()), PlanLine::Step(steps[0].clone())];
        lines.extend(sessions.into_iter().map(PlanLine::Session));
        lines.push(PlanLine::Header(Box::new(header)));
        lines.push(PlanLine::End { sessions: 1, steps: 2 });
        let lines: Vec<String> =
            lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        bytes.extend(zstd::encode_all(lines.concat().as_bytes(), 3).unwrap());
        assert_eq!(CapturedWorkload::read(&bytes[..]).unwrap(), workload());
    }

    #[test]
    fn a_step_without_its_session_is_refused() {
        let mut workload = workload();
        workload.steps[0].session = 7;
        let mut bytes = Vec::new();
        workload.write(&mut bytes).unwrap();
        let error = CapturedWorkload::read(&bytes[..]).unwrap_err().to_string();
        assert_eq!(error, "line 5 of the plan: a step without a session");
    }

    #[test]
    fn no_part_of_a_plan_is_a_plan() {
        let bytes = written();
        for length in 0..bytes.len() {
            let error = CapturedWorkload::read(&bytes[..length]).unwrap_err();
            assert!(matches!(error, ReplayError::Plan { .. }), "{length}: {error}");
        }
    }
}
