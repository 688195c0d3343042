//! From a record to estimates ([`summarise`]), and from estimates to what is shown: a module for
//! each form. Strings only: nothing is printed, nothing is measured.

mod checksums;
mod csv;
mod examination;
mod expectations;
mod gobench;
mod html;
mod ladder;
mod markdown;
mod openmetrics;
mod overview;
mod page;
mod plot;
mod printable;
mod side_by_side;
mod summary;
mod terminal;
mod threshold;
mod verification;
mod wal_statistics;
mod wal_whatif;

use pgtoll_record::{Run, RunResult};

pub use crate::csv::csv;
pub use checksums::checksums_text;
pub use examination::examination_text;
pub use gobench::gobench;
pub use html::{
    html_report, html_side_by_side, overview_html, wal_statistics_html, wal_whatif_html,
};
pub use markdown::{markdown, markdown_section};
pub use openmetrics::openmetrics;
pub use overview::{overview_of, overview_text};
pub use page::{page_checksums_text, page_difference_text, page_text};
pub use printable::{is_unprintable, printable, printable_json, printable_lines};
pub use side_by_side::{Change, Difference, NotComparable, OfRecord, SideBySide};
pub use summary::summarise;
pub use terminal::{terminal_table, title as metric_title};
pub use threshold::{Decision, Outcome, Threshold, ThresholdError, decide};
pub use verification::verification_text;
pub use wal_statistics::wal_statistics_text;
pub use wal_whatif::wal_whatif_text;

/// A record among others.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// What its reader calls it: its path.
    pub name: &'a str,
    /// The record.
    pub run: &'a Run,
    /// What was made from it.
    pub result: &'a RunResult,
}
