//! A panic is a mistake in pgtoll: it is reported in one line, and ends with exit status 2.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports the first panic of any thread. Those that follow from it would only repeat it.
pub(crate) fn report() {
    let was_reported = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |panic| {
        if was_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut text = text(panic);
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text.push_str(&backtrace.to_string());
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
    }));
}

fn text(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let words: Vec<&str> = message.unwrap_or("unknown").split_whitespace().collect();
    let place = panic.location().map_or_else(String::new, |location| {
        format!(" at {}:{}", location.file(), location.line())
    });
    format!(
        "pgtoll: internal error: {}{place}\nhint: please report it with the command: {}\n",
        words.join(" "),
        env!("CARGO_PKG_REPOSITORY"),
    )
}
