//! Waiting between two reads of a block.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Waits; in tests, does not.
pub trait Pauses: Sync {
    /// Waits so long; false: waiting was ended.
    fn pause(&self, time: Duration) -> bool;

    /// Ends all waiting, now and later.
    fn stop(&self);
}

/// Waits indeed.
#[derive(Debug, Default)]
pub struct RealPauses {
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

impl Pauses for RealPauses {
    fn pause(&self, time: Duration) -> bool {
        let is_stopped = pgtoll_system::lock(&self.is_stopped);
        let waited = self.stopped.wait_timeout_while(is_stopped, time, |stopped| !*stopped);
        let (is_stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*is_stopped
    }

    fn stop(&self) {
        *pgtoll_system::lock(&self.is_stopped) = true;
        self.stopped.notify_all();
    }
}
