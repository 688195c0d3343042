//! A plan as a file: a line that says what it is, then JSON lines, packed with zstd.
//!
//! It has the statements and values of the log, so it is as confidential as the log.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};

use crate::ReplayError;
use crate::workload::{CapturedSession, CapturedStep, CapturedWorkload, PlanHeader};

/// The first line of every plan, up to its version.
const MAGIC: &str = "pgtoll-replay-plan/1 confidential: statements and values of a server's log\n";

/// A line of a plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanLine {
    /// The last one counts: a capture writes one at its begin and one at its end.
    Header(Box<PlanHeader>),
    Session(CapturedSession),
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

/// Writes a plan, line by line.
pub(crate) struct PlanWriter<W: Write> {
    packed: zstd::stream::write::Encoder<'static, W>,
    sessions: u64,
    steps: u64,
}

impl<W: Write> PlanWriter<W> {
    pub(crate) fn begin(mut into: W) -> io::Result<Self> {
        into.write_all(MAGIC.as_bytes())?;
        let packed = zstd::stream::write::Encoder::new(into, 3)?;
        Ok(Self { packed, sessions: 0, steps: 0 })
    }

    pub(crate) fn line(&mut self, line: &PlanLine) -> io::Result<()> {
        self.sessions += u64::from(matches!(line, PlanLine::Session(_)));
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
        let (sessions, steps) = (self.sessions, self.steps);
        self.line(&PlanLine::End { sessions, steps })?;
        self.packed.finish()?.flush()
    }
}

impl CapturedWorkload {
    /// Writes the plan.
    pub fn write(&self, into: impl Write) -> io::Result<()> {
        let mut plan = PlanWriter::begin(into)?;
        plan.line(&PlanLine::Header(Box::new(self.header.clone())))?;
        for session in &self.sessions {
            plan.line(&PlanLine::Session(session.clone()))?;
        }
        for step in &self.steps {
            plan.line(&PlanLine::Step(step.clone()))?;
        }
        plan.end()
    }

    /// Reads a plan.
    pub fn read(from: impl Read) -> Result<Self, ReplayError> {
        let mut from = BufReader::new(from);
        let broken = |line, reason: String| ReplayError::Plan { line, reason };
        let mut magic = vec![0; MAGIC.len()];
        let is_plan = from.read_exact(&mut magic).is_ok() && magic == MAGIC.as_bytes();
        if !is_plan {
            return Err(broken(0, "this is no plan of this version of pgtoll".to_owned()));
        }
        let unpacked = zstd::stream::read::Decoder::with_buffer(from)
            .map_err(|error| broken(1, error.to_string()))?;
        let mut lines = BufReader::new(unpacked);
        let mut workload = Self::default();
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
                PlanLine::Header(header) => workload.header = *header,
                PlanLine::Session(session) => workload.sessions.push(session),
                PlanLine::Step(step) => {
                    if step.session as usize >= workload.sessions.len() {
                        return Err(broken(number, "a step without a session".to_owned()));
                    }
                    workload.steps.push(step);
                }
                PlanLine::SessionEnd { session, end_us, end } => {
                    let found = workload.sessions.get_mut(session as usize);
                    let missing = || broken(number, "the end of no session".to_owned());
                    let session = found.ok_or_else(missing)?;
                    session.end_us = Some(end_us);
                    session.end = end;
                }
                PlanLine::End { sessions, steps } => {
                    let counts = (workload.sessions.len() as u64, workload.steps.len() as u64);
                    if counts != (sessions, steps) {
                        return Err(broken(number, "lines are missing".to_owned()));
                    }
                    break;
                }
            }
        }
        // A capture writes steps as they end.
        workload.steps.sort_by_key(|step| step.begin);
        Ok(workload)
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
        let parameters = vec![None, Some("it's".to_owned())];
        let execution =
            ExecutedStatement { name: "p".to_owned(), sql: "select $1".to_owned(), parameters };
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
    fn no_part_of_a_plan_is_a_plan() {
        let bytes = written();
        for length in 0..bytes.len() {
            let error = CapturedWorkload::read(&bytes[..length]).unwrap_err();
            assert!(matches!(error, ReplayError::Plan { .. }), "{length}: {error}");
        }
    }
}
