//! The same work, replayed on copies of one data directory that differ in what is to be compared.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::replay::LogSource;
use crate::run::Host;
use crate::shape_plans::ShapePlans;

/// The version of the form of [`ReplayComparison`].
pub const REPLAY_COMPARISON_SCHEMA: &str = "pgtoll.replay-comparison/1";

/// The statements of a workload that are slower or faster on an arm than on the baseline: printed by
/// `pgtoll replay compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayComparison {
    /// [`REPLAY_COMPARISON_SCHEMA`].
    pub schema: String,
    /// pgtoll's version.
    pub pgtoll: String,
    /// The command that makes the record again, a shell's word each.
    pub command: Vec<String>,
    /// When it was made (RFC 3339).
    pub made: String,
    /// The machine.
    pub host: Host,
    /// The logs that the plan was made from.
    pub sources: Vec<LogSource>,
    /// `server_version` of the baseline, and of the other arms unless they have their own.
    pub server: String,
    /// `key`, `table` or `none`.
    pub order: String,
    /// The recorded time's multiple; `None` is as fast as possible.
    pub speed: Option<f64>,
    /// Rounds that were asked for. In each one every arm replays the work once, on a fresh copy.
    pub rounds: u32,
    /// Fixes the order of arms in rounds.
    pub seed: u64,
    /// The share of shapes called slower or faster that may be neither.
    pub false_discovery_rate: f64,
    /// The probability with which an interval should hold the true ratio.
    pub confidence: f64,
    /// Ratios whose interval lies within this distance of 1 count as unchanged.
    pub margin: f64,
    /// All rounds were done, and nothing went otherwise than it should.
    pub complete: bool,
    /// The reason for an early end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The baseline, its twin, and what they are compared with.
    pub arms: Vec<ReplayArm>,
    /// The times of whole replays, each arm compared with the baseline.
    pub totals: Vec<ReplayTotal>,
    /// Statements without their values, the largest part of the baseline's work first.
    pub shapes: Vec<ShapeComparison>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The role of a replay's arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayArmRole {
    /// Others are compared with it.
    Baseline,
    /// It does not differ from the baseline, and shows what two replays of the same differ by.
    Twin,
    /// It is compared with the baseline.
    Treatment,
}

/// An arm, and its replays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayArm {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub role: ReplayArmRole,
    /// `server_version`, where arms are of several data directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Whether its pages have checksums.
    pub checksums: bool,
    /// Settings that differ from the data directory's.
    pub settings: BTreeMap<String, String>,
    /// The script that changed its copy before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Its replays, in the order of rounds.
    pub runs: Vec<ArmReplay>,
}

/// One replay on one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmReplay {
    /// The round, from 1.
    pub round: u32,
    /// Its place in the round, from 1.
    pub place: u32,
    /// From the first connection to the last statement's end, in seconds.
    pub run_s: f64,
    /// Statements that were sent.
    pub statements: u64,
    /// Statements that failed and had not failed when they were logged, or had failed otherwise.
    pub unexpected_errors: u64,
    /// Statements that had failed and did not.
    pub missing_errors: u64,
    /// Waits that were given up, since they led in a circle.
    pub order_breaks: u64,
    /// Sessions that ended early.
    pub broken_sessions: u64,
    /// CPU time of all the server's processes, in seconds.
    pub cpu_s: f64,
    /// WAL in bytes.
    pub wal_bytes: u64,
    /// Full-page images in it (from 14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_images: Option<u64>,
    /// CPU time of the replaying process, in seconds.
    pub client_cpu_s: f64,
    /// The 99th percentile of how much later than due statements were sent, in milliseconds. `None` at
    /// full speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_p99_ms: Option<f64>,
}

/// A quantity of a whole replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayQuantity {
    /// Time at the server, added up over all statements, in seconds.
    StatementTime,
    /// The replay's length in seconds.
    RunTime,
    /// CPU time of the server, in seconds.
    Cpu,
    /// WAL in bytes.
    Wal,
    /// Full-page images in the WAL.
    WalImages,
}

/// A quantity of an arm's replays beside the baseline's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayTotal {
    /// The counts.
    pub quantity: ReplayQuantity,
    /// The arm.
    pub arm: String,
    /// The baseline's mean, a replay.
    pub baseline: f64,
    /// The arm's mean.
    pub value: f64,
    /// Arm over the geometric mean of baseline and twin; of the twin, over the baseline. The mean of the
    /// rounds on the log scale. `None` where one of them is 0.
    pub ratio: Option<RatioRange>,
}

/// A ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RatioRange {
    /// The estimate.
    pub ratio: f64,
    /// The interval's lower end.
    pub lower: f64,
    /// The interval's upper end.
    pub upper: f64,
}

impl RatioRange {
    /// The change in percent with its interval; of large changes, how many times.
    pub fn change(&self) -> String {
        let Self { ratio, lower, upper } = *self;
        if !(1.0 / 3.0..=3.0).contains(&ratio) {
            return format!("{ratio:.2} times ({lower:.2} to {upper:.2})");
        }
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        format!("{:+.1} % ({:+.1} to {:+.1} %)", percent(ratio), percent(lower), percent(upper))
    }
}

/// A statement without its values, on all arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeComparison {
    /// The statement.
    pub statement: String,
    /// Executions that are compared: those without an error on every arm, a replay.
    pub executions: u64,
    /// Its part of the time that all statements took on the baseline, from 0 to 1.
    pub share: f64,
    /// The mean time on the baseline, in milliseconds.
    pub baseline_ms: f64,
    /// How far two replays of the same are apart: the twin's distance from 1, as in 0.03 for 3 %. `None`
    /// where the twin could not be compared.
    pub floor: Option<f64>,
    /// The arms beside the baseline, without the twin.
    pub arms: Vec<ShapeDifference>,
}

/// A statement on an arm beside the same statement on the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeDifference {
    /// The arm.
    pub arm: String,
    /// The verdict.
    pub verdict: ShapeVerdict,
    /// Arm over the geometric mean of baseline and twin, time at the server. `None` where it could not be
    /// compared.
    pub range: Option<RatioRange>,
    /// How probable such a ratio is where nothing differs.
    pub p_value: Option<f64>,
    /// The same ratio, beside what the other statements of the same replays share: without what made a
    /// whole replay slower or faster than the next. `None` where there were too few other statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_others: Option<RatioRange>,
    /// How probable such a ratio beside the others is where nothing differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_others_p_value: Option<f64>,
    /// Twice the smaller of both p-values, or the one that there is, adjusted for the number of shapes
    /// (Benjamini and Hochberg). The one beside the others counts only where both ratios lie on the same side
    /// of 1.
    pub adjusted_p_value: Option<f64>,
    /// The change of the whole time at the server: its share times the ratio less 1.
    pub impact: Option<f64>,
    /// The ratio in each round.
    pub round_ratios: Vec<f64>,
    /// How both servers execute the statement, where it is slower or faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plans: Option<ShapePlans>,
}

/// The verdict of a comparison on a statement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ShapeVerdict {
    /// It takes longer.
    Slower,
    /// It takes less time.
    Faster,
    /// Whatever differs is less than the margin.
    Unchanged,
    /// A difference as large as the margin can neither be shown nor excluded.
    NotResolved,
}

impl ReplayComparison {
    /// The shapes with this verdict on an arm, by what they change, most first.
    pub fn by_verdict(&self, verdict: ShapeVerdict) -> Vec<(&ShapeComparison, &ShapeDifference)> {
        let all =
            self.shapes.iter().flat_map(|shape| shape.arms.iter().map(move |arm| (shape, arm)));
        let mut found: Vec<_> = all.filter(|(_, item)| item.verdict == verdict).collect();
        let weight = |(shape, item): &(&ShapeComparison, &ShapeDifference)| {
            item.impact.map_or(shape.share, f64::abs)
        };
        found.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        found
    }
}
