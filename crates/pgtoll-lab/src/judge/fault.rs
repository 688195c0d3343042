//! The fault that a user's command makes.

use std::fmt;
use std::time::Duration;

/// A fault that is caused on purpose: a command of the user's, or a lab's own action.
pub struct JudgeFault {
    /// The command line, or the fault's name.
    pub what: String,
    /// When it begins, from the begin of the run.
    pub at: Duration,
    /// Does it, on a thread of its own, and returns when it is over. If it is not over in time, the
    /// thread is left alone.
    pub action: Box<dyn FnOnce() -> JudgeFaultEnd + Send>,
}

/// How a fault ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeFaultEnd {
    /// It was done as it should be.
    pub success: bool,
    /// How it ended, in words.
    pub status: String,
    /// The end of what it printed.
    pub output: String,
}

impl JudgeFaultEnd {
    /// It was done as it should be.
    pub fn done(status: &str) -> Self {
        Self { success: true, status: status.to_owned(), output: String::new() }
    }
}

impl fmt::Debug for JudgeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JudgeFault")
            .field("what", &self.what)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
