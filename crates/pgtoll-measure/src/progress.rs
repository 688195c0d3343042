//! Reports of a run in progress.

use std::path::Path;

use crate::InterimEstimate;

/// The present step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress<'a> {
    /// The place of the clusters.
    Directory(&'a Path),
    /// Something that takes a while.
    Stage(&'a str),
    /// An arm that the server cannot be measured in.
    Skipped {
        /// Its name.
        arm: &'a str,
        /// The reason, in a sentence.
        reason: &'a str,
    },
    /// A block of a round begins.
    Block {
        /// The workload's name.
        workload: &'a str,
        /// The round, from 1.
        round: u32,
        /// The block in the round, from 1.
        block: u32,
        /// The estimate from the rounds before it.
        interim: InterimEstimate,
    },
    /// A repetition of operations begins.
    Repetition {
        /// The workload's title.
        title: &'a str,
        /// Its number, from 1.
        repetition: u32,
        /// How many repetitions there will be.
        repetitions: u32,
        /// The estimate from those before it.
        interim: InterimEstimate,
    },
}
