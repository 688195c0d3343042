//! A server's log as a plan, and the plan on another server: the same statements, by the same sessions, in
//! an order that ends in the same data, without stalls.
//!
//! ```
//! use pgtoll_replay::{LogInput, LogReading, check, read_logs};
//!
//! let log = b"2026-11-21 19:46:17.796 UTC [4711] LOG:  statement: select 1\n";
//! let input = LogInput { name: "postgresql.log".to_owned(), content: Box::new(&log[..]) };
//! let workload = read_logs([input], &LogReading::default(), |_| {})?;
//! assert_eq!(workload.steps.len(), 1);
//! let findings = check(&workload.header)?;
//! assert!(findings.iter().any(|finding| finding.topic == "timing"));
//! # Ok::<(), pgtoll_replay::ReplayError>(())
//! ```

mod capture;
mod catalog;
mod compare;
mod describe;
mod error;
mod fields;
mod latencies;
mod logs;
mod order;
mod plan_file;
mod planned;
mod redaction;
mod run;
mod sql;
mod tables;
mod transactions;
mod user_types;
mod values;
mod wire_capture;
mod workload;

pub use capture::{CapturedPart, LogCapture};
pub use compare::{
    ArmSetup, ComparedArmPlan, ComparedSource, ComparisonError, ComparisonPlan, ComparisonProgress,
    ComparisonSite, TWIN, compare,
};
pub use error::ReplayError;
pub use logs::{LogInput, LogReading, check, read_logs, read_logs_in_parts};
pub use order::OrderMode;
pub use plan_file::PlanWriter;
pub use planned::{examination, replay_record};
pub use redaction::Redactor;
pub use run::{ReplayProgress, ReplaySettings, Replayed, replay};
pub use tables::ComparedTable;
pub use values::{ParameterValue, TypeShape, UserType};
pub use wire_capture::{CaptureProgress, WireCapture, WireCaptured, examine_messages};
pub use workload::{
    CapturedSession, CapturedStep, CapturedWorkload, ExecutedStatement, IncompleteReason,
    PlanHeader, StatementRequest, WireCounts,
};
