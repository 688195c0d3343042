//! The record: what was measured, one JSON line after the other, and what follows from it.
//!
//! The record is the waist of pgtoll: whatever measures writes one, whatever shows reads one. A
//! run's record ([`Run`]) is a file of lines that only grows, so that whatever ends a run leaves
//! all that it measured. [`RunResult`] is the summary that is made from it.
//!
//! ```
//! use pgtoll_record::Run;
//!
//! let error = Run::parse("").unwrap_err();
//! assert_eq!(error.to_string(), "the record is empty");
//! ```

mod result;
mod run;

pub use result::{Comparison, Interval, MetricValue, RESULT_SCHEMA, RunResult, Verdict};
pub use run::{
    Arm, ArmRound, Calibration, Counted, Counters, Design, End, EndStatus, Header, Host, Line,
    Metric, NoiseShare, Note, Operation, Prepared, RECORD_SCHEMA, RecordError, Round, RoundEnd,
    Run, Server, Slice, WalOfType, Work, Workload,
};

/// The JSON Schema of a line of a record.
pub fn line_schema() -> serde_json::Value {
    schemars::schema_for!(Line).to_value()
}

/// The JSON Schema of a result.
pub fn result_schema() -> serde_json::Value {
    schemars::schema_for!(RunResult).to_value()
}
