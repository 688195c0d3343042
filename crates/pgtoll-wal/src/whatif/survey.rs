//! A first look at WAL whose server nobody can ask: how far its checkpoints lie apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pgtoll_format::Lsn;
use pgtoll_format::wal::rmgr::{RM_XACT_ID, RM_XLOG_ID, XLOG_FPI_FOR_HINT};
use pgtoll_format::wal::{Event, Parts, Record, RecordType};

use crate::collect::Collect;

/// The result of a first look.
#[derive(Clone, Debug, Default)]
pub struct CheckpointSurvey {
    /// Redo points of checkpoints that were completed, and when they began, in seconds since 1970. No
    /// gap lies between them.
    pub redo_points: Vec<(Lsn, i64)>,
    /// Records for hints.
    pub hints: u64,
    /// When its last transaction ended, in microseconds since 1970.
    pub last_us: Option<i64>,
    /// The most redo points before a gap.
    most: Vec<(Lsn, i64)>,
    /// Checkpoints that all collectors together have seen.
    seen: Option<Arc<AtomicUsize>>,
}

impl CheckpointSurvey {
    /// Counts checkpoints there, for callers that stop early.
    pub fn counting(seen: Arc<AtomicUsize>) -> Self {
        Self { seen: Some(seen), ..Self::default() }
    }

    /// All that was seen, with the redo points of the stretch that has most of them.
    #[must_use]
    pub fn finish(mut self) -> Self {
        if self.most.len() > self.redo_points.len() {
            self.redo_points = std::mem::take(&mut self.most);
        }
        self
    }
}

impl Collect for CheckpointSurvey {
    fn add(&mut self, record: &Record<'_>, parts: &Parts) {
        if !matches!(record.header.manager, RM_XLOG_ID | RM_XACT_ID) {
            return;
        }
        self.hints += u64::from(RecordType::from_header(&record.header) == XLOG_FPI_FOR_HINT);
        match record.event(parts) {
            Some(Event::Checkpoint { redo, is_shutdown, time_s }) => {
                if let Some(seen) = &self.seen {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                self.redo_points.push((if is_shutdown { record.at } else { redo }, time_s));
            }
            Some(Event::TransactionEnd { time_us }) => {
                self.last_us = self.last_us.max(Some(time_us));
            }
            _ => {}
        }
    }

    fn append(&mut self, later: Self) {
        self.redo_points.extend(later.redo_points);
        self.hints += later.hints;
        self.last_us = self.last_us.max(later.last_us);
    }

    fn gap(&mut self, _: Lsn, _: Lsn) {
        let before = std::mem::take(&mut self.redo_points);
        if before.len() > self.most.len() {
            self.most = before;
        }
    }
}
