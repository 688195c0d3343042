//! Benches and trials of pgtoll itself, and the parts that they share: arms and their goals, the
//! site of servers, records, timed programs.
//!
//! Each program is a directory below `src/bin`; `cargo xtask` runs them by name (`bench verify`,
//! `soak`, `detection`, …). Their records have their types in [`pgtoll_record::trials`]; the figures
//! in the documentation come from those records.

pub mod bench;
pub mod detection;
mod program;
mod recorder;
mod run;
mod site;

pub use program::{Measured, beside, measured, program, timed, warm};
pub use recorder::Recorder;
pub use run::{print, run, say};
pub use site::{TrialSite, dsn, installation, server_name, settings};
