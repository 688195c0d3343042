//! Hooks by which tests change debug builds at chosen moments. Release builds have none of it.

use nix::sys::signal::{Signal, raise};
use pgtoll_measure::Progress;

/// Panics at the block that `PGTOLL_TEST_PANIC_AT` names (`ROUND:BLOCK`), so that a test can see that
/// nothing stays behind.
pub(crate) fn panic_if_told(event: Progress<'_>) {
    if cfg!(debug_assertions)
        && let Progress::Block { round, block, .. } = event
        && std::env::var("PGTOLL_TEST_PANIC_AT").is_ok_and(|at| at == format!("{round}:{block}"))
    {
        panic!("told to panic at round {round}, block {block}");
    }
}

/// Stops the process, until it is continued, at the point that `PGTOLL_TEST_PAUSE_AT` names, so that
/// a test can look at what it has done by then, or kill it there.
pub(crate) fn pause_if_told(point: &str) {
    if cfg!(debug_assertions) && std::env::var("PGTOLL_TEST_PAUSE_AT").is_ok_and(|at| at == point) {
        // It is only for tests, which would see that the process continues.
        let _ = raise(Signal::SIGSTOP);
    }
}

/// Shows what a server has said, if `PGTOLL_TEST_SHOW_LOG` is set: it goes with the server's directory.
#[expect(clippy::print_stderr, reason = "for who debugs a test")]
pub(crate) fn show_if_told(log: &std::path::Path) {
    if cfg!(debug_assertions) && std::env::var_os("PGTOLL_TEST_SHOW_LOG").is_some() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        eprintln!("{text}");
    }
}
