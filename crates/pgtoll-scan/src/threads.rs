//! Threads, as many as the system gives: under a limit of processes there may be fewer than asked
//! for, or none but the one that asks.

use std::thread::{Builder, Scope};

/// Starts up to `wanted` threads, each with what `work` makes for it; how many there are.
pub(crate) fn start<'scope, 'env, W>(
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
