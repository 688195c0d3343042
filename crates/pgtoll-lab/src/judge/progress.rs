//! Reports of a run in progress.

use std::time::Duration;

use super::schema::LeftoverSchema;

/// How far a run has come.
#[derive(Debug)]
pub enum JudgeProgress<'a> {
    /// A schema of another run is there.
    Leftover(&'a LeftoverSchema),
    /// Something happened.
    Event(&'a str),
    /// Clients work.
    Load {
        /// Time since the begin of the run.
        elapsed: Duration,
        /// Acknowledged transactions so far.
        acknowledged: u64,
        /// Failed and unknown ones.
        failed: u64,
        /// Time since the last acknowledgement to any client.
        silent: Duration,
    },
}

/// Takes the reports of a run's progress.
pub(crate) type OnProgress<'a> = dyn FnMut(JudgeProgress<'_>) + 'a;
