//! Answers of a run, shortest first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Interval, Metric, Verdict};

/// The answer of a run: a sentence, a line for each workload and arm, what decides, and what would
/// make it surer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunAnswer {
    /// In a sentence.
    pub headline: String,
    /// Advice; only about data checksums against a baseline without them, timed under transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ArmAdvice>,
    /// Each arm under each workload, arm by arm.
    pub lines: Vec<AnswerLine>,
    /// The figure that the sentence rests on, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decides: Option<String>,
    /// How to get a narrower interval, and how long that takes, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surer: Option<String>,
}

/// An arm under a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerLine {
    /// The workload.
    pub workload: String,
    /// Its title.
    pub title: String,
    /// The arm.
    pub arm: String,
    /// The arm's change, in the words of its settings.
    pub change: String,
    /// The compared metric; `None` for counted or sampled figures.
    pub metric: Option<Metric>,
    /// Arm over baseline; `None` of what is counted or sampled.
    pub ratio: Option<Interval>,
    /// The verdict; `None` for counted or sampled figures.
    pub verdict: Option<Verdict>,
    /// The interval covers 1, and its bound is too far away to be of use.
    pub too_noisy: bool,
    /// The figure in words: `+5.9 % [+4.3, +7.4]`, or `no difference seen, at most 2.6 % more`.
    pub figure: String,
    /// Its source, as far as counters show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Advice about an arm's change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmAdvice {
    /// The arm.
    pub arm: String,
    /// The advised action.
    pub action: AdvisedAction,
    /// The rule that it follows from, in words.
    pub rule: String,
}

/// The kinds of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdvisedAction {
    /// It costs little under every workload.
    TurnOn,
    /// It depends on the workload, or is not known well enough.
    MeasureFirst,
    /// It costs much under one of the workloads.
    Leave,
}
