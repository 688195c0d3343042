//! Reading of a run's record, whole or broken off.

use std::collections::BTreeSet;

use crate::{
    Counted, CounterReading, End, EndStatus, Header, Line, Operation, Predicted, Prepared, Profile,
    RECORD_SCHEMA, RoundEnd, SkippedArm, Slice,
};

/// A run's record, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The first line, without the arms that were skipped.
    pub header: Header,
    /// Arms that were not measured.
    pub skipped: Vec<SkippedArm>,
    /// The prepared servers; `None` if the run ended before.
    pub prepared: Option<Prepared>,
    /// All slices of rounds that ended, in time order.
    pub slices: Vec<Slice>,
    /// Readings of arms' counters in rounds that ended, in time order.
    pub samples: Vec<CounterReading>,
    /// The rounds that ended.
    pub rounds: Vec<RoundEnd>,
    /// Exact counters.
    pub counted: Vec<Counted>,
    /// WAL that arms should write, from that of another.
    pub predicted: Vec<Predicted>,
    /// All operations, in time order; the last repetition may lack some.
    pub operations: Vec<Operation>,
    /// How often functions were found running.
    pub profiles: Vec<Profile>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The last line; `None` when the record breaks off.
    pub end: Option<End>,
    /// Lines that could not be read, by number from 1.
    pub unreadable_lines: Vec<usize>,
}

impl Run {
    /// Reads a record. Whatever ended the run, and wherever the file breaks off, what was measured
    /// up to there is read; slices of a round that did not end are left out.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let mut lines = text.lines().enumerate();
        let (_, first) = lines.next().ok_or(RecordError::Empty)?;
        let Line::Header(header) = serde_json::from_str(first).map_err(RecordError::Header)? else {
            return Err(RecordError::NoHeader);
        };
        if header.schema != RECORD_SCHEMA || header.kind != "run" {
            return Err(RecordError::Unknown { schema: header.schema, kind: header.kind });
        }
        let mut run = Self {
            header: *header,
            skipped: Vec::new(),
            prepared: None,
            slices: Vec::new(),
            samples: Vec::new(),
            rounds: Vec::new(),
            counted: Vec::new(),
            predicted: Vec::new(),
            operations: Vec::new(),
            profiles: Vec::new(),
            notes: Vec::new(),
            end: None,
            unreadable_lines: Vec::new(),
        };
        for (index, line) in lines {
            match serde_json::from_str(line) {
                Ok(line) => run.take(line),
                Err(_) if is_of_a_later_version(line) => {}
                Err(_) => run.unreadable_lines.push(index + 1),
            }
        }
        let ended: BTreeSet<(String, u32)> =
            run.rounds.iter().map(|round| (round.workload.clone(), round.round)).collect();
        run.slices.retain(|slice| ended.contains(&(slice.workload.clone(), slice.round)));
        run.samples.retain(|sample| ended.contains(&(sample.workload.clone(), sample.round)));
        Ok(run)
    }

    /// Everything that was planned was done.
    pub fn is_complete(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete)
            && self.unreadable_lines.is_empty()
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Skipped(skipped) => self.skip(skipped),
            Line::Prepared(prepared) => self.prepared = Some(prepared),
            Line::Slice(slice) => self.slices.push(slice),
            Line::Sample(sample) => self.samples.push(sample),
            Line::RoundEnd(round) => self.rounds.push(round),
            Line::Counted(counted) => self.counted.push(counted),
            Line::Predicted(predicted) => self.predicted.push(predicted),
            Line::Operation(operation) => self.operations.push(operation),
            Line::Profile(profile) => self.profiles.push(profile),
            Line::Note(note) => self.notes.push(note.text),
            Line::End(end) => self.end = Some(end),
            Line::Header(_) | Line::Round(_) => {}
        }
    }
}

impl Run {
    /// From here on the arm is none of the run's.
    fn skip(&mut self, skipped: SkippedArm) {
        self.header.arms.retain(|arm| arm.name != skipped.arm);
        for arm in &mut self.header.arms {
            arm.against.take_if(|other| *other == skipped.arm);
        }
        self.skipped.push(skipped);
    }
}

/// Whole JSON with a tag that this version does not know.
fn is_of_a_later_version(line: &str) -> bool {
    const KNOWN: [&str; 13] = [
        "header",
        "skipped",
        "prepared",
        "counted",
        "predicted",
        "operation",
        "profile",
        "round",
        "slice",
        "sample",
        "round_end",
        "note",
        "end",
    ];
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    value
        .as_ref()
        .and_then(|value| value.get("t")?.as_str())
        .is_some_and(|tag| !KNOWN.contains(&tag))
}

/// The text is no record of a run.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is nothing in it.
    #[error("the record is empty")]
    Empty,
    /// The first line is not what it should be.
    #[error("read the record's first line")]
    Header(#[source] serde_json::Error),
    /// The first line is of another kind.
    #[error("the record's first line is not its header")]
    NoHeader,
    /// Another version, or another kind of record.
    #[error(
        "the record is of schema {schema:?} and kind {kind:?}, not {RECORD_SCHEMA:?} and \"run\""
    )]
    Unknown {
        /// The schema it names.
        schema: String,
        /// The kind it names.
        kind: String,
    },
}

impl RecordError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unknown { .. } => "use the version of pgtoll that wrote it, or a later one",
            Self::Empty | Self::Header(_) | Self::NoHeader => {
                "name a result directory, a run.jsonl, or what a command printed with --json"
            }
        };
        Some(hint.to_owned())
    }
}
