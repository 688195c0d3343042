//! Threads, as many as the system gives: under a limit of processes there may be fewer than
//! wanted, or none but the caller's.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! // Squares of the numbers below ten, by four threads, summed by the caller's.
//! let (next, mut sum) = (AtomicU64::new(0), 0);
//! let worker = || {
//!     |emit: &mut dyn FnMut(u64) -> bool| {
//!         let number = next.fetch_add(1, Ordering::Relaxed);
//!         number < 10 && emit(number * number)
//!     }
//! };
//! let take = |square: Option<u64>| sum += square.unwrap_or_default();
//! pgtoll_system::threads::run_workers(4, Duration::from_millis(100), worker, take);
//! assert_eq!(sum, 285);
//! ```

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, Builder, Scope};
use std::time::Duration;

/// Runs up to `threads` workers and gives what they find to `take`, which runs on the caller's
/// thread. Returns the number of threads that the system started; with 0 the caller's thread does
/// the work, too.
///
/// Each worker is made by `worker` on its own thread and called until it returns false: there is
/// no more work. A call hands results to its argument, which returns false when nobody takes them
/// any more. Workers share their source of work, and wait when they are two results each ahead of
/// `take`. In the meantime `take` is called with `None` each time that nothing came for `interval`.
pub fn run_workers<T, W>(
    threads: usize,
    interval: Duration,
    worker: impl Fn() -> W + Sync,
    mut take: impl FnMut(Option<T>),
) -> usize
where
    T: Send,
    W: FnMut(&mut dyn FnMut(T) -> bool) -> bool,
{
    let started = thread::scope(|scope| {
        let (sender, receiver) = sync_channel(2 * threads);
        let started = start(scope, threads, || {
            let sender = sender.clone();
            let worker = &worker;
            move || {
                let mut work = worker();
                while work(&mut |result| sender.send(result).is_ok()) {}
            }
        });
        drop(sender);
        if started > 0 {
            collect(&receiver, interval, &mut take);
        }
        started
    });
    if started == 0 {
        let mut work = worker();
        let mut emit = |result| {
            take(Some(result));
            true
        };
        while work(&mut emit) {}
    }
    started
}

/// Takes what threads send until all of them have ended, and `None` each time that nothing came
/// for `interval`.
fn collect<T>(receiver: &Receiver<T>, interval: Duration, mut take: impl FnMut(Option<T>)) {
    loop {
        match receiver.recv_timeout(interval) {
            Ok(result) => take(Some(result)),
            Err(RecvTimeoutError::Timeout) => take(None),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Starts up to `wanted` threads, each with a function that `work` makes. Returns the number of
/// threads that the system started, 0 to `wanted`: with 0 the caller does the work itself.
pub fn start<'scope, 'env, W>(
    scope: &'scope Scope<'scope, 'env>,
    wanted: usize,
    mut work: impl FnMut() -> W,
) -> usize
where
    W: FnOnce() + Send + 'scope,
{
    let is_started = |_: &usize| Builder::new().spawn_scoped(scope, work()).is_ok();
    (0..wanted).take_while(is_started).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1);

    /// Numbers below `end`, each taken once.
    fn numbers(
        next: &AtomicUsize,
        end: usize,
    ) -> impl Fn(&mut dyn FnMut(usize) -> bool) -> bool + use<'_> {
        move |emit| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            number < end && emit(number)
        }
    }

    #[test]
    fn all_results_come_with_any_number_of_threads() {
        for threads in [0, 1, 2, 8] {
            let next = AtomicUsize::new(0);
            let mut taken = BTreeSet::new();
            let take = |number: Option<usize>| taken.extend(number);
            let started = run_workers(threads, INTERVAL, || numbers(&next, 1000), take);
            assert_eq!((started, taken.len()), (threads, 1000));
        }
    }

    #[test]
    fn without_threads_results_are_taken_as_they_come() {
        let next = AtomicUsize::new(0);
        let mut order = Vec::new();
        let take = |number: Option<usize>| {
            // The next one is not begun before this one is taken.
            assert_eq!(number, Some(next.load(Ordering::Relaxed) - 1));
            order.extend(number);
        };
        run_workers(0, INTERVAL, || numbers(&next, 5), take);
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn workers_wait_for_who_takes_their_results() {
        let next = AtomicUsize::new(0);
        let mut taken = 0;
        let take = |number: Option<usize>| {
            taken += usize::from(number.is_some());
            // Four of two threads wait in the channel, and each thread has one in its hands.
            let ahead = next.load(Ordering::Relaxed).min(1000).saturating_sub(taken);
            assert!(ahead <= 6, "{ahead}");
        };
        run_workers(2, INTERVAL, || numbers(&next, 1000), take);
        assert_eq!(taken, 1000);
    }

    #[test]
    fn while_workers_are_busy_the_caller_is_asked() {
        let may_end = AtomicBool::new(false);
        let mut requested = 0;
        let mut taken = 0;
        let worker = || {
            |emit: &mut dyn FnMut(usize) -> bool| {
                while !may_end.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                emit(7);
                false
            }
        };
        let take = |result: Option<usize>| match result {
            None => {
                requested += 1;
                may_end.store(true, Ordering::Relaxed);
            }
            Some(number) => taken += number,
        };
        run_workers(1, INTERVAL, worker, take);
        assert!(requested > 0 && taken == 7, "{requested} {taken}");
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_worker_that_panics_ends_all() {
        let next = AtomicUsize::new(0);
        let worker = || {
            let number = numbers(&next, 1000);
            move |emit: &mut dyn FnMut(usize) -> bool| {
                number(&mut |number| {
                    assert_ne!(number, 500, "as it was to be");
                    emit(number)
                })
            }
        };
        run_workers(2, INTERVAL, worker, |_| {});
    }
}
