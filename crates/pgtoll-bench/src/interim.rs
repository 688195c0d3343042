//! How far a workload has come, for its user to see while it runs.

use std::fmt;
use std::time::Duration;

use pgtoll_format::TimeSpan;
use pgtoll_stats::{Options, Sample, pair_up, paired_ratio};

use crate::Plan;

/// What is known of a workload while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InterimEstimate {
    /// Half of the widest interval of the arms' server CPU, on the log scale; `None` before two
    /// rounds or repetitions have ended.
    pub half_width: Option<f64>,
    /// About how long the rest of the workload takes; `None` before the first round or repetition
    /// has ended.
    pub left: Option<Duration>,
}

impl InterimEstimate {
    /// After `done` of `all` equal parts, which took this long.
    pub(crate) fn after(half_width: Option<f64>, done: u32, all: u32, took: Duration) -> Self {
        let left = (done > 0).then(|| took / done.max(1) * all.saturating_sub(done));
        Self { half_width, left }
    }
}

/// `server CPU ±2.1 % so far, 50 s left`; nothing when nothing is known.
impl fmt::Display for InterimEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(half_width) = self.half_width {
            let percent = (half_width.exp_m1() * 100.0).min(999.0);
            let digits = usize::from(percent < 9.95);
            write!(f, "server CPU ±{percent:.digits$} % so far")?;
        }
        if let Some(left) = self.left {
            let comma = if self.half_width.is_some() { ", " } else { "" };
            write!(f, "{comma}{} left", TimeSpan(left).rounded())?;
        }
        Ok(())
    }
}

/// Half of the widest interval of the arms against the baseline; `None` where one of them cannot
/// be told yet.
pub(crate) fn widest(plan: &Plan, samples: &[Sample<'_>], options: &Options) -> Option<f64> {
    let experiment = &plan.experiment;
    let others = experiment.arms.iter().filter(|arm| arm.name != experiment.baseline);
    let half_widths: Option<Vec<f64>> = others
        .map(|arm| {
            let rounds = pair_up(samples, &arm.name, &experiment.baseline);
            // One round does not know the spread between rounds.
            let estimate = (rounds.len() > 1).then(|| paired_ratio(&rounds, options).ok())??;
            Some(estimate.half_width)
        })
        .collect();
    half_widths?.into_iter().max_by(f64::total_cmp)
}

/// For looks in between: fewer resamples than a result has.
pub(crate) fn quick_options(plan: &Plan, kappa: f64) -> Options {
    Options { resamples: 500, seed: plan.seed, widening: kappa, ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_what_is_known() {
        let said = |half_width, done| {
            InterimEstimate::after(half_width, done, 6, Duration::from_secs(10) * done).to_string()
        };
        assert_eq!(said(None, 0), "");
        assert_eq!(said(None, 1), "50 s left");
        assert_eq!(said(Some(0.021_f64.ln_1p()), 2), "server CPU ±2.1 % so far, 40 s left");
        assert_eq!(said(Some(0.27_f64.ln_1p()), 4), "server CPU ±27 % so far, 20 s left");
    }
}
