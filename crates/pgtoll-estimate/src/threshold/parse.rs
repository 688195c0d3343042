//! From text to a threshold.

use std::str::FromStr;

use pgtoll_format::ByteSize;
use pgtoll_record::Metric;

use super::{Figure, Limit, METRIC_NAMES, Relation, Threshold, ThresholdError};
use crate::metrics::key;

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A name with a line feed in it would be written as another one.
        let text = &text.split_whitespace().collect::<Vec<_>>().join(" ");
        let error = |problem: &str, hint: &str| ThresholdError {
            // A message is no longer than it has to be.
            text: text.chars().take(80).collect(),
            problem: problem.to_owned(),
            hint: hint.to_owned(),
        };
        let (left, relation, right) =
            at_relation(text).ok_or_else(|| error("has neither > nor <", FORM))?;
        let (workload, of_arm) = match left.split_once('/') {
            Some((workload, rest)) => (Some(workload.trim()), rest),
            None => (None, left),
        };
        let (arm, name) = of_arm.split_once('.').ok_or_else(|| error("has no ARM.METRIC", FORM))?;
        let arm = arm.trim();
        let name = name.trim();
        if arm.is_empty() || workload.is_some_and(str::is_empty) {
            return Err(error("names no arm, or no workload", FORM));
        }
        let figure =
            figure(name).ok_or_else(|| error(&unknown(name), &format!("metrics: {}", names())))?;
        let limit = limit(right.trim(), figure).map_err(|(problem, hint)| error(&problem, hint))?;
        Ok(Self {
            workload: workload.map(str::to_owned),
            arm: arm.to_owned(),
            figure,
            relation,
            limit,
            text: text.clone(),
        })
    }
}

const FORM: &str = "the form is [WORKLOAD/]ARM.METRIC > NUMBER[%], as 'checksums.cpu_per_tx > 5%'";

pub(super) fn at_relation(text: &str) -> Option<(&str, Relation, &str)> {
    let at = text.find(['<', '>'])?;
    let (left, rest) = text.split_at(at);
    let relations = [
        (">=", Relation::AtLeast),
        ("<=", Relation::AtMost),
        (">", Relation::Greater),
        ("<", Relation::Less),
    ];
    let mut relations = relations.into_iter();
    relations.find_map(|(sign, relation)| Some((left, relation, rest.strip_prefix(sign)?)))
}

/// By its short name or its full one.
pub(super) fn figure(name: &str) -> Option<Figure> {
    let (_, full) = METRIC_NAMES.iter().find(|(short, full)| *short == name || *full == name)?;
    let compared = Metric::ALL.into_iter().find(|item| key(*item).0 == *full);
    Some(compared.map_or(Figure::Counted(full), Figure::Compared))
}

fn names() -> String {
    METRIC_NAMES.map(|(short, _)| short).join(", ")
}

fn unknown(name: &str) -> String {
    const NOT_EXACT: [&str; 5] = [
        "cpu_system_share",
        "io_workers_cpu_share",
        "profiled_share_of_user_cpu",
        "disk_read_per_",
        "file_writes_per_",
    ];
    if NOT_EXACT.iter().any(|not_exact| name.starts_with(not_exact)) {
        return format!("names {name}, which has no interval and is not exact");
    }
    "names no known metric".to_owned()
}

/// The limit, or problem and hint.
fn limit(text: &str, figure: Figure) -> Result<Limit, (String, &'static str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: Option<f64> = number.parse().ok();
    let number = number.filter(|number| number.is_finite());
    let number = number.ok_or_else(|| ("has no number at its end".to_owned(), FORM))?;
    match (unit.trim(), figure) {
        ("%", _) => Ok(Limit::Percent(number)),
        (_, Figure::Compared(_)) => {
            let problem = "needs a percentage: a timed figure has an interval only as a difference from the baseline";
            Err((
                problem.to_owned(),
                "a number without % applies to counted figures, such as wal_per_tx",
            ))
        }
        ("", _) => Ok(Limit::Absolute(number)),
        (unit, Figure::Counted(name)) => {
            let factor = factor(unit, name).ok_or_else(|| {
                (format!("has an unknown unit \"{unit}\""), "units: %, and B, kB, MB, GB of WAL")
            })?;
            Ok(Limit::Absolute(number * factor))
        }
    }
}

/// Returns the factor of this unit.
#[expect(clippy::cast_precision_loss, reason = "units are small powers")]
fn factor(unit: &str, name: &str) -> Option<f64> {
    if name.contains("images_per_") {
        return (unit == "images").then_some(1.0);
    }
    if name.starts_with("blocks_") {
        return (unit == "blocks").then_some(1.0);
    }
    if unit == "bytes" {
        return Some(1.0);
    }
    format!("1{unit}").parse().ok().map(|ByteSize(bytes)| bytes as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Threshold {
        text.parse().expect(text)
    }

    #[test]
    fn what_a_threshold_is_made_of() {
        let entry = parsed("read-only-misses/checksums.cpu_per_tx  >= 5 %");
        assert_eq!(entry.workload.as_deref(), Some("read-only-misses"));
        assert_eq!(entry.arm, "checksums");
        assert_eq!(entry.figure, Figure::Compared(Metric::CpuPerTransaction));
        assert_eq!((entry.relation, entry.limit), (Relation::AtLeast, Limit::Percent(5.0)));
        assert_eq!(entry.text, "read-only-misses/checksums.cpu_per_tx >= 5 %");
        let item = parsed("hints.wal_per_page<8.5kB");
        assert_eq!((item.relation, item.limit), (Relation::Less, Limit::Absolute(8704.0)));
        assert_eq!(parsed("a.tps<-3%").limit, Limit::Percent(-3.0));
        assert_eq!(parsed("a.wal_per_tx<=12").limit, Limit::Absolute(12.0));
    }

    #[test]
    fn each_name_is_a_figure_and_short_for_itself() {
        for (short, full) in METRIC_NAMES {
            assert_eq!(figure(short), figure(full), "{short}");
            assert_eq!(figure(short).map(Figure::name), Some(full));
        }
    }

    #[test]
    fn mistakes_are_told() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Threshold>().expect_err(text);
            assert_eq!(error.to_string(), format!("\"{text}\" {expected}"));
            assert!(!error.hint().is_empty());
        };
        check("", "has neither > nor <");
        check("checksums.cpu_per_tx = 5%", "has neither > nor <");
        check("checksums > 5%", "has no ARM.METRIC");
        check(".tps > 5%", "names no arm, or no workload");
        check("/a.tps > 5%", "names no arm, or no workload");
        check("a.cpu > 5%", "names no known metric");
        check("a.tps > five", "has no number at its end");
        check(
            "a.tps > 5%%",
            "needs a percentage: a timed figure has an interval only as a difference from the baseline",
        );
        check("a.wal_per_tx > 5 furlongs", "has an unknown unit \"furlongs\"");
        check(
            "a.file_writes_per_tx > 5%",
            "names file_writes_per_tx, which has no interval and is not exact",
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_threshold_or_an_error(text in ".*") {
            let _ = text.parse::<Threshold>();
        }

        #[test]
        fn whatever_looks_like_one_is_one_or_an_error_in_one_line(
            text in "[a-z/. \n]{0,9}(tps|wal_per_tx|x)[ \n]{0,2}[<>=]{0,3} ?[-+0-9.]{0,5}[%kMB]{0,2}"
        ) {
            match text.parse::<Threshold>() {
                Ok(item) => prop_assert_eq!(Ok(item.clone()), item.text().parse::<Threshold>()),
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            }
        }
    }
}
