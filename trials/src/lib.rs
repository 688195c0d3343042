//! Benches and trials of pgtoll itself, and what they share: goals, records, timed programs.
//!
//! Each program is a directory below `src/bin`; `cargo xtask` runs them by name (`bench verify`,
//! `soak`, `detection`, …). What they show reaches the documentation from their records.

pub mod detection;
mod goal;
mod program;
mod recorder;
mod run;

pub use goal::{Estimate, Goal, Outcome, outcomes_table, ratio};
pub use program::{Usage, beside, program, timed, warm};
pub use recorder::Recorder;
pub use run::{print, run, say};
