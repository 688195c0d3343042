//! Not more bytes a second than were allowed, over all threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When the next bytes may be read, and whether anything is to be read any more.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second; `None`: as fast as it goes.
    rate: Option<u64>,
    next: Mutex<Instant>,
    is_stopped: AtomicBool,
    stopped: Condvar,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        let next = Mutex::new(Instant::now());
        let is_stopped = AtomicBool::new(false);
        Self { rate, next, is_stopped, stopped: Condvar::new() }
    }

    /// Nothing is to be read any more.
    pub(super) fn stop(&self) {
        // Under the lock: no thread is between its check and its wait.
        let _held = pgtoll_system::lock(&self.next);
        self.is_stopped.store(true, Ordering::Relaxed);
        self.stopped.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits until this many bytes may be read; false: not any more.
    pub(super) fn may_read(&self, bytes: u64) -> bool {
        let Some(rate) = self.rate else { return !self.is_stopped() };
        let mut next = pgtoll_system::lock(&self.next);
        let now = Instant::now();
        // What was not used before is gone: no burst after a pause.
        let begin = now.max(*next);
        *next = begin + time(bytes, rate);
        loop {
            let left = begin.saturating_duration_since(Instant::now());
            if self.is_stopped() || left.is_zero() {
                return !self.is_stopped();
            }
            let waited = self.stopped.wait_timeout(next, left);
            next = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How long this many bytes take at this rate.
fn time(bytes: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_time_for_each_byte() {
        assert_eq!(time(1 << 20, 1 << 20), Duration::from_secs(1));
        assert_eq!(time(u64::MAX, 0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn who_waits_is_told_to_stop() {
        let pace = Pace::new(Some(1));
        assert!(pace.may_read(1 << 30));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| pace.may_read(1));
            pace.stop();
            assert!(!waits.join().unwrap());
        });
        assert!(!pace.may_read(0));
    }
}
