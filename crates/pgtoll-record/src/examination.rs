//! Whether a machine is fit to be measured on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Calibration, Host, Metric};

/// The version of the examination's form.
pub const EXAMINATION_SCHEMA: &str = "pgtoll.doctor/1";

/// The fitness of a machine for measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Examination {
    /// [`EXAMINATION_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// When it was examined (RFC 3339).
    pub started: String,
    /// The directory for clusters.
    pub work_dir: String,
    /// The machine, as a run's record describes it.
    pub host: Host,
    /// The findings, group by group.
    pub findings: Vec<FitnessCheck>,
    /// Calibrations of this machine's intervals by comparisons without a difference; empty when there
    /// are too few of them.
    pub calibration: Vec<Calibration>,
    /// The runs of `--null`.
    pub null: Option<NullRuns>,
}

impl Examination {
    /// The findings that speak against measuring.
    pub fn warnings(&self) -> impl Iterator<Item = &FitnessCheck> {
        self.findings.iter().filter(|finding| finding.state == State::Warn)
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FitnessCheck {
    /// Its group: `CPU`, `disk` and the like.
    pub group: String,
    /// The subject.
    pub name: String,
    /// Its meaning.
    pub state: State,
    /// The finding, in words.
    pub reading: String,
    /// The finding in numbers; the unit is at the name's end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Returns advice, if there is any.
    pub advice: Option<String>,
}

/// The meaning of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing speaks against measuring.
    Ok,
    /// To be known when results are read.
    Note,
    /// It speaks against measuring.
    Warn,
    /// The system does not tell.
    NotTold,
}

/// Runs in which arms do not differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NullRuns {
    /// The place of their records: those that were completed.
    pub records: Vec<String>,
    /// A signal ended them before their time.
    pub interrupted: bool,
    /// How often their intervals missed.
    pub misses: Vec<Misses>,
}

/// How often intervals claimed a difference where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Misses {
    /// Intervals of which metric.
    pub metric: Metric,
    /// How many there were.
    pub comparisons: u32,
    /// How many of them, before any widening, do not cover 1.
    pub missed: u32,
}
