//! Interim results, from the thread that reads WAL to the one that watches.
//! Neither waits for the other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The place where it is left.
#[derive(Debug)]
pub(crate) struct Interim<T> {
    wanted: AtomicBool,
    left: Mutex<Option<T>>,
}

impl<T> Default for Interim<T> {
    fn default() -> Self {
        Self { wanted: AtomicBool::new(false), left: Mutex::new(None) }
    }
}

impl<T> Interim<T> {
    /// Asks for it.
    pub(crate) fn ask(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Leaves it, once for each time that it was asked for.
    pub(crate) fn leave(&self, read: T) {
        *pgtoll_system::lock(&self.left) = Some(read);
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Takes it; `None` where nothing new is there.
    pub(crate) fn take(&self) -> Option<T> {
        pgtoll_system::lock(&self.left).take()
    }
}
