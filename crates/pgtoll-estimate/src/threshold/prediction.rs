//! Thresholds for predictions: `[SETTING.]FIGURE > NUMBER[%|UNIT]`.

use std::str::FromStr;

use pgtoll_format::ByteSize;
use pgtoll_record::{Interval, PredictionAnswer, PredictionRecord};

use super::parse::at_relation;
use super::{Decision, Relation, ThresholdError, ThresholdOutcome};
use crate::figures::{signed_percent, three_digits};

/// A refused prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionThreshold {
    /// The name of the setting; `None`: each that was requested.
    setting: Option<String>,
    figure: PredictedFigure,
    relation: Relation,
    /// A share, cores, or bytes a second.
    limit: f64,
    text: String,
}

/// A figure of a prediction, as a change from today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PredictedFigure {
    /// The share of the CPU that the server uses.
    CpuShare,
    Cores,
    /// The share of today's WAL.
    WalShare,
    /// WAL, bytes a second.
    Wal,
    /// WAL that is written, sent and archived, bytes a second.
    Copies,
}

const FORM: &str = "the form is [SETTING.]FIGURE > NUMBER[%|UNIT], as 'cpu > 5%', 'wal > 10%', \
                    'wal > 2MB', 'copies > 10MB' or 'cpu > 0.5'";

impl FromStr for PredictionThreshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A name with a line feed in it would be written as another one.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let error = |problem: &str| ThresholdError {
            text: text.chars().take(80).collect(),
            problem: problem.to_owned(),
            hint: FORM.to_owned(),
        };
        let (left, relation, right) =
            at_relation(&text).ok_or_else(|| error("has neither > nor <"))?;
        let (setting, name) = match left.split_once('.') {
            Some((setting, name)) => (Some(setting.trim()), name.trim()),
            None => (None, left.trim()),
        };
        if setting.is_some_and(str::is_empty) {
            return Err(error("names no setting"));
        }
        let right = right.trim();
        let end = right.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)));
        let (number, unit) = right.split_at(end.unwrap_or(right.len()));
        let number: Option<f64> = number.parse().ok().filter(|value: &f64| value.is_finite());
        let number = number.ok_or_else(|| error("has no number at its end"))?;
        let (figure, unit) = figure(name, unit.trim()).map_err(error)?;
        let setting = setting.map(str::to_owned);
        Ok(Self { setting, figure, relation, limit: number * unit, text: text.clone() })
    }
}

/// The figure of this name in this unit, and what a number in that unit is multiplied by.
fn figure(name: &str, unit: &str) -> Result<(PredictedFigure, f64), &'static str> {
    match (name, unit) {
        ("cpu", "%") => Ok((PredictedFigure::CpuShare, 0.01)),
        ("cpu", "" | "cores") => Ok((PredictedFigure::Cores, 1.0)),
        ("wal", "%") => Ok((PredictedFigure::WalShare, 0.01)),
        ("wal" | "copies", unit) => {
            let bytes = bytes(unit).ok_or("has an unknown unit: known are %, and B, kB, MB, GB")?;
            let figure = if name == "wal" { PredictedFigure::Wal } else { PredictedFigure::Copies };
            Ok((figure, bytes))
        }
        ("cpu", _) => Err("has an unknown unit: known are % and cores"),
        _ => Err("names no known figure"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "units are small powers")]
fn bytes(unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    (!unit.is_empty()).then(|| format!("1{unit}").parse().ok())?.map(|ByteSize(bytes)| bytes as f64)
}

impl PredictionThreshold {
    /// Whether an answer to one of these questions can decide it: an error where none is about the
    /// setting that it names.
    pub fn check(&self, settings: &[&str]) -> Result<(), ThresholdError> {
        match &self.setting {
            Some(setting) if !settings.contains(&setting.as_str()) => Err(ThresholdError {
                text: self.text.clone(),
                problem: format!("names setting \"{setting}\", which is not asked about"),
                hint: format!("settings: {}", settings.join(", ")),
            }),
            _ => Ok(()),
        }
    }

    /// A decision for each answer that it is about; at least one.
    pub fn decide(&self, prediction: &PredictionRecord) -> Vec<Decision> {
        let is_about = |answer: &&PredictionAnswer| {
            self.setting.as_ref().is_none_or(|setting| *setting == answer.setting)
        };
        let decisions: Vec<Decision> =
            prediction.answers.iter().filter(is_about).map(|answer| self.about(answer)).collect();
        if decisions.is_empty() {
            let line = format!("{}: not asked about: not resolved", self.text);
            return vec![Decision { line, outcome: ThresholdOutcome::NotResolved }];
        }
        decisions
    }

    fn about(&self, answer: &PredictionAnswer) -> Decision {
        let (figure, outcome) = match self.figure.interval_in(answer) {
            Some(interval) => {
                let outcome = self.relation.of_interval(interval.lower, interval.upper, self.limit);
                (self.figure.describe(&interval), outcome)
            }
            None => (self.figure.unknown().to_owned(), ThresholdOutcome::NotResolved),
        };
        let question = format!("{} = {}", answer.setting, answer.value);
        let line = format!("{}: {question}: {figure}: {}", self.text, outcome.describe());
        Decision { line, outcome }
    }
}

impl PredictedFigure {
    fn interval_in(self, answer: &PredictionAnswer) -> Option<Interval> {
        match self {
            Self::CpuShare => answer.cpu.as_ref()?.share_of_busy,
            Self::Cores => Some(answer.cpu.as_ref()?.cores),
            Self::WalShare => {
                let wal = answer.wal.as_ref()?;
                let extra = wal.extra_bytes_per_second;
                // Nothing more is nothing of a server that made no WAL, too.
                let is_nothing = extra.lower >= 0.0 && extra.upper <= 0.0;
                wal.extra_share.or(is_nothing.then_some(extra))
            }
            Self::Wal => Some(answer.wal.as_ref()?.extra_bytes_per_second),
            Self::Copies => answer.io_bytes_per_second,
        }
    }

    /// `+2.9 % [+2.4, +3.5]`.
    fn describe(self, interval: &Interval) -> String {
        let three = |words: fn(f64) -> String, unit: &str| {
            let [estimate, lower, upper] =
                [interval.estimate, interval.lower, interval.upper].map(words);
            format!("{estimate} {unit} [{lower}, {upper}]")
        };
        match self {
            Self::CpuShare | Self::WalShare => three(|share| signed_percent(1.0 + share, 1), "%"),
            Self::Cores => three(three_digits, "cores"),
            Self::Wal | Self::Copies => three(|bytes| three_digits(bytes / 1024.0), "kB/s"),
        }
    }

    fn unknown(self) -> &'static str {
        match self {
            Self::CpuShare => {
                "not known of a server that is remote or idle: compare cores, as 'cpu > 0.5'"
            }
            Self::Cores => "CPU is unknown",
            Self::WalShare | Self::Wal | Self::Copies => "WAL is unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> PredictionRecord {
        let text = include_str!("../../../pgtoll-report/tests/fixtures/prediction.json");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn bounds_decide() {
        let check = |text: &str, expected: ThresholdOutcome| {
            let threshold: PredictionThreshold = text.parse().expect(text);
            let decisions = threshold.decide(&record());
            assert_eq!(decisions.len(), 1);
            assert_eq!(decisions[0].outcome, expected, "{}", decisions[0].line);
        };
        // WAL 2.9 % [2.4, 3.5], 31.6 kB/s [25.7, 37.3]; CPU 0.024 %, 0.00012 cores.
        check("wal > 10%", ThresholdOutcome::Kept);
        check("wal > 3%", ThresholdOutcome::NotResolved);
        check("wal > 2%", ThresholdOutcome::Broken);
        check("data_checksums.wal >= 2 %", ThresholdOutcome::Broken);
        check("wal > 20kB", ThresholdOutcome::Broken);
        check("wal > 1MB/s", ThresholdOutcome::Kept);
        check("copies > 30kB", ThresholdOutcome::NotResolved);
        check("cpu>5%", ThresholdOutcome::Kept);
        check("cpu > 0.00001 cores", ThresholdOutcome::Broken);
        check("cpu < 1", ThresholdOutcome::Broken);
        check("max_wal_size.wal > 1%", ThresholdOutcome::NotResolved);
    }

    #[test]
    fn a_figure_that_is_not_known_is_not_resolved() {
        let mut remote = record();
        if let Some(cpu) = remote.answers[0].cpu.as_mut() {
            cpu.share_of_busy = None;
        }
        let threshold: PredictionThreshold = "cpu > 5%".parse().unwrap();
        let decision = threshold.decide(&remote).remove(0);
        assert_eq!(decision.outcome, ThresholdOutcome::NotResolved);
        assert!(decision.line.contains("'cpu > 0.5'"), "{decision:?}");
    }

    #[test]
    fn the_line_names_question_figure_and_range() {
        let threshold: PredictionThreshold = "wal>10%".parse().unwrap();
        let line = "wal>10%: data_checksums = on: +2.9 % [+2.4, +3.5]: kept";
        assert_eq!(threshold.decide(&record())[0].line, line);
    }

    #[test]
    fn mistakes_are_told() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<PredictionThreshold>().expect_err(text);
            assert_eq!(error.to_string(), format!("\"{text}\" {expected}"));
            assert!(error.hint().contains("the form is"));
        };
        check("wal", "has neither > nor <");
        check(".wal > 5%", "names no setting");
        check("tps > 5%", "names no known figure");
        check("wal > x", "has no number at its end");
        check("wal > 5", "has an unknown unit: known are %, and B, kB, MB, GB");
        check("cpu > 5MB", "has an unknown unit: known are % and cores");
        let other: PredictionThreshold = "wal_log_hints.wal > 5%".parse().unwrap();
        let error = other.check(&["data_checksums"]).unwrap_err();
        assert!(error.to_string().ends_with("which is not asked about"), "{error}");
        assert!(other.check(&["data_checksums", "wal_log_hints"]).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_threshold_or_an_error(text in "[a-z. \n]{0,9}(cpu|wal|x)?[<>=]{0,3} ?[-+0-9.]{0,5}[%kMB/s]{0,3}") {
            if let Err(error) = text.parse::<PredictionThreshold>() {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
