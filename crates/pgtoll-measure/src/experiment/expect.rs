//! Expectations of an experiment.

use pgtoll_record::{Expectation, ExpectedFigure};
use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Inconsistency;
use super::mistake::{KeyPath, nearest};
use super::{Experiment, WorkloadSpec};

/// An expected result, and its source.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    /// A workload, a measured step or a total.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The figure, by its name in the result: `cpu_per_transaction`, `wal_per_page` and the like.
    pub metric: String,
    /// The least and the most: percentages are differences from the baseline or the arm `against`,
    /// numbers are values of the arm.
    pub between: Option<[Bound; 2]>,
    /// The least alone.
    pub at_least: Option<Bound>,
    /// The most alone.
    pub at_most: Option<Bound>,
    /// The arm that the difference is from, instead of the baseline.
    pub against: Option<String>,
    /// The source of the expectation.
    pub source: String,
    /// The published sentence, in a few words.
    pub claim: Option<String>,
    /// The address of the publication.
    #[schemars(regex(pattern = "^https?://"))]
    pub url: Option<String>,
    /// Why it may come out otherwise here; shown unless it holds.
    pub explained: Option<String>,
}

/// A bound of what is expected: a percentage is a difference from the baseline, a number a value
/// of the arm.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Bound {
    /// A value of the arm.
    Value(f64),
    /// A difference from the baseline: `8%`, `-1%`.
    Percent(#[schemars(regex(pattern = r"^[+-]?[0-9]+(\.[0-9]+)?%$"))] String),
}

impl Bound {
    /// The number, and whether it is a difference (then as a fraction); `None` when it is neither.
    fn number(&self) -> Option<(f64, bool)> {
        let (number, relative) = match self {
            Self::Value(value) => (*value, false),
            Self::Percent(text) => {
                (text.trim().strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0, true)
            }
        };
        number.is_finite().then_some((number, relative))
    }
}

impl ExpectSpec {
    /// For the record; `None` when it does not hold together.
    pub fn expectation(&self) -> Option<Expectation> {
        let (lower, upper) = match (&self.between, &self.at_least, &self.at_most) {
            (Some([lower, upper]), None, None) => (Some(lower), Some(upper)),
            (None, lower, upper) => (lower.as_ref(), upper.as_ref()),
            _ => return None,
        };
        let number =
            |bound: Option<&Bound>| bound.map_or(Some(None), |bound| bound.number().map(Some));
        let lower = number(lower)?;
        let upper = number(upper)?;
        let relative = [lower, upper].into_iter().flatten().map(|(_, relative)| relative);
        let all_alike = relative.clone().all(|item| Some(item) == relative.clone().next());
        let in_order = lower.zip(upper).is_none_or(|(lower, upper)| lower.0 <= upper.0);
        (all_alike && in_order).then_some(())?;
        Some(Expectation {
            workload: self.workload.clone(),
            arm: self.arm.clone(),
            metric: self.metric.clone(),
            relative: relative.clone().next()?,
            lower: lower.map(|(number, _)| number),
            upper: upper.map(|(number, _)| number),
            against: self.against.clone(),
            source: self.source.clone(),
            claim: self.claim.clone(),
            url: self.url.clone(),
            explained: self.explained.clone(),
        })
    }

    fn inconsistencies(&self, place: &KeyPath, experiment: &Experiment) -> Vec<Inconsistency> {
        let mut found = self.unknown_names(place, experiment);
        if let Some(other) = &self.against {
            found.extend(experiment.wrong_against(&self.arm, other, place.key("against")));
        }
        if let Some(url) = &self.url
            && !["https://", "http://"].iter().any(|scheme| url.starts_with(scheme))
        {
            let text = format!("{url:?} is not the address of a page");
            let hint = Some("begin it with https://".to_owned());
            found.push(Inconsistency { hint, ..Inconsistency::at(place.key("url"), text) });
        }
        found.extend(self.wrong_bounds(experiment).map(|(text, hint)| Inconsistency {
            hint: Some(hint.to_owned()),
            ..Inconsistency::at(place.clone(), text)
        }));
        found
    }

    /// Workload, arm and metric that do not exist.
    fn unknown_names(&self, place: &KeyPath, experiment: &Experiment) -> Vec<Inconsistency> {
        let mut found = Vec::new();
        let names = || experiment.workloads.iter().flat_map(WorkloadSpec::names);
        if names().all(|name| name != self.workload) {
            let names: Vec<&str> = names().collect();
            let label = format!("workload {:?} does not exist", self.workload);
            let place = place.key("workload");
            found.push(Inconsistency::not_among(place, &label, &self.workload, names));
        }
        if experiment.arm_names().all(|name| name != self.arm) {
            let label = format!("arm {:?} does not exist", self.arm);
            let names = experiment.arm_names();
            found.push(Inconsistency::not_among(place.key("arm"), &label, &self.arm, names));
        }
        if ExpectedFigure::named(&self.metric).is_none() {
            let near = nearest(&self.metric, ExpectedFigure::names());
            let hint = near.map_or_else(
                || format!("for example {}", EXAMPLES.join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            let text = format!("no metric is called {:?}", self.metric);
            let unknown = Inconsistency::at(place.key("metric"), text);
            found.push(Inconsistency { hint: Some(hint), ..unknown });
        }
        found
    }

    /// The faults of its bounds, and what to do about it.
    fn wrong_bounds(&self, experiment: &Experiment) -> Option<(String, &'static str)> {
        let from = self.against.as_ref().unwrap_or(&experiment.baseline);
        let (text, hint) = match self.expectation() {
            None => (
                "the expectation has no bounds that fit together",
                "between = [\"-1%\", \"8%\"], or at_least, or at_most; percentages, or numbers",
            ),
            Some(bounds)
                if bounds.relative && self.arm == experiment.baseline && self.arm == *from =>
            {
                (
                    "the baseline does not differ from itself",
                    "name another arm, or write bounds without %",
                )
            }
            Some(bounds) if !bounds.relative && bounds.against.is_some() => {
                ("a value is not against another arm", "write bounds with %, or leave out against")
            }
            Some(bounds) if !bounds.relative && self.is_compared() => {
                let text = format!("{} is compared with the baseline only", self.metric);
                return Some((text, "write bounds with %"));
            }
            Some(_) => return None,
        };
        Some((text.to_owned(), hint))
    }

    /// Its metric is a comparison's, and no value of one arm.
    fn is_compared(&self) -> bool {
        matches!(ExpectedFigure::named(&self.metric), Some(ExpectedFigure::Compared(_)))
    }
}

const EXAMPLES: [&str; 3] = ["cpu_per_transaction", "wal_per_transaction", "wal_images_per_page"];

impl Experiment {
    pub(super) fn check_expectations(&self, found: &mut Vec<Inconsistency>) {
        for (index, item) in self.expect.iter().enumerate() {
            let place = KeyPath::default().key("expect").entry(index);
            found.extend(item.inconsistencies(&place, self));
        }
    }
}
