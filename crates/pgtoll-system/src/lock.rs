//! Locks of threads that may have panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also after a thread panicked while it held the lock: the panic is reported where the thread is
/// joined.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
