//! Kinds of records whose text or page is composed by hand: their documents have the text as a whole.

use pgtoll_record::{
    Overview, PredictionRecord, RunResult, SideBySide, WalStatisticsRecord, WalWhatIfRecord,
};

use crate::document::Document;
use crate::records::{ReportedRecord, TableOptions};
use crate::{
    html, markdown, overview, prediction, side_by_side, terminal, wal_gauges, wal_statistics,
    wal_whatif,
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
    PredictionRecord, "What would other settings cost this server?",
        |record, _| prediction::prediction_text(record), html: html::prediction_html;
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
