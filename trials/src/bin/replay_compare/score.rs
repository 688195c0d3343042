//! Results of comparisons, beside the known truth. Pure.

use std::fmt::Write as _;

use pgtoll_record::trials::{ReplayComparePlant, ReplayCompareSummary, ReplayCompareTrial};
use pgtoll_stats::proportion_interval;

use crate::comparison::name;

/// Of comparisons without a difference those that may name a statement.
const NAMED_MAX: f64 = 0.05;
/// Of planted ones those that have to be found.
const FOUND_MIN: f64 = 0.9;

/// Sums over all comparisons.
pub(crate) fn summary(trials: &[ReplayCompareTrial]) -> ReplayCompareSummary {
    let mut sums = ReplayCompareSummary::default();
    for trial in trials {
        let found = u64::from(trial.found == Some(true));
        match trial.plant {
            ReplayComparePlant::Nothing => {
                let named = !trial.slower.is_empty() || !trial.faster.is_empty();
                sums.same += 1;
                sums.same_named += u64::from(named);
            }
            ReplayComparePlant::Fifth => {
                sums.fifth += 1;
                sums.fifth_found += found;
            }
            ReplayComparePlant::Index => {
                sums.index += 1;
                sums.index_found += found;
            }
        }
    }
    sums
}

/// Whether the goals are reached, of what was planted at all.
pub(crate) fn is_good(sums: &ReplayCompareSummary) -> bool {
    let few = sums.same == 0 || share(sums.same_named, sums.same) <= NAMED_MAX;
    let finds = |found, all| all == 0 || share(found, all) >= FOUND_MIN;
    few && finds(sums.fifth_found, sums.fifth) && finds(sums.index_found, sums.index)
}

/// A comparison in a line.
pub(crate) fn line(trial: &ReplayCompareTrial) -> String {
    let mut text = format!(
        "{:<8} seed {}: floor {:.1} %; {} slower, {} faster",
        name(trial.plant),
        trial.seed,
        trial.floor * 100.0,
        trial.slower.len(),
        trial.faster.len()
    );
    if let Some(planted) = trial.planted {
        let found = if trial.found == Some(true) { "found" } else { "NOT FOUND" };
        let _ = write!(
            text,
            "; planted {found}, {:.3} ({:.3} to {:.3})",
            planted.ratio, planted.lower, planted.upper
        );
    }
    if trial.plant == ReplayComparePlant::Nothing {
        for slower in trial.slower.iter().chain(&trial.faster) {
            let _ = write!(text, "; FALSE: {:.3} {}", slower.range.ratio, slower.statement);
        }
    }
    text.push('\n');
    text
}

/// The sums in words.
pub(crate) fn in_words(sums: &ReplayCompareSummary) -> String {
    let mut text = String::new();
    for (label, part, all) in [
        ("without a difference, name a statement", sums.same_named, sums.same),
        ("with a statement slower by a fifth, name it", sums.fifth_found, sums.fifth),
        ("with a worse index, name its statement", sums.index_found, sums.index),
    ] {
        if let Some((lower, upper)) = proportion_interval(part, all).filter(|_| all > 0) {
            let _ = writeln!(
                text,
                "{part} of {all} comparisons {label} ({:.0} to {:.0} %)",
                lower * 100.0,
                upper * 100.0
            );
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "comparisons are few")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use pgtoll_record::RatioRange;
    use pgtoll_record::trials::ReplayCompareNamed;

    use super::*;

    fn trial(plant: ReplayComparePlant, named: bool) -> ReplayCompareTrial {
        let range = RatioRange { ratio: 1.2, lower: 1.1, upper: 1.3 };
        let named_one = ReplayCompareNamed { statement: "select ?".to_owned(), range };
        let is_planted = plant != ReplayComparePlant::Nothing;
        ReplayCompareTrial {
            plant,
            seed: 1,
            made: String::new(),
            shapes: 11,
            floor: 0.02,
            slower: if named { vec![named_one] } else { Vec::new() },
            faster: Vec::new(),
            planted: is_planted.then_some(range),
            found: is_planted.then_some(named),
        }
    }

    #[test]
    fn one_false_alarm_in_twenty_and_nine_finds_in_ten_are_good() {
        let check = |named: usize, found: usize, expected: bool| {
            let same = (0..20).map(|index| trial(ReplayComparePlant::Nothing, index < named));
            let fifth = (0..20).map(|index| trial(ReplayComparePlant::Fifth, index < found));
            let sums = summary(&same.chain(fifth).collect::<Vec<_>>());
            assert_eq!((sums.same_named, sums.fifth_found), (named as u64, found as u64));
            assert_eq!(is_good(&sums), expected, "{sums:?}");
        };
        check(0, 20, true);
        check(1, 18, true);
        check(2, 20, false);
        check(0, 17, false);
    }

    #[test]
    fn what_is_named_is_shown() {
        let alarm = line(&trial(ReplayComparePlant::Nothing, true));
        assert!(alarm.contains("FALSE: 1.200 select ?"), "{alarm}");
        let missed = line(&trial(ReplayComparePlant::Index, false));
        assert!(missed.contains("planted NOT FOUND, 1.200 (1.100 to 1.300)"), "{missed}");
    }
}
