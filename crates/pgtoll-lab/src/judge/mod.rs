//! The judge: writers with journals, a fault, healing, and the comparison of the journals with what
//! is there in the end.

mod error;
mod events;
mod fault;
mod final_read;
mod history;
mod journal;
mod long_fork;
mod node;
mod observations;
mod outcome;
mod plan;
mod progress;
mod reader;
mod record;
mod run;
mod schedule;
mod schema;
mod session;
mod shared;
mod verdict;
mod writer;

pub use error::{FileError, JudgeError};
pub use fault::{JudgeFault, JudgeFaultEnd};
pub use journal::{Attempt, AttemptEnd, AttemptOutcome, ENTRY_BYTES, JournalReader};
pub use plan::{JudgePlan, JudgeSide};
pub use progress::JudgeProgress;
pub use run::{conclude, judge};
pub use schema::LeftoverSchema;
