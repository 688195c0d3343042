//! What was read of the WAL until now, handed from the thread that reads to the one that watches.
//! Neither waits for the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::wal::reader::ReadWal;

/// The place where it is left.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    wanted: AtomicBool,
    left: Mutex<Option<ReadWal>>,
}

impl Interim {
    /// Asks for it.
    pub(crate) fn ask(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Leaves it, once for each time that it was asked for.
    pub(crate) fn leave(&self, read: ReadWal) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Takes it; `None` where nothing new is there.
    pub(crate) fn take(&self) -> Option<ReadWal> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
