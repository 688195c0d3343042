//! How much of objects is in memory at the same time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Ranges that may be in memory, of all readers together.
#[derive(Debug)]
pub(crate) struct RangeBudget {
    free: Mutex<usize>,
    returned: Condvar,
}

/// A range that may be in memory until this is dropped.
#[derive(Debug)]
pub(crate) struct RangePermit(Arc<RangeBudget>);

impl RangeBudget {
    pub(crate) fn new(ranges: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(ranges), returned: Condvar::new() })
    }

    /// Waits until a range is free.
    pub(crate) fn acquire(self: &Arc<Self>) -> RangePermit {
        let free = self.lock();
        let waited = self.returned.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        RangePermit(Arc::clone(self))
    }

    /// A range for reading ahead, if more than `left` are free.
    pub(crate) fn try_acquire(self: &Arc<Self>, left: usize) -> Option<RangePermit> {
        let mut free = self.lock();
        if *free <= left {
            return None;
        }
        *free -= 1;
        Some(RangePermit(Arc::clone(self)))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RangePermit {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_ranges_are_given_than_there_are() {
        let budget = RangeBudget::new(2);
        let first = budget.acquire();
        let second = budget.try_acquire(0).unwrap();
        assert!(budget.try_acquire(0).is_none());
        drop(first);
        assert!(budget.try_acquire(1).is_none(), "one is left for those who read");
        let third = budget.acquire();
        drop((second, third));
        assert!(budget.try_acquire(1).is_some());
    }
}
