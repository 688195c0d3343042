//! Ratios of what two arms took, and their goals.

use std::fmt::Write as _;

use pgtoll_stats::{Options, Pair, Round, paired_ratio};
use serde::Serialize;

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    /// The ratio.
    pub ratio: f64,
    /// Where the interval begins.
    pub lower: f64,
    /// Where it ends.
    pub upper: f64,
}

/// The ratio of two arms' figures, in the order of their repetitions: those of the same repetition
/// are a pair.
pub fn ratio(
    numerators: impl Iterator<Item = f64>,
    denominators: impl Iterator<Item = f64>,
) -> anyhow::Result<Estimate> {
    let pair = |(treatment, baseline)| Pair {
        numerator_treatment: treatment,
        denominator_treatment: 1.0,
        numerator_baseline: baseline,
        denominator_baseline: 1.0,
    };
    let rounds: Vec<Round> =
        numerators.zip(denominators).map(|both| Round { pairs: vec![pair(both)] }).collect();
    let estimate = paired_ratio(&rounds, &Options::default())?;
    Ok(Estimate { ratio: estimate.ratio, lower: estimate.lower, upper: estimate.upper })
}

/// What a ratio shall be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Not larger.
    AtMost(Option<f64>),
    /// Not smaller.
    AtLeast(f64),
}

/// A comparison with its estimate and its goal, as a line of a record. `S` names what was compared,
/// such as the server.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome<S> {
    /// The subject of the comparison.
    #[serde(flatten)]
    pub subject: S,
    /// Which arms were compared, and by which figure.
    pub what: &'static str,
    /// The ratio.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Its goal; in records `at_most` is null where the ratio is shown and has no goal.
    #[serde(flatten)]
    pub goal: Goal,
}

impl<S> Outcome<S> {
    /// Whether the ratio itself, whatever its interval, meets the goal.
    pub fn is_reached(&self) -> bool {
        match self.goal {
            Goal::AtMost(goal) => goal.is_none_or(|goal| self.estimate.ratio <= goal),
            Goal::AtLeast(goal) => self.estimate.ratio >= goal,
        }
    }

    fn verdict(&self) -> &'static str {
        let Estimate { ratio, lower, upper } = self.estimate;
        // As if the goal were "at most": the bound that has to meet it first.
        let (goal, far, middle, near) = match self.goal {
            Goal::AtMost(None) => return "",
            Goal::AtMost(Some(goal)) => (goal, upper, ratio, lower),
            Goal::AtLeast(goal) => (-goal, -lower, -ratio, -upper),
        };
        match () {
            () if far <= goal => "reached",
            () if middle <= goal => "reached, by its middle",
            () if near <= goal => "missed, by its middle",
            () => "missed",
        }
    }
}

/// A table of ratios and goals, with so many decimals.
pub fn outcomes_table<S>(outcomes: &[Outcome<S>], decimals: usize) -> String {
    let mut text = format!("{:<46}{:>7}{:>18}{:>8}\n", "", "ratio", "95 % interval", "goal");
    for outcome in outcomes {
        let Estimate { ratio, lower, upper } = outcome.estimate;
        let interval = format!("[{lower:.decimals$}, {upper:.decimals$}]");
        let goal = match outcome.goal {
            Goal::AtMost(goal) => goal,
            Goal::AtLeast(goal) => Some(goal),
        };
        let goal = goal.map_or_else(String::new, |goal| format!("{goal:.decimals$}"));
        let (what, verdict) = (outcome.what, outcome.verdict());
        let _ = writeln!(text, "{what:<46}{ratio:>7.decimals$}{interval:>18}{goal:>8}  {verdict}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(estimate: (f64, f64, f64), goal: Goal) -> (&'static str, bool) {
        let (lower, ratio, upper) = estimate;
        let estimate = Estimate { ratio, lower, upper };
        let outcome = Outcome { subject: (), what: "", estimate, goal };
        (outcome.verdict(), outcome.is_reached())
    }

    #[test]
    fn a_goal_is_reached_by_the_interval_or_by_its_middle() {
        let at_most = |goal| Goal::AtMost(Some(goal));
        assert_eq!(verdict((0.4, 0.5, 0.6), at_most(0.6)), ("reached", true));
        assert_eq!(verdict((0.4, 0.5, 0.6), at_most(0.5)), ("reached, by its middle", true));
        assert_eq!(verdict((0.4, 0.5, 0.6), at_most(0.45)), ("missed, by its middle", false));
        assert_eq!(verdict((0.4, 0.5, 0.6), at_most(0.3)), ("missed", false));
        assert_eq!(verdict((0.4, 0.5, 0.6), Goal::AtMost(None)), ("", true));
        assert_eq!(verdict((2.4, 2.5, 2.6), Goal::AtLeast(2.4)), ("reached", true));
        assert_eq!(verdict((2.4, 2.5, 2.6), Goal::AtLeast(2.55)), ("missed, by its middle", false));
    }

    #[test]
    fn records_have_the_goal_under_its_own_name() {
        #[derive(Serialize)]
        struct Subject {
            major: u32,
        }
        let estimate = Estimate { ratio: 0.5, lower: 0.25, upper: 0.75 };
        let of = |goal| {
            let outcome = Outcome { subject: Subject { major: 15 }, what: "x", estimate, goal };
            serde_json::to_string(&outcome).unwrap()
        };
        let begin = r#"{"major":15,"what":"x","ratio":0.5,"lower":0.25,"upper":0.75,"#;
        assert_eq!(of(Goal::AtMost(None)), format!(r#"{begin}"at_most":null}}"#));
        assert_eq!(of(Goal::AtLeast(2.0)), format!(r#"{begin}"at_least":2.0}}"#));
    }
}
