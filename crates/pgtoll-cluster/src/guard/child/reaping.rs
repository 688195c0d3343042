//! Children that have ended, what they used, and how that is said.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::guard::protocol::{Output, Usage};

/// Reaps one child, if one has ended.
pub(super) fn reap_one() -> Option<(i32, WaitStatus, Usage)> {
    let before = usage_of_reaped_children();
    let status = waitpid(None, Some(WaitPidFlag::WNOHANG)).ok()?;
    let pid = status.pid()?.as_raw();
    Some((pid, status, usage_of_reaped_children().since(&before)))
}

pub(super) fn usage_of_reaped_children() -> Usage {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("RUSAGE_CHILDREN is always known");
    let duration = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    Usage {
        user: duration(usage.user_time()),
        system: duration(usage.system_time()),
        blocks_written: u64::try_from(usage.block_writes()).unwrap_or(0),
    }
}

pub(super) fn end_of(status: WaitStatus, usage: Usage, tail: String) -> Output {
    let success = matches!(status, WaitStatus::Exited(_, 0));
    Output { success, status: in_words(status), tail, usage }
}

pub(super) fn in_words(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit status {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {}", signal.as_str()),
        other => format!("{other:?}"),
    }
}
