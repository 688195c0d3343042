//! Exit statuses.

use std::process::ExitCode;

/// How pgtoll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 0: done, or sound.
    Done,
    /// 1: a finding, such as a threshold that is broken.
    Finding,
    /// 2: could not tell: bad usage, unreadable input, interrupted.
    CouldNotTell,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => 0.into(),
            Status::Finding => 1.into(),
            Status::CouldNotTell => 2.into(),
        }
    }
}
