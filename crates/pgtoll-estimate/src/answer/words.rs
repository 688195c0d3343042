//! Comparisons and counters in words.

use pgtoll_record::{Comparison, Verdict};

use crate::figures::signed_percent;
use crate::metrics::more;

/// An interval that covers 1 says no more than this of a cost when its bound is farther away.
const TOO_NOISY_ABOVE: f64 = 0.25;

/// The interval covers 1, and does not even tell that the cost is below a quarter.
pub(crate) fn is_too_noisy(comparison: &Comparison) -> bool {
    let worst = worst(comparison);
    comparison.verdict == Verdict::NotResolved && (worst > TOO_NOISY_ABOVE || worst.is_nan())
}

/// The bound on the side of a cost, as a part of the baseline.
fn worst(comparison: &Comparison) -> f64 {
    let Comparison { metric, ratio, .. } = comparison;
    let worst = if metric.more_is_worse() { ratio.upper - 1.0 } else { 1.0 - ratio.lower };
    // An interval that covers 1 promises no gain.
    if worst < 0.0 { 0.0 } else { worst }
}

/// Returns the verdict of a comparison: `+5.9 % [+4.3, +7.4]`, `no difference seen, at most 2.6 %
/// more`, or `too noisy to decide: -28 % to +31 %`.
pub(crate) fn figure(comparison: &Comparison) -> String {
    match comparison.verdict {
        Verdict::Costs | Verdict::Gains => interval(comparison),
        Verdict::NoCostAbove | Verdict::NotResolved if is_too_noisy(comparison) => {
            let [_, lower, upper] = percentages(comparison);
            format!("too noisy to decide: {lower} % to {upper} %")
        }
        Verdict::NoCostAbove | Verdict::NotResolved => {
            format!("no difference seen, {}", at_most(comparison))
        }
    }
}

/// The largest error of rounding.
const ROUNDING: f64 = 1e-9;

/// Returns the bound of a comparison that covers zero: `at most 2.6 % more`, rounded up, so that no bound
/// is promised smaller than it is.
pub(crate) fn at_most(comparison: &Comparison) -> String {
    let percent = worst(comparison) * 100.0;
    let percent = if percent < 9.95 {
        format!("{:.1}", (percent * 10.0 - ROUNDING).ceil() / 10.0)
    } else {
        format!("{:.0}", (percent - ROUNDING).ceil())
    };
    format!("at most {percent} % {}", more(comparison.metric))
}

/// The estimate with its bounds: `+5.9 % [+4.3, +7.4]`.
pub(crate) fn interval(comparison: &Comparison) -> String {
    let [estimate, lower, upper] = percentages(comparison);
    format!("{estimate} % [{lower}, {upper}]")
}

/// Estimate and bounds in per cent, signed, as exact as half of the interval is small.
fn percentages(comparison: &Comparison) -> [String; 3] {
    let half = (comparison.ratio.upper - comparison.ratio.lower) / 2.0 * 100.0;
    let digits = usize::from(half < 9.95);
    [comparison.ratio.estimate, comparison.ratio.lower, comparison.ratio.upper]
        .map(|ratio| signed_percent(ratio.min(1000.0), digits))
}

/// How much a comparison costs, on the log scale; a gain is below zero.
pub(crate) fn harm(comparison: &Comparison) -> f64 {
    let log = comparison.ratio.estimate.ln();
    if comparison.metric.more_is_worse() { log } else { -log }
}

/// The half-width in words at which an interval of this metric is resolved: `±1 %`.
pub(crate) fn precise(target: f64) -> String {
    let percent = target.exp_m1() * 100.0;
    let text = format!("{percent:.1}");
    format!("±{} %", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{Interval, Metric, Run};

    use super::*;
    use crate::summarise;

    const RECORD: &str = include_str!("../../../../records/2026-11-22-pg17/run.jsonl");

    #[test]
    fn an_interval_that_covers_zero_has_a_bound_or_is_too_noisy() {
        let result = summarise(&Run::parse(RECORD).unwrap());
        let some = &result.comparisons[0];
        let check = |metric, verdict, [estimate, lower, upper]: [f64; 3], expected: &str| {
            let ratio = Interval { estimate, lower, upper };
            assert_eq!(figure(&Comparison { metric, verdict, ratio, ..some.clone() }), expected);
        };
        let cpu = Metric::CpuPerTransaction;
        let tps = Metric::TransactionsPerSecond;
        let open = Verdict::NotResolved;
        let bounded = Verdict::NoCostAbove;
        check(cpu, Verdict::Costs, [1.059, 1.043, 1.074], "+5.9 % [+4.3, +7.4]");
        check(cpu, open, [1.01, 0.99, 1.0251], "no difference seen, at most 2.6 % more");
        check(cpu, bounded, [1.0, 0.99, 1.009], "no difference seen, at most 0.9 % more");
        check(tps, open, [0.99, 0.96, 1.02], "no difference seen, at most 4.0 % fewer");
        check(cpu, open, [1.0, 0.7, 1.25], "no difference seen, at most 25 % more");
        check(cpu, open, [1.0, 0.75, 1.26], "too noisy to decide: -25 % to +26 %");
        // Its user called it precise enough.
        check(cpu, bounded, [1.0, 0.75, 1.3], "no difference seen, at most 30 % more");
        check(tps, open, [1.0, 0.74, 1.2], "too noisy to decide: -26 % to +20 %");
    }

    #[test]
    fn precision_is_written_as_it_was_asked_for() {
        assert_eq!(precise(0.02_f64.ln_1p()), "±2 %");
        assert_eq!(precise(0.01), "±1 %");
        assert_eq!(precise(0.015_f64.ln_1p()), "±1.5 %");
    }
}
