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
enum PlanLine {
    Header(Box<PlanHeader>),
    Session(CapturedSession),
    Step(CapturedStep),
    /// The last one: a plan without it is not whole.
    End {
        sessions: u64,
        steps: u64,
    },
}

impl CapturedWorkload {
    /// Writes the plan.
    pub fn write(&self, mut into: impl Write) -> io::Result<()> {
        into.write_all(MAGIC.as_bytes())?;
        let mut packed = zstd::stream::write::Encoder::new(into, 3)?;
        let mut line = |line: &PlanLine| -> io::Result<()> {
            serde_json::to_writer(&mut packed, line)?;
            packed.write_all(b"\n")
        };
        line(&PlanLine::Header(Box::new(self.header.clone())))?;
        for session in &self.sessions {
            line(&PlanLine::Session(session.clone()))?;
        }
        for step in &self.steps {
            line(&PlanLine::Step(step.clone()))?;
        }
        let (sessions, steps) = (self.sessions.len() as u64, self.steps.len() as u64);
        line(&PlanLine::End { sessions, steps })?;
        packed.finish()?.flush()
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
                PlanLine::End { sessions, steps } => {
                    let counts = (workload.sessions.len() as u64, workload.steps.len() as u64);
                    if counts != (sessions, steps) {
                        return Err(broken(number, "lines are missing".to_owned()));
                    }
                    break;
                }
            }
        }
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
