//! Which damage is noticed by which detector: the record of the trial, and its table.

mod record;
mod table;

pub use record::{Detection, Detector, Outcome, Row};
pub use table::markdown;
