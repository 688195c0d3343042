//! Several experiments that were run in one call, `overview.json`.

use pgtoll_format::ServerVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Comparison, EndStatus, Expected, Host, MetricValue, RunAnswer};

/// The version of the overview's form.
pub const OVERVIEW_SCHEMA: &str = "pgtoll.overview/1";

/// Several experiments, run one after the other on one machine with one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// [`OVERVIEW_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The name of all its runs (`--name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the first began (RFC 3339).
    pub started: String,
    /// The machine.
    pub host: Host,
    /// The server's version.
    #[schemars(with = "String")]
    pub version: ServerVersion,
    /// The answer of all together, in a sentence; `None` if nothing was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<String>,
    /// The experiments, in the order in which they ran.
    pub experiments: Vec<OverviewExperiment>,
}

/// The result of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverviewExperiment {
    /// Its name, which is also that of its result directory beside the overview.
    pub name: String,
    /// Its question.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// How it ended.
    pub status: EndStatus,
    /// Why it did not end well.
    pub reason: Option<String>,
    /// It was not begun, since the server cannot do what it compares: `reason` says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RunAnswer>,
    /// A sentence for each workload that has an answer.
    pub answers: Vec<String>,
    /// Each arm against the baseline, in the metric that a workload's answer is about.
    pub comparisons: Vec<Comparison>,
    /// WAL that was counted over equal work, where another run would give the same.
    pub counted: Vec<MetricValue>,
    /// The claims and their outcomes.
    pub claims: Vec<Expected>,
}

/// The version of the form of the list of experiments.
pub const EXPERIMENTS_SCHEMA: &str = "pgtoll.experiments/1";

/// The experiments that pgtoll brings along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentList {
    /// [`EXPERIMENTS_SCHEMA`].
    pub schema: String,
    /// The experiments.
    pub experiments: Vec<ListedExperiment>,
}

/// An experiment before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedExperiment {
    /// Its name.
    pub name: String,
    /// Its question.
    pub question: String,
    /// How long it takes, roughly, with the budget that was asked for.
    pub seconds: u64,
    /// Bytes of disk that all its clusters together need, roughly.
    pub disk_bytes: u64,
}
