//! Records that need no estimates: what a command printed with `--json`, read again and shown in
//! each format that it has.

use std::fmt;

use pgtoll_record::{
    BALANCE_SCHEMA, BRIDGE_SCHEMA, BalanceRecord, BridgeRecord, CHECKSUMS_SCHEMA, CORRUPT_SCHEMA,
    CORRUPTION_SCHEMA, ChecksumsRecord, CorruptRecord, CorruptionRecord, DRILL_SCHEMA, DrillRecord,
    EXAMINATION_SCHEMA, EXCHANGE_SCHEMA, EXPERIMENTS_SCHEMA, Examination, ExchangeRecord,
    ExperimentList, FAILOVER_SCHEMA, FLEET_PLAN_SCHEMA, FLEET_SCHEMA, FailoverRecord, FleetPlan,
    FleetRecord, JUDGE_SCHEMA, JudgeRecord, LOG_EXAMINATION_SCHEMA, LogExamination,
    OVERVIEW_SCHEMA, Overview, PAGE_CHECKSUMS_SCHEMA, PAGE_DIFFERENCE_SCHEMA, PAGE_SCHEMA,
    PATROL_SCHEMA, PLAN_SCHEMA, PREDICTION_SCHEMA, PageChecksumsRecord, PageDifferenceRecord,
    PageRecord, PatrolRecord, PlanRecord, PredictionRecord, RECORD_SCHEMA, REPAIR_SCHEMA,
    REPLAY_COMPARISON_SCHEMA, REPLAY_SCHEMA, RESULT_SCHEMA, ROLLING_SCHEMA, RepairRecord,
    ReplayComparison, ReplayRecord, RollingRecord, RunResult, SIDE_BY_SIDE_SCHEMA, SideBySide,
    VERIFICATION_SCHEMA, VerificationRecord, WAL_STATISTICS_SCHEMA, WAL_WHATIF_SCHEMA,
    WalStatisticsRecord, WalWhatIfRecord,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Format, Style, json};

/// What a finished record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// What WAL consists of.
    WalStatistics,
    /// WAL under other settings.
    WalWhatIf,
    /// Whether pages are sound.
    Verification,
    /// Pages that are read round and round.
    Patrol,
    /// A backup that was restored and read.
    Drill,
    /// Data checksums turned on or off, or a dry run of it.
    Checksums,
    /// Data checksums turned on or off over a replica set, or a dry run of it.
    Rolling,
    /// A page that was damaged on purpose.
    Corruption,
    /// Damaged pages, and what they are replaced by.
    Repair,
    /// A page in all its parts.
    Page,
    /// Checksums of pages.
    PageChecksums,
    /// In what pages differ.
    PageDifference,
    /// Whether a machine is fit to be measured on.
    Examination,
    /// The built-in experiments.
    Experiments,
    /// What would be measured.
    Plan,
    /// What a server that was watched would pay.
    Prediction,
    /// What an application saw.
    Judge,
    /// What `pgtoll lab exchange` found.
    Exchange,
    /// What `pgtoll lab failover` found.
    Failover,
    /// What `pgtoll lab corruption` found.
    LabCorruption,
    /// What `pgtoll lab balance` showed.
    Balance,
    /// What `pgtoll lab bridge` showed.
    Bridge,
    /// What a server's log allows.
    LogExamination,
    /// How a log's work went on another server.
    Replay,
    /// Which statements are slower or faster on copies that differ.
    ReplayComparison,
    /// The summary of a run.
    Result,
    /// Runs side by side.
    SideBySide,
    /// Several experiments of one call.
    Overview,
    /// What is to be verified of many clusters.
    FleetPlan,
    /// What came out for many clusters.
    Fleet,
}

impl RecordKind {
    const ALL: [Self; 30] = [
        Self::WalStatistics,
        Self::WalWhatIf,
        Self::Verification,
        Self::Patrol,
        Self::Drill,
        Self::Checksums,
        Self::Rolling,
        Self::Corruption,
        Self::Repair,
        Self::Page,
        Self::PageChecksums,
        Self::PageDifference,
        Self::Examination,
        Self::Experiments,
        Self::Plan,
        Self::Prediction,
        Self::Judge,
        Self::Exchange,
        Self::Failover,
        Self::LabCorruption,
        Self::Balance,
        Self::Bridge,
        Self::LogExamination,
        Self::Replay,
        Self::ReplayComparison,
        Self::Result,
        Self::SideBySide,
        Self::Overview,
        Self::FleetPlan,
        Self::Fleet,
    ];

    /// The formats that such a record has.
    pub const fn formats(self) -> &'static [Format] {
        match self {
            Self::WalStatistics => {
                &[Format::Table, Format::Json, Format::Html, Format::OpenMetrics]
            }
            Self::WalWhatIf
            | Self::Overview
            | Self::Prediction
            | Self::Judge
            | Self::Balance
            | Self::Bridge
            | Self::Exchange
            | Self::Failover
            | Self::LabCorruption
            | Self::Replay
            | Self::ReplayComparison
            | Self::Drill => &[Format::Table, Format::Json, Format::Html],
            Self::Verification | Self::Fleet => {
                &[Format::Table, Format::Markdown, Format::Json, Format::Html, Format::OpenMetrics]
            }
            Self::Patrol => &[Format::Table, Format::Json, Format::OpenMetrics],
            Self::Result => &[Format::Table, Format::Markdown, Format::Json],
            Self::SideBySide => &[Format::Table, Format::Markdown, Format::Json, Format::Html],
            Self::Checksums
            | Self::Rolling
            | Self::Corruption
            | Self::Repair
            | Self::Page
            | Self::PageChecksums
            | Self::PageDifference
            | Self::Examination
            | Self::Experiments
            | Self::Plan
            | Self::FleetPlan
            | Self::LogExamination => &[Format::Table, Format::Json],
        }
    }

    /// What such a record is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::WalStatistics => "a record of wal stats",
            Self::WalWhatIf => "a record of wal whatif",
            Self::Verification => "a record of verify",
            Self::Patrol => "the state of a patrol",
            Self::Drill => "a record of verify --drill",
            Self::Checksums => "a record of enable or disable",
            Self::Rolling => "a record of enable or disable over a replica set",
            Self::Corruption => "a record of corrupt",
            Self::Repair => "a record of repair",
            Self::Page => "a record of page show",
            Self::PageChecksums => "a record of page checksum",
            Self::PageDifference => "a record of page diff",
            Self::Examination => "a record of doctor",
            Self::Experiments => "the list of experiments",
            Self::Plan => "a plan",
            Self::Prediction => "a record of predict",
            Self::Judge => "a record of lab judge",
            Self::Exchange => "a record of lab exchange",
            Self::Failover => "a record of lab failover",
            Self::LabCorruption => "a record of lab corruption",
            Self::Balance => "a record of lab balance",
            Self::Bridge => "a record of lab bridge",
            Self::LogExamination => "a record of replay doctor",
            Self::Replay => "a record of replay run",
            Self::ReplayComparison => "a record of replay compare",
            Self::Result => "a result",
            Self::SideBySide => "a record of results side by side",
            Self::Overview => "an overview",
            Self::FleetPlan => "a plan of a fleet",
            Self::Fleet => "a record of fleet merge",
        }
    }

    fn schema(self) -> &'static str {
        match self {
            Self::WalStatistics => WAL_STATISTICS_SCHEMA,
            Self::WalWhatIf => WAL_WHATIF_SCHEMA,
            Self::Verification => VERIFICATION_SCHEMA,
            Self::Patrol => PATROL_SCHEMA,
            Self::Drill => DRILL_SCHEMA,
            Self::Checksums => CHECKSUMS_SCHEMA,
            Self::Rolling => ROLLING_SCHEMA,
            Self::Corruption => CORRUPT_SCHEMA,
            Self::Repair => REPAIR_SCHEMA,
            Self::Page => PAGE_SCHEMA,
            Self::PageChecksums => PAGE_CHECKSUMS_SCHEMA,
            Self::PageDifference => PAGE_DIFFERENCE_SCHEMA,
            Self::Examination => EXAMINATION_SCHEMA,
            Self::Experiments => EXPERIMENTS_SCHEMA,
            Self::Plan => PLAN_SCHEMA,
            Self::Prediction => PREDICTION_SCHEMA,
            Self::Judge => JUDGE_SCHEMA,
            Self::Exchange => EXCHANGE_SCHEMA,
            Self::Failover => FAILOVER_SCHEMA,
            Self::LabCorruption => CORRUPTION_SCHEMA,
            Self::Balance => BALANCE_SCHEMA,
            Self::Bridge => BRIDGE_SCHEMA,
            Self::LogExamination => LOG_EXAMINATION_SCHEMA,
            Self::Replay => REPLAY_SCHEMA,
            Self::ReplayComparison => REPLAY_COMPARISON_SCHEMA,
            Self::Result => RESULT_SCHEMA,
            Self::SideBySide => SIDE_BY_SIDE_SCHEMA,
            Self::Overview => OVERVIEW_SCHEMA,
            Self::FleetPlan => FLEET_PLAN_SCHEMA,
            Self::Fleet => FLEET_SCHEMA,
        }
    }
}

/// A finished record.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is documented by its kind")]
pub enum FinishedRecord {
    WalStatistics(Box<WalStatisticsRecord>),
    WalWhatIf(Box<WalWhatIfRecord>),
    /// Of several data directories there are several.
    Verifications(Vec<VerificationRecord>),
    Patrol(Box<PatrolRecord>),
    /// Of `pgtoll verify --drill`.
    Drill(Box<DrillRecord>),
    Checksums(Box<ChecksumsRecord>),
    Rolling(Box<RollingRecord>),
    Corruption(Box<CorruptRecord>),
    /// Of a ledger there are several.
    Repairs(Vec<RepairRecord>),
    Page(Box<PageRecord>),
    PageChecksums(Box<PageChecksumsRecord>),
    PageDifference(Box<PageDifferenceRecord>),
    Examination(Box<Examination>),
    Experiments(Box<ExperimentList>),
    Plan(Box<PlanRecord>),
    Prediction(Box<PredictionRecord>),
    Judge(Box<JudgeRecord>),
    /// Of `pgtoll lab exchange`.
    Exchange(Box<ExchangeRecord>),
    /// Of `pgtoll lab failover`.
    Failover(Box<FailoverRecord>),
    /// Of `pgtoll lab corruption`.
    LabCorruption(Box<CorruptionRecord>),
    /// Of `pgtoll lab balance`.
    Balance(Box<BalanceRecord>),
    /// Of `pgtoll lab bridge`.
    Bridge(Box<BridgeRecord>),
    LogExamination(Box<LogExamination>),
    Replay(Box<ReplayRecord>),
    /// Of `pgtoll replay compare`.
    ReplayComparison(Box<ReplayComparison>),
    Result(Box<RunResult>),
    SideBySide(Box<SideBySide>),
    Overview(Box<Overview>),
    FleetPlan(Box<FleetPlan>),
    Fleet(Box<FleetRecord>),
}

/// What tables leave open.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Rows of each list at most.
    pub most: usize,
    /// WAL by type of record, not by resource manager.
    pub by_type: bool,
    /// All that is known, not the answer alone.
    pub full: bool,
    /// Whether there are colours.
    pub style: Style,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { most: 10, by_type: false, full: false, style: Style::Plain }
    }
}

/// A finished record cannot be read.
#[derive(Debug)]
pub enum FinishedRecordError {
    /// It is not what its schema says.
    Json(serde_json::Error),
    /// Of another version, or of a kind that is not shown.
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
    /// What to do about it.
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

impl FinishedRecord {
    /// The record in this text; `None` where there is another one, such as a run's, or none.
    pub fn parse(text: &str) -> Result<Option<Self>, FinishedRecordError> {
        fn read<T: DeserializeOwned>(text: &str) -> Result<Box<T>, serde_json::Error> {
            serde_json::from_str(text).map(Box::new)
        }
        let Some(schema) = schema_of(text).filter(|schema| *schema != RECORD_SCHEMA) else {
            return Ok(None);
        };
        let kind = RecordKind::ALL.into_iter().find(|kind| kind.schema() == schema);
        let kind = kind.ok_or(FinishedRecordError::Schema(schema))?;
        let record = match kind {
            RecordKind::WalStatistics => Self::WalStatistics(read(text)?),
            RecordKind::WalWhatIf => Self::WalWhatIf(read(text)?),
            RecordKind::Verification => Self::Verifications(if is_list(text) {
                serde_json::from_str(text)?
            } else {
                vec![serde_json::from_str(text)?]
            }),
            RecordKind::Patrol => Self::Patrol(read(text)?),
            RecordKind::Drill => Self::Drill(read(text)?),
            RecordKind::Checksums => Self::Checksums(read(text)?),
            RecordKind::Rolling => Self::Rolling(read(text)?),
            RecordKind::Corruption => Self::Corruption(read(text)?),
            RecordKind::Repair => Self::Repairs(repairs(text)?),
            RecordKind::Page => Self::Page(read(text)?),
            RecordKind::PageChecksums => Self::PageChecksums(read(text)?),
            RecordKind::PageDifference => Self::PageDifference(read(text)?),
            RecordKind::Examination => Self::Examination(read(text)?),
            RecordKind::Experiments => Self::Experiments(read(text)?),
            RecordKind::Plan => Self::Plan(read(text)?),
            RecordKind::Prediction => Self::Prediction(read(text)?),
            RecordKind::Judge => Self::Judge(read(text)?),
            RecordKind::Exchange => Self::Exchange(read(text)?),
            RecordKind::Failover => Self::Failover(read(text)?),
            RecordKind::LabCorruption => Self::LabCorruption(read(text)?),
            RecordKind::Balance => Self::Balance(read(text)?),
            RecordKind::Bridge => Self::Bridge(read(text)?),
            RecordKind::LogExamination => Self::LogExamination(read(text)?),
            RecordKind::Replay => Self::Replay(read(text)?),
            RecordKind::ReplayComparison => Self::ReplayComparison(read(text)?),
            RecordKind::Result => Self::Result(read(text)?),
            RecordKind::SideBySide => Self::SideBySide(read(text)?),
            RecordKind::Overview => Self::Overview(read(text)?),
            RecordKind::FleetPlan => Self::FleetPlan(read(text)?),
            RecordKind::Fleet => Self::Fleet(read(text)?),
        };
        Ok(Some(record))
    }

    /// What it is about.
    pub fn kind(&self) -> RecordKind {
        match self {
            Self::WalStatistics(_) => RecordKind::WalStatistics,
            Self::WalWhatIf(_) => RecordKind::WalWhatIf,
            Self::Verifications(_) => RecordKind::Verification,
            Self::Patrol(_) => RecordKind::Patrol,
            Self::Drill(_) => RecordKind::Drill,
            Self::Checksums(_) => RecordKind::Checksums,
            Self::Rolling(_) => RecordKind::Rolling,
            Self::Corruption(_) => RecordKind::Corruption,
            Self::Repairs(_) => RecordKind::Repair,
            Self::Page(_) => RecordKind::Page,
            Self::PageChecksums(_) => RecordKind::PageChecksums,
            Self::PageDifference(_) => RecordKind::PageDifference,
            Self::Examination(_) => RecordKind::Examination,
            Self::Experiments(_) => RecordKind::Experiments,
            Self::Plan(_) => RecordKind::Plan,
            Self::Prediction(_) => RecordKind::Prediction,
            Self::Judge(_) => RecordKind::Judge,
            Self::Exchange(_) => RecordKind::Exchange,
            Self::Failover(_) => RecordKind::Failover,
            Self::LabCorruption(_) => RecordKind::LabCorruption,
            Self::Balance(_) => RecordKind::Balance,
            Self::Bridge(_) => RecordKind::Bridge,
            Self::LogExamination(_) => RecordKind::LogExamination,
            Self::Replay(_) => RecordKind::Replay,
            Self::ReplayComparison(_) => RecordKind::ReplayComparison,
            Self::Result(_) => RecordKind::Result,
            Self::SideBySide(_) => RecordKind::SideBySide,
            Self::Overview(_) => RecordKind::Overview,
            Self::FleetPlan(_) => RecordKind::FleetPlan,
            Self::Fleet(_) => RecordKind::Fleet,
        }
    }

    /// The record in this format; `None` where its kind does not have it.
    pub fn shown(&self, format: Format, options: &TableOptions) -> Option<String> {
        match format {
            Format::Table => Some(self.table(options)),
            Format::Json => Some(self.json()),
            Format::Markdown => match self {
                Self::Verifications(records) => Some(crate::verification_markdown(records)),
                Self::Result(result) => Some(crate::markdown(result)),
                Self::SideBySide(together) => Some(crate::side_by_side_markdown(together)),
                Self::Fleet(record) => Some(crate::fleet_markdown(record)),
                _ => None,
            },
            Format::Html => match self {
                Self::WalStatistics(record) => Some(crate::wal_statistics_html(record)),
                Self::WalWhatIf(record) => Some(crate::wal_whatif_html(record)),
                Self::Verifications(records) => Some(crate::verification_html(records)),
                Self::SideBySide(together) => Some(crate::html_side_by_side(together)),
                Self::Overview(overview) => Some(crate::overview_html(overview)),
                Self::Prediction(record) => Some(crate::prediction_html(record)),
                Self::Judge(record) => Some(crate::judge_html(record)),
                Self::Balance(record) => Some(crate::balance_html(record)),
                Self::Bridge(record) => Some(crate::bridge_html(record)),
                Self::Exchange(record) => Some(crate::exchange_html(record)),
                Self::Failover(record) => Some(crate::failover_html(record)),
                Self::LabCorruption(record) => Some(crate::lab_corruption_html(record)),
                Self::Drill(record) => Some(crate::drill_html(record)),
                Self::Replay(record) => Some(crate::replay_html(record)),
                Self::ReplayComparison(record) => Some(crate::replay_comparison_html(record)),
                Self::Fleet(record) => Some(crate::fleet_html(record)),
                _ => None,
            },
            Format::OpenMetrics => match self {
                Self::WalStatistics(record) => Some(crate::wal_statistics_openmetrics(record)),
                Self::Verifications(records) => Some(crate::verification_openmetrics(records)),
                Self::Patrol(record) => Some(crate::patrol_openmetrics(record)),
                Self::Fleet(record) => Some(crate::fleet_openmetrics(record)),
                _ => None,
            },
            Format::Gobench | Format::Csv => None,
        }
    }

    fn table(&self, options: &TableOptions) -> String {
        match self {
            Self::WalStatistics(record) => {
                crate::wal_statistics_text(record, options.by_type, options.most)
            }
            Self::WalWhatIf(record) => crate::wal_whatif_text(record),
            Self::Verifications(records) => {
                let text = |record| crate::verification_text(record, options.most);
                records.iter().map(text).collect::<Vec<_>>().join("\n")
            }
            Self::Patrol(record) => crate::patrol_text(record, options.most),
            Self::Drill(record) => crate::drill_text(record, options.most),
            Self::Checksums(record) => crate::checksums_text(record),
            Self::Rolling(record) => crate::rolling_text(record),
            Self::Corruption(record) => crate::corruption_text(record),
            Self::Repairs(records) => crate::repairs_text(records, options.full),
            Self::Page(record) => crate::page_text(record),
            Self::PageChecksums(record) => crate::page_checksums_text(record),
            Self::PageDifference(record) => crate::page_difference_text(record),
            Self::Examination(examination) => crate::examination_text(examination),
            Self::Experiments(list) => crate::experiments_text(list),
            Self::Plan(plan) => crate::plan_text(plan),
            Self::Prediction(record) => crate::prediction_text(record),
            Self::Judge(record) => crate::judge_text(record),
            Self::Exchange(record) => crate::exchange_text(record),
            Self::Failover(record) => crate::failover_text(record),
            Self::LabCorruption(record) => crate::lab_corruption_text(record),
            Self::Balance(record) => crate::balance_text(record),
            Self::Bridge(record) => crate::bridge_text(record),
            Self::LogExamination(record) => crate::log_examination_text(record),
            Self::Replay(record) => crate::replay_text(record),
            Self::ReplayComparison(record) => crate::replay_comparison_text(record),
            Self::Result(result) => crate::terminal_table(result, options.style),
            Self::SideBySide(together) => crate::side_by_side_text(together),
            Self::Overview(overview) => crate::overview_text(overview, ".", options.style),
            Self::FleetPlan(plan) => crate::fleet_plan_text(plan),
            Self::Fleet(record) => crate::fleet_text(record),
        }
    }

    fn json(&self) -> String {
        match self {
            Self::WalStatistics(record) => json(record),
            Self::WalWhatIf(record) => json(record),
            // Of several directories a line each would be no JSON for most programs.
            Self::Verifications(records) => match records.as_slice() {
                [only] => json(only),
                several => json(&several),
            },
            Self::Patrol(record) => json(record),
            Self::Drill(record) => json(record),
            Self::Checksums(record) => json(record),
            Self::Rolling(record) => json(record),
            Self::Corruption(record) => json(record),
            Self::Repairs(records) => match records.as_slice() {
                [only] => json(only),
                several => json(&several),
            },
            Self::Page(record) => json(record),
            Self::PageChecksums(record) => json(record),
            Self::PageDifference(record) => json(record),
            Self::Examination(examination) => json(examination),
            Self::Experiments(list) => json(list),
            Self::Plan(plan) => json(plan),
            Self::Prediction(record) => json(record),
            Self::Judge(record) => json(record),
            Self::Exchange(record) => json(record),
            Self::Failover(record) => json(record),
            Self::LabCorruption(record) => json(record),
            Self::Balance(record) => json(record),
            Self::Bridge(record) => json(record),
            Self::LogExamination(record) => json(record),
            Self::Replay(record) => json(record),
            Self::ReplayComparison(record) => json(record),
            Self::Result(result) => json(result),
            Self::SideBySide(together) => json(together),
            Self::Overview(overview) => json(overview),
            Self::FleetPlan(plan) => json(plan),
            Self::Fleet(record) => json(record),
        }
    }
}

/// The repairs of a ledger, which may break off, or of what was printed.
fn repairs(text: &str) -> Result<Vec<RepairRecord>, serde_json::Error> {
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
        let one = FinishedRecord::Verifications(vec![record()]);
        let shown = |format| one.shown(format, &TableOptions::default());
        for format in Format::ALL {
            let has = one.kind().formats().contains(&format);
            assert_eq!(shown(format).is_some(), has, "{format:?}");
        }
    }

    #[test]
    fn one_or_several_are_read_again() {
        for count in [1, 2] {
            let records = FinishedRecord::Verifications(vec![record(); count]);
            let json = records.shown(Format::Json, &TableOptions::default()).unwrap();
            let Some(FinishedRecord::Verifications(read)) = FinishedRecord::parse(&json).unwrap()
            else {
                panic!("{json}")
            };
            assert_eq!(read, vec![record(); count]);
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
