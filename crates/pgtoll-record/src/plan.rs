//! The plan of `pgtoll measure`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Workload;

/// The version of the form of a plan.
pub const PLAN_SCHEMA: &str = "pgtoll.plan/1";

/// The plan that `pgtoll measure --dry-run` and `--check` print: nothing was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRecord {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The server's version, where it is and where it is from; `None`: no server was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The directory for clusters; `None` if no server was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    /// The operating system's user that servers would run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// That user stands in for root, as whom PostgreSQL does not run.
    #[serde(default)]
    pub instead_of_root: bool,
    /// The experiments, in the order in which they would run.
    pub experiments: Vec<PlannedRun>,
    /// Seconds that all take together, roughly.
    pub seconds: u64,
    /// Bytes of disk that the largest of them needs, roughly.
    pub disk_bytes: u64,
}

/// One of the experiments, with what was left open decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRun {
    /// The experiment's name.
    pub experiment: String,
    /// The name of `--name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its question.
    pub question: String,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// The arms' names.
    pub arms: Vec<String>,
    /// Settings of all arms.
    pub settings: BTreeMap<String, String>,
    /// The figures' workloads; `timed` says which have intervals.
    pub workloads: Vec<Workload>,
    /// Workloads that a quick look leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Rounds of each timed workload.
    pub rounds: u32,
    /// Repetitions of single operations, each in both orders.
    pub repetitions: u32,
    /// pgbench's scale factor.
    pub scale: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// Seconds that it takes, roughly.
    pub seconds: u64,
    /// Bytes of disk that all its clusters together need, roughly.
    pub disk_bytes: u64,
    /// Warnings for the reader of the results.
    pub warnings: Vec<String>,
    /// The plan in sentences.
    pub lines: Vec<String>,
}
