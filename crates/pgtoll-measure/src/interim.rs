//! Progress of a workload, for its user to see while it runs.

use std::fmt;
use std::time::Duration;

use pgtoll_estimate::{ArmPair, Intervals, RecordLines};
use pgtoll_format::TimeSpan;
use pgtoll_record::Calibration;

use crate::{Plan, recorded_workloads};

/// The known facts about a workload while it runs.
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

/// Half of the widest interval of server CPU of these workloads, on the log scale, as a result would
/// have it; `None` where one of them has none yet.
pub(crate) fn half_width(
    plan: &Plan,
    calibration: &[Calibration],
    names: &[&str],
    lines: RecordLines<'_>,
) -> Option<f64> {
    let experiment = &plan.experiment;
    let arms = experiment.arms.iter().map(|arm| (arm.name.as_str(), arm.twin_of.as_deref()));
    let intervals = Intervals {
        pairs: ArmPair::of_arms(&experiment.baseline, arms),
        seed: plan.seed,
        calibration,
    };
    let workloads = recorded_workloads(plan);
    let half_widths = names.iter().map(|name| {
        let workload = workloads.iter().find(|workload| workload.name == **name)?;
        intervals.interim_half_width(lines, workload)
    });
    half_widths.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use pgtoll_record::Run;

    use super::*;
    use crate::{Choices, Experiment};

    #[test]
    fn the_text_has_what_is_known() {
        let output = |half_width, done| {
            InterimEstimate::after(half_width, done, 6, Duration::from_secs(10) * done).to_string()
        };
        assert_eq!(output(None, 0), "");
        assert_eq!(output(None, 1), "50 s left");
        assert_eq!(output(Some(0.021_f64.ln_1p()), 2), "server CPU ±2.1 % so far, 40 s left");
        assert_eq!(output(Some(0.27_f64.ln_1p()), 4), "server CPU ±27 % so far, 20 s left");
    }

    #[test]
    fn the_rule_that_ends_a_run_sees_what_its_record_shows() {
        let run = Run::parse(include_str!("../../../records/2026-11-22-pg17/run.jsonl")).unwrap();
        let header = &run.header;
        let choices = Choices { seed: header.seed, ..Choices::default() };
        let plan = Plan::new(Experiment::built_in("checksums").unwrap().unwrap(), &choices);
        let sliced =
            header.workloads.iter().filter(|workload| workload.timed && workload.slicing.is_some());
        let operations =
            header.workloads.iter().filter(|workload| workload.timed && workload.slicing.is_none());
        let first = sliced.min_by_key(|sliced| &sliced.name);
        let step = operations.min_by_key(|operation| &operation.name);
        for workload in [first.unwrap(), step.unwrap()] {
            let names = [workload.name.as_str()];
            let seen =
                half_width(&plan, &header.calibration, &names, RecordLines::from(&run)).unwrap();
            let shown =
                Intervals::from(header).interim_half_width(RecordLines::from(&run), workload);
            assert_eq!(Some(seen.to_bits()), shown.map(f64::to_bits), "{}", workload.name);
        }
    }
}
