//! An estimate, and what can be said of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the side of a cost.
    Costs,
    /// The whole interval lies on the side of a gain.
    Gains,
    /// The interval covers 1 and is narrow enough to say so: a cost above its bound is unlikely.
    NoCostAbove,
    /// The interval covers 1 and is wide: nothing can be said yet.
    NotResolved,
}
