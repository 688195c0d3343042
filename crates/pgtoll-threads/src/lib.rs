//! Threads, as many as the system gives: under a limit of processes there may be fewer than
//! wanted, or none but the caller's.

use std::thread::{Builder, Scope};

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
