//! Times and checkpoints in records.

use crate::Lsn;
use crate::wal::bytes::u64_at;
use crate::wal::rmgr::{
    XLOG_CHECKPOINT_ONLINE, XLOG_CHECKPOINT_REDO, XLOG_CHECKPOINT_SHUTDOWN, XLOG_XACT_ABORT,
    XLOG_XACT_ABORT_PREPARED, XLOG_XACT_COMMIT, XLOG_XACT_COMMIT_PREPARED,
};
use crate::wal::{Parts, Record, RecordType};

/// Something that happened at a record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transaction was committed or rolled back.
    TransactionEnd {
        /// When, in microseconds since 1970.
        time_us: i64,
    },
    /// A checkpoint began here (17 and later; before, only its end tells).
    RedoPoint,
    /// A checkpoint was completed.
    Checkpoint {
        /// The redo point of a crash recovery: pages that were changed last before it get an image.
        redo: Lsn,
        /// It is a shutdown's, or the end of a recovery: nothing stands between it and its redo
        /// point.
        is_shutdown: bool,
        /// When it began, in seconds since 1970.
        time_s: i64,
    },
}

/// 2000-01-01, from which PostgreSQL counts, in microseconds since 1970.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

impl Record<'_> {
    /// Returns the event; `None` for most records. Sources: `xl_xact_commit`, `xl_xact_abort`,
    /// `CheckPoint`.
    pub fn event(&self, parts: &Parts) -> Option<Event> {
        let data = self.bytes.get(parts.main_data.clone())?;
        let number = |at| u64_at(data, at);
        match RecordType::from_header(&self.header) {
            XLOG_XACT_COMMIT
            | XLOG_XACT_ABORT
            | XLOG_XACT_COMMIT_PREPARED
            | XLOG_XACT_ABORT_PREPARED => {
                let time_us = number(0)?.cast_signed().saturating_add(POSTGRES_EPOCH_US);
                Some(Event::TransactionEnd { time_us })
            }
            kind @ (XLOG_CHECKPOINT_SHUTDOWN | XLOG_CHECKPOINT_ONLINE) => Some(Event::Checkpoint {
                redo: Lsn(number(0)?),
                is_shutdown: kind == XLOG_CHECKPOINT_SHUTDOWN,
                time_s: number(self.facts.checkpoint_time_at)?.cast_signed(),
            }),
            XLOG_CHECKPOINT_REDO => Some(Event::RedoPoint),
            _ => None,
        }
    }
}
