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
mod checkup;
mod checkup_change;
mod checkup_gauges;
mod circumstances;
mod corruption;
mod csv;
mod document;
mod drill;
mod examination;
mod exchange;
mod expectations;
mod failover;
mod fleet;
mod format;
mod gobench;
mod html;
mod judge;
mod kinds;
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
mod plugin;
mod prediction;
mod prediction_numbers;
mod printable;
mod records;
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
pub use cells::title as metric_title;
pub use document::Document;
pub use format::{Format, format_names};
pub use gobench::gobench;
pub use html::{html_report, overview_html};
pub use markdown::{markdown, markdown_costs, markdown_section};
pub use openmetrics::openmetrics;
pub use overview::overview_text;
pub use plugin::{PluginFacts, PluginFigure, PluginLine, PluginStatus};
pub use printable::{is_unprintable, printable, printable_json, printable_lines};
pub use records::{
    FinishedRecord, FinishedRecordError, RecordKind, ReportedRecord, TableOptions, json,
    record_json,
};
pub use style::Style;
pub use terminal::terminal_table;
