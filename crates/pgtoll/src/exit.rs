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

impl Status {
    /// Of several. What is surely found is a finding, whatever else could not be told.
    pub(crate) fn worst(of: impl IntoIterator<Item = Self>) -> Self {
        let rank = |of: &Self| match of {
            Self::Done => 0,
            Self::CouldNotTell => 1,
            Self::Finding => 2,
        };
        of.into_iter().max_by_key(rank).unwrap_or(Self::Done)
    }
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
