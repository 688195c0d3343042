//! The case of a run.

use pgtoll_record::{FailoverDetector, FailoverEngine, FailoverFault};

/// A fault, of the primary of an engine with these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailoverCase {
    pub(super) fault: FailoverFault,
    pub(super) engine: FailoverEngine,
    pub(super) detector: FailoverDetector,
}
