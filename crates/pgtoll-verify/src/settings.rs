//! Settings of reading, and its reports.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// How it is verified.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// Files, and pieces of them, that are read at once.
    pub jobs: NonZeroUsize,
    /// Bytes a second over all jobs; `None`: as fast as it goes.
    pub rate: Option<u64>,
    /// Only relations that have a file at these paths or below them, all of their files; empty: all
    /// relations. The paths begin as the data directory's does.
    pub only_below: Vec<PathBuf>,
    /// Looks at the rows of tables' pages, too, where pages and visibility maps say something of them.
    pub rows: bool,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes that there are to read.
    pub all_bytes: u64,
}

/// How often it is asked whether to continue.
pub(crate) const PROGRESS: Duration = Duration::from_millis(100);
