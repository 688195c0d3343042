//! Files of a run's directory beside the journals: the header, and the events, a JSON line each.
//! each.

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use pgtoll_record::{JudgeDesign, JudgedServer};
use serde::{Deserialize, Serialize};

use super::error::{FileError, JudgeError};

/// The version of the form of a run's directory.
const JOURNAL_SCHEMA: &str = "pgtoll.judge-journal/1";
const HEADER_FILE: &str = "judge.json";
const EVENTS_FILE: &str = "events.jsonl";

/// The plan of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    schema: String,
    /// The run's number.
    pub(crate) run: u64,
    pub(crate) server: JudgedServer,
    pub(crate) read_dsn: Option<String>,
    pub(crate) design: JudgeDesign,
    /// RFC 3339.
    pub(crate) began: String,
    pub(crate) command: Vec<String>,
}

impl JournalHeader {
    pub(crate) fn new(run: u64, server: JudgedServer, design: JudgeDesign) -> Self {
        Self {
            schema: JOURNAL_SCHEMA.to_owned(),
            run,
            server,
            read_dsn: None,
            design,
            began: String::new(),
            command: Vec::new(),
        }
    }
}

/// Something that happened, in ns from the begin of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(crate) enum RunEvent {
    /// The clients were connected, and began.
    Began { at: String },
    /// A server answered first: what it says of itself.
    Node { number: u16, text: String },
    /// An error of this kind came first.
    Error { code: String, message: String },
    /// The fault began.
    FaultBegan { at_ns: u64, what: String },
    /// The fault ended.
    FaultEnded { at_ns: u64, success: bool, status: String, output: String },
    /// Nothing falls due any more: each client is to be served once again.
    HealBegan { at_ns: u64 },
    /// A signal ended the run.
    Interrupted { at_ns: u64, signal: String },
    /// The last client ended.
    Ended { at_ns: u64 },
    /// The sums of readers' observations.
    Reads { reads: u64, failed: u64, stale: u64, stalest: u64, backwards: u64 },
    /// The sums of the probe for Long Fork.
    Pairs { pairs: u64, half_seen: u64, forks: u64 },
}

/// Makes a directory for a run, for its user only.
pub(crate) fn make_directory(path: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| FileError { action: "make", path: path.to_owned(), source })
}

pub(crate) fn write_header(directory: &Path, header: &JournalHeader) -> Result<(), FileError> {
    let path = directory.join(HEADER_FILE);
    let write = || {
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        file.write_all(&serde_json::to_vec_pretty(header)?)
    };
    write().map_err(|source| FileError { action: "write", path: path.clone(), source })
}

pub(crate) fn read_header(directory: &Path) -> Result<JournalHeader, JudgeError> {
    let path = directory.join(HEADER_FILE);
    let no_journals =
        |reason: String| JudgeError::NoJournals { directory: directory.to_owned(), reason };
    let mut text = String::new();
    File::open(&path)
        .and_then(|file| file.take(HEADER_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| no_journals(format!("{HEADER_FILE}: {error}")))?;
    let header: JournalHeader = serde_json::from_str(&text)
        .map_err(|error| no_journals(format!("{HEADER_FILE}: {error}")))?;
    if header.schema != JOURNAL_SCHEMA {
        return Err(no_journals(format!("they are of schema {:?}", header.schema)));
    }
    let rate = header.design.rate_per_second;
    if !rate.is_normal() || rate.is_sign_negative() || header.design.clients == 0 {
        return Err(no_journals(format!("{HEADER_FILE}: no clients, or no rate")));
    }
    Ok(header)
}

const HEADER_BYTES_MAX: u64 = 1 << 20;

/// The file of events, to which is only appended.
#[derive(Debug)]
pub(crate) struct EventLog {
    file: File,
    path: PathBuf,
}

impl EventLog {
    pub(crate) fn create(directory: &Path) -> Result<Self, FileError> {
        let path = directory.join(EVENTS_FILE);
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(source) => Err(FileError { action: "make", path, source }),
        }
    }

    pub(crate) fn append(&mut self, event: &RunEvent) -> Result<(), FileError> {
        let write = |file: &mut File| {
            let mut line = serde_json::to_vec(event)?;
            line.push(b'\n');
            file.write_all(&line)
        };
        write(&mut self.file).map_err(|source: io::Error| FileError {
            action: "write",
            path: self.path.clone(),
            source,
        })
    }
}

/// All events that can be read; the last line may be cut short.
pub(crate) fn read_events(directory: &Path) -> Result<Vec<RunEvent>, FileError> {
    let path = directory.join(EVENTS_FILE);
    let read = || {
        let mut events = Vec::new();
        for line in BufReader::new(File::open(&path)?).lines() {
            events.extend(serde_json::from_str(&line?).ok());
        }
        Ok(events)
    };
    read().map_err(|source| FileError { action: "read", path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_written_and_a_torn_line_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(directory.path()).unwrap();
        let events = [
            RunEvent::Node { number: 0, text: "|5432||00000001|".to_owned() },
            RunEvent::HealBegan { at_ns: 7 },
        ];
        for event in &events {
            log.append(event).unwrap();
        }
        log.file.write_all(b"{\"t\":\"ended\",\"at").unwrap();
        assert_eq!(read_events(directory.path()).unwrap(), events);
    }

    #[test]
    fn another_directory_holds_no_journals() {
        let directory = tempfile::tempdir().unwrap();
        let error = read_header(directory.path()).unwrap_err().to_string();
        assert!(error.contains("holds no journals of lab judge: judge.json"), "{error}");
        let header = JournalHeader::new(
            7,
            JudgedServer::default(),
            JudgeDesign { clients: 1, rate_per_second: 1.0, ..JudgeDesign::default() },
        );
        write_header(directory.path(), &header).unwrap();
        assert_eq!(read_header(directory.path()).unwrap().run, 7);
    }
}
