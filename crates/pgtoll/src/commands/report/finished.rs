//! Records that need no estimates: what a command printed with `--json`, shown again.

use pgtoll_record::{
    CHECKSUMS_SCHEMA, ChecksumsRecord, VERIFICATION_SCHEMA, VerificationRecord,
    WAL_STATISTICS_SCHEMA, WAL_WHATIF_SCHEMA, WalStatisticsRecord, WalWhatIfRecord,
};
use serde_json::Value;

use super::format;
use crate::arguments::{Format, ReportArguments};
use crate::commands::Usage;
use crate::commands::output::json;

/// What a command printed.
pub(super) enum Finished {
    WalStatistics(Box<WalStatisticsRecord>),
    WalWhatIf(Box<WalWhatIfRecord>),
    /// Of several data directories there are several.
    Verifications(Vec<VerificationRecord>),
    Checksums(Box<ChecksumsRecord>),
}

impl Finished {
    /// The record in this text; `None` where there is another one, or none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // A run's record is far longer than what is looked at here.
        let begin: String = text.chars().take(200).collect();
        if begin.contains(WAL_STATISTICS_SCHEMA) {
            return serde_json::from_str(text).ok().map(Self::WalStatistics);
        }
        if begin.contains(WAL_WHATIF_SCHEMA) {
            return serde_json::from_str(text).ok().map(|of| Self::WalWhatIf(Box::new(of)));
        }
        if begin.contains(CHECKSUMS_SCHEMA) {
            return serde_json::from_str(text).ok().map(Self::Checksums);
        }
        if begin.contains(VERIFICATION_SCHEMA) {
            let one_or_more = match serde_json::from_str(text).ok()? {
                Value::Array(several) => several,
                one => vec![one],
            };
            let records = one_or_more.into_iter().map(serde_json::from_value);
            return records.collect::<Result<_, _>>().ok().map(Self::Verifications);
        }
        None
    }

    /// The record in the form that was asked for.
    pub(super) fn shown(&self, arguments: &ReportArguments) -> anyhow::Result<String> {
        if !arguments.fail_if.is_empty() {
            let hint = "thresholds are for the records of pgtoll measure";
            return Err(Usage::error(format!("{} have no comparisons", self.name()), hint));
        }
        match (format(arguments), self) {
            (Format::Table, Self::WalStatistics(record)) => {
                Ok(pgtoll_report::wal_statistics_text(record, false, TOP))
            }
            (Format::Json, Self::WalStatistics(record)) => json(record),
            (Format::Html, Self::WalStatistics(record)) => {
                Ok(pgtoll_report::wal_statistics_html(record))
            }
            (Format::Table, Self::WalWhatIf(record)) => Ok(pgtoll_report::wal_whatif_text(record)),
            (Format::Json, Self::WalWhatIf(record)) => json(record),
            (Format::Html, Self::WalWhatIf(record)) => Ok(pgtoll_report::wal_whatif_html(record)),
            (Format::Table, Self::Verifications(records)) => {
                let text = |record| pgtoll_report::verification_text(record, TOP);
                Ok(records.iter().map(text).collect::<Vec<_>>().join("\n"))
            }
            (Format::Json, Self::Verifications(records)) => Ok(match records.as_slice() {
                [only] => json(only)?,
                several => json(&several)?,
            }),
            (Format::Table, Self::Checksums(record)) => Ok(pgtoll_report::checksums_text(record)),
            (Format::Json, Self::Checksums(record)) => json(record),
            _ => Err(Usage::error(
                format!("{} cannot be exported in this format", self.name()),
                self.forms(),
            )),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::WalStatistics(_) => "WAL statistics",
            Self::WalWhatIf(_) => "WAL under other settings",
            Self::Verifications(_) => "verifications",
            Self::Checksums(_) => "changes of checksums",
        }
    }

    fn forms(&self) -> &'static str {
        match self {
            Self::WalStatistics(_) => "WAL statistics are shown as table, json or html",
            Self::WalWhatIf(_) => "WAL under other settings is shown as table, json or html",
            Self::Verifications(_) => "verifications are shown as table or json",
            Self::Checksums(_) => "changes of checksums are shown as table or json",
        }
    }
}

/// How many lines a table has at most.
const TOP: usize = 10;
