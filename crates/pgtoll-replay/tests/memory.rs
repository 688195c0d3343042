//! What is held while logs are read does not grow with their length.

use std::io::Read;

use pgtoll_replay::{
    CapturedPart, LogInput, LogReading, PlanWriter, ReplayError, read_logs_in_parts,
};

/// Sessions that are open at a time, each with its process id.
const OPEN: u64 = 16;
/// Statements of a session.
const STATEMENTS: u64 = 50;

/// A log of statements in turns, made while it is read. With disconnections or without them, sessions follow
/// one another with the same process ids.
struct EndlessLog {
    statements: u64,
    logs_ends: bool,
    next: u64,
    piece: Vec<u8>,
}

impl EndlessLog {
    fn next_lines(&self) -> String {
        let turn = self.next / OPEN;
        let pid = 4711 + self.next % OPEN;
        let start = 0x6b01_f509 + turn / STATEMENTS;
        let at = format!(
            "2026-11-21 19:46:{:02}.{:03} UTC|bench|shop|{start:x}.{pid:x}|",
            self.next / 1000 % 60,
            self.next % 1000
        );
        let ends = self.logs_ends && turn % STATEMENTS == STATEMENTS - 1;
        let end = if ends { "disconnection: session time: 0:00:03.861 user=bench" } else { "x" };
        format!(
            "{at}LOG:  statement: update t set v = v + 1 where id = {}\n\
             {at}LOG:  duration: 0.100 ms\n{at}LOG:  {end}\n",
            self.next
        )
    }
}

impl Read for EndlessLog {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.piece.len() < into.len() && self.next < self.statements {
            let lines = self.next_lines();
            self.piece.extend_from_slice(lines.as_bytes());
            self.next += 1;
        }
        let length = self.piece.len().min(into.len());
        into[..length].copy_from_slice(&self.piece[..length]);
        self.piece.drain(..length);
        Ok(length)
    }
}

/// The most steps and sessions that were handed over at once, and those of the last time.
fn check(statements: u64, logs_ends: bool) -> Result<[u64; 2], ReplayError> {
    let log = EndlessLog { statements, logs_ends, next: 0, piece: Vec::new() };
    let input = LogInput { name: "log".to_owned(), content: Box::new(log) };
    let mut writer = PlanWriter::new(std::io::sink(), false)?;
    let mut most = 0;
    let mut last = 0;
    let mut steps = 0;
    let mut sessions = 0;
    let take = |part: CapturedPart| {
        last = (part.steps.len() + part.sessions.len()) as u64;
        most = most.max(last);
        steps += part.steps.len() as u64;
        sessions += part.sessions.len() as u64;
        Ok(writer.add(part)?)
    };
    let header = read_logs_in_parts([input], &LogReading::default(), take, |_| {})?;
    writer.finish(&header)?;
    assert_eq!((steps, header.counts.statements), (statements, statements));
    assert_eq!((sessions, header.counts.sessions), (statements / STATEMENTS, sessions));
    assert_eq!(header.counts.autocommit_simple, statements);
    Ok([most, last])
}

#[test]
fn what_is_held_does_not_grow_with_the_log() -> Result<(), ReplayError> {
    // Some hundred kilobytes, and ten times as much.
    let short = OPEN * STATEMENTS * 4;
    let long = OPEN * STATEMENTS * 40;
    for logs_ends in [true, false] {
        let [_, last_of_short] = check(short, logs_ends)?;
        let [most, last] = check(long, logs_ends)?;
        // At the end all that had been held comes: a session and its last step each. The log's last entry is
        // one session's end.
        let open = if logs_ends { 1 } else { OPEN };
        assert_eq!([last_of_short, last], [2 * open; 2]);
        // A piece of 256 KB has no more.
        let in_piece = (256 << 10) / 200;
        assert!(most < in_piece + 2 * OPEN, "{most} at once of {long}");
    }
    Ok(())
}
