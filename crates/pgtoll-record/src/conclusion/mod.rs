//! The conclusion of a record: how its command ends, and its findings.
//!
//! A conclusion follows from the record's facts alone, so that older records have one too. It is not kept in the
//! record: JSON output has it beside the facts.

mod checkup;
mod codes;
mod labs;
mod pages;
mod replays;
mod servers;

pub use codes::FindingCode;

use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

/// A kind of record that a command prints.
pub trait PrintedRecord {
    /// Version of the record's form: its field `schema`.
    const SCHEMA: &'static str;
    /// The name of such a record in messages.
    const TITLE: &'static str;

    /// Judges the record's facts.
    fn conclusion(&self) -> Conclusion {
        Conclusion::default()
    }
}

/// The JSON Schema of what a command prints: the record, and its conclusion.
pub fn record_schema<R: PrintedRecord + JsonSchema>() -> Value {
    let mut generator = SchemaGenerator::default();
    let conclusion = generator.subschema_for::<Conclusion>();
    let mut schema = generator.into_root_schema_for::<R>();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.map(|properties| properties.insert("conclusion".to_owned(), conclusion.into()));
    schema.to_value()
}

/// How a command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Exit status 0: done, or sound.
    #[default]
    Done,
    /// Exit status 2: incomplete, interrupted or unreadable, without a finding.
    CouldNotTell,
    /// Exit status 1: a finding, whatever else is unknown.
    Finding,
}

impl Status {
    /// The exit status.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Finding => 1,
            Self::CouldNotTell => 2,
        }
    }

    /// The status of several: a finding weighs more than what is unknown.
    pub fn worst(statuses: impl IntoIterator<Item = Self>) -> Self {
        let rank = |status: &Self| match status {
            Self::Done => 0,
            Self::CouldNotTell => 1,
            Self::Finding => 2,
        };
        statuses.into_iter().max_by_key(rank).unwrap_or_default()
    }
}

/// The conclusion from a record's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Conclusion {
    /// How the command ends: its exit status.
    pub status: Status,
    /// Findings, in the record's order.
    pub findings: Vec<Finding>,
}

impl Conclusion {
    /// A finding if there is any; else unknown if the facts are incomplete.
    pub fn of_findings(findings: Vec<Finding>, is_complete: bool) -> Self {
        let status = match (findings.is_empty(), is_complete) {
            (false, _) => Status::Finding,
            (true, true) => Status::Done,
            (true, false) => Status::CouldNotTell,
        };
        Self { status, findings }
    }

    /// No finding; unknown if the facts are incomplete.
    pub fn without_findings(is_complete: bool) -> Self {
        Self::of_findings(Vec::new(), is_complete)
    }

    /// One conclusion of several records.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Self {
        let all: Vec<Self> = all.into_iter().collect();
        let status = Status::worst(all.iter().map(|conclusion| conclusion.status));
        Self {
            status,
            findings: all.into_iter().flat_map(|other_one| other_one.findings).collect(),
        }
    }

    /// The findings' sentences.
    pub fn sentences(&self) -> Vec<String> {
        self.findings.iter().map(|finding| finding.sentence.clone()).collect()
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable code, such as `page.checksum`.
    #[schemars(with = "String")]
    pub code: FindingCode,
    /// The relation, file, arm, node or run that it concerns; empty: all of the record.
    pub subject: String,
    /// The finding, as a person reads it.
    pub sentence: String,
    /// The first thing to do about it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn new(code: FindingCode, subject: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { code, subject: subject.into(), sentence: sentence.into(), advice: None }
    }
}

/// A count with its noun: `1 page`, `2 pages`.
fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_weighs_more_than_what_is_unknown() {
        let finding = || vec![Finding::new(FindingCode::PageChecksum, "t", "1 page")];
        assert_eq!(Conclusion::of_findings(finding(), false).status, Status::Finding);
        assert_eq!(Conclusion::without_findings(false).status, Status::CouldNotTell);
        let both = [Conclusion::of_findings(finding(), true), Conclusion::without_findings(false)];
        let together = Conclusion::together(both);
        assert_eq!((together.status, together.findings.len()), (Status::Finding, 1));
        assert_eq!(Status::worst([]), Status::Done);
    }
}
