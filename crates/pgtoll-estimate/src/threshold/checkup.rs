//! Thresholds for checkups: `FIGURE > NUMBER`.

use std::str::FromStr;

use pgtoll_record::{CheckupRecord, Spread};

use super::parse::at_relation;
use super::{Decision, Relation, ThresholdError, ThresholdOutcome};
use crate::figures::three_digits;

/// A figure of a checkup, between its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckupFigure {
    /// Its name, such as `loss_window.p95`.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
}

/// Reads a figure's bounds.
type Bounds = fn(&CheckupRecord) -> Option<(f64, f64)>;

/// All figures: name, unit, bounds.
const FIGURES: [(&str, &str, Bounds); 8] = [
    ("loss_window.median", "commits", |checkup| loss_window(checkup, |spread| spread.median)),
    ("loss_window.p95", "commits", |checkup| loss_window(checkup, |spread| spread.p95)),
    ("loss_window.most", "commits", |checkup| loss_window(checkup, |spread| spread.most)),
    ("crash_loss.most", "commits", |checkup| {
        let most = checkup.loss.as_ref()?.crash.most;
        Some((most, most))
    }),
    ("recovery.median", "s", |checkup| {
        let time = checkup.recovery.as_ref()?.median_s;
        Some((time.lower, time.upper))
    }),
    ("recovery.most", "s", |checkup| {
        let time = checkup.recovery.as_ref()?.most_s;
        Some((time.lower, time.upper))
    }),
    ("archive.age", "s", |checkup| {
        let age = checkup.server.archive.as_ref()?.archived_age_s?;
        Some((age, age))
    }),
    ("slots.kept", "bytes", |checkup| {
        let kept = checkup.server.slots.iter().filter_map(|slot| slot.retained_bytes).max()?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let kept = kept as f64;
        Some((kept, kept))
    }),
];

fn loss_window(checkup: &CheckupRecord, part: fn(&Spread) -> f64) -> Option<(f64, f64)> {
    let host = checkup.loss.as_ref()?.host.as_ref()?;
    Some((part(&host.sent), part(&host.confirmed)))
}

/// Returns a checkup's figures; those that are unknown are left out.
pub fn checkup_figures(checkup: &CheckupRecord) -> Vec<CheckupFigure> {
    let figure = |&(name, unit, bounds): &(&'static str, &'static str, Bounds)| {
        let (lower, upper) = bounds(checkup)?;
        Some(CheckupFigure { name, unit, lower, upper })
    };
    FIGURES.iter().filter_map(figure).collect()
}

/// A refused checkup.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckupThreshold {
    figure: &'static str,
    relation: Relation,
    limit: f64,
    text: String,
}

impl FromStr for CheckupThreshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let names: Vec<&str> = FIGURES.iter().map(|(name, ..)| *name).collect();
        let error = |problem: &str| ThresholdError {
            text: text.chars().take(80).collect(),
            problem: problem.to_owned(),
            hint: format!("the form is FIGURE > NUMBER; figures: {}", names.join(", ")),
        };
        let (left, relation, right) =
            at_relation(&text).ok_or_else(|| error("has neither > nor <"))?;
        let number: Option<f64> =
            right.trim().parse().ok().filter(|number: &f64| number.is_finite());
        let limit = number.ok_or_else(|| error("has no number at its end"))?;
        let figure = names.iter().find(|name| **name == left.trim());
        let figure = *figure.ok_or_else(|| error("names no known figure"))?;
        Ok(Self { figure, relation, limit, text: text.clone() })
    }
}

impl CheckupThreshold {
    /// Decides it: a figure is broken where both of its bounds are.
    pub fn decide(&self, checkup: &CheckupRecord) -> Decision {
        let found = checkup_figures(checkup).into_iter().find(|figure| figure.name == self.figure);
        let Some(CheckupFigure { unit, lower, upper, .. }) = found else {
            let line = format!("{}: unknown of this server: not resolved", self.text);
            return Decision { line, outcome: ThresholdOutcome::NotResolved };
        };
        let outcome = self.relation.of_interval(lower, upper, self.limit);
        let [from, to] = [lower, upper].map(three_digits);
        let range = if lower < upper { format!("{from} to {to}") } else { to };
        let line = format!("{}: {range} {unit}: {}", self.text, outcome.describe());
        Decision { line, outcome }
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{LossBounds, LossWindow};

    use super::*;

    fn record() -> CheckupRecord {
        let confirmed = Spread { median: 10.0, p95: 40.0, most: 90.0 };
        let sent = Spread { median: 0.0, p95: 5.0, most: 20.0 };
        let host = LossBounds { confirmed, sent, range: (0.0, 50.0) };
        let loss = LossWindow { host: Some(host), ..LossWindow::default() };
        CheckupRecord { loss: Some(loss), ..CheckupRecord::default() }
    }

    #[test]
    fn both_bounds_decide() {
        let outcome =
            |text: &str| text.parse::<CheckupThreshold>().unwrap().decide(&record()).outcome;
        assert_eq!(outcome("loss_window.p95 > 100"), ThresholdOutcome::Kept);
        assert_eq!(outcome("loss_window.p95 > 20"), ThresholdOutcome::NotResolved);
        assert_eq!(outcome("loss_window.p95>4"), ThresholdOutcome::Broken);
        assert_eq!(outcome("recovery.most > 60"), ThresholdOutcome::NotResolved);
    }

    #[test]
    fn mistakes_name_the_figures() {
        for text in ["loss_window.p96 > 1", "loss_window.p95", "recovery.most > many"] {
            let error = text.parse::<CheckupThreshold>().unwrap_err();
            assert!(error.hint().contains("recovery.median"), "{error:?}");
        }
    }
}
