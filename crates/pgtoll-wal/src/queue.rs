//! Hands out segments to threads.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queue of segments. Numbers are given out only so far ahead of the one that is merged
/// next, so that results do not pile up behind one that takes long.
pub(crate) struct Queue {
    /// Behind the last one.
    end: usize,
    ahead: usize,
    state: Mutex<QueueState>,
    moved: Condvar,
}

struct QueueState {
    next: usize,
    taken: usize,
    is_closed: bool,
}

impl Queue {
    pub(crate) fn new(numbers: Range<usize>, ahead: usize) -> Self {
        let Range { start, end } = numbers;
        let state = Mutex::new(QueueState { next: start, taken: start, is_closed: false });
        Self { end, ahead, state, moved: Condvar::new() }
    }

    /// The next segment, once it is near enough; `None` where none is left.
    pub(crate) fn next(&self) -> Option<usize> {
        let too_far = |state: &mut QueueState| {
            !state.is_closed && state.next < self.end && state.next >= state.taken + self.ahead
        };
        let waited = self.moved.wait_while(self.state(), too_far);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        (!state.is_closed && number < self.end).then_some(number)
    }

    /// A segment's result was merged.
    pub(crate) fn taken(&self) {
        self.state().taken += 1;
        self.moved.notify_all();
    }

    /// Numbers hold whatever panicked between them.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        pgtoll_system::lock(&self.state)
    }
}

/// Ends the giving out of numbers, also when a collector panics: else the other threads would wait
/// for ever. A thread that ends by itself has found that none is left.
pub(crate) struct Closing<'a>(pub(crate) &'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.moved.notify_all();
    }
}
