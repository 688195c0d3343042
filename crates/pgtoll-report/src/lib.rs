//! From records and estimates to what is shown: a module for each form. Strings only: nothing is
//! printed, nothing is measured, nothing is estimated.
//!
//! ```
//! use pgtoll_estimate::summarise;
//! use pgtoll_record::Run;
//!
//! let run = Run::parse(include_str!("../../../records/2026-11-22-pg17/run.jsonl"))?;
//! let table = pgtoll_report::terminal_table(&summarise(&run), pgtoll_report::Style::Plain);
//! assert!(table.starts_with("checksums: PostgreSQL 17."));
//! # Ok::<(), pgtoll_record::RecordError>(())
//! ```

mod answer;
mod balance;
mod bridge;
mod cells;
mod checksums;
mod circumstances;
mod corruption;
mod csv;
mod drill;
mod examination;
mod exchange;
mod expectations;
mod failover;
mod finished;
mod fleet;
mod format;
mod gobench;
mod html;
mod judge;
mod lab_corruption;
mod ladder;
mod markdown;
mod openmetrics;
mod overview;
mod page;
mod patrol;
mod payers;
mod plan;
mod plot;
mod prediction;
mod prediction_numbers;
mod printable;
mod repair;
mod replay;
mod replay_comparison;
mod rolling;
mod side_by_side;
mod style;
mod terminal;
mod text;
mod verification;
mod wal_gauges;
mod wal_numbers;
mod wal_short;
mod wal_statistics;
mod wal_whatif;

pub use crate::csv::csv;
pub use balance::{balance_findings, balance_text};
pub use bridge::{bridge_findings, bridge_text};
pub use cells::title as metric_title;
pub use checksums::checksums_text;
pub use corruption::corruption_text;
pub use drill::drill_text;
pub use examination::examination_text;
pub use exchange::{exchange_findings, exchange_text};
pub use failover::{failover_findings, failover_text};
pub use finished::{FinishedRecord, FinishedRecordError, RecordKind, TableOptions};
pub use fleet::{fleet_markdown, fleet_openmetrics, fleet_plan_text, fleet_text};
pub use format::{Format, format_names};
pub use gobench::gobench;
pub use html::{
    balance_html, bridge_html, drill_html, exchange_html, failover_html, fleet_html, html_report,
    html_side_by_side, judge_html, lab_corruption_html, overview_html, prediction_html,
    replay_comparison_html, replay_html, verification_html, wal_statistics_html, wal_whatif_html,
};
pub use judge::{judge_headline, judge_text};
pub use lab_corruption::{lab_corruption_findings, lab_corruption_text};
pub use markdown::{markdown, markdown_costs, markdown_section};
pub use openmetrics::openmetrics;
pub use overview::overview_text;
pub use page::{page_checksums_text, page_difference_text, page_text};
pub use patrol::{patrol_openmetrics, patrol_text};
pub use plan::{experiments_text, plan_text};
pub use prediction::prediction_text;
pub use printable::{is_unprintable, printable, printable_json, printable_lines};
pub use repair::repairs_text;
pub use replay::{log_examination_text, replay_text};
pub use replay_comparison::{replay_comparison_findings, replay_comparison_text};
pub use rolling::rolling_text;
pub use side_by_side::{side_by_side_markdown, side_by_side_text};
pub use style::Style;
pub use terminal::terminal_table;
pub use verification::{verification_markdown, verification_openmetrics, verification_text};
pub use wal_gauges::wal_statistics_openmetrics;
pub use wal_statistics::wal_statistics_text;
pub use wal_whatif::wal_whatif_text;

/// A record as JSON that a terminal can be shown: characters that it would obey are JSON's escapes.
pub fn json(record: &impl serde::Serialize) -> String {
    // Records are made of strings and numbers.
    let text = serde_json::to_string_pretty(record).unwrap_or_default() + "\n";
    printable_json(&text).into_owned()
}
