//! From a record to estimates: samples, intervals, answers, and what follows from them. Whatever
//! measures uses it to know when to end, whatever shows uses it for what it shows, so that both
//! rest on the same numbers. Pure: no I/O, and nothing is measured.
//!
//! ```
//! use pgtoll_estimate::{Threshold, ThresholdOutcome, decide, summarise};
//! use pgtoll_record::Run;
//!
//! let run = Run::parse(include_str!("../../../records/2026-11-22-pg17/run.jsonl"))?;
//! let result = summarise(&run);
//! assert!(result.answer.as_ref().is_some_and(|answer| answer.headline.contains("checksums")));
//! let threshold: Threshold = "checksums.cpu_per_tx > 50%".parse()?;
//! assert!(decide(&threshold, &result).iter().all(|of| of.outcome == ThresholdOutcome::Kept));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod answers;
mod calibration;
mod comparisons;
mod counters;
mod expectations;
mod figures;
mod fleet;
mod fleet_plan;
mod intervals;
mod late_wal;
mod metrics;
mod notes;
mod one_piece;
mod overview;
mod samples;
mod side_by_side;
mod summary;
mod threshold;
mod values;

use pgtoll_record::{Run, RunResult};

pub use answer::{DECIDED_WITHIN, advised_action, change_and_name, overview_headline};
pub use answers::is_near;
pub use calibration::{COMPARISONS_NEEDED, ExpectedWidth, Twins, twin_lines};
pub use figures::{percent_of_share, signed_percent, thousands, three_digits};
pub use fleet::{FleetCpuError, fleet_cpu_times, fleet_object_time, fleet_packing_time};
pub use fleet_plan::{
    FLEET_SHARDS_MAX, fleet_estimate, fleet_shards, fleet_unit_id, read_fleet_plan,
};
pub use intervals::{ArmPair, Intervals};
pub use late_wal::{LATE_WAL, transactions_words};
pub use metrics::{divisor_words, is_cut_off, key, metrics, name as metric_name};
pub use overview::overview_experiment;
pub use samples::{RecordLines, by_round, samples};
pub use side_by_side::{NotComparable, is_of, side_by_side};
pub use summary::summarise;
pub use threshold::{
    CheckupFigure, CheckupThreshold, Decision, PredictionThreshold, Threshold, ThresholdError,
    ThresholdOutcome, checkup_figures, decide,
};

/// A record among others.
#[derive(Clone, Copy, Debug)]
pub struct NamedRun<'a> {
    /// Its name for the reader: its path.
    pub name: &'a str,
    /// The record.
    pub run: &'a Run,
    /// The result that was made from it.
    pub result: &'a RunResult,
}
