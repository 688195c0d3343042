//! The bench's record: a line of JSON each.

use pgtoll_record::Host;
use pgtoll_trials::Outcome;
use serde::Serialize;

use crate::runs::Place;

pub(crate) const SCHEMA: &str = "pgtoll.bench-checksum/1";

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    Header(Box<Header>),
    Run(&'a Run),
    Outcome(&'a Outcome<Subject>),
}

/// What was run, where, with what.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) schema: &'static str,
    pub(crate) pgtoll: &'static str,
    pub(crate) command: String,
    /// RFC 3339.
    pub(crate) started: String,
    pub(crate) host: Host,
    /// The kernel that is chosen here.
    pub(crate) best: &'static str,
    pub(crate) repetitions: u32,
}

/// The slices of one kernel in one repetition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// Counted from 1.
    pub(crate) repetition: u32,
    pub(crate) place: Place,
    pub(crate) arm: &'static str,
    pub(crate) slices_ns: Vec<u64>,
}

/// Nothing but the kernels is compared.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Subject {}

impl Run {
    /// What the run says: others on the machine make slices longer and never shorter, so in the
    /// cache it is the fastest one. Parts of memory may by luck still be in a cache, so there it is
    /// the slowest of the fastest tenth.
    #[expect(clippy::cast_precision_loss, reason = "a slice is milliseconds and megabytes")]
    pub(crate) fn nanoseconds_a_byte(&self) -> f64 {
        let mut slices = self.slices_ns.clone();
        slices.sort_unstable();
        let at = match self.place {
            Place::Cache => 0,
            Place::Memory => slices.len() / 10,
        };
        slices[at] as f64 / self.place.slice_bytes() as f64
    }
}
