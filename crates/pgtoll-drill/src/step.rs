//! Steps of a drill, for its progress.

/// How far a drill is.
#[derive(Clone, Copy, Debug)]
pub enum DrillStep<'a> {
    /// A sentence about a step that takes long or much.
    Sentence(&'a str),
    /// This is done now.
    Stage(&'a str),
    /// How many bytes of the step are done.
    Bytes {
        /// The work.
        what: &'a str,
        /// Bytes that are done.
        done: u64,
        /// Bytes that there are.
        all: u64,
    },
}
