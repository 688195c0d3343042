//! The bench's record: a line of JSON each.

use pgtoll_record::Host;
use pgtoll_trials::{Outcome, Usage};
use serde::Serialize;

use crate::runs::Arm;

pub(crate) const SCHEMA: &str = "pgtoll.bench-enable/1";

/// A line of the record.
#[derive(Debug, Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    Header(Box<Header>),
    Cluster { server: &'a str, bytes: u64, files: usize },
    Run(Run<'a>),
    Outcome(&'a Outcome<Subject>),
}

/// What was run, where, with what.
#[derive(Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) schema: &'static str,
    pub(crate) pgtoll: &'static str,
    pub(crate) command: String,
    /// RFC 3339.
    pub(crate) started: String,
    pub(crate) host: Host,
    pub(crate) repetitions: u32,
}

/// One run of one program.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Run<'a> {
    pub(crate) server: &'a str,
    /// Counted from 1.
    pub(crate) repetition: u32,
    pub(crate) arm: Arm,
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

/// What a ratio is about.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subject {
    pub(crate) server: String,
}
