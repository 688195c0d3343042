//! Records as a command prints them, and as they are read again: each kind in each format.

use std::any::Any;
use std::fmt;

use pgtoll_record::{
    BalanceRecord, BridgeRecord, ChecksumsRecord, CheckupChange, CheckupRecord, Conclusion,
    CorruptRecord, CorruptionRecord, DrillRecord, Examination, ExchangeRecord, ExperimentList,
    FailoverRecord, FleetPlan, FleetRecord, JudgeRecord, LogExamination, Overview,
    PageChecksumsRecord, PageDifferenceRecord, PageRecord, PatrolRecord, PlanRecord,
    PredictionRecord, PrintedRecord, RECORD_SCHEMA, RepairRecord, ReplayComparison, ReplayRecord,
    RollingRecord, RunResult, SideBySide, VerificationRecord, WalStatisticsRecord, WalWhatIfRecord,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{Document, document_html, document_markdown, document_text};
use crate::html::inert;
use crate::plugin::{PluginFacts, PluginLine};
use crate::{Format, Style, printable_json};

/// A record that has every form: it makes a document, which all forms render. Kinds with figures for Prometheus, or
/// with a page of their own, say so.
pub trait ReportedRecord: PrintedRecord + Serialize + DeserializeOwned + Any {
    /// Gauges for Prometheus are among its formats.
    const HAS_GAUGES: bool = false;
    /// A line for Nagios is among its formats.
    const IS_CHECK: bool = false;

    /// Makes the document.
    fn document(&self, options: &TableOptions) -> Document;

    /// Reads the record's JSON.
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// For a terminal.
    fn text(&self, options: &TableOptions) -> String {
        document_text(&self.document(options), options.full)
    }

    /// GitHub's Markdown.
    fn markdown(&self) -> String {
        document_markdown(&self.document(&TableOptions::PAGE))
    }

    /// A page of its own.
    fn html(&self) -> String {
        let document = self.document(&TableOptions::PAGE);
        let json = serde_json::to_string(self).unwrap_or_default();
        document_html(
            &document,
            &json,
            &inert(self),
            &format!("{}.json", schema_name(Self::SCHEMA)),
        )
    }

    /// Gauges for Prometheus.
    fn gauges(&self) -> Option<String> {
        None
    }

    /// The facts of its line for Nagios, beside the conclusion.
    fn check(&self) -> Option<PluginFacts> {
        None
    }

    /// The record with its conclusion, for programs.
    fn json(&self) -> String {
        record_json(self)
    }
}

/// `balance` of `pgtoll.balance/1`.
fn schema_name(schema: &str) -> &str {
    let name = schema.trim_start_matches("pgtoll.");
    name.split_once('/').map_or(name, |(name, _)| name)
}

/// The JSON that programs read: the record's fields, then what they come to.
#[derive(Serialize)]
struct Printed<'a, R> {
    #[serde(flatten)]
    record: &'a R,
    conclusion: Conclusion,
}

/// A record and its conclusion as JSON.
pub fn record_json(record: &(impl PrintedRecord + Serialize)) -> String {
    json(&Printed { record, conclusion: record.conclusion() })
}

/// A value as JSON that a terminal can be shown: characters that it would obey are JSON's escapes.
pub fn json(value: &impl Serialize) -> String {
    // Records are made of strings and numbers.
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    printable_json(&text).into_owned()
}

/// A kind of record: what it is called, and its formats.
#[derive(Clone, Copy)]
pub struct RecordKind {
    schema: &'static str,
    title: &'static str,
    has_gauges: bool,
    is_check: bool,
    read: fn(&str) -> Result<FinishedRecord, serde_json::Error>,
}

impl fmt::Debug for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordKind").field(&self.schema).finish()
    }
}

impl RecordKind {
    /// All kinds. Nothing else lists them.
    pub const ALL: &[Self] = &[
        Self::for_record::<WalStatisticsRecord>(),
        Self::for_record::<WalWhatIfRecord>(),
        Self::for_record::<Vec<VerificationRecord>>(),
        Self::for_record::<PatrolRecord>(),
        Self::for_record::<DrillRecord>(),
        Self::for_record::<ChecksumsRecord>(),
        Self::for_record::<RollingRecord>(),
        Self::for_record::<CorruptRecord>(),
        Self::for_record::<Vec<RepairRecord>>(),
        Self::for_record::<PageRecord>(),
        Self::for_record::<PageChecksumsRecord>(),
        Self::for_record::<PageDifferenceRecord>(),
        Self::for_record::<Examination>(),
        Self::for_record::<ExperimentList>(),
        Self::for_record::<PlanRecord>(),
        Self::for_record::<PredictionRecord>(),
        Self::for_record::<CheckupRecord>(),
        Self::for_record::<CheckupChange>(),
        Self::for_record::<JudgeRecord>(),
        Self::for_record::<ExchangeRecord>(),
        Self::for_record::<FailoverRecord>(),
        Self::for_record::<CorruptionRecord>(),
        Self::for_record::<BalanceRecord>(),
        Self::for_record::<BridgeRecord>(),
        Self::for_record::<LogExamination>(),
        Self::for_record::<ReplayRecord>(),
        Self::for_record::<ReplayComparison>(),
        Self::for_record::<RunResult>(),
        Self::for_record::<SideBySide>(),
        Self::for_record::<Overview>(),
        Self::for_record::<FleetPlan>(),
        Self::for_record::<FleetRecord>(),
    ];

    /// The kind of a record type.
    pub const fn for_record<R: ReportedRecord>() -> Self {
        Self {
            schema: R::SCHEMA,
            title: R::TITLE,
            has_gauges: R::HAS_GAUGES,
            is_check: R::IS_CHECK,
            read: |json| R::read(json).map(FinishedRecord::new),
        }
    }

    /// The formats that such a record has.
    pub const fn formats(self) -> &'static [Format] {
        use Format::{Html, Json, Markdown, Nagios, OpenMetrics, Table};
        match (self.is_check, self.has_gauges) {
            (true, true) => &[Table, Markdown, Json, Html, Nagios, OpenMetrics],
            (true, false) => &[Table, Markdown, Json, Html, Nagios],
            (false, true) => &[Table, Markdown, Json, Html, OpenMetrics],
            (false, false) => &[Table, Markdown, Json, Html],
        }
    }

    /// The name of its schema, such as `wal-statistics`.
    pub fn name(self) -> &'static str {
        schema_name(self.schema)
    }

    /// The name of such a record in messages.
    pub const fn title(self) -> &'static str {
        self.title
    }
}

/// A finished record of any kind.
pub struct FinishedRecord(Box<dyn AnyRecord>);

/// A reported record whose type is not known.
trait AnyRecord {
    fn kind(&self) -> RecordKind;
    fn conclusion(&self) -> Conclusion;
    fn shown(&self, format: Format, options: &TableOptions) -> Option<String>;
    fn check(&self) -> Option<(PluginFacts, PluginLine)>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<R: ReportedRecord> AnyRecord for R {
    fn kind(&self) -> RecordKind {
        RecordKind::for_record::<R>()
    }

    fn conclusion(&self) -> Conclusion {
        PrintedRecord::conclusion(self)
    }

    fn shown(&self, format: Format, options: &TableOptions) -> Option<String> {
        match format {
            Format::Table => Some(self.text(options)),
            Format::Markdown => Some(self.markdown()),
            Format::Json => Some(ReportedRecord::json(self)),
            Format::Html => Some(self.html()),
            Format::Nagios => AnyRecord::check(self).map(|(_, line)| line.text()),
            Format::OpenMetrics => self.gauges(),
            Format::Gobench | Format::Csv => None,
        }
    }

    fn check(&self) -> Option<(PluginFacts, PluginLine)> {
        let check = ReportedRecord::check(self)?;
        let answer = self.document(&TableOptions::default()).answer;
        let line = PluginLine::new(&self.conclusion(), &answer, &check);
        Some((check, line))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl fmt::Debug for FinishedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FinishedRecord").field(&self.kind()).finish()
    }
}

impl FinishedRecord {
    /// A record that was just made.
    pub fn new(record: impl ReportedRecord) -> Self {
        Self(Box::new(record))
    }

    /// The record in this text; `None` where there is another one, such as a run's, or none.
    pub fn parse(text: &str) -> Result<Option<Self>, FinishedRecordError> {
        let Some(schema) = schema_of(text).filter(|schema| *schema != RECORD_SCHEMA) else {
            return Ok(None);
        };
        let kind = RecordKind::ALL.iter().find(|kind| kind.schema == schema);
        let kind = kind.ok_or(FinishedRecordError::Schema(schema))?;
        Ok(Some((kind.read)(text)?))
    }

    /// Its kind.
    pub fn kind(&self) -> RecordKind {
        self.0.kind()
    }

    /// Returns its conclusion.
    pub fn conclusion(&self) -> Conclusion {
        self.0.conclusion()
    }

    /// The record in this format; `None` where its kind does not have it.
    pub fn shown(&self, format: Format, options: &TableOptions) -> Option<String> {
        self.0.shown(format, options)
    }

    /// Its line for Nagios, and what is in it; `None` where its kind has none.
    pub fn check(&self) -> Option<(PluginFacts, PluginLine)> {
        self.0.check()
    }

    /// The record, if it is of this type.
    pub fn downcast<R: ReportedRecord>(self) -> Option<R> {
        self.0.into_any().downcast().ok().map(|record| *record)
    }
}

/// Options of tables.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Rows of each list at most.
    pub most: usize,
    /// WAL by type of record, not by resource manager.
    pub by_type: bool,
    /// All that is known, not the answer alone.
    pub full: bool,
    /// For a page, whose tables may be wide.
    pub is_page: bool,
    /// Whether there are colours.
    pub style: Style,
}

impl TableOptions {
    /// The options of pages; JSON has more.
    pub(crate) const PAGE: Self =
        Self { most: 200, by_type: false, full: true, is_page: true, style: Style::Plain };
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { most: 10, by_type: false, full: false, is_page: false, style: Style::Plain }
    }
}

/// A finished record cannot be read.
#[derive(Debug)]
pub enum FinishedRecordError {
    /// It is not what its schema says.
    Json(serde_json::Error),
    /// The record has another version, or a kind that cannot be shown.
    Schema(String),
}

impl fmt::Display for FinishedRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "{error}"),
            Self::Schema(schema) => {
                write!(f, "the record is of schema {schema:?}, which cannot be shown")
            }
        }
    }
}

impl std::error::Error for FinishedRecordError {}

impl From<serde_json::Error> for FinishedRecordError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

impl FinishedRecordError {
    /// Returns advice, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Json(_) => "is the file whole? Write it again: … --format json -o FILE",
            Self::Schema(_) => "use the version of pgtoll that wrote it, or a later one",
        };
        Some(hint.to_owned())
    }
}

/// The begin of each record.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// One record, or a list of them: of several directories a line each would be no JSON for most programs.
pub(crate) fn read_one_or_several<T: DeserializeOwned>(
    json: &str,
) -> Result<Vec<T>, serde_json::Error> {
    if is_list(json) { serde_json::from_str(json) } else { Ok(vec![serde_json::from_str(json)?]) }
}

/// One record as itself, several as a list, each with its conclusion.
pub(crate) fn one_or_several_json<T: PrintedRecord + Serialize>(records: &[T]) -> String {
    let printed = |record| Printed { record, conclusion: PrintedRecord::conclusion(record) };
    match records {
        [only] => record_json(only),
        several => json(&several.iter().map(printed).collect::<Vec<_>>()),
    }
}

/// The repairs of a ledger, which may break off, or of what was printed.
pub(crate) fn read_repairs(text: &str) -> Result<Vec<RepairRecord>, serde_json::Error> {
    if is_list(text) {
        return serde_json::from_str(text);
    }
    let all = serde_json::Deserializer::from_str(text).into_iter::<RepairRecord>();
    let mut records: Vec<RepairRecord> = Vec::new();
    for record in all {
        match record {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() && !records.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}

fn is_list(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// The schema of a record; of a list, that of its first. Of a run's record the first line is read.
fn schema_of(text: &str) -> Option<String> {
    let first = text.trim_start().trim_start_matches('[');
    let head = serde_json::Deserializer::from_str(first).into_iter::<Head>().next()?;
    match head {
        Ok(Head { schema }) => Some(schema),
        // Of one that is cut short the begin still says it.
        Err(error) if error.is_eof() => {
            let (before, behind) = first.split_once("\"schema\"")?;
            (before.trim() == "{").then(|| behind.split('"').nth(1).map(str::to_owned)).flatten()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verification::tests::record;

    #[test]
    fn every_kind_has_the_formats_that_it_says() {
        let one = FinishedRecord::new(vec![record()]);
        let shown = |format| one.shown(format, &TableOptions::default());
        for format in Format::ALL {
            let has = one.kind().formats().contains(&format);
            assert_eq!(shown(format).is_some(), has, "{format:?}");
        }
    }

    #[test]
    fn every_check_is_one_line() {
        let records = [
            FinishedRecord::new(vec![record()]),
            FinishedRecord::new(crate::patrol::tests::record()),
            FinishedRecord::new(crate::checkup::tests::record()),
            FinishedRecord::new(crate::fleet::tests::record()),
        ];
        let lines: String = records
            .iter()
            .map(|record| record.shown(Format::Nagios, &TableOptions::default()).unwrap())
            .collect();
        assert_eq!(lines.lines().count(), records.len(), "{lines}");
        insta::assert_snapshot!(lines);
    }

    #[test]
    fn one_or_several_are_read_again() {
        for count in [1, 2] {
            let records = FinishedRecord::new(vec![record(); count]);
            let json = records.shown(Format::Json, &TableOptions::default()).unwrap();
            assert!(json.contains("\"conclusion\": {\n"), "{json}");
            let read = FinishedRecord::parse(&json).unwrap().unwrap();
            assert_eq!(read.downcast::<Vec<VerificationRecord>>().unwrap(), vec![record(); count]);
        }
    }

    #[test]
    fn other_texts_are_none_or_errors() {
        let none = |text| assert!(FinishedRecord::parse(text).unwrap().is_none(), "{text}");
        none("");
        none("15\n");
        none("{}");
        none("{\"t\":\"header\",\"schema\":\"pgtoll.record/2\"}\n{\"t\":\"end\"}");
        let error = |text| FinishedRecord::parse(text).unwrap_err().to_string();
        assert!(error("{\"schema\":\"pgtoll.doctor/9\"}").contains("pgtoll.doctor/9"));
        assert!(error("{\n  \"schema\": \"pgtoll.doctor/1\",\n  \"pg").starts_with("EOF"));
    }
}
