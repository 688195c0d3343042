//! The limit of memory for objects that are read at the same time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Buffers for ranges, of all readers together. They are used again and again: memory that is new costs
/// more than what is read into it.
#[derive(Debug)]
pub(crate) struct RangeBudget {
    free: Mutex<Vec<Vec<u8>>>,
    returned: Condvar,
}

/// A range in memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct RangeBuffer {
    budget: Arc<RangeBudget>,
    /// Empty when it is given out.
    pub(crate) bytes: Vec<u8>,
}

impl RangeBudget {
    pub(crate) fn new(ranges: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(vec![Vec::new(); ranges]), returned: Condvar::new() })
    }

    /// Waits until a buffer is free.
    pub(crate) fn acquire(self: &Arc<Self>) -> RangeBuffer {
        let mut free = self.lock();
        loop {
            if let Some(bytes) = free.pop() {
                return self.buffer(bytes);
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A buffer for reading ahead, if more than `left` are free.
    pub(crate) fn try_acquire(self: &Arc<Self>, left: usize) -> Option<RangeBuffer> {
        let mut free = self.lock();
        let bytes = if free.len() > left { free.pop() } else { None };
        bytes.map(|bytes| self.buffer(bytes))
    }

    fn buffer(self: &Arc<Self>, bytes: Vec<u8>) -> RangeBuffer {
        RangeBuffer { budget: Arc::clone(self), bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        pgtoll_system::lock(&self.free)
    }
}

impl Drop for RangeBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.budget.lock().push(bytes);
        self.budget.returned.notify_one();
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

    #[test]
    fn memory_is_used_again_and_given_out_empty() {
        let budget = RangeBudget::new(1);
        let mut first = budget.acquire();
        first.bytes.extend([1; 1000]);
        let at = first.bytes.as_ptr();
        drop(first);
        let again = budget.acquire();
        assert_eq!((again.bytes.len(), again.bytes.as_ptr()), (0, at));
    }
}
