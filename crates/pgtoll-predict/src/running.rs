//! A checkpoint that runs: `pg_control` has its redo point only when it has completed, which takes
//! most of a cycle with `checkpoint_completion_target = 0.9`.
//!
//! Its begin is seen by the number of checkpoints, and its redo point lies between where WAL ended
//! before and after. What is dirty then belongs to the cycle before, until it is written: these pages
//! are *carried over*. Later censuses look at the same sample of blocks again, by a hash of their
//! numbers, so that carried pages are told from those that were dirtied since.

use pgtoll_format::Lsn;
use pgtoll_record::DirtyCensus;

use crate::carried::CarriedPages;
use crate::looks::Glimpse;
use crate::marks::FollowedPages;

/// A checkpoint that runs.
#[derive(Debug)]
pub(crate) struct RunningCheckpoint {
    /// When it began, by the server's clock.
    pub(crate) begun_s: f64,
    /// The end of WAL just before: its redo point is not lower.
    pub(crate) redo: Lsn,
    /// Blocks evicted before, since counters were reset.
    pub(crate) evicted: Option<u64>,
    pub(crate) carried: CarriedPages,
    /// The pages whose visibility map is followed.
    pub(crate) followed: Option<FollowedPages>,
    /// Blocks that were dirty.
    pub(crate) dirty: u64,
    /// Each with the server's clock.
    pub(crate) censuses: Vec<(f64, DirtyCensus)>,
    /// When the last one was taken, or failed; at first when pages were listed.
    pub(crate) last_census_s: f64,
}

impl RunningCheckpoint {
    /// Whether it is the one that has completed at this look, and began at `begun_s`.
    pub(crate) fn is_of(&self, begun_s: f64, completed: &Glimpse) -> bool {
        (self.begun_s - begun_s).abs() <= CLOCK_ERROR_S && self.redo <= completed.redo
    }
}

/// How far the begin of a checkpoint, seen by its count, may be from that of `pg_control`.
const CLOCK_ERROR_S: f64 = 7.0;
