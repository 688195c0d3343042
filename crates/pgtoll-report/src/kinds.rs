//! Kinds of records whose text or page is composed by hand: their documents have the text as a whole.

use pgtoll_record::{
    ExperimentList, FailoverRecord, JudgeRecord, Overview, PatrolRecord, PlanRecord,
    PredictionRecord, RepairRecord, RunResult, SideBySide, VerificationRecord, WalStatisticsRecord,
    WalWhatIfRecord,
};

use crate::document::Document;
use crate::records::{
    ReportedRecord, TableOptions, one_or_several_json, read_one_or_several, read_repairs,
};
use crate::{
    failover, html, judge, markdown, overview, patrol, plan, prediction, repair, side_by_side,
    terminal, verification, wal_gauges, wal_statistics, wal_whatif,
};

/// Implements [`ReportedRecord`] with the text, and with the forms that are composed by hand.
macro_rules! composed {
    ($($record:ty, $question:literal, $text:expr
        $(, html: $html:expr)? $(, markdown: $markdown:expr)? $(, gauges: $gauges:expr)?;)+) => {
        $(impl ReportedRecord for $record {
            $(composed!(@gauges $gauges);)?

            fn document(&self, options: &TableOptions) -> Document {
                Document::preformatted($question, &self.text(options))
            }

            fn text(&self, options: &TableOptions) -> String {
                let text: fn(&Self, &TableOptions) -> String = $text;
                text(self, options)
            }

            $(fn html(&self) -> String {
                $html(self)
            })?

            $(fn markdown(&self) -> String {
                $markdown(self)
            })?
        })+
    };
    (@gauges $gauges:expr) => {
        const HAS_GAUGES: bool = true;

        fn gauges(&self) -> Option<String> {
            Some($gauges(self))
        }
    };
}

composed! {
    WalStatisticsRecord, "What does this WAL consist of?",
        |record, options| wal_statistics::wal_statistics_text(record, options.by_type, options.most),
        html: html::wal_statistics_html, gauges: wal_gauges::wal_statistics_openmetrics;
    WalWhatIfRecord, "How much WAL would other settings write?",
        |record, _| wal_whatif::wal_whatif_text(record), html: html::wal_whatif_html;
    PatrolRecord, "Are the pages sound, round after round?",
        |record, options| patrol::patrol_text(record, options.most), gauges: patrol::patrol_openmetrics;
    ExperimentList, "Which experiments are built in?", |record, _| plan::experiments_text(record);
    PlanRecord, "What would be measured?", |record, _| plan::plan_text(record);
    PredictionRecord, "What would other settings cost this server?",
        |record, _| prediction::prediction_text(record), html: html::prediction_html;
    JudgeRecord, "What did an application see?",
        |record, _| judge::judge_text(record), html: html::judge_html;
    FailoverRecord, "What do clients see of a failover?",
        |record, _| failover::failover_text(record), html: html::failover_html;
    RunResult, "What did the run measure?",
        |record, options| terminal::terminal_table(record, options.style),
        markdown: markdown;
    SideBySide, "How do these runs compare?",
        |record, _| side_by_side::side_by_side_text(record),
        html: html::html_side_by_side, markdown: side_by_side::side_by_side_markdown;
    Overview, "What did these experiments measure?",
        |record, options| overview::overview_text(record, ".", options.style),
        html: html::overview_html;
}

/// Of several data directories there are several.
impl ReportedRecord for Vec<VerificationRecord> {
    const HAS_GAUGES: bool = true;

    fn document(&self, options: &TableOptions) -> Document {
        Document::preformatted("Are the pages sound?", &self.text(options))
    }

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        read_one_or_several(json)
    }

    fn text(&self, options: &TableOptions) -> String {
        let text = |record| verification::verification_text(record, options.most);
        self.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn markdown(&self) -> String {
        verification::verification_markdown(self)
    }

    fn html(&self) -> String {
        html::verification_html(self)
    }

    fn gauges(&self) -> Option<String> {
        Some(verification::verification_openmetrics(self))
    }

    fn json(&self) -> String {
        one_or_several_json(self)
    }
}

/// Of a ledger there are several.
impl ReportedRecord for Vec<RepairRecord> {
    fn document(&self, options: &TableOptions) -> Document {
        Document::preformatted(
            "Which pages are damaged, and what replaces them?",
            &self.text(options),
        )
    }

    fn read(json: &str) -> Result<Self, serde_json::Error> {
        read_repairs(json)
    }

    fn text(&self, options: &TableOptions) -> String {
        repair::repairs_text(self, options.full)
    }

    fn json(&self) -> String {
        one_or_several_json(self)
    }
}
