//! The bench's record: a line of JSON each.

#[path = "../shared/recorder.rs"]
mod recorder;

use pgtoll_record::Host;
use serde::Serialize;

use crate::runs::{Arm, Usage};

pub(crate) use recorder::Recorder;

pub(crate) const SCHEMA: &str = "pgtoll.bench-verify/1";

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    Header(Box<Header>),
    Cluster { major: u32, bytes: u64, files: usize },
    Run(Run),
    Outcome(&'a Outcome),
}

/// What was run, where, with what.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) schema: &'static str,
    pub(crate) pgtoll: &'static str,
    pub(crate) command: String,
    /// RFC 3339.
    pub(crate) started: String,
    pub(crate) servers: Vec<String>,
    pub(crate) host: Host,
    pub(crate) repetitions: u32,
}

/// One run of one program.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Run {
    /// Of the cluster.
    pub(crate) major: u32,
    /// Counted from 1.
    pub(crate) repetition: u32,
    pub(crate) arm: Arm,
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

/// A ratio, its 95 % interval, and its goal.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Of the cluster.
    pub(crate) major: u32,
    pub(crate) what: &'static str,
    pub(crate) ratio: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    /// `None`: it is told, and no goal.
    pub(crate) at_most: Option<f64>,
}

impl Outcome {
    /// The ratio, whatever its interval, is not above its goal.
    pub(crate) fn is_reached(&self) -> bool {
        self.at_most.is_none_or(|at_most| self.ratio <= at_most)
    }
}
