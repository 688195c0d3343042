//! The bench's output.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pgtoll_record::trials::{TwinsComparison, TwinsRun, TwinsSummary};
use pgtoll_stats::{median, proportion_interval};

use crate::score::share;

/// The handicap in each workload.
pub(crate) fn planted(planted: &BTreeMap<String, f64>) -> String {
    planted.iter().fold(String::new(), |mut text, (workload, share)| {
        let _ = writeln!(text, "{workload}: {:.2} % more server CPU planted", share * 100.0);
        text
    })
}

/// A row for each workload and metric of twins, one for each workload with a handicap, and the sums.
pub(crate) fn twins_table(runs: &[TwinsRun], summary: &TwinsSummary) -> String {
    let mut text = String::new();
    let twins = rows(runs.iter().flat_map(|run| &run.twins));
    let _ = writeln!(text, "\n{:<44}{:>8}{:>8}{:>14}", "twins", "all", "missed", "half-width");
    for (name, found) in &twins {
        let missed = found.iter().filter(|item| item.missed).count();
        let width = half_width(found);
        let _ = writeln!(text, "{name:<44}{:>8}{missed:>8}{width:>12.1} %", found.len());
    }
    let handicaps = rows(runs.iter().flat_map(|run| &run.handicaps));
    let _ = writeln!(text, "\n{:<44}{:>8}{:>8}{:>14}", "handicaps", "all", "found", "half-width");
    for (name, found) in &handicaps {
        let sure = found.iter().filter(|item| item.ratio.lower > 1.0).count();
        let width = half_width(found);
        let _ = writeln!(text, "{name:<44}{:>8}{sure:>8}{width:>12.1} %", found.len());
    }
    let TwinsSummary { runs, twins, twins_missed, handicaps, .. } = *summary;
    let _ = writeln!(
        text,
        "\n{runs} runs: {} of comparisons of twins miss; {} of handicaps are found, {} of their \
         intervals miss what was planted",
        in_words(twins_missed, twins),
        in_words(summary.handicaps_found, handicaps),
        in_words(summary.handicaps_missed, handicaps),
    );
    text
}

/// Comparisons by workload and metric.
fn rows<'a>(
    all: impl Iterator<Item = &'a TwinsComparison>,
) -> BTreeMap<String, Vec<&'a TwinsComparison>> {
    let mut rows: BTreeMap<String, Vec<&TwinsComparison>> = BTreeMap::new();
    for comparison in all {
        rows.entry(format!(
            "{}, {}",
            comparison.workload,
            pgtoll_estimate::metric_name(comparison.metric)
        ))
        .or_default()
        .push(comparison);
    }
    rows
}

/// The median half-width, in percent on the log scale.
fn half_width(comparisons: &[&TwinsComparison]) -> f64 {
    let widths: Vec<f64> = comparisons
        .iter()
        .map(|comparison| (comparison.ratio.upper / comparison.ratio.lower).ln() * 50.0)
        .collect();
    median(&widths).unwrap_or(f64::NAN)
}

/// `21 of 400 (5.3 %, 3.5 to 7.9)`. The interval takes comparisons as independent, which those of a
/// run are only in part.
fn in_words(part: u64, whole: u64) -> String {
    let (lower, upper) = proportion_interval(part, whole).unwrap_or((0.0, 1.0));
    let percent = share(part, whole) * 100.0;
    format!("{part} of {whole} ({percent:.1} %, {:.1} to {:.1})", lower * 100.0, upper * 100.0)
}
